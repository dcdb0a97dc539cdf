//! Cost of a request on media that answer at once, beside a bare copy.
//!
//! The 2017 thread that removed `rw_page` asked whether a page needs a path of its own, beside an on-stack request. It
//! does not: docs/bench-json.md has the figures.
//!
//! ```text
//! media      ram, pmem (a mapped file), and a block translation table over each
//! ways       memcpy │ an on-stack request │ a request from the heap
//! check      what each way writes every way must read                          ── first
//! runs       every way of every medium has its turn, in an order that changes  ── timed
//! counts     instructions and allocations of each, where the system lets us    ── last
//! ```
//!
//! The blocks of a medium lie in four parts, each larger than a second-level cache. Each turn walks another part than the
//! one before it: no way finds in the caches what another has just touched, as no user of a disk does that is larger than
//! the caches. With `--warm` a turn walks its part twice and only the second walk is timed.

mod places;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cryptline::size;
use cryptline_cipher::ceiling::median;
use cryptline_engine::Buffer;
use cryptline_sys::Counter;

use crate::contents::{TestPattern, random};
use crate::error::{Result, fail};
use crate::load;
use crate::plan::{Plan, RunArgs};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Quantity, Row, TurnResults, word};
use places::{HEAP, MEMCPY, MediumPath, ON_STACK};

/// Bytes in a request: a page.
const BLOCK: u32 = 4096;
/// Requests in a turn at most: 16 MiB of blocks, more than a second-level cache holds.
const TURN: usize = 4096;
/// Parts that the blocks of a medium lie in.
const PARTS: usize = 4;
/// Requests between two looks at the clock. A turn's time is the median of such pieces, most of which are not disturbed
/// by other programs.
const PIECE: usize = 64;
/// Requests whose instructions and allocations are counted.
const COUNTED: usize = 512;
/// Least size: a piece for each part.
const SIZE_MIN: u64 = 1 << 20;
/// Below this size, blocks stay in caches.
const SIZE_OF_GOALS: u64 = 64 << 20;
const DIRECTIONS: [DataDirection; 2] = [DataDirection::Read, DataDirection::Write];

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench media                                 in half a minute
  cryptline-bench media --warm --size 16M               blocks that the outer cache holds
  cryptline-bench media --on /mnt/pmem                  a folder on persistent memory (DAX)

Reads and writes 4 KiB blocks at random, one at a time: by a bare copy, as an on-stack request over the ordinary path,
and the same from the heap. On RAM, on a mapped file, and on a block translation table over each. Takes four times
--size of memory, and a little more.")]
pub struct MediaArgs {
    /// Folder for the files that are mapped [default: /dev/shm, or else that of temporary files]
    #[arg(long, value_name = "FOLDER")]
    on: Option<PathBuf>,

    /// Time what has been touched a moment before: the copy is fast, and what is around it shows
    #[arg(long)]
    warm: bool,
}

/// Measures.
pub fn measure(args: &MediaArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(64 << 20, 201, 0.005)?;
    let size = runs.size;
    if size < SIZE_MIN || !size.is_multiple_of(u64::from(BLOCK)) {
        fail!("--size {size}: use a multiple of {BLOCK} bytes, at least {SIZE_MIN}, such as 16M");
    }
    let folder = places::folder(args.on.as_deref())?;
    let (ways, how) = places::make(size, &folder)?;
    let mut bench = MediaBench { ways, blocks: RandomBlocks::new(size), buffer: Some(load::buffer(BLOCK)?) };
    bench.check()?;
    let medium = format!("RAM and mapped files in {} ({how}), {} each", folder.display(), size::human(size));
    let row = |direction, way: &MediumPath| {
        Row::new(name(way.medium, direction, way.name), LoadShape::new(direction, Pattern::Random, BLOCK, 1))
    };
    let plan = Plan {
        bench: "media",
        title: "Media that answer at once, and the ways to them",
        medium,
        runs,
        rows: DIRECTIONS.iter().flat_map(|&way| bench.ways.iter().map(move |it| row(way, it))).collect(),
        notes: notes(args),
    };
    let mut report = plan.run(|row, turn| {
        let seconds = bench.turn(turn.row, row.shape.direction, args.warm)?;
        Ok(TurnResults { bytes_per_second: f64::from(BLOCK) / seconds, ..TurnResults::default() })
    })?;
    for (place, row) in report.rows.iter_mut().enumerate() {
        // A machine may offer a counter that stands still.
        let instructions = bench.count(place, row.shape.direction, Counter::instructions())?;
        row.instructions = instructions.filter(|&count| count > 0.0);
        row.allocations = bench.count(place, row.shape.direction, Counter::allocations())?;
    }
    let each: Vec<f64> = report.rows.iter().flat_map(|row| row.each(Quantity::Time)).collect();
    let requests = u32::try_from(turn_len(bench.blocks.offsets.len()))?;
    report.seconds = median(&each).unwrap_or(0.0) * f64::from(requests);
    compare(&mut report, size < SIZE_OF_GOALS || args.warm);
    Ok(report)
}

