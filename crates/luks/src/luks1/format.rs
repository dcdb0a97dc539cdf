//! Making a LUKS1 header.

use std::io::{Read, Seek, Write};

use super::repair::usual_sector;
use super::{
    DIGEST_LEN, HEADER_LEN, ITERATIONS, KeySlot, Luks1Header, PLACE, SALT, SLOT_ACTIVE, SLOT_INACTIVE, SLOTS,
    STRIPES_FIELD, slot_start,
};
use crate::af::STRIPES;
use crate::area::{Area, fill_random, is_null_cipher, stripes_len};
use crate::cost::{KdfKind, new_kdf, pbkdf2_iterations};
use crate::device::{flush, write_at};
use crate::error::Error;
use crate::hash::Hash;
use crate::kdf::{Kdf, PBKDF2_ITERATIONS_MIN, SALT_LEN};
use crate::luks2;
use crate::options::{FormatOptions, parameters};
use crate::random::Random;

/// Data starts at a multiple of 1 MiB.
const DATA_ALIGNMENT_SECTORS: u32 = 2048;
/// Longest name of a cipher, a mode or a hash, with its terminating zero in a field of 32.
pub(crate) const WORD_LEN_MAX: usize = 31;
/// The digest is measured to take this much of the target (cryptsetup: 1/8).
const DIGEST_TARGET_DIVISOR: u32 = 8;

/// Writes a LUKS1 header with `key` in slot 0. Options have been checked by
/// [`crate::format::format_with_key`], which is what to call.
pub(crate) fn format(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    key: &[u8],
    options: &FormatOptions,
) -> Result<(), Error> {
    check_options(options)?;
    let layout = Luks1Layout::new(options)?;
    if !options.detached {
        let data_offset = u64::from(layout.payload_sector) * 512;
        let needed = data_offset + 512;
        if device_size < needed {
            return Err(Error::TooSmall { needed, size: device_size });
        }
    }
    let hash = Hash::by_name(&options.hash)?;
    let random = Random::of(options);
    let kdf = new_kdf(KdfKind::Pbkdf2, &options.hash, &options.cost, key.len(), &random)?;
    let header = new_header(options, &layout, hash, key, &kdf)?;

    luks2::wipe_magics(device, device_size)?;
    write_at(device, 0, &[0; 4096])?;
    flush(device)?;
    for sector in layout.slot_sectors {
        let extent = Area::of_stripes(sector, options.key_len);
        fill_random(device, extent, &random)?;
    }
    let area = header.key_area(layout.slot_sectors[options.slot as usize], kdf)?;
    area.store(device, passphrase, key, &random)?;
    flush(device)?;
    write_at(device, 0, &encode(&header))?;
    flush(device)
}

/// Bytes up to the end of the last slot, and the start of the data.
pub(crate) fn lengths(options: &FormatOptions) -> Result<[u64; 2], Error> {
    let layout = Luks1Layout::new(options)?;
    let last = u64::from(layout.slot_sectors[SLOTS - 1]) * 512;
    let end = (last + stripes_len(options.key_len)).next_multiple_of(4096);
    Ok([end, u64::from(layout.payload_sector) * 512])
}

/// Where the slots and the data are.
struct Luks1Layout {
    slot_sectors: [u32; SLOTS],
    payload_sector: u32,
}

impl Luks1Layout {
    fn new(options: &FormatOptions) -> Result<Self, Error> {
        let too_long = || parameters("the volume key is too long");
        let mut slot_sectors = [0; SLOTS];
        for (number, sector) in slot_sectors.iter_mut().enumerate() {
            *sector = usual_sector(number, options.key_len).ok_or_else(too_long)?;
        }
        let end = usual_sector(SLOTS, options.key_len).ok_or_else(too_long)?;
        let payload_sector = match options.data_offset {
            Some(offset) => {
                u32::try_from(offset / 512).map_err(|_| parameters("the data offset is too large for LUKS1"))?
            }
            None if options.detached => 0,
            None => end.next_multiple_of(DATA_ALIGNMENT_SECTORS),
        };
        if payload_sector < end && !(options.detached && payload_sector == 0) {
            let least = u64::from(end) * 512;
            return Err(parameters(format!(
                "the data offset must be at least {least} bytes, to leave room for the key slots"
            )));
        }
        Ok(Self { slot_sectors, payload_sector })
    }
}

