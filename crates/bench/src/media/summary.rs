//! From the rows to the tables of the thread, the plots and the figures.

use cryptline::size;

use super::places::Place;
use super::ways::Way;
use super::{BLOCK, DIRECTIONS, MediaArgs, turn_len};
use crate::plot::Plot;
use crate::report::{Direction, Figure, Report, Row, median, spread};
use crate::table::{self, Table, megabytes};

/// The thread's figures.
const THREAD: &str = "The 2017 thread has 5.54 µs (deviation 8.89 %, 4.20 to 6.02) for a page by rw_page and 5.27 µs (13.03 %, 3.55 to 5.96) by an on-stack bio.";
/// What is said where the kernel does not count.
const NOT_COUNTED: &str = "not available here";
/// Below this size, blocks stay in caches.
const SIZE_OF_GOALS: u64 = 64 << 20;

/// Fills the report.
pub fn fill(report: &mut Report, args: &MediaArgs, places: &[Place]) {
    report.seconds = turn_seconds(&report.rows, args.size);
    report.notes = notes(args);
    let all = Rows {
        rows: &report.rows,
        places,
    };
    report.tables = DIRECTIONS.map(|direction| all.table(direction)).to_vec();
    report.plots = DIRECTIONS.map(|direction| all.plot(direction)).to_vec();
    let mut figures = all.figures();
    if args.size < SIZE_OF_GOALS || args.warm {
        let size = size::human(SIZE_OF_GOALS);
        for figure in figures.iter_mut().filter(|figure| figure.unit == "ratio") {
            if figure.goal.is_some() {
                let about = figure.note.take().unwrap_or_default();
                let why = format!("{about}; the goal is for {size} or more, without --warm");
                *figure = figure.clone().without_goal(why);
            }
        }
    }
    report.figures = figures;
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

/// Seconds that a turn took, in the middle.
fn turn_seconds(rows: &[Row], size: u64) -> f64 {
    let each: Vec<f64> = rows.iter().map(|row| 1.0 / row.iops()).collect();
    let blocks = usize::try_from(size / u64::from(BLOCK)).unwrap_or(usize::MAX);
    median(&each) * f64::from(u32::try_from(turn_len(blocks)).unwrap_or(0))
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

/// What was measured, by medium, way and direction.
#[derive(Clone, Copy)]
struct Rows<'a> {
    rows: &'a [Row],
    places: &'a [Place],
}

/// A line of a table.
struct Line<'a> {
    /// The medium, where it is another than that of the line above.
    medium: &'static str,
    way: Way,
    row: &'a Row,
    of_memcpy: f64,
    times: Statistics,
}

