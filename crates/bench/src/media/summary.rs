//! From the rows to the tables of the thread, the plots and the figures.

use cryptline::size;

use super::ways::Way;
use super::{BLOCK, DIRECTIONS, MediaArgs, Subject, turn_len};
use crate::plot::Plot;
use crate::report::{Direction, Figure, Quantity, Ratios, Report, Row, median, word};
use crate::table::{self, Table, megabytes};

/// The thread's figures.
const THREAD: &str = "The 2017 thread has 5.54 µs (deviation 8.89 %, 4.20 to 6.02) for a page by rw_page and 5.27 µs (13.03 %, 3.55 to 5.96) by an on-stack bio.";
/// What is said where the kernel does not count.
const NOT_COUNTED: &str = "not available here";
/// Below this size, blocks stay in caches.
const SIZE_OF_GOALS: u64 = 64 << 20;

/// What was measured: each subject and its row.
type Measured<'a> = [(&'a Subject, &'a Row)];

/// Fills the report.
pub fn fill(report: &mut Report, args: &MediaArgs, subjects: &[Subject]) {
    let measured: Vec<_> = subjects.iter().zip(&report.rows).collect();
    let each: Vec<f64> = report.rows.iter().map(|row| 1.0 / row.iops()).collect();
    let blocks = usize::try_from(args.size / u64::from(BLOCK)).unwrap_or(usize::MAX);
    let requests = u32::try_from(turn_len(blocks)).unwrap_or(u32::MAX);
    report.seconds = median(&each) * f64::from(requests);
    report.notes = notes(args);
    report.tables = DIRECTIONS.map(|way| table(&measured, way)).to_vec();
    report.plots = DIRECTIONS.map(|way| plot(&measured, way)).to_vec();
    report.figures = figures(&measured, args);
}

fn notes(args: &MediaArgs) -> Vec<String> {
    vec![
        "Blocks of 4 KiB at random offsets, one at a time, by all ways from and into the same buffer. Each turn walks other blocks than the one before it, so that no way finds in the caches what another has just touched. A run's time is the median of pieces of 64 requests.".into(),
        if args.warm {
            "Each turn walks its blocks twice and the second is timed: the outer cache holds them."
        } else {
            "Each turn walks its blocks once: as on a disk that is larger than the caches, most come from memory."
        }
        .into(),
        "Before, each way wrote all blocks with contents of its own, and every way read them: all were equal.".into(),
        "memcpy is the medium's own bounded copy and nothing else. A heap request is an on-stack request in a box of its own.".into(),
        "Of memcpy is the median of the ratios of the runs. For a table, memcpy is that of the medium below it.".into(),
        "Instructions are those outside the kernel; allocations are counted by breakpoints on the allocator's functions, in a pass of its own.".into(),
        "A write to a table is durable, and torn by no crash; a plain write to a mapped file is neither. Where the mapping is the page cache, a table makes four system calls for each write.".into(),
        THREAD.into(),
    ]
}

/// The row of a medium, way and direction.
fn find<'a>(all: &Measured<'a>, medium: &str, way: Way, direction: Direction) -> Option<&'a Row> {
    let wanted = |(subject, _): &&(&Subject, &Row)| {
        subject.medium == medium && (subject.way, subject.direction) == (way, direction)
    };
    all.iter().find(wanted).map(|(_, row)| *row)
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
        let squares = samples.iter().map(|sample| (sample - average).powi(2)).sum::<f64>();
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

fn table(all: &Measured<'_>, direction: Direction) -> Table {
    let nanoseconds = |seconds: f64| format!("{:.1}", seconds * 1e9);
    let times = |row: &Row| {
        let times = row.samples.iter().map(|rate| f64::from(BLOCK) / rate);
        Statistics::of(&times.collect::<Vec<_>>())
    };
    let of_memcpy = |subject: &Subject, row: &Row| {
        let copied = find(all, subject.plain, Way::Memcpy, direction);
        copied.map_or(f64::NAN, |copied| copied.over(row))
    };
    let lines = all.iter().filter(|(subject, _)| subject.direction == direction);
    Table::of(
        format!("4 KiB {}s, nanoseconds each", word(&direction)),
        &[
            ("medium", &|(subject, row): &(&Subject, &Row)| Row::label(subject.medium, [*row])),
            ("way", &|(subject, _)| subject.way.name().to_owned()),
            ("average", &|(_, row)| nanoseconds(times(row).average)),
            ("deviation", &|(_, row)| format!("{:.2} %", times(row).deviation * 100.0)),
            ("min", &|(_, row)| nanoseconds(times(row).least)),
            ("max", &|(_, row)| nanoseconds(times(row).most)),
            ("MB/s", &|(_, row)| megabytes(row.bytes_per_second)),
            ("of memcpy", &|(subject, row)| table::ratio(of_memcpy(subject, row))),
            ("instructions", &|(_, row)| count(row.instructions, 0)),
            ("allocations", &|(_, row)| count(row.allocations, 2)),
        ],
        lines.copied(),
    )
}

