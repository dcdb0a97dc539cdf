//! The man pages and the completions, made from the same table of options as the help texts.
//!
//! `cargo run -p cryptline-pages FOLDER` writes all of them. They are no part of the repository, so they say what the
//! program says.

#![forbid(unsafe_code)]

pub mod man;
mod sections;

use std::io;

use clap::CommandFactory as _;
use cryptline_cli::cmd::completions::{self, Shell};
use cryptline_cli::command_line::Cli;

/// Shells and the names by which they find what completes a command line.
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "cryptline.bash"), (Shell::Fish, "cryptline.fish"), (Shell::Zsh, "_cryptline")];

/// Names and texts of all files.
///
/// # Errors
/// None that is known: they are made in memory.
pub fn files() -> io::Result<Vec<(String, String)>> {
    let mut files = man::pages(Cli::command())?;
    files.extend(SHELLS.map(|(shell, name)| (name.to_owned(), completions::script(shell, Cli::command()))));
    Ok(files)
}
