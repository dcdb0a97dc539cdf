//! From the rows to the tables, the plots and the figures.

use cryptline::size;

use super::writer::Load;
use super::{Subject, Way, ZonedArgs, medium_name};
use crate::plot::Plot;
use crate::report::{Figure, Report};
use crate::table::{self, Table, megabytes};

/// Fills the report.
pub fn fill(report: &mut Report, args: &ZonedArgs) {
    report.medium = format!(
        "emulated zones of {} over RAM, and over RAM as slow as {}",
        size::human(args.zone_size),
        args.slow
    );
    report.notes = [
        "Writes from the start of each zone on, in the order of the zones; all are reset before each turn. All ways have write pointers of their own over the same memory.",
        "Encrypted: who submits a write encrypts it, so that the order is never lost. Auto: helpers take writes of it while cores are idle, and what they have encrypted waits for its turn. Pool: threads encrypt what comes first, and the results are put in order again; it exists in this bench only.",
        "Before, each way wrote blocks that were compared on the medium, byte by byte.",
        "On RAM a write is a copy, so that encrypting it is most of the work; the goals are for a medium that takes as long as an SSD.",
    ]
    .map(str::to_owned)
    .to_vec();
    for is_slow in [false, true] {
        report.tables.push(table(report, is_slow));
        report.plots.push(plot(report, is_slow));
    }
    let is_xts = args.cipher.starts_with("aes-xts");
    report.figures = figures(report, (!is_xts).then_some("the goal is for aes-xts"));
}

/// Throughput by a way, in bytes in a second.
fn rate(report: &Report, is_slow: bool, way: Way, load: Load) -> f64 {
    let row = report.row(&Subject { is_slow, way, load }.name());
    row.map_or(f64::NAN, |row| row.bytes_per_second)
}

/// Throughput of a way to another.
fn over(report: &Report, is_slow: bool, [of, to]: [Way; 2], load: Load) -> f64 {
    let name = |way| Subject { is_slow, way, load }.name();
    report.ratio(&name(of), &name(to))
}

fn table(report: &Report, is_slow: bool) -> Table {
    let speed = |way, load: &Load| megabytes(rate(report, is_slow, way, *load));
    let ratio = |of, to, load: &Load| table::ratio(over(report, is_slow, [of, to], *load));
    Table::of(
        format!("Sequential writes, {}, MB/s", medium_name(is_slow)),
        &[
            ("load", &Load::name),
            ("plain", &|load| speed(Way::Plain, load)),
            ("encrypted", &|load| speed(Way::Encrypted, load)),
            ("auto", &|load| speed(Way::Auto, load)),
            ("pool", &|load| speed(Way::Pool, load)),
            ("encrypted / plain", &|load| {
                ratio(Way::Encrypted, Way::Plain, load)
            }),
            ("encrypted / pool", &|load| {
                ratio(Way::Encrypted, Way::Pool, load)
            }),
            ("auto / pool", &|load| ratio(Way::Auto, Way::Pool, load)),
        ],
        Load::all(),
    )
}

fn plot(report: &Report, is_slow: bool) -> Plot {
    let values = Load::all().flat_map(|load| {
        let rate = move |way| rate(report, is_slow, way, load) / 1e6;
        Way::ALL.map(|way| (load.short(), way.name(), rate(way)))
    });
    let title = format!("Sequential writes, {}", medium_name(is_slow));
    Plot::of(title, ["block / writes in flight / zones", "MB/s"], values).logarithmic()
}

fn figures(report: &Report, other_cipher: Option<&str>) -> Vec<Figure> {
    // The least of some loads, and all of them for people.
    let least = |ways: [Way; 2], is_slow: bool, chosen: &dyn Fn(&Load) -> bool| {
        let loads = Load::all().filter(chosen);
        let values = loads.map(|load| (over(report, is_slow, ways, load), load.name()));
        let values: Vec<_> = values.collect();
        let least = values.iter().map(|(ratio, _)| *ratio).reduce(f64::min);
        let listed: Vec<String> = values
            .iter()
            .map(|(ratio, name)| format!("{name} {ratio:.3}"))
            .collect();
        (least.unwrap_or(f64::NAN), listed.join("; "))
    };
    let over_plain = |name, block: u32, depth: u32| {
        let chosen = move |load: &Load| load.block == block && load.depth == depth;
        let (slow, of_slow) = least([Way::Encrypted, Way::Plain], true, &chosen);
        let (_, of_ram) = least([Way::Encrypted, Way::Plain], false, &chosen);
        Figure::new(name, slow)
            .at_least(0.9)
            .noted(format!(
                "the least on the slow medium: {of_slow}; on RAM, where a write is a copy: {of_ram}"
            ))
            .unless(other_cipher)
    };
    let inline_over_pool = [Way::Encrypted, Way::Pool];
    let (pool, of_pool) = least(inline_over_pool, false, &|load| load.block == 4096);
    let (_, of_slow) = least(inline_over_pool, true, &|_| true);
    let auto_over_pool = |is_slow| least([Way::Auto, Way::Pool], is_slow, &|_| true);
    let (auto_on_ram, auto_of_ram) = auto_over_pool(false);
    let (auto_on_slow, auto_of_slow) = auto_over_pool(true);
    vec![
        over_plain("encrypted_over_plain_zoned_4k_qd1", 4096, 1),
        over_plain("encrypted_over_plain_zoned_128k_qd16", 128 << 10, 16),
        Figure::new("inline_over_resequenced_pool", pool).noted(format!(
            "the least of 4 KiB writes on RAM: {of_pool}; on the slow medium: {of_slow}"
        )),
        Figure::new("auto_over_resequenced_pool", auto_on_ram.min(auto_on_slow))
            .at_least(1.0)
            .noted(format!(
                "the least of all writes, on RAM: {auto_of_ram}; on the slow medium: {auto_of_slow}"
            ))
            .unless(other_cipher),
    ]
}
