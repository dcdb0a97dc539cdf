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

use super::{Change, Edit, NewHeader, NewSlot, material};
use crate::area::{Extent, KeyArea, first_gap, gaps, is_null_cipher, stripes_len};
use crate::cost::{KdfKind, new_kdf};
use crate::device::read_at;
use crate::error::Error;
use crate::kdf::Kdf;
use crate::luks1::{
    HEADER_LEN, Header, SLOT_ACTIVE, SLOT_INACTIVE, SLOT_LEN, SLOTS, Slot, UUID_FIELD, hash, slot_start,
};
use crate::options::parameters;
use crate::random::Random;

/// Places in a slot's part of the header.
const ITERATIONS: usize = 4;
const SALT: usize = 8;
const PLACE: usize = 40;
/// What is written whole or not at all.
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
struct Steps(Vec<Vec<u8>>);

impl Steps {
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

pub(super) fn add<'a>(
    edit: &'a Edit,
    header: &Header,
    key: &[u8],
    passphrase: &[u8],
    new: &NewSlot,
) -> Result<(Change<'a>, u32), Error> {
    let mut steps = Steps(Vec::new());
    let (material, slot) = store(edit, header, key, passphrase, new, &mut steps)?;
    let change = Change { material: vec![material], ..Change::new(edit, NewHeader::V1(steps.0)) };
    Ok((change, slot))
}

pub(super) fn replace<'a>(
    edit: &'a Edit,
    header: &Header,
    old: u32,
    key: &[u8],
    passphrase: &[u8],
    new: &NewSlot,
) -> Result<(Change<'a>, u32), Error> {
    if let Some(spare) = edit.spare.filter(|_| new.slot.is_none()) {
        return moved(edit, header, old, spare, key, passphrase, new);
    }
    let mut steps = Steps(Vec::new());
    let (material, slot) = store(edit, header, key, passphrase, new, &mut steps)?;
    steps.deactivate(edit, &[old]);
    let change = Change {
        material: vec![material],
        wiped: extents(header, &[old]),
        ..Change::new(edit, NewHeader::V1(steps.0))
    };
    Ok((change, slot))
}

/// A slot of which one sector says where its stripes are now. Its old place is as empty afterwards as the new one was.
fn moved<'a>(
    edit: &'a Edit,
    header: &Header,
    number: u32,
    spare: u32,
    key: &[u8],
    passphrase: &[u8],
    new: &NewSlot,
) -> Result<(Change<'a>, u32), Error> {
    let old = header.slots.get(number as usize).and_then(Option::as_ref);
    let old = old.ok_or(Error::SlotNotInUse(number))?;
    let mut kdf = kdf_of(header, key, new)?;
    let (start, mut fits) = (slot_start(number as usize), true);
    if let Kdf::Pbkdf2 { iterations, salt, .. } = &mut kdf
        && start / SECTOR != (start + SLOT_LEN - 1) / SECTOR
    {
        if new.cost.iterations.is_none() {
            *iterations = (*iterations).max(old.iterations);
        }
        fits = *iterations == old.iterations;
        let head = SECTOR - (start + SALT) % SECTOR;
        salt[..head].copy_from_slice(&old.salt[..head]);
    }
    if !fits {
        return Err(no_free_slot());
    }
    let material = sealed(header, spare, &kdf, key, passphrase)?;
    let mut steps = Steps(Vec::new());
    let (iterations, salt) = pbkdf2(&kdf)?;
    steps.then(edit, |raw| {
        put(raw, start + ITERATIONS, &iterations.to_be_bytes());
        put(raw, start + SALT, salt);
        put(raw, start + PLACE, &spare.to_be_bytes());
    });
    let place = old.extent(header.key_len);
    let zeros = vec![0; usize::try_from(place.size).unwrap_or(0)];
    let change = Change {
        material: vec![material],
        wiped: vec![place],
        last: Some((place.offset, zeros)),
        ..Change::new(edit, NewHeader::V1(steps.0))
    };
    Ok((change, number))
}

pub(super) fn replace_in_place<'a>(
    edit: &'a Edit,
    header: &Header,
    number: u32,
    key: &[u8],
    passphrase: &[u8],
    new: &NewSlot,
) -> Result<Change<'a>, Error> {
    let kdf = kdf_of(header, key, new)?;
    let sector = header.sectors.get(number as usize);
    let sector = *sector.ok_or(Error::SlotNotInUse(number))?;
    let material = sealed(header, sector, &kdf, key, passphrase)?;
    let mut steps = Steps(Vec::new());
    let (iterations, salt) = pbkdf2(&kdf)?;
    let start = slot_start(number as usize);
    steps.then(edit, |raw| {
        put(raw, start + ITERATIONS, &iterations.to_be_bytes());
        put(raw, start + SALT, salt);
    });
    Ok(Change::new(edit, NewHeader::V1(steps.0)).in_place(material))
}

