//! Zoned devices and encryption on them: order, appends, failures, and what a file keeps.

mod common;
mod conformance;
mod failures;
mod files;
mod order;
mod refusals;
