//! Every block size, queue depth, direction and number of streams, by each dispatch mode:
//! cipher × direction × streams × depth × block.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cryptline::size;
use cryptline_engine::Gate;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::{DelayDevice, DelaySpec};

use crate::contents::TestPattern;
use crate::error::{Of as _, Result, fail};
use crate::load::{self, LoadJob};
use crate::machine::{available_memory, cores};
use crate::plan::{Plan, PlannedRuns, RunArgs, unique};
use crate::report::{DataDirection, FigureSubject, LoadShape, Pattern, PlanReport, Quantity, Row, word};
use crate::volume::{CipherWord, HelperArgs, SECTOR_SIZE, check_size, in_words, ram};

/// Before each measurement: helpers look every 100 ms whether the machine is idle.
const WARM_UP: Duration = Duration::from_millis(200);
/// Largest values that make any sense.
const BLOCK_MAX: u64 = 1 << 30;
const DEPTH_MAX: u32 = 1024;
const STREAMS_MAX: u32 = 256;
/// Cores that the goal for one large request supposes to be idle, and its bytes.
const IDLE_CORES: usize = 2;
const LARGE: u32 = 1 << 20;
/// Share of the processors that others may have had when they count as idle.
const IDLE: f64 = 0.05;

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench sweep --html sweep.html                  everything, in about 7 minutes
  cryptline-bench sweep --block-sizes 4k,1M --depths 1 --streams 1
  cryptline-bench sweep --delay read=80us,write=20us")]
pub struct SweepArgs {
    /// Bytes in a request
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4k,16k,64k,128k,256k,1M,4M", value_parser = size::parse)]
    block_sizes: Vec<u64>,

    /// Requests that each stream has in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,32")]
    depths: Vec<u32>,

    /// Ways of the data
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_values_t = [DataDirection::Read, DataDirection::Write])]
    directions: Vec<DataDirection>,

    /// Threads with requests of their own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2")]
    streams: Vec<u32>,

    /// Dispatch modes of the cipher: inline, queue, auto
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "inline,queue,auto")]
    dispatch: Vec<String>,

    /// Ciphers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "aes-xts-plain64")]
    cipher: Vec<String>,

    /// Order of the offsets
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pattern: Pattern,

    /// As slow as the RAM that the volumes lie on is to be, such as read=100us,write=20us..40us
    #[arg(long, value_name = "SPEC")]
    delay: Option<String>,

    #[command(flatten)]
    helpers: HelperArgs,
}

/// A checked [`SweepArgs`]: each value of a list once, in the order given.
struct Sweep {
    points: Vec<SweepPoint>,
    modes: Vec<DispatchMode>,
    ciphers: Vec<CipherWord>,
    delay: Option<DelaySpec>,
    helpers: usize,
}

/// Setting at which each mode has its turn.
#[derive(Clone, Debug, PartialEq)]
struct SweepPoint {
    /// In the list of ciphers.
    cipher: usize,
    shape: LoadShape,
}

