//! Zoned devices and encryption on them: order, appends, failures, and what a file keeps.

#[path = "zoned/common.rs"]
mod common;
#[path = "zoned/conformance.rs"]
mod conformance;
#[path = "zoned/failures.rs"]
mod failures;
#[path = "zoned/files.rs"]
mod files;
#[path = "zoned/order.rs"]
mod order;
#[path = "zoned/refusals.rs"]
mod refusals;
