//! Changing a header that exists: key slots, priorities, labels, backups.
//!
//! ```text
//!   Edit::load   what the header says, whole: unknown members, reserved bytes and all
//!      │
//!      ├── add, replace, replace_in_place, remove, erase, set_priority, set_uuid, set_label, repair
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

pub use self::backup::{Backup, Restore};
pub use self::convert::Conversion;
pub use self::token::{TokenPlace, TokenSlots};
pub use crate::luks2::metadata::Priority;

use crate::KdfLimits;
use crate::LuksHeader;
use crate::area::{Area, KeyArea, fill_random};
use crate::cost::{KdfCost, KdfKind};
use crate::device::{flush, read_at, to_u64, write_at};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::luks2::binary::BINARY_LEN;
use crate::options::parameters;
use crate::random::{self, Random};
use crate::unlock::check_passphrase;

/// Old key material is overwritten in pieces of so many bytes, of which each may fail. A key slot has several.
const WIPED_AT_ONCE: u64 = 64 << 10;

/// A header that was read to be changed.
pub struct Edit {
    header: LuksHeader,
    /// LUKS1: the header. LUKS2: the binary part of the copy in use.
    raw: Vec<u8>,
    /// LUKS2: the JSON of that copy, as it is.
    json: Vec<u8>,
    /// Set if that JSON stays as it is when it is parsed and written again.
    is_kept: bool,
    /// Key slots that the header names and nothing opens any more ([`gone`]).
    gone: Vec<u32>,
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
    material: Vec<Material>,
    header: NewHeader,
    /// Key material that nothing names any longer.
    wiped: Vec<Area>,
    /// Key material that is written when all else is.
    last: Option<Material>,
}

/// The makings of a new key slot.
#[derive(Clone, Copy)]
struct SlotSecrets<'a> {
    key: &'a [u8],
    passphrase: &'a [u8],
    new: &'a NewSlot,
}

/// A key slot's place on the device, and what is to be there.
type Material = (u64, Vec<u8>);

