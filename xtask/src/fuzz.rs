//! Fuzzing: a real run of each target. That no committed input breaks anything is an ordinary test of `tools/fuzzing`.

use crate::step::{Failed, command};

/// Fuzzes each target for so many seconds.
pub fn run(seconds: u32) -> Result<(), Failed> {
    command("bash", &["fuzz/run.sh", &seconds.to_string()])
}