/// A line for each way, over the media.
fn plot(all: &Measured<'_>, direction: Direction) -> Plot {
    let lines = all.iter().filter(|(subject, _)| subject.direction == direction);
    let title = format!("4 KiB {}s, one at a time", word(&direction));
    let value = |(subject, row): &(&Subject, &Row)| {
        let nanoseconds = row.plotted(|rate| 1e9 * f64::from(BLOCK) / rate);
        (subject.medium, subject.way.name(), nanoseconds)
    };
    Plot::of(title, ["medium", "nanoseconds"], lines.map(value)).logarithmic()
}

fn figures(all: &Measured<'_>, args: &MediaArgs) -> Vec<Figure> {
    // Each row beside that of the partner of its subject: another medium or way.
    let compared = |partner: &dyn Fn(&Subject) -> Option<(&'static str, Way)>| {
        let pairs = all.iter().filter_map(|&(subject, row)| {
            let (medium, way) = partner(subject)?;
            Some((subject, row, find(all, medium, way, subject.direction)?))
        });
        Compared::all(pairs)
    };
    let is_on_stack = |subject: &Subject| subject.way == Way::OnStack;
    let over_memcpy = compared(&|subject| is_on_stack(subject).then_some((subject.medium, Way::Memcpy)));
    let over_stack = compared(&|subject| (subject.way == Way::Heap).then_some((subject.medium, Way::OnStack)));
    let over_plain = compared(&|subject| {
        let is_table = subject.plain != subject.medium;
        let is_compared = is_table && is_on_stack(subject) && subject.direction == Direction::Write;
        is_compared.then_some((subject.plain, Way::OnStack))
    });
    let size = size::human(SIZE_OF_GOALS);
    let cached =
        (args.size < SIZE_OF_GOALS || args.warm).then(|| format!("the goal is for {size} or more, without --warm"));
    vec![
        over_memcpy.figure("onstack_over_memcpy").at_most(1.10).unless(cached),
        over_stack.figure("heap_over_onstack"),
        allocations(all),
        over_plain.figure("btt_write_over_plain"),
    ]
}

/// The largest ratio of times, and all of them for people, with how far their runs lie apart.
#[derive(Default)]
struct Compared {
    largest: Option<Ratios>,
    listed: Vec<String>,
}

impl Compared {
    fn all<'a>(pairs: impl Iterator<Item = (&'a Subject, &'a Row, &'a Row)>) -> Self {
        let mut all = Self::default();
        for (subject, of, to) in pairs {
            // The larger the time, the smaller the speed.
            let ratios = to.beside(of, Quantity::Speed);
            let (medium, direction) = (subject.medium, word(&subject.direction));
            let (ratio, spread) = (ratios.median(), ratios.spread());
            let listed = format!("{medium} {direction} {ratio:.3} ({spread})");
            all.listed.push(listed);
            if all.largest.as_ref().is_none_or(|it| it.median() < ratio) {
                all.largest = Some(ratios);
            }
        }
        all
    }

    fn figure(self, name: &'static str) -> Figure {
        let note = format!("the largest of {}", self.listed.join(", "));
        Figure::of(name, self.largest.as_ref()).lower().noted(note)
    }
}

/// Of on-stack requests. A counter that does not see those of requests from the heap sees nothing.
fn allocations(all: &Measured<'_>) -> Figure {
    let of = |way: Way| {
        let ours = all.iter().filter(move |(subject, _)| subject.way == way);
        ours.map(|(_, row)| row.allocations)
    };
    let sees = of(Way::Heap).all(|count| count.is_some_and(|count| count >= 1.0));
    let most = of(Way::OnStack).try_fold(0.0, |most: f64, count| Some(most.max(count?)));
    Figure::new("allocations_per_io", most.filter(|_| sees))
        .in_units("allocations")
        .at_most(0.0)
        .noted("of on-stack requests, on whichever medium has the most")
        .needs("not available here: the system does not let programs set breakpoints (perf_event_open)")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let subject = |way| Subject { place: 0, medium: "ram", plain: "ram", way, direction: Direction::Read };
        let row = |allocations| Row { allocations, ..Row::default() };
        let figure = |heap, stack| {
            let (heap, stack) = (row(heap), row(stack));
            let subjects = [Way::Heap, Way::OnStack].map(subject);
            allocations(&[(&subjects[0], &heap), (&subjects[1], &stack)])
        };
        assert_eq!(figure(Some(1.0), Some(0.0)).met, Some(true));
        assert_eq!(figure(Some(1.0), Some(0.5)).met, Some(false));
        assert_eq!(figure(Some(0.0), Some(0.0)).value, None);
        assert_eq!(figure(None, None).value, None);
        assert_eq!(figure(None, None).unit, "allocations");
    }
}
