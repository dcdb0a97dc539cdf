//! From samples to tables, plots and figures.

use super::jobs::{Generator, Load};
use super::runs::{Runs, Series, hex};
use super::servers::Server;
use super::{PeersArgs, Pins};
use crate::bench::plot::{self, Plot};
use crate::bench::report::{Figure, Front, Latency, Report, Row};
use crate::bench::table::{Table, megabytes, microseconds};
use crate::benchmark::measure::median;
use crate::size;

/// Below these, turns are too few or too short for a goal.
const ROUNDS_MIN: u32 = 3;
const SECONDS_MIN: f64 = 0.1;
const SIZE_MIN: u64 = 64 << 20;
/// Where a server reaches this share of what the generator can do, the generator is the limit.
const NEAR_CEILING: f64 = 0.85;

/// Fills the report.
pub fn fill(report: &mut Report, args: &PeersArgs, runs: &Runs<'_>, pins: Option<Pins>) {
    report.medium.clone_from(&runs.images().medium);
    report.runs = args.rounds;
    report.seconds = args.seconds;
    report.commands.extend(runs.commands.iter().cloned());
    let all = All(&runs.series);
    report.rows = runs
        .series
        .iter()
        .map(|series| row(series, args, runs))
        .collect();
    report.notes = notes(args, runs, pins);
    for &load in &args.jobs {
        report.tables.push(table(load, args, all));
        report.plots.push(throughput(load, args, all));
    }
    if args.jobs.contains(&Load::RandRead) {
        report.plots.push(latencies(args, all));
    }
    report.figures = figures(args, all, pins);
    if args.no_pin {
        report.warnings.push(
            "nothing was pinned, so servers and generators took processors from each other as it came"
                .into(),
        );
    }
}

fn row(series: &Series, args: &PeersArgs, runs: &Runs<'_>) -> Row {
    let Series {
        server,
        load,
        generator,
        samples,
    } = series;
    let latencies: Vec<Latency> = samples.iter().map(|sample| sample.latency).collect();
    let is_ours = matches!(server, Server::Cryptline | Server::CryptlinePlain);
    Row {
        name: format!("{server}, {load}, {generator}"),
        front: Front::Nbd,
        cipher: server.is_encrypted().then(|| "aes-xts-plain64".into()),
        dispatch: args.dispatch.clone().filter(|_| is_ours),
        shape: load.shape(generator.streams(args.connections)),
        latency: Latency::median(&latencies),
        // Checked before anything was measured.
        sha256: (!server.is_null()).then(|| hex(&runs.images().sha256)),
        server: Some(server.to_string()),
        generator: Some(generator.to_string()),
        ..Row::default()
    }
    .sampled(
        samples
            .iter()
            .map(|sample| sample.bytes_per_second)
            .collect(),
    )
}

fn notes(args: &PeersArgs, runs: &Runs<'_>, pins: Option<Pins>) -> Vec<String> {
    let pinned = match pins {
        Some(Pins { server, client }) => format!(
            "All servers run on processor {server}, all generators on processor {client}, and on no other."
        ),
        None => "Servers and generators run on any processor.".to_owned(),
    };
    let mut notes = vec![
        format!(
            "LUKS1, aes-xts-plain64, 512-bit key, 512-byte sectors, {} of clear disk; the plain servers have the same clear text in a file of its own. All go through the page cache.",
            size::human(args.size)
        ),
        format!(
            "Before, each server gave the SHA-256 of what was written, {}, and the right data to random reads with 32 in flight on two connections at once. After the last write all encrypted servers read the same, and so did all plain ones.",
            hex(&runs.images().sha256)
        ),
        pinned,
        "One server runs at a time. Each has a turn at each load in each round, and the order rotates. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        format!(
            "fio uses its nbd engine (libnbd, structured replies, one connection). lean is a client of this program, one thread and one connection, simple replies; lean-many is {} of these at once, each with the same number of requests in flight.",
            args.connections
        ),
        "null answers at once with zeros from this process, nbdkit-null is nbdkit's null plugin: \"of null\" is the share of what the same generator reaches there. Near 100 % the generator and the socket are measured, not the server.".into(),
        "cryptline-plain is the null cipher over the plain file: cryptline serves no file as it is, and this touches no byte more.".into(),
    ];
    if !args.servers.iter().all(|&server| server.is_null()) {
        let versions = runs.programs().versions();
        notes.push(format!("Versions: {}.", versions.join("; ")));
    }
    notes
}

/// All samples.
#[derive(Clone, Copy)]
struct All<'a>(&'a [Series]);

