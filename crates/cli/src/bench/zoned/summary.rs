//! From samples to the tables, the plots and the figures.

use super::writer::Load;
use super::{Medium, Subject, Way, ZonedArgs};
use crate::bench::plot::{Plot, Series};
use crate::bench::report::{Direction, Figure, Pattern, Report, Row, Shape, ratio};
use crate::bench::table::{Table, megabytes};
use crate::benchmark::measure::median;
use crate::size;

/// Fills the report.
pub fn fill(report: &mut Report, args: &ZonedArgs, media: &[Medium], subjects: &[Subject]) {
    report.medium = format!(
        "emulated zones of {} over RAM, and over RAM as slow as {}",
        size::human(args.zone_size),
        args.slow
    );
    report.runs = args.runs;
    report.seconds = args.seconds;
    report.rows = subjects
        .iter()
        .map(|subject| row(subject, args, media))
        .collect();
    report.notes = vec![
        "Writes from the start of each zone on, in the order of the zones; all are reset before each turn. All ways have write pointers of their own over the same memory.".into(),
        "Encrypted: who submits a write encrypts it, so that the order is never lost. Pool: threads encrypt what comes first, and the results are put in order again; it exists in this bench only.".into(),
        "Before, each way wrote blocks that were compared on the medium, byte by byte.".into(),
        "On RAM a write is a copy, so that encrypting it is most of the work; the goals are for a medium that takes as long as an SSD.".into(),
    ];
    for (index, medium) in media.iter().enumerate() {
        report.tables.push(table(index, medium, subjects));
        report.plots.push(plot(index, medium, subjects));
    }
    report.figures = figures(media, subjects);
    if !args.cipher.starts_with("aes-xts") {
        for figure in &mut report.figures {
            *figure = figure.clone().without_goal("the goal is for aes-xts");
        }
    }
}

fn row(subject: &Subject, args: &ZonedArgs, media: &[Medium]) -> Row {
    let Subject {
        way, load, samples, ..
    } = subject;
    let medium = media[subject.medium].name();
    Row {
        name: format!("{}, {medium}, {}", way.name(), load.name()),
        cipher: (*way != Way::Plain).then(|| args.cipher.clone()),
        dispatch: (*way == Way::Encrypted).then(|| "inline".to_owned()),
        shape: Shape {
            direction: Direction::Write,
            pattern: Pattern::Sequential,
            block: load.block,
            depth: load.depth,
            streams: 1,
        },
        ..Row::default()
    }
    .sampled(samples.clone())
}

fn find<'a>(subjects: &'a [Subject], medium: usize, way: Way, load: &Load) -> &'a [f64] {
    let found = subjects
        .iter()
        .find(|subject| subject.medium == medium && subject.way == way && subject.load == *load);
    found.map_or(&[], |subject| &subject.samples)
}

fn table(index: usize, medium: &Medium, subjects: &[Subject]) -> Table {
    let mut table = Table::new(
        format!("Sequential writes, {}, MB/s", medium.name()),
        &[
            "load",
            "plain",
            "encrypted",
            "pool",
            "encrypted / plain",
            "encrypted / pool",
        ],
    );
    for load in Load::all() {
        let of = |way| find(subjects, index, way, &load);
        let [plain, encrypted, pool] = Way::ALL.map(of);
        table.push([
            load.name(),
            megabytes(median(plain)),
            megabytes(median(encrypted)),
            megabytes(median(pool)),
            format!("{:.3}", ratio(encrypted, plain)),
            format!("{:.3}", ratio(encrypted, pool)),
        ]);
    }
    table
}

fn plot(index: usize, medium: &Medium, subjects: &[Subject]) -> Plot {
    let of_way = |way: Way| Series {
        name: way.name().to_owned(),
        values: Load::all()
            .iter()
            .map(|load| Some(median(find(subjects, index, way, load)) / 1e6))
            .collect(),
    };
    Plot {
        title: format!("Sequential writes, {}", medium.name()),
        x_label: "block / writes in flight / zones".into(),
        categories: Load::all().iter().map(Load::short).collect(),
        y_label: "MB/s".into(),
        logarithmic: true,
        columns: false,
        guide: None,
        series: Way::ALL.into_iter().map(of_way).collect(),
    }
}

fn figures(media: &[Medium], subjects: &[Subject]) -> Vec<Figure> {
    let least = |to: Way, is_slow: bool, chosen: &dyn Fn(&Load) -> bool| {
        let mut values = Vec::new();
        for (index, _) in (media.iter().enumerate()).filter(|(_, medium)| medium.is_slow == is_slow)
        {
            for load in Load::all().iter().filter(|load| chosen(load)) {
                let encrypted = find(subjects, index, Way::Encrypted, load);
                let other = find(subjects, index, to, load);
                values.push((ratio(encrypted, other), load.name()));
            }
        }
        let least = values.iter().map(|(ratio, _)| *ratio).reduce(f64::min);
        let listed: Vec<String> = values
            .iter()
            .map(|(ratio, name)| format!("{name} {ratio:.3}"))
            .collect();
        (least.unwrap_or(f64::NAN), listed.join("; "))
    };
    let over_plain = |name, block: u32, depth: u32| {
        let chosen = move |load: &Load| load.block == block && load.depth == depth;
        let (slow, of_slow) = least(Way::Plain, true, &chosen);
        let (_, of_ram) = least(Way::Plain, false, &chosen);
        Figure::at_least(name, slow, 0.9).noted(format!(
            "the least on the slow medium: {of_slow}; on RAM, where a write is a copy: {of_ram}"
        ))
    };
    let small = |load: &Load| load.block == 4096;
    let (pool, of_pool) = least(Way::Pool, false, &small);
    let (_, of_slow) = least(Way::Pool, true, &|_| true);
    vec![
        over_plain("encrypted_over_plain_zoned_4k_qd1", 4096, 1),
        over_plain("encrypted_over_plain_zoned_128k_qd16", 128 << 10, 16),
        Figure::reported("inline_over_resequenced_pool", pool).noted(format!(
            "the least of 4 KiB writes on RAM: {of_pool}; on the slow medium: {of_slow}"
        )),
    ]
}
