//! Changing a header that exists: key slots, priorities, labels, backups.
//!
//! ```text
//!   Edit::load   what the header says, whole: unknown members, reserved bytes and all
//!      │
//!      ├── add, replace, replace_in_place, remove, erase, set_priority, set_uuid, set_label, repair, convert
//!      ▼
//!   Change       all that will be written. Keys are derived by now, and nothing is written yet
//!      │
//!      ▼
//!   commit       header read again and compared ─ removed key material marked ─ flush ─ and overwritten ─ flush
//!                ─ new key material ─ flush ─ a header copy ─ flush ─ the other copy ─ flush
//!                ─ replaced key material overwritten ─ flush
//! ```
//!
//! So at any moment the old header or the new one opens with its passphrases, but for those that are
//! being removed: a key slot that the header no longer names is gone, and a removal that was cut off is
//! seen. Only where there is no room for another key slot, and its owner wants that, is one overwritten in place. The
//! lock that keeps other programs away is the caller's: held while the header is loaded, and again for
//! [`HeaderChange::commit`], not while somebody types a passphrase in between.
//!
//! LUKS1 has one copy. There the order of the steps, of which each changes one 512-byte sector, does
//! the same.
//!
//! The only good copy is never written first. Where the JSON would not come back word for word, the header is left
//! alone. A recovery key's slot and its token come in one step. In a slot that is overwritten in place, the first
//! sector is written last and says until then that the slot is gone. `crash_edit_tests.rs` cuts every change at every
//! write, with sectors torn and reordered.

mod backup;
mod convert;
mod gone;
mod luks1;
mod luks2;
mod seal;
mod text;
mod token;

use std::io::{Read, Seek, Write};

use serde_json::Value;

pub use self::backup::{Backup, Restore};
pub use self::token::{TokenPlace, TokenSlots};
pub use crate::luks2::metadata::Priority;

use crate::KdfLimits;
use crate::LuksHeader;
use crate::area::{Area, KeyArea, fill_random};
use crate::cost::{KdfCost, KdfKind};
use crate::device::{ReadSeek, flush, to_u64, write_in_order};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::luks2::{CopyState, Luks2Header};
use crate::options::parameters;
use crate::random::{self, Random};
use crate::unlock::check_passphrase;

/// Old key material is overwritten in pieces of so many bytes, of which each may fail. A key slot has several.
const WIPED_AT_ONCE: u64 = 64 << 10;

/// A header that was read to be changed.
pub struct Edit {
    header: LuksHeader,
    found: FoundHeader,
    /// Key slots that the header names and nothing opens any more ([`gone`]).
    gone: Vec<u32>,
}

/// Bytes of a header, and what else its changes depend on.
#[derive(Default, PartialEq)]
pub(crate) struct FoundHeader {
    /// LUKS1: the header. LUKS2: the binary part of the copy in use.
    raw: Vec<u8>,
    /// LUKS2: the JSON of that copy, as it is.
    json: Vec<u8>,
    /// Set if that JSON would not stay as it is when it is parsed and written again.
    is_lossy: bool,
    /// LUKS2: how both copies were found.
    copies: Vec<CopyState>,
    /// LUKS1 with all slots in use: the first sector of an empty place for another one.
    spare: Option<u32>,
    /// LUKS1: where odd key slots may lie, and whether anything is there.
    places: Vec<(u32, bool)>,
}

/// Parameters of a new key slot.
#[derive(Clone, Debug, Default)]
pub struct NewSlot {
    /// Its number; `None`: the lowest that is free.
    pub slot: Option<u32>,
    /// Key derivation function. `None`: Argon2id for LUKS2, PBKDF2 for LUKS1.
    pub kdf: Option<KdfKind>,
    /// Hash of PBKDF2 and of the splitter (LUKS2). `None`: `sha256`. LUKS1 has one for all slots.
    pub hash: Option<String>,
    /// Its cost.
    pub cost: KdfCost,
    /// Cipher of the key slot and the length of its key in bytes (LUKS2). `None`: that of the data if it will do.
    pub cipher: Option<(String, u32)>,
}

/// Permission to remove the last key slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSlot {
    /// The removal is refused.
    Keep,
    /// Afterwards only the volume key itself, or a backup of the header, opens the volume.
    Remove,
}

