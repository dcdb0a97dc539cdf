//! Reading the table of `--table`. It holds keys, so it never leaves key memory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use cryptline::{TableLine, Target};

use super::table_argument::TableArgument;
use crate::CliError;

/// A table line is a few hundred bytes; this is far beyond any table.
const TEXT_MAX: usize = 64 * 1024;

/// The target that the argument stands for.
///
/// # Errors
/// Exit code 4 where it cannot be read, 1 where it is no table.
pub fn target(argument: &TableArgument) -> Result<Target, CliError> {
    let (name, file) = match argument {
        TableArgument::Line(line) => {
            return Ok(Target::Table(TableLine::from(Arc::clone(line))));
        }
        TableArgument::Input => ("standard input".to_owned(), super::keys::stdin()),
        TableArgument::File(path) => (path.display().to_string(), File::open(path)),
    };
    let failed = |error: io::Error| CliError::device(format!("cannot read the table from {name}: {error}"));
    let text = cryptline::keys::read_up_to(file.map_err(failed)?, 0, TEXT_MAX + 1)
        .map_err(|error| CliError::from(error).of(&name))?;
    if text.len() > TEXT_MAX {
        return Err(CliError::parameters(format!(
            "{name} is longer than 64 KiB, so it is no table; use `START LEN crypt ...` lines"
        )));
    }
    if std::str::from_utf8(&text).is_err() {
        return Err(CliError::parameters(format!("{name} is not text; use `START LEN crypt ...` lines")));
    }
    Ok(Target::Table(TableLine::from(Arc::new(text))))
}
