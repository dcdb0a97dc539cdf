//! Backups of headers, in files.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cryptline_luks::edit::Restore;

use super::seal::Renewed;
use super::{Edited, Header};
use crate::Result;
use crate::create::{Draft, MakingStep, Progress};
use crate::error::Problem;
use crate::keys::with_keys;

impl Header {
    /// Writes a backup of the header with its key slots to a new file, which only its owner can read.
    ///
    /// # Errors
    /// A file that exists already; a damaged header.
    pub fn backup(mut self, path: impl AsRef<Path>) -> Result<Edited> {
        let path = path.as_ref();
        // Refused before anybody waits for a key or a lock; until the backup is there, nothing is made.
        drop(Draft::new(path, false)?);
        let opened = self.open(true)?;
        let edit = opened.look()?;
        with_keys(|| self.demand(&opened, edit.header()))?;
        let backup = {
            let _lock = opened.lock_to_read()?;
            opened.on(edit.backup(&mut opened.device()?, opened.base.size()))?
        };
        self.step(MakingStep::Refuse)?;
        let draft = Draft::told(path, false, |progress| self.tell(progress))?;
        self.step(MakingStep::Head)?;
        let mut file = draft.file();
        let written =
            file.write_all(backup.bytes()).and_then(|()| file.set_permissions(PermissionsExt::from_mode(0o400)));
        written.map_err(|source| {
            let action = "write";
            Problem::Draft { action, source }.on(path.display())
        })?;
        self.step(MakingStep::Size)?;
        draft.sync()?;
        self.step(MakingStep::Name)?;
        draft.publish()?;
        Ok(Edited::of(edit.header().clone(), None))
    }

    fn step(&self, step: MakingStep) -> Result<()> {
        self.tell(Progress::Step(step))
    }

    /// Writes a backup back. What would be lost by that is told first, and an error of `confirm` leaves everything as it is.
    /// Key slots that lie behind the backup's end are overwritten.
    ///
    /// # Errors
    /// Fails for what is no backup, or one of other data, and where a device fails, after which it can be done again.
    pub fn restore(mut self, path: impl AsRef<Path>, confirm: impl FnOnce(&[String]) -> Result<()>) -> Result<Edited> {
        let bytes = read(path.as_ref())?;
        let opened = self.open(false)?;
        let size = opened.base.size();
        let restore = {
            let _lock = opened.lock_to_read()?;
            opened.on(Restore::prepare(bytes, &mut opened.device()?, size))?
        };
        // The header that will be there must keep the rules; nothing need be left of the one that is.
        let demanded = self.given.rules().check(restore.header(), &opened.name)?;
        demanded.expect(&opened.name)?;
        confirm(restore.concerns())?;
        let _locks = opened.locks(restore.known_by())?;
        let seal = demanded.expect(&opened.name)?;
        let renewed =
            seal.map_or(Renewed::No, |seal| Renewed::As { key_id: seal.key_id.clone(), counter: seal.counter });
        let freed = restore.freed();
        let restored = opened.written(restore.commit(&mut opened.device()?, size), &freed);
        self.noted(restored.map(|header| Edited { slot: None, token: None, warnings: Vec::new(), header }), renewed)
    }
}

/// All of a backup, of which more may follow.
fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| {
        let action = "read";
        Problem::Io { action, source }.on(path.display())
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let mut file = file.take(Restore::LEN_MAX);
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
