//! The rows before they are measured, and afterwards tables, plots and figures.

use cryptline::size;

use super::PeersArgs;
use super::generators::{Generator, Load};
use super::image::Images;
use super::servers::Server;
use super::turns::Turns;
use crate::contents::hex;
use crate::plot::Plot;
use crate::report::{Figure, Front, Report, Row, Sample, median};
use crate::table::{Table, megabytes, microseconds};

/// Below these, turns are too few or too short for a goal.
const ROUNDS_MIN: u32 = 3;
const SECONDS_MIN: f64 = 0.1;
const SIZE_MIN: u64 = 64 << 20;
/// Where a server reaches this share of what the generator can do, the generator is the limit.
const NEAR_CEILING: f64 = 0.85;

/// A row for each generator under each server under each load.
pub fn rows(args: &PeersArgs, images: &Images) -> Vec<Row> {
    let mut rows = Vec::new();
    for &load in &args.jobs {
        for &server in &args.servers {
            for &generator in &args.generators {
                rows.push(Row {
                    name: name(server, load, generator),
                    front: Front::Nbd,
                    cipher: server.is_encrypted().then(|| "aes-xts-plain64".into()),
                    dispatch: args.dispatch.clone().filter(|_| server.is_ours()),
                    shape: load.shape(generator.streams(args.connections)),
                    // Checked before anything is measured.
                    sha256: (!server.is_null()).then(|| hex(&images.sha256)),
                    server: Some(server.to_string()),
                    generator: Some(generator.to_string()),
                    ..Row::default()
                });
            }
        }
    }
    rows
}

fn name(server: Server, load: Load, generator: Generator) -> String {
    format!("{server}, {load}, {generator}")
}

/// Fills the report.
pub fn fill(report: &mut Report, turns: &Turns<'_>) {
    let args = turns.args;
    report.medium.clone_from(&turns.images.medium);
    report
        .commands
        .extend(turns.commands.borrow().iter().cloned());
    report.notes = notes(turns);
    let all = All { report, args };
    let (generator, why) = all.leaner();
    let tables = args.jobs.iter().map(|&load| table(load, all)).collect();
    let throughputs = args
        .jobs
        .iter()
        .map(|&load| throughput(load, all, generator));
    let mut plots: Vec<Plot> = throughputs.collect();
    if args.jobs.contains(&Load::RandRead) {
        plots.push(latencies(all, generator));
    }
    let figures = figures(all, generator, &why, turns.pins.is_some());
    (report.tables, report.plots, report.figures) = (tables, plots, figures);
    if args.no_pin {
        report.warnings.push(
            "nothing was pinned, so servers and generators took processors from each other as it came"
                .into(),
        );
    }
}

fn notes(turns: &Turns<'_>) -> Vec<String> {
    let args = turns.args;
    let pinned = match turns.pins {
        Some(pins) => format!(
            "All servers run on processor {}, all generators on processor {}, and on no other.",
            pins.server, pins.client
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
            hex(&turns.images.sha256)
        ),
        pinned,
        "One server runs at a time. Each has a turn at each load in each round, and the order changes. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        format!(
            "fio uses its nbd engine (libnbd, structured replies, one connection). lean is a client of this program, one thread and one connection, simple replies; lean-many is {} of these at once, each with the same number of requests in flight.",
            args.connections
        ),
        "null answers at once with zeros from this process, nbdkit-null is nbdkit's null plugin: \"of null\" is the share of what the same generator reaches there. Near 100 % the generator and the socket are measured, not the server.".into(),
        "cryptline-plain is the null cipher over the plain file: cryptline serves no file as it is, and this touches no byte more.".into(),
    ];
    if !args.servers.iter().all(|&server| server.is_null()) {
        let versions = turns.programs.versions();
        notes.push(format!("Versions: {}.", versions.join("; ")));
    }
    notes
}

/// All that was measured.
#[derive(Clone, Copy)]
struct All<'a> {
    report: &'a Report,
    args: &'a PeersArgs,
}

