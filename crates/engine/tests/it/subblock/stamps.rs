//! Many threads, and every block always somebody's.
//!
//! Each 16 bytes say who wrote them, for which place, and as the how-manieth write. All writes and
//! reads are entered in a history with the times of their beginning and end; at the end each thing
//! read is judged:
//!
//! ```text
//! writes   ├─ a ─┤   ├─── b ───┤
//!                      ├─ c ─┤                 time ─►
//! reads          ├─1─┤     ├─2─┤    ├─3─┤
//!          1: a only (or what was before a, if it began earlier)   2: a, b, c   3: b, c; no longer a
//! ```
//!
//! Only two things that are under way at once may mix, and only where no claim is promised between
//! them: blocks of XTS that are overwritten in place, and reads beside writes of whole sectors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::layer::Exclusion;
use cryptline_engine::{Gate, Request};
use cryptline_testkit::suite::devices::{self, AES_4096, AUTO, CBC_4096, INLINE, Layout, QUEUE, QUEUE_FLAGS, QUICK};
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog, noise};

use super::{BLOCK, SECTOR, data_of};

/// Blocks that are written: four times four sectors.
const BLOCKS: u64 = 4 * 4 * 8;
const WRITERS: u64 = 4;
const READERS: u64 = 2;
/// Requests of each thread.
const REQUESTS: u64 = 400;
/// Requests of a thread in flight.
const DEPTH: usize = 8;
/// Bytes that are stamped by themselves: a block of the cipher.
const PIECE: usize = 16;

/// A write: the thread in the upper half, its number in the lower.
type Id = u64;

#[derive(Clone, Copy, Debug)]
struct WriteEntry {
    id: Id,
    began: u64,
    ended: u64,
    first: u64,
    count: u64,
}

/// A block as it was read: whose its pieces are, each once; `None` for noise.
#[derive(Debug)]
struct ReadEntry {
    block: u64,
    began: u64,
    ended: u64,
    seen: Vec<Option<Id>>,
}

#[derive(Default)]
struct History {
    writes: Vec<WriteEntry>,
    reads: Vec<ReadEntry>,
}

fn stamp(data: &mut [u8], first: u64, id: Id) {
    for (piece, bytes) in (first * BLOCK / PIECE as u64..).zip(data.chunks_mut(PIECE)) {
        bytes[..8].copy_from_slice(&id.to_le_bytes());
        bytes[8..].copy_from_slice(&noise(id ^ noise(piece)).to_le_bytes());
    }
}

fn decode(bytes: &[u8], piece: u64) -> Option<Id> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let id = word(0);
    (word(8) == noise(id ^ noise(piece))).then_some(id)
}

/// Division of the disk among the writers.
#[derive(Clone, Copy, Debug)]
enum Ground {
    /// Every block has one owner; sectors have several.
    Owned,
    /// Four sectors, and everybody writes everywhere; whole sectors are written by the first only.
    Contended,
}

/// Of each group of four sectors two belong to one writer, with a quarter of the sectors at either
/// end; the rest of those belongs to the others.
fn owner(block: u64) -> u64 {
    let (sector, pair) = (block / 8, block % 8 / 2);
    let group = sector / 4;
    match sector % 4 {
        0 => (pair + group + 1) % WRITERS,
        3 => (pair + group) % WRITERS,
        _ => group % WRITERS,
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        noise(self.0) % limit
    }
}

impl Ground {
    /// First block and number of blocks of a writer's next write.
    fn choose(self, writer: u64, dice: &mut Dice) -> (u64, u64) {
        match self {
            Self::Owned => loop {
                let first = dice.below(BLOCKS);
                if owner(first) != writer {
                    continue;
                }
                let most = (first..BLOCKS).take_while(|&block| owner(block) == writer);
                return (first, 1 + dice.below(most.count() as u64));
            },
            Self::Contended if writer == 0 => match dice.below(3) {
                0 => (dice.below(4) * 8, 8),
                1 => (dice.below(3) * 8, 16),
                _ => (dice.below(10), 9 + dice.below(12)),
            },
            // Never a whole sector.
            Self::Contended => (dice.below(32 - 7), 1 + dice.below(7)),
        }
    }

