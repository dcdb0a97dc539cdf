//! Lanes: who may write which flog group, and which free block is whose.
//!
//! A lane is a token. Whoever holds [`Lanes`] owns their flog groups and free blocks until the
//! request is complete, on whatever processor and thread: it is not tied to either, so nothing
//! that interrupts its holder can give it to somebody else. (Linux 6.7 tied lanes to processors
//! and let tasks be preempted: two could share one, and data was lost.)
//!
//! A reader publishes in its lane which block it is reading (the read tracking table), and a
//! writer that was given this block as its free one waits until the reader is gone:
//!
//! ```text
//! reader                          the block's next writer (its map entry was changed before)
//! reading[lane] = block           fence
//! fence                           while any reading == block: wait
//! map entry still this block?     overwrite the block
//! read the block
//! reading[lane] = nothing
//! ```
//!
//! Store then load, on both sides: both need a sequentially consistent fence.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use super::flog::next_seq;

/// Lanes that one request may hold at a time: it makes so many blocks durable together.
pub const BATCH: usize = 64;
const NOT_READING: u32 = u32::MAX;

/// All lanes of an arena.
pub struct LanePool {
    /// A bit for each lane that is free. Lane `bit * words.len() + word`: low numbers are used
    /// first, from whichever word a queue starts, so that few need to be looked at.
    words: Box<[CacheLine<AtomicU64>]>,
    lanes: Box<[CacheLine<BttLane>]>,
    /// One more than the highest lane that ever read.
    readers_end: AtomicUsize,
}

/// A cache line of its own: two processors do not fight for it.
#[repr(align(64))]
struct CacheLine<T>(T);

struct BttLane {
    /// Block that the owner is reading.
    reading: AtomicU32,
    /// The owner's alone: handed over with the bit in `words`.
    free: AtomicU64,
}

/// State of a lane: its free block, and the place of its next log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// Belongs to no sector.
    pub block: u32,
    /// Set if the next entry is the second of the pair.
    pub second: bool,
    /// Its sequence number.
    pub seq: u32,
}

impl LanePool {
    /// A pool with one lane for each of `free`.
    pub fn new(free: &[FreeBlock]) -> Self {
        let count = free.len().div_ceil(64).max(1);
        let word = |word: usize| {
            let bits = (0..64).filter(|bit| bit * count + word < free.len());
            CacheLine(AtomicU64::new(bits.fold(0, |bits, bit| bits | 1 << bit)))
        };
        let lane = |free: &FreeBlock| {
            CacheLine(BttLane { reading: AtomicU32::new(NOT_READING), free: AtomicU64::new(free.pack()) })
        };
        Self {
            words: (0..count).map(word).collect(),
            lanes: free.iter().map(lane).collect(),
            readers_end: AtomicUsize::new(0),
        }
    }

    /// Between one and `want` lanes (at most [`BATCH`]), waiting while none is free. `home` is
    /// the caller's own number: different ones look in different places first.
    pub fn take(&self, home: usize, want: usize) -> Lanes<'_> {
        let mut tries = 0;
        loop {
            if let Some(lanes) = self.try_take(home, want.clamp(1, BATCH)) {
                return lanes;
            }
            back_off(&mut tries);
        }
    }

    fn try_take(&self, home: usize, want: usize) -> Option<Lanes<'_>> {
        let mut lanes = Lanes { pool: self, numbers: [0; BATCH], count: 0 };
        for step in 0..self.words.len() {
            let word = (home + step) % self.words.len();
            let bits = &self.words[word].0;
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 && lanes.count < want {
                let taken = lowest_bits(seen, want - lanes.count);
                let left = seen & !taken;
                match bits.compare_exchange_weak(seen, left, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        lanes.add(word, taken);
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
            if lanes.count == want {
                break;
            }
        }
        (lanes.count > 0).then_some(lanes)
    }

    /// Waits until nobody reads `block`, which belongs to no sector any more.
    pub fn wait_until_unread(&self, block: u32) {
        fence(Ordering::SeqCst);
        let end = self.readers_end.load(Ordering::SeqCst);
        for lane in &self.lanes[..end] {
            let mut tries = 0;
            while lane.0.reading.load(Ordering::Acquire) == block {
                back_off(&mut tries);
            }
        }
    }
}

/// Lanes that are owned until this is dropped.
pub struct Lanes<'a> {
    pool: &'a LanePool,
    numbers: [u16; BATCH],
    count: usize,
}