impl<'a> All<'a> {
    fn row(self, server: Server, load: Load, generator: Generator) -> Option<&'a Row> {
        self.report.row(&name(server, load, generator))
    }

    fn speed(self, server: Server, load: Load, generator: Generator) -> Option<f64> {
        let row = self.row(server, load, generator)?;
        Some(row.bytes_per_second)
    }

    /// The generator that the plots and figures are by, and why: the one with one connection that
    /// reaches more with the null server, because it hides less.
    fn leaner(self) -> (Generator, String) {
        let has = |generator| self.args.generators.contains(&generator);
        let (fio, lean) = (Generator::Fio, Generator::Lean);
        if !has(fio) || !has(lean) {
            let only = if has(fio) {
                fio
            } else if has(lean) {
                lean
            } else {
                Generator::LeanMany
            };
            return (only, "no other was asked for".into());
        }
        let ceiling = |generator| self.speed(Server::Null, Load::RandRead, generator);
        let (Some(of_fio), Some(of_lean)) = (ceiling(fio), ceiling(lean)) else {
            let why = "the null server was left out, so which is leaner was not measured";
            return (lean, why.into());
        };
        let thousands = |speed: f64| speed / 4096.0 / 1000.0;
        let why = format!(
            "with the null server lean reaches {:.0} and fio {:.0} thousand requests a second",
            thousands(of_lean),
            thousands(of_fio)
        );
        (if of_lean >= of_fio { lean } else { fio }, why)
    }
}

fn is_small(load: Load) -> bool {
    load.shape(1).block < 1 << 20
}

fn table(load: Load, all: All<'_>) -> Table {
    let mut columns = vec!["server".to_owned(), "serves".to_owned()];
    for generator in &all.args.generators {
        let unit = if is_small(load) { "kIOPS" } else { "MB/s" };
        columns.push(format!("{generator} {unit}"));
        columns.extend(["of null", "p50 µs", "p99 µs"].map(str::to_owned));
    }
    columns.extend(["client busy", "server busy"].map(str::to_owned));
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(load.title(), &names);
    for &server in &all.args.servers {
        let mut cells = vec![server.to_string(), server.serves().to_owned()];
        for &generator in &all.args.generators {
            let row = all.row(server, load, generator);
            let null = all.speed(Server::Null, load, generator);
            cells.extend(speed_cells(row, null));
        }
        let lean = all.row(server, load, Generator::Lean);
        let busy = |of: fn(&Sample) -> Option<f64>| {
            let known = lean.iter().flat_map(|row| row.turns.iter().filter_map(of));
            let known: Vec<f64> = known.collect();
            known
                .first()
                .map_or("-".into(), |_| percent(median(&known)))
        };
        cells.push(busy(|turn| turn.client_busy));
        cells.push(busy(|turn| turn.server_busy));
        table.push(cells);
    }
    table
}