    /// Tells if a writer may have two writes of one block in flight.
    fn may_overlap(self, writer: u64) -> bool {
        matches!(self, Self::Contended) && writer != 0
    }
}

/// Time as all threads agree on it.
#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// One thread's part.
struct Player<'a> {
    driver: Driver,
    clock: &'a Clock,
    dice: Dice,
    /// Writes in flight, by token.
    in_flight: BTreeMap<u64, WriteEntry>,
    history: History,
    next_token: u64,
}

impl<'a> Player<'a> {
    fn new(gate: &Gate, setup: Setup, clock: &'a Clock, seed: u64) -> Self {
        Self {
            driver: Driver::new(gate, setup),
            clock,
            dice: Dice(noise(seed)),
            in_flight: BTreeMap::new(),
            history: History::default(),
            next_token: 0,
        }
    }

    fn write_all(mut self, ground: Ground, writer: u64) -> History {
        for number in 1..=REQUESTS {
            let (first, count) = ground.choose(writer, &mut self.dice);
            let is_free = |entry: &WriteEntry| first + count <= entry.first || entry.first + entry.count <= first;
            while !ground.may_overlap(writer) && !self.in_flight.values().all(is_free) {
                self.take_one();
            }
            let id = (writer + 1) << 32 | number;
            let mut data = self.driver.buffer(count * BLOCK);
            stamp(&mut data, first, id);
            let durable = self.dice.below(16) == 0;
            self.send(Request::write(0, data, durable, 0), (id, first, count));
            if self.dice.below(4) == 0 {
                let first = self.dice.below(BLOCKS - 3);
                self.read(first, 1 + self.dice.0 % 3);
            }
        }
        self.end()
    }

    fn read_all(mut self) -> History {
        for _ in 0..REQUESTS {
            let first = self.dice.below(BLOCKS);
            let count = 1 + self.dice.below((BLOCKS - first).min(20));
            self.read(first, count);
        }
        self.end()
    }

    fn read(&mut self, first: u64, count: u64) {
        let buffer = self.driver.buffer(count * BLOCK);
        self.send(Request::read(0, buffer, 0), (0, first, count));
    }

    fn send(&mut self, request: Request, (id, first, count): (Id, u64, u64)) {
        while self.in_flight.len() >= DEPTH {
            self.take_one();
        }
        self.next_token += 1;
        let entry = WriteEntry { id, began: self.clock.tick(), ended: 0, first, count };
        self.in_flight.insert(self.next_token, entry);
        self.driver.submit(Request { offset: first * BLOCK, token: self.next_token, ..request });
    }

    fn take_one(&mut self) {
        let completion = self.driver.next_completion().expect("something in flight");
        completion.result.expect("nothing fails");
        let mut entry = self.in_flight.remove(&completion.request.token).unwrap();
        entry.ended = self.clock.tick();
        if entry.id > 0 {
            self.history.writes.push(entry);
            return;
        }
        let blocks = data_of(&completion).chunks(512);
        for (block, bytes) in (entry.first..).zip(blocks) {
            let first_piece = block * BLOCK / PIECE as u64;
            let pieces = (first_piece..).zip(bytes.chunks(PIECE));
            let mut seen: Vec<_> = pieces.map(|(at, bytes)| decode(bytes, at)).collect();
            seen.sort_unstable();
            seen.dedup();
            self.history.reads.push(ReadEntry { block, began: entry.began, ended: entry.ended, seen });
        }
    }

    fn end(mut self) -> History {
        while !self.in_flight.is_empty() {
            self.take_one();
        }
        self.history
    }
}

impl History {
    /// Judges every block that was read.
    fn judge(&self, mixes_in_place: bool) -> Result<(), String> {
        let mut of_block: BTreeMap<u64, Vec<&WriteEntry>> = BTreeMap::new();
        for write in &self.writes {
            for block in write.first..write.first + write.count {
                of_block.entry(block).or_default().push(write);
            }
        }
        for writes in of_block.values_mut() {
            writes.sort_by_key(|write| write.ended);
        }
        for read in &self.reads {
            judge(read, &of_block[&read.block], mixes_in_place)?;
        }
        Ok(())
    }
}

