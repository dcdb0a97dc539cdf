//! Tables for people, as text.

use std::fmt::Write as _;

/// A table: its title, heads, and a line of cells for each row. Columns of numbers are aligned right; heads take as many
/// lines as they need to be no wider than their column.
pub fn text(title: &str, heads: &[String], rows: &[Vec<String>]) -> String {
    let columns: Vec<Column> = heads.iter().enumerate().map(|(place, head)| Column::new(place, head, rows)).collect();
    let tallest = columns.iter().map(|column| column.head.len()).max().unwrap_or(0);
    let mut text = format!("{title}\n");
    for line in 0..tallest {
        // Heads stand on their columns.
        let head = |column: &Column| (line + column.head.len()).checked_sub(tallest).map(|at| column.head[at].clone());
        push(&mut text, &columns, columns.iter().map(|column| head(column).unwrap_or_default()));
    }
    for row in rows {
        push(&mut text, &columns, row.iter().cloned());
    }
    text
}

struct Column {
    head: Vec<String>,
    width: usize,
    is_number: bool,
}

impl Column {
    fn new(place: usize, head: &str, rows: &[Vec<String>]) -> Self {
        let cells = || rows.iter().map(|row| row[place].as_str());
        let longest_word = head.split(' ').map(|word| word.chars().count()).max();
        let width = cells().map(|cell| cell.chars().count()).chain(longest_word).max().unwrap_or(0);
        let begins_with_digit = |cell: &str| cell.bytes().next().is_none_or(|byte| byte.is_ascii_digit());
        Self {
            head: wrapped(head, width),
            width,
            is_number: cells().all(|cell| cell == "-" || begins_with_digit(cell) && cell.split(' ').count() <= 2),
        }
    }
}

fn push(text: &mut String, columns: &[Column], cells: impl Iterator<Item = String>) {
    for (cell, column) in cells.zip(columns) {
        let width = column.width;
        // Writing to a String does not fail.
        let _ = if column.is_number { write!(text, "  {cell:>width$}") } else { write!(text, "  {cell:<width$}") };
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
}

/// The lines of a text that is broken between words, where it is longer than that.
fn wrapped(text: &str, width: usize) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_heads_are_broken() {
        let heads = ["name", "MB/s of all"].map(str::to_owned);
        let rows = [["a longer name", "7"], ["b", "12345"]].map(|row| row.map(str::to_owned).to_vec());
        let expected = "Title
                  MB/s
                    of
  name             all
  a longer name      7
  b              12345
";
        assert_eq!(super::text("Title", &heads, &rows), expected);
    }
}
