//! From samples and counts to the tables of the thread, the plots and the figures.

use std::path::Path;

use super::places::Place;
use super::ways::Way;
use super::{BLOCK, DIRECTIONS, MediaArgs, Subject, turn_len};
use crate::bench::plot::{Plot, Series};
use crate::bench::report::{Direction, Figure, Pattern, Report, Row, Shape, ratio};
use crate::bench::table::{Table, megabytes};
use crate::benchmark::measure::{median, quartile_distance};
use crate::size;

/// The thread's figures.
const THREAD: &str = "The 2017 thread has 5.54 µs (deviation 8.89 %, 4.20 to 6.02) for a page by rw_page and 5.27 µs (13.03 %, 3.55 to 5.96) by an on-stack bio.";
/// What is said where the kernel does not count.
const NOT_COUNTED: &str = "not available here";
/// Below this size, blocks stay in caches.
const SIZE_OF_GOALS: u64 = 64 << 20;

/// Fills the report.
pub fn fill(
    report: &mut Report,
    args: &MediaArgs,
    folder: &Path,
    places: &[Place],
    subjects: &[Subject],
) {
    report.medium = format!(
        "RAM and mapped files in {} ({}), {} each",
        folder.display(),
        places
            .iter()
            .find(|place| place.name == "pmem")
            .map_or("?", |place| &place.how),
        size::human(args.size)
    );
    report.runs = args.runs;
    report.seconds = turn_seconds(subjects, args.size);
    report.rows = subjects
        .iter()
        .map(|subject| row(subject, places))
        .collect();
    report.notes = notes(args);
    for direction in DIRECTIONS {
        report.tables.push(table(direction, places, subjects));
        report.plots.push(plot(direction, places, subjects));
    }
    report.figures = figures(places, subjects);
    let small = args.size < SIZE_OF_GOALS;
    for figure in &mut report.figures {
        if (small || args.warm) && figure.unit == "ratio" && figure.goal.is_some() {
            let about = figure.note.take().unwrap_or_default();
            let size = size::human(SIZE_OF_GOALS);
            let why = format!("{about}; the goal is for {size} or more, without --warm");
            *figure = figure.clone().without_goal(why);
        }
    }
}

fn notes(args: &MediaArgs) -> Vec<String> {
    vec![
        "Blocks of 4 KiB at random offsets, one at a time, by all ways from and into the same buffer. In four runs each way walks the same blocks, in one run each walks others, so that none finds in the caches what another has just touched. A run's time is the median of pieces of 64 requests.".into(),
        if args.warm { "Each turn walks its blocks twice and the second is timed: the outer cache holds them." } else { "Each turn walks its blocks once: as on a disk that is larger than the caches, most come from memory." }
        .into(),
        "Before, each way wrote all blocks with contents of its own, and every way read them: all were equal.".into(),
        "memcpy is the medium's own bounded copy and nothing else. The page path is a call through a table of functions for each page, as rw_page was; it exists in this bench only. A heap request is an on-stack request in a box of its own.".into(),
        "Of memcpy, and of the page path, are medians of the ratios of the runs. For a table, memcpy is that of the medium below it.".into(),
        "Instructions are those outside the kernel; allocations are counted by breakpoints on the allocator's functions, in a pass of its own.".into(),
        "A write to a table is durable, and torn by no crash; a plain write to a mapped file is neither. Where the mapping is the page cache, a table makes four system calls for each write.".into(),
        THREAD.into(),
    ]
}

/// Seconds that a turn took, in the middle.
fn turn_seconds(subjects: &[Subject], size: u64) -> f64 {
    let each: Vec<f64> = subjects
        .iter()
        .map(|subject| median(&subject.samples))
        .collect();
    let blocks = usize::try_from(size / u64::from(BLOCK)).unwrap_or(usize::MAX);
    median(&each) * f64::from(u32::try_from(turn_len(blocks)).unwrap_or(0))
}

fn row(subject: &Subject, places: &[Place]) -> Row {
    let rates = subject
        .samples
        .iter()
        .map(|seconds| f64::from(BLOCK) / seconds);
    Row {
        name: format!("{}, {}", places[subject.place].name, subject.way.name()),
        shape: Shape {
            direction: subject.direction,
            pattern: Pattern::Random,
            block: BLOCK,
            depth: 1,
            streams: 1,
        },
        instructions: subject.counts.instructions,
        allocations: subject.counts.allocations,
        ..Row::default()
    }
    .sampled(rates.collect())
}

