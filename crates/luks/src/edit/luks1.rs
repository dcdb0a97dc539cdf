//! LUKS1: one copy, so every step changes one sector, and what a torn step leaves is the old header or
//! the new one.
//!
//! ```text
//!   add      stripes ─ salt and iterations of a slot that is not active ─ the word that makes it active
//!   remove   stripes ─ the word ─ salt and iterations
//!   replace  add ─ remove. Where no slot is free: stripes in a place that is no slot's ─ salt, iterations and place
//! ```
//!
//! Slot 6 lies in two sectors, its word in one of them. What changes there at once must be in the other one: its place
//! and most of its salt.

use super::{
    ChangeResult, Edit, FoundHeader, HeaderChange, HeaderEdit, Material, NewHeader, NewSlot, SlotResult, SlotSecrets,
    material,
};
use crate::LuksHeader;
use crate::area::{Area, first_gap, gaps, is_null_cipher, stripes_len};
use crate::cost::{KdfKind, new_kdf};
use crate::device::{ReadSeek, read_at};
use crate::error::Error;
use crate::kdf::Kdf;
use crate::luks1::{
    HEADER_LEN, ITERATIONS, KeySlot, Luks1Header, PLACE, SALT, SLOT_ACTIVE, SLOT_INACTIVE, SLOT_LEN, SLOTS, UUID_FIELD,
    slot_start,
};
use crate::options::parameters;
use crate::random::Random;
use crate::version::HeaderVersion;

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// No key slot begins before this byte.
const FIRST_PLACE: u32 = 4096;

/// Headers that follow each other.
struct HeaderSteps<'a> {
    edit: &'a Edit,
    steps: Vec<Vec<u8>>,
}

impl<'a> HeaderSteps<'a> {
    fn new(edit: &'a Edit) -> Self {
        Self { edit, steps: Vec::new() }
    }

    /// The last one, changed.
    fn then(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.steps.last().unwrap_or(&self.edit.found.raw).clone();
        change(&mut next);
        self.steps.push(next);
    }

    /// Describes how a slot is opened, and where it lies if it moves.
    fn describe(&mut self, slot: u32, kdf: &Kdf, place: Option<u32>) -> Result<(), Error> {
        let Kdf::Pbkdf2 { iterations, salt, .. } = kdf else {
            return Err(parameters("LUKS1 has PBKDF2 only"));
        };
        let start = slot_start(slot as usize);
        self.then(|raw| {
            put(raw, start + ITERATIONS, &iterations.to_be_bytes());
            put(raw, start + SALT, salt);
            if let Some(place) = place {
                put(raw, start + PLACE, &place.to_be_bytes());
            }
        });
        Ok(())
    }

    fn set_state(&mut self, slots: &[u32], state: u32) {
        self.then(|raw| slots.iter().for_each(|&slot| put(raw, slot_start(slot as usize), &state.to_be_bytes())));
    }

    fn deactivate(&mut self, slots: &[u32]) {
        self.set_state(slots, SLOT_INACTIVE);
        self.then(|raw| {
            let starts = slots.iter().map(|&slot| slot_start(slot as usize));
            starts.for_each(|start| raw[start + ITERATIONS..start + PLACE].fill(0));
        });
    }

    fn change(self) -> HeaderChange<'a> {
        HeaderChange::new(self.edit, NewHeader { raw: self.steps, json: Vec::new() })
    }
}

fn put(raw: &mut [u8], offset: usize, value: &[u8]) {
    raw[offset..offset + value.len()].copy_from_slice(value);
}

impl HeaderEdit for Luks1Header {
    fn find(&self, device: &mut dyn ReadSeek, size: u64) -> Result<FoundHeader, Error> {
        let mut raw = vec![0; HEADER_LEN];
        read_at(device, 0, &mut raw, "the LUKS1 header")?;
        let spare = spare(device, self, size);
        let places = crate::luks1::places(device, self, &raw, size);
        Ok(FoundHeader { raw, spare, places, ..FoundHeader::default() })
    }