/// Writes to be made, in order.
#[must_use = "nothing is written before it is committed"]
pub struct HeaderChange<'a> {
    edit: &'a Edit,
    /// Key material that the header names until it is written.
    doomed: Vec<Area>,
    /// Key material that nothing names yet.
    material: Option<Material>,
    header: NewHeader,
    /// Key material that nothing names any longer.
    wiped: Vec<Area>,
    /// Key material that is written when all else is.
    last: Option<Material>,
    /// Writes that make the header one of another version, each durable before the next is begun; none where it stays what
    /// it is.
    conversion: Vec<Material>,
}

/// The makings of a new key slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotSecrets<'a> {
    key: &'a [u8],
    passphrase: &'a [u8],
    new: &'a NewSlot,
}

type ChangeResult<'a> = Result<HeaderChange<'a>, Error>;
/// A change that makes a key slot, and its number.
type SlotResult<'a> = Result<(HeaderChange<'a>, u32), Error>;

/// A place on the device, and what is to be there.
type Material = (u64, Vec<u8>);

/// Content of a changed header.
#[derive(Default)]
pub(crate) struct NewHeader {
    /// LUKS1: headers that follow each other. LUKS2: the binary part.
    raw: Vec<Vec<u8>>,
    /// LUKS2: its JSON.
    json: Vec<u8>,
}

/// Changes that each version of LUKS makes in its own way, of the header in [`Edit`], which has checked what is asked for.
pub(crate) trait HeaderEdit {
    fn find(&self, device: &mut dyn ReadSeek, size: u64) -> Result<FoundHeader, Error>;
    fn add<'a>(&self, edit: &'a Edit, secrets: &SlotSecrets<'_>) -> SlotResult<'a>;
    fn replace<'a>(&self, edit: &'a Edit, slot: u32, secrets: &SlotSecrets<'_>) -> SlotResult<'a>;
    fn replace_in_place<'a>(&self, edit: &'a Edit, slot: u32, secrets: &SlotSecrets<'_>) -> ChangeResult<'a>;
    fn remove<'a>(&self, edit: &'a Edit, slot: u32) -> ChangeResult<'a>;
    fn erase<'a>(&self, edit: &'a Edit) -> ChangeResult<'a>;
    fn set_uuid<'a>(&self, edit: &'a Edit, uuid: &str) -> ChangeResult<'a>;
    fn repair<'a>(&self, edit: &'a Edit, force: bool) -> Result<Option<HeaderChange<'a>>, Error>;
    fn wipe_unused<'a>(&self, edit: &'a Edit) -> ChangeResult<'a>;
    /// The key slots that keep the volume key and that a passphrase opens; `None` where it is not known which.
    fn keeping(&self) -> Option<Vec<u32>>;
    /// Checks that `key` is what the slot keeps.
    fn verify_key_of(&self, slot: u32, key: &[u8]) -> Result<(), Error>;
    /// Writes of a new header, each durable before the next is begun.
    fn writes(&self, new: &NewHeader) -> Result<Vec<Material>, Error>;
    /// Header that is there once these are done.
    fn changed(&self, edit: &Edit, new: &NewHeader) -> Option<LuksHeader>;
    /// Writes of a backup with this header, whose part before the key slots is `head`.
    fn restored(&self, head: &[u8], epoch: u64, is_primary_last: bool) -> Result<Vec<Material>, Error>;
}

impl Edit {
    /// Reads the header of `device`, which has `size` bytes.
    ///
    /// # Errors
    /// As [`crate::read`], and [`Error::JsonNotKept`].
    pub fn load(device: &mut (impl Read + Seek), size: u64) -> Result<Self, Error> {
        let edit = Self::look(device, size)?;
        edit.header.check_writable()?;
        edit.header.inner().check_not_newer()?;
        edit.check_kept()?;
        Ok(edit)
    }

