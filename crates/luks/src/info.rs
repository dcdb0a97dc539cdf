//! A header described: for `info` as text and, through serde, as JSON. No secrets in it, and no
//! control characters: what a disk says must not drive a terminal.

use serde::Serialize;

use crate::error::printable;
use crate::kdf::Kdf;
use crate::luks2::metadata::{Keyslot, Priority};
use crate::version::HeaderVersion;
use crate::{LuksHeader, luks1, luks2};

/// Content of a header.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HeaderInfo {
    /// 1 or 2.
    pub version: u8,
    /// UUID of the volume.
    pub uuid: String,
    /// Label; LUKS2 only.
    pub label: Option<String>,
    /// Subsystem; LUKS2 only.
    pub subsystem: Option<String>,
    /// Segments of data; one, except during reencryption.
    pub segments: Vec<SegmentInfo>,
    /// Key slots in use.
    pub keyslots: Vec<KeyslotInfo>,
    /// Digests of keys.
    pub digests: Vec<DigestInfo>,
    /// Tokens; LUKS2 only.
    pub tokens: Vec<TokenInfo>,
    /// Persistent activation flags, as the header names them.
    pub flags: Vec<String>,
    /// Mandatory requirements, as the header names them.
    pub requirements: Vec<String>,
    /// Counts updates of the header; LUKS2 only.
    pub epoch: Option<u64>,
    /// "primary" or "secondary": the copy that was used; LUKS2 only.
    pub header_copy: Option<&'static str>,
    /// How both copies were found; empty for LUKS1.
    pub header_copies: Vec<CopyInfo>,
    /// Bytes of one copy; LUKS2 only.
    pub metadata_bytes: Option<u64>,
    /// Bytes of the key slots area; LUKS2 only.
    pub keyslots_bytes: Option<u64>,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
}

/// One of the two copies of a LUKS2 header.
#[derive(Clone, Debug, Serialize)]
pub struct CopyInfo {
    /// "primary" or "secondary".
    pub copy: &'static str,
    /// Its epoch, if it is good.
    pub epoch: Option<u64>,
    /// Damage of the copy, if there is any.
    pub damage: Option<String>,
}

/// A segment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SegmentInfo {
    /// Its number.
    pub id: u32,
    /// `crypt`, `linear` or another.
    #[serde(rename = "type")]
    pub kind: String,
    /// Cipher word.
    pub cipher: Option<String>,
    /// Length of the volume key in bits.
    pub key_bits: Option<usize>,
    /// Bytes in a cipher sector.
    pub sector_size: Option<u32>,
    /// Start in bytes.
    pub offset: u64,
    /// Length in bytes; absent: to the end of the device.
    pub size: Option<u64>,
    /// Type of the integrity protection.
    pub integrity: Option<String>,
    /// Flags.
    pub flags: Vec<String>,
}

/// A key slot.
#[derive(Clone, Debug, Serialize)]
pub struct KeyslotInfo {
    /// Its number.
    pub id: u32,
    /// `luks1`, `luks2`, `reencrypt` or another.
    #[serde(rename = "type")]
    pub kind: String,
    /// Length of the key it keeps, in bits.
    pub key_bits: u32,
    /// "ignore", "normal" or "prefer".
    pub priority: &'static str,
    /// Cipher of its area.
    pub cipher: Option<String>,
    /// Length of that cipher's key in bits.
    pub cipher_key_bits: Option<u32>,
    /// Key derivation function.
    pub kdf: Option<KdfInfo>,
    /// Hash of the anti-forensic splitter.
    pub af_hash: Option<String>,
    /// Start of its area in bytes.
    pub area_offset: u64,
    /// Length of its area in bytes.
    pub area_size: u64,
}

/// A key derivation function and its costs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KdfInfo {
    /// `pbkdf2`, `argon2i`, `argon2id` or another.
    #[serde(rename = "type")]
    pub kind: String,
    /// Hash of PBKDF2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Iterations of PBKDF2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// Passes of Argon2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<u32>,
    /// Memory of Argon2 in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_kib: Option<u32>,
    /// Lanes of Argon2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
}