impl All<'_> {
    fn find(&self, server: Server, load: Load, generator: Generator) -> Option<&Series> {
        self.0.iter().find(|series| {
            (series.server, series.load, series.generator) == (server, load, generator)
                && !series.samples.is_empty()
        })
    }

    fn speeds(&self, server: Server, load: Load, generator: Generator) -> Option<Vec<f64>> {
        let series = self.find(server, load, generator)?;
        let speeds = series.samples.iter().map(|sample| sample.bytes_per_second);
        Some(speeds.collect())
    }

    fn speed(&self, server: Server, load: Load, generator: Generator) -> Option<f64> {
        self.speeds(server, load, generator)
            .map(|speeds| median(&speeds))
    }

    fn p99(&self, server: Server, load: Load, generator: Generator) -> Option<Vec<f64>> {
        let series = self.find(server, load, generator)?;
        let all = series.samples.iter().map(|sample| sample.latency.p99_us);
        Some(all.collect())
    }

    /// One connection's generator that reaches more with the null server: it hides less.
    fn leaner(&self) -> Option<(Generator, String)> {
        let ceiling = |generator| self.speed(Server::Null, Load::RandRead, generator);
        let measured = |generator| self.0.iter().any(|series| series.generator == generator);
        let (fio, lean) = (Generator::Fio, Generator::Lean);
        match (measured(fio), measured(lean)) {
            (true, true) => Some(match (ceiling(fio), ceiling(lean)) {
                (Some(of_fio), Some(of_lean)) => {
                    let leaner = if of_lean >= of_fio { lean } else { fio };
                    let thousands = |speed: f64| speed / 4096.0 / 1000.0;
                    let why = format!(
                        "with the null server lean reaches {:.0} and fio {:.0} thousand requests a second",
                        thousands(of_lean),
                        thousands(of_fio)
                    );
                    (leaner, why)
                }
                _ => (
                    lean,
                    "the null server was left out, so which is leaner was not measured".into(),
                ),
            }),
            (true, false) => Some((fio, "no other was asked for".into())),
            (false, true) => Some((lean, "no other was asked for".into())),
            (false, false) => None,
        }
    }
}

fn table(load: Load, args: &PeersArgs, all: All<'_>) -> Table {
    let is_small = load.shape(1).block < 1 << 20;
    let mut columns = vec!["server".to_owned(), "serves".to_owned()];
    for generator in &args.generators {
        let unit = if is_small { "kIOPS" } else { "MB/s" };
        columns.push(format!("{generator} {unit}"));
        columns.push("of null".into());
        columns.push("p50 µs".into());
        columns.push("p99 µs".into());
    }
    columns.push("client busy".into());
    columns.push("server busy".into());
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(load.title(), &names);
    for &server in &args.servers {
        let mut cells = vec![server.to_string(), server.describe().to_owned()];
        let mut busy = ["-".to_owned(), "-".to_owned()];
        for &generator in &args.generators {
            let Some(series) = all.find(server, load, generator) else {
                cells.extend(std::iter::repeat_n("-".to_owned(), 4));
                continue;
            };
            cells.extend(series_cells(series, is_small, all));
            if generator == Generator::Lean {
                busy = busy_cells(series);
            }
        }
        table.push(cells.into_iter().chain(busy));
    }
    table
}

fn series_cells(series: &Series, is_small: bool, all: All<'_>) -> [String; 4] {
    let speeds: Vec<f64> = series
        .samples
        .iter()
        .map(|sample| sample.bytes_per_second)
        .collect();
    let row = Row::default().sampled(speeds);
    let block = f64::from(series.load.shape(1).block);
    let speed = if is_small {
        format!("{:.1}", row.bytes_per_second / block / 1000.0)
    } else {
        megabytes(row.bytes_per_second)
    };
    let null = all.speed(Server::Null, series.load, series.generator);
    let latencies: Vec<Latency> = series.samples.iter().map(|sample| sample.latency).collect();
    let latency = Latency::median(&latencies).unwrap_or_default();
    [
        speed,
        null.map_or("-".into(), |null| percent(row.bytes_per_second / null)),
        microseconds(latency.p50_us),
        microseconds(latency.p99_us),
    ]
}