    /// The same of a header that may be one to be read only: for [`backup`](Self::backup) and [`repair`](Self::repair).
    ///
    /// # Errors
    /// As [`crate::look`].
    pub fn look(device: &mut (impl Read + Seek), size: u64) -> Result<Self, Error> {
        let header = crate::look(device, size)?;
        let found = header.inner().find(device, size)?;
        let gone = gone::gone_slots(device, &header);
        Ok(Self { header, found, gone })
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &LuksHeader {
        &self.header
    }

    /// A new key slot in which `passphrase` opens `key`, the volume key; and its number.
    ///
    /// # Errors
    /// [`Error::WrongVolumeKey`], [`Error::SlotInUse`], [`Error::NoFreeSlot`], [`Error::NoRoom`],
    /// [`Error::Parameters`]; why the header must be left alone.
    pub fn add(&self, key: &[u8], passphrase: &[u8], new: &NewSlot) -> Result<(HeaderChange<'_>, u32), Error> {
        self.check_new(key, passphrase, new)?;
        self.header.inner().add(self, &SlotSecrets { key, passphrase, new })
    }

    /// A new key slot in which `passphrase` opens `key`, which is not that of the volume (LUKS2); and its number.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_unbound(&self, key: &[u8], passphrase: &[u8], new: &NewSlot) -> Result<(HeaderChange<'_>, u32), Error> {
        self.check_slot(passphrase, new)?;
        self.luks2("other keys")?.add_unbound(self, &SlotSecrets { key, passphrase, new })
    }

    /// Puts `passphrase` in the place of that of `slot`, which keeps its number in LUKS2 and moves to
    /// another slot in LUKS1, as with cryptsetup. The new one is whole before the old one goes. Where all slots of LUKS1
    /// are in use, it keeps its number and moves to an empty place, if there is one.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`Error::SlotNotInUse`]. After [`Error::NoFreeSlot`] and [`Error::NoRoom`],
    /// [`replace_in_place`](Self::replace_in_place) can do it.
    pub fn replace(
        &self,
        slot: u32,
        key: &[u8],
        passphrase: &[u8],
        new: &NewSlot,
    ) -> Result<(HeaderChange<'_>, u32), Error> {
        self.check_replacement(slot, key, passphrase, new)?;
        self.header.inner().replace(self, slot, &SlotSecrets { key, passphrase, new })
    }

