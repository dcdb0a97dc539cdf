//! Making a LUKS2 header.

use std::io::{Read, Seek, Write};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};

use super::binary::{BINARY_LEN, Binary, COPY_SIZES, HeaderCopy, MAGIC_SECONDARY};
use super::metadata::OBJECTS_MAX;
use super::validate::KEYSLOTS_SIZE_MAX;
use crate::af::STRIPES;
use crate::area::{Area, KeyArea, fill_random, is_null_cipher, parse_cipher, stripes_len};
use crate::cost::{KdfCost, new_kdf, pbkdf2_iterations};
use crate::device::{flush, read_at, to_u64, write_at};
use crate::error::Error;
use crate::format::check_cipher_takes;
use crate::hash::Hash;
use crate::kdf::{Argon2Variant, Kdf, PBKDF2_ITERATIONS_MIN, SALT_LEN};
use crate::options::{FormatOptions, parameters};
use crate::random::Random;

/// Size of one copy: 16 KiB.
pub(crate) const COPY_SIZE: u64 = COPY_SIZES[0];
/// Where data starts unless told otherwise: 16 MiB.
pub(crate) const DATA_OFFSET_DEFAULT: u64 = 16 << 20;
/// Key slots start and end at multiples of this.
pub(crate) const AREA_ALIGNMENT: u64 = 4096;
/// Longest label and subsystem, with their terminating zero in a field of 48.
const LABEL_LEN_MAX: usize = 47;
/// Key slots are encrypted with this where the data's cipher can not do it.
const AREA_CIPHER: &str = "aes-xts-plain64";
const AREA_KEY_LEN: u32 = 64;
/// The digest is measured to take this much of the target (cryptsetup: 1/16).
const DIGEST_TARGET_DIVISOR: u32 = 16;

/// Writes a LUKS2 header with `key` in slot 0. Options have been checked by
/// [`crate::format::format_with_key`], which is what to call.
pub(crate) fn format(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    key: &[u8],
    options: &FormatOptions,
) -> Result<(), Error> {
    let layout = Luks2Layout::new(device_size, options)?;
    let binary = new_binary(options, layout.copy_size)?;
    let random = Random::of(options);
    let area = new_area(options, &layout, &random)?;
    let proved = Proved { slot: options.slot, segments: &["0"] };
    let digest = new_digest(&options.hash, &options.cost, key, &proved, &random)?;
    let slots = json!({ (options.slot.to_string()): keyslot_json(&area, layout.slot_size) });
    let json = metadata(&layout, &options.cipher, slots, digest).to_string();
    let copy_size = layout.copy_size;
    if to_u64(json.len()) >= copy_size - to_u64(BINARY_LEN) {
        return Err(parameters("the metadata does not fit the header"));
    }

    wipe_magics(device, device_size)?;
    write_at(device, 0, &vec![0; usize::try_from(2 * copy_size).unwrap_or(0)])?;
    flush(device)?;
    let keyslots = Area { offset: 2 * copy_size, size: layout.keyslots_size };
    if !options.sparse {
        fill_random(device, keyslots, &random)?;
    }
    area.store(device, passphrase, key, &random)?;
    flush(device)?;
    for copy in [HeaderCopy::Secondary, HeaderCopy::Primary] {
        // Each copy has its own salt, so that no two have the same checksum.
        let binary = Binary { salt: copy_salt(copy, &random)?, ..binary.clone() };
        write_at(device, binary.offset(copy), &binary.encode(copy, json.as_bytes()))?;
        flush(device)?;
    }
    Ok(())
}

/// Overwrites the magic of secondary copies that an earlier header may have left at other
/// offsets: they would be found when the new header is damaged.
pub(crate) fn wipe_magics(device: &mut (impl Read + Write + Seek), device_size: u64) -> Result<(), Error> {
    let mut found = [0; MAGIC_SECONDARY.len()];
    for offset in COPY_SIZES {
        if offset + to_u64(found.len()) > device_size {
            break;
        }
        read_at(device, offset, &mut found, "the space for the header")?;
        if found == MAGIC_SECONDARY {
            write_at(device, offset, &[0; MAGIC_SECONDARY.len()])?;
        }
    }
    flush(device)
}

/// Bytes of both copies and the place for key slots, and the start of the data.
pub(crate) fn lengths(options: &FormatOptions) -> Result<[u64; 2], Error> {
    let layout = Luks2Layout::new(u64::MAX / 2, options)?;
    Ok([2 * layout.copy_size + layout.keyslots_size, layout.data_offset])
}

/// Where key slots and data are.
pub(crate) struct Luks2Layout {
    pub copy_size: u64,
    pub keyslots_size: u64,
    pub data_offset: u64,
    pub sector_size: u32,
    pub slot_size: u64,
}

