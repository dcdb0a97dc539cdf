//! The rows before they are measured, and afterwards tables, plots and figures.

use cryptline::size;

use super::servers::{Door, Server};
use super::turns::Turns;
use super::{Contest, DoorsArgs, Load};
use crate::images::Images;
use crate::plot::Plot;
use crate::report::{Figure, Latency, Report, Row, word};
use crate::runner::unique;
use crate::table::{Table, megabytes, microseconds, percent};

/// Below these, turns are too few or too short for a goal.
const ROUNDS_MIN: u32 = 3;
const SECONDS_MIN: f64 = 0.1;
const SIZE_MIN: u64 = 64 << 20;

/// A row for each server of each contest.
pub fn rows(contests: &[Contest], images: &Images) -> Vec<Row> {
    let mut rows = Vec::new();
    for Contest { load, servers } in contests {
        rows.extend(servers.iter().map(|&server| Row {
            name: name(server, *load),
            front: server.door().front(),
            cipher: Some(server.cipher().into()),
            shape: load.shape(),
            // Checked before anything is measured.
            sha256: Some(images.sha256.clone()),
            server: Some(server.program().into()),
            ..Row::default()
        }));
    }
    rows
}

fn name(server: Server, load: Load) -> String {
    format!("{server}, {}", load.title())
}

/// Fills the report. `allocations` are calls for each request, where they could be counted.
pub fn fill(
    report: &mut Report,
    turns: &Turns<'_>,
    contests: &[Contest],
    allocations: &[(Door, Option<f64>)],
) {
    let args = turns.args;
    report.medium.clone_from(&turns.images.medium);
    report.commands.extend(turns.commands.borrow().clone());
    report.notes = notes(turns);
    let left_out = turns.missing.iter();
    let left_out = left_out.filter(|(server, _)| args.fronts.contains(&server.door()));
    let left_out = left_out.map(|(_, why)| format!("{why}, so what needs it was not measured"));
    report.warnings.extend(unique(left_out.collect()));
    if args.no_pin {
        report.warnings.push(
            "nothing was pinned, so servers and clients took processors from each other as it came"
                .into(),
        );
    }
    report.tables = contests.iter().map(|one| table(report, one)).collect();
    report.plots = contests.iter().map(|one| plot(report, one)).collect();
    let weak = weakness(args, turns.pins.is_some());
    let figures = COMPARISONS.iter();
    let figures = figures.map(|comparison| comparison.figure(report, turns).unless(weak));
    report.figures = figures.collect();
    report.figures.push(per_request(allocations));
}

fn notes(turns: &Turns<'_>) -> Vec<String> {
    let args = turns.args;
    let pinned = match turns.pins {
        Some(pins) => format!(
            "All servers run on processor {}, all clients on processor {}, and on no other.",
            pins.server, pins.client
        ),
        None => "Servers and clients run on any processor.".to_owned(),
    };
    let mut notes = vec![
        format!(
            "cryptline serves LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-storage-daemon LUKS1 (512-byte sectors), which is all it has; cryptline-plain is the null cipher over the plain file. {} of clear disk, the same bytes for all, through the page cache.",
            size::human(args.size)
        ),
        format!(
            "Before, every server gave all bytes that were written, SHA-256 {}. While it is measured, the first and last 8 bytes of each read are compared.",
            turns.images.sha256
        ),
        pinned,
        "One server runs at a time. Each has a turn in each round, and the order changes. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        "vhost-user: a driver of this program's own, one virtqueue in shared memory, event indices, asleep until it is called; as a virtual machine, without its exits. nbd: one connection, simple replies. fuse: io_uring and O_DIRECT on the file of the mount.".into(),
        "Allocations are counted in servers inside this process: calls that take memory, of all threads of the server, while 4096 reads of 4 KiB are served.".into(),
    ];
    notes.extend(turns.programs.version().map(|it| format!("Version: {it}.")));
    notes
}

fn table(report: &Report, contest: &Contest) -> Table {
    let unit = if contest.load.is_small() {
        "thousand/s"
    } else {
        "MB/s"
    };
    let heads = ["server", unit, "spread", "p50 µs", "p99 µs", "server busy"];
    let mut table = Table::new(contest.load.title(), heads);
    for &server in &contest.servers {
        let Some(row) = report.row(&name(server, contest.load)) else {
            continue;
        };
        let latency = row.latency.unwrap_or_default();
        let busy = row.turns.iter().filter_map(|turn| turn.server_busy);
        let busy: Vec<f64> = busy.collect();
        table.push([
            server.to_string(),
            if contest.load.is_small() {
                format!("{:.1}", row.iops() / 1000.0)
            } else {
                megabytes(row.bytes_per_second)
            },
            percent(row.spread),
            microseconds(latency.p50_us),
            microseconds(latency.p99_us),
            percent(crate::report::median(&busy)),
        ]);
    }
    table
}