    /// The same where there is no room beside the old one, which is overwritten: from the first write to the last one
    /// neither passphrase opens the slot, which counts as gone. The slot keeps its number.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn replace_in_place(
        &self,
        slot: u32,
        key: &[u8],
        passphrase: &[u8],
        new: &NewSlot,
    ) -> Result<HeaderChange<'_>, Error> {
        self.check_replacement(slot, key, passphrase, new)?;
        self.header.inner().replace_in_place(self, slot, &SlotSecrets { key, passphrase, new })
    }

    /// Overwrites the key material of a slot, and takes it out of the header.
    ///
    /// # Errors
    /// [`Error::SlotNotInUse`], [`Error::LastSlot`]; why the header must be left alone.
    pub fn remove(&self, slot: u32, last: LastSlot) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.check_in_use(slot)?;
        if last == LastSlot::Keep && self.is_last(slot) {
            return Err(Error::LastSlot(slot));
        }
        self.header.inner().remove(self, slot)
    }

    /// Overwrites the key material of all slots, and takes them out of the header. Afterwards only the volume key itself, or
    /// a backup of the header, opens the volume.
    ///
    /// # Errors
    /// Why the header must be left alone.
    pub fn erase(&self) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.header.inner().erase(self)
    }

    /// Says when a key slot is tried.
    ///
    /// # Errors
    /// [`Error::Parameters`] for LUKS1, [`Error::SlotNotInUse`]; why the header must be left alone.
    pub fn set_priority(&self, slot: u32, priority: Priority) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.check_in_use(slot)?;
        self.luks2("priorities of key slots")?.set_priority(self, slot, priority)
    }

    /// Gives the volume another UUID; `None`: a random one.
    ///
    /// # Errors
    /// [`Error::Parameters`]; why the header must be left alone.
    pub fn set_uuid(&self, uuid: Option<&str>) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        let uuid = match uuid {
            Some(uuid) if random::is_uuid(uuid) => uuid.to_owned(),
            Some(other) => return Err(parameters(format!("{} is not a UUID", quote(other)))),
            None => Random::Kernel.uuid("uuid")?,
        };
        self.header.inner().set_uuid(self, &uuid)
    }

    /// Gives the volume another label or subsystem; what is `None` stays.
    ///
    /// # Errors
    /// [`Error::Parameters`], also for LUKS1; why the header must be left alone.
    pub fn set_label(&self, label: Option<&str>, subsystem: Option<&str>) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.luks2("labels")?.set_label(self, label, subsystem)
    }

    /// Says how long the last segment of the data is, where the header says it.
    ///
    /// # Errors
    /// [`Error::Parameters`] for LUKS1, and where the data goes to the end of its device; [`Error::Invalid`] for what is
    /// no multiple of the cipher sector; why the header must be left alone.
    pub fn set_data_size(&self, size: u64) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.luks2("size of its data")?.set_data_size(self, size)
    }

    /// Writes both copies anew where they are not both good and the same, and of LUKS1 what can be had again of odd key
    /// slots; `None` where there is nothing to do. With `force` also where that costs what is there: another use of the
    /// device, what the newest copy says; and where both copies are good, key slots and tokens that are not as the format
    /// has them, as long as another key slot keeps the volume key.
    ///
    /// # Errors
    /// Without `force` as [`crate::read`]; [`Error::NewerVersion`]; [`Error::Repair`].
    pub fn repair(&self, force: bool) -> Result<Option<HeaderChange<'_>>, Error> {
        if !force {
            self.header.check_writable()?;
        }
        self.header.inner().repair(self, force)
    }

    /// Overwrites what no key slot uses of the place for key slots: a crash can leave old key material there.
    ///
    /// # Errors
    /// Why the header must be left alone.
    pub fn wipe_unused(&self) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.header.inner().wipe_unused(self)
    }

    // Guard: the last key of the data is not removed unasked.
    /// Tells if no other key slot keeps the volume key, or it is not known which ones do. One whose removal was cut off
    /// does not, nor does one that no passphrase opens.
    #[must_use]
    pub fn is_last(&self, slot: u32) -> bool {
        match self.header.inner().keeping() {
            Some(keeping) => {
                let mut others = keeping.iter().filter(|&other| *other != slot && !self.gone.contains(other));
                keeping.contains(&slot) && !self.gone.contains(&slot) && others.next().is_none()
            }
            None => true,
        }
    }

    fn luks2(&self, what: &str) -> Result<&Luks2Header, Error> {
        self.header.luks2().ok_or_else(|| parameters(format!("LUKS1 has no {what}")))
    }

    /// Refuses what may only be read, and what would not be the same but for the change.
    fn check_usable(&self) -> Result<(), Error> {
        let header = self.header.inner();
        header.check_writable()?;
        header.check_usable()?;
        header.check_understood()?;
        self.check_kept()
    }

    fn check_kept(&self) -> Result<(), Error> {
        if self.found.is_lossy { Err(Error::JsonNotKept) } else { Ok(()) }
    }

    fn check_in_use(&self, slot: u32) -> Result<(), Error> {
        let is_used = self.header.inner().areas().iter().any(|&(number, _)| number == slot);
        if is_used { Ok(()) } else { Err(Error::SlotNotInUse(slot)) }
    }

    fn check_new(&self, key: &[u8], passphrase: &[u8], new: &NewSlot) -> Result<(), Error> {
        self.check_slot(passphrase, new)?;
        // No header is written that another key would be found in.
        self.header.verify_volume_key(key, KdfLimits::NONE)
    }

    /// Checks that the slot may be replaced and keeps `key`.
    fn check_replacement(&self, slot: u32, key: &[u8], passphrase: &[u8], new: &NewSlot) -> Result<(), Error> {
        self.check_slot(passphrase, new)?;
        self.check_in_use(slot)?;
        self.header.inner().verify_key_of(slot, key)
    }

    fn check_slot(&self, passphrase: &[u8], new: &NewSlot) -> Result<(), Error> {
        check_passphrase(passphrase)?;
        self.check_usable()?;
        if let Some(name) = &new.hash
            && Hash::by_name(name)?.output_len() < HASH_LEN_MIN
        {
            let name = quote(name);
            return Err(parameters(format!("hash {name} is too short for a key slot")));
        }
        Ok(())
    }

    /// Checks that the header on the device is still the one that was loaded.
    fn check_unchanged(&self, device: &mut (impl Read + Seek), size: u64) -> Result<(), Error> {
        let now = Self::look(device, size).map_err(|error| match error {
            error @ Error::Io { .. } => error,
            _ => Error::ChangedMeanwhile,
        })?;
        if self.found == now.found { Ok(()) } else { Err(Error::ChangedMeanwhile) }
    }
}

impl<'a> HeaderChange<'a> {
    /// Another header, and nothing else.
    fn new(edit: &'a Edit, header: NewHeader) -> Self {
        let (doomed, wiped, conversion) = (Vec::new(), Vec::new(), Vec::new());
        Self { edit, doomed, material: None, header, wiped, last: None, conversion }
    }

