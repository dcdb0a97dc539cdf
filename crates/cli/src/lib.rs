//! The `cryptline` program: from a command line to a volume and what is done with it.
//!
//! ```text
//! main ─► command_line (clap) ─► cmd/<verb> ─► cryptline::Open ─► Volume ─► serve
//!                                   │    │
//!                                   │    └─ error   one line that names options and verbs, and cryptsetup's exit code
//!                                   └─ args         options that verbs share: about a volume, about its key
//! ```
//!
//! A library, so that its tests and the generators of man pages and completions reach it.

#![forbid(unsafe_code)]

mod advice;
mod again;
pub mod args;
mod attached;
mod cmd;
pub mod command_line;
mod cryptsetup;
mod error;
mod fido2;
mod harden;
mod key_program;
mod log;
mod new_file;
mod output;
pub mod paragraphs;
mod progress;
mod serve;
mod short_help;
mod terminal;
mod tips;
mod top;
pub mod verb;
mod version;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};

pub use cmd::completions;
use command_line::Cli;
pub(crate) use cryptline::size;
pub use error::CliError;
pub use log::utc;

/// The control socket, and what it is about, for a server that is made elsewhere: the simulator's.
#[doc(hidden)]
pub mod control {
    pub use crate::serve::control::{ControlSocket, HowServed, ServerControl};
    pub use crate::serve::doors::DoorRun as ControlRun;
    pub use crate::serve::front::ServedVolume;
    pub use crate::serve::volumes::Volumes;
}

/// Parses the command line. Help texts are made only where it is not carried out: for help, and for errors, which may quote
/// some. With hundreds of options that takes milliseconds.
fn parse(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let verb = arguments.get(1).map(OsString::as_os_str);
    if let Ok(matches) = Cli::of_verb(verb).try_get_matches_from(arguments) {
        return Ok(matches);
    }
    let program = verb::program();
    let program = if short_help::is_asked_for(arguments) {
        short_help::shortened(program, arguments)
    } else {
        verb::grouped(program)
    };
    program.try_get_matches_from(arguments)
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    log::install();
    harden::outlive_file_size_limit();
    let given = args::verb_first(args::arguments());
    if let Some(line) = cryptsetup::arguments(&given) {
        let code = cryptsetup::run(line);
        cryptline_sys::exit_without_destructors();
        return code;
    }
    let (arguments, word) = verb::in_our_words(cmd::words::in_full(given));
    let parsed = parse(&arguments).and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let code = match parsed {
        Ok((cli, matches)) => {
            args::set_verb(word.unwrap_or(advice::name_of_verb(&matches)));
            if cli.common.quiet {
                output::be_quiet();
            }
            cli.command.run(matches.subcommand_name().unwrap_or_default()).unwrap_or_else(|error| {
                let error = error.to_user_of(&advice::verb_of(verb::program(), &matches));
                output::complain(&error.to_string());
                ExitCode::from(error.exit_code())
            })
        }
        Err(usage) => {
            // clap's own code for a wrong command line is 2, which here means a wrong passphrase.
            let code = u8::from(usage.use_stderr());
            // Nobody is left to be told when printing fails.
            let _ = tips::mended(usage).print();
            ExitCode::from(code)
        }
    };
    cryptline_sys::exit_without_destructors();
    code
}