impl Luks2Layout {
    fn new(device_size: u64, options: &FormatOptions) -> Result<Self, Error> {
        let slot_size = stripes_len(options.key_len).next_multiple_of(AREA_ALIGNMENT);
        let data_offset = match options.data_offset {
            Some(offset) => offset,
            None if options.detached => 0,
            None => DATA_OFFSET_DEFAULT,
        };
        let copy_size = options.metadata_size.unwrap_or(COPY_SIZE);
        if !COPY_SIZES.contains(&copy_size) {
            return Err(parameters(format!(
                "a header copy of {copy_size} bytes is not possible, use a power of two from 16 KiB to 4 MiB"
            )));
        }
        let header_end = match (data_offset, options.keyslots_size) {
            (0, None) if options.detached => DATA_OFFSET_DEFAULT,
            (0, Some(size)) if options.detached => (2 * copy_size).saturating_add(size),
            (offset, _) => offset,
        };
        let least = 2 * copy_size + slot_size;
        if header_end < least {
            return Err(parameters(format!(
                "the data offset must be at least {least} bytes, to leave room for a key slot"
            )));
        }
        let keyslots_size = keyslots_size(options, header_end - 2 * copy_size, slot_size)?;
        let data_size = device_size.saturating_sub(data_offset);
        let sector_size = check_sector_size(options, data_size)?;
        let needed = data_offset.saturating_add(u64::from(sector_size));
        if !options.detached && device_size < needed {
            return Err(Error::TooSmall { needed, size: device_size });
        }
        Ok(Self { copy_size, keyslots_size, data_offset, sector_size, slot_size })
    }
}

/// Bytes of the place for key slots, of `room`.
fn keyslots_size(options: &FormatOptions, room: u64, slot_size: u64) -> Result<u64, Error> {
    let Some(size) = options.keyslots_size else {
        return Ok(room.min(KEYSLOTS_SIZE_MAX));
    };
    let is_possible = size.is_multiple_of(AREA_ALIGNMENT) && (slot_size..=room.min(KEYSLOTS_SIZE_MAX)).contains(&size);
    if !is_possible {
        return Err(parameters(format!(
            "a place of {size} bytes for key slots is not possible, use a multiple of {AREA_ALIGNMENT} from {slot_size} to {}",
            room.min(KEYSLOTS_SIZE_MAX)
        )));
    }
    Ok(size)
}

fn check_sector_size(options: &FormatOptions, data_size: u64) -> Result<u32, Error> {
    let fits = options.detached || data_size.is_multiple_of(4096);
    let size = options.sector_size.unwrap_or(if fits { 4096 } else { 512 });
    if !(512..=4096).contains(&size) || !size.is_power_of_two() {
        return Err(parameters(format!("a sector size of {size} bytes is not possible, use 512, 1024, 2048 or 4096")));
    }
    Ok(size)
}

fn new_area(options: &FormatOptions, layout: &Luks2Layout, random: &Random) -> Result<KeyArea, Error> {
    let (encryption, encryption_key_len) = slot_cipher(options.slot_cipher.as_ref(), &options.cipher, options.key_len)?;
    if options.slot >= OBJECTS_MAX {
        return Err(no_slot(options.slot));
    }
    Ok(KeyArea {
        offset: 2 * layout.copy_size,
        kdf: new_kdf(options.kdf_kind(), &options.hash, &options.cost, encryption_key_len as usize, random)?,
        encryption,
        encryption_key_len,
        af_hash: Hash::by_name(&options.hash)?,
        key_len: options.key_len,
    })
}

/// Cipher of a key slot's area and the length of its key: what was `asked` for, or as it fits the data.
pub(crate) fn slot_cipher(
    asked: Option<&(String, u32)>,
    data_cipher: &str,
    key_len: u32,
) -> Result<(String, u32), Error> {
    if let Some((cipher, len)) = asked {
        if is_null_cipher(cipher) {
            return Err(Error::NullCipher("the key slot".into()));
        }
        check_cipher_takes(cipher, &vec![0; *len as usize])?;
        return Ok((cipher.clone(), *len));
    }
    // What is as the data vouches for it. What is broken is nothing to keep a key under.
    let usual = parse_cipher(data_cipher).ok().and_then(|spec| spec.in_usual_form());
    let takes = |cipher: &String| check_cipher_takes(cipher, &vec![0; key_len as usize]).is_ok();
    Ok(match usual.filter(takes) {
        Some(cipher) => (cipher, key_len),
        None => (AREA_CIPHER.to_owned(), AREA_KEY_LEN),
    })
}