/// Measures.
pub fn measure(args: &SweepArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(512 << 20, 5, 0.1)?;
    let sweep = Sweep::new(args, &runs)?;
    let rows = sweep.rows();
    let gates = sweep.volumes(args, runs.size)?;
    let modes = sweep.modes.len();
    let plan = Plan {
        bench: "sweep",
        title: "Every size, depth and dispatch mode",
        medium: format!(
            "RAM, {}{}",
            size::human(runs.size),
            args.delay.as_ref().map_or(String::new(), |spec| format!(", as slow as {spec}"))
        ),
        runs,
        rows,
        notes: sweep.notes(args),
    };
    let ways = u64::try_from(plan.rows.len())?;
    let mut report = plan.run(|row, turn| {
        // Each turn goes elsewhere, so that none finds in the caches what another has just read. Steps by the golden
        // ratio of the range spread evenly (Fibonacci hashing).
        let nth = u64::from(turn.nth) * ways + u64::try_from(turn.row)?;
        let start = (nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let job =
            LoadJob { shape: row.shape, warm_up: WARM_UP, time: runs.time, start, latency: true, ..LoadJob::default() };
        let cipher = sweep.points[turn.row / modes].cipher;
        load::run(&gates[cipher * modes + turn.row % modes], &job)
    })?;
    sweep.compare(&mut report);
    Ok(report)
}

impl Sweep {
    /// Checks what was asked for.
    fn new(args: &SweepArgs, runs: &PlannedRuns) -> Result<Self> {
        let count = |most: u32| {
            move |&count: &u32| match count {
                count if count > 0 && count <= most => Ok(count),
                _ => Err(format!("use numbers from 1 to {most}")),
            }
        };
        let ciphers = unique(args.cipher.clone());
        let sweep = Self {
            points: Vec::new(),
            modes: list("--dispatch", &args.dispatch, |word| DispatchMode::from_str(word))?,
            ciphers: ciphers.iter().map(|word| CipherWord::new(word)).collect::<Result<_>>()?,
            delay: args
                .delay
                .as_ref()
                .map(|spec| DelaySpec::from_str(spec).of(format_args!("--delay {spec}")))
                .transpose()?,
            helpers: args.helpers.count()?,
        };
        let blocks = list("--block-sizes", &args.block_sizes, block)?;
        let depths = list("--depths", &args.depths, count(DEPTH_MAX))?;
        let all_streams = list("--streams", &args.streams, count(STREAMS_MAX))?;
        check_block(runs.size, blocks.iter().copied().max().unwrap_or(0))?;
        let mut points = Vec::new();
        for cipher in 0..sweep.ciphers.len() {
            for direction in unique(args.directions.clone()) {
                for &streams in &all_streams {
                    for &depth in &depths {
                        points.extend(blocks.iter().map(|&block| {
                            let shape = LoadShape { direction, pattern: args.pattern, block, depth, streams };
                            SweepPoint { cipher, shape }
                        }));
                    }
                }
            }
        }
        let most = |of: fn(&LoadShape) -> u32| u64::from(points.iter().map(|one| of(&one.shape)).max().unwrap_or(0));
        let buffers = most(|it| it.block).saturating_mul(most(|it| it.depth)).saturating_mul(most(|it| it.streams));
        if available_memory().is_some_and(|available| buffers > available) {
            fail!(
                "the buffers of all requests take {}, and less of memory are free; use smaller --block-sizes, --depths or --streams",
                size::human(buffers)
            );
        }
        Ok(Self { points, ..sweep })
    }

    /// A row by each mode for every point.
    fn rows(&self) -> Vec<Row> {
        let row = |point: &SweepPoint, mode: DispatchMode| Row {
            cipher: Some(self.ciphers[point.cipher].word().to_owned()),
            dispatch: Some(mode.to_string()),
            ..Row::new(self.name(point, mode), point.shape)
        };
        self.points.iter().flat_map(|point| self.modes.iter().map(move |&mode| row(point, mode))).collect()
    }

    /// `4 KiB random reads, 32 in flight, 2 streams, inline`.
    fn name(&self, point: &SweepPoint, mode: DispatchMode) -> String {
        let mut name = point.shape.title();
        if point.shape.streams > 1 {
            name = format!("{name}, {} streams", point.shape.streams);
        }
        if self.ciphers.len() > 1 {
            name = format!("{name}, {}", self.ciphers[point.cipher].word());
        }
        format!("{name}, {}", in_words(mode))
    }

    /// A volume of each cipher by each mode, all on one medium that is full of data.
    fn volumes(&self, args: &SweepArgs, size: u64) -> Result<Vec<Gate>> {
        let mut medium = ram(size, size, "")?;
        // Untouched memory is one page of zeros, which is faster than data.
        TestPattern::new(1).write_to(&medium, 1 << 20)?;
        if let Some(delay) = &self.delay {
            medium = Gate::new(DelayDevice::new(medium, delay.clone()));
        }
        let helpers = args.helpers.pool()?;
        let by_modes =
            |cipher: &CipherWord| self.modes.iter().map(|&mode| cipher.over(&medium, mode, &helpers)).collect();
        let volumes = self.ciphers.iter().map(by_modes).collect::<Result<Vec<Vec<Gate>>>>()?;
        Ok(volumes.concat())
    }

    fn compare(&self, report: &mut PlanReport) {
        use DispatchMode::{Auto, Inline, Queue};
        let points = || self.points.iter();
        let both = |point: &SweepPoint| vec![self.name(point, Inline), self.name(point, Queue)];
        let needs = "needs --dispatch inline,queue,auto";
        for (name, of) in [("auto_over_best_min", Quantity::Speed), ("auto_p99_over_best_max", Quantity::P99)] {
            let pairs = points().map(|point| (self.name(point, Auto), both(point))).collect();
            report.compare(&FigureSubject { name, of, pairs, needs: needs.into(), ..FigureSubject::default() });
        }
        for (name, of) in [("best_over_itself_min", Quantity::Speed), ("best_p99_over_itself_max", Quantity::P99)] {
            let best = |point| report.best(&both(point), of).map(|row| row.name.clone());
            let pairs = points().map(|point| best(point).map(|best| (best.clone(), vec![best])));
            let pairs = pairs.collect::<Option<_>>().filter(|_| self.modes.contains(&Auto)).unwrap_or_default();
            report.compare(&FigureSubject { name, of, pairs, needs: needs.into(), ..FigureSubject::default() });
        }
        // One request of 1 MiB at a time: what helpers are for.
        let alone = points().filter(|point| {
            let LoadShape { block, depth, streams, .. } = point.shape;
            point.cipher == 0 && (block, depth, streams) == (LARGE, 1, 1)
        });
        let pairs: Vec<_> = alone.map(|point| (self.name(point, Auto), vec![self.name(point, Inline)])).collect();
        let others = pairs.iter().filter_map(|(of, _)| report.row(of)?.others).reduce(f64::max);
        let unless = match others {
            _ if cores() < IDLE_CORES || self.helpers == 0 => Some("needs 2 processors and a helper".to_owned()),
            Some(share) if share <= IDLE => None,
            Some(share) => Some(format!(
                "no verdict: other programs had {:.0} % of the processors, and the goal is for idle ones",
                share * 100.0
            )),
            None => Some("no verdict: nobody knows whether the processors were idle".into()),
        };
        let needs = "needs --block-sizes 1M, --depths 1, --streams 1 and --dispatch inline,auto".into();
        report.compare(&FigureSubject {
            name: "auto_over_inline_1m_qd1",
            pairs,
            unless,
            needs,
            ..FigureSubject::default()
        });
    }

    fn notes(&self, args: &SweepArgs) -> Vec<String> {
        vec![
            format!(
                "All volumes use the same medium. In each round every point has its turn, and at each point every mode, in an order that rotates; each measurement comes after a warm-up of {} s.",
                WARM_UP.as_secs_f64()
            ),
            "A latency counts from the moment the stream wants the request, so it includes the time that requests of one stream wait for each other. Where a round has fewer than 100 requests, its p99 is its longest.".into(),
            format!("{} helpers; offsets are {}.", self.helpers, word(&args.pattern)),
        ]
    }
}

/// Verifies that the medium has so many bytes, and that a request fits.
fn check_block(size: u64, largest: u32) -> Result<()> {
    check_size(size)?;
    if u64::from(largest) > size {
        fail!(
            "--size {}: a request of {} does not fit; use a larger --size or smaller --block-sizes",
            size::human(size),
            size::human(largest.into())
        );
    }
    Ok(())
}

/// Returns the meanings of a list's values, each once.
fn list<G: Display, T: PartialEq>(
    option: &str,
    given: &[G],
    parse: impl Fn(&G) -> Result<T, String>,
) -> Result<Vec<T>> {
    let parsed = given.iter().map(|value| parse(value).of(format_args!("{option} {value}")));
    Ok(unique(parsed.collect::<Result<Vec<_>>>()?))
}

fn block(&bytes: &u64) -> Result<u32, String> {
    let fits = bytes > 0 && bytes <= BLOCK_MAX && bytes.is_multiple_of(u64::from(SECTOR_SIZE));
    u32::try_from(bytes).ok().filter(|_| fits).ok_or_else(|| {
        format!("use multiples of {SECTOR_SIZE} bytes, and not 0, up to {}, such as 4k,1M", size::human(BLOCK_MAX))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArgs,
        #[command(flatten)]
        runs: RunArgs,
    }

    fn sweep(options: &[&str]) -> Result<Sweep> {
        let line = Line::try_parse_from(["sweep"].iter().chain(options)).expect("a command line");
        Sweep::new(&line.sweep, &line.runs.or(512 << 20, 5, 0.1)?)
    }

    #[test]
    fn without_options_every_point_of_the_goal_is_measured() {
        let sweep = sweep(&[]).expect("a plan");
        let rows = sweep.rows();
        assert_eq!(rows.len(), 7 * 3 * 2 * 2 * 3);
        let names: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), rows.len(), "no two have the same name");
        let blocks = rows.iter().map(|row| row.shape.block);
        assert_eq!((blocks.clone().min(), blocks.max()), (Some(4096), Some(4 << 20)));
    }

    #[test]
    fn each_axis_can_be_narrowed() {
        let options = ["--block-sizes=4k,64k,4k", "--depths=1", "--directions=write", "--streams=2", "--dispatch=auto"];
        let rows = sweep(&options).expect("a plan").rows();
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row.dispatch.as_deref(), Some("auto"));
            assert_eq!((row.shape.direction, row.shape.streams), (DataDirection::Write, 2));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let helpers = format!("--helpers={}", cores() + 1);
        for (option, text) in [
            ("--dispatch=outline", "--dispatch outline"),
            ("--block-sizes=0", "--block-sizes 0"),
            ("--block-sizes=5000", "--block-sizes 5000"),
            ("--depths=0", "--depths 0"),
            ("--streams=0", "--streams 0"),
            ("--streams=1000", "--streams 1000"),
            ("--seconds=0", "--seconds 0"),
            ("--seconds=NaN", "--seconds NaN"),
            ("--size=0", "--size 0"),
            ("--size=1M", "does not fit"),
            ("--cipher=rot13", "--cipher rot13"),
            ("--delay=soon", "--delay soon"),
            (helpers.as_str(), "--helpers"),
        ] {
            let error = sweep(&[option]).map(drop).expect_err(option);
            assert!(error.to_string().contains(text), "{option}: {error}");
        }
        let greedy = ["--block-sizes=1G", "--depths=1024", "--streams=256", "--size=1G"];
        let error = sweep(&greedy).map(drop).expect_err("too much memory");
        assert!(error.to_string().contains("memory are free"), "{error}");
    }
}
