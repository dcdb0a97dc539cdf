//! `bench media`: what a request costs on media that answer at once, beside a bare copy.
//!
//! The 2017 thread that removed `rw_page` asked whether a page needs a path of its own, beside an
//! on-stack request. It does not: docs/bench-json.md has the figures.
//!
//! ```text
//! media      ram, pmem (a mapped file), and a block translation table over each
//! ways       memcpy │ an on-stack request │ a request from the heap
//! check      what each way writes every way must read                          ── first
//! runs       every way of every medium has its turn, in an order that changes  ── timed
//! counts     instructions and allocations of each, where the system lets us    ── last
//! ```
//!
//! The blocks of a medium lie in four parts, each larger than a second-level cache. Each turn walks
//! another part than the one before it: no way finds in the caches what another has just touched, as
//! no user of a disk does that is larger than the caches. With `--warm` a turn walks
//! its part twice and only the second walk is timed.

mod places;
mod summary;
mod ways;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use cryptline::size;
use cryptline_engine::Buffer;
use cryptline_sys::Counter;

use crate::contents::{Contents, random};
use crate::output::Output;
use crate::report::{Direction, Pattern, Report, Row, Shape, median};
use crate::runner::{self, Group};
use crate::{Error, load};
use places::Place;
use ways::Way;

/// Bytes in a request: a page.
const BLOCK: u32 = 4096;
/// Requests in a turn at most: 16 MiB of blocks, more than a second-level cache holds.
const TURN: usize = 4096;
/// Parts that the blocks of a medium lie in.
const PARTS: usize = 4;
/// Requests between two looks at the clock. A turn's time is the median of such pieces, most of which
/// are not disturbed by other programs.
const PIECE: usize = 64;
/// Requests whose instructions and allocations are counted.
const COUNTED: usize = 512;
/// Least size: a piece for each part.
const SIZE_MIN: u64 = 1 << 20;
const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench media                                 in half a minute
  cryptline bench media --warm --size 16M               blocks that the outer cache holds
  cryptline bench media --on /mnt/pmem                  a folder on persistent memory (DAX)
  cryptline bench media --json media.json --html media.html

Reads and writes 4 KiB blocks at random, one at a time: by a bare copy, as an on-stack request over the
ordinary path, and the same from the heap. On RAM, on a mapped file, and on a block translation table
over each. Takes four times --size of memory, and a little more. The JSON is described in docs/bench-json.md.")]
pub struct MediaArgs {
    /// Size of each medium; take more than the caches hold
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub size: u64,

    /// Folder for the files that are mapped [default: /dev/shm, or else that of temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub on: Option<PathBuf>,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 201, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// Time what has been touched a moment before: the copy is fast, and what is around it shows
    #[arg(long)]
    pub warm: bool,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// One way over one medium, in one direction.
#[derive(Clone, Copy, Debug)]
struct Subject {
    /// In the list of media.
    place: usize,
    /// The name of the medium.
    medium: &'static str,
    /// The name of the medium that a bare copy goes to, to compare with.
    plain: &'static str,
    way: Way,
    direction: Direction,
}

/// Measures.
pub fn measure(args: &MediaArgs) -> Result<Report, Error> {
    if args.size < SIZE_MIN || !args.size.is_multiple_of(u64::from(BLOCK)) {
        return Err(Error::parameters(format!(
            "--size {}: give a multiple of {BLOCK} bytes, at least {SIZE_MIN}, such as 16M",
            args.size
        )));
    }
    let folder = places::folder(args.on.as_deref())?;
    let (places, how) = places::make(args.size, &folder)?;
    let mut bench = Bench { places, blocks: Blocks::new(args.size), buffer: Some(load::buffer(BLOCK)?) };
    bench.check()?;
    let subjects = subjects(&bench.places);
    let mut report = Report::new("media", "Media that answer at once, and the ways to them");
    report.runs = args.runs;
    report.rows = subjects.iter().map(Subject::row).collect();
    runner::run(&mut report, &Group::all(subjects.len()), |rows, turn| {
        let seconds = bench.turn(subjects[turn.way], args.warm)?;
        rows[turn.way].take_rate(f64::from(BLOCK) / seconds);
        Ok(())
    })?;
    for (&subject, row) in subjects.iter().zip(&mut report.rows) {
        let instructions = bench.count(subject, Counter::instructions())?;
        // A machine may offer a counter that stands still.
        row.instructions = instructions.filter(|&count| count > 0.0);
        row.allocations = bench.count(subject, Counter::allocations())?;
    }
    report.medium = format!("RAM and mapped files in {} ({how}), {} each", folder.display(), size::human(args.size));
    summary::fill(&mut report, args, &subjects);
    Ok(report)
}

/// Reads and writes of every way that a place has, in the order of the tables.
fn subjects(places: &[Place]) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for direction in DIRECTIONS {
        for (place, at) in places.iter().enumerate() {
            subjects.extend(at.ways().into_iter().map(|way| Subject {
                place,
                medium: at.name,
                plain: at.plain,
                way,
                direction,
            }));
        }
    }
    subjects
}

