//! Seals in files beside their headers.

use std::fs::File;
use std::io;
use std::path::Path;

use cryptline_luks::seal::Seal;

use super::{RulesError, read_open};
use crate::places::open_unwaiting;
use crate::{Result, durable};

/// A place for a seal, as it was when it was looked at.
pub(crate) struct SideFile<'a> {
    path: &'a Path,
    /// File and seal that were there.
    old: Option<(File, Seal)>,
}

impl<'a> SideFile<'a> {
    /// Looks at a place.
    ///
    /// # Errors
    /// A file that holds no seal, which is then no place for one.
    pub fn look(path: &'a Path) -> Result<Self> {
        let failed = |source| RulesError::Read { what: "seal", path: path.into(), source };
        let file = match open_unwaiting(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { path, old: None }),
            opened => opened.map_err(failed)?,
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no regular file")).into());
        }
        let none = |_| {
            let source = io::Error::other("it exists already and holds something else; use another name");
            RulesError::Write { path: path.into(), source }
        };
        let seal = Seal::parse_text(&read_open(&file, path, "seal")?).map_err(none)?;
        Ok(Self { path, old: Some((file, seal)) })
    }

    /// The seal that was there.
    pub fn seal(&self) -> Option<&Seal> {
        self.old.as_ref().map(|(_, seal)| seal)
    }

    /// Writes a seal there, as long as nothing else has come.
    pub fn write(&self, seal: &Seal) -> Result<()> {
        let text = format!("{}\n", seal.to_json());
        let old = self.old.as_ref().map(|(file, _)| file);
        let written = durable::replace(self.path, text.as_bytes(), old);
        Ok(written.map_err(|source| RulesError::Write { path: self.path.into(), source })?)
    }
}
