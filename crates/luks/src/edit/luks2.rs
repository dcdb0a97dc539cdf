//! LUKS2: the JSON as a value in which only what is meant is changed.

use std::io::{Read, Seek, Write};

use cryptline_cipher::CipherSpec;
use serde_json::{Value, json};

use super::text::says_the_same;
use super::{Edit, HeaderChange, Material, NewHeader, NewSlot, Priority, SlotSecrets, VersionEdit, material};
use crate::area::{Area, KeyArea, first_gap, gaps, stripes_len};
use crate::cost::KdfKind;
use crate::device::{flush, read_at, to_u64, write_at};
use crate::error::Error;
use crate::hash::Hash;
use crate::luks2::binary::{BINARY_LEN, Binary, HeaderCopy};
use crate::luks2::format::{self, AREA_ALIGNMENT, check_label, copy_salt, keyslot_json};
use crate::luks2::metadata::{DIGESTS_MAX, Keyslot, OBJECTS_MAX};
use crate::luks2::validate::header_end;
use crate::luks2::{Luks2Header, parse_metadata};
use crate::options::parameters;
use crate::random::Random;

const LABEL_FIELD: usize = 24;
pub(super) const UUID_FIELD: usize = 168;
const SUBSYSTEM_FIELD: usize = 208;
/// Hash of a new slot unless told otherwise.
const HASH_DEFAULT: &str = "sha256";

/// The JSON of the copy in use, byte for byte.
pub(super) fn json_of(device: &mut (impl Read + Seek), header: &Luks2Header) -> Result<Vec<u8>, Error> {
    let offset = header.binary.offset(header.copy) + to_u64(BINARY_LEN);
    let len = usize::try_from(header.metadata.config.json_size).unwrap_or(0);
    let mut area = vec![0; len];
    read_at(device, offset, &mut area, "the LUKS2 header")?;
    let end = area.iter().position(|&byte| byte == 0).unwrap_or(len);
    area.truncate(end);
    Ok(area)
}

/// Tells if JSON would be written back as it is.
pub(super) fn is_kept(json: &[u8], header: &Luks2Header) -> bool {
    std::str::from_utf8(json).is_ok_and(|text| says_the_same(text, &header.metadata.json.to_string()))
}

/// A copy that a newer program has written is not replaced by an older one.
pub(super) fn check_not_newer(header: &Luks2Header) -> Result<(), Error> {
    let damages = header.copies.iter().filter_map(|copy| copy.damage.as_deref());
    let mut versions = damages.filter_map(|damage| damage.strip_prefix("version ")?.parse().ok());
    match versions.find(|&version| version > 2) {
        Some(version) => Err(Error::NewerVersion(version)),
        None => Ok(()),
    }
}

/// A header that is to be changed.
pub(super) struct Luks2Editing<'a> {
    pub edit: &'a Edit,
    pub header: &'a Luks2Header,
}

impl<'a> VersionEdit<'a> for Luks2Editing<'a> {
    fn add(&self, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        let number = free_slot(self.header, secrets.new.slot)?;
        let (material, slot) = self.store(secrets)?;
        let (digest, _) = self.header.data_digest()?;
        let mut json = self.header.metadata.json.clone();
        let name = number.to_string();
        object(&mut json["keyslots"])?.insert(name.clone(), slot);
        list(&mut json["digests"][digest.to_string()]["keyslots"])?.push(name.into());
        let change = HeaderChange { material: vec![material], ..self.rewrite(json)? };
        Ok((change, number))
    }

    fn replace(&self, number: u32, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        if secrets.new.slot.is_some_and(|slot| slot != number) {
            return Err(parameters("the key slot keeps its number in LUKS2"));
        }
        let old = self.header.metadata.keyslots.get(&number).ok_or(Error::SlotNotInUse(number))?;
        let (material, slot) = self.store(&SlotSecrets { new: &self.vouching_as(old, secrets.new), ..*secrets })?;
        let change = HeaderChange { material: vec![material], wiped: vec![old.area], ..self.with_slot(number, &slot)? };
        Ok((change, number))
    }

    fn replace_in_place(&self, number: u32, secrets: &SlotSecrets<'_>) -> Result<HeaderChange<'a>, Error> {
        let old = self.header.metadata.keyslots.get(&number).ok_or(Error::SlotNotInUse(number))?;
        let secrets = &SlotSecrets { new: &self.vouching_as(old, secrets.new), ..*secrets };
        let (material, slot) = self.store_at(old.area, secrets)?;
        Ok(self.with_slot(number, &slot)?.in_place(material))
    }

    fn remove(&self, slot: u32) -> Result<HeaderChange<'a>, Error> {
        // Without it, it is not known which slot is the last.
        self.header.data_digest()?;
        let area = self.header.metadata.keyslots.get(&slot);
        let area = area.ok_or(Error::SlotNotInUse(slot))?.area;
        Ok(HeaderChange { doomed: vec![area], ..self.without(&[slot])? })
    }

    fn erase(&self) -> Result<HeaderChange<'a>, Error> {
        let slots: Vec<_> = self.header.metadata.keyslots.keys().copied().collect();
        let start = 2 * self.header.binary.copy_size;
        let end = header_end(self.header.binary.copy_size, &self.header.metadata);
        // What opens the volume comes first; then what others have left between.
        let mut doomed = used_areas(self.header);
        doomed.extend(gaps(&mut used_areas(self.header), start, end));
        Ok(HeaderChange { doomed, ..self.without(&slots)? })
    }

    fn set_uuid(&self, uuid: &str) -> Result<HeaderChange<'a>, Error> {
        self.with_field(&[(UUID_FIELD, 40, uuid)])
    }

    fn wipe_unused(&self) -> Result<HeaderChange<'a>, Error> {
        let end = header_end(self.header.binary.copy_size, &self.header.metadata);
        let start = 2 * self.header.binary.copy_size;
        let wiped = gaps(&mut used_areas(self.header), start, end);
        Ok(HeaderChange { wiped, ..self.rewritten()? })
    }
}