fn speed_cells(row: Option<&Row>, null: Option<f64>) -> [String; 4] {
    let Some(row) = row else {
        return ["-"; 4].map(str::to_owned);
    };
    let latency = row.latency.unwrap_or_default();
    [
        if row.shape.block < 1 << 20 {
            format!("{:.1}", row.iops() / 1000.0)
        } else {
            megabytes(row.bytes_per_second)
        },
        null.map_or("-".into(), |null| percent(row.bytes_per_second / null)),
        microseconds(latency.p50_us),
        microseconds(latency.p99_us),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A program, as it serves the encrypted disk and the plain one.
type Program = (&'static str, [Option<Server>; 2]);
const PROGRAMS: [Program; 6] = [
    (
        "cryptline",
        [Some(Server::Cryptline), Some(Server::CryptlinePlain)],
    ),
    (
        "qemu-nbd",
        [Some(Server::QemuNbd), Some(Server::QemuNbdPlain)],
    ),
    ("qsd", [Some(Server::Qsd), Some(Server::QsdPlain)]),
    ("nbdkit", [Some(Server::Nbdkit), Some(Server::NbdkitPlain)]),
    ("nbdkit-null", [None, Some(Server::NbdkitNull)]),
    ("null", [None, Some(Server::Null)]),
];

/// Encrypted beside plain, by one generator: ten servers by three generators are for the table.
fn throughput(load: Load, all: All<'_>, generator: Generator) -> Plot {
    let (label, unit) = if is_small(load) {
        ("thousand requests a second", 4096.0 * 1000.0)
    } else {
        ("GB/s", 1e9)
    };
    let is_measured = |(_, servers): &Program| {
        let mut servers = servers.iter().flatten();
        servers.any(|server| all.args.servers.contains(server))
    };
    let programs = PROGRAMS.into_iter().filter(is_measured);
    Plot::of(
        format!("{}, by {generator}", load.title()),
        ["server", label],
        programs.map(|(name, servers)| (name.to_owned(), servers)),
        [("encrypted".to_owned(), 0), ("plain".to_owned(), 1)],
        |&which, servers| Some(all.speed(servers[which]?, load, generator)? / unit),
    )
    .columns()
}

/// Percentiles of every server with an image.
fn latencies(all: All<'_>, generator: Generator) -> Plot {
    let servers = all.args.servers.iter().filter(|server| !server.is_null());
    Plot::percentiles(
        format!("Latency of 4 KiB random reads, 32 in flight, by {generator}"),
        servers.filter_map(|&server| {
            let row = all.row(server, Load::RandRead, generator)?;
            Some((server.to_string(), row))
        }),
    )
}

/// A number of ours to the same of the best of others.
struct Comparison {
    name: &'static str,
    load: Load,
    /// What is compared, as a note says it.
    what: &'static str,
    /// All of them must be there.
    others: &'static [Server],
    /// What the best of several is.
    best: &'static str,
    goal: f64,
    /// Latencies: the lowest is the best. Otherwise speeds, the highest.
    p99: bool,
}

const COMPARISONS: [Comparison; 4] = [
    Comparison {
        name: "encrypted_over_plain_nbd_4k",
        load: Load::RandRead,
        what: "4 KiB random reads",
        others: &[Server::CryptlinePlain],
        best: "",
        goal: 0.93,
        p99: false,
    },
    Comparison {
        name: "over_best_peer_4k_randread",
        load: Load::RandRead,
        what: "4 KiB random reads",
        others: &[Server::QemuNbd, Server::Qsd, Server::Nbdkit],
        best: ", the fastest",
        goal: 2.0,
        p99: false,
    },
    Comparison {
        name: "p99_over_best_peer_4k_randread",
        load: Load::RandRead,
        what: "p99 of 4 KiB random reads",
        others: &[Server::QemuNbd, Server::Qsd, Server::Nbdkit],
        best: ", the lowest",
        goal: 0.5,
        p99: true,
    },
    Comparison {
        name: "over_qemu_1m_read",
        load: Load::Read,
        what: "1 MiB reads",
        others: &[Server::QemuNbd, Server::Qsd],
        best: ", the faster of qemu's",
        goal: 6.0,
        p99: false,
    },
];

fn figures(all: All<'_>, generator: Generator, why: &str, is_pinned: bool) -> Vec<Figure> {
    let weak = weakness(all.args, is_pinned);
    let figure = |comparison: &Comparison| {
        let name = comparison.name;
        if generator == Generator::LeanMany {
            return Figure::missing(name, "needs a generator with one connection: fio or lean");
        }
        let Some((best, ratios)) = comparison.ratios(all, generator) else {
            return Figure::missing(name, comparison.needs());
        };
        let figure = if comparison.p99 {
            Figure::at_most(name, median(&ratios), comparison.goal)
        } else {
            Figure::at_least(name, median(&ratios), comparison.goal)
        };
        let mut note = format!(
            "{}, cryptline to {best}{}; by {generator}; rounds from {:.2} to {:.2}",
            comparison.what,
            comparison.best,
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max)
        );
        if comparison.others == [Server::CryptlinePlain] {
            note = format!("{note}; {why}{}", near_ceiling(all, generator));
        }
        match weak {
            Some(weak) => figure.without_goal(format!("no goal: {weak}; {note}")),
            None => figure.noted(note),
        }
    };
    COMPARISONS.iter().map(figure).collect()
}

impl Comparison {
    /// The best of the others, and the ratio to it in every round.
    fn ratios(&self, all: All<'_>, generator: Generator) -> Option<(Server, Vec<f64>)> {
        let values = |server| -> Option<Vec<f64>> {
            let row = all.row(server, self.load, generator)?;
            let value = |turn: &Sample| {
                if self.p99 {
                    turn.latency.map_or(f64::NAN, |latency| latency.p99_us)
                } else {
                    turn.bytes_per_second
                }
            };
            Some(row.turns.iter().map(value).collect())
        };
        let ours = values(Server::Cryptline)?;
        let others = self.others.iter();
        let others = others.map(|&server| Some((server, values(server)?)));
        let others: Vec<_> = others.collect::<Option<_>>()?;
        let (best, theirs) = others.into_iter().max_by(|(_, one), (_, other)| {
            let order = median(one).total_cmp(&median(other));
            if self.p99 { order.reverse() } else { order }
        })?;
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
        Some((best, ratios.collect()))
    }

    fn needs(&self) -> String {
        let others: Vec<String> = self.others.iter().map(Server::to_string).collect();
        format!("needs cryptline, {} at {}", others.join(", "), self.load)
    }
}

/// Why the goals are not for these options.
fn weakness(args: &PeersArgs, is_pinned: bool) -> Option<&'static str> {
    let reasons = [
        (args.rounds < ROUNDS_MIN, "too few rounds"),
        (args.seconds < SECONDS_MIN, "turns are too short"),
        (args.size < SIZE_MIN, "the disk is too small"),
        (!is_pinned, "servers and generators share processors"),
    ];
    let mut holds = reasons.into_iter().filter(|(holds, _)| *holds);
    holds.next().map(|(_, reason)| reason)
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
