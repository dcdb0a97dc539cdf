//! Our encryption of Ceph images beside librbd's own, and beside none.
//!
//! ```text
//! load ─► crypt ─► base rbd ─► librbd ─────────► image `ours`
//! load ──────────► base rbd ─► librbd (LUKS2) ─► image `theirs`
//! load ──────────► base rbd ─► librbd ─────────► image `plain`
//!
//! cluster   one of this machine, or a given one
//! images    made, filled, and compared: each encrypted one is read by both
//! ```
//!
//! The client is the same each time, in one process, so the process's time is what the client costs; the cluster's
//! daemons are others.

mod cluster;
mod images;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cryptline::size;
use cryptline_cipher::ceiling::{median, spread};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Result, fail};
use crate::load::{self, LoadJob};
use crate::plan::{Plan, RunArgs};
use crate::process::StopFlag;
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Quantity, Row, word};
use cluster::BenchCluster;
use images::RbdImages;

/// Load before each turn counts.
const WARM_UP: Duration = Duration::from_millis(100);
const SIZE_MIN: u64 = 16 << 20;
/// With less there are no goals: rounds, seconds, size.
const ENOUGH: (u32, f64, u64) = (3, 0.3, 128 << 20);

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench rbd                                  a cluster of its own, in two minutes
  cryptline-bench rbd --conf /etc/ceph/ceph.conf       a real one, over the network

Gives three images the same load in turns: a plain one, one that librbd decrypts (`rbd \
encryption`), and one that cryptline does. Both encrypted ones have the same LUKS2 format, and \
each is read by both first. Afterwards three quarters of each are discarded, as fstrim would, and \
`rbd du` tells what they still take.

Without --conf it starts a monitor and a storage daemon on loopback, which keep everything in \
memory, about six times --size. Ratios of such a cluster say nothing of networks. Needs the Debian \
packages ceph-common and librbd1, and without --conf ceph-mon and ceph-osd.")]
pub struct RbdArgs {
    /// Configuration of a cluster to measure with, as client.admin [default: a cluster of its own]
    #[arg(long, value_name = "PATH")]
    pub conf: Option<PathBuf>,

    /// Pool for the images; they are removed at the end
    #[arg(long, value_name = "POOL", default_value = cryptline_peers::ceph::POOL)]
    pub pool: String,
}

/// Party that encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encrypter {
    Plain,
    #[value(name = "librbd LUKS2")]
    Librbd,
    #[value(name = "cryptline LUKS2")]
    Ours,
}

/// All of them, in the order of the images.
const WAYS: [Encrypter; 3] = [Encrypter::Plain, Encrypter::Librbd, Encrypter::Ours];

/// Requests to the images.
const RAND_READ: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 32);
const RAND_WRITE: LoadShape = LoadShape::new(DataDirection::Write, Pattern::Random, 4096, 32);
const READ: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 1 << 20, 8);
const WRITE: LoadShape = LoadShape::new(DataDirection::Write, Pattern::Sequential, 1 << 20, 8);
const SECTOR_WRITE: LoadShape = LoadShape::new(DataDirection::Write, Pattern::Random, 512, 32);
const LOADS: [LoadShape; 5] = [RAND_READ, RAND_WRITE, READ, WRITE, SECTOR_WRITE];

/// Measures.
pub fn measure(args: &RbdArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(256 << 20, 7, 1.0)?;
    let (size, time) = (runs.size, runs.time);
    if size < SIZE_MIN || !size.is_multiple_of(SIZE_MIN) {
        fail!("--size {size}: use a multiple of {}", size::human(SIZE_MIN));
    }
    let stop = StopFlag::watch()?;
    let cluster = BenchCluster::of(args)?;
    let images = RbdImages::make(&cluster, size)?;
    let sha256 = images.check(&stop)?;
    let gates = images.open_all()?;
    let rows: Vec<Row> = subjects().map(|(load, way)| row(load, way, &sha256)).collect();
    let plan = Plan {
        bench: "rbd",
        title: "Encryption of Ceph images",
        medium: cluster.describe(),
        runs,
        rows,
        notes: Vec::new(),
    };
    let mut report = plan.run(|row, turn| {
        stop.check()?;
        let job = LoadJob::timed(row.shape, WARM_UP, time, u64::from(turn.run) + 1);
        let before = process_time();
        let mut sample = load::run(&gates[turn.row % WAYS.len()], &job)?;
        let used = process_time().saturating_sub(before).as_secs_f64();
        sample.busy = Some(used / (WARM_UP + time).as_secs_f64());
        Ok(sample)
    })?;
    if cluster.is_own() {
        // Others are its daemons.
        report.rows.iter_mut().for_each(|row| row.others = None);
    }
    report.weak_below(ENOUGH.0, ENOUGH.1, (size, ENOUGH.2));
    let used = images.used_after_discards(&gates)?;
    report.notes = notes(&report, size, &sha256);
    compare(&mut report, used);
    Ok(report)
}

