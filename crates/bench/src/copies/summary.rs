//! Table and figures.

use cryptline::size;

use super::Bench;
use super::ways::Way;
use crate::report::{Figure, Report};
use crate::table::{Table, megabytes, percent};

/// Below these, turns are too few or too short for a goal.
const ROUNDS_MIN: u32 = 3;
const SIZE_MIN: u64 = 512 << 20;

/// Fills the report.
pub fn fill(report: &mut Report, bench: &Bench<'_>) {
    let args = bench.args;
    report.medium.clone_from(&bench.images.medium);
    report.commands.extend(bench.commands.borrow().clone());
    report.notes = notes(bench);
    for way in Way::ALL {
        if let Some(why) = bench.programs.missing(way) {
            let warning = format!("{why}, so what needs it was not measured");
            report.warnings.push(warning);
        }
    }
    report.tables = vec![table(report)];
    let weak = (args.rounds < ROUNDS_MIN || args.size < SIZE_MIN)
        .then_some("measured with too little for a goal");
    let ratio = |name, of: Way, to: Way, goal| {
        let figure = Figure::new(name, report.ratio(of.title(), to.title())).at_least(goal);
        let missing = [to, of].map(|way| bench.programs.missing(way));
        let why = missing.into_iter().flatten().next().unwrap_or("no round");
        figure
            .needs(format!("could not be measured: {why}"))
            .unless(weak)
    };
    let seconds = report.row(Way::Sparse.title()).map(|row| {
        let rate = row.bytes_per_second.max(1.0);
        bench.bytes(Way::Sparse) / rate
    });
    let sparse = Figure::new("sparse_copy_seconds", seconds)
        .in_units("seconds")
        .lower();
    #[expect(clippy::cast_precision_loss, reason = "a size, for people")]
    let sparse_size = Figure::new("sparse_copy_mib", bench.sparse.get() as f64 / 1048576.0)
        .in_units("MiB")
        .at_most(110.0)
        .unless(weak);
    let missing = bench.programs.missing(Way::Served);
    let cpu = missing
        .is_none()
        .then(|| bench.cpu_ratio(Way::Create, Way::Served));
    let cpu = Figure::new("create_from_cpu_over_nbdcopy_serve", cpu)
        .at_most(0.7)
        .needs(format!(
            "could not be measured: {}",
            missing.unwrap_or("no round")
        ))
        .unless(weak);
    report.figures = vec![
        ratio("create_from_over_cp", Way::Create, Way::Cp, 0.9),
        ratio(
            "create_from_over_nbdcopy_serve",
            Way::Create,
            Way::Served,
            1.0,
        ),
        ratio(
            "create_from_over_qemu_img_luks",
            Way::Create,
            Way::Qemu,
            4.0,
        ),
        ratio("copy_out_over_cp", Way::CopyOut, Way::Cp, 0.9),
        cpu,
        sparse,
        sparse_size,
    ];
}

fn notes(bench: &Bench<'_>) -> Vec<String> {
    vec![
        format!(
            "{} of random bytes, which were written just before and may be in the page cache. Each turn makes a new file and ends when that is durable: fsync is included, and so is the start of the program.",
            size::human(bench.args.size)
        ),
        "cryptline writes LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-img LUKS1 (512-byte sectors), which is all it has. Key slots cost next to nothing. nbdcopy writes into a new, sparse file whose server runs already.".into(),
        "Speeds are medians, 1 MB is 10^6 bytes; a ratio is the median of the ratios of the rounds.".into(),
        format!(
            "Before, what cryptline had made was compared with the source, SHA-256 {}.",
            bench.images.sha256
        ),
    ]
}

fn table(report: &Report) -> Table {
    let mut table = Table::new("Images", ["way", "MB/s", "spread"]);
    for row in &report.rows {
        table.push([
            row.name.clone(),
            megabytes(row.bytes_per_second),
            percent(row.spread),
        ]);
    }
    table
}
