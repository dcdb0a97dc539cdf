//! Set-up that unit tests share.

use std::path::PathBuf;

use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use cryptline_testkit::cache::{Cut, Machine, Names, Survivors, Temper};
use tempfile::TempDir;

use crate::durable::watched;

/// Options of a header that costs next to nothing to open.
pub(crate) fn cheap(version: LuksVersion) -> FormatOptions {
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    FormatOptions { version, kdf: Some(KdfKind::Pbkdf2), cost, ..FormatOptions::default() }
}

/// A folder whose files lose what was not synced.
pub(crate) struct LosingFolder {
    pub machine: &'static Machine,
    pub folder: TempDir,
}

impl LosingFolder {
    pub fn new() -> Self {
        Self { machine: watched::machine(), folder: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Takes what is there as durable, and what comes now, if it is synced. No file has more than `capacity` bytes.
    pub fn begin(&self, capacity: usize) {
        self.machine.reset(Temper::default());
        self.machine.watch(self.folder.path(), capacity);
    }
}

impl Drop for LosingFolder {
    fn drop(&mut self) {
        // The folder goes.
        self.machine.reset(Temper::default());
    }
}

/// Outcomes of a power cut, and of the death of the process.
pub(crate) fn cuts() -> Vec<Cut> {
    let some = (0..4).map(Survivors::Some);
    let contents: Vec<_> = [Survivors::None, Survivors::All].into_iter().chain(some).collect();
    let names = [Names::Durable, Names::Latest].into_iter();
    names.flat_map(|names| contents.iter().map(move |&content| Cut { names, content })).collect()
}
