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

use std::io::{Read, Seek};

use super::{Edit, HeaderChange, Material, NewHeader, NewSlot, SlotSecrets, VersionEdit, material};
use crate::area::{Area, KeyArea, first_gap, gaps, is_null_cipher, stripes_len};
use crate::cost::{KdfKind, new_kdf};
use crate::device::read_at;
use crate::error::Error;
use crate::kdf::Kdf;
use crate::luks1::{
    HEADER_LEN, KeySlot, Luks1Header, SLOT_ACTIVE, SLOT_INACTIVE, SLOT_LEN, SLOTS, UUID_FIELD, hash, slot_start,
};
use crate::options::parameters;
use crate::random::Random;

/// Places in a slot's part of the header.
const ITERATIONS: usize = 4;
const SALT: usize = 8;
const PLACE: usize = 40;
/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// No key slot begins before this byte.
const FIRST_PLACE: u32 = 4096;

/// The header as it is.
pub(super) fn raw(device: &mut (impl Read + Seek)) -> Result<Vec<u8>, Error> {
    let mut raw = vec![0; HEADER_LEN];
    read_at(device, 0, &mut raw, "the LUKS1 header")?;
    Ok(raw)
}

/// Headers that follow each other.
struct HeaderSteps(Vec<Vec<u8>>);

impl HeaderSteps {
    /// The last one, changed.
    fn then(&mut self, edit: &Edit, change: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.0.last().unwrap_or(&edit.raw).clone();
        change(&mut next);
        self.0.push(next);
    }

    fn activate(&mut self, edit: &Edit, slot: u32, iterations: u32, salt: &[u8]) {
        let start = slot_start(slot as usize);
        self.then(edit, |raw| {
            put(raw, start + ITERATIONS, &iterations.to_be_bytes());
            put(raw, start + SALT, salt);
        });
        self.then(edit, |raw| put(raw, start, &SLOT_ACTIVE.to_be_bytes()));
    }

    fn deactivate(&mut self, edit: &Edit, slots: &[u32]) {
        let starts = || slots.iter().map(|&slot| slot_start(slot as usize));
        self.then(edit, |raw| {
            starts().for_each(|start| put(raw, start, &SLOT_INACTIVE.to_be_bytes()));
        });
        self.then(edit, |raw| {
            starts().for_each(|start| raw[start + ITERATIONS..start + PLACE].fill(0));
        });
    }
}

fn put(raw: &mut [u8], offset: usize, value: &[u8]) {
    raw[offset..offset + value.len()].copy_from_slice(value);
}

/// A header that is to be changed.
pub(super) struct Luks1Editing<'a> {
    pub edit: &'a Edit,
    pub header: &'a Luks1Header,
}

impl<'a> VersionEdit<'a> for Luks1Editing<'a> {
    fn add(&self, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        let mut steps = HeaderSteps(Vec::new());
        let (material, slot) = self.store(secrets, &mut steps)?;
        Ok((HeaderChange { material: vec![material], ..self.change(steps) }, slot))
    }

    fn replace(&self, old: u32, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        if let Some(spare) = self.edit.spare.filter(|_| secrets.new.slot.is_none()) {
            return self.moved(old, spare, secrets);
        }
        let mut steps = HeaderSteps(Vec::new());
        let (material, slot) = self.store(secrets, &mut steps)?;
        steps.deactivate(self.edit, &[old]);
        let wiped = extents(self.header, &[old]);
        Ok((HeaderChange { material: vec![material], wiped, ..self.change(steps) }, slot))
    }

    fn replace_in_place(&self, number: u32, secrets: &SlotSecrets<'_>) -> Result<HeaderChange<'a>, Error> {
        let kdf = self.kdf_of(secrets)?;
        let sector = self.header.sectors.get(number as usize);
        let sector = *sector.ok_or(Error::SlotNotInUse(number))?;
        let material = self.sealed(sector, &kdf, secrets)?;
        let mut steps = HeaderSteps(Vec::new());
        let (iterations, salt) = pbkdf2(&kdf)?;
        let start = slot_start(number as usize);
        steps.then(self.edit, |raw| {
            put(raw, start + ITERATIONS, &iterations.to_be_bytes());
            put(raw, start + SALT, salt);
        });
        Ok(self.change(steps).in_place(material))
    }

    fn remove(&self, slot: u32) -> Result<HeaderChange<'a>, Error> {
        Ok(self.without(&[slot]))
    }

    fn erase(&self) -> Result<HeaderChange<'a>, Error> {
        let slots: Vec<_> = self.header.active_slots().map(|(number, _)| number).collect();
        // Also what a change that was cut off has left in the others.
        Ok(HeaderChange { doomed: places(self.header).map(|(_, place)| place).collect(), ..self.without(&slots) })
    }

    fn set_uuid(&self, uuid: &str) -> Result<HeaderChange<'a>, Error> {
        let mut steps = HeaderSteps(Vec::new());
        steps.then(self.edit, |raw| {
            raw[UUID_FIELD].fill(0);
            put(raw, UUID_FIELD.start, uuid.as_bytes());
        });
        Ok(self.change(steps))
    }

    fn wipe_unused(&self) -> Result<HeaderChange<'a>, Error> {
        let mut used: Vec<_> = places(self.header).filter(|(slot, _)| slot.is_some()).map(|(_, place)| place).collect();
        // Where a slot lay that moved, too. What lies behind them all may be others'.
        let ends = places(self.header).filter_map(|(_, place)| place.end());
        let end = ends.max().unwrap_or(0);
        Ok(HeaderChange { wiped: gaps(&mut used, u64::from(FIRST_PLACE), end), ..self.change(HeaderSteps(Vec::new())) })
    }
}

