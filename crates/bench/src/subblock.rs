//! `bench subblock`: writes smaller than a cipher sector, side by side or one after the other.
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

use crate::Error;
use crate::contents::Contents;
use crate::load::{self, Job};
use crate::output::Output;
use crate::plot::Plot;
use crate::report::{Direction, Figure, Pattern, Report, Row, Shape};
use crate::runner::{self, Group, seconds};
use crate::table::{self, Table};
use crate::volume::{Cipher, SECTOR_SIZE, ram};

/// A cipher that can be cut anywhere, and one that cannot.
const XTS: &str = "aes-xts-plain64";
const CBC: &str = "aes-cbc-essiv:sha256";
/// Before each turn: threads and clocks come to their usual state.
const WARM_UP: Duration = Duration::from_millis(50);
/// Turns in a run of the ways that write whole sectors: they differ by little.
const WHOLE_TURNS: u32 = 6;
/// Bytes that are checked before anything is measured.
const AREA: usize = 256 * 1024;
/// 801k to 4328 IOPS, as the ext4 commit has it.
const EXT4: f64 = 185.0;
/// What locking may cost whole sectors.
const COST_MAX: f64 = 0.01;

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench subblock                                   in about a minute
  cryptline bench subblock --json subblock.json --html subblock.html
  cryptline bench subblock --write 20us --jobs 2 --depth 32  a faster medium, a lighter load

Overwrites random parts of 4096-byte cipher sectors, on RAM and on RAM whose writes take
--write: with one lock for the device, as ext4 had it up to Linux 6.4, and with locks for what
conflicts only. The JSON is described in docs/bench-json.md.")]
pub struct SubBlockArgs {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    pub size: u64,

    /// How long a write takes on the slow medium
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub write: String,

    /// Bytes in a write: 512, 1024 or 2048
    #[arg(long, value_name = "BYTES", default_value = "2048", value_parser = size::parse_block)]
    pub block: u32,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,

    /// Writes that each thread has in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,

    /// How often each way is measured
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,

