//! The rows before they are measured, and afterwards tables, plots and figures.

use cryptline::size;

use super::PeersArgs;
use super::comparisons::{COMPARISONS, Comparison};
use super::generators::{Generator, Load};
use super::servers::{Server, needs};
use super::turns::Turns;
use crate::images::Images;
use crate::plot::Plot;
use crate::report::{Enough, Figure, Front, Latency, Ratios, Report, Row};
use crate::table::Table;

/// With less there are no goals.
const ENOUGH: Enough = Enough { rounds: 3, seconds: 0.1, size: 64 << 20 };
/// Where a server reaches this share of what the generator can do, the generator is the limit.
const NEAR_CEILING: f64 = 0.85;

/// A row for each generator under each server under each load.
pub fn rows(args: &PeersArgs, images: &Images) -> Vec<Row> {
    let mut rows = Vec::new();
    for &load in &args.jobs {
        for &server in &args.servers {
            rows.extend(args.generators.iter().map(|&generator| Row {
                name: name(server, load, generator),
                front: Front::Nbd,
                cipher: server.is_encrypted().then(|| "aes-xts-plain64".into()),
                dispatch: args.dispatch.clone().filter(|_| server.is_ours()),
                shape: load.shape(generator.streams(args.connections)),
                // Checked before anything is measured.
                sha256: (!server.is_null()).then(|| images.sha256.clone()),
                server: Some(server.to_string()),
                generator: Some(generator.to_string()),
                ..Row::default()
            }));
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
    report.notes = notes(turns);
    turns.setting.describe(report, "generators", args.no_pin);
    let unpinned = turns.setting.pins.is_none();
    let unpinned = unpinned.then_some("no goal: servers and generators share processors");
    let weak = ENOUGH.lacks(report, args.size).or(unpinned);
    let all = All { report, args };
    let (generator, why) = all.leaner();
    let tables = args.jobs.iter().map(|&load| all.table(load)).collect();
    let throughput = |&load| all.throughput(load, generator);
    let mut plots: Vec<Plot> = args.jobs.iter().map(throughput).collect();
    if args.jobs.contains(&Load::RandRead) {
        plots.push(all.latencies(generator));
    }
    let figure = |comparison| all.figure(comparison, generator, &why, weak);
    let figures = COMPARISONS.iter().map(figure).collect();
    (report.tables, report.plots, report.figures) = (tables, plots, figures);
}

fn notes(turns: &Turns<'_>) -> Vec<String> {
    let args = turns.args;
    let mut notes = vec![
        format!(
            "LUKS1, aes-xts-plain64, 512-bit key, 512-byte sectors, {} of clear disk; the plain servers have the same clear text in a file of its own. All go through the page cache.",
            size::human(args.size)
        ),
        format!(
            "Before, each server gave the SHA-256 of what was written, {}, and the right data to random reads with 32 in flight on two connections at once. After the last write all encrypted servers read the same, and so did all plain ones.",
            turns.setting.images.sha256
        ),
        "One server runs at a time. Each has a turn at each load in each round, and the order changes. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        format!(
            "fio uses its nbd engine (libnbd, structured replies, one connection). lean is a client of this program, one thread and one connection, simple replies; lean-many is {} of these at once, each with the same number of requests in flight.",
            args.connections
        ),
        "null answers at once with zeros from this process, nbdkit-null is nbdkit's null plugin: \"of null\" is the share of what the same generator reaches there. Near 100 % the generator and the socket are measured, not the server.".into(),
        "cryptline-plain is the null cipher over the plain file: cryptline serves no file as it is, and this touches no byte more.".into(),
    ];
    if let Some(pins) = turns.setting.pins
        && args.servers.iter().any(|server| server.lies_over_another())
    {
        let whose = if pins.below == pins.client { ", that of the clients, since there is no third one" } else { "" };
        notes.push(format!("The servers below the -over-nbd ones run on processor {}{whose}.", pins.below));
    }
    if !args.servers.iter().all(|&server| server.is_null()) {
        let is_needed = |name: &str| needs(&args.servers, &args.generators, name);
        let versions = turns.setting.programs.versions(is_needed);
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
        let order = [Generator::Fio, Generator::Lean, Generator::LeanMany];
        let asked: Vec<_> = order.into_iter().filter(|one| self.args.generators.contains(one)).collect();
        let (fio, lean) = match asked[..] {
            [fio @ Generator::Fio, lean @ Generator::Lean, ..] => (fio, lean),
            _ => {
                let only = asked.first().copied().unwrap_or(Generator::LeanMany);
                return (only, "no other was asked for".into());
            }
        };
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

    /// A line for each server by each generator.
    fn table(self, load: Load) -> Table {
        let heads = ["server", "serves", "generator", load.shape(1).unit(), "of null"];
        let heads = heads.into_iter().chain(Row::STEADINESS);
        let heads = heads.chain(["client busy", "server busy"]);
        let mut table = Table::new(load.title(), heads);
        for &server in &self.args.servers {
            for &generator in &self.args.generators {
                let Some(row) = self.row(server, load, generator) else {
                    continue;
                };
                let null = self.row(Server::Null, load, generator);
                let of_null = null.map_or("-".into(), |null| format!("{:.0} %", row.over(null) * 100.0));
                let cells = [
                    Row::label(server.to_string(), [row]),
                    server.spec().serves.to_owned(),
                    generator.to_string(),
                    row.speed(),
                    of_null,
                ];
                let cells = cells.into_iter().chain(row.steadiness());
                table.push(cells.chain([row.share(|turn| turn.client_busy), row.share(|turn| turn.server_busy)]));
            }
        }
        table
    }

    /// Encrypted beside plain, by one generator: ten servers by three generators are for the table.
    fn throughput(self, load: Load, generator: Generator) -> Plot {
        let (label, unit) =
            if load.shape(1).is_small() { ("thousand requests a second", 4096.0 * 1000.0) } else { ("GB/s", 1e9) };
        let values = self.args.servers.iter().filter_map(|&server| {
            let kind = if server.is_encrypted() { "encrypted" } else { "plain" };
            let row = self.row(server, load, generator)?;
            Some((server.label(), kind, row.plotted(|speed| speed / unit)))
        });
        let title = format!("{}, by {generator}", load.title());
        Plot::of(title, ["server", label], values).columns()
    }

    /// Percentiles of every server with an image.
    fn latencies(self, generator: Generator) -> Plot {
        let servers = self.args.servers.iter().filter(|server| !server.is_null());
        let row = |&server: &Server| Some((server.to_string(), self.row(server, Load::RandRead, generator)?));
        let title = format!("Latency of 4 KiB random reads, 32 in flight, by {generator}");
        Latency::plot(title, servers.filter_map(row))
    }

    fn figure(self, comparison: &Comparison, generator: Generator, why: &str, weak: Option<&str>) -> Figure {
        let others: Vec<String> = comparison.others.iter().map(Server::to_string).collect();
        let needs = match generator {
            Generator::LeanMany => "needs a generator with one connection: fio or lean".to_owned(),
            _ => format!("needs {}, {} at {}", comparison.ours, others.join(", "), comparison.load),
        };
        let compared = self.compare(comparison, generator).filter(|_| generator != Generator::LeanMany);
        let ratios = compared.as_ref().map(|(_, ratios)| ratios);
        let figure = Figure::of(comparison.name, ratios);
        let figure = match comparison.goal {
            Some(goal) if comparison.of.lower_is_better() => figure.at_most(goal),
            Some(goal) => figure.at_least(goal),
            None if comparison.of.lower_is_better() => figure.lower(),
            None => figure,
        };
        let Some((best, ratios)) = compared else {
            return figure.needs(needs);
        };
        let of_plain = if comparison.others == [Server::CryptlinePlain] {
            format!("; {why}{}", self.near_ceiling(generator))
        } else {
            String::new()
        };
        let note = format!(
            "{}{}, {} to {best}{}; by {generator}; {}{of_plain}",
            comparison.of.prefix(),
            comparison.load.title(),
            comparison.ours,
            comparison.best,
            ratios.spread()
        );
        figure.noted(note).unless(weak)
    }

    /// The best of the others, and the ratios to it.
    fn compare(self, comparison: &Comparison, generator: Generator) -> Option<(Server, Ratios)> {
        let Comparison { of, load, .. } = *comparison;
        let ours = self.row(comparison.ours, load, generator)?;
        let others = comparison.others.iter();
        let others = others.map(|&server| Some((server, self.row(server, load, generator)?)));
        let others: Vec<_> = others.collect::<Option<_>>()?;
        let (best, theirs) = others.into_iter().max_by(|(_, one), (_, other)| {
            let order = one.middle(of).total_cmp(&other.middle(of));
            if of.lower_is_better() { order.reverse() } else { order }
        })?;
        let ratios = ours.beside(theirs, of);
        ratios.median().is_finite().then_some((best, ratios))
    }

    fn near_ceiling(self, generator: Generator) -> &'static str {
        let speed = |server| self.speed(server, Load::RandRead, generator);
        match (speed(Server::CryptlinePlain), speed(Server::Null)) {
            (Some(plain), Some(null)) if plain > null * NEAR_CEILING => {
                "; the generator is near its own limit, which hides differences"
            }
            _ => "",
        }
    }
}
