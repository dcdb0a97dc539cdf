//! Headers of volumes that exist: key slots added, changed and removed; labels; backups.
//!
//! ```text
//!   lock ─ read ─ unlock the lock ─ ask for passphrases, derive keys ─ lock ─ compare ─ write ─ unlock
//! ```
//!
//! The lock is cryptsetup's own, so that neither program writes while the other does. Nobody waits for it while
//! somebody types. A volume that is in use by the kernel can be changed: what it needs of its header it has.

mod backup;
mod change;
mod convert;
pub(crate) mod lock;
mod opened;
mod own_device;
#[cfg(test)]
mod power_tests;
mod resize;
mod rotate;
mod seal;
mod token;
mod trust;
mod unbound;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use cryptline_luks::UnlockOptions;
use cryptline_luks::edit::{Edit, HeaderChange, LastSlot, NewSlot, Priority};
use cryptline_luks::token::EXEC_TOKEN;
use cryptline_sys::SecretBuf;

use crate::base::BaseSource;
use crate::create::{Observer, Progress};
use crate::error::Problem;
use crate::given::Given;
use crate::keys::{Key, KeyRequest, Keys, Passphrase, with_keys};
use crate::medium::Medium;
use crate::open::unlock_with;
use crate::setters::{setter_of_options, setters, setters_of_unlocking};
use crate::target::Target;
use crate::tokens;
use crate::{Result, Warning};

use change::ConfirmFn;
pub use change::Overwrite;
use opened::OpenedHeader;
pub use resize::{ResizeError, ResizeOptions, Resized};
pub use rotate::Rotation;
pub use seal::{SealOptions, Sealed};

/// The LUKS header of a volume that exists, to be changed.
///
/// ```no_run
/// use cryptline::Header;
/// use cryptline::luks::edit::NewSlot;
///
/// let header = Header::new("disk.img").passphrase("old").new_passphrase("another");
/// let edited = header.add_key(&NewSlot::default())?;
/// println!("key slot {:?}", edited.slot);
/// # Ok::<(), cryptline::Error>(())
/// ```
pub struct Header {
    given: Given,
    header: Option<PathBuf>,
    new_keys: Option<Result<Arc<dyn Keys>>>,
    observer: Option<Observer>,
    overwrite: Option<Box<ConfirmFn>>,
}

/// A header that was changed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Edited {
    /// The key slot that it was about.
    pub slot: Option<u32>,
    /// The token that it was about.
    pub token: Option<u32>,
    /// The header as it is now.
    pub header: cryptline_luks::LuksHeader,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

impl Edited {
    fn of(header: cryptline_luks::LuksHeader, slot: Option<u32>) -> Self {
        let warnings = header.warnings().iter().cloned().map(Warning::Header);
        Self { slot, token: None, warnings: warnings.collect(), header }
    }
}

impl Header {
    /// Of what `target` names: a path, `nbd://…`, `pmem:PATH` and so on.
    pub fn new(target: impl AsRef<OsStr>) -> Self {
        Self::of(Given::target(target))
    }

    /// Of a target.
    #[must_use]
    pub fn target(target: Target) -> Self {
        Self::of(BaseSource::Target(target).into())
    }

    /// Of anything that can be read and written.
    pub fn medium(medium: impl Medium) -> Self {
        Self::of(BaseSource::Medium(Arc::new(medium)).into())
    }

    fn of(given: Given) -> Self {
        Self { given, header: None, new_keys: None, observer: None, overwrite: None }
    }

    setter_of_options!();
    setters_of_unlocking!();