/// Where all slots are in use: the first sector of a place for stripes that is no slot's, and empty, since others, such
/// as luksmeta, keep things behind the slots.
pub(super) fn spare(device: &mut (impl Read + Seek), header: &Header, size: u64) -> Option<u32> {
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

pub(super) fn remove<'a>(edit: &'a Edit, header: &Header, slot: u32) -> Result<Change<'a>, Error> {
    without(edit, header, &[slot])
}

pub(super) fn erase<'a>(edit: &'a Edit, header: &Header) -> Result<Change<'a>, Error> {
    let slots: Vec<_> = header.active_slots().map(|(number, _)| number).collect();
    // Also what a change that was cut off has left in the others.
    Ok(Change { doomed: places(header).map(|(_, place)| place).collect(), ..without(edit, header, &slots)? })
}

pub(super) fn wipe_unused<'a>(edit: &'a Edit, header: &Header) -> Change<'a> {
    let used = places(header).filter(|(slot, _)| slot.is_some());
    let mut used: Vec<_> = used.map(|(_, place)| place).collect();
    // Where a slot lay that moved, too. What lies behind them all may be others'.
    let ends = places(header).filter_map(|(_, place)| place.end());
    let end = ends.max().unwrap_or(0);
    Change { wiped: gaps(&mut used, u64::from(FIRST_PLACE), end), ..Change::new(edit, NewHeader::V1(Vec::new())) }
}

/// Each slot, and where its stripes are or will be.
fn places(header: &Header) -> impl Iterator<Item = (&Option<Slot>, Extent)> {
    let places = header.slots.iter().zip(header.sectors);
    let extent = |sector| Extent::of_stripes(u64::from(sector) * 512, header.key_len);
    places.map(move |(slot, sector)| (slot, extent(sector)))
}

pub(super) fn set_uuid<'a>(edit: &'a Edit, uuid: &str) -> Change<'a> {
    let mut steps = Steps(Vec::new());
    steps.then(edit, |raw| {
        raw[UUID_FIELD].fill(0);
        put(raw, UUID_FIELD.start, uuid.as_bytes());
    });
    Change::new(edit, NewHeader::V1(steps.0))
}

fn without<'a>(edit: &'a Edit, header: &Header, slots: &[u32]) -> Result<Change<'a>, Error> {
    let mut steps = Steps(Vec::new());
    steps.deactivate(edit, slots);
    Ok(Change { doomed: extents(header, slots), ..Change::new(edit, NewHeader::V1(steps.0)) })
}

fn extents(header: &Header, slots: &[u32]) -> Vec<Extent> {
    let active = header.active_slots();
    let named = active.filter(|(number, _)| slots.contains(number));
    named.map(|(_, slot)| slot.extent(header.key_len)).collect()
}

/// The stripes of a new slot, with the steps that make it one.
fn store(
    edit: &Edit,
    header: &Header,
    key: &[u8],
    passphrase: &[u8],
    new: &NewSlot,
    steps: &mut Steps,
) -> Result<((u64, Vec<u8>), u32), Error> {
    check(header, new)?;
    let number = free_slot(header, new.slot)?;
    let kdf = kdf_of(header, key, new)?;
    let sector = header.sectors[number as usize];
    let material = sealed(header, sector, &kdf, key, passphrase)?;
    let (iterations, salt) = pbkdf2(&kdf)?;
    steps.activate(edit, number, iterations, salt);
    Ok((material, number))
}

/// Whether LUKS1 has such slots.
fn check(header: &Header, new: &NewSlot) -> Result<(), Error> {
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

fn kdf_of(header: &Header, key: &[u8], new: &NewSlot) -> Result<Kdf, Error> {
    check(header, new)?;
    new_kdf(KdfKind::Pbkdf2, &header.hash, &new.cost, key.len(), &Random::Kernel)
}

/// Its iterations and its salt.
fn pbkdf2(kdf: &Kdf) -> Result<(u32, &[u8]), Error> {
    match kdf {
        Kdf::Pbkdf2 { iterations, salt, .. } => Ok((*iterations, salt)),
        _ => Err(parameters("LUKS1 has PBKDF2 only")),
    }
}

/// The stripes of a slot that are to lie at `sector`.
fn sealed(header: &Header, sector: u32, kdf: &Kdf, key: &[u8], passphrase: &[u8]) -> Result<(u64, Vec<u8>), Error> {
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

fn free_slot(header: &Header, named: Option<u32>) -> Result<u32, Error> {
    let is_free = |slot: &Option<Slot>| slot.is_none();
    match named {
        Some(slot) => match header.slots.get(slot as usize) {
            Some(place) if is_free(place) => Ok(slot),
            Some(_) => Err(Error::SlotInUse(slot)),
            None => Err(parameters(format!("there is no key slot {slot}; LUKS1 has 0 to {}", SLOTS - 1))),
        },
        None => {
            let free = (0..).zip(&header.slots).find(|(_, slot)| is_free(slot));
            let free = free.map(|(number, _)| number);
            free.ok_or_else(no_free_slot)
        }
    }
}

fn no_free_slot() -> Error {
    Error::NoFreeSlot(u32::try_from(SLOTS).unwrap_or(8))
}
