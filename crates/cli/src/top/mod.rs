//! Display of `cryptline top`.
//!
//! ```text
//! view     a sample as text, for a terminal or for a log
//! screen   the terminal: drawn in place, left as it was found
//! ```

pub mod screen;
pub mod view;

pub use view::{Sort, sample_lines};
