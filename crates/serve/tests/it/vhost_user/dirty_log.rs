//! The log of written pages, by which a front-end moves a machine that runs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::common::vhost::{MEMORY, Placed, Vring};

const LOG: u64 = 1 << 26;
const FEATURES: u64 = 1 << 13 | 1 << 14 | 1 << 28 | 1 << 30 | 1 << 32 | FLUSH | EVENT_IDX;
const PAGE: u64 = 4096;
/// Bytes of a log for all of the machine's memory.
const WHOLE: u64 = (GUEST + MEMORY) / PAGE / 8;
const SET_LOG_BASE: u32 = 6;

fn log(len: u64) -> OwnedFd {
    let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, len).expect("memory");
    file
}

fn place(len: u64, offset: u64) -> Vec<u8> {
    [len, offset].map(u64::to_ne_bytes).concat()
}

/// Hands over a log as front-ends do, which wait for an answer though they do not ask for one.
fn hand_log_over(front: &FrontEnd, log: &OwnedFd, len: u64) {
    front.send(SET_LOG_BASE, 0, &place(len, 0), &[log.as_fd()]);
    assert_eq!(front.reply(), Some(0u64.to_ne_bytes().into()));
}

/// From here on pages are noted, or no longer.
fn turn(front: &FrontEnd, on: bool) {
    let features = FEATURES | if on { LOG } else { 0 };
    front.tell(2, &features.to_ne_bytes());
}

/// The pages of the machine whose bits are set; they are cleared.
fn take(log: &OwnedFd) -> BTreeSet<u64> {
    let mut bits = vec![0; usize::try_from(WHOLE).expect("small")];
    assert_eq!(rustix::io::pread(log, &mut bits, 0), Ok(bits.len()));
    rustix::io::pwrite(log, &vec![0; bits.len()], 0).expect("cleared");
    let of_byte = |(byte, bits): (u64, &u8)| {
        let bits = *bits;
        (0..8).filter(move |bit| bits & 1 << bit != 0).map(move |bit| 8 * byte + bit)
    };
    let set = (0..).zip(&bits).flat_map(of_byte);
    set.map(|page| page.checked_sub(GUEST / PAGE).expect("in the machine")).collect()
}

fn pages(at: u64, len: u64) -> impl Iterator<Item = u64> {
    at / PAGE..=(at + len - 1) / PAGE
}

/// All that a device writes for a read.
fn written_for(queue: &Vring, placed: &Placed, len: u64) -> BTreeSet<u64> {
    let status = queue.status_at(placed.head);
    let served = pages(placed.data, len).chain(pages(status, 1));
    served.chain(pages(USED, 1)).collect()
}

#[test]
fn pages_that_are_written_while_a_log_comes_and_goes_are_in_it() {
    const COUNT: usize = 60;
    for backend in BACKENDS {
        let served = Served::over(stack::ram(SIZE), backend);
        let mut driver = served.driver();
        works(&mut driver);
        let log = log(WHOLE);
        for _ in 0..20 {
            let put = |driver: &mut Driver, len: u64| {
                let placed = (0..COUNT).map(|_| driver.put(&read(8, len)));
                let placed = placed.collect::<Vec<_>>();
                driver.kick();
                placed
            };
            let before = put(&mut driver, 512);
            hand_log_over(&driver.front, &log, WHOLE);
            turn(&driver.front, true);
            let after = put(&mut driver, 9 * 512);
            for _ in 0..2 * COUNT {
                let (head, _) = driver.take();
                assert_eq!(driver.status(head), OK);
            }
            let dirty = take(&log);
            let must = after.iter().flat_map(|it| written_for(&driver.queue, it, 9 * 512));
            let must: BTreeSet<_> = must.collect();
            assert!(dirty.is_superset(&must), "{:?}", must.difference(&dirty));
            let may = before.iter().flat_map(|it| written_for(&driver.queue, it, 512));
            let may: BTreeSet<_> = may.chain(must).collect();
            assert!(dirty.is_subset(&may), "{:?}", dirty.difference(&may));
            turn(&driver.front, false);
            // What the queue has noted after its last answer.
            take(&log);
            works(&mut driver);
            assert!(take(&log).is_empty());
        }
    }
}