impl<'a> Luks2Editing<'a> {
    /// A digest of its own says which key it is, and that it is for no data.
    pub fn add_unbound(&self, secrets: &SlotSecrets<'_>) -> Result<(HeaderChange<'a>, u32), Error> {
        let number = free_slot(self.header, secrets.new.slot)?;
        let hash = secrets.new.hash.as_deref().unwrap_or(HASH_DEFAULT);
        let proved = format::Proved { slot: number, segments: &[] };
        let digest = format::new_digest(hash, &secrets.new.cost, secrets.key, &proved, &Random::Kernel)?;
        let taken = &self.header.metadata.digests;
        let free = (0..DIGESTS_MAX).find(|number| !taken.contains_key(number));
        let free = free.ok_or_else(|| parameters("there is no room for another key"))?;
        let (material, slot) = self.store(secrets)?;
        let mut json = self.header.metadata.json.clone();
        object(&mut json["keyslots"])?.insert(number.to_string(), slot);
        object(&mut json["digests"])?.insert(free.to_string(), digest);
        let change = HeaderChange { material: vec![material], ..self.rewrite(json)? };
        Ok((change, number))
    }

    pub fn set_priority(&self, slot: u32, priority: Priority) -> Result<HeaderChange<'a>, Error> {
        let mut json = self.header.metadata.json.clone();
        let slot = object(&mut json["keyslots"][slot.to_string()])?;
        match priority {
            // What is usual is not written down.
            Priority::Normal => _ = slot.shift_remove("priority"),
            Priority::Ignore => _ = slot.insert("priority".into(), json!(0)),
            Priority::Prefer => _ = slot.insert("priority".into(), json!(2)),
        }
        self.rewrite(json)
    }

    pub fn set_label(&self, label: Option<&str>, subsystem: Option<&str>) -> Result<HeaderChange<'a>, Error> {
        let mut fields = Vec::new();
        if let Some(label) = label {
            check_label("label", label)?;
            fields.push((LABEL_FIELD, 48, label));
        }
        if let Some(subsystem) = subsystem {
            check_label("subsystem", subsystem)?;
            fields.push((SUBSYSTEM_FIELD, 48, subsystem));
        }
        self.with_field(&fields)
    }

    pub fn set_data_size(&self, size: u64) -> Result<HeaderChange<'a>, Error> {
        let last = self.header.metadata.segments.last_key_value().filter(|(_, segment)| segment.size.is_some());
        let Some((number, _)) = last else {
            return Err(parameters("the data goes to the end of its device"));
        };
        let mut json = self.header.metadata.json.clone();
        json["segments"][number.to_string()]["size"] = size.to_string().into();
        self.rewrite(json)
    }

    /// The header without key slots and tokens that are not as the format has them, whose key material stays. Of two key
    /// slots that lie over each other, nobody knows which one is right.
    pub fn without_odd(&self) -> Result<HeaderChange<'a>, Error> {
        if !self.edit.is_kept {
            return Err(Error::JsonNotKept);
        }
        self.header.check_usable()?;
        let metadata = &self.header.metadata;
        // Guard: the salt and the costs of a slot that is not understood here are nowhere else.
        let is_kept = |keeping: Vec<u32>| keeping.iter().any(|slot| !self.edit.gone.contains(slot));
        let mut slots = metadata.odd.iter().filter(|odd| odd.member == "keyslots");
        if let Some(odd) = slots.next()
            && !self.edit.keeping().is_some_and(is_kept)
        {
            return Err(Error::Repair(format!(
                "{odd} is not taken out, since no other key slot opens the volume; the program that made it, or a \
                 newer version of this one, may open it"
            )));
        }
        let mut json = metadata.json.clone();
        for odd in &metadata.odd {
            if odd.member == "keyslots" && metadata.keyslots.contains_key(&odd.number) {
                return Err(Error::Repair(format!("{odd}; remove one of them by the program that made it")));
            }
            let name = odd.number.to_string();
            object(&mut json[odd.member])?.shift_remove(&name);
            if odd.member == "tokens" {
                continue;
            }
            for owners in ["digests", "tokens"] {
                let lists = object(&mut json[owners])?.values_mut().filter_map(|owner| owner.get_mut("keyslots"));
                lists.filter_map(Value::as_array_mut).for_each(|list| list.retain(|slot| *slot != *name));
            }
        }
        self.rewrite(json)
    }

    /// The same header again, byte for byte.
    pub fn rewritten(&self) -> Result<HeaderChange<'a>, Error> {
        next_epoch(self.header)?;
        let (raw, json) = (self.edit.raw.clone(), self.edit.json.clone());
        Ok(HeaderChange::new(self.edit, NewHeader::V2 { raw, json }))
    }

    /// A header with this JSON, checked as if it had been read.
    pub fn rewrite(&self, json: Value) -> Result<HeaderChange<'a>, Error> {
        let json = json.to_string();
        let room = self.header.metadata.config.json_size;
        let needed = to_u64(json.len()) + 1;
        if needed > room {
            return Err(Error::MetadataFull { needed, room });
        }
        let area = [json.as_bytes(), &[0]].concat();
        parse_metadata(&area, self.header.binary.copy_size)?;
        next_epoch(self.header)?;
        let raw = self.edit.raw.clone();
        Ok(HeaderChange::new(self.edit, NewHeader::V2 { raw, json: json.into_bytes() }))
    }

    /// A slot that keeps its priority, and what is not known here.
    fn with_slot(&self, number: u32, slot: &Value) -> Result<HeaderChange<'a>, Error> {
        let mut json = self.header.metadata.json.clone();
        let place = &mut json["keyslots"][number.to_string()];
        for member in ["key_size", "af", "area", "kdf"] {
            place[member] = slot[member].clone();
        }
        self.rewrite(json)
    }

    /// Texts of the binary part: place, length of the field, text.
    fn with_field(&self, fields: &[(usize, usize, &str)]) -> Result<HeaderChange<'a>, Error> {
        let mut change = self.rewritten()?;
        if let NewHeader::V2 { raw, .. } = &mut change.header {
            for &(start, len, text) in fields {
                raw[start..start + len].fill(0);
                raw[start..start + text.len()].copy_from_slice(text.as_bytes());
            }
        }
        Ok(change)
    }

    fn without(&self, slots: &[u32]) -> Result<HeaderChange<'a>, Error> {
        let mut json = self.header.metadata.json.clone();
        for slot in slots {
            let name = slot.to_string();
            object(&mut json["keyslots"])?.shift_remove(&name);
            for owners in ["digests", "tokens"] {
                for (_, owner) in object(&mut json[owners])?.iter_mut() {
                    list(&mut owner["keyslots"])?.retain(|slot| *slot != *name);
                }
            }
        }
        // What proves a key that nothing keeps and nothing needs is of no use.
        object(&mut json["digests"])?.retain(|_, digest| {
            // Guard: a digest that is not as the format has it may still prove a key.
            let is_empty = |what: &str| digest[what].as_array().is_some_and(Vec::is_empty);
            !(is_empty("keyslots") && is_empty("segments"))
        });
        self.rewrite(json)
    }

    /// A slot that vouches for the cipher of the data where `old`, whose place it takes, has done so. No other program
    /// need have made that one as a new one is made here.
    fn vouching_as(&self, old: &Keyslot, new: &NewSlot) -> NewSlot {
        let data = CipherSpec::parse(self.data_cipher());
        let vouching = old.luks2.as_ref().filter(|luks2| {
            let area = CipherSpec::parse(&luks2.encryption);
            data.is_ok_and(|data| area.is_ok_and(|area| !area.is_null() && area.is_alike(&data)))
        });
        let cipher = vouching.map(|luks2| (luks2.encryption.clone(), luks2.encryption_key_len));
        NewSlot { cipher: new.cipher.clone().or(cipher), ..new.clone() }
    }

    /// Cipher of the data; of several segments, that of the first that is encrypted.
    fn data_cipher(&self) -> &str {
        let mut ciphers = self.header.metadata.segments.values().filter_map(|segment| segment.crypt.as_ref());
        ciphers.next().map_or("", |crypt| &crypt.encryption)
    }

    /// The key material of a new slot, and its JSON. No area that is in use is touched.
    fn store(&self, secrets: &SlotSecrets<'_>) -> Result<(Material, Value), Error> {
        let size = stripes_len(len_of(secrets.key)?).next_multiple_of(AREA_ALIGNMENT);
        self.store_at(free_area(self.header, size)?, secrets)
    }

    /// The same in a place that is large enough.
    fn store_at(&self, extent: Area, secrets: &SlotSecrets<'_>) -> Result<(Material, Value), Error> {
        let key_len = len_of(secrets.key)?;
        let hash = Hash::by_name(secrets.new.hash.as_deref().unwrap_or(HASH_DEFAULT))?;
        let kind = secrets.new.kdf.unwrap_or(KdfKind::Argon2id);
        let cipher = format::slot_cipher(secrets.new.cipher.as_ref(), self.data_cipher(), key_len)?;
        let slot = format::FormatSlot::new(cipher, kind, hash.name(), &secrets.new.cost, &Random::Kernel)?;
        let area = KeyArea {
            offset: extent.offset,
            encryption: &slot.encryption,
            encryption_key_len: slot.encryption_key_len as usize,
            af_hash: hash,
            kdf: &slot.kdf,
            key_len: secrets.key.len(),
        };
        let material = material(&area, secrets.passphrase, secrets.key)?;
        Ok((material, keyslot_json(key_len, hash.name(), extent, &slot)))
    }
}