impl Lanes<'_> {
    /// How many there are, at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of the lane at `index`, which is that of its flog group.
    pub fn number(&self, index: usize) -> u32 {
        u32::from(self.numbers[index])
    }

    /// The free block of the lane at `index`.
    pub fn free(&self, index: usize) -> FreeBlock {
        // Relaxed: the lane's bit carries it from owner to owner.
        FreeBlock::unpack(self.lane(index).free.load(Ordering::Relaxed))
    }

    /// Notes that the write on the lane at `index` is in the map: `block` is free instead.
    pub fn freed(&self, index: usize, block: u32) {
        let used = self.free(index);
        let next = FreeBlock { block, second: !used.second, seq: next_seq(used.seq) };
        self.lane(index).free.store(next.pack(), Ordering::Relaxed);
    }

    /// Publishes that `block` is being read on the first lane. The caller then looks at the map
    /// again.
    pub fn start_reading(&self, block: u32) {
        let end = usize::from(self.numbers[0]) + 1;
        if self.pool.readers_end.load(Ordering::Relaxed) < end {
            self.pool.readers_end.fetch_max(end, Ordering::SeqCst);
        }
        self.lane(0).reading.store(block, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws it.
    pub fn stop_reading(&self) {
        self.lane(0).reading.store(NOT_READING, Ordering::Release);
    }

    fn lane(&self, index: usize) -> &BttLane {
        &self.pool.lanes[usize::from(self.numbers[index])].0
    }

    fn add(&mut self, word: usize, mut bits: u64) {
        while bits != 0 {
            let bit = bits.trailing_zeros() as usize;
            let number = bit * self.pool.words.len() + word;
            self.numbers[self.count] = u16::try_from(number).expect("a pool has 4096 lanes at most");
            self.count += 1;
            bits &= bits - 1;
        }
    }
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        // A reader that fails or panics must not keep its block from being written for ever.
        self.stop_reading();
        let words = self.pool.words.len();
        for &number in &self.numbers[..self.count] {
            let number = usize::from(number);
            let bits = &self.pool.words[number % words].0;
            bits.fetch_or(1 << (number / words), Ordering::Release);
        }
    }
}

impl FreeBlock {
    fn pack(self) -> u64 {
        u64::from(self.block) | u64::from(self.seq) << 32 | u64::from(self.second) << 40
    }

    fn unpack(word: u64) -> Self {
        let [b0, b1, b2, b3, seq, second, ..] = word.to_le_bytes();
        Self { block: u32::from_le_bytes([b0, b1, b2, b3]), seq: u32::from(seq), second: second != 0 }
    }
}

/// The lowest `count` bits that are set in `word`.
fn lowest_bits(word: u64, count: usize) -> u64 {
    let mut rest = word;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    word & !rest
}

/// First stays on the processor, then lets others run, then sleeps.
fn back_off(tries: &mut u32) {
    *tries += 1;
    match *tries {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(lanes: u32) -> LanePool {
        let free = |block| FreeBlock { block, second: true, seq: 2 };
        LanePool::new(&(0..lanes).map(free).collect::<Vec<_>>())
    }

    #[test]
    fn every_lane_has_one_owner_at_a_time() {
        let pool = pool(200);
        let mut held = Vec::new();
        let mut numbers = Vec::new();
        while let Some(lanes) = pool.try_take(held.len(), 7) {
            numbers.extend((0..lanes.count()).map(|index| lanes.number(index)));
            held.push(lanes);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
        drop(held.remove(3));
        assert!((1..=7).contains(&pool.take(0, 64).count()));
        drop(held);
        assert_eq!(pool.take(5, 64).count(), 64);
        assert_eq!(pool.take(0, 0).count(), 1);
        assert_eq!(pool.take(0, 1000).count(), BATCH);
    }

    #[test]
    fn low_lanes_are_used_first_from_every_home() {
        let pool = pool(256);
        let numbers: Vec<u32> = (0..4).map(|home| pool.take(home, 1).number(0)).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn free_block_is_handed_on_to_the_next_owner() {
        let pool = pool(1);
        let lanes = pool.take(0, 1);
        lanes.freed(0, (1 << 30) - 1);
        drop(lanes);
        let next = FreeBlock { block: (1 << 30) - 1, second: false, seq: 3 };
        assert_eq!(pool.take(9, 1).free(0), next);
    }

    /// As the holder of a lane that the scheduler took off its processor: others get other lanes,
    /// and wait when there are none.
    #[test]
    fn lane_is_kept_while_its_owner_is_interrupted() {
        let pool = pool(1);
        let lanes = pool.take(0, 1);
        assert!(pool.try_take(0, 1).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(0, 1).free(0).block);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            lanes.freed(0, 42);
            drop(lanes);
            assert_eq!(waiting.join().unwrap(), 42);
        });
    }

    #[test]
    fn writer_waits_for_the_reader_of_its_block_only() {
        let pool = pool(64);
        let reader = pool.take(0, 1);
        reader.start_reading(7);
        pool.wait_until_unread(8);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| pool.wait_until_unread(7));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!writer.is_finished());
            // Dropped without `stop_reading`, as on an error's way out.
            drop(reader);
            writer.join().unwrap();
        });
    }

    #[test]
    fn lowest_bits_are_taken() {
        assert_eq!(lowest_bits(0b1011_0100, 2), 0b0001_0100);
        assert_eq!(lowest_bits(0b1000, 5), 0b1000);
        assert_eq!(lowest_bits(u64::MAX, 64), u64::MAX);
    }
}
