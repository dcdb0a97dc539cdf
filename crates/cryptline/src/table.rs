//! Device-mapper tables: as targets, and of volumes.

use std::fmt;
use std::sync::Arc;

use cryptline_cipher::SectorOptions;
use cryptline_engine::table::{CryptTarget, ParsedLine, Table};
use cryptline_sys::SecretBuf;

use crate::Result;
use crate::error::Problem;
use crate::keys::{copy_of, with_keys};

/// `START LEN crypt ...` lines and those of other targets, from sector 0 on. They have volume keys in them, so
/// they stay in key memory.
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

    /// Its lines. For a stack that is wiped: they have the keys.
    pub(crate) fn parse(&self) -> Result<Vec<ParsedLine>> {
        let text = std::str::from_utf8(&self.0).map_err(|_| Problem::NoTable)?;
        Ok(Table::parse(text)?.into_lines())
    }
}

impl From<Arc<SecretBuf>> for TableLine {
    fn from(line: Arc<SecretBuf>) -> Self {
        Self(line)
    }
}

/// The lines with their keys hidden, separated by commas as dmsetup's concise format has them.
impl fmt::Display for TableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = with_keys(|| {
            let lines = self.parse()?;
            let shown: Vec<_> = lines.iter().map(ParsedLine::to_string).collect();
            Ok(shown.join(","))
        });
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
