//! LUKS1: one copy, so every step changes one sector, and what a torn step leaves is the old header or
//! the new one.
//!
//! ```text
//!   add      stripes ─ salt and iterations of a slot that is not active ─ the word that makes it active
//!   remove   stripes ─ the word ─ salt and iterations
//! ```
//!
//! Slot 6 lies in two sectors, its word in one of them.

use std::io::{Read, Seek};

use super::{Change, Edit, NewHeader, NewSlot, material};
use crate::area::{Extent, KeyArea, is_null_cipher};
use crate::cost::{KdfKind, new_kdf};
use crate::device::read_at;
use crate::error::Error;
use crate::kdf::Kdf;
use crate::luks1::{
    HEADER_LEN, Header, SLOT_ACTIVE, SLOT_INACTIVE, SLOTS, Slot, UUID_FIELD, hash, slot_start,
};
use crate::options::parameters;
use crate::random::Random;

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
            put(raw, start + 4, &iterations.to_be_bytes());
            put(raw, start + 8, salt);
        });
        self.then(edit, |raw| put(raw, start, &SLOT_ACTIVE.to_be_bytes()));
    }

    fn deactivate(&mut self, edit: &Edit, slots: &[u32]) {
        let starts = || slots.iter().map(|&slot| slot_start(slot as usize));
        self.then(edit, |raw| {
            starts().for_each(|start| put(raw, start, &SLOT_INACTIVE.to_be_bytes()));
        });
        self.then(edit, |raw| {
            starts().for_each(|start| raw[start + 4..start + 40].fill(0));
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
    let change = Change {
        edit,
        doomed: Vec::new(),
        material: vec![material],
        header: NewHeader::V1(steps.0),
        wiped: Vec::new(),
    };
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
    let mut steps = Steps(Vec::new());
    let (material, slot) = store(edit, header, key, passphrase, new, &mut steps)?;
    steps.deactivate(edit, &[old]);
    let change = Change {
        edit,
        doomed: Vec::new(),
        material: vec![material],
        header: NewHeader::V1(steps.0),
        wiped: extents(header, &[old]),
    };
    Ok((change, slot))
}

pub(super) fn remove<'a>(edit: &'a Edit, header: &Header, slot: u32) -> Result<Change<'a>, Error> {
    without(edit, header, &[slot])
}

pub(super) fn erase<'a>(edit: &'a Edit, header: &Header) -> Result<Change<'a>, Error> {
    let slots: Vec<_> = header.active_slots().map(|(number, _)| number).collect();
    // Also what a change that was cut off has left in the others.
    Ok(Change {
        doomed: places(header).map(|(_, place)| place).collect(),
        ..without(edit, header, &slots)?
    })
}

pub(super) fn wipe_unused<'a>(edit: &'a Edit, header: &Header) -> Change<'a> {
    let free = places(header).filter(|(slot, _)| slot.is_none());
    Change {
        edit,
        doomed: Vec::new(),
        material: Vec::new(),
        header: NewHeader::V1(Vec::new()),
        wiped: free.map(|(_, place)| place).collect(),
    }
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
    Change {
        edit,
        doomed: Vec::new(),
        material: Vec::new(),
        header: NewHeader::V1(steps.0),
        wiped: Vec::new(),
    }
}

fn without<'a>(edit: &'a Edit, header: &Header, slots: &[u32]) -> Result<Change<'a>, Error> {
    let mut steps = Steps(Vec::new());
    steps.deactivate(edit, slots);
    Ok(Change {
        edit,
        doomed: extents(header, slots),
        material: Vec::new(),
        header: NewHeader::V1(steps.0),
        wiped: Vec::new(),
    })
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
    if new.kdf.is_some_and(|kind| kind != KdfKind::Pbkdf2) {
        return Err(parameters("LUKS1 has PBKDF2 only"));
    }
    if new.hash.as_ref().is_some_and(|hash| *hash != header.hash) {
        return Err(parameters("LUKS1 has one hash for all key slots"));
    }
    if new.cipher.is_some() {
        return Err(parameters("LUKS1 has no other ciphers of its key slots"));
    }
    let encryption = header.encryption();
    if is_null_cipher(&encryption) {
        return Err(Error::NullCipher("the key slot".into()));
    }
    let number = free_slot(header, new.slot)?;
    let kdf = new_kdf(
        KdfKind::Pbkdf2,
        &header.hash,
        &new.cost,
        key.len(),
        &Random::Kernel,
    )?;
    let Kdf::Pbkdf2 {
        iterations, salt, ..
    } = &kdf
    else {
        return Err(parameters("LUKS1 has PBKDF2 only"));
    };
    let area = KeyArea {
        offset: u64::from(header.sectors[number as usize]) * 512,
        encryption: &encryption,
        encryption_key_len: key.len(),
        af_hash: hash(&header.hash)?,
        kdf: &kdf,
        key_len: key.len(),
    };
    let material = material(&area, passphrase, key)?;
    steps.activate(edit, number, *iterations, salt);
    Ok((material, number))
}

fn free_slot(header: &Header, named: Option<u32>) -> Result<u32, Error> {
    let is_free = |slot: &Option<Slot>| slot.is_none();
    match named {
        Some(slot) => match header.slots.get(slot as usize) {
            Some(place) if is_free(place) => Ok(slot),
            Some(_) => Err(Error::SlotInUse(slot)),
            None => Err(parameters(format!(
                "there is no key slot {slot}; LUKS1 has 0 to {}",
                SLOTS - 1
            ))),
        },
        None => {
            let free = (0..).zip(&header.slots).find(|(_, slot)| is_free(slot));
            let free = free.map(|(number, _)| number);
            free.ok_or(Error::NoFreeSlot(u32::try_from(SLOTS).unwrap_or(8)))
        }
    }
}