/// The changes that each version of LUKS makes in its own way. [`Edit`] has checked what is asked for.
trait VersionEdit<'a> {
    fn add(&self, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error>;
    fn replace(&self, slot: u32, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error>;
    fn replace_in_place(&self, slot: u32, secrets: &SlotSecrets<'_>) -> Result<HeaderChange<'a>, Error>;
    fn remove(&self, slot: u32) -> Result<HeaderChange<'a>, Error>;
    fn erase(&self) -> Result<HeaderChange<'a>, Error>;
    fn set_uuid(&self, uuid: &str) -> Result<HeaderChange<'a>, Error>;
    fn wipe_unused(&self) -> Result<HeaderChange<'a>, Error>;
}

enum NewHeader {
    /// One after the other, each flushed.
    V1(Vec<Vec<u8>>),
    V2 {
        raw: Vec<u8>,
        json: Vec<u8>,
    },
}

impl Edit {
    /// Reads the header of `device`, which has `size` bytes.
    ///
    /// # Errors
    /// As [`crate::read`], and [`Error::JsonNotKept`].
    pub fn load(device: &mut (impl Read + Seek), size: u64) -> Result<Self, Error> {
        let edit = Self::look(device, size)?;
        edit.check_writable()?;
        if let LuksHeader::V2(header) = &edit.header {
            luks2::check_not_newer(header)?;
        }
        if edit.is_kept { Ok(edit) } else { Err(Error::JsonNotKept) }
    }

    /// The same of a header that may be one to be read only: for [`backup`](Self::backup) and [`repair`](Self::repair).
    ///
    /// # Errors
    /// As [`crate::look`].
    pub fn look(device: &mut (impl Read + Seek), size: u64) -> Result<Self, Error> {
        let header = crate::look(device, size)?;
        let (raw, json, is_kept) = match &header {
            LuksHeader::V1(_) => (luks1::raw(device)?, Vec::new(), true),
            LuksHeader::V2(header) => {
                let offset = header.binary.offset(header.copy);
                let mut raw = vec![0; BINARY_LEN];
                read_at(device, offset, &mut raw, "the LUKS2 header")?;
                let json = luks2::json_of(device, header)?;
                let is_kept = luks2::is_kept(&json, header);
                (raw, json, is_kept)
            }
        };
        let gone = gone::gone_slots(device, &header);
        let (spare, places) = match &header {
            LuksHeader::V1(header) => {
                (luks1::spare(device, header, size), crate::luks1::places(device, header, &raw, size))
            }
            LuksHeader::V2(_) => (None, Vec::new()),
        };
        Ok(Self { header, raw, json, is_kept, gone, spare, places })
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
        self.version().add(&SlotSecrets { key, passphrase, new })
    }

    /// A new key slot in which `passphrase` opens `key`, which is not that of the volume (LUKS2); and its number.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_unbound(&self, key: &[u8], passphrase: &[u8], new: &NewSlot) -> Result<(HeaderChange<'_>, u32), Error> {
        self.check_slot(passphrase, new)?;
        self.luks2("other keys")?.add_unbound(&SlotSecrets { key, passphrase, new })
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
        self.version().replace(slot, &SlotSecrets { key, passphrase, new })
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
        self.version().replace_in_place(slot, &SlotSecrets { key, passphrase, new })
    }

    /// Overwrites the key material of a slot, and takes it out of the header.
    ///
    /// # Errors
    /// [`Error::SlotNotInUse`], [`Error::LastSlot`]; why the header must be left alone.
    pub fn remove(&self, slot: u32, last: LastSlot) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.check_in_use(slot)?;
        if last == LastSlot::Keep && self.is_last(slot) {
            return Err(Error::LastSlot(Some(slot)));
        }
        self.version().remove(slot)
    }

    /// Overwrites the key material of all slots, and takes them out of the header.
    ///
    /// # Errors
    /// [`Error::LastSlot`] unless `last` allows it; why the header must be left alone.
    pub fn erase(&self, last: LastSlot) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        if last == LastSlot::Keep {
            return Err(Error::LastSlot(None));
        }
        self.version().erase()
    }

    /// Says when a key slot is tried.
    ///
    /// # Errors
    /// [`Error::Parameters`] for LUKS1, [`Error::SlotNotInUse`]; why the header must be left alone.
    pub fn set_priority(&self, slot: u32, priority: Priority) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.check_in_use(slot)?;
        self.luks2("priorities of key slots")?.set_priority(slot, priority)
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
        self.version().set_uuid(&uuid)
    }

    /// Gives the volume another label or subsystem; what is `None` stays.
    ///
    /// # Errors
    /// [`Error::Parameters`], also for LUKS1; why the header must be left alone.
    pub fn set_label(&self, label: Option<&str>, subsystem: Option<&str>) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.luks2("labels")?.set_label(label, subsystem)
    }

    /// Says how long the last segment of the data is, where the header says it.
    ///
    /// # Errors
    /// [`Error::Parameters`] for LUKS1, and where the data goes to the end of its device; [`Error::Invalid`] for what is
    /// no multiple of the cipher sector; why the header must be left alone.
    pub fn set_data_size(&self, size: u64) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.luks2("size of its data")?.set_data_size(size)
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
            self.check_writable()?;
        }
        match &self.header {
            LuksHeader::V1(header) if header.odd.is_empty() => Ok(None),
            LuksHeader::V1(header) => luks1::Luks1Editing { edit: self, header }.repaired(force).map(Some),
            LuksHeader::V2(header) => {
                luks2::check_not_newer(header)?;
                let editing = luks2::Luks2Editing { edit: self, header };
                // Whoever accepts the cost of one has not been asked about the other.
                if !header.copies_agree() {
                    return editing.rewritten().map(Some);
                }
                if force && !header.metadata.odd.is_empty() { editing.without_odd().map(Some) } else { Ok(None) }
            }
        }
    }

    /// Overwrites what no key slot uses of the place for key slots: a crash can leave old key material there.
    ///
    /// # Errors
    /// Why the header must be left alone.
    pub fn wipe_unused(&self) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        self.version().wipe_unused()
    }

    // Guard: the last key of the data is not removed unasked.
    /// Tells if no other key slot keeps the volume key, or it is not known which ones do. One whose removal was cut off
    /// does not, nor does one that no passphrase opens.
    #[must_use]
    pub fn is_last(&self, slot: u32) -> bool {
        match self.keeping() {
            Some(keeping) => {
                let mut others = keeping.iter().filter(|&other| *other != slot && !self.gone.contains(other));
                keeping.contains(&slot) && !self.gone.contains(&slot) && others.next().is_none()
            }
            None => true,
        }
    }

    /// The key slots that keep the volume key.
    fn keeping(&self) -> Option<Vec<u32>> {
        match &self.header {
            LuksHeader::V1(header) => Some(header.active_slots().map(|(number, _)| number).collect()),
            LuksHeader::V2(header) => header.keeping(),
        }
    }

    /// The way in which such a header is changed.
    fn version(&self) -> Box<dyn VersionEdit<'_> + '_> {
        match &self.header {
            LuksHeader::V1(header) => Box::new(luks1::Luks1Editing { edit: self, header }),
            LuksHeader::V2(header) => Box::new(luks2::Luks2Editing { edit: self, header }),
        }
    }

    fn luks2(&self, what: &str) -> Result<luks2::Luks2Editing<'_>, Error> {
        match &self.header {
            LuksHeader::V2(header) => Ok(luks2::Luks2Editing { edit: self, header }),
            LuksHeader::V1(_) => Err(parameters(format!("LUKS1 has no {what}"))),
        }
    }

    /// Refuses what may only be read, and what would not be the same but for the change.
    fn check_usable(&self) -> Result<(), Error> {
        self.check_writable()?;
        if let LuksHeader::V2(header) = &self.header {
            header.check_usable()?;
        }
        self.header.check_understood()?;
        if self.is_kept { Ok(()) } else { Err(Error::JsonNotKept) }
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.header.check_writable()
    }

    fn check_in_use(&self, slot: u32) -> Result<(), Error> {
        let is_used = match &self.header {
            LuksHeader::V1(header) => header.active_slots().any(|(number, _)| number == slot),
            LuksHeader::V2(header) => header.metadata.keyslots.contains_key(&slot),
        };
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
        match &self.header {
            LuksHeader::V2(header) => header.verify_key_of(slot, key),
            LuksHeader::V1(_) => self.header.verify_volume_key(key, KdfLimits::NONE),
        }
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
        let same = match (&self.header, &now.header) {
            (LuksHeader::V1(_), LuksHeader::V1(_)) => true,
            (LuksHeader::V2(was), LuksHeader::V2(is)) => {
                was.copies == is.copies && was.metadata.json == is.metadata.json
            }
            _ => false,
        };
        if same && self.raw == now.raw && self.json == now.json && self.spare == now.spare {
            Ok(())
        } else {
            Err(Error::ChangedMeanwhile)
        }
    }
}

