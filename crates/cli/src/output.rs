//! Printing. A reader that goes away (`cryptline info ... | head`) is no failure and no panic.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline::{Edited, Warning};
use serde_json::Value;

use crate::CliError;
use crate::error::on_one_line;

/// Set while a verb tells nothing of what it has done.
static HUSHED: AtomicBool = AtomicBool::new(false);

/// Has what follows say nothing on standard output, for callers that expect nothing there.
pub fn hush(on: bool) {
    HUSHED.store(on, Ordering::Relaxed);
}

/// Writes a line to standard error as it is, for programs that compare it.
pub fn say_bare(line: &str) {
    // Nobody is left to be told.
    let _ = writeln!(io::stderr(), "{}", on_one_line(line));
}

/// Writes `text` to standard output.
///
/// # Errors
/// Exit code 4 when standard output takes no more, such as a full disk; not for a closed pipe.
pub fn print(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Writes what need not be text, such as the name of a file.
pub fn print_bytes(text: &[u8]) -> Result<(), CliError> {
    if HUSHED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::device(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes `text` to standard error, where standard output is for something else.
///
/// # Errors
/// Exit code 4 where it takes no more.
pub fn print_to_stderr(text: &[u8]) -> Result<(), CliError> {
    let written = io::stderr().lock().write_all(text);
    written.map_err(|error| CliError::device(format!("cannot write to standard error: {error}")))
}

/// Set by `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Has reports of success, banners and progress left out from now on.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Tells if only what was asked for is to be printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes to standard output what was done, unless nobody wants to know.
pub fn report(text: &str) -> Result<(), CliError> {
    if is_quiet() { Ok(()) } else { print(text) }
}

/// The same for a line: `text` without anything that would end it before.
pub fn say(text: &str) -> Result<(), CliError> {
    report(&(on_one_line(text) + "\n"))
}

/// Returns what a change of a header came to, once its warnings are told.
///
/// # Errors
/// Why it was not changed.
pub fn changed(edited: cryptline::Result<Edited>) -> Result<Edited, CliError> {
    let edited = edited.map_err(CliError::of_header)?;
    warn_of(&edited.warnings);
    Ok(edited)
}

/// Writes a report to standard output: `json`, or `text`.
pub fn print_report(as_json: bool, json: &Value, text: &str) -> Result<(), CliError> {
    if as_json { print(&format!("{json:#}\n")) } else { print(text) }
}

/// Writes `cryptline: message` to standard error, or what `--log` makes of it.
pub fn complain(message: &str) {
    crate::log::error(message);
}

/// Writes each warning to standard error.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        crate::log::warning(warning);
    }
}

/// Writes each of the library's warnings to standard error. That keys could not be locked is said once.
pub fn warn_of(warnings: &[Warning]) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    for warning in warnings {
        if *warning == Warning::KeysNotLocked && TOLD.swap(true, Ordering::Relaxed) {
            continue;
        }
        warn(&[crate::error::warning(warning)]);
    }
}

/// `name` as a shell takes it: `?` and `&` of a URI are its own.
pub fn for_shell(name: &str) -> String {
    if name.contains(['?', '&']) && !name.contains('\'') { format!("'{name}'") } else { name.to_owned() }
}