/// Judges a block that was read by the writes of it, in the order of their ends.
fn judge(read: &ReadEntry, writes: &[&WriteEntry], mixes_in_place: bool) -> Result<(), String> {
    let before = writes.partition_point(|write| write.ended < read.began);
    // What ended before another began, that itself had ended before the read, can not be seen.
    let latest = writes[..before].iter().map(|write| write.began).max();
    let can_be_seen =
        |write: &&&WriteEntry| write.began < read.ended && latest.is_none_or(|latest| write.ended >= latest);
    let live: Vec<_> = writes.iter().filter(can_be_seen).collect();
    for id in read.seen.iter().flatten() {
        if !live.iter().any(|write| write.id == *id) {
            let known = writes.iter().find(|write| write.id == *id);
            return Err(format!("stale or foreign: {id:#x} ({known:?}) in {read:?}"));
        }
    }
    let is_whole = |write: &&&&WriteEntry| {
        let sector = read.block / 8 * 8;
        write.first <= sector && sector + 8 <= write.first + write.count
    };
    let may_mix = live.len() > 1 && (mixes_in_place || live.iter().any(|write| is_whole(&write)));
    match read.seen[..] {
        [Some(_)] => Ok(()),
        _ if may_mix => Ok(()),
        _ => Err(format!("torn or noise: {read:?} of {live:?}")),
    }
}

/// All threads at once over one device.
fn play(gate: &Gate, setup: Setup, mixes_in_place: bool, ground: Ground, seed: u64) {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let clock = Clock::default();
    let mut history = History::default();
    let mut first = Player::new(gate, setup, &clock, seed);
    let mut data = first.driver.buffer(BLOCKS * BLOCK);
    let everything = (1, 0, BLOCKS);
    stamp(&mut data, 0, everything.0);
    first.send(Request::write(0, data, false, 0), everything);
    history.add(first.end());
    std::thread::scope(|scope| {
        let clock = &clock;
        let player = move |index| Player::new(gate, setup, clock, seed ^ noise(index));
        let writers = (0..WRITERS).map(|writer| scope.spawn(move || player(writer).write_all(ground, writer)));
        let readers = (0..READERS).map(|reader| scope.spawn(move || player(100 + reader).read_all()));
        let threads: Vec<_> = writers.chain(readers).collect();
        for thread in threads {
            history.add(thread.join().expect("a thread that ends"));
        }
    });
    let mut last = Player::new(gate, setup, &clock, seed);
    last.read(0, BLOCKS);
    history.add(last.end());
    assert_eq!(history.writes.len() as u64, 1 + WRITERS * REQUESTS);
    history.judge(mixes_in_place).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
}

impl History {
    fn add(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
    }
}

/// Plays on every ground, over every setup.
fn on(make: impl Fn() -> Option<Fresh>, mixes_in_place: bool) {
    for (round, setup) in (0..).zip(Setup::ALL) {
        for ground in [Ground::Owned, Ground::Contended] {
            let Some(fresh) = make() else { return };
            println!("{setup:?}, {ground:?}");
            assert!(BLOCKS / 8 * SECTOR < fresh.gate.geometry().size);
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let seed = noise(u64::from(since.unwrap().subsec_nanos())) ^ round;
            play(&fresh.gate, setup, mixes_in_place, ground, seed);
        }
    }
}

/// Plays over a volume on `base`.
fn over(base: impl Fn() -> Option<Fresh>, layout: &Layout, exclusion: Exclusion, dispatch: Dispatch) {
    let Some(sample) = base() else { return };
    // Where the medium has no small blocks, XTS is rewritten under a claim too.
    let is_fine = sample.gate.geometry().logical_block <= 512;
    let make = || Some(devices::in_blocks(base()?, layout, 512, exclusion, dispatch));
    on(make, is_fine && layout.cipher.contains("xts"));
}

fn slow_ram() -> Option<Fresh> {
    Some(devices::delayed(devices::ram()?, QUICK))
}