    fn add<'a>(&self, edit: &'a Edit, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        let mut steps = HeaderSteps::new(edit);
        let (material, slot) = self.store(secrets, &mut steps)?;
        Ok((HeaderChange { material: Some(material), ..steps.change() }, slot))
    }

    fn replace<'a>(&self, edit: &'a Edit, old: u32, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        if let Some(spare) = edit.found.spare.filter(|_| secrets.new.slot.is_none()) {
            return self.moved(edit, old, spare, secrets);
        }
        let mut steps = HeaderSteps::new(edit);
        let (material, slot) = self.store(secrets, &mut steps)?;
        steps.deactivate(&[old]);
        Ok((HeaderChange { material: Some(material), wiped: self.extents(&[old]), ..steps.change() }, slot))
    }

    fn replace_in_place<'a>(&self, edit: &'a Edit, slot: u32, secrets: &SlotSecrets<'_>) -> ChangeResult<'a> {
        let kdf = self.kdf_of(secrets)?;
        let sector = self.sectors.get(slot as usize).ok_or(Error::SlotNotInUse(slot))?;
        let material = self.sealed(*sector, &kdf, secrets)?;
        let mut steps = HeaderSteps::new(edit);
        steps.describe(slot, &kdf, None)?;
        Ok(steps.change().in_place(material))
    }

    fn remove<'a>(&self, edit: &'a Edit, slot: u32) -> ChangeResult<'a> {
        Ok(self.without(edit, &[slot]))
    }

    fn erase<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        let slots: Vec<_> = self.active_slots().map(|(number, _)| number).collect();
        // Also what a change that was cut off has left in the others, and between, where a slot lay that moved.
        let mut doomed = self.places().to_vec();
        doomed.extend(gaps(&mut self.places(), u64::from(FIRST_PLACE), self.end()));
        Ok(HeaderChange { doomed, ..self.without(edit, &slots) })
    }

    fn set_uuid<'a>(&self, edit: &'a Edit, uuid: &str) -> ChangeResult<'a> {
        let mut steps = HeaderSteps::new(edit);
        steps.then(|raw| {
            raw[UUID_FIELD].fill(0);
            put(raw, UUID_FIELD.start, uuid.as_bytes());
        });
        Ok(steps.change())
    }

    /// One sector after the other: what is odd stays so where that is cut off.
    fn repair<'a>(&self, edit: &'a Edit, force: bool) -> Result<Option<HeaderChange<'a>>, Error> {
        if self.odd.is_empty() {
            return Ok(None);
        }
        let raw = edit.found.raw.first_chunk::<HEADER_LEN>();
        let raw = raw.ok_or_else(|| Error::invalid("the header is too short"))?;
        let repaired = crate::luks1::repaired(self, raw, &edit.found.places, force)?;
        let mut steps = HeaderSteps::new(edit);
        steps.then(|raw| put(raw, 0, &repaired[..SECTOR]));
        steps.then(|raw| put(raw, SECTOR, &repaired[SECTOR..]));
        Ok(Some(steps.change()))
    }

    fn wipe_unused<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        let mut used: Vec<_> = self.areas().into_iter().map(|(_, place)| place).collect();
        // Where a slot lay that moved, too. What lies behind them all may be others'.
        let wiped = gaps(&mut used, u64::from(FIRST_PLACE), self.end());
        Ok(HeaderChange { wiped, ..HeaderSteps::new(edit).change() })
    }

    fn keeping(&self) -> Option<Vec<u32>> {
        Some(self.active_slots().map(|(number, _)| number).collect())
    }

    fn verify_key_of(&self, _: u32, key: &[u8]) -> Result<(), Error> {
        let fits = self.key_len as usize == key.len() && self.key_digest()?.matches(key)?;
        if fits { Ok(()) } else { Err(Error::WrongVolumeKey) }
    }

    fn writes(&self, new: &NewHeader) -> Result<Vec<Material>, Error> {
        Ok(new.raw.iter().map(|step| (0, step.clone())).collect())
    }

    fn changed(&self, edit: &Edit, new: &NewHeader) -> Option<LuksHeader> {
        crate::luks1::parse(new.raw.last().unwrap_or(&edit.found.raw).first_chunk()?).ok().map(LuksHeader::V1)
    }

    fn restored(&self, head: &[u8], _: u64, _: bool) -> Result<Vec<Material>, Error> {
        Ok(vec![(0, head.to_vec())])
    }
}

