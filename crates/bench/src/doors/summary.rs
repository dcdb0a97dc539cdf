//! The rows before they are measured, and afterwards tables, plots and figures.

use cryptline::size;

use super::servers::{Door, QSD, Server};
use super::turns::Turns;
use super::{Contest, HUGE, LARGE, ONE, SMALL};
use crate::images::Images;
use crate::plot::Plot;
use crate::report::{Enough, Figure, Latency, Report, Row, Shape, word};
use crate::runner::unique;
use crate::table::Table;

/// With less there are no goals.
const ENOUGH: Enough = Enough { rounds: 3, seconds: 0.1, size: 64 << 20 };

/// A row for each server of each contest.
pub fn rows(contests: &[Contest], images: &Images) -> Vec<Row> {
    let mut rows = Vec::new();
    for Contest { load, servers } in contests {
        rows.extend(servers.iter().map(|&server| Row {
            name: name(server, *load),
            front: server.door().front(),
            cipher: Some(server.cipher().into()),
            shape: *load,
            // Checked before anything is measured.
            sha256: Some(images.sha256.clone()),
            server: Some(server.program().into()),
            ..Row::default()
        }));
    }
    rows
}

fn name(server: Server, load: Shape) -> String {
    format!("{server}, {}", load.title())
}

/// Fills the report. `allocations` are calls for each request, where they could be counted.
pub fn fill(report: &mut Report, turns: &Turns<'_>, contests: &[Contest], allocations: &[(Door, Option<f64>)]) {
    let args = turns.args;
    report.notes = notes(turns);
    turns.setting.describe(report, "clients", args.no_pin);
    let left_out = turns.missing.iter();
    let left_out = left_out.filter(|(server, _)| args.fronts.contains(&server.door()));
    let left_out = left_out.map(|(_, why)| format!("{why}, so what needs it was not measured"));
    report.warnings.extend(unique(left_out.collect()));
    report.tables = contests.iter().map(|one| table(report, one)).collect();
    report.plots = contests.iter().map(|one| plot(report, one)).collect();
    let unpinned = turns.setting.pins.is_none();
    let unpinned = unpinned.then_some("no goal: servers and clients share processors");
    let weak = ENOUGH.lacks(report, args.size).or(unpinned);
    let is_wanted = |one: &&Comparison| {
        let other = args.fronts.contains(&Door::FuseUring);
        other || one.of.door() != Door::FuseUring
    };
    let figures = COMPARISONS.iter().filter(is_wanted);
    let figures = figures.map(|comparison| comparison.figure(report, turns).unless(weak));
    report.figures = figures.collect();
    report.figures.push(per_request(allocations));
}

fn notes(turns: &Turns<'_>) -> Vec<String> {
    let setting = &turns.setting;
    let mut notes = vec![
        format!(
            "cryptline serves LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-storage-daemon LUKS1 (512-byte sectors), which is all it has; cryptline-plain is the null cipher over the plain file. {} of clear disk, the same bytes for all, through the page cache.",
            size::human(turns.args.size)
        ),
        format!(
            "Before, every server gave all bytes that were written, SHA-256 {}. While it is measured, the first and last 8 bytes of each read are compared.",
            setting.images.sha256
        ),
        "One server runs at a time. Each has a turn in each round, and the order changes. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        "vhost-user: a driver of this program's own, one virtqueue in shared memory, event indices, asleep until it is called; as a virtual machine, without its exits. nbd: one connection, simple replies. fuse: io_uring and O_DIRECT on the file of the mount; fuse-uring: the same, and the server's requests come through io_uring too.".into(),
        "Allocations are counted in servers inside this process: calls that take memory, of all threads of the server, while 4096 reads of 4 KiB are served.".into(),
    ];
    let versions = setting.programs.versions(|name| name == QSD);
    notes.extend(versions.iter().map(|it| format!("Version: {it}.")));
    notes
}

fn table(report: &Report, contest: &Contest) -> Table {
    let heads = ["server", contest.load.unit()].into_iter();
    let heads = heads.chain(Row::STEADINESS).chain(["server busy"]);
    let mut table = Table::new(contest.load.title(), heads);
    for &server in &contest.servers {
        if let Some(row) = report.row(&name(server, contest.load)) {
            let cells = [Row::label(server.to_string(), [row]), row.speed()].into_iter();
            let cells = cells.chain(row.steadiness());
            table.push(cells.chain([row.share(|turn| turn.server_busy)]));
        }
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
    load: Shape,
    of: Server,
    to: Server,
    goal: Option<f64>,
}

impl Comparison {
    fn figure(&self, report: &Report, turns: &Turns<'_>) -> Figure {
        let Self { load, of, to, .. } = *self;
        let ratios = report.ratios(&name(of, load), &name(to, load));
        let whys = turns.missing.iter();
        let mut whys = whys.filter(|(server, _)| [of, to].contains(server));
        let why = whys.next().map_or("no round", |(_, why)| why.as_str());
        let spread = ratios.as_ref().map_or_else(String::new, |it| it.spread());
        let figure = Figure::of(self.name, ratios.as_ref())
            .needs(format!("could not be measured: {why}"))
            .noted(format!("{}, {of} to {to}; {spread}", load.title()));
        match self.goal {
            Some(goal) => figure.at_least(goal),
            None => figure,
        }
    }
}

const COMPARISONS: [Comparison; 9] = {
    use Door::{Fuse, FuseUring, Nbd, VhostUser};
    use Server::{Ours, Plain, Qsd};
    const fn at_least(goal: f64, name: &'static str, load: Shape, [of, to]: [Server; 2]) -> Comparison {
        Comparison { name, load, of, to, goal: Some(goal) }
    }
    const fn no_goal(name: &'static str, load: Shape) -> Comparison {
        Comparison { name, load, of: Ours(FuseUring), to: Ours(Fuse), goal: None }
    }
    let [ours, plain, qsd] = [Ours(VhostUser), Plain(VhostUser), Qsd(VhostUser)];
    let files = [Ours(Fuse), Qsd(Fuse)];
    [
        at_least(4.0, "vhost_over_qsd_luks_4k_qd32", SMALL, [ours, qsd]),
        at_least(6.0, "vhost_over_qsd_luks_128k", LARGE, [ours, qsd]),
        at_least(0.9, "vhost_encrypted_over_plain_4k_qd32", SMALL, [ours, plain]),
        at_least(0.8, "vhost_encrypted_over_plain_128k", LARGE, [ours, plain]),
        at_least(2.0, "vhost_over_nbd_4k_qd1", ONE, [ours, Ours(Nbd)]),
        at_least(3.0, "fuse_over_qsd_luks_4k_qd32", SMALL, files),
        at_least(5.0, "fuse_over_qsd_luks_1m", HUGE, files),
        no_goal("fuse_uring_over_fuse_4k_qd32", SMALL),
        no_goal("fuse_uring_over_fuse_1m", HUGE),
    ]
};

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
        .needs(
            "could not be measured: this system does not let a program count calls of a function (perf_event_open(2))",
        )
        .noted(format!("4 KiB random reads, 32 in flight; {}", each.join(", ")))
}
