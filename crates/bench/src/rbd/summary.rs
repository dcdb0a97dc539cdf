//! Table, plots and figures.

use cryptline::size;

use super::{LOADS, Measured, RAND_READ, READ, SECTOR_WRITE, WAYS, WRITE, Way, name, subjects};
use crate::plot::Plot;
use crate::report::{Enough, Figure, Ratios, Report, Row, Shape, median, spread, word};
use crate::table::{self, Table};

/// With less there are no goals.
const ENOUGH: Enough = Enough { rounds: 3, seconds: 0.3, size: 128 << 20 };

/// Fills the report.
pub fn fill(report: &mut Report, measured: &Measured<'_>) {
    report.medium.clone_from(&measured.medium);
    report.notes = notes(measured);
    report.tables = LOADS.map(|load| table(report, measured, load)).to_vec();
    report.plots = vec![plot(report)];
    report.figures = figures(report, measured);
}

fn notes(measured: &Measured<'_>) -> Vec<String> {
    vec![
        format!(
            "LUKS2, aes-xts-plain64, 512-bit key, 4096-byte sectors, {} of clear disk each. Before, librbd read what cryptline had written and the other way round, SHA-256 {}.",
            size::human(measured.args.size),
            measured.sha256
        ),
        "All three ways are one client in one process over the same connections of librbd, with rbd_cache off: \"CPU s/GiB\" is the processor time of the whole process. Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        "On a cluster of this machine, its daemons count as other programs, and they and the client take processors from each other.".into(),
        format!(
            "After the loads, all of each disk but the first quarter was discarded. `rbd du`, without what it said of the empty image, over that quarter: {}.",
            WAYS
                .iter()
                .zip(measured.used)
                .map(|(way, used)| format!("{} {used:.2}", word(way)))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    ]
}

fn table(report: &Report, measured: &Measured<'_>, load: Shape) -> Table {
    let heads = ["way", load.unit(), "of plain"].into_iter();
    let heads = heads.chain(Row::STEADINESS).chain(["CPU s/GiB"]);
    let mut table = Table::new(load.title(), heads);
    for way in WAYS {
        if let Some(row) = report.row(&name(load, way)) {
            let of_plain = report.ratio(&row.name, &name(load, Way::Plain));
            let cells = [Row::label(word(&way), [row]), row.speed(), table::ratio(of_plain)];
            let cells = cells.into_iter().chain(row.steadiness());
            table.push(cells.chain([format!("{:.3}", measured.cpu(load, way))]));
        }
    }
    table
}

fn plot(report: &Report) -> Plot {
    let values = subjects().filter(|(_, way)| *way != Way::Plain);
    let values = values.filter_map(|(load, way)| {
        let title = load.title();
        let title = title.split(',').next().unwrap_or_default().to_owned();
        let ratios = report.ratios(&name(load, way), &name(load, Way::Plain))?;
        Some((title, word(&way), ratios.plotted()))
    });
    Plot::of("Throughput over that of a plain image", ["load", "ratio"], values).columns()
}

fn figures(report: &Report, measured: &Measured<'_>) -> Vec<Figure> {
    let weak = ENOUGH.lacks(report, measured.args.size);
    let ratio = |name, load: Shape, to: Way, goal| {
        let [of, beside] = [Way::Ours, to].map(|way| self::name(load, way));
        let note = format!("{}; beside {}", load.title(), word(&to));
        let figure = report.figure(name, &of, &beside).at_least(goal);
        figure.noted(note).unless(weak)
    };
    let [plain, librbd] = [Way::Plain, Way::Librbd].map(|way| name(SECTOR_WRITE, way));
    let of_librbd = report.ratio(&librbd, &plain);
    let [_, used_by_librbd, used] = measured.used;
    vec![
        ratio("rbd_over_librbd_luks2_4k_qd32", RAND_READ, Way::Librbd, 1.0),
        ratio("rbd_over_librbd_luks2_1m_write", WRITE, Way::Librbd, 1.1),
        ratio("rbd_encrypted_over_raw_4k_qd32", RAND_READ, Way::Plain, 0.97),
        measured.added_cpu().unless(weak),
        ratio("rbd_512_write_over_plain", SECTOR_WRITE, Way::Plain, 0.95)
            .noted(format!("{}; librbd's own LUKS2: {of_librbd:.2}", SECTOR_WRITE.title())),
        Figure::new("rbd_used_over_live_after_fstrim", used)
            .at_most(1.1)
            .noted(format!("without the header; librbd's own LUKS2: {used_by_librbd:.2}"))
            .unless(weak),
    ]
}

impl Measured<'_> {
    /// Processor seconds for a GiB.
    fn cpu(&self, load: Shape, way: Way) -> f64 {
        median(self.turns(load, way))
    }

    fn turns(&self, load: Shape, way: Way) -> &[f64] {
        let at = subjects().position(|one| one == (load, way));
        at.map_or(&[], |at| &self.cpu[at])
    }

    /// What encryption adds of them.
    fn added(&self, load: Shape, way: Way) -> f64 {
        self.cpu(load, way) - self.cpu(load, Way::Plain)
    }

    /// Ours over librbd's.
    fn added_cpu(&self) -> Figure {
        // With 4 KiB the messages take so much time that the cipher's is lost in the noise.
        let load = READ;
        let [ours, theirs] = [Way::Ours, Way::Librbd].map(|way| self.added(load, way));
        let ratio = added_ratio(WAYS.map(|way| self.turns(load, way)));
        let others = [RAND_READ, WRITE].map(|load| {
            let [ours, theirs] = [Way::Ours, Way::Librbd].map(|way| self.added(load, way));
            format!("{} {ours:.3} and {theirs:.3}", load.title())
        });
        Figure::new("rbd_added_cpu_over_librbd_luks2", ratio)
            .at_most(0.6)
            .needs("what encryption adds is lost in the noise; measure for longer")
            .noted(format!(
                "{}: cryptline adds {ours:.3} s/GiB, librbd {theirs:.3}; {}",
                load.title(),
                others.join("; ")
            ))
    }
}

/// What the third way adds to the first over what the second adds: the median of the rounds. `None` where a difference
/// is not larger than the spread of the first, which may be all there is of it.
fn added_ratio(of_ways: [&[f64]; 3]) -> Option<f64> {
    let [none, theirs, ours] = of_ways;
    let added = |way: &[f64]| -> Vec<f64> {
        let pairs = way.iter().zip(none);
        pairs.map(|(way, none)| way - none).collect()
    };
    let (ours, theirs) = (added(ours), added(theirs));
    let noise = spread(none) * median(none);
    let is_more = |added: &[f64]| median(added) > noise;
    let is_known = is_more(&ours) && is_more(&theirs);
    is_known.then(|| Ratios::of(&ours, &theirs, []).median())
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