    /// How long each of those takes
    #[arg(long, value_name = "S", default_value_t = 0.25)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Measures.
pub fn measure(args: &SubBlockArgs) -> Result<Report, Error> {
    let time = seconds(args.seconds)?;
    if !matches!(args.block, 512 | 1024 | 2048) {
        return Err(Error::parameters(format!(
            "--block {}: give 512, 1024 or 2048, less than a cipher sector of {SECTOR_SIZE}",
            args.block
        )));
    }
    let medium = ram(args.size, args.size, "")?;
    let mut report = Report::new("subblock", "Writes smaller than a cipher sector");
    report = report.of(args.runs, args.seconds);
    let (rows, gates) = ways(&medium, args)?;
    for (row, gate) in rows.iter().zip(&gates) {
        let cipher = Cipher::new(row.cipher.as_deref().unwrap_or(XTS))?;
        let whole = cipher.in_blocks(&medium, SECTOR_SIZE, Exclusion::Shared)?;
        writes_arrive(&row.name, gate, &whole)?;
    }
    let parts = rows.len() - 2;
    let mut groups = [Group::once("parts of sectors", 0..parts), Group::once("whole sectors", parts..rows.len())];
    groups[1].times = WHOLE_TURNS;
    report.rows = rows;
    runner::run(&mut report, &groups, |rows, turn| {
        let row = &mut rows[turn.way];
        let turns = if turn.way < parts { 1 } else { WHOLE_TURNS };
        // Timed, the rate is that of the whole time: nothing may end for milliseconds.
        let job = Job::timed(row.shape, WARM_UP, time / turns, u64::from(turn.nth) + 1);
        row.take(load::run(&gates[turn.way], &job)?);
        Ok(())
    })?;
    summarise(&mut report, args);
    Ok(report)
}

/// All ways over the same RAM. The two that write whole sectors come last.
fn ways(medium: &Gate, args: &SubBlockArgs) -> Result<(Vec<Row>, Vec<Gate>), Error> {
    let spec = DelaySpec::from_str(&format!("write={}", args.write))
        .map_err(|why| Error::parameters(format!("--write {}: {why}", args.write)))?;
    let slow = Gate::new(DelayDevice::new(medium.clone(), spec));
    let (mut rows, mut gates) = (Vec::new(), Vec::new());
    let mut add = |name: String, cipher: &str, block, gate| {
        gates.push(gate);
        rows.push(Row {
            name,
            cipher: Some(cipher.to_owned()),
            shape: Shape {
                direction: Direction::Write,
                pattern: Pattern::Random,
                block,
                depth: args.depth,
                streams: args.jobs,
            },
            ..Row::default()
        });
    };
    let [slow_name, fast_name] = media(args);
    for (medium, place) in [(&slow, slow_name), (medium, fast_name)] {
        for word in [XTS, CBC] {
            let cipher = Cipher::new(word)?;
            for (exclusion, name) in [(Exclusion::Exclusive, "exclusive"), (Exclusion::Shared, "shared")] {
                let gate = cipher.in_blocks(medium, args.block, exclusion)?;
                add(format!("{name}, {word}, {place}"), word, args.block, gate);
            }
        }
    }
    let whole = |locking| format!("whole sectors, {locking} locking, {CBC}, RAM");
    for (locking, block) in [("no", SECTOR_SIZE), ("with", args.block)] {
        let gate = Cipher::new(CBC)?.in_blocks(medium, block, Exclusion::Shared)?;
        add(whole(locking), CBC, SECTOR_SIZE, gate);
    }
    Ok((rows, gates))
}

/// The slow medium and the fast one, by name.
fn media(args: &SubBlockArgs) -> [String; 2] {
    [format!("writes of {}", args.write), "RAM".to_owned()]
}

/// Writes all of an area in small pieces, in no order, and reads it by whole sectors.
fn writes_arrive(name: &str, gate: &Gate, whole: &Gate) -> Result<(), Error> {
    let failed = |fault| Error::device(format!("{name}: a request failed: {fault}"));
    let block = usize::try_from(gate.geometry().logical_block).unwrap_or(AREA);
    let area = AREA.min(usize::try_from(whole.geometry().size).unwrap_or(AREA));
    // No two ways write the same bytes.
    let contents = Contents::new(name.bytes().map(u64::from).fold(7, |a, b| a * 31 % 65_521 + b));
    let mut bytes = vec![0; area];
    let mut writer = Blocking::new(gate, BackendChoice::Auto)?;
    let blocks = area / block;
    // An odd step visits every place of a power of two, or of its half, once.
    for turn in 0..blocks {
        let at = (turn * 37 % blocks * block) as u64;
        contents.fill(at, &mut bytes[..block]);
        writer.write_at(at, &bytes[..block], false).map_err(failed)?;
    }
    let mut reader = Blocking::new(whole, BackendChoice::Auto)?;
    reader.read_at(0, &mut bytes).map_err(failed)?;
    match contents.first_difference(0, &bytes) {
        None => Ok(()),
        Some(byte) => {
            Err(Error::device(format!("{name}: byte {byte} is not what was written to it; nothing was measured")))
        }
    }
}

/// From rows to the table, the plot and the figures.
fn summarise(report: &mut Report, args: &SubBlockArgs) {
    report.medium = format!("RAM, {}; and the same with writes of {}", size::human(args.size), args.write);
    report.notes = vec![
        format!(
            "{} threads with {} random writes of {} bytes in flight each, on cipher sectors of 4096 bytes. All ways use the same RAM and take turns in each run.",
            args.jobs, args.depth, args.block
        ),
        "Before the runs, each way wrote all of an area in small pieces, and it was read back by whole sectors without this layer.".into(),
        "XTS can overwrite parts of a sector; with the shared exclusion it has no layer and no lock at all. CBC reads the sector, changes it and writes it. Exclusive is one lock for the device and everything drained, as ext4 had it up to Linux 6.4.".into(),
        "The ext4 commit that made such writes concurrent (Linux 6.5) has 4328 IOPS before and 801k after: 185 times.".into(),
        "Speeds are medians; half of the runs lie within the spread. A ratio is the median of the ratios of the runs.".into(),
    ];
    report.tables.push(Table::of(
        "Random writes",
        &[
            ("way", &|row: &&Row| Row::label(&row.name, [*row])),
            ("IOPS", &|row| format!("{:.0}", row.iops())),
            ("MB/s", &|row| table::megabytes(row.bytes_per_second)),
            ("spread", &|row| row.steadiness()[0].clone()),
            ("p50 µs", &|row| row.steadiness()[1].clone()),
            ("p99 µs", &|row| row.steadiness()[2].clone()),
        ],
        &report.rows,
    ));
    // Both ways of each place stand side by side; the last two write whole sectors.
    let parts = &report.rows[..report.rows.len() - 2];
    let values = parts.iter().filter_map(|row| {
        let (exclusion, place) = row.name.split_once(", ")?;
        let place = place.replace(XTS, "XTS").replace(CBC, "CBC");
        let each = 1000.0 * f64::from(row.shape.block);
        Some((place, exclusion, row.plotted(|rate| rate / each)))
    });
    let title = format!("Random writes of {} bytes in a second", args.block);
    let plot = Plot::of(title, ["cipher and medium", "thousands a second"], values);
    report.plots.push(plot.columns());
    let [slow, _] = &media(args);
    let shared_over_exclusive = |name, cipher: &str| {
        let way = |exclusion| format!("{exclusion}, {cipher}, {slow}");
        report.figure(name, &way("shared"), &way("exclusive"))
    };
    let whole = |locking| format!("whole sectors, {locking} locking, {CBC}, RAM");
    let locked = report.ratios(&whole("with"), &whole("no"));
    let mut cost = Figure::of("aligned_cost_of_locking", locked.as_ref());
    cost.value = cost.value.map(|locked| 1.0 - locked);
    let other_load = (args.jobs, args.depth, args.write.as_str()) != (8, 256, "100us");
    let why = other_load.then_some("the goal is for 8 threads, 256 deep, writes of 100us");
    report.figures = vec![
        shared_over_exclusive("shared_over_exclusive_xts", XTS).at_least(EXT4).unless(why),
        shared_over_exclusive("shared_over_exclusive_cbc", CBC),
        cost.at_most(COST_MAX).noted("whole sectors with CBC over RAM; with XTS there is no locking"),
    ];
}
