//! `bench inline`: what the script of the 2020 dm-devel thread does, with a RAM volume.
//!
//! ```text
//! check   the same random bytes, and SHA-256 of what each way reads   ── must be equal
//! ways    plain, and null cipher and AES by each dispatch mode        ── all on one RAM disk
//! model   memory copy alone, cipher alone                             ── the floor
//! ```
//!
//! The timed runs do not hash. Each turn goes on where the one before ended, so that no way finds in
//! the caches what another has just read. Turns are short and many: what a ratio compares lies close
//! together in time.

mod model;
mod over_nbd;
mod summary;

use std::time::Duration;

use clap::Args;
use cryptline::size;
use cryptline_engine::Gate;
use cryptline_engine::dispatch::Mode;

use crate::Error;
use crate::contents::{Contents, sha256_of};
use crate::load::{self, Job};
use crate::output::Output;
use crate::progress::Progress;
use crate::report::{Direction, Front, Pattern, Report, Row, Shape};
use crate::runner::{self, Group, seconds};
use crate::volume::{Cipher, HelperArgs, NULL_CIPHER, ram};
use model::Model;
use over_nbd::Served;

/// What the thread does: 4 KiB, one at a time, from the first block to the last.
const SHAPE: Shape = Shape::new(Direction::Read, Pattern::Sequential, 4096, 1);
/// Bytes in a request.
const BLOCK: usize = 4096;
/// Modes that are measured. The first needs no other thread.
const MODES: [Mode; 3] = [Mode::Inline, Mode::Queue, Mode::Auto];
/// Before each turn: enough to fill the caches again and to wake sleeping threads.
const WARM_UP: Duration = Duration::from_millis(5);
/// Which contents.
const SEED: u64 = 0x2020_0619;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench inline                                   4 GiB of RAM, in about a minute
  cryptline bench inline --size 512M --json inline.json --html inline.html
  cryptline bench inline --front nbd                       the same through a socket

Reads one RAM disk in 4 KiB requests, one at a time: plain, through the null cipher and through
--cipher, by each dispatch mode. What each reads is hashed first and must be equal. The disk and a
copy for the memory's own speed need twice --size of free memory. The JSON is described in
docs/bench-json.md.")]
pub struct InlineArgs {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    pub size: u64,

    /// The cipher beside the null cipher
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,

    /// For `auto`.
    #[command(flatten)]
    pub helpers: HelperArgs,