/// A digest.
#[derive(Clone, Debug, Serialize)]
pub struct DigestInfo {
    /// Its number.
    pub id: u32,
    /// `pbkdf2` or another.
    #[serde(rename = "type")]
    pub kind: String,
    /// Key slots that keep the key.
    pub keyslots: Vec<u32>,
    /// Segments the key is for.
    pub segments: Vec<u32>,
    /// Hash.
    pub hash: Option<String>,
    /// Iterations.
    pub iterations: Option<u32>,
}

/// A token.
#[derive(Clone, Debug, Serialize)]
pub struct TokenInfo {
    /// Its number.
    pub id: u32,
    /// For example `systemd-tpm2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Key slots it opens.
    pub keyslots: Vec<u32>,
    /// The key in the kernel's keyring that is the passphrase (`luks2-keyring`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_description: Option<String>,
}

impl LuksHeader {
    /// The header described.
    #[must_use]
    pub fn info(&self) -> HeaderInfo {
        match self {
            Self::V1(header) => of_luks1(header),
            Self::V2(header) => of_luks2(header),
        }
    }
}

fn of_luks1(header: &luks1::Luks1Header) -> HeaderInfo {
    let key_bits = header.key_len * 8;
    let keyslots = header.active_slots().map(|(id, slot)| {
        let extent = header.place(slot.sector);
        KeyslotInfo {
            id,
            kind: "luks1".into(),
            key_bits,
            priority: "normal",
            cipher: Some(header.encryption()),
            cipher_key_bits: Some(key_bits),
            kdf: Some(pbkdf2(&header.hash, slot.iterations)),
            af_hash: Some(header.hash.clone()),
            area_offset: extent.offset,
            area_size: extent.size,
        }
    });
    let keyslots: Vec<_> = keyslots.collect();
    let digest = DigestInfo {
        id: 0,
        kind: "pbkdf2".into(),
        keyslots: keyslots.iter().map(|slot| slot.id).collect(),
        segments: vec![0],
        hash: Some(header.hash.clone()),
        iterations: Some(header.digest_iterations),
    };
    let segment = SegmentInfo {
        id: 0,
        kind: "crypt".into(),
        cipher: Some(header.encryption()),
        key_bits: Some(header.key_len as usize * 8),
        sector_size: Some(512),
        offset: header.data_offset(),
        ..SegmentInfo::default()
    };
    HeaderInfo {
        version: 1,
        uuid: printable(&header.uuid),
        segments: vec![segment],
        keyslots,
        digests: vec![digest],
        warnings: header.warnings.clone(),
        ..HeaderInfo::default()
    }
}

fn of_luks2(header: &luks2::Luks2Header) -> HeaderInfo {
    let (binary, metadata) = (&header.binary, &header.metadata);
    let tokens = metadata.tokens.iter().map(|(&id, token)| TokenInfo {
        id,
        kind: printable(&token.kind),
        keyslots: token.keyslots.clone(),
        key_description: token.key_description.as_deref().map(printable),
    });
    HeaderInfo {
        version: 2,
        uuid: printable(&binary.uuid),
        label: Some(printable(&binary.label)),
        subsystem: Some(printable(&binary.subsystem)),
        segments: luks2_segments(header),
        keyslots: metadata.keyslots.iter().map(|(&id, slot)| luks2_keyslot(id, slot)).collect(),
        digests: luks2_digests(header),
        tokens: tokens.collect(),
        flags: all_printable(&metadata.config.flags),
        requirements: all_printable(&metadata.config.requirements),
        epoch: Some(binary.epoch),
        header_copy: Some(header.copy.name()),
        header_copies: header
            .copies
            .iter()
            .map(|state| CopyInfo { copy: state.copy.name(), epoch: state.epoch, damage: state.damage.clone() })
            .collect(),
        metadata_bytes: Some(binary.copy_size),
        keyslots_bytes: Some(metadata.config.keyslots_size),
        warnings: header.warnings.clone(),
    }
}

fn luks2_segments(header: &luks2::Luks2Header) -> Vec<SegmentInfo> {
    let metadata = &header.metadata;
    let key_bits = |segment: u32| {
        let digest = metadata.digests.values().find(|digest| digest.segments.contains(&segment))?;
        let slot = metadata.keyslots.get(digest.keyslots.first()?)?;
        Some(slot.key_len as usize * 8)
    };
    let segments = metadata.segments.iter().map(|(&id, segment)| {
        let crypt = segment.crypt.as_ref();
        SegmentInfo {
            id,
            kind: printable(&segment.kind),
            cipher: crypt.map(|crypt| printable(&crypt.encryption)),
            key_bits: key_bits(id),
            sector_size: crypt.map(|crypt| crypt.sector_size),
            offset: segment.offset,
            size: segment.size,
            integrity: crypt.and_then(|crypt| crypt.integrity.as_deref().map(printable)),
            flags: all_printable(&segment.flags),
        }
    });
    segments.collect()
}