/// Builds the name of a row.
fn name(medium: &str, direction: DataDirection, way: &str) -> String {
    format!("{medium} {}, {way}", word(&direction))
}

fn compare(report: &mut PlanReport, cached: bool) {
    // Each beside a partner: another way, or the medium below.
    const MEDIA: &[&str] = &["ram", "pmem"];
    const TABLES: &[&str] = &["BTT over ram", "BTT over pmem"];
    let all = [MEDIA, TABLES].concat();
    let mut compared = |figure,
                        media: &[&str],
                        of: &str,
                        to: &str,
                        directions: &[DataDirection],
                        unless: Option<String>| {
        let below =
            |medium: &str| if of == to { medium.trim_start_matches("BTT over ").to_owned() } else { medium.into() };
        let pair = |medium: &&str, it| (name(medium, it, of), vec![name(&below(medium), it, to)]);
        let pairs = directions.iter().flat_map(|&it| media.iter().map(move |medium| pair(medium, it))).collect();
        report.compare(&FigureSubject { name: figure, of: Quantity::Time, pairs, unless, ..FigureSubject::default() });
    };
    let cached = cached.then(|| format!("the goal is for {} or more, without --warm", size::human(SIZE_OF_GOALS)));
    compared("onstack_over_memcpy", MEDIA, ON_STACK, MEMCPY, &DIRECTIONS, cached);
    compared("heap_over_onstack", &all, HEAP, ON_STACK, &DIRECTIONS, None);
    compared("btt_write_over_plain", TABLES, ON_STACK, ON_STACK, &[DataDirection::Write], None);
    let count = |way| {
        let of_way = report.rows.iter().filter(|row| row.name.ends_with(way));
        of_way.map(|row| row.allocations).collect::<Vec<_>>()
    };
    let counted = allocations(&count(HEAP), &count(ON_STACK));
    report.figure("allocations_per_io", counted, None);
}

/// Of on-stack requests. A counter that does not see those of requests from the heap sees nothing.
fn allocations(heap: &[Option<f64>], stack: &[Option<f64>]) -> Result<(f64, String), String> {
    let sees = heap.iter().all(|count| count.is_some_and(|count| count >= 1.0));
    let most = stack.iter().try_fold(0.0, |most: f64, count| Some(most.max((*count)?)));
    let note = || "of on-stack requests, on whichever medium has the most".to_owned();
    most.filter(|_| sees).map(|most| (most, note())).ok_or_else(|| {
        "not available here: the system does not let programs set breakpoints (perf_event_open)".to_owned()
    })
}

fn notes(args: &MediaArgs) -> Vec<String> {
    vec![
        "Blocks of 4 KiB at random offsets, one at a time, by all ways from and into the same buffer. Each turn walks other blocks than the one before it, so that no way finds in the caches what another has just touched. A run's time is the median of pieces of 64 requests.".into(),
        if args.warm {
            "Each turn walks its blocks twice and the second is timed: the outer cache holds them."
        } else {
            "Each turn walks its blocks once: as on a disk that is larger than the caches, most come from memory."
        }
        .into(),
        "Before, each way wrote all blocks with contents of its own, and every way read them: all were equal.".into(),
        "memcpy is the medium's own bounded copy and nothing else. A heap request is an on-stack request in a box of its own.".into(),
        "A write to a table is durable, and torn by no crash; a plain write to a mapped file is neither. Where the mapping is the page cache, a table makes four system calls for each write.".into(),
        "The 2017 thread has 5.54 µs (deviation 8.89 %, 4.20 to 6.02) for a page by rw_page and 5.27 µs (13.03 %, 3.55 to 5.96) by an on-stack bio.".into(),
    ]
}

/// The ways, where on the media requests go, and a buffer for one block, which all ways use.
struct MediaBench {
    ways: Vec<MediumPath>,
    blocks: RandomBlocks,
    buffer: Option<Buffer>,
}