    /// How requests reach the volume
    #[arg(long, value_enum, default_value_t)]
    pub front: Front,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// How long each of those takes
    #[arg(long, value_name = "S", default_value_t = 0.02)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Measures.
pub fn measure(args: &InlineArgs) -> Result<Report, Error> {
    let time = seconds(args.seconds)?;
    let helpers = args.helpers.pool()?;
    let cipher = Cipher::new(&args.cipher)?;
    if cipher.is_null() {
        return Err(Error::parameters(format!(
            "--cipher {}: the null cipher is measured anyway; name another, such as aes-xts-plain64",
            args.cipher
        )));
    }
    let over_nbd = args.front == Front::Nbd;
    let (needed, why) = if over_nbd {
        (args.size, "")
    } else {
        let why = " (the volume, and a copy to measure the memory by)";
        (args.size.saturating_mul(2), why)
    };
    let medium = ram(args.size, needed, why)?;
    let mut report = Report::new("inline", "Reading inline, by queue, and plain");
    report = report.of(args.runs, args.seconds);
    let mut gates = vec![medium.clone()];
    report.rows.push(row("plain", args.front));
    for (cipher, short) in [(&Cipher::new(NULL_CIPHER)?, "null cipher"), (&cipher, &args.cipher)] {
        for mode in MODES {
            gates.push(cipher.over(&medium, mode, &helpers)?);
            report.rows.push(Row {
                cipher: Some(cipher.word().to_owned()),
                dispatch: Some(mode.to_string()),
                ..row(&format!("{mode}, {short}"), args.front)
            });
        }
    }
    let served = over_nbd.then(|| Served::start(&report.rows, &gates));
    let served = served.transpose()?;
    check(&mut report.rows, &gates, |way, row| match &served {
        Some(served) => served.sha256(&row.name),
        None => sha256_of(&gates[way], BLOCK),
    })?;
    let model = (!over_nbd).then(|| Model::new(args.size, cipher.sectors()?));
    let mut model = model.transpose()?;
    let mut job = Job { shape: SHAPE, warm_up: WARM_UP, time, latency: over_nbd, ..Job::default() };
    // The model has its turns among the ways, as the last.
    let ways = gates.len() + usize::from(model.is_some());
    runner::run(&mut report, &Group::all(ways), |rows, turn| {
        if let Some((gate, row)) = gates.get(turn.way).zip(rows.get_mut(turn.way)) {
            let sample = match &served {
                Some(served) => served.measure(&row.name, &job)?,
                None => load::run(gate, &job)?,
            };
            job.start = sample.next;
            row.take(sample);
        } else if let Some(model) = &mut model {
            model.sample(job.start, WARM_UP + time)?;
        }
        Ok(())
    })?;
    summary::fill(&mut report, args, model.as_ref());
    Ok(report)
}

fn row(name: &str, front: Front) -> Row {
    Row { name: name.to_owned(), front, shape: SHAPE, ..Row::default() }
}

/// Writes random contents, clear and then encrypted, and notes the SHA-256 of what each way `read`s.
/// The first way is the medium as it is; the first of each kind writes.
fn check(rows: &mut [Row], gates: &[Gate], read: impl Fn(usize, &Row) -> Result<String, Error>) -> Result<(), Error> {
    let progress = Progress::new(rows.len());
    let contents = Contents::new(SEED);
    for encrypted in [false, true] {
        let mut written = None;
        let ways = rows.iter_mut().enumerate();
        for (way, row) in ways.filter(|(_, row)| row.is_encrypted() == encrypted) {
            progress.now(format!("checking what {} reads", row.name));
            if written.is_none() {
                written = Some(contents.write_to(&gates[way], BLOCK)?);
                if encrypted && contents.is_at_start_of(&gates[0])? {
                    return Err(Error::device(format!(
                        "{} encrypts nothing: the medium holds the clear text; please report this",
                        row.name
                    )));
                }
            }
            row.sha256 = Some(read(way, row)?);
            if row.sha256 != written {
                return Err(Error::device(format!(
                    "{} reads other bytes than were written (SHA-256 {} instead of {}); nothing was measured, please report this",
                    row.name,
                    row.sha256.as_deref().unwrap_or_default(),
                    written.as_deref().unwrap_or_default()
                )));
            }
            progress.step();
        }
    }
    Ok(())
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
        let mut rows = vec![row("plain", Front::InProcess)];
        let mut gates = vec![medium.clone()];
        for word in [NULL_CIPHER, "aes-xts-plain64"] {
            let cipher = Cipher::new(word).expect("a cipher");
            let gate = cipher.over(below, Mode::Inline, &HelperPool::default());
            gates.push(gate.expect("it fits"));
            rows.push(Row { cipher: Some(word.to_owned()), ..row(word, Front::InProcess) });
        }
        (rows, gates)
    }

    #[test]
    fn all_ways_read_the_same_bytes() {
        let medium = ram();
        let (mut rows, gates) = ways(&medium, &medium);
        let read = |way: usize, _: &Row| sha256_of(&gates[way], BLOCK);
        check(&mut rows, &gates, read).expect("all is right");
        assert!(rows.iter().all(|row| row.sha256 == rows[0].sha256));
        assert_eq!(rows[0].sha256.as_ref().map(String::len), Some(64));
    }

    #[test]
    fn one_wrong_bit_ends_the_bench() {
        let medium = ram();
        let (mut rows, gates) = ways(&medium, &medium);
        let error = check(&mut rows, &gates, |way, _| {
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
        assert_eq!(error.kind(), cryptline::ErrorKind::Device);
        assert!(error.to_string().contains("other bytes"), "{error}");
    }

    #[test]
    fn a_way_with_a_medium_of_its_own_is_found_out() {
        let (mut rows, gates) = ways(&ram(), &ram());
        let read = |way: usize, _: &Row| sha256_of(&gates[way], BLOCK);
        let error = check(&mut rows, &gates, read).expect_err("zeros are read");
        let expected = format!("{NULL_CIPHER} reads other bytes");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn a_cipher_that_encrypts_nothing_is_found_out() {
        let medium = ram();
        let (mut rows, mut gates) = ways(&medium, &medium);
        gates[2] = medium.clone();
        let read = |way: usize, _: &Row| sha256_of(&gates[way], BLOCK);
        let error = check(&mut rows, &gates, read).expect_err("clear text");
        assert!(error.to_string().contains("encrypts nothing"), "{error}");
    }
}