    setters! {
        /// Where the new passphrase comes from.
        fn new_keys(keys: impl Keys + 'static) { new_keys = Some(Ok(Arc::new(keys))) }
    }

    /// The new passphrase, of which a copy is kept in key memory.
    #[must_use]
    pub fn new_passphrase(mut self, passphrase: impl AsRef<[u8]>) -> Self {
        let keys = Passphrase::new(passphrase);
        self.new_keys = Some(keys.map(|keys| Arc::new(keys) as Arc<dyn Keys>));
        self
    }

    setters! {
        /// Told what happens. An error from it ends the work, as long as nothing has been written.
        fn on_progress(observer: impl Fn(Progress<'_>) -> Result<()> + Send + Sync + 'static) {
            observer = Some(Box::new(observer))
        }
    }

    /// Adds a passphrase.
    ///
    /// # Errors
    /// A wrong key, no free slot or room, a header that must be left alone.
    pub fn add_key(self, new: &NewSlot) -> Result<Edited> {
        self.with_unlocked(KeptKey::VolumeKey, |this, opened, edit, key, _| {
            let passphrase = this.new_passphrase_for(&opened.name)?;
            this.tell(Progress::Deriving)?;
            opened.on(edit.add(key, &passphrase, new))
        })
    }

    /// Removes the key slot that the passphrase opens.
    ///
    /// # Errors
    /// A wrong passphrase, the last key slot, a header that must be left alone.
    pub fn remove_key(self, last: LastSlot) -> Result<Edited> {
        self.with_unlocked(KeptKey::AnyKey, |_, opened, edit, _, old| {
            let old = old.ok_or_else(|| Problem::NotAPassphrase.on(&opened.name))?;
            Ok((opened.on(edit.remove(old.slot, last))?, old.slot))
        })
    }

    /// Removes a key slot. Where keys were given, they must open the volume by another one first; by the last one's own,
    /// where it is the last. A slot that keeps another key than the volume's shows nothing.
    ///
    /// # Errors
    /// As [`remove_key`](Self::remove_key).
    pub fn kill_slot(mut self, slot: u32, last: LastSlot) -> Result<Edited> {
        let opened = self.open(false)?;
        with_keys(|| {
            let edit = opened.load()?;
            let (change, header) = (opened.on(edit.remove(slot, last))?, edit.header());
            let key = if self.given.has_keys() {
                let rest = header.without_slot(slot);
                let by = if edit.is_last(slot) { header } else { &rest };
                Some(self.unlock_by(by, &opened, header, KeptKey::VolumeKey)?.key)
            } else {
                self.demand(&opened, header)?;
                None
            };
            self.commit(&opened, change, Some(slot), key.as_ref())
        })
    }

    /// Removes all key slots.
    ///
    /// # Errors
    /// A header that must be left alone; a device that fails.
    pub fn erase(self) -> Result<Edited> {
        self.changed(None, Edit::erase)
    }

    /// Says when a key slot is tried.
    ///
    /// # Errors
    /// No such slot; LUKS1; a header that must be left alone.
    pub fn set_priority(self, slot: u32, priority: Priority) -> Result<Edited> {
        self.changed(Some(slot), |edit| edit.set_priority(slot, priority))
    }

    /// Gives the volume another UUID; `None`: a random one.
    ///
    /// # Errors
    /// Fails for what is no UUID, and for a header that must be left alone.
    pub fn set_uuid(self, uuid: Option<&str>) -> Result<Edited> {
        let mut edited = self.changed(None, |edit| edit.set_uuid(uuid))?;
        let bound = edited.header.info().tokens.into_iter().filter(|token| token.kind == EXEC_TOKEN);
        edited.warnings.extend(bound.map(|token| Warning::FormerUuid { token: token.id }));
        Ok(edited)
    }

    /// Gives the volume another label or subsystem; what is `None` stays.
    ///
    /// # Errors
    /// Too long a text; LUKS1; a header that must be left alone.
    pub fn set_label(self, label: Option<&str>, subsystem: Option<&str>) -> Result<Edited> {
        self.changed(None, |edit| edit.set_label(label, subsystem))
    }

    /// Writes both copies of a LUKS2 header anew where one is damaged or older, and of LUKS1 what can be had again of key
    /// slots that say what cannot be; `None` where there is nothing to do. With `force` also where that costs what is
    /// there: another use of the device, what a copy says that is not understood, key slots and tokens that are not as the
    /// format has them.
    ///
    /// # Errors
    /// A header of which no copy is good; without `force`, what it would cost; a device that fails.
    pub fn repair(mut self, force: bool) -> Result<Option<Edited>> {
        let opened = self.open(false)?;
        with_keys(|| {
            let edit = opened.look()?;
            match opened.on(edit.repair(force))? {
                Some(change) => self.commit_sealed(&opened, change, None).map(Some),
                None => self.demand(&opened, edit.header()).map(|_| None),
            }
        })
    }

    /// Overwrites what no key slot uses of the place for key slots: a crash, or another program, can leave old key
    /// material there.
    ///
    /// # Errors
    /// A header that must be left alone; a device that fails.
    pub fn wipe_unused(self) -> Result<Edited> {
        self.changed(None, Edit::wipe_unused)
    }

    fn changed(
        mut self,
        slot: Option<u32>,
        change: impl FnOnce(&Edit) -> std::result::Result<HeaderChange<'_>, cryptline_luks::Error>,
    ) -> Result<Edited> {
        let opened = self.open(false)?;
        let edit = opened.load()?;
        let change = opened.on(change(&edit))?;
        with_keys(|| self.commit_sealed(&opened, change, slot))
    }

    /// Has a change made that takes keys, commits it, and warns where keys may be swapped out.
    fn with_key_memory(
        mut self,
        make: impl for<'a> FnOnce(&Self, &OpenedHeader, &'a Edit) -> Result<MadeSlot<'a>> + Send,
    ) -> Result<Edited> {
        let opened = self.open(false)?;
        with_keys(|| {
            let edit = opened.load()?;
            // Before a network or a helper is asked; the key proves the rest.
            self.given.rules().check_first(edit.header(), &opened.name)?;
            let made = make(&self, &opened, &edit)?;
            let mut edited = self.commit(&opened, made.change, Some(made.slot), made.key.as_ref())?;
            edited.token = made.token;
            edited.warnings.extend(made.warnings);
            edited.warnings.extend(Warning::of_key_memory());
            Ok(edited)
        })
    }

    /// The same once the volume is unlocked. `make` gets the volume key and, unless it was given itself, the slot that
    /// was opened.
    fn with_unlocked(
        self,
        opens: KeptKey,
        make: impl for<'a> FnOnce(
            &Self,
            &OpenedHeader,
            &'a Edit,
            &SecretBuf,
            Option<Old>,
        ) -> Result<(HeaderChange<'a>, u32)>
        + Send,
    ) -> Result<Edited> {
        self.with_key_memory(|this, opened, edit| {
            let UnlockedHeader { key, old, notes: warnings } = this.unlock(opened, edit.header(), opens)?;
            let (change, slot) = make(this, opened, edit, &key, old)?;
            Ok(MadeSlot { change, slot, token: None, warnings, key: Some(key) })
        })
    }

    /// The volume key, and the passphrase with its slot unless the volume key itself was given.
    fn unlock(
        &self,
        opened: &OpenedHeader,
        header: &cryptline_luks::LuksHeader,
        opens: KeptKey,
    ) -> Result<UnlockedHeader> {
        self.unlock_by(header, opened, header, opens)
    }

    /// The same by the key slots of `by`, which may have fewer. The rules are about the header that is there.
    fn unlock_by(
        &self,
        by: &cryptline_luks::LuksHeader,
        opened: &OpenedHeader,
        header: &cryptline_luks::LuksHeader,
        opens: KeptKey,
    ) -> Result<UnlockedHeader> {
        let mut demanded = self.given.rules().check(header, &opened.name)?;
        let unlocked = self.unlock_any(opened, by, opens)?;
        demanded.prove(header, &unlocked.key, &opened.name)?;
        self.check_trust(opened, header, unlocked.old.as_ref().map(|old| old.slot))?;
        demanded.finish(&opened.name)?;
        Ok(unlocked)
    }

    fn unlock_any(
        &self,
        opened: &OpenedHeader,
        header: &cryptline_luks::LuksHeader,
        opens: KeptKey,
    ) -> Result<UnlockedHeader> {
        let options = UnlockOptions {
            slot: self.given.slot,
            unbound: match opens {
                KeptKey::VolumeKey => false,
                KeptKey::AnyKey => self.given.slot.is_some(),
            },
            allow_null_cipher: false,
            limits: self.given.limits,
        };
        let mut device = opened.device()?;
        let mut notes = Vec::new();
        if let Some(tokens) = &self.given.tokens {
            let tried = tokens::unlock(tokens, header, &mut device, &opened.name, &options)?;
            notes = tried.notes;
            if let Some((key, slot, passphrase)) = tried.found {
                let old = Some(Old { slot, passphrase });
                return Ok(UnlockedHeader { key, old, notes });
            }
        }
        let keys = self.given.keys().map_err(|error| error.on(&opened.name))?;
        let (key, old) = unlock_with(header, device, &opened.name, keys, &options)?;
        let old = old.map(|(slot, passphrase)| Old { slot, passphrase });
        Ok(UnlockedHeader { key, old, notes })
    }

    fn new_passphrase_for(&self, name: &str) -> Result<SecretBuf> {
        let keys = match &self.new_keys {
            Some(Ok(keys)) => keys,
            Some(Err(_)) | None => return Err(Problem::NoNewKey.on(name)),
        };
        match keys.key(&KeyRequest::of_new(name))? {
            Some(Key::Passphrase(passphrase)) => Ok(passphrase),
            Some(Key::Volume(_)) => Err(Problem::NotAPassphrase.on(name)),
            None => Err(Problem::NoNewKey.on(name)),
        }
    }

    fn open(&mut self, read_only: bool) -> Result<OpenedHeader> {
        OpenedHeader::of(&self.source()?, read_only)
    }

    /// Returns what has the header.
    fn source(&mut self) -> Result<BaseSource> {
        let target = self.given.take_source()?;
        Ok(match &self.header {
            Some(path) => BaseSource::Target(Target::Path(path.clone())),
            None => target,
        })
    }

    fn tell(&self, progress: Progress<'_>) -> Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(progress))
    }
}

/// The key that a key slot must keep for what is to be done.
#[derive(Clone, Copy)]
enum KeptKey {
    /// Key of the volume.
    VolumeKey,
    /// Another one as well, where the slot is named.
    AnyKey,
}

/// A change that adds or replaces a key slot.
struct MadeSlot<'a> {
    change: HeaderChange<'a>,
    slot: u32,
    token: Option<u32>,
    warnings: Vec<Warning>,
    /// The key that was opened, which renews a seal.
    key: Option<SecretBuf>,
}

/// The volume key, and what it came by.
struct UnlockedHeader {
    key: SecretBuf,
    /// Unless the volume key itself was given.
    old: Option<Old>,
    /// Of tokens that were passed over.
    notes: Vec<Warning>,
}

/// The passphrase that was given, and its key slot.
struct Old {
    slot: u32,
    passphrase: SecretBuf,
}
