//! Display of `cryptline top`.
//!
//! ```text
//! view     figures as text; a sample for a log
//! list     samples as a screen: a line for each export
//! screen   the terminal: drawn in place, left as it was found
//! ```

mod list;
pub mod screen;
mod view;

pub use list::Sort;
pub use view::sample_lines;
