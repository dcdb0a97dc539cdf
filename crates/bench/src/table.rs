//! Tables for people, as text.

use std::fmt::Write as _;

/// A table. Columns of numbers are aligned right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    /// Cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Columns of a terminal that a line of text takes at most.
pub const WIDTH: usize = 100;

/// The head of a column, and how it shows an item.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    /// An empty one.
    pub fn new<C: Into<String>>(title: impl Into<String>, columns: impl IntoIterator<Item = C>) -> Self {
        Self { title: title.into(), columns: columns.into_iter().map(C::into).collect(), rows: Vec::new() }
    }

    /// A line for each of `items`, and in it a cell by each column.
    pub fn of<T>(title: impl Into<String>, columns: &[Column<'_, T>], items: impl IntoIterator<Item = T>) -> Self {
        let heads = columns.iter().map(|(head, _)| *head);
        let mut table = Self::new(title, heads);
        for item in items {
            table.push(columns.iter().map(|(_, cell)| cell(&item)));
        }
        table
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        let row: Vec<String> = row.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "{row:?}");
        self.rows.push(row);
    }

    /// Which columns hold numbers, with a unit or without, and nothing else but empty cells.
    pub fn numbers(&self) -> Vec<bool> {
        let number = |cell: &str| {
            let mut words = cell.split(' ');
            let first = words.next().unwrap_or_default().bytes().next();
            let begins = first.is_none_or(|byte| byte.is_ascii_digit());
            cell == "-" || begins && words.count() <= 1 && !cell.contains(',')
        };
        let of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.clone().any(|cell| !cell.is_empty()) && cells.map(String::as_str).all(number)
        };
        (0..self.columns.len()).map(of).collect()
    }

    /// For people, in lines of [`WIDTH`]. Columns that have no room beside the others come below them, with the first
    /// one again.
    pub fn text(&self) -> String {
        let mut columns = self.laid_out(false);
        let width: usize = columns.iter().map(Laid::room).sum();
        if width > WIDTH {
            columns = self.laid_out(true);
        }
        let mut text = wrapped(&self.title, WIDTH).join("\n") + "\n";
        let Some((first, mut rest)) = columns.split_first() else {
            return text;
        };
        loop {
            let mut room = WIDTH.saturating_sub(first.room());
            let fits = rest.iter().take_while(|column| {
                let fits = column.room() <= room;
                room = room.saturating_sub(column.room());
                fits
            });
            // One at least, or there would be no end.
            let count = fits.count().max(1).min(rest.len());
            let (here, later) = rest.split_at(count);
            let here: Vec<&Laid> = std::iter::once(first).chain(here).collect();
            self.lines(&mut text, &here);
            if later.is_empty() {
                return text;
            }
            rest = later;
        }
    }

    /// All columns, with their heads in as many lines as they take or in one.
    fn laid_out(&self, fold: bool) -> Vec<Laid> {
        let numbers = self.numbers();
        let column = |(place, head): (usize, &String)| {
            let cells = self.rows.iter().filter_map(|row| row.get(place));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            let longest = head.split(' ').map(|word| word.chars().count()).max();
            let room = widest.max(longest.unwrap_or(0));
            let head = wrapped(head, if fold { room } else { usize::MAX });
            let of_head = head.iter().map(|line| line.chars().count()).max();
            Laid { place, width: widest.max(of_head.unwrap_or(0)), is_number: numbers[place], head }
        };
        self.columns.iter().enumerate().map(column).collect()
    }

    /// The lines of some columns.
    fn lines(&self, text: &mut String, columns: &[&Laid]) {
        let tallest = columns.iter().map(|column| column.head.len()).max();
        let tallest = tallest.unwrap_or(0);
        let head = |line: usize, column: &Laid| {
            // Heads stand on their columns.
            let above = tallest - column.head.len();
            let line = line.checked_sub(above).and_then(|it| column.head.get(it));
            line.cloned().unwrap_or_default()
        };
        let heads = (0..tallest).map(|line| {
            let cells = columns.iter().map(|column| head(line, column));
            cells.collect::<Vec<String>>()
        });
        let cells = self.rows.iter().map(|row| {
            let cell = |column: &&Laid| row.get(column.place).cloned().unwrap_or_default();
            columns.iter().map(cell).collect::<Vec<String>>()
        });
        for line in heads.chain(cells) {
            for (cell, column) in line.iter().zip(columns) {
                let width = column.width;
                // Writing to a String does not fail.
                let _ =
                    if column.is_number { write!(text, "  {cell:>width$}") } else { write!(text, "  {cell:<width$}") };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
}

/// A column as it is printed.
struct Laid {
    place: usize,
    head: Vec<String>,
    width: usize,
    is_number: bool,
}

impl Laid {
    /// With the space before it.
    fn room(&self) -> usize {
        self.width + 2
    }
}

/// The lines of a text that is broken between words, where it is longer than that.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Bytes in a second for people: MB/s, where 1 MB is 10^6 bytes.
pub fn megabytes(bytes_per_second: f64) -> String {
    three_digits(bytes_per_second / 1e6)
}

/// A ratio for people; empty where it could not be measured.
pub fn ratio(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { String::new() }
}

/// A spread for people.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Microseconds for people.
pub fn microseconds(value: f64) -> String {
    three_digits(value)
}

fn three_digits(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A block size for people: `4k`, `1M`.
pub fn block(bytes: u32) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("Title", ["name", "MB/s"]);
        table.push(["a longer name".to_owned(), "7".to_owned()]);
        table.push(["b".to_owned(), "12345".to_owned()]);
        assert_eq!(table.text(), "Title\n  name            MB/s\n  a longer name      7\n  b              12345\n");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_every_cell_is_there() {
        let heads = (0..20).map(|number| format!("column number {number}"));
        let mut table = Table::new("Title ".repeat(30).trim_end(), heads);
        table.push((0..20).map(|number| format!("{number}0000")));
        let text = table.text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for number in 0..20 {
            assert!(text.contains(&format!("{number}0000")), "{text}");
        }
        // Each part has the first column.
        let parts = text.matches(" 00000").count();
        assert!(parts > 1 && text.matches("column").count() == 19 + parts, "{text}");
    }

    #[test]
    fn text_that_begins_with_a_digit_is_no_number() {
        let mut table = Table::new("Title", ["a", "b", "c", "d"]);
        table.push(["4k, QD 1, 1 zone", "4 KiB reads, one at a time", "5.1 %", "4k"].map(str::to_owned));
        assert_eq!(table.numbers(), [false, false, true, true]);
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }

    #[test]
    fn blocks_are_written_as_they_are_given() {
        assert_eq!(block(4096), "4k");
        assert_eq!(block(1 << 20), "1M");
        assert_eq!(block(512), "512");
        assert_eq!(block(1536), "1536");
    }
}
