//! Seals: a header that says under a key that it is as its owner left it.
//!
//! ```text
//!   header ─► subject: segments, digests, config, UUID; key slots and tokens where covered ─► canonical text ─► measure
//!                                                                                                                 │
//!   volume key or key file ─► HKDF ─► MAC key, key id        head (version, kind of key, id, covers, counter) ─► HMAC
//! ```
//!
//! A seal is a token of LUKS2, or the same JSON in a file of its own. docs/header-seal.md has the format.

mod canonical;
mod subject;

use base64ct::{Base64, Encoding};
use cryptline_sys::SecretBuf;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::Sha256;
use subtle::ConstantTimeEq;

pub(crate) use canonical::is_unambiguous;
pub use subject::{Covers, MeasureHash, SealSubject};

use crate::error::quote;
use crate::{Error, LuksHeader};

/// Type of the token that is a seal.
pub const SEAL_TOKEN: &str = "cryptline-seal";
/// Shortest key that a seal may have, in bytes, other than a volume key.
pub const SEAL_KEY_MIN: usize = 32;

const SALT: &[u8] = b"cryptline header seal v1";
const ALGORITHM: &str = "hmac-sha256";
const MAC_LEN: usize = 32;
const KEY_ID_LEN: usize = 16;
const MEMBERS: [&str; 9] = ["type", "keyslots", "version", "alg", "key", "key_id", "covers", "counter", "mac"];

/// Why a header is not as it was sealed, or cannot be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// There is none.
    #[error("the header has no seal; whoever can write to it may have taken it away")]
    Missing,
    /// There are several.
    #[error("the header has {0} seals, and only one can count; remove the others (`cryptline token remove`)")]
    Several(usize),
    /// A seal that does not follow the format.
    #[error("the seal of the header is malformed: {0}; seal the header again")]
    Malformed(String),
    /// A header that programs read differently.
    #[error("the header cannot be sealed or measured: {0}")]
    NoCanonicalForm(String),
    /// Part of the data is under another key.
    #[error(
        "the volume is being reencrypted, and its header changes with that; finish it with `cryptsetup reencrypt --resume-only` first"
    )]
    Reencryption,
    /// A seal by the other kind of key.
    #[error("the header is sealed by a {found}, and a seal by a {wanted} is wanted")]
    Kind {
        /// Kind that it is sealed by.
        found: SealKind,
        /// Kind that it should be sealed by.
        wanted: SealKind,
    },
    /// A seal by another key.
    #[error(
        "the header is sealed by another {0}, whose id is {1}; if the volume was reencrypted, or the header sealed on purpose, seal it again"
    )]
    OtherKey(SealKind, String),
    /// The header was changed since.
    #[error(
        "the header is not as it was sealed; somebody has changed it; compare it with a backup, and seal it again only if it is right"
    )]
    Changed,
    /// The header was put back, or the seal is older than others that were seen.
    #[error(
        "the header is older than it may be: its seal has the counter {found}, at least {wanted} is wanted; an old header may have been put back"
    )]
    Old {
        /// Counter of the seal.
        found: u64,
        /// The least that is accepted.
        wanted: u64,
    },
    /// The counter is at its end.
    #[error("the counter of the seal is at its end; name another one")]
    Counter,
}

/// Kinds of keys that seals are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealKind {
    /// The volume key.
    VolumeKey,
    /// A key in a file.
    File,
}

impl SealKind {
    /// The word in a seal.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::VolumeKey => "volume-key",
            Self::File => "file",
        }
    }

    /// The kind that has this word.
    #[must_use]
    pub fn by_word(word: &str) -> Option<Self> {
        [Self::VolumeKey, Self::File].into_iter().find(|kind| kind.word() == word)
    }
}

impl std::fmt::Display for SealKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::VolumeKey => "volume key",
            Self::File => "key file",
        })
    }
}

/// A seal, which proves nothing before it is [verified](Self::verify).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Kind of its key.
    pub kind: SealKind,
    /// Name of its key, in hexadecimal.
    pub key_id: String,
    /// Parts that it covers besides.
    pub covers: Covers,
    /// How often the header has been sealed.
    pub counter: u64,
    mac: [u8; MAC_LEN],
}

impl Seal {
    /// A seal of `subject`, which has what `covers` names, under `key`.
    ///
    /// # Errors
    /// [`Error::KeyMemory`].
    pub fn new(key: &[u8], kind: SealKind, subject: &SealSubject, covers: Covers, counter: u64) -> Result<Self, Error> {
        let mut seal = Self { kind, key_id: key_id(key)?, covers, counter, mac: [0; MAC_LEN] };
        seal.mac = seal.mac_of(key, subject)?;
        Ok(seal)
    }

    /// Checks that it was made of the header that it is found at, under `key`.
    ///
    /// # Errors
    /// [`SealError::OtherKey`], [`SealError::Changed`], as [`LuksHeader::subject`]; [`Error::KeyMemory`].
    pub fn verify(&self, header: &LuksHeader, key: &[u8]) -> Result<(), Error> {
        if key_id(key)? != self.key_id {
            return Err(SealError::OtherKey(self.kind, self.key_id.clone()).into());
        }
        let right = self.mac_of(key, &header.subject(self.covers)?)?;
        if bool::from(right.ct_eq(&self.mac)) { Ok(()) } else { Err(SealError::Changed.into()) }
    }

