//! LUKS2: the JSON as a value in which only what is meant is changed.

use cryptline_cipher::CipherSpec;
use serde_json::{Value, json};

use super::text::says_the_same;
use super::{
    ChangeResult, Edit, FoundHeader, HeaderChange, HeaderEdit, Material, NewHeader, NewSlot, Priority, SlotResult,
    SlotSecrets, material,
};
use crate::LuksHeader;
use crate::area::{Area, KeyArea, first_gap, gaps, stripes_len};
use crate::cost::{KdfKind, new_kdf};
use crate::device::{ReadSeek, read_at, to_u64};
use crate::error::Error;
use crate::hash::Hash;
use crate::luks2::binary::{BINARY_LEN, Binary, HeaderCopy, text};
use crate::luks2::format::{self, AREA_ALIGNMENT, check_label, copy_salt, keyslot_json};
use crate::luks2::metadata::{DIGESTS_MAX, Keyslot, Metadata, OBJECTS_MAX};
use crate::luks2::{Luks2Header, parse_metadata};
use crate::options::parameters;
use crate::random::Random;
use crate::version::HeaderVersion;

const LABEL_FIELD: usize = 24;
const UUID_FIELD: usize = 168;
const SUBSYSTEM_FIELD: usize = 208;
/// Hash of a new slot unless told otherwise.
const HASH_DEFAULT: &str = "sha256";

impl HeaderEdit for Luks2Header {
    fn find(&self, device: &mut dyn ReadSeek, _: u64) -> Result<FoundHeader, Error> {
        let mut raw = vec![0; BINARY_LEN];
        let offset = self.binary.offset(self.copy);
        read_at(device, offset, &mut raw, "the LUKS2 header")?;
        let mut json = vec![0; usize::try_from(self.metadata.config.json_size).unwrap_or(0)];
        read_at(device, offset + to_u64(BINARY_LEN), &mut json, "the LUKS2 header")?;
        let end = json.iter().position(|&byte| byte == 0).unwrap_or(json.len());
        json.truncate(end);
        let is_kept = |text| says_the_same(text, &self.metadata.json.to_string());
        let is_lossy = !std::str::from_utf8(&json).is_ok_and(is_kept);
        Ok(FoundHeader { raw, json, is_lossy, copies: self.copies.to_vec(), ..FoundHeader::default() })
    }

