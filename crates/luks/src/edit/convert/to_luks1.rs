//! LUKS2 → LUKS1. Key material stays where it is: LUKS1 says for each slot where that is.

use super::{HeaderChange, NewHeader, SECTOR, checked_uuid};
use crate::area::{Area, first_gap, stripes_len};
use crate::device::to_u64;
use crate::edit::Edit;
use crate::error::{Error, quote};
use crate::kdf::{Kdf, SALT_LEN};
use crate::luks1::{self, DIGEST_LEN, HEADER_LEN, KeySlot, SLOTS, WORD_LEN_MAX};
use crate::luks2::Luks2Header;
use crate::luks2::binary::BINARY_LEN;
use crate::luks2::format::AREA_ALIGNMENT;
use crate::luks2::metadata::{CryptSegment, Digest, Keyslot, Priority};
use crate::options::parameters;
use crate::version::HeaderVersion;

pub(super) fn plan<'a>(edit: &'a Edit, header: &Luks2Header, size: u64) -> Result<HeaderChange<'a>, Error> {
    // The secondary copy is all there is for a moment.
    if !header.copies_agree() {
        return Err(cannot("its two copies are not the same; repair it first"));
    }
    let mut bytes = luks1::encode(&luks1_of(header, size)?).to_vec();
    bytes.resize(BINARY_LEN, 0);
    let (first, rest) = bytes.split_at(SECTOR);
    let copy_size = header.binary.copy_size;
    let offset = to_u64(BINARY_LEN);
    Ok(HeaderChange {
        conversion: vec![
            (to_u64(SECTOR), rest.to_vec()),
            (0, first.to_vec()),
            // It would be found if the new header were damaged.
            (copy_size, vec![0; SECTOR]),
        ],
        // LUKS1 would not know of what a crash has left there.
        doomed: header.unused_areas(),
        wiped: vec![Area { offset, size: 2 * copy_size - offset }],
        ..HeaderChange::new(edit, NewHeader::default())
    })
}

fn cannot(why: impl std::fmt::Display) -> Error {
    parameters(format!("it cannot become LUKS1: {why}"))
}

fn luks1_of(header: &Luks2Header, size: u64) -> Result<luks1::Luks1Header, Error> {
    let (offset, crypt) = only_segment(header)?;
    let digest = only_digest(header)?;
    let (digest_kdf, value) =
        digest.pbkdf2.as_ref().ok_or_else(|| cannot("the digest of its volume key is not one that LUKS1 supports"))?;
    let (hash, digest_iterations, digest_salt) =
        pbkdf2(digest_kdf).ok_or_else(|| cannot("the digest of its volume key is not one that LUKS1 supports"))?;
    luks1::hash(hash)?;
    let key_len =
        header.key_len().ok_or_else(|| cannot("it has no key slot, and nothing else says how long its key is"))?;
    let key_len = u32::try_from(key_len).unwrap_or(u32::MAX);
    let (name, mode) = luks1::split_cipher(&crypt.encryption);
    if crypt.encryption.starts_with("capi:") || [name, mode, hash].iter().any(|it| it.len() > WORD_LEN_MAX) {
        return Err(cannot(format!("there is no place for the name of its cipher, {}", quote(&crypt.encryption))));
    }
    let payload_sector = sector(offset).ok_or_else(|| cannot("its data begins further on than LUKS1 can say"))?;
    let mut slots = [const { None }; SLOTS];
    for (&number, slot) in &header.metadata.keyslots {
        let taken = slot_of(slot, crypt, hash, key_len).map_err(|why| cannot(format!("key slot {number} {why}")))?;
        let place = slots.get_mut(number as usize);
        *place.ok_or_else(|| cannot(format!("it has a key slot {number}, LUKS1 has 0 to 7")))? = Some(taken);
    }
    let end = match offset {
        0 => header.end(),
        offset => offset,
    };
    // Where data begins says nothing about the file of a detached header.
    let end = end.min(size);
    Ok(luks1::Luks1Header {
        sectors: places(&slots, key_len, end)?,
        cipher_name: name.to_owned(),
        cipher_mode: mode.to_owned(),
        hash: hash.to_owned(),
        payload_sector,
        key_len,
        digest: value
            .first_chunk::<DIGEST_LEN>()
            .copied()
            .ok_or_else(|| cannot("the digest of its volume key is too short"))?,
        digest_salt,
        digest_iterations,
        uuid: checked_uuid(&header.binary.uuid)?.to_owned(),
        slots,
        odd: Vec::new(),
        warnings: Vec::new(),
    })
}

