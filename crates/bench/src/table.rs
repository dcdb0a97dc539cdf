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

/// The head of a column, and how it shows an item.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    /// An empty one.
    pub fn new<C: Into<String>>(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        Self {
            title: title.into(),
            columns: columns.into_iter().map(C::into).collect(),
            rows: Vec::new(),
        }
    }

    /// A line for each of `items`, and in it a cell by each column.
    pub fn of<T>(
        title: impl Into<String>,
        columns: &[Column<'_, T>],
        items: impl IntoIterator<Item = T>,
    ) -> Self {
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

    /// Which columns hold numbers, and nothing else but empty cells.
    pub fn numbers(&self) -> Vec<bool> {
        let number = |cell: &str| {
            let first = cell.bytes().next();
            cell == "-" || first.is_none_or(|byte| byte.is_ascii_digit())
        };
        let of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.clone().any(|cell| !cell.is_empty()) && cells.map(String::as_str).all(number)
        };
        (0..self.columns.len()).map(of).collect()
    }

    /// For people.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let numbers = self.numbers();
        let mut text = format!("{}\n", self.title);
        for line in lines() {
            for ((cell, width), number) in line.iter().zip(&widths).zip(&numbers) {
                // Writing to a String does not fail.
                let _ = if *number {
                    write!(text, "  {cell:>width$}")
                } else {
                    write!(text, "  {cell:<width$}")
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }
}

/// Bytes in a second for people: MB/s, where 1 MB is 10^6 bytes.
pub fn megabytes(bytes_per_second: f64) -> String {
    three_digits(bytes_per_second / 1e6)
}

/// A ratio for people; empty where it could not be measured.
pub fn ratio(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.3}")
    } else {
        String::new()
    }
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
        assert_eq!(
            table.text(),
            "Title\n  name            MB/s\n  a longer name      7\n  b              12345\n"
        );
    }

    #[test]
    fn blocks_are_written_as_they_are_given() {
        assert_eq!(block(4096), "4k");
        assert_eq!(block(1 << 20), "1M");
        assert_eq!(block(512), "512");
        assert_eq!(block(1536), "1536");
    }
}