#[test]
fn log_that_replaces_another_is_the_only_one_in_use_once_it_is_answered() {
    let served = ram();
    let mut driver = served.driver();
    let [one, two] = [log(WHOLE), log(WHOLE)];
    turn(&driver.front, true);
    hand_log_over(&driver.front, &one, WHOLE);
    works(&mut driver);
    assert!(!take(&one).is_empty());
    hand_log_over(&driver.front, &two, WHOLE);
    // Nobody needs the first one any more.
    ftruncate(&one, 0).expect("cut");
    works(&mut driver);
    // Neither does it get lost with a new table of memory, or with a queue that begins again.
    take(&two);
    driver.front.share(&driver.machine);
    works(&mut driver);
    assert!(!take(&two).is_empty());
    restart(&driver);
    works(&mut driver);
    assert!(!take(&two).is_empty());
}

#[test]
fn log_that_is_too_small_or_cut_short_ends_its_rings_and_no_more() {
    for (len, cut, why) in [(1, 1, "outside the shared memory"), (WHOLE, 0, "cut short")] {
        let served = ram();
        let mut driver = served.driver();
        works(&mut driver);
        let log = log(WHOLE);
        hand_log_over(&driver.front, &log, len);
        turn(&driver.front, true);
        ftruncate(&log, cut).expect("cut");
        driver.put(&read(0, 512));
        driver.kick();
        served.says(why);
        assert!(driver.front.base(0).is_some(), "messages are answered");
        drop(driver);
        works(&mut served.driver());
    }
}

#[test]
fn log_that_can_not_be_used_is_refused() {
    let served = ram();
    let mut driver = served.driver();
    let log = log(WHOLE);
    for (len, offset) in [(0, 0), (u64::MAX, 0), (WHOLE, u64::MAX - 5), (1 << 62, 0)] {
        let told = driver.front.tell_with(SET_LOG_BASE, &place(len, offset), &[log.as_fd()]);
        assert_eq!(told, Some(false), "{len} {offset}");
    }
    // Asked for or not, there is one answer.
    assert_eq!(driver.front.tell_with(SET_LOG_BASE, &place(WHOLE, 0), &[log.as_fd()]), Some(true));
    let told = driver.front.tell_with(7, &[], &[event().as_fd()]);
    assert_eq!(told, Some(false), "nobody is told of each page");
    works(&mut driver);
    let protocol = driver.front.ask_number(15);
    driver.front.tell(16, &(protocol & !2).to_ne_bytes());
    let told = driver.front.tell_with(SET_LOG_BASE, &place(WHOLE, 0), &[log.as_fd()]);
    assert_eq!(told, Some(false), "not agreed on");
    works(&mut driver);
    drop(driver);
    for (payload, files) in [(&place(WHOLE, 0)[..], 0), (&[0; 8], 1), (&place(WHOLE, 0), 2)] {
        let front = FrontEnd::new(served.connect());
        front.agree(FEATURES);
        let files = vec![log.as_fd(); files];
        assert_eq!(front.tell_with(SET_LOG_BASE, payload, &files), None);
    }
}

/// The last server may have ended between its store and the note of it. The log comes before the queue or after it.
#[test]
fn used_index_is_in_the_log_of_the_next_server() {
    for is_late in [false, true] {
        let first = ram();
        let mut driver = first.driver();
        works(&mut driver);
        drop(first);
        let (second, log) = (ram(), log(WHOLE));
        driver.go_to(second.connect(), FEATURES | LOG);
        if !is_late {
            hand_log_over(&driver.front, &log, WHOLE);
        }
        driver.start_queue(driver.queue.used);
        if is_late {
            hand_log_over(&driver.front, &log, WHOLE);
        }
        assert!(take(&log).contains(&(USED / PAGE)));
        drop(driver);
    }
}
