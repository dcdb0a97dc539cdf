//! Printing. A reader that goes away (`cryptline info ... | head`) is no failure and no panic.

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline::Warning;

use crate::CliError;

/// Writes `text` to standard output.
///
/// # Errors
/// Exit code 4 when standard output takes no more, such as a full disk; not for a closed pipe.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::device(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Writes `cryptline: message` to standard error.
pub fn complain(message: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr(), "cryptline: {message}");
}

/// Writes each warning to standard error.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        complain(&format!("warning: {}", crate::error::on_one_line(warning)));
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