    /// Returns the ranges that nothing uses any more when it is done.
    #[must_use]
    pub fn freed(&self) -> Vec<Area> {
        self.doomed.iter().filter(|_| self.last.is_none()).chain(&self.wiped).copied().collect()
    }

    /// Returns the edit that it is a change of.
    #[must_use]
    pub fn of(&self) -> &Edit {
        self.edit
    }

    /// The same with a change of the JSON (LUKS2) besides.
    fn and(self, change: impl FnOnce(&mut Value)) -> Result<Self, Error> {
        let header = self.edit.luks2("tokens")?;
        let read = serde_json::from_slice(&self.header.json);
        let mut json = read.map_err(|_| Error::invalid("the JSON cannot be read again"))?;
        change(&mut json);
        let NewHeader { json, .. } = header.rewrite(self.edit, &json)?.header;
        Ok(Self { header: NewHeader { json, ..self.header }, ..self })
    }

    /// The same with key material that overwrites what the header names. One sector, with the mark of what is gone in
    /// it, keeps anybody from taking a half for the whole; it is written last.
    fn in_place(self, (offset, mut bytes): Material) -> Self {
        let rest = bytes.split_off(bytes.len().min(gone::SECTOR_LEN));
        let start = to_u64(bytes.len());
        Self {
            doomed: vec![Area { offset, size: start }],
            material: Some((offset + start, rest)),
            last: Some((offset, bytes)),
            ..self
        }
    }

    /// Writes it to the device that the header was loaded from, which has `size` bytes now. A flush of the
    /// device must make durable what was written before.
    ///
    /// # Errors
    /// [`Error::ChangedMeanwhile`], and [`Error::Parameters`] of a conversion that would not open, with nothing written;
    /// [`Error::NotWiped`], with everything changed; [`Error::Io`], with the old header or the new one in place. What was
    /// to be removed may be gone by then.
    pub fn commit(self, device: &mut (impl Read + Write + Seek), size: u64) -> Result<LuksHeader, Error> {
        self.edit.check_unchanged(device, size)?;
        let is_converted = !self.conversion.is_empty();
        let writes = if is_converted { self.conversion } else { self.edit.header.inner().writes(&self.header)? };
        // The file of a detached header grows.
        let ends = writes.iter().chain(&self.material).map(|(offset, bytes)| offset + to_u64(bytes.len()));
        let end = ends.fold(size, u64::max);
        if is_converted {
            convert::check_result(device, [size, end], &writes)?;
        }
        // Told when the header is written: a place that cannot be overwritten keeps no slot in it.
        let doomed = gone::destroy(device, &self.doomed, size);
        if self.last.is_some()
            && let Err(Error::NotWiped { source, .. }) = doomed
        {
            return Err(*source);
        }
        write_in_order(device, self.material.as_slice())?;
        write_in_order(device, &writes)?;
        wipe(device, &self.wiped, end)?;
        write_in_order(device, self.last.as_slice())?;
        doomed?;
        crate::read(device, end)
    }
}

/// Overwrites old key material on a device of `size` bytes: all that can be, whatever fails of it, and returns the first
/// error. On media that write elsewhere (flash, copy on write) it may survive.
fn wipe(device: &mut (impl Write + Seek), extents: &[Area], size: u64) -> Result<(), Error> {
    let mut all = Ok(());
    for extent in extents {
        let size = extent.size.min(size.saturating_sub(extent.offset));
        for piece in (Area { size, ..*extent }).pieces(WIPED_AT_ONCE) {
            let noise = fill_random(device, piece, &Random::Kernel);
            all = all.and(gone::not_wiped(piece.offset, noise));
        }
        all = all.and(gone::not_wiped(extent.offset, flush(device)));
    }
    all
}

/// The bytes that `area` will hold.
fn material(area: KeyArea, secrets: &SlotSecrets<'_>) -> Result<Material, Error> {
    let (mut bytes, offset) = (std::io::Cursor::new(Vec::new()), area.offset);
    let at_start = KeyArea { offset: 0, ..area };
    at_start.store(&mut bytes, secrets.passphrase, secrets.key, &Random::Kernel)?;
    Ok((offset, bytes.into_inner()))
}

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