fn table(direction: Direction, places: &[Place], subjects: &[Subject]) -> Table {
    let title = match direction {
        Direction::Read => "4 KiB reads, nanoseconds each",
        Direction::Write => "4 KiB writes, nanoseconds each",
    };
    let mut table = Table::new(
        title,
        &[
            "medium",
            "way",
            "average",
            "deviation",
            "min",
            "max",
            "MB/s",
            "of memcpy",
            "of page path",
            "instructions",
            "allocations",
        ],
    );
    for subject in subjects.iter().filter(|one| one.direction == direction) {
        let place = &places[subject.place];
        let Statistics {
            average,
            deviation,
            least,
            most,
        } = Statistics::of(&subject.samples);
        let nanoseconds = |seconds: f64| format!("{:.1}", seconds * 1e9);
        let copied = place.plain.unwrap_or(subject.place);
        let of = |place, way| {
            let other = find(subjects, place, way, direction);
            other.map_or("-".into(), |other| {
                format!("{:.3}", ratio(&subject.samples, &other.samples))
            })
        };
        table.push([
            match subject.way {
                way if Some(&way) == place.ways().first() => place.name.to_owned(),
                _ => String::new(),
            },
            subject.way.name().to_owned(),
            nanoseconds(average),
            format!("{:.2} %", deviation * 100.0),
            nanoseconds(least),
            nanoseconds(most),
            megabytes(f64::from(BLOCK) / median(&subject.samples)),
            of(copied, Way::Memcpy),
            of(subject.place, Way::Page),
            count(subject.counts.instructions, 0),
            count(subject.counts.allocations, 2),
        ]);
    }
    table
}

fn count(value: Option<f64>, digits: usize) -> String {
    value.map_or(NOT_COUNTED.into(), |value| format!("{value:.digits$}"))
}

/// What the thread's table has. Seconds; the deviation as a share of the average.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Statistics {
    average: f64,
    deviation: f64,
    least: f64,
    most: f64,
}

impl Statistics {
    fn of(samples: &[f64]) -> Self {
        let count = f64::from(u32::try_from(samples.len()).unwrap_or(u32::MAX).max(1));
        let average = samples.iter().sum::<f64>() / count;
        let squares = samples
            .iter()
            .map(|sample| (sample - average).powi(2))
            .sum::<f64>();
        // Of a sample, as in the thread: one less than there are.
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt() / average;
        Self {
            average,
            deviation,
            least: samples.iter().copied().fold(f64::INFINITY, f64::min),
            most: samples.iter().copied().fold(0.0, f64::max),
        }
    }
}

fn find(subjects: &[Subject], place: usize, way: Way, direction: Direction) -> Option<&Subject> {
    subjects.iter().find(|subject| {
        subject.place == place && subject.way == way && subject.direction == direction
    })
}

/// Columns for the ways, groups for the media.
fn plot(direction: Direction, places: &[Place], subjects: &[Subject]) -> Plot {
    let value = |place: usize, way| {
        let found = find(subjects, place, way, direction);
        found.map(|subject| median(&subject.samples) * 1e9)
    };
    let of_way = |way: Way| Series {
        name: way.name().to_owned(),
        values: (0..places.len()).map(|place| value(place, way)).collect(),
    };
    Plot {
        title: format!("4 KiB {}s, one at a time", direction.name()),
        x_label: "medium".into(),
        categories: places.iter().map(|place| place.name.to_owned()).collect(),
        y_label: "nanoseconds".into(),
        logarithmic: true,
        columns: false,
        guide: None,
        series: Way::ALL.into_iter().map(of_way).collect(),
    }
}

fn figures(places: &[Place], subjects: &[Subject]) -> Vec<Figure> {
    let compare = |of, to| compare(places, subjects, of, to);
    let over_memcpy = compare(Way::OnStack, Way::Memcpy);
    let over_page = compare(Way::OnStack, Way::Page);
    let over_stack = compare(Way::Heap, Way::OnStack);
    vec![
        Figure::at_most("onstack_over_memcpy", largest(&over_memcpy), 1.10)
            .noted(listed(&over_memcpy)),
        Figure::at_most("onstack_over_page_path", largest(&over_page), 1.05)
            .noted(listed(&over_page)),
        Figure::reported("heap_over_onstack", largest(&over_stack))
            .lower()
            .noted(listed(&over_stack)),
        allocations(subjects),
        over_plain(places, subjects),
    ]
}

