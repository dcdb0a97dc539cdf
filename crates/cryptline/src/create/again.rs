//! A volume that is filled, and whose filling goes on later.
//!
//! ```text
//! header ─► first record ─► data, under its key, and records of how far it is ─► its name
//! ```
//!
//! The unfinished file has another name, so its header comes first: the next run takes the volume key from it. Nothing
//! tells of a header that was not made durable, since the first record comes behind it.

use std::path::Path;
use std::sync::atomic::Ordering;

use cryptline_engine::base::Image;
use cryptline_luks::{KdfLimits, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;

use super::fill::{Prepared, Rest};
use super::{Create, Created, Draft, Durable, Progress};
use crate::Result;
use crate::Zeroes;
use crate::copy::{Copy, Found, Journal, Left, Moved, ResumeError, Room, Transfer, Trouble};
use crate::error::Problem;
use crate::keys::with_keys;
use crate::target::Target;

impl Create {
    /// In a new file, going on where an earlier run has ended.
    pub(super) fn in_file_again(&self, path: &Path, mut copy: Copy, how: &str) -> Result<Created> {
        let name = path.display().to_string();
        copy.source.refuse_same(&Target::Path(path.to_owned()))?;
        copy.refuse_zones(None, &name)?;
        // Another header would be another volume.
        let how = format!("{how} {:?} {:?} {:?}", copy.holes, self.size, self.format);
        let source = copy.source.fingerprint(&how).zip(copy.source.size());
        let no_source = || Problem::Resume(ResumeError::Source).on(copy.source.name());
        let (source, size) = source.ok_or_else(no_source)?;
        let draft = Draft::kept(path, self.replace)?;
        let part = || draft.path().to_owned();
        let kept = |error| Trouble::Grow(error).into_kept(&copy, &name);
        let found = Journal::find(draft.file(), size, source).map_err(kept)?;
        let passphrase = with_keys(|| self.new_passphrase(&name))?;
        let (journal, prepared, end) = match found {
            Found::Another => {
                return Err(Problem::Resume(ResumeError::Changed { part: part() }).on(&name));
            }
            Found::Same(record) => {
                let prepared = self.begun(&draft, &name, passphrase)?;
                let room = self.room(&prepared, size, &name)?;
                let journal = Journal::go_on(draft.file(), room, record);
                (journal, prepared, room.end)
            }
            Found::Nothing => {
                let data = size.next_multiple_of(512);
                let prepared = self.prepare(&name, passphrase, data, &self.format)?;
                let room = self.room(&prepared, size, &name)?;
                let first = || self.put_prepared(Durable(draft.file()), &prepared, Rest::IsZeros);
                let journal = Journal::begin(draft.file(), room, size, source, first);
                (journal.map_err(kept)?, prepared, room.end)
            }
        };
        if self.preallocate {
            draft.reserve(end)?;
        }
        let moved = self.fill_again(&draft, &name, &prepared, &copy, &journal)?;
        if copy.stop.load(Ordering::Relaxed) {
            return Err(Problem::CopyStopped(Left::Kept).on(name));
        }
        draft.set_size(end, self.preallocate)?;
        draft.sync()?;
        let data_size = self.check_file(&draft, &name, &prepared)?;
        draft.publish(self.replace)?;
        Ok(self.created(data_size, copy.copied(moved, Vec::new())))
    }

    fn room(&self, prepared: &Prepared, size: u64, name: &str) -> Result<Room> {
        let start = prepared.start;
        let least = start + size.next_multiple_of(prepared.sector);
        let end = self.size.unwrap_or(least);
        if end < least {
            let (has, needs) = (end.saturating_sub(start), least - start);
            return Err(Problem::CopyTooSmall { has, needs }.on(name));
        }
        Ok(Room { start, end })
    }

    /// The header that an earlier run has made.
    fn begun(&self, draft: &Draft, name: &str, passphrase: SecretBuf) -> Result<Prepared> {
        let part = draft.path().to_owned();
        let damaged = |error| Problem::Luks(error).on(part.display());
        let image = Image::open(draft.path(), true)?;
        with_keys(move || {
            let mut file = image.file();
            let header = cryptline_luks::read(&mut file, image.size()).map_err(damaged)?;
            let options = UnlockOptions {
                // The costs are those that were asked for.
                limits: KdfLimits::NONE,
                allow_null_cipher: self.format.allow_null_cipher,
                ..UnlockOptions::default()
            };
            let key = match header.unlock(&mut file, &passphrase, &options) {
                Ok(unlocked) => unlocked.key,
                Err(cryptline_luks::Error::NoKey) => {
                    let part = draft.path().to_owned();
                    return Err(Problem::Resume(ResumeError::OtherKey { part }).on(name));
                }
                Err(error) => return Err(damaged(error)),
            };
            let policy = SegmentPolicy {
                allow_null_cipher: self.format.allow_null_cipher,
                detached: false,
            };
            let segments = header.segments(policy).map_err(damaged)?;
            let (start, sector) = (segments[0].offset, segments[0].sector_size);
            Ok(Prepared {
                // It is on disk.
                bytes: Vec::new(),
                start,
                header,
                key,
                passphrase,
                sector: sector.into(),
            })
        })
    }

    fn fill_again(
        &self,
        draft: &Draft,
        name: &str,
        prepared: &Prepared,
        copy: &Copy,
        journal: &Journal<'_>,
    ) -> Result<Moved> {
        if !self.agrees(draft, name, prepared, copy, journal)? {
            let part = draft.path().to_owned();
            return Err(Problem::Resume(ResumeError::Changed { part }).on(name));
        }
        let volume = self.volume_in(draft, name, prepared, Zeroes::Decrypt)?;
        let tell = |progress: Progress<'_>| self.tell(progress);
        let transfer = Transfer::new(copy, volume.gate(), copy.holes.written_as(), &tell);
        let moved = transfer.again(journal).run();
        let moved = moved.map_err(|trouble| trouble.into_kept(copy, name))?;
        if !copy.source.is_unchanged() {
            // Nobody should go on with it.
            let _ = std::fs::remove_file(draft.path());
            return Err(Problem::Resume(ResumeError::ChangedNow).on(name));
        }
        Ok(moved)
    }

    /// Whether what was copied is from this source.
    fn agrees(
        &self,
        draft: &Draft,
        name: &str,
        prepared: &Prepared,
        copy: &Copy,
        journal: &Journal<'_>,
    ) -> Result<bool> {
        let Some(from) = copy.source.gate() else {
            return Ok(true);
        };
        let volume = self.volume_in(draft, name, prepared, copy.holes.read_as())?;
        journal.agrees(from, volume.gate())
    }
}
