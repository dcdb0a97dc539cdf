//! The `cryptline` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cryptline_cli::main()
}
