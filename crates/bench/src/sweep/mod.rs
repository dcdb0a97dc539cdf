//! `bench sweep`: every block size, queue depth, direction and number of streams, by each dispatch
//! mode, and what a busy machine does to latencies.
//!
//! ```text
//! points   cipher × direction × streams × depth × block        by each mode
//! loaded   one 4 KiB read at a time                            by each mode, alone and beside hogs
//! ```
//!
//! Hogs are threads that use up the processors. The claim of the 2020 dm-devel thread: inline, the
//! latency of a request stays near that of device and cipher, whatever else runs; through a queue it
//! waits for a worker to get a processor.

mod medium;
mod plan;
mod summary;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use cryptline::size;

use crate::Error;
use crate::load::{self, Job};
use crate::output::Output;
use crate::report::{Pattern, Report};
use crate::runner::{self, Group};
use crate::volume::HelperArgs;
use plan::Plan;

/// Before each measurement: helpers look every 100 ms whether the machine is idle.
const WARM_UP: Duration = Duration::from_millis(200);

/// What to measure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline bench sweep --html sweep.html                  everything, in about 7 minutes
  cryptline bench sweep --block-sizes 4k,1M --depths 1 --streams 1
  cryptline bench sweep --medium delay:read=80us,write=20us --json sweep.json
  cryptline bench sweep --medium /mnt/nvme --size 8G       a file there, gone afterwards

The loaded part reads 4 KiB at a time while --hog threads use up the processors. The JSON is
described in docs/bench-json.md.")]
pub struct SweepArgs {
    /// Bytes in a request
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4k,16k,64k,128k,256k,1M,4M", value_parser = size::parse)]
    pub block_sizes: Vec<u64>,

    /// Requests that each stream has in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,32")]
    pub depths: Vec<u32>,

    /// read, write
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "read,write")]
    pub directions: Vec<String>,

    /// Threads with requests of their own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2")]
    pub streams: Vec<u32>,

    /// Who runs the cipher: inline, queue, auto
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "inline,queue,auto")]
    pub dispatch: Vec<String>,

    /// Ciphers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "aes-xts-plain64")]
    pub cipher: Vec<String>,

    /// Order of the offsets
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,

    /// What the volumes lie on: `ram`, `delay:SPEC` (RAM that is as slow as SPEC says, such as
    /// delay:read=100us,write=20us..40us), or a folder or new file, which is overwritten and gone
    /// afterwards
    #[arg(long, value_name = "MEDIUM", default_value = "ram")]
    pub medium: String,

    /// Size of the medium
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse)]
    pub size: u64,

    /// For `auto`.
    #[command(flatten)]
    pub helpers: HelperArgs,

    /// Threads that use up processor time in the loaded part; 0 leaves it out [default: one for
    /// each processor]
    #[arg(long, value_name = "N")]
    pub hog: Option<usize>,

    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,

    /// How long each measurement takes, after a warm-up of 0.2 s
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    pub seconds: f64,

    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Measures.
pub fn measure(args: &SweepArgs) -> Result<Report, Error> {
    let plan = Plan::new(args)?;
    let mut report = Report::new("sweep", "Every size, depth and dispatch mode");
    report = report.of(args.rounds, args.seconds);
    report.medium = plan.medium.describe(args.size);
    report.rows = plan.rows(args.pattern);
    let gates = plan.volumes(args, &report.rows)?;
    let modes = plan.modes.len();
    let group = |(point, rows): (usize, &[_])| Group::once(summary::name(&rows[0]), point * modes..(point + 1) * modes);
    let points = report.rows.chunks(modes).enumerate();
    let groups: Vec<Group> = points.map(group).collect();
    let ways = u64::try_from(gates.len()).unwrap_or(1);
    runner::run(&mut report, &groups, |rows, turn| {
        let row = &mut rows[turn.way];
        // Each turn goes elsewhere, so that none finds in the caches what another has just read. Steps
        // by the golden ratio of the range spread evenly (Fibonacci hashing).
        let nth = u64::from(turn.nth) * ways + u64::try_from(turn.way).unwrap_or(0);
        let start = (nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let job = Job { shape: row.shape, warm_up: WARM_UP, time: plan.time, start, latency: true, ..Job::default() };
        let measured = beside_hogs(row.hogs, || load::run(&gates[turn.way], &job));
        row.take(measured?);
        Ok(())
    })?;
    summary::fill(&mut report, args, &plan);
    Ok(report)
}

/// Does `work` while `count` threads use up as much processor time as they get.
fn beside_hogs<T>(count: u32, work: impl FnOnce() -> T) -> T {
    /// Ends the threads however `work` ends.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut number = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1000 {
                        number = black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d));
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        work()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_end_with_the_work_they_disturb() {
        assert_eq!(beside_hogs(3, || 7), 7);
        let panicked = std::panic::catch_unwind(|| beside_hogs(1, || panic!("on purpose")));
        assert!(panicked.is_err());
    }
}
