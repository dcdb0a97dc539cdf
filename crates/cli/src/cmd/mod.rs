//! One file for each verb: its arguments, its help, and `run`.

mod bench;
pub mod btt;
pub mod completions;
pub mod create;
pub mod info;
pub mod man;
pub mod open;
pub mod serve;
pub mod table;
pub mod top;
pub mod zones;

use std::process::ExitCode;

use crate::CliError;
use crate::args::Command;
use crate::harden::protect_process;

/// Runs one verb.
///
/// # Errors
/// What to tell the user, and the exit code.
pub fn run(command: Command) -> Result<ExitCode, CliError> {
    let touches_keys = matches!(
        command,
        Command::Serve(_) | Command::Open(_) | Command::Create(_) | Command::Table(_)
    );
    if touches_keys {
        protect_process();
    }
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Create(args) => create::run(&args),
        Command::Table(args) => table::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Bench(args) => bench::print(cryptline_bench::run(&args)),
        Command::Benchmark(args) => bench::print(cryptline_bench::benchmark(&args)),
        Command::Btt(args) => btt::run(&args),
        Command::Zones(args) => zones::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
