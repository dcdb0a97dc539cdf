//! Device-mapper tables and the cipher words in them.
//!
//! Input that parses must print to a line that parses again and prints the same. Only not where a word is escaped: the
//! kernel takes backslashes away and does not put them back when it prints.

use cryptline_cipher::CipherSpec;
use cryptline_engine::table::Table;

/// Tries one input.
pub fn target(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let _ = CipherSpec::parse(text);
    let _ = Table::parse(text);
    let Ok(table) = Table::parse_grammar(text) else {
        return;
    };
    if text.contains('\\') {
        return;
    }
    for line in table.lines() {
        let start = line.span().start;
        let line = line.to_kernel_line(true, "7:0");
        // A line on its own must start at 0.
        if start == 0 {
            let again = Table::parse_grammar(&line).unwrap_or_else(|e| panic!("{}: {e}", *line));
            let reprinted = again.lines()[0].to_kernel_line(true, "7:0");
            assert_eq!(*line, *reprinted);
        }
    }
}