/// Where the data begins, and how it is encrypted.
fn only_segment(header: &Luks2Header) -> Result<(u64, &CryptSegment), Error> {
    let metadata = &header.metadata;
    if !metadata.tokens.is_empty() {
        return Err(cannot("it has tokens; remove them first"));
    }
    if let Some(flag) = metadata.config.flags.first() {
        return Err(cannot(format!("it has the flag {}", quote(flag))));
    }
    if !header.binary.label.is_empty() || !header.binary.subsystem.is_empty() {
        return Err(cannot("it has a label or a subsystem; remove them first"));
    }
    let mut segments = metadata.segments.values();
    let (Some(segment), None) = (segments.next(), segments.next()) else {
        return Err(cannot("its data has several segments"));
    };
    let Some(crypt) = &segment.crypt else {
        return Err(cannot("its data is not encrypted"));
    };
    if segment.size.is_some() || !segment.flags.is_empty() || crypt.iv_tweak != 0 {
        return Err(cannot("its data is not just all up to the end of the device"));
    }
    if crypt.integrity.is_some() {
        return Err(cannot("its data has integrity protection"));
    }
    if crypt.sector_size != 512 {
        let size = crypt.sector_size;
        return Err(cannot(format!("its sectors have {size} bytes, LUKS1 has 512")));
    }
    Ok((segment.offset, crypt))
}

fn only_digest(header: &Luks2Header) -> Result<&Digest, Error> {
    let (_, digest) = header.data_digest()?;
    if header.metadata.digests.len() > 1 {
        return Err(cannot("it has key slots for other keys than that of the volume"));
    }
    Ok(digest)
}

fn slot_of(slot: &Keyslot, crypt: &CryptSegment, hash: &str, key_len: u32) -> Result<KeySlot, String> {
    let Some(luks2) = &slot.luks2 else {
        return Err("is of a type that LUKS1 has not".to_owned());
    };
    let Some((kdf_hash, iterations, salt)) = pbkdf2(&luks2.kdf) else {
        return Err("has another key derivation function than PBKDF2; convert it first".to_owned());
    };
    if slot.priority != Priority::Normal {
        return Err("has a priority; make that \"normal\" first".to_owned());
    }
    if [kdf_hash, &luks2.af_hash].iter().any(|it| *it != hash) {
        return Err("has another hash than the volume".to_owned());
    }
    let same_cipher =
        luks2.encryption == crypt.encryption && luks2.encryption_key_len == key_len && slot.key_len == key_len;
    if !same_cipher {
        return Err("has another cipher than the data".to_owned());
    }
    let sector = sector(slot.area.offset).ok_or("is in a place that LUKS1 cannot name")?;
    Ok(KeySlot { iterations, salt, sector })
}

fn pbkdf2(kdf: &Kdf) -> Option<(&str, u32, [u8; SALT_LEN])> {
    match kdf {
        Kdf::Pbkdf2 { hash, iterations, salt } => Some((hash, *iterations, salt.as_slice().try_into().ok()?)),
        _ => None,
    }
}

fn sector(offset: u64) -> Option<u32> {
    offset.is_multiple_of(512).then(|| u32::try_from(offset / 512).ok())?
}

/// Where all eight slots are; those that are free, wherever there is room before `end`.
fn places(slots: &[Option<KeySlot>; SLOTS], key_len: u32, end: u64) -> Result<[u32; SLOTS], Error> {
    let size = stripes_len(key_len).next_multiple_of(AREA_ALIGNMENT);
    let active = slots.iter().flatten();
    let mut taken: Vec<_> = active.map(|slot| Area::of_stripes(slot.sector, key_len)).collect();
    let start = to_u64(HEADER_LEN).next_multiple_of(AREA_ALIGNMENT);
    let mut sectors = [0; SLOTS];
    for (place, slot) in sectors.iter_mut().zip(slots) {
        *place = match slot {
            Some(slot) => slot.sector,
            None => {
                let free = first_gap(&mut taken, start, end, size).ok_or(Error::NoRoom { needed: size })?;
                taken.push(free);
                sector(free.offset).ok_or(Error::NoRoom { needed: size })?
            }
        };
    }
    Ok(sectors)
}
