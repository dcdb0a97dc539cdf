//! Workload of the script from the 2020 dm-devel thread, on a RAM volume.
//!
//! ```text
//! check   the same random bytes, and SHA-256 of what each way reads   ── must be equal
//! ways    plain, and null cipher and AES by each dispatch mode        ── all on one RAM disk
//! model   memory copy alone, cipher alone                             ── the floor
//! ```
//!
//! The timed runs do not hash. Each turn goes on where the one before ended, so that no way finds in the caches what
//! another has just read. Turns are short and many: what a ratio compares lies close together in time.

use std::hint::black_box;
use std::time::Duration;

use clap::Args;
use cryptline::size;
use cryptline_cipher::SectorCipher;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::{Buffer, Gate};
use cryptline_sys::SharedMemory;

use crate::contents::{TestPattern, sha256_of};
use crate::error::{Of as _, Result, fail};
use crate::load::{self, LoadJob, LoadTransport, buffer};
use crate::plan::{Plan, RunArgs, progress};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Row, TurnResults};
use crate::volume::{CipherWord, HelperArgs, NULL_CIPHER, in_words, ram};

/// Requests of that thread: 4 KiB, one at a time, from the first block to the last.
const SHAPE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 4096, 1);
/// Bytes in a request.
const BLOCK: usize = 4096;
/// Before each turn: enough to fill the caches again and to wake sleeping threads.
const WARM_UP: Duration = Duration::from_millis(5);
/// Which contents.
const SEED: u64 = 0x2020_0619;
const PLAIN: &str = "plain disk";
const BARE_COPY: &str = "a bare copy";
const BARE_CIPHER: &str = "the bare cipher";

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench inline                                   4 GiB of RAM, in about a minute
  cryptline-bench inline --size 512M --json inline.json --html inline.html

Reads one RAM disk in 4 KiB requests, one at a time: plain, through the null cipher and through --cipher, by each \
dispatch mode. What each reads is hashed first and must be equal. The disk and a copy for the memory's own speed need \
twice --size of free memory.")]
pub struct InlineArgs {
    /// The cipher beside the null cipher
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    cipher: String,

    #[command(flatten)]
    helpers: HelperArgs,
}

/// Measures.
pub fn measure(args: &InlineArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(4 << 30, 101, 0.02)?;
    let helpers = args.helpers.pool()?;
    let cipher = CipherWord::new(&args.cipher)?;
    if cipher.is_null() {
        fail!("--cipher {}: the null cipher is measured anyway; name another, such as aes-xts-plain64", args.cipher);
    }
    let medium = ram(runs.size, runs.size.saturating_mul(2), " (the volume, and a copy to measure the memory by)")?;
    let mut gates = vec![medium.clone()];
    let mut rows = vec![Row::new(PLAIN, SHAPE)];
    for cipher in [&CipherWord::new(NULL_CIPHER)?, &cipher] {
        for mode in [DispatchMode::Inline, DispatchMode::Queue, DispatchMode::Auto] {
            gates.push(cipher.over(&medium, mode, &helpers)?);
            let dispatch = Some(mode.to_string());
            rows.push(Row {
                cipher: Some(cipher.word().to_owned()),
                dispatch,
                ..Row::new(name(cipher.word(), mode), SHAPE)
            });
        }
    }
    check(&mut rows, &gates, |way| sha256_of(&gates[way], BLOCK))?;
    rows.extend([BARE_COPY, BARE_CIPHER].map(|name| Row::new(name, SHAPE)));
    let parts = InlineParts::new(runs.size, cipher.sectors()?)?;
    let mut job = LoadJob { shape: SHAPE, warm_up: WARM_UP, time: runs.time, ..LoadJob::default() };
    let plan = Plan {
        bench: "inline",
        title: "Reading inline, through queues, and plain",
        medium: format!("RAM, {}", size::human(runs.size)),
        runs,
        notes: notes(&rows),
        rows,
    };
    let mut report = plan.run(|row, turn| {
        let Some(gate) = gates.get(turn.row) else {
            return if row.name == BARE_COPY { parts.copy(&job) } else { parts.decrypt(&job) };
        };
        let sample = load::run(gate, &job)?;
        job.start = sample.next;
        Ok(sample)
    })?;
    let other = (!args.cipher.starts_with("aes-xts")).then_some("the goal is for aes-xts");
    let (null, full) = (NULL_CIPHER, args.cipher.as_str());
    for comparison in [
        FigureSubject::new("inline_over_plain_null", name(null, DispatchMode::Inline), PLAIN),
        FigureSubject::new("queue_over_plain_null", name(null, DispatchMode::Queue), PLAIN),
        FigureSubject::new("inline_over_queue_aes", name(full, DispatchMode::Inline), name(full, DispatchMode::Queue))
            .unless(other),
        model("inline_over_model", full, BARE_COPY).unless(other),
        model("of_model_inproc_4k", full, PLAIN).unless(other),
    ] {
        report.compare(&comparison);
    }
    Ok(report)
}

