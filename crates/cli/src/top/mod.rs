//! What `cryptline top` shows.
//!
//! ```text
//! sample   one JSON line of statistics, read with suspicion
//! view     a sample as text, for a terminal or for a log
//! screen   the terminal: drawn in place, left as it was found
//! ```

pub mod sample;
pub mod screen;
pub mod view;

pub use view::sample_lines;
