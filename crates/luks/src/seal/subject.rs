//! The part of a header that a seal is of: what decides how the data is encrypted and where it lies, and what proves the
//! key. Key slots and tokens belong to it only where that is wanted, so that a passphrase can come and go.

use std::collections::BTreeSet;

use base64ct::{Base64, Encoding};
use serde_json::{Map, Value, json};

use super::{SEAL_TOKEN, SealError, canonical};
use crate::{LuksHeader, luks1, luks2};

/// Flags that change nothing but who runs the cipher.
const PERFORMANCE_FLAGS: [&str; 4] =
    ["same-cpu-crypt", "submit-from-crypt-cpus", "no-read-workqueue", "no-write-workqueue"];
/// Stands before what is measured.
const MEASURED: &[u8] = b"cryptline header v1\0";

/// Parts of a header that may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covers {
    /// Key slots.
    pub keyslots: bool,
    /// Tokens, but for the seal itself (LUKS2).
    pub tokens: bool,
}

impl Covers {
    /// Names of the parts, in order.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let parts = [(self.keyslots, "keyslots"), (self.tokens, "tokens")];
        parts.into_iter().filter_map(|(is_covered, name)| is_covered.then_some(name)).collect()
    }

    /// The same with one part more; `None` for what is none.
    #[must_use]
    pub fn with(self, name: &str) -> Option<Self> {
        match name {
            "keyslots" => Some(Self { keyslots: true, ..self }),
            "tokens" => Some(Self { tokens: true, ..self }),
            _ => None,
        }
    }
}

/// A hash that headers are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// The text that a seal is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealSubject(String);

impl SealSubject {
    /// The text: JSON as RFC 8785 has it.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.0
    }

    /// Its hash, by which a header is known without any key.
    #[must_use]
    pub fn measure(&self, hash: MeasureHash) -> Vec<u8> {
        use sha2::Digest as _;
        macro_rules! measured {
            ($hash:ty) => {
                <$hash>::new().chain_update(MEASURED).chain_update(&self.0).finalize().to_vec()
            };
        }
        match hash {
            MeasureHash::Sha256 => measured!(sha2::Sha256),
            MeasureHash::Sha384 => measured!(sha2::Sha384),
            MeasureHash::Sha512 => measured!(sha2::Sha512),
        }
    }
}

impl LuksHeader {
    /// The part of it that decides what happens to the data, with what is covered besides.
    ///
    /// # Errors
    /// [`SealError::NoCanonicalForm`]; [`SealError::Reencryption`].
    pub fn subject(&self, covers: Covers) -> Result<SealSubject, SealError> {
        let subject = match self {
            Self::V1(header) => of_luks1(header, covers)?,
            Self::V2(header) => of_luks2(header, covers)?,
        };
        canonical::text_of(&subject).map(SealSubject).map_err(SealError::NoCanonicalForm)
    }
}

fn of_luks1(header: &luks1::Luks1Header, covers: Covers) -> Result<Value, SealError> {
    if covers.tokens {
        return Err(SealError::NoCanonicalForm("LUKS1 has no tokens".to_owned()));
    }
    if let Some((_, odd)) = header.odd.first() {
        return Err(SealError::NoCanonicalForm(odd.clone()));
    }
    let mut subject = json!({
        "luks": 1,
        "uuid": header.uuid,
        "cipher_name": header.cipher_name,
        "cipher_mode": header.cipher_mode,
        "hash": header.hash,
        "payload_sector": header.payload_sector,
        "key_size": header.key_len,
        "digest": Base64::encode_string(&header.digest),
        "digest_salt": Base64::encode_string(&header.digest_salt),
        "digest_iterations": header.digest_iterations,
    });
    if covers.keyslots {
        let slots = header.active_slots().map(|(number, slot)| {
            let salt = Base64::encode_string(&slot.salt);
            let slot = json!({"iterations": slot.iterations, "salt": salt, "sector": slot.sector});
            (number.to_string(), slot)
        });
        subject["keyslots"] = Value::Object(slots.collect());
    }
    Ok(subject)
}

fn of_luks2(header: &luks2::Luks2Header, covers: Covers) -> Result<Value, SealError> {
    let metadata = &header.metadata;
    if !metadata.is_unambiguous {
        let why = "the JSON has a name twice in one object, or bytes that are no UTF-8";
        return Err(SealError::NoCanonicalForm(why.to_owned()));
    }
    if header.is_reencrypting() {
        return Err(SealError::Reencryption);
    }
    let json = &metadata.json;
    let mut config = object(json, "config")?;
    let flags = metadata.config.flags.iter().map(String::as_str);
    let flags: BTreeSet<_> = flags.filter(|flag| !PERFORMANCE_FLAGS.contains(flag)).collect();
    config.insert("flags".to_owned(), json!(flags));
    let mut requirements = metadata.config.requirements.clone();
    requirements.sort_unstable();
    config.insert("requirements".to_owned(), json!(requirements));
    let mut subject = json!({
        "luks": 2,
        "uuid": header.binary.uuid,
        "segments": json["segments"],
        "digests": digests(object(json, "digests")?, covers),
        "config": config,
    });
    if covers.keyslots {
        subject["keyslots"] = json["keyslots"].clone();
    }
    if covers.tokens {
        let mut tokens = object(json, "tokens")?;
        tokens.retain(|_, token| token["type"] != SEAL_TOKEN);
        subject["tokens"] = Value::Object(tokens);
    }
    Ok(subject)
}

/// Those that prove a key of data.
fn digests(mut digests: Map<String, Value>, covers: Covers) -> Value {
    digests.retain(|_, digest| digest["segments"].as_array().is_some_and(|segments| !segments.is_empty()));
    if !covers.keyslots {
        for digest in digests.values_mut().filter_map(Value::as_object_mut) {
            digest.shift_remove("keyslots");
        }
    }
    Value::Object(digests)
}

fn object(json: &Value, member: &str) -> Result<Map<String, Value>, SealError> {
    let object = json[member].as_object().cloned();
    object.ok_or_else(|| SealError::NoCanonicalForm(format!("{member} is no object")))
}