    fn add<'a>(&self, edit: &'a Edit, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        let number = free_slot(self, secrets.new.slot)?;
        let (material, slot) = self.store(secrets)?;
        let (digest, _) = self.data_digest()?;
        let mut json = self.metadata.json.clone();
        let name = number.to_string();
        object(&mut json["keyslots"])?.insert(name.clone(), slot);
        list(&mut json["digests"][digest.to_string()]["keyslots"])?.push(name.into());
        let change = HeaderChange { material: Some(material), ..self.rewrite(edit, &json)? };
        Ok((change, number))
    }

    fn replace<'a>(&self, edit: &'a Edit, number: u32, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        if secrets.new.slot.is_some_and(|slot| slot != number) {
            return Err(parameters("the key slot keeps its number in LUKS2"));
        }
        let old = self.metadata.keyslots.get(&number).ok_or(Error::SlotNotInUse(number))?;
        let (material, slot) = self.store(&SlotSecrets { new: &self.vouching_as(old, secrets.new), ..*secrets })?;
        let change =
            HeaderChange { material: Some(material), wiped: vec![old.area], ..self.with_slot(edit, number, &slot)? };
        Ok((change, number))
    }

    fn replace_in_place<'a>(&self, edit: &'a Edit, number: u32, secrets: &SlotSecrets<'_>) -> ChangeResult<'a> {
        let old = self.metadata.keyslots.get(&number).ok_or(Error::SlotNotInUse(number))?;
        let secrets = &SlotSecrets { new: &self.vouching_as(old, secrets.new), ..*secrets };
        let (material, slot) = self.store_at(old.area, secrets)?;
        Ok(self.with_slot(edit, number, &slot)?.in_place(material))
    }

    fn remove<'a>(&self, edit: &'a Edit, slot: u32) -> ChangeResult<'a> {
        // Without it, it is not known which slot is the last.
        self.data_digest()?;
        let area = self.metadata.keyslots.get(&slot);
        let area = area.ok_or(Error::SlotNotInUse(slot))?.area;
        Ok(HeaderChange { doomed: vec![area], ..self.without(edit, &[slot])? })
    }

    fn erase<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        let slots: Vec<_> = self.metadata.keyslots.keys().copied().collect();
        // What opens the volume comes first; then what others have left between.
        let mut doomed = self.used_areas();
        doomed.extend(self.unused_areas());
        Ok(HeaderChange { doomed, ..self.without(edit, &slots)? })
    }

    fn set_uuid<'a>(&self, edit: &'a Edit, uuid: &str) -> ChangeResult<'a> {
        self.with_field(edit, &[(UUID_FIELD, 40, uuid)])
    }

    fn wipe_unused<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        Ok(HeaderChange { wiped: self.unused_areas(), ..self.rewritten(edit)? })
    }

    fn repair<'a>(&self, edit: &'a Edit, force: bool) -> Result<Option<HeaderChange<'a>>, Error> {
        self.check_not_newer()?;
        // Whoever accepts the cost of one has not been asked about the other.
        if !self.copies_agree() {
            return self.rewritten(edit).map(Some);
        }
        if force && !self.metadata.odd.is_empty() { self.without_odd(edit).map(Some) } else { Ok(None) }
    }

    fn keeping(&self) -> Option<Vec<u32>> {
        let (_, digest) = self.data_digest().ok()?;
        let slots = &self.metadata.keyslots;
        let opens = |slot: &&u32| slots.get(*slot).is_some_and(|slot| slot.luks2.is_some());
        Some(digest.keyslots.iter().filter(opens).copied().collect())
    }

    // Guard: the digest alone does not tell a key from the same key with zeros behind it.
    fn verify_key_of(&self, slot: u32, key: &[u8]) -> Result<(), Error> {
        let keeps = self.metadata.keyslots.get(&slot).ok_or(Error::SlotNotInUse(slot))?;
        let fits = keeps.key_len as usize == key.len() && self.digest_of(slot)?.matches(key)?;
        if fits { Ok(()) } else { Err(Error::WrongVolumeKey) }
    }

    fn writes(&self, new: &NewHeader) -> Result<Vec<Material>, Error> {
        let binary = Binary { epoch: next_epoch([self])?, ..self.binary.clone() };
        copies_of(binary, &new.raw[0], &new.json, self.is_only_primary())
    }

    fn changed(&self, _: &Edit, new: &NewHeader) -> Option<LuksHeader> {
        let mut header = self.clone();
        header.binary.uuid = text(&new.raw[0][UUID_FIELD..][..40]);
        header.metadata = Metadata::parse(serde_json::from_slice(&new.json).ok()?).ok()?;
        Some(LuksHeader::V2(header))
    }

    fn restored(&self, head: &[u8], epoch: u64, is_primary_last: bool) -> Result<Vec<Material>, Error> {
        let (primary, secondary) = head.split_at(head.len() / 2);
        if self.check_writable().is_err() {
            // Of one of them, it is not known what it says.
            let mut copies = vec![(0, primary.to_vec()), (self.binary.copy_size, secondary.to_vec())];
            if is_primary_last {
                copies.reverse();
            }
            return Ok(copies);
        }
        let used = if self.copy == HeaderCopy::Primary { primary } else { secondary };
        let (raw, json) = used.split_at(BINARY_LEN);
        copies_of(Binary { epoch, ..self.binary.clone() }, raw, json, is_primary_last)
    }
}

impl Luks2Header {
    /// Areas of key slots in the order of their places.
    fn used_areas(&self) -> Vec<Area> {
        let mut used: Vec<_> = self.metadata.keyslots.values().map(|slot| slot.area).collect();
        used.sort_by_key(|area| area.offset);
        used
    }

    pub(super) fn unused_areas(&self) -> Vec<Area> {
        gaps(&mut self.used_areas(), self.metadata_len(), self.end())
    }

    /// The first gap of `size` bytes between the areas that are in use.
    fn free_area(&self, size: u64) -> Result<Area, Error> {
        let start = self.metadata_len().next_multiple_of(AREA_ALIGNMENT);
        first_gap(&mut self.used_areas(), start, self.end(), size).ok_or(Error::NoRoom { needed: size })
    }