impl<'a> Rows<'a> {
    fn find(self, place: &str, way: Way, direction: Direction) -> Option<&'a Row> {
        let name = format!("{place}, {}", way.name());
        let wanted = |row: &&Row| row.name == name && row.shape.direction == direction;
        self.rows.iter().find(wanted)
    }

    fn lines(self, direction: Direction) -> Vec<Line<'a>> {
        let mut lines = Vec::new();
        for place in self.places {
            let below = place.plain.unwrap_or(place.name);
            let copied = self.find(below, Way::Memcpy, direction);
            let mut medium = place.name;
            for way in place.ways() {
                let Some(row) = self.find(place.name, way, direction) else {
                    continue;
                };
                let times = row.samples.iter().map(|rate| f64::from(BLOCK) / rate);
                lines.push(Line {
                    medium: std::mem::take(&mut medium),
                    way,
                    row,
                    of_memcpy: copied.map_or(f64::NAN, |copied| copied.over(row)),
                    times: Statistics::of(&times.collect::<Vec<_>>()),
                });
            }
        }
        lines
    }

    fn table(self, direction: Direction) -> Table {
        let nanoseconds = |seconds: f64| format!("{:.1}", seconds * 1e9);
        Table::of(
            format!("4 KiB {}s, nanoseconds each", direction.name()),
            &[
                ("medium", &|line: &Line<'_>| line.medium.to_owned()),
                ("way", &|line| line.way.name().to_owned()),
                ("average", &|line| nanoseconds(line.times.average)),
                ("deviation", &|line| {
                    format!("{:.2} %", line.times.deviation * 100.0)
                }),
                ("min", &|line| nanoseconds(line.times.least)),
                ("max", &|line| nanoseconds(line.times.most)),
                ("MB/s", &|line| megabytes(line.row.bytes_per_second)),
                ("of memcpy", &|line| table::ratio(line.of_memcpy)),
                ("instructions", &|line| count(line.row.instructions, 0)),
                ("allocations", &|line| count(line.row.allocations, 2)),
            ],
            self.lines(direction),
        )
    }

    /// A line for each way, over the media.
    fn plot(self, direction: Direction) -> Plot {
        Plot::of(
            format!("4 KiB {}s, one at a time", direction.name()),
            ["medium", "nanoseconds"],
            self.places
                .iter()
                .map(|place| (place.name.to_owned(), place.name)),
            Way::ALL.map(|way| (way.name().to_owned(), way)),
            |&way, place| Some(1e9 / self.find(place, way, direction)?.iops()),
        )
        .logarithmic()
    }

    fn figures(self) -> Vec<Figure> {
        let over_memcpy = self.compare(Way::OnStack, Way::Memcpy);
        let over_stack = self.compare(Way::Heap, Way::OnStack);
        let over_plain = self.over_plain();
        vec![
            Figure::at_most("onstack_over_memcpy", largest(&over_memcpy), 1.10)
                .noted(listed(&over_memcpy)),
            Figure::reported("heap_over_onstack", largest(&over_stack))
                .lower()
                .noted(listed(&over_stack)),
            allocations(self.rows),
            Figure::reported("btt_write_over_plain", largest(&over_plain))
                .lower()
                .noted(listed(&over_plain)),
        ]
    }

    /// One way with another, wherever there are both.
    fn compare(self, of: Way, to: Way) -> Vec<Compared> {
        let mut compared = Vec::new();
        for direction in DIRECTIONS {
            for place in self.places {
                let rows = [of, to].map(|way| self.find(place.name, way, direction));
                if let [Some(of), Some(to)] = rows {
                    let name = format!("{} {}", place.name, direction.name());
                    compared.push(Compared::new(name, of, to));
                }
            }
        }
        compared
    }

    /// Writes to a table beside those to the medium below it, both by on-stack requests.
    fn over_plain(self) -> Vec<Compared> {
        let row = |place| self.find(place, Way::OnStack, Direction::Write);
        let compare = |place: &Place| {
            let (of, to) = (row(place.name)?, row(place.plain?)?);
            Some(Compared::new(place.name.to_owned(), of, to))
        };
        self.places.iter().filter_map(compare).collect()
    }
}

/// A ratio of times at one place, and how far its runs lie apart.
struct Compared {
    name: String,
    ratio: f64,
    spread: f64,
}

impl Compared {
    fn new(name: String, of: &Row, to: &Row) -> Self {
        let pairs = to.samples.iter().zip(&of.samples);
        let ratios: Vec<f64> = pairs.map(|(to, of)| to / of).collect();
        let ratio = median(&ratios);
        Self {
            name,
            ratio,
            spread: spread(&ratios),
        }
    }
}

fn largest(compared: &[Compared]) -> f64 {
    let ratios = compared.iter().map(|compared| compared.ratio);
    ratios.reduce(f64::max).unwrap_or(f64::NAN)
}

fn listed(compared: &[Compared]) -> String {
    let each = compared.iter().map(|one| {
        let spread = one.spread * 100.0;
        format!("{} {:.3} (spread {spread:.1} %)", one.name, one.ratio)
    });
    format!("the largest of {}", each.collect::<Vec<_>>().join(", "))
}

/// Of on-stack requests. A counter that does not see those of requests from the heap sees nothing.
fn allocations(rows: &[Row]) -> Figure {
    let of = |way: Way| {
        let ours = move |row: &&Row| row.name.ends_with(way.name());
        rows.iter().filter(ours).map(|row| row.allocations)
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
        let row = |way: Way, allocations| Row {
            name: format!("ram, {}", way.name()),
            allocations,
            ..Row::default()
        };
        let figure = |heap, stack| allocations(&[row(Way::Heap, heap), row(Way::OnStack, stack)]);
        assert_eq!(figure(Some(1.0), Some(0.0)).met, Some(true));
        assert_eq!(figure(Some(1.0), Some(0.5)).met, Some(false));
        assert_eq!(figure(Some(0.0), Some(0.0)).value, None);
        assert_eq!(figure(None, None).value, None);
        assert_eq!(figure(None, None).unit, "allocations");
    }
}