    /// The seal in the JSON of a token or of a file.
    ///
    /// # Errors
    /// [`SealError::Malformed`], also for members that are not known.
    pub fn parse(json: &Value) -> Result<Self, SealError> {
        let wrong = |why: &str| SealError::Malformed(why.to_owned());
        let members = json.as_object().ok_or_else(|| wrong("it is no object"))?;
        if let Some(other) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(wrong(&format!("the member {} is not known", quote(other))));
        }
        let fixed = [
            ("type", json!(SEAL_TOKEN)),
            ("version", json!(1)),
            ("alg", json!(ALGORITHM)),
            // Nothing proves what would stand there.
            ("keyslots", json!([])),
        ];
        if let Some((name, value)) = fixed.iter().find(|(name, value)| members.get(*name) != Some(value)) {
            return Err(wrong(&format!("{name} is not {value}")));
        }
        let kind = text(members, "key").and_then(SealKind::by_word);
        let key_id = text(members, "key_id").filter(|id| is_key_id(id));
        let covers = members.get("covers").and_then(covers_in);
        let counter = text(members, "counter").and_then(decimal);
        let mac = text(members, "mac").and_then(|mac| {
            let mut bytes = [0; MAC_LEN];
            let len = Base64::decode(mac, &mut bytes).ok()?.len();
            (len == MAC_LEN).then_some(bytes)
        });
        Ok(Self {
            kind: kind.ok_or_else(|| wrong("key is neither volume-key nor file"))?,
            key_id: key_id.ok_or_else(|| wrong("key_id is not 32 hexadecimal digits"))?.to_owned(),
            covers: covers.ok_or_else(|| wrong("covers is no list of parts"))?,
            counter: counter.ok_or_else(|| wrong("counter is no decimal number"))?,
            mac: mac.ok_or_else(|| wrong("mac is not 32 bytes in base64"))?,
        })
    }

    /// The seal in the text of a file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_text(text: &[u8]) -> Result<Self, SealError> {
        let json = serde_json::from_slice(text).map_err(|error| SealError::Malformed(error.to_string()))?;
        if !is_unambiguous(text) {
            return Err(SealError::Malformed("a name is there twice".to_owned()));
        }
        Self::parse(&json)
    }

    /// The JSON of the token, which is that of a file, too.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut token = json!({"type": SEAL_TOKEN, "keyslots": []});
        let head = self.head().into_iter();
        let members = token.as_object_mut().expect("it is one");
        members.extend(head.map(|(name, value)| (name.to_owned(), value)));
        members.insert("mac".to_owned(), Base64::encode_string(&self.mac).into());
        token
    }

    /// All that is under the MAC besides the subject.
    fn head(&self) -> [(&'static str, Value); 6] {
        [
            ("version", json!(1)),
            ("alg", json!(ALGORITHM)),
            ("key", json!(self.kind.word())),
            ("key_id", json!(self.key_id)),
            ("covers", json!(self.covers.names())),
            ("counter", json!(self.counter.to_string())),
        ]
    }

    fn mac_of(&self, key: &[u8], subject: &SealSubject) -> Result<[u8; MAC_LEN], Error> {
        let head: Map<_, _> = self.head().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let head = canonical::text_of(&Value::Object(head)).map_err(SealError::NoCanonicalForm)?;
        let mac_key = derived(key, b"mac")?;
        let measure = subject.measure(MeasureHash::Sha256);
        Ok(hmac(&mac_key, &[SALT, b"\0", head.as_bytes(), b"\0", &measure]))
    }
}

impl LuksHeader {
    /// The seal in the header.
    ///
    /// # Errors
    /// [`SealError::Missing`], also for LUKS1, which has no tokens; [`SealError::Several`]; as [`Seal::parse`].
    pub fn seal(&self) -> Result<Seal, SealError> {
        let seals = self.luks2().map_or_else(Vec::new, |header| seals_in(&header.metadata.json));
        match seals.as_slice() {
            [] => Err(SealError::Missing),
            [(_, seal)] => Seal::parse(seal),
            several => Err(SealError::Several(several.len())),
        }
    }
}

/// Numbers of the tokens that are seals, with their JSON.
pub(crate) fn seals_in(json: &Value) -> Vec<(&str, &Value)> {
    let tokens = json["tokens"].as_object().into_iter().flatten();
    tokens.filter(|(_, token)| token["type"] == SEAL_TOKEN).map(|(id, token)| (id.as_str(), token)).collect()
}

/// The id of a key that seals, in hexadecimal. It shows nothing of the key.
///
/// # Errors
/// [`Error::KeyMemory`].
pub fn key_id(key: &[u8]) -> Result<String, Error> {
    Ok(base16ct::lower::encode_string(&derived(key, b"id")?[..KEY_ID_LEN]))
}

fn is_key_id(text: &str) -> bool {
    text.len() == 2 * KEY_ID_LEN && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// HKDF-SHA256 (RFC 5869) of one block.
fn derived(key: &[u8], info: &[u8]) -> Result<SecretBuf, Error> {
    let keep = |bytes: [u8; MAC_LEN]| {
        let bytes = zeroize::Zeroizing::new(bytes);
        SecretBuf::copy_of(&*bytes).map_err(Error::KeyMemory)
    };
    let extracted = keep(hmac(SALT, &[key]))?;
    keep(hmac(&extracted, &[info, &[1]]))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; MAC_LEN] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    members.get(name)?.as_str()
}

/// A number that is written in one way only.
fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Parts that are covered: known ones, in order, each once.
fn covers_in(list: &Value) -> Option<Covers> {
    let names: Option<Vec<_>> = list.as_array()?.iter().map(Value::as_str).collect();
    let names = names?;
    let covers = names.iter().try_fold(Covers::default(), |covers, name| covers.with(name))?;
    (covers.names() == names).then_some(covers)
}

#[cfg(test)]
mod tests;