    /// Tells if the primary is the only good copy, which is written last.
    pub(super) fn is_only_primary(&self) -> bool {
        self.copy == HeaderCopy::Primary && !self.copies_agree()
    }

    /// A digest of its own says which key it is, and that it is for no data.
    pub(super) fn add_unbound<'a>(&self, edit: &'a Edit, secrets: &SlotSecrets<'_>) -> SlotResult<'a> {
        let number = free_slot(self, secrets.new.slot)?;
        let hash = secrets.new.hash.as_deref().unwrap_or(HASH_DEFAULT);
        let proved = format::Proved { slot: number, segments: &[] };
        let digest = format::new_digest(hash, &secrets.new.cost, secrets.key, &proved, &Random::Kernel)?;
        let taken = &self.metadata.digests;
        let free = (0..DIGESTS_MAX).find(|number| !taken.contains_key(number));
        let free = free.ok_or_else(|| parameters("there is no room for another key"))?;
        let (material, slot) = self.store(secrets)?;
        let mut json = self.metadata.json.clone();
        object(&mut json["keyslots"])?.insert(number.to_string(), slot);
        object(&mut json["digests"])?.insert(free.to_string(), digest);
        let change = HeaderChange { material: Some(material), ..self.rewrite(edit, &json)? };
        Ok((change, number))
    }

    pub(super) fn set_priority<'a>(&self, edit: &'a Edit, slot: u32, priority: Priority) -> ChangeResult<'a> {
        let mut json = self.metadata.json.clone();
        let slot = object(&mut json["keyslots"][slot.to_string()])?;
        match priority {
            // What is usual is not written down.
            Priority::Normal => _ = slot.shift_remove("priority"),
            Priority::Ignore => _ = slot.insert("priority".into(), json!(0)),
            Priority::Prefer => _ = slot.insert("priority".into(), json!(2)),
        }
        self.rewrite(edit, &json)
    }

    pub(super) fn set_label<'a>(
        &self,
        edit: &'a Edit,
        label: Option<&str>,
        subsystem: Option<&str>,
    ) -> ChangeResult<'a> {
        let mut fields = Vec::new();
        if let Some(label) = label {
            check_label("label", label)?;
            fields.push((LABEL_FIELD, 48, label));
        }
        if let Some(subsystem) = subsystem {
            check_label("subsystem", subsystem)?;
            fields.push((SUBSYSTEM_FIELD, 48, subsystem));
        }
        self.with_field(edit, &fields)
    }

    pub(super) fn set_data_size<'a>(&self, edit: &'a Edit, size: u64) -> ChangeResult<'a> {
        let last = self.metadata.segments.last_key_value().filter(|(_, segment)| segment.size.is_some());
        let Some((number, _)) = last else {
            return Err(parameters("the data goes to the end of its device"));
        };
        let mut json = self.metadata.json.clone();
        json["segments"][number.to_string()]["size"] = size.to_string().into();
        self.rewrite(edit, &json)
    }

    /// The header without key slots and tokens that are not as the format has them, whose key material stays. Of two key
    /// slots that lie over each other, nobody knows which one is right.
    fn without_odd<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        edit.check_kept()?;
        self.check_usable()?;
        let metadata = &self.metadata;
        // Guard: the salt and the costs of a slot that is not understood here are nowhere else.
        let is_kept = |keeping: Vec<u32>| keeping.iter().any(|slot| !edit.gone.contains(slot));
        let mut slots = metadata.odd.iter().filter(|odd| odd.member == "keyslots");
        if let Some(odd) = slots.next()
            && !self.keeping().is_some_and(is_kept)
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
        self.rewrite(edit, &json)
    }

    /// The same header again, byte for byte.
    fn rewritten<'a>(&self, edit: &'a Edit) -> ChangeResult<'a> {
        self.with_bytes(edit, edit.found.json.clone())
    }

    fn with_bytes<'a>(&self, edit: &'a Edit, json: Vec<u8>) -> ChangeResult<'a> {
        next_epoch([self])?;
        Ok(HeaderChange::new(edit, NewHeader { raw: vec![edit.found.raw.clone()], json }))
    }

    /// A header with this JSON, checked as if it had been read.
    pub(super) fn rewrite<'a>(&self, edit: &'a Edit, json: &Value) -> ChangeResult<'a> {
        let json = json.to_string();
        let room = self.metadata.config.json_size;
        let needed = to_u64(json.len()) + 1;
        if needed > room {
            return Err(Error::MetadataFull { needed, room });
        }
        let area = [json.as_bytes(), &[0]].concat();
        parse_metadata(&area, self.binary.copy_size)?;
        self.with_bytes(edit, json.into_bytes())
    }

    /// A slot that keeps its priority, and what is not known here.
    fn with_slot<'a>(&self, edit: &'a Edit, number: u32, slot: &Value) -> ChangeResult<'a> {
        let mut json = self.metadata.json.clone();
        let place = &mut json["keyslots"][number.to_string()];
        for member in ["key_size", "af", "area", "kdf"] {
            place[member] = slot[member].clone();
        }
        self.rewrite(edit, &json)
    }

    /// Texts of the binary part: place, length of the field, text.
    fn with_field<'a>(&self, edit: &'a Edit, fields: &[(usize, usize, &str)]) -> ChangeResult<'a> {
        let mut change = self.rewritten(edit)?;
        let raw = &mut change.header.raw[0];
        for &(start, len, text) in fields {
            raw[start..start + len].fill(0);
            raw[start..start + text.len()].copy_from_slice(text.as_bytes());
        }
        Ok(change)
    }

    fn without<'a>(&self, edit: &'a Edit, slots: &[u32]) -> ChangeResult<'a> {
        let mut json = self.metadata.json.clone();
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
        self.rewrite(edit, &json)
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
        let mut ciphers = self.metadata.segments.values().filter_map(|segment| segment.crypt.as_ref());
        ciphers.next().map_or("", |crypt| &crypt.encryption)
    }

    /// The key material of a new slot, and its JSON. No area that is in use is touched.
    fn store(&self, secrets: &SlotSecrets<'_>) -> Result<(Material, Value), Error> {
        let size = stripes_len(len_of(secrets.key)?).next_multiple_of(AREA_ALIGNMENT);
        self.store_at(self.free_area(size)?, secrets)
    }

    /// The same in a place that is large enough.
    fn store_at(&self, extent: Area, secrets: &SlotSecrets<'_>) -> Result<(Material, Value), Error> {
        let key_len = len_of(secrets.key)?;
        let hash = Hash::by_name(secrets.new.hash.as_deref().unwrap_or(HASH_DEFAULT))?;
        let kind = secrets.new.kdf.unwrap_or(KdfKind::Argon2id);
        let cipher = format::slot_cipher(secrets.new.cipher.as_ref(), self.data_cipher(), key_len)?;
        let kdf = new_kdf(kind, hash.name(), &secrets.new.cost, cipher.1 as usize, &Random::Kernel)?;
        let area = KeyArea {
            offset: extent.offset,
            encryption: cipher.0,
            encryption_key_len: cipher.1,
            af_hash: hash,
            kdf,
            key_len,
        };
        let json = keyslot_json(&area, extent.size);
        Ok((material(area, secrets)?, json))
    }
}

