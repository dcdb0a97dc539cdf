//! `bench` and `benchmark`: prints what was measured.

use std::io::{self, Write};
use std::process::ExitCode;

use cryptline_bench::{Error, Printed};

use crate::CliError;

/// Prints a report when all of it is there.
///
/// # Errors
/// Why there is none, or exit code 4 when standard output takes no more.
pub fn print(measured: Result<Printed, Error>) -> Result<ExitCode, CliError> {
    let printed = measured.map_err(|error| CliError::new(error.kind(), error.to_string()))?;
    // Nobody is left to be told when this fails.
    let _ = io::stderr().write_all(printed.stderr.as_bytes());
    crate::output::print(&printed.stdout)?;
    crate::output::warn(&printed.warnings);
    Ok(ExitCode::SUCCESS)
}