fn luks2_keyslot(id: u32, slot: &Keyslot) -> KeyslotInfo {
    let luks2 = slot.luks2.as_ref();
    KeyslotInfo {
        id,
        kind: printable(&slot.kind),
        key_bits: slot.key_len * 8,
        priority: match slot.priority {
            Priority::Ignore => "ignore",
            Priority::Normal => "normal",
            Priority::Prefer => "prefer",
        },
        cipher: luks2.map(|luks2| printable(&luks2.encryption)),
        cipher_key_bits: luks2.map(|luks2| luks2.encryption_key_len * 8),
        kdf: luks2.map(|luks2| kdf_info(&luks2.kdf)),
        af_hash: luks2.map(|luks2| printable(&luks2.af_hash)),
        area_offset: slot.area.offset,
        area_size: slot.area.size,
    }
}

fn luks2_digests(header: &luks2::Luks2Header) -> Vec<DigestInfo> {
    let digests = header.metadata.digests.iter().map(|(&id, digest)| {
        let kdf = digest.pbkdf2.as_ref().map(|(kdf, _)| kdf_info(kdf)).unwrap_or_default();
        DigestInfo {
            id,
            kind: printable(&digest.kind),
            keyslots: digest.keyslots.clone(),
            segments: digest.segments.clone(),
            hash: kdf.hash,
            iterations: kdf.iterations,
        }
    });
    digests.collect()
}

fn kdf_info(kdf: &Kdf) -> KdfInfo {
    match kdf {
        Kdf::Pbkdf2 { hash, iterations, .. } => pbkdf2(hash, *iterations),
        Kdf::Argon2 { time, memory_kib, cpus, .. } => KdfInfo {
            kind: kdf.name().to_owned(),
            time: Some(*time),
            memory_kib: Some(*memory_kib),
            cpus: Some(*cpus),
            ..KdfInfo::default()
        },
        Kdf::Other(name) => KdfInfo { kind: printable(name), ..KdfInfo::default() },
    }
}

fn pbkdf2(hash: &str, iterations: u32) -> KdfInfo {
    KdfInfo { kind: "pbkdf2".into(), hash: Some(printable(hash)), iterations: Some(iterations), ..KdfInfo::default() }
}

fn all_printable(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| printable(text)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::Image;

    #[test]
    fn nothing_a_disk_says_drives_a_terminal() {
        let mut image = Image::luks2();
        let evil = "\u{1b}]0;owned\u{7}\n";
        image.edit(|json| {
            json["config"]["flags"] = json!([evil]);
            json["config"]["requirements"] = json!({"mandatory": [evil]});
            json["tokens"]["0"] = json!({"type": evil, "keyslots": ["0"]});
            json["keyslots"]["0"]["kdf"]["type"] = json!(evil);
            json["keyslots"]["0"]["af"]["hash"] = json!(evil);
            json["keyslots"]["0"]["area"]["encryption"] = json!(evil);
            json["segments"]["0"]["encryption"] = json!(evil);
            json["segments"]["0"]["flags"] = json!([evil]);
            json["segments"]["0"]["integrity"] = json!({"type": evil});
            json["digests"]["0"]["hash"] = json!(evil);
        });
        image.edit_binary(crate::luks2::HeaderCopy::Primary, |binary| {
            binary.label = evil.into();
            binary.subsystem = evil.into();
            binary.epoch += 1;
        });
        let info = serde_json::to_value(image.read().unwrap().info()).unwrap();
        let mut texts = 0;
        each_text(&info, &mut |text| {
            texts += usize::from(text.contains("owned"));
            assert!(!text.chars().any(char::is_control), "{text:?}");
        });
        assert_eq!(texts, 12);
    }

    fn each_text(value: &Value, visit: &mut impl FnMut(&str)) {
        match value {
            Value::String(text) => visit(text),
            Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
            Value::Object(members) => members.values().for_each(|item| each_text(item, visit)),
            _ => {}
        }
    }
}