impl<'a> Luks1Editing<'a> {
    fn change(&self, steps: HeaderSteps) -> HeaderChange<'a> {
        HeaderChange::new(self.edit, NewHeader::V1(steps.0))
    }

    /// One sector after the other: what is odd stays so where that is cut off.
    pub fn repaired(&self, force: bool) -> Result<HeaderChange<'a>, Error> {
        let raw = self.edit.raw.first_chunk::<HEADER_LEN>();
        let raw = raw.ok_or_else(|| Error::invalid("the header is too short"))?;
        let repaired = crate::luks1::repaired(self.header, raw, &self.edit.places, force)?;
        let mut steps = HeaderSteps(Vec::new());
        steps.then(self.edit, |raw| put(raw, 0, &repaired[..SECTOR]));
        steps.then(self.edit, |raw| put(raw, SECTOR, &repaired[SECTOR..]));
        Ok(self.change(steps))
    }

    fn without(&self, slots: &[u32]) -> HeaderChange<'a> {
        let mut steps = HeaderSteps(Vec::new());
        steps.deactivate(self.edit, slots);
        HeaderChange { doomed: extents(self.header, slots), ..self.change(steps) }
    }

    /// Moves a slot's key material to `spare`: one sector switches it over. Its old place is as empty afterwards as the
    /// new one was.
    fn moved(&self, number: u32, spare: u32, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        let header = self.header;
        let old = header.slots.get(number as usize).and_then(Option::as_ref);
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
        let mut steps = HeaderSteps(Vec::new());
        let (iterations, salt) = pbkdf2(&kdf)?;
        steps.then(self.edit, |raw| {
            put(raw, start + ITERATIONS, &iterations.to_be_bytes());
            put(raw, start + SALT, salt);
            put(raw, start + PLACE, &spare.to_be_bytes());
        });
        let place = old.extent(header.key_len);
        let zeros = vec![0; usize::try_from(place.size).unwrap_or(0)];
        let change = HeaderChange {
            material: vec![material],
            wiped: vec![place],
            last: Some((place.offset, zeros)),
            ..self.change(steps)
        };
        Ok((change, number))
    }

    /// The stripes of a new slot, with the steps that make it one.
    fn store(&self, secrets: &SlotSecrets<'_>, steps: &mut HeaderSteps) -> Result<(Material, u32), Error> {
        check(self.header, secrets.new)?;
        let number = free_slot(self.header, secrets.new.slot)?;
        let kdf = self.kdf_of(secrets)?;
        let sector = self.header.sectors[number as usize];
        let material = self.sealed(sector, &kdf, secrets)?;
        let (iterations, salt) = pbkdf2(&kdf)?;
        steps.activate(self.edit, number, iterations, salt);
        Ok((material, number))
    }

    fn kdf_of(&self, secrets: &SlotSecrets<'_>) -> Result<Kdf, Error> {
        check(self.header, secrets.new)?;
        new_kdf(KdfKind::Pbkdf2, &self.header.hash, &secrets.new.cost, secrets.key.len(), &Random::Kernel)
    }

    /// The stripes of a slot that are to lie at `sector`.
    fn sealed(&self, sector: u32, kdf: &Kdf, secrets: &SlotSecrets<'_>) -> Result<Material, Error> {
        let SlotSecrets { key, passphrase, .. } = secrets;
        let header = self.header;
        let area = KeyArea {
            offset: u64::from(sector) * 512,
            encryption: &header.encryption(),
            encryption_key_len: key.len(),
            af_hash: hash(&header.hash)?,
            kdf,
            key_len: key.len(),
        };
        material(&area, passphrase, key)
    }
}

/// Where all slots are in use: the first sector of a place for stripes that is no slot's, and empty, since others, such
/// as luksmeta, keep things behind the slots.
pub(super) fn spare(device: &mut (impl Read + Seek), header: &Luks1Header, size: u64) -> Option<u32> {
    if header.slots.iter().any(Option::is_none) {
        return None;
    }
    let end = match u64::from(header.payload_sector) * 512 {
        0 => size,
        payload => payload.min(size),
    };
    let mut taken: Vec<_> = places(header).map(|(_, place)| place).collect();
    let start = u64::from(FIRST_PLACE);
    let gap = first_gap(&mut taken, start, end, stripes_len(header.key_len))?;
    let mut bytes = vec![0; usize::try_from(gap.size).ok()?];
    // What cannot be read is no place for a slot, and no reason to refuse other changes.
    read_at(device, gap.offset, &mut bytes, "a place for a key slot").ok()?;
    let is_empty = bytes.iter().all(|&byte| byte == 0);
    u32::try_from(gap.offset / 512).ok().filter(|_| is_empty)
}

/// Each slot, and where its stripes are or will be.
fn places(header: &Luks1Header) -> impl Iterator<Item = (&Option<KeySlot>, Area)> {
    let places = header.slots.iter().zip(header.sectors);
    let extent = |sector| Area::of_stripes(u64::from(sector) * 512, header.key_len);
    places.map(move |(slot, sector)| (slot, extent(sector)))
}

fn extents(header: &Luks1Header, slots: &[u32]) -> Vec<Area> {
    let active = header.active_slots();
    active.filter(|(number, _)| slots.contains(number)).map(|(_, slot)| slot.extent(header.key_len)).collect()
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

/// Its iterations and its salt.
fn pbkdf2(kdf: &Kdf) -> Result<(u32, &[u8]), Error> {
    match kdf {
        Kdf::Pbkdf2 { iterations, salt, .. } => Ok((*iterations, salt)),
        _ => Err(parameters("LUKS1 has PBKDF2 only")),
    }
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
