//! Table and figures.

use cryptline::size;

use super::Bench;
use super::cuts::Cuts;
use super::ways::Way;
use crate::report::{Enough, Figure, Report, Row};
use crate::table::{Table, megabytes, percent};

/// With less there are no goals.
const ENOUGH: Enough = Enough { rounds: 3, seconds: 0.0, size: 512 << 20 };

/// Fills the report.
pub fn fill(report: &mut Report, bench: &Bench<'_>, cuts: Cuts) {
    let args = bench.args;
    report.notes = notes(bench);
    bench.setting.describe(report, "programs", false);
    let missing = |way: Way| way.missing(bench.setting.programs);
    let warnings = Way::ALL.into_iter().filter_map(missing);
    let warnings = warnings.map(|why| format!("{why}, so what needs it was not measured"));
    report.warnings.extend(warnings);
    report.tables = vec![table(report)];
    let weak = ENOUGH.lacks(report, args.size);
    let why = |ways: [Way; 2]| {
        let why = ways.into_iter().find_map(missing);
        format!("could not be measured: {}", why.as_deref().unwrap_or("no round"))
    };
    let ratio = |name, of: Way, to: Way, goal| {
        let figure = report.figure(name, of.title(), to.title()).at_least(goal);
        figure.needs(why([to, of])).unless(weak)
    };
    let cpu = bench.cpu_ratios(report, Way::Create, Way::Served);
    let cpu = Figure::of("create_from_cpu_over_nbdcopy_serve", cpu.as_ref());
    let cpu = cpu.at_most(0.7).needs(why([Way::Served, Way::Create]));
    let seconds = report.row(Way::Sparse.title()).map(|row| {
        let rate = row.bytes_per_second.max(1.0);
        bench.bytes(Way::Sparse) / rate
    });
    let sparse = Figure::new("sparse_copy_seconds", seconds);
    #[expect(clippy::cast_precision_loss, reason = "a size, for people")]
    let mib = bench.sparse.get() as f64 / 1048576.0;
    let sparse_size = Figure::new("sparse_copy_mib", mib).in_units("MiB");
    report.figures = vec![
        ratio("create_from_over_cp", Way::Create, Way::Cp, 0.9),
        ratio("create_from_over_nbdcopy_serve", Way::Create, Way::Served, 1.0),
        ratio("create_from_over_qemu_img_luks", Way::Create, Way::Qemu, 4.0),
        ratio("create_from_over_cryptsetup_reencrypt", Way::Create, Way::Reencrypt, 2.5)
            .noted("cryptsetup encrypts in place and keeps recovery points, which is more than a copy does"),
        ratio("copy_out_over_cp", Way::CopyOut, Way::Cp, 0.9),
        cpu.unless(weak),
        sparse.in_units("seconds").lower(),
        sparse_size.at_most(110.0).unless(weak),
        Figure::new("header_cut_points", cuts.rate())
            .at_least(1.0)
            .noted(format!("{} of {} survived", cuts.survived, cuts.tried)),
    ];
}

fn notes(bench: &Bench<'_>) -> Vec<String> {
    vec![
        format!(
            "{} of random bytes, which were written just before and may be in the page cache. Each turn makes a new file and ends when that is durable: fsync is included, and so is the start of the program.",
            size::human(bench.args.size)
        ),
        "cryptline writes LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-img LUKS1 (512-byte sectors), which is all it has. Key slots cost next to nothing. nbdcopy writes into a new, sparse file whose server runs already. cryptsetup changes a copy that was made before.".into(),
        "Header cut points: changes of key slots, UUID, label and priority in memory, cut off after each write, with any of the sectors since the last flush. One is survived where the old passphrases open the volume, or the new ones.".into(),
        "Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        format!(
            "Before, what cryptline had made was compared with the source, SHA-256 {}.",
            bench.setting.images.sha256
        ),
    ]
}

fn table(report: &Report) -> Table {
    let mut table = Table::new("Images", ["way", "MB/s", "spread"]);
    for row in &report.rows {
        table.push([Row::label(&row.name, [row]), megabytes(row.bytes_per_second), percent(row.spread)]);
    }
    table
}
