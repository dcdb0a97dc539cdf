//! A kernel of these tests' own: it reads the lists that it is given, and writes others.

use std::fs::File;

use super::*;
use crate::FileId;
use crate::ublk::UblkPayload;

const DEPTH: u16 = 5;
const QUEUE: u16 = 3;
/// Flags of a completion that has a list, and of one after which there are more.
const BUFFER: u32 = 1 << 0;
const MORE: u32 = 1 << 1;

struct Bench {
    batch: Batch,
    /// The next list that the kernel writes to.
    list: u16,
}

fn command(tag: u16, result: i32) -> UblkCommand {
    UblkCommand::for_test(FileId::for_test(), QUEUE, tag, result, UblkPayload::Sector(1000 + u64::from(tag)))
}

impl Bench {
    fn new() -> Self {
        let device = Arc::new(File::open("/dev/null").unwrap().into());
        Self { batch: Batch::new(device, QUEUE, DEPTH, true).unwrap(), list: 0 }
    }

    /// One whose tags are all with the kernel.
    fn fetching() -> Self {
        let mut bench = Self::new();
        bench.add(0..DEPTH, 0);
        assert_eq!(bench.operation(), Some(Part::List));
        assert_eq!(bench.operation(), None);
        assert_eq!(bench.batch.to_expect(), 0, "the fetch is to begin");
        bench.batch.complete(Part::List, 0, 0);
        assert_eq!(bench.operation(), Some(Part::Fetch));
        assert_eq!(bench.operation(), None);
        bench
    }

    /// The slot of a tag is 100 more.
    fn add(&mut self, tags: impl IntoIterator<Item = u16>, result: i32) {
        for tag in tags {
            self.batch.add(100 + u32::from(tag), &mut command(tag, result));
        }
    }

    fn operation(&mut self) -> Option<Part> {
        self.batch.next_operation().map(|(part, _)| part)
    }

    /// The elements that the kernel reads.
    fn read(&self) -> Vec<(u16, i32, u64)> {
        self.batch.sent.iter().map(|it| (it.tag, it.result, it.word)).collect()
    }

    /// The kernel lists tags, in the order in which it was given memory for that.
    fn list(&mut self, tags: &[u16], more: u32) {
        let bytes = i32::try_from(tags.len() * 2).unwrap();
        for (at, tag) in tags.iter().enumerate() {
            let to = self.batch.lists.at(self.list);
            // SAFETY: inside the list's memory.
            unsafe { crate::racing::copy_in(&tag.to_ne_bytes(), to.add(at * 2)) };
        }
        self.batch.complete(Part::Fetch, bytes, u32::from(self.list) << 16 | BUFFER | more);
        self.list = (self.list + 1) % self.batch.lists.count;
    }

    fn take_in(&mut self, bytes: usize) {
        self.batch.complete(Part::List, i32::try_from(bytes).unwrap(), 0);
    }

    fn ended(&mut self) -> Vec<(u32, Result<usize, Errno>)> {
        std::iter::from_fn(|| self.batch.next_ended()).collect()
    }
}

#[test]
fn operations_are_laid_out_as_the_kernel_has_them() {
    let bytes = |entry: Entry| {
        // SAFETY: 64 bytes of numbers.
        unsafe { (&raw const entry).cast::<[u8; 64]>().read() }
    };
    let mut bench = Bench::new();
    bench.add(0..DEPTH, 0);
    let list = bytes(bench.batch.next_operation().unwrap().1);
    // UBLK_U_IO_PREP_IO_CMDS, IORING_OP_URING_CMD.
    assert_eq!(list[0], 46);
    assert_eq!(list[8..12], 0xc010_7525_u32.to_ne_bytes());
    assert_eq!(list[16..24], (bench.batch.sent.as_ptr().addr() as u64).to_ne_bytes());
    assert_eq!(list[48..56], [3, 0, 1, 0, 5, 0, 16, 0]);
    bench.batch.complete(Part::List, 0, 0);
    let fetch = bytes(bench.batch.next_operation().unwrap().1);
    assert_eq!(fetch[8..12], 0xc010_7527_u32.to_ne_bytes());
    // Of many completions, with memory of the first group.
    assert_eq!((fetch[1], &fetch[28..32], &fetch[40..42]), (1 << 5, &2_u32.to_ne_bytes()[..], &[0, 0][..]));
    assert_eq!(fetch[48..56], [3, 0, 0, 0, 0, 0, 2, 0]);
}

#[test]
fn nothing_goes_to_the_kernel_before_each_tag_has_its_memory() {
    let mut bench = Bench::new();
    bench.add(0..DEPTH - 1, 0);
    assert_eq!(bench.operation(), None);
    bench.add([DEPTH - 1], 0);
    assert_eq!(bench.operation(), Some(Part::List));
    assert_eq!(bench.read(), [0, 1, 2, 3, 4].map(|tag| (tag, 0, 1000 + u64::from(tag))));
}