pub(crate) fn no_slot(number: u32) -> Error {
    parameters(format!("there is no key slot {number}; LUKS2 has 0 to {}", OBJECTS_MAX - 1))
}

/// Subject of a digest.
pub(crate) struct Proved<'a> {
    pub slot: u32,
    pub segments: &'a [&'a str],
}

/// Makes a digest that proves that `key`, which is in a key slot, is that of these segments.
pub(crate) fn new_digest(
    hash: &str,
    cost: &KdfCost,
    key: &[u8],
    of: &Proved<'_>,
    random: &Random,
) -> Result<Value, Error> {
    let hash = Hash::by_name(hash)?;
    let iterations = match cost.iterations {
        Some(_) => PBKDF2_ITERATIONS_MIN,
        None => {
            let target = cost.target / DIGEST_TARGET_DIVISOR;
            pbkdf2_iterations(hash, target, hash.output_len())
        }
    };
    let salt = random.bytes("digest salt", SALT_LEN)?;
    let mut digest = vec![0; hash.output_len()];
    hash.pbkdf2(key, &salt, iterations, &mut digest);
    Ok(json!({
        "type": "pbkdf2",
        "keyslots": [of.slot.to_string()],
        "segments": of.segments,
        "hash": hash.name(),
        "iterations": iterations,
        "salt": Base64::encode_string(&salt),
        "digest": Base64::encode_string(&digest),
    }))
}

/// JSON of a header with one segment, which is encrypted by `encryption`.
pub(crate) fn metadata(layout: &Luks2Layout, encryption: &str, keyslots: Value, digest: Value) -> Value {
    json!({
        "keyslots": keyslots,
        "tokens": {},
        "segments": { "0": {
            "type": "crypt",
            "offset": layout.data_offset.to_string(),
            "size": "dynamic",
            "iv_tweak": "0",
            "encryption": encryption,
            "sector_size": layout.sector_size,
        }},
        "digests": { "0": digest },
        "config": {
            "json_size": (layout.copy_size - to_u64(BINARY_LEN)).to_string(),
            "keyslots_size": layout.keyslots_size.to_string(),
        },
    })
}

/// A key slot of kind `luks2`, which has `size` bytes.
pub(crate) fn keyslot_json(area: &KeyArea, size: u64) -> Value {
    json!({
        "type": "luks2",
        "key_size": area.key_len,
        "af": { "type": "luks1", "stripes": STRIPES, "hash": area.af_hash.name() },
        "area": {
            "type": "raw",
            "offset": area.offset.to_string(),
            "size": size.to_string(),
            "encryption": area.encryption,
            "key_size": area.encryption_key_len,
        },
        "kdf": kdf_json(&area.kdf),
    })
}

fn kdf_json(kdf: &Kdf) -> Value {
    match kdf {
        Kdf::Pbkdf2 { hash, iterations, salt } => json!({
            "type": "pbkdf2",
            "hash": hash,
            "iterations": iterations,
            "salt": Base64::encode_string(salt),
        }),
        Kdf::Argon2 { variant, time, memory_kib, cpus, salt } => json!({
            "type": match variant {
                Argon2Variant::Argon2i => "argon2i",
                Argon2Variant::Argon2id => "argon2id",
            },
            "time": time,
            "memory": memory_kib,
            "cpus": cpus,
            "salt": Base64::encode_string(salt),
        }),
        Kdf::Other(name) => json!({ "type": name }),
    }
}

fn new_binary(options: &FormatOptions, copy_size: u64) -> Result<Binary, Error> {
    check_label("label", &options.label)?;
    check_label("subsystem", &options.subsystem)?;
    Ok(Binary {
        copy_size,
        epoch: 1,
        label: options.label.clone(),
        checksum_hash: "sha256".into(),
        salt: [0; 64],
        uuid: options.uuid_or_random()?,
        subsystem: options.subsystem.clone(),
    })
}

/// Checks that `text` fits its field.
pub(crate) fn check_label(name: &str, text: &str) -> Result<(), Error> {
    if text.len() > LABEL_LEN_MAX || text.contains('\0') {
        return Err(parameters(format!("the {name} has {} bytes, at most {LABEL_LEN_MAX} are possible", text.len())));
    }
    Ok(())
}

/// The salt of one copy.
pub(crate) fn copy_salt(copy: HeaderCopy, random: &Random) -> Result<[u8; 64], Error> {
    let purpose = match copy {
        HeaderCopy::Primary => "salt of the primary header",
        HeaderCopy::Secondary => "salt of the secondary header",
    };
    let mut salt = [0; 64];
    random.stream(purpose).fill(&mut salt)?;
    Ok(salt)
}