fn plot(report: &Report, contest: &Contest) -> Plot {
    let row = |&server: &Server| {
        let row = report.row(&name(server, contest.load))?;
        Some((server.to_string(), row))
    };
    let title = format!("Latency of {}", contest.load.title());
    Latency::plot(title, contest.servers.iter().filter_map(row))
}

/// One server's speed to another's under a load.
struct Comparison {
    name: &'static str,
    load: Load,
    of: Server,
    to: Server,
    goal: f64,
}

impl Comparison {
    fn figure(&self, report: &Report, turns: &Turns<'_>) -> Figure {
        let Self { load, of, to, .. } = *self;
        let ratio = report.ratio(&name(of, load), &name(to, load));
        let whys = turns.missing.iter();
        let mut whys = whys.filter(|(server, _)| [of, to].contains(server));
        let why = whys.next().map(|(_, why)| why.as_str());
        let samples = |server| report.row(&name(server, load)).map(|row| &row.samples);
        let ratios: Vec<f64> = match (samples(of), samples(to)) {
            (Some(of), Some(to)) => of.iter().zip(to).map(|(of, to)| of / to).collect(),
            _ => Vec::new(),
        };
        let note = format!(
            "{}, {of} to {to}; rounds from {:.2} to {:.2}",
            load.title(),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max)
        );
        Figure::new(self.name, ratio)
            .at_least(self.goal)
            .needs(format!(
                "could not be measured: {}",
                why.unwrap_or("no round")
            ))
            .noted(note)
    }
}

const COMPARISONS: [Comparison; 7] = [
    Comparison {
        name: "vhost_over_qsd_luks_4k_qd32",
        load: Load::Small,
        of: Server::Ours(Door::VhostUser),
        to: Server::Qsd(Door::VhostUser),
        goal: 4.0,
    },
    Comparison {
        name: "vhost_over_qsd_luks_128k",
        load: Load::Large,
        of: Server::Ours(Door::VhostUser),
        to: Server::Qsd(Door::VhostUser),
        goal: 6.0,
    },
    Comparison {
        name: "vhost_encrypted_over_plain_4k_qd32",
        load: Load::Small,
        of: Server::Ours(Door::VhostUser),
        to: Server::Plain(Door::VhostUser),
        goal: 0.9,
    },
    Comparison {
        name: "vhost_encrypted_over_plain_128k",
        load: Load::Large,
        of: Server::Ours(Door::VhostUser),
        to: Server::Plain(Door::VhostUser),
        goal: 0.8,
    },
    Comparison {
        name: "vhost_over_nbd_4k_qd1",
        load: Load::One,
        of: Server::Ours(Door::VhostUser),
        to: Server::Ours(Door::Nbd),
        goal: 2.0,
    },
    Comparison {
        name: "fuse_over_qsd_luks_4k_qd32",
        load: Load::Small,
        of: Server::Ours(Door::Fuse),
        to: Server::Qsd(Door::Fuse),
        goal: 3.0,
    },
    Comparison {
        name: "fuse_over_qsd_luks_1m",
        load: Load::Huge,
        of: Server::Ours(Door::Fuse),
        to: Server::Qsd(Door::Fuse),
        goal: 5.0,
    },
];

/// The most that any front needs; none where one could not be counted.
fn per_request(allocations: &[(Door, Option<f64>)]) -> Figure {
    let all: Option<Vec<f64>> = allocations.iter().map(|(_, calls)| *calls).collect();
    let most = all.and_then(|all| all.into_iter().reduce(f64::max));
    let each = allocations.iter().filter_map(|(door, calls)| {
        let calls = (*calls)?;
        Some(format!("{} {calls:.4}", word(door)))
    });
    let each: Vec<String> = each.collect();
    Figure::new("allocations_per_io", most)
        .at_most(0.0)
        .in_units("allocations")
        .needs("could not be measured: this system does not let a program count calls of a function (perf_event_open(2))")
        .noted(format!("4 KiB random reads, 32 in flight; {}", each.join(", ")))
}

/// Why the goals are not for these options.
fn weakness(args: &DoorsArgs, is_pinned: bool) -> Option<&'static str> {
    let reasons = [
        (args.rounds < ROUNDS_MIN, "no goal: too few rounds"),
        (args.seconds < SECONDS_MIN, "no goal: turns are too short"),
        (args.size < SIZE_MIN, "no goal: the disk is too small"),
        (!is_pinned, "no goal: servers and clients share processors"),
    ];
    let mut holds = reasons.into_iter().filter(|(holds, _)| *holds);
    holds.next().map(|(_, reason)| reason)
}
