//! Seals in files beside their headers.

use std::path::Path;

use cryptline_luks::seal::Seal;

use super::{RulesError, read_small};
use crate::{Result, durable};

/// Writes a seal to a file, in the place of what it has been.
pub(crate) fn write(path: &Path, seal: &Seal) -> Result<()> {
    let text = format!("{}\n", seal.to_json());
    let written = durable::replace(path, text.as_bytes(), durable::Replaced::Any);
    Ok(written.map_err(|source| RulesError::Write { path: path.into(), source })?)
}

/// The seal in a file; `None` where there is no file.
///
/// # Errors
/// A file that holds none, which is then no place for one.
pub(crate) fn read(path: &Path) -> Result<Option<Seal>> {
    if !path.exists() {
        return Ok(None);
    }
    let seal = Seal::parse_text(&read_small(path, "seal")?).map_err(cryptline_luks::Error::from)?;
    Ok(Some(seal))
}