/// Writes both copies, each flushed before the next is begun. The only one that is good comes last.
pub(super) fn write_copies(
    device: &mut (impl Write + Seek),
    edit: &Edit,
    raw: &[u8],
    json: &[u8],
) -> Result<(), Error> {
    let crate::LuksHeader::V2(header) = &edit.header else {
        return Ok(());
    };
    let epoch = next_epoch(header)?;
    let keep_primary = header.copy == HeaderCopy::Primary && !header.copies_agree();
    let binary = Binary { epoch, ..header.binary.clone() };
    write_both(device, binary, raw, json, keep_primary)
}

/// Above those of both copies.
fn next_epoch(header: &Luks2Header) -> Result<u64, Error> {
    let epochs = header.copies.iter().filter_map(|copy| copy.epoch);
    epochs.max().unwrap_or(0).checked_add(1).ok_or_else(|| Error::invalid("the header has been written 2^64 times"))
}

/// Writes both copies, each under a salt of its own and flushed before the next is begun.
pub(super) fn write_both(
    device: &mut (impl Write + Seek),
    mut binary: Binary,
    raw: &[u8],
    json: &[u8],
    primary_last: bool,
) -> Result<(), Error> {
    let order = if primary_last {
        [HeaderCopy::Secondary, HeaderCopy::Primary]
    } else {
        [HeaderCopy::Primary, HeaderCopy::Secondary]
    };
    for copy in order {
        binary.salt = copy_salt(copy, &Random::Kernel)?;
        write_at(device, binary.offset(copy), &binary.renew(raw, copy, json)?)?;
        flush(device)?;
    }
    Ok(())
}