#[test]
fn requests_that_come_together_and_their_answers_take_one_command() {
    let mut bench = Bench::fetching();
    let mut commands = 0;
    for turn in 0..1000 {
        bench.list(&[4, 1, 2], MORE);
        bench.list(&[0], MORE);
        assert_eq!(bench.ended(), [104, 101, 102, 100].map(|slot| (slot, Ok(0))));
        bench.add([1, 0, 2, 4], turn);
        commands += std::iter::from_fn(|| bench.operation()).count();
        assert_eq!(bench.read(), [1, 0, 2, 4].map(|tag| (tag, turn, 1000 + u64::from(tag))));
        // The end of a commit is of no use by itself.
        assert_eq!(bench.batch.to_expect(), 1);
        bench.take_in(64);
        assert_eq!(bench.batch.to_expect(), 0);
        assert_eq!(bench.ended(), []);
    }
    assert_eq!(commands, 1000);
}

#[test]
fn answers_wait_for_a_commit_that_is_under_way_and_a_wait_for_nothing_else() {
    let mut bench = Bench::fetching();
    bench.list(&[0, 1], MORE);
    assert_eq!(bench.ended().len(), 2);
    bench.add([0], 7);
    assert_eq!(bench.operation(), Some(Part::List));
    bench.add([1], 8);
    assert_eq!(bench.operation(), None);
    assert_eq!((bench.batch.to_expect(), bench.batch.has_next()), (0, false));
    bench.take_in(16);
    assert!(bench.batch.has_next());
    assert_eq!(bench.operation(), Some(Part::List));
    assert_eq!(bench.read(), [(1, 8, 1001)]);
}

#[test]
fn who_leaves_learns_when_the_kernel_has_all_answers() {
    let mut bench = Bench::fetching();
    assert!(bench.batch.confirm());
    bench.list(&[2], MORE);
    bench.add([2], 0);
    assert!(!bench.batch.confirm());
    assert_eq!(bench.operation(), Some(Part::List));
    assert!(!bench.batch.confirm());
    assert_eq!(bench.batch.to_expect(), 0);
    bench.take_in(16);
    assert!(bench.batch.confirm());
}

#[test]
fn device_that_stops_gives_each_tag_back_once_its_answer_has_arrived() {
    let gone = |slots: &[u32]| slots.iter().map(|&slot| (slot, Err(Errno::NODEV))).collect::<Vec<_>>();
    let mut bench = Bench::fetching();
    bench.list(&[0, 1, 2], MORE);
    assert_eq!(bench.ended().len(), 3);
    bench.add([0], 0);
    assert_eq!(bench.operation(), Some(Part::List));
    bench.add([1], 0);
    bench.batch.complete(Part::Fetch, -19, 0);
    assert_eq!(bench.ended(), gone(&[103, 104]));
    assert_eq!(bench.batch.to_expect(), 0);
    bench.take_in(16);
    assert_eq!(bench.ended(), gone(&[100]));
    // The one that is still worked on is answered as well.
    bench.add([2], 0);
    assert_eq!(bench.operation(), Some(Part::List));
    assert_eq!(bench.read().len(), 2);
    bench.take_in(32);
    assert_eq!(bench.ended(), gone(&[101, 102]));
}

#[test]
fn commit_that_is_taken_in_part_fails_all_its_tags() {
    for result in [16, 0, -22, -14] {
        let mut bench = Bench::fetching();
        bench.list(&[0, 1], MORE);
        assert_eq!(bench.ended().len(), 2);
        bench.add([0, 1], 0);
        assert_eq!(bench.operation(), Some(Part::List));
        bench.batch.complete(Part::List, result, 0);
        let ended = bench.ended();
        assert_eq!(ended.len(), 2, "{result}");
        assert!(ended.iter().all(|it| it.1.is_err_and(|errno| errno != Errno::NODEV)), "{ended:?}");
    }
}

#[test]
fn memory_that_the_kernel_does_not_take_fails_every_tag() {
    let mut bench = Bench::new();
    bench.add(0..DEPTH, 0);
    assert_eq!(bench.operation(), Some(Part::List));
    bench.batch.complete(Part::List, -22, 0);
    assert_eq!(bench.ended(), [100, 101, 102, 103, 104].map(|slot| (slot, Err(Errno::INVAL))));
    assert_eq!(bench.operation(), None);
}

#[test]
fn list_that_makes_no_sense_ends_the_queue() {
    for tags in [&[DEPTH][..], &[1, 1]] {
        let mut bench = Bench::fetching();
        bench.list(tags, MORE);
        let ended = bench.ended();
        assert_eq!(ended.len(), usize::from(DEPTH), "{ended:?}");
        assert_eq!(ended.last().unwrap().1, Err(Errno::PROTO));
    }
}

#[test]
fn lists_are_given_back_in_the_order_in_which_they_were_read() {
    let mut bench = Bench::fetching();
    let count = usize::from(bench.batch.lists.count);
    assert_eq!(count, 8);
    for tail in 9..40_u16 {
        bench.list(&[1], MORE);
        assert_eq!(bench.ended().len(), 1);
        bench.add([1], 0);
        assert_eq!(bench.operation(), Some(Part::List));
        bench.take_in(16);
        assert_eq!(bench.batch.lists.tail, tail);
        let mut entry = [0; 16];
        let place = usize::from(tail - 1) % count;
        // SAFETY: inside the ring's memory.
        unsafe { crate::racing::copy_out(bench.batch.lists.ring.add(place * 16), &mut entry) };
        let list = bench.batch.lists.at(u16::try_from(place).unwrap());
        assert_eq!(entry[0..8], (list.addr() as u64).to_ne_bytes());
        assert_eq!(entry[8..12], 10_u32.to_ne_bytes());
        assert_eq!(usize::from(entry[12]), place);
    }
}