fn compare(report: &mut PlanReport, used: [f64; 3]) {
    let ratio = |name, load, to| FigureSubject::new(name, self::name(load, Encrypter::Ours), self::name(load, to));
    report.compare(&ratio("rbd_over_librbd_luks2_4k_qd32", RAND_READ, Encrypter::Librbd));
    report.compare(&ratio("rbd_over_librbd_luks2_1m_write", WRITE, Encrypter::Librbd));
    report.compare(&ratio("rbd_encrypted_over_raw_4k_qd32", RAND_READ, Encrypter::Plain));
    // With 4 KiB the messages take so much time that the cipher's is lost in the noise.
    let turns =
        WAYS.map(|way| report.row(&name(READ, way)).map(|row| row.each(Quantity::ProcessorTime)).unwrap_or_default());
    let added = added_ratio(turns.each_ref().map(Vec::as_slice));
    let added = added.map(|ratio| (ratio, READ.title()));
    let added = added.ok_or_else(|| "what encryption adds is lost in the noise; measure for longer".to_owned());
    report.figure("rbd_added_cpu_over_librbd_luks2", added, None);
    report.compare(&ratio("rbd_512_write_over_plain", SECTOR_WRITE, Encrypter::Plain));
    let [_, by_librbd, ours] = used;
    let note = format!("without the header; librbd's own LUKS2: {by_librbd:.2}");
    report.figure("rbd_used_over_live_after_fstrim", Ok((ours, note)), None);
}

fn notes(report: &PlanReport, size: u64, sha256: &str) -> Vec<String> {
    let gibibyte = f64::from(1 << 30);
    let cpu = report.rows.iter().map(|row| {
        let used = median(&row.each(Quantity::ProcessorTime)).unwrap_or(0.0) * gibibyte;
        format!("{} {used:.3}", row.name)
    });
    vec![
        format!(
            "LUKS2, aes-xts-plain64, 512-bit key, 4096-byte sectors, {} of clear disk each. Before, librbd read what cryptline had written and the other way round, SHA-256 {sha256}.",
            size::human(size)
        ),
        "All three ways are one client in one process over the same connections of librbd, with rbd_cache off.".into(),
        format!("Processor seconds of the whole process for a GiB: {}.", cpu.collect::<Vec<_>>().join("; ")),
        "On a cluster of this machine, its daemons count as other programs, and they and the client take processors from each other.".into(),
        "After the loads, all of each disk but the first quarter was discarded.".into(),
    ]
}

/// In the order of the rows.
fn subjects() -> impl Iterator<Item = (LoadShape, Encrypter)> {
    LOADS.into_iter().flat_map(|load| WAYS.map(|way| (load, way)))
}

fn name(load: LoadShape, way: Encrypter) -> String {
    format!("{}, {}", word(&way), load.title())
}

fn row(load: LoadShape, way: Encrypter, sha256: &str) -> Row {
    Row {
        cipher: (way != Encrypter::Plain).then(|| "aes-xts-plain64".to_owned()),
        sha256: Some(sha256.to_owned()),
        ..Row::new(name(load, way), load)
    }
}

/// Of all threads, librbd's too.
fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Returns what the third way adds to the first, divided by what the second adds: the median of the rounds. `None`
/// where a difference is not larger than the spread of the first, which may be all there is of it.
fn added_ratio(of_ways: [&[f64]; 3]) -> Option<f64> {
    let [none, theirs, ours] = of_ways;
    let added = |way: &[f64]| -> Vec<f64> {
        let pairs = way.iter().zip(none);
        pairs.map(|(way, none)| way - none).collect()
    };
    let (ours, theirs) = (added(ours), added(theirs));
    let middle = |values: &[f64]| median(values).unwrap_or(0.0);
    let noise = spread(none) * middle(none);
    let is_more = |added: &[f64]| middle(added) > noise;
    let is_known = is_more(&ours) && is_more(&theirs);
    let each: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    median(&each).filter(|_| is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_time_that_is_lost_in_noise_is_no_figure() {
        let none: &[f64] = &[1.0, 1.2, 1.4];
        let much: &[f64] = &[2.0, 2.2, 2.4];
        let [less, little] = [[0.9, 1.1, 1.3], [1.1, 1.3, 1.5]];
        assert!(added_ratio([none, much, &less]).is_none());
        assert!(added_ratio([none, &little, much]).is_none());
        assert!(added_ratio([none, &[], &[]]).is_none());
        let found = added_ratio([none, much, &[1.5, 1.7, 1.9]]);
        assert!(found.is_some_and(|ratio| (ratio - 0.5).abs() < 1e-9));
    }
}