impl Subject {
    fn row(&self) -> Row {
        Row {
            name: format!("{}, {}", self.medium, self.way.name()),
            shape: Shape::new(self.direction, Pattern::Random, BLOCK, 1),
            ..Row::default()
        }
    }
}

/// The media, where on them requests go, and a buffer for one block, which all ways use.
struct Bench {
    places: Vec<Place>,
    blocks: Blocks,
    buffer: Option<Buffer>,
}

impl Bench {
    /// Whether every way writes and reads the same bytes: each writes all blocks with contents of its
    /// own, and every way reads them.
    fn check(&mut self) -> Result<(), Error> {
        let Self { places, blocks, buffer } = self;
        for place in places {
            for (seed, writer) in (1..).zip(place.ways()) {
                let contents = Contents::new(seed);
                for &offset in &blocks.offsets {
                    contents.fill(offset, buffer.as_deref_mut().unwrap_or_default());
                    place.walk(writer, Direction::Write, &[offset], buffer)?;
                }
                for &offset in &blocks.offsets {
                    for reader in place.ways() {
                        buffer.as_deref_mut().unwrap_or_default().fill(0);
                        place.walk(reader, Direction::Read, &[offset], buffer)?;
                        let found = buffer.as_deref().unwrap_or_default();
                        if contents.first_difference(offset, found).is_some() {
                            return Err(Error::device(format!(
                                "{}: the block at byte {offset} was written by {} and came back otherwise by {}; this is a bug in cryptline, or the memory is bad",
                                place.name,
                                writer.name(),
                                reader.name()
                            )));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Walks a part of the blocks with a look at the clock after each piece, and another time before
    /// that to warm it up. Seconds for each request.
    fn turn(&mut self, subject: Subject, warm: bool) -> Result<f64, Error> {
        let offsets = self.blocks.next_part();
        let mut times = [0.0; TURN / PIECE];
        let pieces = offsets.chunks_exact(PIECE);
        let count = pieces.len().min(times.len());
        let place = &mut self.places[subject.place];
        if warm {
            place.walk(subject.way, subject.direction, offsets, &mut self.buffer)?;
        }
        let mut start = Instant::now();
        for (piece, time) in pieces.zip(&mut times) {
            place.walk(subject.way, subject.direction, piece, &mut self.buffer)?;
            let now = Instant::now();
            *time = (now - start).as_secs_f64();
            start = now;
        }
        let requests = f64::from(u32::try_from(PIECE).unwrap_or(u32::MAX));
        Ok(median(&times[..count]) / requests)
    }

    /// Walks some blocks while the kernel counts. For each request; `None` where it could not be
    /// counted.
    fn count(&mut self, subject: Subject, counter: std::io::Result<Counter>) -> Result<Option<f64>, Error> {
        let Ok(counter) = counter else {
            return Ok(None);
        };
        let offsets = self.blocks.next_part();
        let offsets = &offsets[..COUNTED.min(offsets.len())];
        let before = counter.read();
        let place = &mut self.places[subject.place];
        place.walk(subject.way, subject.direction, offsets, &mut self.buffer)?;
        let counted = before.and_then(|before| Ok(counter.read()? - before)).ok();
        let requests = f64::from(u32::try_from(offsets.len()).unwrap_or(u32::MAX).max(1));
        let each = |count| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / requests;
        Ok(counted.map(each))
    }
}

/// Offsets of all blocks in a random order, part after part.
struct Blocks {
    offsets: Vec<u64>,
    next: usize,
}

impl Blocks {
    fn new(size: u64) -> Self {
        let blocks = 0..size / u64::from(BLOCK);
        let mut offsets: Vec<u64> = blocks.map(|block| block * u64::from(BLOCK)).collect();
        offsets.sort_by_cached_key(|&offset| random(0, offset));
        Self { offsets, next: 0 }
    }

    /// What the next turn walks: whole pieces.
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
            let mut blocks = Blocks::new(size);
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
}
