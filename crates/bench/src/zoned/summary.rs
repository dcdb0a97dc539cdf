//! From the rows to the tables, the plots and the figures.

use cryptline::size;

use super::writer::Load;
use super::{Subject, Threads, WAYS, Way, ZonedArgs, medium_name};
use crate::plot::Plot;
use crate::report::{Enough, Figure, Ratios, Report, Row, word};
use crate::table::{self, Table, megabytes};

/// What a goal is judged by.
const ENOUGH: Enough = Enough { rounds: 3, seconds: 0.03, size: 0 };

/// Fills the report.
pub fn fill(report: &mut Report, args: &ZonedArgs, threads: Threads) {
    report.medium =
        format!("emulated zones of {} over RAM, and over RAM as slow as {}", size::human(args.zone_size), args.slow);
    report.notes = [
        "Writes from the start of each zone on, in the order of the zones; all are reset before each turn. All ways have write pointers of their own over the same memory.",
        "Encrypted: who submits a write encrypts it, so that the order is never lost. Auto: helpers take writes of it while cores are idle, and what they have encrypted waits for its turn. Pool: threads encrypt what comes first, and the results are put in order again; it exists in this bench only.",
        &format!("Threads: {} beside who submits for auto, {} in the pool.", threads.helpers, threads.pool),
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
    let weak = ENOUGH.lacks(report, 0);
    let weak = weak.or((!is_xts).then_some("the goal is for aes-xts"));
    report.figures = figures(report, weak, threads);
}

fn row(report: &Report, is_slow: bool, way: Way, load: Load) -> Option<&Row> {
    report.row(&Subject { is_slow, way, load }.name())
}

/// Throughput of a way to another.
fn over(report: &Report, is_slow: bool, [of, to]: [Way; 2], load: Load) -> Option<Ratios> {
    let name = |way| Subject { is_slow, way, load }.name();
    report.ratios(&name(of), &name(to))
}

fn table(report: &Report, is_slow: bool) -> Table {
    let row = |way, load: &Load| row(report, is_slow, way, *load);
    let speed = |way, load: &Load| {
        let speed = row(way, load).map(|row| megabytes(row.bytes_per_second));
        speed.unwrap_or_default()
    };
    let ratio = |of, to, load: &Load| {
        let ratios = over(report, is_slow, [of, to], *load);
        table::ratio(ratios.map_or(f64::NAN, |ratios| ratios.median()))
    };
    let label = |load: &Load| {
        let rows = WAYS.into_iter().filter_map(|way| row(way, load));
        Row::label(load.name(), rows)
    };
    Table::of(
        format!("Sequential writes, {}, MB/s", medium_name(is_slow)),
        &[
            ("load", &label),
            ("plain", &|load| speed(Way::Plain, load)),
            ("encrypted", &|load| speed(Way::Encrypted, load)),
            ("auto", &|load| speed(Way::Auto, load)),
            ("pool", &|load| speed(Way::Pool, load)),
            ("encrypted / plain", &|load| ratio(Way::Encrypted, Way::Plain, load)),
            ("encrypted / pool", &|load| ratio(Way::Encrypted, Way::Pool, load)),
            ("auto / pool", &|load| ratio(Way::Auto, Way::Pool, load)),
        ],
        Load::all(),
    )
}

fn plot(report: &Report, is_slow: bool) -> Plot {
    let values = Load::all().flat_map(|load| {
        let value = move |way| {
            let row = row(report, is_slow, way, load)?;
            Some((load.short(), word(&way), row.plotted(|rate| rate / 1e6)))
        };
        WAYS.into_iter().filter_map(value)
    });
    let title = format!("Sequential writes, {}", medium_name(is_slow));
    Plot::of(title, ["block / writes in flight / zones", "MB/s"], values).logarithmic()
}

fn figures(report: &Report, weak: Option<&str>, threads: Threads) -> Vec<Figure> {
    // The least of some loads, and all of them for people.
    let least = |ways: [Way; 2], is_slow: bool, chosen: &dyn Fn(&Load) -> bool| {
        let loads = Load::all().filter(chosen);
        let values = loads.filter_map(|load| Some((over(report, is_slow, ways, load)?, load.name())));
        let values: Vec<_> = values.collect();
        let listed = values.iter().map(|(ratios, name)| format!("{name} {:.3}", ratios.median()));
        let listed: Vec<String> = listed.collect();
        let ratios = values.into_iter().map(|(ratios, _)| ratios);
        let least = ratios.min_by(|one, other| one.median().total_cmp(&other.median()));
        (least, listed.join("; "))
    };
    let over_plain = |name, block: u32, depth: u32| {
        let chosen = move |load: &Load| load.block == block && load.depth == depth;
        let (slow, of_slow) = least([Way::Encrypted, Way::Plain], true, &chosen);
        let (_, of_ram) = least([Way::Encrypted, Way::Plain], false, &chosen);
        Figure::of(name, slow.as_ref())
            .at_least(0.9)
            .noted(format!("the least on the slow medium: {of_slow}; on RAM, where a write is a copy: {of_ram}"))
            .unless(weak)
    };
    let inline_over_pool = [Way::Encrypted, Way::Pool];
    let (pool, of_pool) = least(inline_over_pool, false, &|load| load.block == 4096);
    let (_, of_slow) = least(inline_over_pool, true, &|_| true);
    let auto_over_pool = |is_slow| least([Way::Auto, Way::Pool], is_slow, &|_| true);
    let (auto_on_ram, auto_of_ram) = auto_over_pool(false);
    let (auto_on_slow, auto_of_slow) = auto_over_pool(true);
    let both = [auto_on_ram, auto_on_slow].into_iter().flatten();
    let auto = both.min_by(|one, other| one.median().total_cmp(&other.median()));
    vec![
        over_plain("encrypted_over_plain_zoned_4k_qd1", 4096, 1),
        over_plain("encrypted_over_plain_zoned_128k_qd16", 128 << 10, 16),
        Figure::of("inline_over_resequenced_pool", pool.as_ref())
            .noted(format!("the least of 4 KiB writes on RAM: {of_pool}; on the slow medium: {of_slow}")),
        Figure::of("auto_over_resequenced_pool", auto.as_ref())
            .at_least(1.0)
            .noted(format!("the least of all writes, on RAM: {auto_of_ram}; on the slow medium: {auto_of_slow}"))
            .unless(weak.or((threads.helpers == 0).then_some("no goal: no helpers"))),
    ]
}