/// Encrypted beside a way of getting the bytes, and then the bare cipher.
fn model(figure: &'static str, cipher: &str, plain: &str) -> FigureSubject {
    let pairs = vec![(name(cipher, DispatchMode::Inline), vec![plain.into(), BARE_CIPHER.into()])];
    FigureSubject { name: figure, pairs, in_sum: true, ..FigureSubject::default() }
}

fn name(cipher: &str, mode: DispatchMode) -> String {
    format!("{}, {}", if cipher == NULL_CIPHER { "null cipher" } else { cipher }, in_words(mode))
}

fn notes(rows: &[Row]) -> Vec<String> {
    let sum = rows.first().and_then(|row| row.sha256.as_deref()).unwrap_or("?");
    vec![
        "Reads of 4 KiB, one at a time, from the first block on, in this process. All ways use the same RAM disk and take turns in each run, in an order that changes; each turn goes on where the one before ended, so that no way finds in the caches what another has just read.".into(),
        format!("Before the runs, each way read all of the same random contents; SHA-256 was {sum} for all."),
        "The speed of a run is the median of windows of a millisecond, so that other programs disturb it little.".into(),
        "The bare copy is of each block, out of other memory of the same size, in the same order; the bare cipher works on one block in the first-level cache.".into(),
        "The 2020 dm-devel thread has 202 MB/s plain, 80.7 by dm-crypt's queues (0.40 of plain) and 201 inline (0.995), with the null cipher.".into(),
    ]
}

