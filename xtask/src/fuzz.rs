//! Fuzzing: a real run of each target. That no committed input breaks anything is an ordinary test of `tools/fuzzing`.

use std::process::Command;

use crate::step::{Failed, run as run_command};

/// Seconds for each target: an hour for all of them on two processors.
const SECONDS: u32 = 380;

/// Fuzzes each target, at the lowest priority there is: somebody else's work goes first.
pub fn run() -> Result<(), Failed> {
    let mut fuzz = Command::new("nice");
    run_command(fuzz.args(["-n", "19", "bash", "fuzz/run.sh", &SECONDS.to_string()]))
}