fn busy_cells(series: &Series) -> [String; 2] {
    let middle = |of: fn(&super::runs::Sample) -> Option<f64>| {
        let known: Vec<f64> = series.samples.iter().filter_map(of).collect();
        if known.is_empty() {
            "-".to_owned()
        } else {
            percent(median(&known))
        }
    };
    [
        middle(|sample| sample.client_busy),
        middle(|sample| sample.server_busy),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Encrypted beside plain, by one generator: ten servers by three generators are for the table.
fn throughput(load: Load, args: &PeersArgs, all: All<'_>) -> Plot {
    let shape = load.shape(1);
    let (label, unit) = if shape.block < 1 << 20 {
        (
            "thousand requests a second",
            f64::from(shape.block) * 1000.0,
        )
    } else {
        ("GB/s", 1e9)
    };
    let generator = shown(all);
    let programs: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|(_, encrypted, plain)| {
            let servers = [*encrypted, Some(*plain)];
            servers
                .into_iter()
                .flatten()
                .any(|server| args.servers.contains(&server))
        })
        .collect();
    let values = |server: &dyn Fn(&Program) -> Option<Server>| {
        let value = |program| Some(all.speed(server(program)?, load, generator)? / unit);
        programs.iter().map(value).collect()
    };
    Plot {
        title: format!("{}, by {generator}", load.title()),
        x_label: "server".into(),
        categories: programs
            .iter()
            .map(|(name, ..)| (*name).to_owned())
            .collect(),
        y_label: label.into(),
        columns: true,
        series: vec![
            plot::Series {
                name: "encrypted".into(),
                values: values(&|(_, encrypted, _)| *encrypted),
            },
            plot::Series {
                name: "plain".into(),
                values: values(&|(_, _, plain)| Some(*plain)),
            },
        ],
        ..Plot::default()
    }
}

/// A program, as it serves the encrypted disk and the plain one.
type Program = (&'static str, Option<Server>, Server);
const PROGRAMS: [Program; 6] = [
    ("cryptline", Some(Server::Cryptline), Server::CryptlinePlain),
    ("qemu-nbd", Some(Server::QemuNbd), Server::QemuNbdPlain),
    ("qsd", Some(Server::Qsd), Server::QsdPlain),
    ("nbdkit", Some(Server::Nbdkit), Server::NbdkitPlain),
    ("nbdkit-null", None, Server::NbdkitNull),
    ("null", None, Server::Null),
];

/// Whose numbers the plots show.
fn shown(all: All<'_>) -> Generator {
    let leaner = all.leaner();
    leaner.map_or(Generator::LeanMany, |(leaner, _)| leaner)
}

/// Percentiles of every server with an image, by the leaner generator.
fn latencies(args: &PeersArgs, all: All<'_>) -> Plot {
    let generator = shown(all);
    let of = |server: Server| {
        let series = all.find(server, Load::RandRead, generator)?;
        let runs: Vec<Latency> = series.samples.iter().map(|sample| sample.latency).collect();
        Latency::median(&runs)
    };
    let names: Vec<String> = Latency::default()
        .points()
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let servers = args.servers.iter().filter(|server| !server.is_null());
    Plot {
        title: format!("Latency of 4 KiB random reads, 32 in flight, by {generator}"),
        x_label: "percentile".into(),
        categories: names,
        y_label: "µs".into(),
        logarithmic: true,
        series: servers
            .filter_map(|&server| {
                let latency = of(server)?;
                Some(plot::Series {
                    name: server.to_string(),
                    values: latency
                        .points()
                        .iter()
                        .map(|&(_, value)| Some(value))
                        .collect(),
                })
            })
            .collect(),
        ..Plot::default()
    }
}

/// A ratio in every round.
struct Ratio {
    each: Vec<f64>,
    about: String,
}

impl Ratio {
    /// Of two series, round by round.
    fn new(of: &[f64], to: &[f64], about: String) -> Self {
        let each = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Self { each, about }
    }

    fn value(&self) -> f64 {
        if self.each.is_empty() {
            f64::NAN
        } else {
            median(&self.each)
        }
    }

    fn note(&self, generator: Generator) -> String {
        let least = self.each.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.each.iter().copied().fold(0.0, f64::max);
        format!(
            "{}; by {generator}; rounds from {least:.2} to {most:.2}",
            self.about
        )
    }
}

fn figures(args: &PeersArgs, all: All<'_>, pins: Option<Pins>) -> Vec<Figure> {
    let Some((generator, why)) = all.leaner() else {
        let why = "needs a generator with one connection: fio or lean";
        return NAMES
            .iter()
            .map(|name| Figure::missing(name, why))
            .collect();
    };
    let ratios = [
        encrypted_over_plain(all, generator),
        over_best_peer(all, generator),
        p99_over_best_peer(all, generator),
        over_qemu(all, generator),
    ];
    let weak = weakness(args, pins);
    let figure = |(index, ratio): (usize, Result<Ratio, &'static str>)| {
        let name = NAMES[index];
        let ratio = match ratio {
            Ok(ratio) => ratio,
            Err(why) => return Figure::missing(name, why),
        };
        let figure = match GOALS[index] {
            (goal, true) => Figure::at_least(name, ratio.value(), goal),
            (goal, false) => Figure::at_most(name, ratio.value(), goal),
        };
        let mut note = ratio.note(generator);
        if index == 0 {
            note = format!("{note}; {why}{}", near_ceiling(all, generator));
        }
        match weak {
            Some(weak) => figure.without_goal(format!("no goal: {weak}; {note}")),
            None => figure.noted(note),
        }
    };
    ratios.into_iter().enumerate().map(figure).collect()
}

/// The figures, in order, their goals, and whether more is better.
const NAMES: [&str; 4] = [
    "encrypted_over_plain_nbd_4k",
    "over_best_peer_4k_randread",
    "p99_over_best_peer_4k_randread",
    "over_qemu_1m_read",
];
const GOALS: [(f64, bool); 4] = [(0.93, true), (2.0, true), (0.5, false), (6.0, true)];

/// Why the goals are not for these options.
fn weakness(args: &PeersArgs, pins: Option<Pins>) -> Option<&'static str> {
    match () {
        () if args.rounds < ROUNDS_MIN => Some("too few rounds"),
        () if args.seconds < SECONDS_MIN => Some("turns are too short"),
        () if args.size < SIZE_MIN => Some("the disk is too small"),
        () if pins.is_none() => Some("servers and generators share processors"),
        () => None,
    }
}

fn near_ceiling(all: All<'_>, generator: Generator) -> &'static str {
    let speed = |server| all.speed(server, Load::RandRead, generator);
    match (speed(Server::CryptlinePlain), speed(Server::Null)) {
        (Some(plain), Some(null)) if plain > null * NEAR_CEILING => {
            "; the generator is near its own limit, which hides differences"
        }
        _ => "",
    }
}

fn encrypted_over_plain(all: All<'_>, generator: Generator) -> Result<Ratio, &'static str> {
    let speeds = |server| all.speeds(server, Load::RandRead, generator);
    match (speeds(Server::Cryptline), speeds(Server::CryptlinePlain)) {
        (Some(ours), Some(plain)) => Ok(Ratio::new(
            &ours,
            &plain,
            "4 KiB random reads, cryptline to cryptline-plain".into(),
        )),
        _ => Err("needs cryptline and cryptline-plain at 4k-randread-qd32"),
    }
}

/// The best of the encrypted peers by `better`, which must all be there.
fn best_peer(
    peers: &[Server],
    value: impl Fn(Server) -> Option<Vec<f64>>,
    better: fn(f64, f64) -> bool,
) -> Option<(Server, Vec<f64>)> {
    let mut best: Option<(Server, Vec<f64>)> = None;
    for &peer in peers {
        let values = value(peer)?;
        let wins = best
            .as_ref()
            .is_none_or(|(_, best)| better(median(&values), median(best)));
        if wins {
            best = Some((peer, values));
        }
    }
    best
}

fn over_best_peer(all: All<'_>, generator: Generator) -> Result<Ratio, &'static str> {
    let speeds = |server| all.speeds(server, Load::RandRead, generator);
    let best = best_peer(&Server::ENCRYPTED_PEERS, speeds, |new, best| new > best);
    match (speeds(Server::Cryptline), best) {
        (Some(ours), Some((peer, theirs))) => Ok(Ratio::new(
            &ours,
            &theirs,
            format!("4 KiB random reads, cryptline to {peer}, the fastest"),
        )),
        _ => Err("needs cryptline, qemu-nbd, qsd and nbdkit at 4k-randread-qd32"),
    }
}

fn p99_over_best_peer(all: All<'_>, generator: Generator) -> Result<Ratio, &'static str> {
    let p99 = |server| all.p99(server, Load::RandRead, generator);
    let best = best_peer(&Server::ENCRYPTED_PEERS, p99, |new, best| new < best);
    match (p99(Server::Cryptline), best) {
        (Some(ours), Some((peer, theirs))) => Ok(Ratio::new(
            &ours,
            &theirs,
            format!("p99 of 4 KiB random reads, cryptline to {peer}, the lowest"),
        )),
        _ => Err("needs cryptline, qemu-nbd, qsd and nbdkit at 4k-randread-qd32"),
    }
}

fn over_qemu(all: All<'_>, generator: Generator) -> Result<Ratio, &'static str> {
    let speeds = |server| all.speeds(server, Load::Read, generator);
    let qemu = [Server::QemuNbd, Server::Qsd];
    let best = best_peer(&qemu, speeds, |new, best| new > best);
    match (speeds(Server::Cryptline), best) {
        (Some(ours), Some((peer, theirs))) => Ok(Ratio::new(
            &ours,
            &theirs,
            format!("1 MiB reads, cryptline to {peer}, the faster of qemu's"),
        )),
        _ => Err("needs cryptline, qemu-nbd and qsd at 1m-read-qd4"),
    }
}