/// A ratio at one place, and how far its runs lie apart.
struct Compared {
    name: String,
    ratio: f64,
    spread: f64,
}

/// One way with another, wherever there are both.
fn compare(places: &[Place], subjects: &[Subject], of: Way, to: Way) -> Vec<Compared> {
    let of = subjects.iter().filter(|subject| subject.way == of);
    let pairs = of.filter_map(|of| {
        let to = find(subjects, of.place, to, of.direction)?;
        Some(Compared::new(
            format!("{} {}", places[of.place].name, of.direction.name()),
            of,
            to,
        ))
    });
    pairs.collect()
}

impl Compared {
    fn new(name: String, of: &Subject, to: &Subject) -> Self {
        let pairs = of.samples.iter().zip(&to.samples);
        let ratios: Vec<f64> = pairs.map(|(of, to)| of / to).collect();
        let middle = ratio(&of.samples, &to.samples);
        Self {
            name,
            ratio: middle,
            spread: quartile_distance(&ratios) / middle,
        }
    }
}

fn largest(compared: &[Compared]) -> f64 {
    let ratios = compared.iter().map(|compared| compared.ratio);
    ratios.reduce(f64::max).unwrap_or(f64::NAN)
}

fn listed(compared: &[Compared]) -> String {
    let each = compared.iter().map(
        |Compared {
             name,
             ratio,
             spread,
         }| { format!("{name} {ratio:.3} (spread {:.1} %)", spread * 100.0) },
    );
    format!("the largest of {}", each.collect::<Vec<_>>().join(", "))
}

/// Of on-stack requests. A counter that does not see those of requests from the heap sees nothing.
fn allocations(subjects: &[Subject]) -> Figure {
    let of = |way: Way| {
        let ours = subjects.iter().filter(move |subject| subject.way == way);
        ours.map(|subject| subject.counts.allocations)
    };
    let sees = of(Way::Heap).all(|count| count.is_some_and(|count| count >= 1.0));
    let most = of(Way::OnStack).try_fold(0.0, |most: f64, count| Some(most.max(count?)));
    let name = "allocations_per_io";
    let figure = match most.filter(|_| sees) {
        Some(most) => Figure::at_most(name, most, 0.0)
            .noted("of on-stack requests, on whichever medium has the most"),
        None => Figure::missing(
            name,
            "not available here: the system does not let programs set breakpoints (perf_event_open)",
        )
        .lower(),
    };
    figure.in_units("allocations")
}

/// Writes to a table beside those to the medium below it, both by on-stack requests.
fn over_plain(places: &[Place], subjects: &[Subject]) -> Figure {
    let pairs = places.iter().enumerate().filter_map(|(index, place)| {
        let of = find(subjects, index, Way::OnStack, Direction::Write)?;
        let to = find(subjects, place.plain?, Way::OnStack, Direction::Write)?;
        Some(Compared::new(place.name.to_owned(), of, to))
    });
    let pairs: Vec<Compared> = pairs.collect();
    Figure::reported("btt_write_over_plain", largest(&pairs))
        .lower()
        .noted(listed(&pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::media::Counts;

    #[test]
    fn statistics_are_those_of_the_thread() {
        let statistics = Statistics::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(statistics.average, 5.0);
        assert!((statistics.deviation - (32.0f64 / 7.0).sqrt() / 5.0).abs() < 1e-12);
        assert_eq!((statistics.least, statistics.most), (2.0, 9.0));
        assert_eq!(Statistics::of(&[3.0]).deviation, 0.0);
    }

    #[test]
    fn counter_that_does_not_see_the_heap_proves_nothing() {
        let subject = |way, allocations| Subject {
            place: 0,
            way,
            direction: Direction::Read,
            part: 0,
            samples: vec![1.0],
            counts: Counts {
                instructions: None,
                allocations,
            },
        };
        let figure =
            |heap, stack| allocations(&[subject(Way::Heap, heap), subject(Way::OnStack, stack)]);
        assert_eq!(figure(Some(1.0), Some(0.0)).met, Some(true));
        assert_eq!(figure(Some(1.0), Some(0.5)).met, Some(false));
        assert_eq!(figure(Some(0.0), Some(0.0)).value, None);
        assert_eq!(figure(None, None).value, None);
        assert_eq!(figure(None, None).unit, "allocations");
    }
}