fn check_options(options: &FormatOptions) -> Result<(), Error> {
    if options.sector_size.is_some_and(|size| size != 512) {
        return Err(parameters("LUKS1 has 512-byte sectors only; use LUKS2 for larger ones"));
    }
    if options.kdf.is_some_and(|kind| kind != KdfKind::Pbkdf2) {
        return Err(parameters("LUKS1 has PBKDF2 only; use LUKS2 for Argon2"));
    }
    if !options.label.is_empty() || !options.subsystem.is_empty() {
        return Err(parameters("LUKS1 has no label and no subsystem; use LUKS2 for them"));
    }
    if options.slot as usize >= SLOTS {
        return Err(parameters(format!("there is no key slot {}; LUKS1 has 0 to {}", options.slot, SLOTS - 1)));
    }
    let for_luks2 = options.metadata_size.is_some() || options.keyslots_size.is_some() || options.slot_cipher.is_some();
    if for_luks2 {
        return Err(parameters(
            "LUKS1 has no other sizes of its header, and no other ciphers of its key slots; use LUKS2 for them",
        ));
    }
    let (name, mode) = split_cipher(&options.cipher);
    if [name, mode, &options.hash].iter().any(|it| it.len() > WORD_LEN_MAX) {
        return Err(parameters("the name of cipher or hash is too long for LUKS1"));
    }
    if options.cipher.starts_with("capi:") {
        return Err(parameters("LUKS1 can not store capi: ciphers; use LUKS2 for them"));
    }
    Ok(())
}

/// Name and mode of a cipher word, as cryptsetup writes the short ones.
pub(crate) fn split_cipher(cipher: &str) -> (&str, &str) {
    match cipher.split_once('-') {
        Some((name, "plain")) => (name, "cbc-plain"),
        Some(parts) => parts,
        None if is_null_cipher(cipher) => (cipher, "ecb"),
        None => (cipher, "cbc-plain"),
    }
}

fn new_header(
    options: &FormatOptions,
    layout: &Luks1Layout,
    hash: Hash,
    key: &[u8],
    kdf: &Kdf,
) -> Result<Luks1Header, Error> {
    let Kdf::Pbkdf2 { iterations, salt, .. } = kdf else {
        return Err(parameters("LUKS1 has PBKDF2 only"));
    };
    let digest_iterations = match options.cost.iterations {
        Some(_) => PBKDF2_ITERATIONS_MIN,
        None => {
            let target = options.cost.target / DIGEST_TARGET_DIVISOR;
            pbkdf2_iterations(hash, target, DIGEST_LEN)
        }
    };
    let digest_salt = salt_array(&Random::of(options).bytes("digest salt", SALT_LEN)?);
    let mut digest = [0; DIGEST_LEN];
    hash.pbkdf2(key, &digest_salt, digest_iterations, &mut digest);
    let mut slots = [const { None }; SLOTS];
    let number = options.slot as usize;
    slots[number] =
        Some(KeySlot { iterations: *iterations, salt: salt_array(salt), sector: layout.slot_sectors[number] });
    let (cipher_name, cipher_mode) = split_cipher(&options.cipher);
    Ok(Luks1Header {
        cipher_name: cipher_name.to_owned(),
        cipher_mode: cipher_mode.to_owned(),
        hash: options.hash.clone(),
        payload_sector: layout.payload_sector,
        key_len: options.key_len,
        digest,
        digest_salt,
        digest_iterations,
        uuid: options.uuid_or_random()?,
        slots,
        sectors: layout.slot_sectors,
        odd: Vec::new(),
        warnings: Vec::new(),
    })
}

fn salt_array(salt: &[u8]) -> [u8; SALT_LEN] {
    let mut out = [0; SALT_LEN];
    out.copy_from_slice(salt);
    out
}

pub(crate) fn encode(header: &Luks1Header) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, &crate::MAGIC);
    put(6, &1_u16.to_be_bytes());
    put(8, header.cipher_name.as_bytes());
    put(40, header.cipher_mode.as_bytes());
    put(72, header.hash.as_bytes());
    put(104, &header.payload_sector.to_be_bytes());
    put(108, &header.key_len.to_be_bytes());
    put(112, &header.digest);
    put(132, &header.digest_salt);
    put(164, &header.digest_iterations.to_be_bytes());
    put(168, header.uuid.as_bytes());
    for (number, slot) in header.slots.iter().enumerate() {
        let start = slot_start(number);
        let state = if slot.is_some() { SLOT_ACTIVE } else { SLOT_INACTIVE };
        put(start, &state.to_be_bytes());
        if let Some(slot) = slot {
            put(start + ITERATIONS, &slot.iterations.to_be_bytes());
            put(start + SALT, &slot.salt);
        }
        put(start + PLACE, &header.sectors[number].to_be_bytes());
        put(start + STRIPES_FIELD, &STRIPES.to_be_bytes());
    }
    bytes
}