impl<'a> HeaderChange<'a> {
    /// Another header, and nothing else.
    fn new(edit: &'a Edit, header: NewHeader) -> Self {
        Self { edit, doomed: Vec::new(), material: Vec::new(), header, wiped: Vec::new(), last: None }
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

    /// The same with key material that overwrites what the header names. One sector, with the mark of what is gone in
    /// it, keeps anybody from taking a half for the whole; it is written last.
    fn in_place(self, (offset, mut bytes): Material) -> Self {
        let rest = bytes.split_off(bytes.len().min(gone::SECTOR_LEN));
        let start = to_u64(bytes.len());
        Self {
            doomed: vec![Area { offset, size: start }],
            material: vec![(offset + start, rest)],
            last: Some((offset, bytes)),
            ..self
        }
    }

    /// Writes it to the device that the header was loaded from, which has `size` bytes now. A flush of the
    /// device must make durable what was written before.
    ///
    /// # Errors
    /// [`Error::ChangedMeanwhile`], with nothing written; [`Error::NotWiped`], with everything changed;
    /// [`Error::Io`], with the old header or the new one in place. What was to be removed may be gone
    /// by then.
    pub fn commit(self, device: &mut (impl Read + Write + Seek), size: u64) -> Result<LuksHeader, Error> {
        self.edit.check_unchanged(device, size)?;
        // Told when the header is written: a place that cannot be overwritten keeps no slot in it.
        let doomed = gone::destroy(device, &self.doomed, size);
        if self.last.is_some()
            && let Err(Error::NotWiped { source, .. }) = doomed
        {
            return Err(*source);
        }
        let mut end = size;
        for (offset, bytes) in &self.material {
            write_at(device, *offset, bytes)?;
            // The file of a detached header grows.
            end = end.max(offset + to_u64(bytes.len()));
        }
        if !self.material.is_empty() {
            flush(device)?;
        }
        match &self.header {
            NewHeader::V1(steps) => {
                for step in steps {
                    write_at(device, 0, step)?;
                    flush(device)?;
                }
            }
            NewHeader::V2 { raw, json } => luks2::write_copies(device, self.edit, raw, json)?,
        }
        wipe(device, &self.wiped, end)?;
        if let Some((offset, bytes)) = &self.last {
            write_at(device, *offset, bytes)?;
            flush(device)?;
        }
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
fn material(area: &KeyArea<'_>, passphrase: &[u8], key: &[u8]) -> Result<Material, Error> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let at_start = KeyArea { offset: 0, ..*area };
    at_start.store(&mut bytes, passphrase, key, &Random::Kernel)?;
    Ok((area.offset, bytes.into_inner()))
}

impl LuksHeader {
    /// The same without a key slot: whether a passphrase opens another one.
    #[must_use]
    pub fn without_slot(&self, slot: u32) -> Self {
        let mut header = self.clone();
        match &mut header {
            Self::V1(header) => {
                if let Some(place) = header.slots.get_mut(slot as usize) {
                    *place = None;
                }
            }
            Self::V2(header) => {
                header.metadata.keyslots.remove(&slot);
                for digest in header.metadata.digests.values_mut() {
                    digest.keyslots.retain(|&number| number != slot);
                }
            }
        }
        header
    }
}

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
