//! Device-mapper table lines: as targets, and of volumes.

use std::fmt;
use std::sync::Arc;

use cryptline_cipher::SectorOptions;
use cryptline_engine::table::{CryptTarget, Table};
use cryptline_sys::SecretBuf;

use crate::Result;
use crate::error::Problem;
use crate::keys::{copy_of, with_keys};

/// A `START LEN crypt ...` line. It has the volume key in it, so it stays in key memory.
#[derive(Clone)]
pub struct TableLine(Arc<SecretBuf>);

impl TableLine {
    /// A copy of `text` in key memory; the original is the caller's to wipe.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self(Arc::new(copy_of(text.as_ref())?)))
    }

    /// Its one target. For a stack that is wiped: it has the key.
    pub(crate) fn parse(&self) -> Result<CryptTarget> {
        let text = std::str::from_utf8(&self.0).map_err(|_| Problem::NoTable)?;
        let mut targets = Table::parse(text)?.into_targets();
        match (targets.pop(), targets.is_empty()) {
            (Some(target), true) => Ok(target),
            _ => Err(Problem::NoTable.into()),
        }
    }
}

impl From<Arc<SecretBuf>> for TableLine {
    fn from(line: Arc<SecretBuf>) -> Self {
        Self(line)
    }
}

/// The line with its key hidden.
impl fmt::Display for TableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = with_keys(|| Ok(self.parse()?.to_string()));
        f.write_str(shown.as_deref().unwrap_or("a table"))
    }
}

/// Says nothing of the key.
impl fmt::Debug for TableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableLine({self})")
    }
}

pub(crate) fn sectors(target: &CryptTarget) -> SectorOptions {
    SectorOptions {
        sector_size: target.options.sector_size,
        iv_offset: target.iv_offset,
        iv_large_sectors: target.options.iv_large_sectors,
    }
}