fn len_of(key: &[u8]) -> Result<u32, Error> {
    u32::try_from(key.len()).map_err(|_| parameters("the key is too long"))
}

fn free_slot(header: &Luks2Header, named: Option<u32>) -> Result<u32, Error> {
    let slots = &header.metadata.keyslots;
    match named {
        Some(slot) if slot >= OBJECTS_MAX => Err(format::no_slot(slot)),
        Some(slot) if slots.contains_key(&slot) => Err(Error::SlotInUse(slot)),
        Some(slot) => Ok(slot),
        None => {
            let free = (0..OBJECTS_MAX).find(|slot| !slots.contains_key(slot));
            free.ok_or(Error::NoFreeSlot(OBJECTS_MAX))
        }
    }
}

/// The first gap of `size` bytes between the areas that are in use.
fn free_area(header: &Luks2Header, size: u64) -> Result<Area, Error> {
    let copy_size = header.binary.copy_size;
    let end = header_end(copy_size, &header.metadata);
    let start = (2 * copy_size).next_multiple_of(AREA_ALIGNMENT);
    first_gap(&mut used_areas(header), start, end, size).ok_or(Error::NoRoom { needed: size })
}

/// In the order of their places.
fn used_areas(header: &Luks2Header) -> Vec<Area> {
    let slots = header.metadata.keyslots.values();
    let mut used: Vec<_> = slots.map(|slot| slot.area).collect();
    used.sort_by_key(|area| area.offset);
    used
}

fn object(value: &mut Value) -> Result<&mut serde_json::Map<String, Value>, Error> {
    let object = value.as_object_mut();
    object.ok_or_else(|| Error::invalid("the JSON has no object where one must be"))
}

fn list(value: &mut Value) -> Result<&mut Vec<Value>, Error> {
    value.as_array_mut().ok_or_else(|| Error::invalid("the JSON has no array where one must be"))
}