/// Writes random contents, clear and then encrypted, and notes the SHA-256 of what each way `read`s. The first way is the
/// medium as it is; the first of each kind writes.
fn check(rows: &mut [Row], gates: &[Gate], read: impl Fn(usize) -> Result<String>) -> Result<()> {
    let progress = progress(rows.len());
    let contents = TestPattern::new(SEED);
    for encrypted in [false, true] {
        let mut written = None;
        let ways = rows.iter_mut().enumerate();
        for (way, row) in ways.filter(|(_, row)| row.is_encrypted() == encrypted) {
            progress.set_message(format!("checking what is read: {}", row.name));
            if written.is_none() {
                written = Some(contents.write_to(&gates[way], BLOCK)?);
                if encrypted && contents.is_at_start_of(&gates[0])? {
                    fail!("{} encrypts nothing: the medium holds the clear text; please report this", row.name);
                }
            }
            row.sha256 = Some(read(way)?);
            if row.sha256 != written {
                let [read, written] = [&row.sha256, &written].map(|sum| sum.as_deref().unwrap_or_default());
                fail!(
                    "{} reads other bytes than were written (SHA-256 {read} instead of {written}); nothing was measured, please report this",
                    row.name
                );
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Parts of the least cost of a read: copying the block out of memory that no cache holds where the volume is larger than the
/// caches, and decrypting one block that stays in the first-level cache, which is the least it can take. Neither knows
/// of requests.
struct InlineParts {
    memory: SharedMemory,
    blocks: usize,
    cipher: SectorCipher,
}

/// Blocks that are worked on between two looks at the clock.
const STEP: usize = 256;

/// Work on [`STEP`] blocks as a request, all with one buffer; it is told the number of each.
struct InlineWork<'a> {
    work: &'a (dyn Fn(usize, &mut [u8]) + Sync),
    block: Buffer,
    size: u64,
}

impl LoadTransport for InlineWork<'_> {
    const CLOCK_EVERY: u32 = 1;

    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, _: usize, offset: u64) -> Result<bool> {
        let first = usize::try_from(offset).unwrap_or(0) / BLOCK;
        for index in first..first + STEP {
            (self.work)(index, black_box(&mut *self.block));
        }
        Ok(true)
    }

    fn collect(&mut self, _: bool, _: &mut Vec<usize>) -> Result<()> {
        Ok(())
    }
}

impl InlineParts {
    /// Fills memory of `bytes` bytes: what was never written is one page of zeros, again and again.
    fn new(bytes: u64, cipher: SectorCipher) -> Result<Self> {
        let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
        let memory = SharedMemory::new(blocks * BLOCK).of("no memory for a copy; use a smaller --size")?;
        let block = buffer(SHAPE.block)?;
        (0..blocks).for_each(|index| memory.write(index * BLOCK, &block));
        Ok(Self { memory, blocks, cipher })
    }

    /// The speed of the copy, in a turn that goes on where others ended.
    fn copy(&self, job: &LoadJob) -> Result<TurnResults> {
        self.timed(job, &|index, block| self.memory.read(index % self.blocks * BLOCK, block))
    }

    /// The speed of the cipher.
    fn decrypt(&self, job: &LoadJob) -> Result<TurnResults> {
        self.timed(job, &|index, block| self.cipher.decrypt_in_place(index as u64 * 8, block))
    }

    fn timed(&self, job: &LoadJob, work: &(dyn Fn(usize, &mut [u8]) + Sync)) -> Result<TurnResults> {
        let shape = LoadShape { block: SHAPE.block * u32::try_from(STEP)?, ..SHAPE };
        let job = LoadJob { shape, start: job.start / STEP as u64, ..*job };
        let size = (self.blocks * BLOCK) as u64;
        load::drive(&job, |_| Ok(InlineWork { work, block: buffer(SHAPE.block)?, size }))
    }
}

#[cfg(test)]
mod tests {
    use cryptline::HelperPool;
    use cryptline_engine::BackendChoice;
    use cryptline_engine::base::RamDevice;
    use cryptline_engine::blocking::Blocking;

    use super::*;

    const SIZE: u64 = 64 * 1024;

    fn ram() -> Gate {
        Gate::new(RamDevice::new(SIZE).expect("memory"))
    }

    /// Plain on `medium`, and each cipher inline on `below`.
    fn ways(medium: &Gate, below: &Gate) -> (Vec<Row>, Vec<Gate>) {
        let mut rows = vec![Row::new(PLAIN, SHAPE)];
        let mut gates = vec![medium.clone()];
        for word in [NULL_CIPHER, "aes-xts-plain64"] {
            let cipher = CipherWord::new(word).expect("a cipher");
            gates.push(cipher.over(below, DispatchMode::Inline, &HelperPool::default()).expect("it fits"));
            rows.push(Row { cipher: Some(word.to_owned()), ..Row::new(word, SHAPE) });
        }
        (rows, gates)
    }

    #[test]
    fn all_ways_read_the_same_bytes() {
        let medium = ram();
        let (mut rows, gates) = ways(&medium, &medium);
        check(&mut rows, &gates, |way| sha256_of(&gates[way], BLOCK)).expect("all is right");
        assert!(rows.iter().all(|row| row.sha256 == rows[0].sha256));
        assert_eq!(rows[0].sha256.as_ref().map(String::len), Some(64));
    }

    #[test]
    fn one_wrong_bit_ends_the_plan() {
        let medium = ram();
        let (mut rows, gates) = ways(&medium, &medium);
        let error = check(&mut rows, &gates, |way| {
            if way == 1 {
                let mut disk = Blocking::new(&medium, BackendChoice::Syscalls).expect("a queue");
                let mut block = [0; 4096];
                disk.read_at(SIZE - 4096, &mut block).expect("RAM reads");
                block[4095] ^= 1;
                disk.write_at(SIZE - 4096, &block, false).expect("RAM writes");
            }
            sha256_of(&gates[way], BLOCK)
        });
        let error = error.expect_err("one bit differs");
        assert!(error.to_string().contains("other bytes"), "{error}");
    }

    #[test]
    fn a_way_with_a_medium_of_its_own_is_found_out() {
        let (mut rows, gates) = ways(&ram(), &ram());
        let error = check(&mut rows, &gates, |way| sha256_of(&gates[way], BLOCK)).expect_err("zeros are read");
        assert!(error.to_string().starts_with(&format!("{NULL_CIPHER} reads other bytes")), "{error}");
    }

    #[test]
    fn a_cipher_that_encrypts_nothing_is_found_out() {
        let medium = ram();
        let (mut rows, mut gates) = ways(&medium, &medium);
        gates[2] = medium.clone();
        let error = check(&mut rows, &gates, |way| sha256_of(&gates[way], BLOCK)).expect_err("clear text");
        assert!(error.to_string().contains("encrypts nothing"), "{error}");
    }

    #[test]
    fn the_parts_of_the_model_are_measured_wherever_a_turn_begins() {
        let cipher = CipherWord::new("aes-xts-plain64").expect("aes");
        let parts = InlineParts::new(1 << 20, cipher.sectors().expect("sectors")).expect("memory");
        for start in [0, 255, 256, 1000] {
            let job = LoadJob { shape: SHAPE, start, time: Duration::from_micros(100), ..LoadJob::default() };
            for sample in [parts.copy(&job), parts.decrypt(&job)] {
                assert!(sample.expect("memory").bytes_per_second > 0.0);
            }
        }
    }
}
