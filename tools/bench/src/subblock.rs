//! Writes smaller than a cipher sector, side by side or one after the other.
//!
//! ```text
//!           medium: writes of 100 µs, and RAM
//! cipher    XTS: a small write overwrites          CBC: a small write rewrites its cipher sector
//! exclusion exclusive: one lock for the device     shared: only what touches the same sector
//!
//! and whole sectors with CBC over RAM, with the locking and without: what it costs who needs none
//! ```
//!
//! The load is that of the figures in the commit that let ext4 overwrite parts of blocks side by side
//! (Linux 6.5, 310ee0902b8d: 8 jobs, 256 deep, 2 KiB writes on 4 KiB blocks, 4328 to 801k IOPS).
//! Each way first writes to its volume, which is read back without the sub-block layer.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cryptline::size;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::{DelayDevice, DelaySpec, Exclusion};
use cryptline_engine::{BackendChoice, Gate};

use crate::contents::TestPattern;
use crate::error::{Of as _, Result, fail};
use crate::load::{self, LoadJob};
use crate::plan::{Plan, RunArgs};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Row};
use crate::volume::{CipherWord, SECTOR_SIZE, ram};

/// A cipher that can be cut anywhere, and one that cannot.
const XTS: &str = "aes-xts-plain64";
const CBC: &str = "aes-cbc-essiv:sha256";
/// Before each turn: threads and clocks come to their usual state.
const WARM_UP: Duration = Duration::from_millis(50);
/// Turns in a run of the ways that write whole sectors: they differ by little.
const WHOLE_TURNS: u32 = 6;
/// Bytes that are checked before anything is measured.
const AREA: usize = 256 * 1024;

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench subblock                                   in about a minute
  cryptline-bench subblock --write 20us --jobs 2 --depth 32  a faster medium, a lighter load

Overwrites random parts of 4096-byte cipher sectors, on RAM and on RAM whose writes take \
--write: with one lock for the device, as ext4 had it up to Linux 6.4, and with locks for what \
conflicts only.")]
pub struct SubBlockArgs {
    /// How long a write takes on the slow medium
    #[arg(long, value_name = "TIME", default_value = "100us")]
    write: String,

    /// Bytes in a write: 512, 1024 or 2048
    #[arg(long, value_name = "BYTES", default_value = "2048", value_parser = size::parse_block)]
    block: u32,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,

    /// Writes that each thread has in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
}

/// Measures.
pub fn measure(args: &SubBlockArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(256 << 20, 11, 0.25)?;
    if !matches!(args.block, 512 | 1024 | 2048) {
        fail!("--block {}: use 512, 1024 or 2048, less than a cipher sector of {SECTOR_SIZE}", args.block);
    }
    let medium = ram(runs.size, runs.size, "")?;
    let (rows, gates) = ways(&medium, args)?;
    for (row, gate) in rows.iter().zip(&gates) {
        let cipher = CipherWord::new(row.cipher.as_deref().unwrap_or(XTS))?;
        let whole = cipher.in_blocks(&medium, SECTOR_SIZE, Exclusion::Shared)?;
        writes_arrive(&row.name, gate, &whole)?;
    }
    let plan = Plan {
        bench: "subblock",
        title: "Writes smaller than a cipher sector",
        medium: format!("RAM, {}; and the same with writes of {}", size::human(runs.size), args.write),
        runs,
        rows,
        notes: notes(args),
    };
    let mut report = plan.run(|row, turn| {
        // Timed, the rate is that of the whole time: nothing may end for milliseconds.
        let job = LoadJob::timed(row.shape, WARM_UP, runs.time / row.times, u64::from(turn.nth) + 1);
        load::run(&gates[turn.row], &job)
    })?;
    let [slow, _] = &media(args);
    let other_load = (args.jobs, args.depth, args.write.as_str()) != (8, 256, "100us");
    let why = other_load.then_some("the goal is for 8 threads, 256 deep, writes of 100us");
    for (name, cipher) in [("shared_over_exclusive_xts", XTS), ("shared_over_exclusive_cbc", CBC)] {
        let way = |exclusion| format!("{exclusion}, {cipher}, {slow}");
        report.compare(&FigureSubject::new(name, way("shared"), way("exclusive")).unless(why));
    }
    let [without, with] = ["no", "with"].map(whole);
    let cost = report.ratio(&with, &without).map(|locked| (1.0 - locked, format!("{with} beside {without}")));
    report.figure("aligned_cost_of_locking", cost.ok_or_else(|| "no run".into()), None);
    Ok(report)
}