macro_rules! every_block_is_somebodys_last_word {
    ($($name:ident: $base:expr, $layout:expr, $exclusion:ident $(by $dispatch:expr)?;)+) => { $(
        #[test]
        fn $name() {
            let dispatch = [INLINE, $($dispatch)?];
            over($base, &$layout, Exclusion::$exclusion, dispatch[dispatch.len() - 1]);
        }
    )+ };
}

every_block_is_somebodys_last_word! {
    no_write_is_lost_or_torn_in_cbc_over_ram: devices::ram, CBC_4096, Shared;
    no_write_is_lost_or_torn_in_cbc_over_slow_ram: slow_ram, CBC_4096, Shared;
    no_write_is_lost_or_torn_in_cbc_over_a_direct_file: devices::file_direct, CBC_4096, Shared;
    no_write_is_lost_or_torn_in_cbc_by_helpers_over_ram: devices::ram, CBC_4096, Shared by AUTO;
    no_write_is_lost_or_torn_in_cbc_by_workers_over_slow_ram:
        slow_ram, CBC_4096, Shared by QUEUE;
    no_write_is_lost_or_torn_in_cbc_by_workers_over_a_direct_file:
        devices::file_direct, CBC_4096, Shared by QUEUE_FLAGS;
    no_write_is_lost_or_torn_in_xts_over_ram: devices::ram, AES_4096, Shared;
    no_write_is_lost_or_torn_in_xts_over_slow_ram: slow_ram, AES_4096, Shared;
    no_write_is_lost_or_torn_in_xts_over_a_direct_file: devices::file_direct, AES_4096, Shared;
    no_write_is_lost_or_torn_in_xts_over_large_blocks:
        devices::file_direct_4096, AES_4096, Shared;
    no_write_is_lost_or_torn_in_cbc_exclusively_over_ram: devices::ram, CBC_4096, Exclusive;
    no_write_is_lost_or_torn_in_cbc_exclusively_over_slow_ram: slow_ram, CBC_4096, Exclusive;
    no_write_is_lost_or_torn_in_cbc_exclusively_over_a_direct_file:
        devices::file_direct, CBC_4096, Exclusive;
    no_write_is_lost_or_torn_in_xts_exclusively_over_ram: devices::ram, AES_4096, Exclusive;
    no_write_is_lost_or_torn_in_xts_exclusively_over_slow_ram: slow_ram, AES_4096, Exclusive;
    no_write_is_lost_or_torn_in_xts_exclusively_over_a_direct_file:
        devices::file_direct, AES_4096, Exclusive;
}

/// The judge must be able to find fault.
#[test]
fn lost_stale_torn_and_foreign_blocks_are_found() {
    let write = |id, began, ended, (first, count)| WriteEntry { id, began, ended, first, count };
    let writes =
        vec![write(1, 0, 1, (0, 8)), write(2, 10, 20, (3, 1)), write(3, 15, 30, (3, 1)), write(4, 40, 50, (3, 1))];
    let sees = |(began, ended), seen: &[Option<Id>], in_place| {
        let reads = vec![ReadEntry { block: 3, began, ended, seen: seen.to_vec() }];
        let writes = writes.clone();
        History { writes, reads }.judge(in_place).is_ok()
    };
    assert!(sees((5, 6), &[Some(1)], false));
    assert!(!sees((5, 6), &[Some(2)], false), "not begun yet");
    assert!(sees((12, 13), &[Some(1)], false) && sees((12, 13), &[Some(2)], false));
    // Two that overlapped may have come in either order.
    assert!(sees((31, 35), &[Some(2)], false) && sees((31, 35), &[Some(3)], false));
    assert!(!sees((31, 35), &[Some(1)], false), "a lost write");
    assert!(!sees((60, 61), &[Some(3)], false), "a lost write");
    assert!(!sees((60, 61), &[Some(9)], false), "nobody's");
    assert!(!sees((60, 61), &[None], true), "noise, and nothing is under way");
    assert!(!sees((31, 35), &[Some(2), Some(3)], false), "torn");
    assert!(sees((31, 35), &[Some(2), Some(3)], true), "in place");
}
