//! The man pages and the completions, made from the same options and rows as the help texts.
//!
//! `cargo run -p cryptline-pages FOLDER` writes all of them. They are no part of the repository, so they say what the
//! program says.

#![forbid(unsafe_code)]

pub mod man;
mod sections;

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use cryptline_cli::completions::{self, Shell};
use cryptline_cli::verb::program;

/// Shells and the names by which they find what completes a command line.
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "cryptline.bash"), (Shell::Fish, "cryptline.fish"), (Shell::Zsh, "_cryptline")];

/// Names and texts of all files.
///
/// # Errors
/// None that is known: they are made in memory.
pub fn files() -> io::Result<Vec<(String, String)>> {
    let mut files = man::pages(program(), &date())?;
    files.extend(SHELLS.map(|(shell, name)| (name.to_owned(), completions::script(shell, program()))));
    Ok(files)
}

/// The day of `SOURCE_DATE_EPOCH`, whose seconds say when the sources are from, as 2026-01-31. Empty without it, since
/// nothing may make the pages of two runs differ.
fn date() -> String {
    let seconds = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let time = seconds.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    time.map(|time| cryptline_cli::utc(time).chars().take_while(|letter| *letter != 'T').collect()).unwrap_or_default()
}