/// The name of a way that writes whole sectors.
fn whole(locking: &str) -> String {
    format!("whole sectors, {locking} locking, {CBC}, RAM")
}

/// All ways over the same RAM. The two that write whole sectors come last.
fn ways(medium: &Gate, args: &SubBlockArgs) -> Result<(Vec<Row>, Vec<Gate>)> {
    let spec = DelaySpec::from_str(&format!("write={}", args.write)).of(format_args!("--write {}", args.write))?;
    let slow = Gate::new(DelayDevice::new(medium.clone(), spec));
    let (mut rows, mut gates) = (Vec::new(), Vec::new());
    let mut add = |name: String, cipher: &str, block, gate| {
        gates.push(gate);
        let shape = LoadShape::new(DataDirection::Write, Pattern::Random, block, args.depth);
        let shape = LoadShape { streams: args.jobs, ..shape };
        let times = if block == SECTOR_SIZE { WHOLE_TURNS } else { 1 };
        rows.push(Row { cipher: Some(cipher.to_owned()), times, ..Row::new(name, shape) });
    };
    let [slow_name, fast_name] = media(args);
    for (medium, place) in [(&slow, slow_name), (medium, fast_name)] {
        for word in [XTS, CBC] {
            let cipher = CipherWord::new(word)?;
            for (exclusion, name) in [(Exclusion::Exclusive, "exclusive"), (Exclusion::Shared, "shared")] {
                let gate = cipher.in_blocks(medium, args.block, exclusion)?;
                add(format!("{name}, {word}, {place}"), word, args.block, gate);
            }
        }
    }
    for (locking, block) in [("no", SECTOR_SIZE), ("with", args.block)] {
        let gate = CipherWord::new(CBC)?.in_blocks(medium, block, Exclusion::Shared)?;
        add(whole(locking), CBC, SECTOR_SIZE, gate);
    }
    Ok((rows, gates))
}

/// The slow medium and the fast one, by name.
fn media(args: &SubBlockArgs) -> [String; 2] {
    [format!("writes of {}", args.write), "RAM".to_owned()]
}

/// Writes all of an area in small pieces, in no order, and reads it by whole sectors.
fn writes_arrive(name: &str, gate: &Gate, whole: &Gate) -> Result<()> {
    let block = usize::try_from(gate.geometry().logical_block).unwrap_or(AREA);
    let area = AREA.min(usize::try_from(whole.geometry().size).unwrap_or(AREA));
    // No two ways write the same bytes.
    let contents = TestPattern::new(name.bytes().map(u64::from).fold(7, |a, b| a * 31 % 65_521 + b));
    let mut bytes = vec![0; area];
    let mut writer = Blocking::new(gate, BackendChoice::Auto)?;
    let blocks = area / block;
    // An odd step visits every place of a power of two, or of its half, once.
    for turn in 0..blocks {
        let at = (turn * 37 % blocks * block) as u64;
        contents.fill(at, &mut bytes[..block]);
        writer.write_at(at, &bytes[..block], false).of(name)?;
    }
    let mut reader = Blocking::new(whole, BackendChoice::Auto)?;
    reader.read_at(0, &mut bytes).of(name)?;
    if let Some(byte) = contents.first_difference(0, &bytes) {
        fail!("{name}: byte {byte} is not what was written to it; nothing was measured");
    }
    Ok(())
}

fn notes(args: &SubBlockArgs) -> Vec<String> {
    vec![
        format!(
            "{} threads with {} random writes of {} bytes in flight each, on cipher sectors of 4096 bytes. All ways use the same RAM and take turns in each run.",
            args.jobs, args.depth, args.block
        ),
        "Before the runs, each way wrote all of an area in small pieces, and it was read back by whole sectors without this layer.".into(),
        "XTS can overwrite parts of a sector; with the shared exclusion it has no layer and no lock at all. CBC reads the sector, changes it and writes it. Exclusive is one lock for the device and everything drained, as ext4 had it up to Linux 6.4.".into(),
        "The ext4 commit that made such writes concurrent (Linux 6.5) has 4328 IOPS before and 801k after: 185 times.".into(),
    ]
}