/// An epoch above those of all copies.
pub(super) fn next_epoch<'a>(headers: impl IntoIterator<Item = &'a Luks2Header>) -> Result<u64, Error> {
    let epochs = headers.into_iter().flat_map(|header| &header.copies).filter_map(|copy| copy.epoch);
    epochs.max().unwrap_or(0).checked_add(1).ok_or_else(|| Error::invalid("the header has been written 2^64 times"))
}

/// Both copies, each under a salt of its own, in the order in which they are written.
fn copies_of(mut binary: Binary, raw: &[u8], json: &[u8], is_primary_last: bool) -> Result<Vec<Material>, Error> {
    let mut order = [HeaderCopy::Primary, HeaderCopy::Secondary];
    if is_primary_last {
        order.reverse();
    }
    let copies = order.into_iter().map(|copy| {
        binary.salt = copy_salt(copy, &Random::Kernel)?;
        Ok((binary.offset(copy), binary.renew(raw, copy, json)?))
    });
    copies.collect()
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

fn object(value: &mut Value) -> Result<&mut serde_json::Map<String, Value>, Error> {
    let object = value.as_object_mut();
    object.ok_or_else(|| Error::invalid("the JSON has no object where one must be"))
}

fn list(value: &mut Value) -> Result<&mut Vec<Value>, Error> {
    value.as_array_mut().ok_or_else(|| Error::invalid("the JSON has no array where one must be"))
}
