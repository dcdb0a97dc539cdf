//! What `bench` measures and how it says it.
//!
//! ```text
//! inline  the script of the 2020 dm-devel thread ─┐              ┌─ table on standard output
//! sweep   every size, depth and dispatch mode    ─┤              │
//! subblock  writes of parts of cipher sectors    ─┼─► Report ─►──┼─ --json  (docs/bench-json.md)
//! peers   other people's servers, over NBD       ─┤              └─ --html  plots, on one page
//! media   what a request costs beside a copy     ─┤
//! zoned   sequential writes to encrypted zones   ─┘
//! ```
//!
//! A report exists only when everything was measured: a bench that fails ends with one line, and
//! writes no file.

pub mod contents;
pub mod foreign;
pub mod html;
pub mod inline;
pub mod load;
pub mod machine;
pub mod media;
pub mod nbd;
pub mod output;
pub mod peers;
pub mod plot;
pub mod progress;
pub mod report;
pub mod runner;
pub mod subblock;
pub mod sweep;
pub mod table;
pub mod volume;
pub mod zoned;

pub use output::Output;
pub use progress::Progress;
pub use report::Report;