impl Luks1Header {
    fn without<'a>(&self, edit: &'a Edit, slots: &[u32]) -> HeaderChange<'a> {
        let mut steps = HeaderSteps::new(edit);
        steps.deactivate(slots);
        HeaderChange { doomed: self.extents(slots), ..steps.change() }
    }

    fn extents(&self, slots: &[u32]) -> Vec<Area> {
        let named = self.areas().into_iter().filter(|(number, _)| slots.contains(number));
        named.map(|(_, area)| area).collect()
    }

    /// Moves a slot's key material to `spare`: one sector switches it over. Its old place is as empty afterwards as the
    /// new one was.
    fn moved<'a>(&self, edit: &'a Edit, number: u32, spare: u32, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        let old = self.slots.get(number as usize).and_then(Option::as_ref);
        let old = old.ok_or(Error::SlotNotInUse(number))?;
        let mut kdf = self.kdf_of(secrets)?;
        let (start, mut fits) = (slot_start(number as usize), true);
        if let Kdf::Pbkdf2 { iterations, salt, .. } = &mut kdf
            && start / SECTOR != (start + SLOT_LEN - 1) / SECTOR
        {
            if secrets.new.cost.iterations.is_none() {
                *iterations = (*iterations).max(old.iterations);
            }
            fits = *iterations == old.iterations;
            let head = SECTOR - (start + SALT) % SECTOR;
            salt[..head].copy_from_slice(&old.salt[..head]);
        }
        if !fits {
            return Err(no_free_slot());
        }
        let material = self.sealed(spare, &kdf, secrets)?;
        let mut steps = HeaderSteps::new(edit);
        steps.describe(number, &kdf, Some(spare))?;
        let place = self.place(old.sector);
        let zeros = vec![0; usize::try_from(place.size).unwrap_or(0)];
        let change = HeaderChange {
            material: Some(material),
            wiped: vec![place],
            last: Some((place.offset, zeros)),
            ..steps.change()
        };
        Ok((change, number))
    }

    /// The stripes of a new slot, with the steps that make it one.
    fn store(&self, secrets: &SlotSecrets<'_>, steps: &mut HeaderSteps<'_>) -> Result<(Material, u32), Error> {
        check(self, secrets.new)?;
        let number = free_slot(self, secrets.new.slot)?;
        let kdf = self.kdf_of(secrets)?;
        let material = self.sealed(self.sectors[number as usize], &kdf, secrets)?;
        steps.describe(number, &kdf, None)?;
        steps.set_state(&[number], SLOT_ACTIVE);
        Ok((material, number))
    }

    fn kdf_of(&self, secrets: &SlotSecrets<'_>) -> Result<Kdf, Error> {
        check(self, secrets.new)?;
        new_kdf(KdfKind::Pbkdf2, &self.hash, &secrets.new.cost, secrets.key.len(), &Random::Kernel)
    }

    /// The stripes of a slot that are to lie at `sector`.
    fn sealed(&self, sector: u32, kdf: &Kdf, secrets: &SlotSecrets<'_>) -> Result<Material, Error> {
        material(self.key_area(sector, kdf.clone())?, secrets)
    }
}

/// Where all slots are in use: the first sector of a place for stripes that is no slot's, and empty, since others, such
/// as luksmeta, keep things behind the slots.
fn spare(device: &mut dyn ReadSeek, header: &Luks1Header, size: u64) -> Option<u32> {
    if header.slots.iter().any(Option::is_none) {
        return None;
    }
    let end = match header.data_offset() {
        0 => size,
        payload => payload.min(size),
    };
    let gap = first_gap(&mut header.places().to_vec(), u64::from(FIRST_PLACE), end, stripes_len(header.key_len))?;
    let mut bytes = vec![0; usize::try_from(gap.size).ok()?];
    // What cannot be read is no place for a slot, and no reason to refuse other changes.
    read_at(device, gap.offset, &mut bytes, "a place for a key slot").ok()?;
    let is_empty = bytes.iter().all(|&byte| byte == 0);
    u32::try_from(gap.offset / 512).ok().filter(|_| is_empty)
}

/// Checks that LUKS1 has such slots.
fn check(header: &Luks1Header, new: &NewSlot) -> Result<(), Error> {
    if new.kdf.is_some_and(|kind| kind != KdfKind::Pbkdf2) {
        return Err(parameters("LUKS1 has PBKDF2 only"));
    }
    if new.hash.as_ref().is_some_and(|hash| *hash != header.hash) {
        return Err(parameters("LUKS1 has one hash for all key slots"));
    }
    if new.cipher.is_some() {
        return Err(parameters("LUKS1 has no other ciphers of its key slots"));
    }
    if is_null_cipher(&header.encryption()) {
        return Err(Error::NullCipher("the key slot".into()));
    }
    Ok(())
}

fn free_slot(header: &Luks1Header, named: Option<u32>) -> Result<u32, Error> {
    let is_free = |slot: &Option<KeySlot>| slot.is_none();
    match named {
        Some(slot) => match header.slots.get(slot as usize) {
            Some(place) if is_free(place) => Ok(slot),
            Some(_) => Err(Error::SlotInUse(slot)),
            None => Err(parameters(format!("there is no key slot {slot}; LUKS1 has 0 to {}", SLOTS - 1))),
        },
        None => {
            let free = (0..).zip(&header.slots).find(|(_, slot)| is_free(slot));
            free.map(|(number, _)| number).ok_or_else(no_free_slot)
        }
    }
}

fn no_free_slot() -> Error {
    Error::NoFreeSlot(u32::try_from(SLOTS).unwrap_or(8))
}