impl MediaBench {
    /// Verifies that every way writes and reads the same bytes: each writes all blocks with contents of its own, and
    /// every way to that medium reads them.
    fn check(&mut self) -> Result<()> {
        let Self { ways, blocks, buffer } = self;
        for (seed, writer) in (1..).zip(0..ways.len()) {
            let contents = TestPattern::new(seed);
            let (medium, by) = (ways[writer].medium, ways[writer].name);
            for &offset in &blocks.offsets {
                contents.fill(offset, buffer.as_deref_mut().unwrap_or_default());
                ways[writer].walk(DataDirection::Write, &[offset], buffer)?;
            }
            for reader in ways.iter_mut().filter(|reader| reader.medium == medium) {
                for &offset in &blocks.offsets {
                    buffer.as_deref_mut().unwrap_or_default().fill(0);
                    reader.walk(DataDirection::Read, &[offset], buffer)?;
                    let found = buffer.as_deref().unwrap_or_default();
                    if contents.first_difference(offset, found).is_some() {
                        fail!(
                            "{medium}: the block at byte {offset} was written by {by} and came back otherwise by {}; this is a bug in cryptline, or the memory is bad",
                            reader.name
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// The way of a row.
    fn way(&mut self, row: usize) -> (&mut MediumPath, &mut Option<Buffer>, &[u64]) {
        let way = row % self.ways.len();
        (&mut self.ways[way], &mut self.buffer, self.blocks.next_part())
    }

    /// Walks a part of the blocks with a look at the clock after each piece, and another time before
    /// that to warm it up. Seconds for each request.
    fn turn(&mut self, row: usize, direction: DataDirection, warm: bool) -> Result<f64> {
        let (way, buffer, offsets) = self.way(row);
        let mut times = [0.0; TURN / PIECE];
        let pieces = offsets.chunks_exact(PIECE);
        let count = pieces.len().min(times.len());
        if warm {
            way.walk(direction, offsets, buffer)?;
        }
        let mut start = Instant::now();
        for (piece, time) in pieces.zip(&mut times) {
            way.walk(direction, piece, buffer)?;
            let now = Instant::now();
            *time = (now - start).as_secs_f64();
            start = now;
        }
        let requests = f64::from(u32::try_from(PIECE).unwrap_or(u32::MAX));
        Ok(median(&times[..count]).unwrap_or(f64::NAN) / requests)
    }

    /// Walks some blocks while the kernel counts. For each request; `None` where it could not be
    /// counted.
    fn count(
        &mut self,
        row: usize,
        direction: DataDirection,
        counter: std::io::Result<Counter>,
    ) -> Result<Option<f64>> {
        let Ok(counter) = counter else {
            return Ok(None);
        };
        let (way, buffer, offsets) = self.way(row);
        let offsets = &offsets[..COUNTED.min(offsets.len())];
        let before = counter.read();
        way.walk(direction, offsets, buffer)?;
        let counted = before.and_then(|before| Ok(counter.read()? - before)).ok();
        let requests = f64::from(u32::try_from(offsets.len()).unwrap_or(u32::MAX).max(1));
        let each = |count| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / requests;
        Ok(counted.map(each))
    }
}

/// Offsets of all blocks in a random order, part after part.
struct RandomBlocks {
    offsets: Vec<u64>,
    next: usize,
}

impl RandomBlocks {
    fn new(size: u64) -> Self {
        let blocks = 0..size / u64::from(BLOCK);
        let mut offsets: Vec<u64> = blocks.map(|block| block * u64::from(BLOCK)).collect();
        offsets.sort_by_cached_key(|&offset| random(0, offset));
        Self { offsets, next: 0 }
    }

    /// Returns the whole pieces that the next turn walks.
    fn next_part(&mut self) -> &[u64] {
        let part = self.next;
        self.next = (part + 1) % PARTS;
        let each = self.offsets.len() / PARTS;
        &self.offsets[part * each..][..turn_len(self.offsets.len())]
    }
}

/// Requests in a turn on a medium of so many blocks.
fn turn_len(blocks: usize) -> usize {
    let len = TURN.min(blocks / PARTS);
    len - len % PIECE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn turns_that_follow_each_other_share_no_block_and_are_at_random() {
        for size in [1 << 20, 64 << 20, 1 << 30] {
            let mut blocks = RandomBlocks::new(size);
            let mut walked = BTreeSet::new();
            let mut parts = 0;
            for _ in 0..PARTS {
                let part = blocks.next_part();
                assert!(!part.is_empty() && part.len().is_multiple_of(PIECE));
                assert!(part.len() <= TURN && !part.is_sorted());
                let inside = |offset: &u64| offset.is_multiple_of(4096) && *offset < size;
                assert!(part.iter().all(inside));
                parts += part.len();
                walked.extend(part.iter().copied());
            }
            assert_eq!(walked.len(), parts);
        }
    }

    #[test]
    fn counter_that_does_not_see_the_heap_proves_nothing() {
        assert_eq!(allocations(&[Some(1.0)], &[Some(0.0)]).map(|it| it.0), Ok(0.0));
        assert_eq!(allocations(&[Some(1.0)], &[Some(0.0), Some(0.5)]).map(|it| it.0), Ok(0.5));
        assert!(allocations(&[Some(0.0)], &[Some(0.0)]).is_err());
        assert!(allocations(&[None], &[None]).is_err());
    }
}
