//! The JSON of a LUKS2 header as checked types ("LUKS2 On-Disk Format Specification", section 3).
//!
//! ```text
//!   keyslots  how a passphrase opens a key        <--+          <--+
//!   tokens    where passphrases may come from     ---+             |
//!   segments  where the data is, how encrypted    <--+             |
//!   digests   which key belongs to which segment  ---+-------------+
//!   config    sizes, flags, requirements
//! ```

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::{JsonNode, Reason};
use crate::af::STRIPES;
use crate::area::{Area, KEY_LEN_MAX, stripes_len};
use crate::error::quote;
use crate::hash::Hash;
use crate::kdf::{Argon2Variant, Kdf, SALT_LEN};
use crate::luks1::DIGEST_LEN as LUKS1_DIGEST_LEN;
use crate::token::KEYRING_TOKEN;

/// Most key slots, tokens and segments.
pub(crate) const OBJECTS_MAX: u32 = 32;
/// Most digests.
pub(crate) const DIGESTS_MAX: u32 = 8;

/// Everything the JSON says.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Key slots by number.
    pub keyslots: BTreeMap<u32, Keyslot>,
    /// Tokens by number.
    pub tokens: BTreeMap<u32, Token>,
    /// Segments by number.
    pub segments: BTreeMap<u32, JsonSegment>,
    /// Digests by number.
    pub digests: BTreeMap<u32, Digest>,
    /// Sizes, flags, requirements.
    pub config: Config,
    /// Key slots and tokens that are not as the format has them, with what is wrong: they are passed over by whoever reads,
    /// and nobody changes the header around them.
    pub odd: Vec<Odd>,
    /// Set if the JSON says one thing only: it is UTF-8, and has no name twice in one object.
    pub is_unambiguous: bool,
    /// The JSON as it was, unknown members included.
    pub json: Value,
}

/// A key slot or token that is not as the format has it.
#[derive(Clone, Debug)]
pub struct Odd {
    /// `keyslots` or `tokens`.
    pub member: &'static str,
    /// Its number.
    pub number: u32,
    /// Defect, with the path.
    pub reason: String,
}

impl std::fmt::Display for Odd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.member == "tokens" { "token" } else { "key slot" };
        write!(out, "{what} {} ({})", self.number, self.reason)
    }
}

/// When a key slot is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Only when it is named.
    Ignore,
    /// After the preferred ones.
    Normal,
    /// First.
    Prefer,
}

/// A key slot.
#[derive(Clone, Debug)]
pub struct Keyslot {
    /// `luks2`, `reencrypt` or another.
    pub kind: String,
    /// Length of the key it keeps, in bytes.
    pub key_len: u32,
    /// When it is tried.
    pub priority: Priority,
    /// Where its area is.
    pub area: Area,
    /// How a passphrase opens it; only for kind `luks2`.
    pub luks2: Option<Luks2Keyslot>,
}

/// Parameters that only key slots of kind `luks2` have.
#[derive(Clone, Debug)]
pub struct Luks2Keyslot {
    /// Cipher of the area.
    pub encryption: String,
    /// Length of that cipher's key, in bytes.
    pub encryption_key_len: u32,
    /// Hash of the anti-forensic splitter.
    pub af_hash: String,
    /// Passphrase to key of the area.
    pub kdf: Kdf,
}

/// A token: something that can provide a passphrase.
#[derive(Clone, Debug)]
pub struct Token {
    /// For example `systemd-tpm2`.
    pub kind: String,
    /// Key slots it opens.
    pub keyslots: Vec<u32>,
    /// The key in the kernel's keyring that is the passphrase; only for kind `luks2-keyring`.
    pub key_description: Option<String>,
}

/// A segment.
#[derive(Clone, Debug)]
pub struct JsonSegment {
    /// `crypt`, `linear` or another.
    pub kind: String,
    /// Start of the data in bytes.
    pub offset: u64,
    /// Length in bytes; `None` is `dynamic`: to the end.
    pub size: Option<u64>,
    /// Flags, for example `in-reencryption`.
    pub flags: Vec<String>,
    /// Only for kind `crypt`.
    pub crypt: Option<CryptSegment>,
}

/// Parameters that only segments of kind `crypt` have.
#[derive(Clone, Debug)]
pub struct CryptSegment {
    /// Cipher word.
    pub encryption: String,
    /// Bytes in a cipher sector.
    pub sector_size: u32,
    /// Added to the sector number for the IV.
    pub iv_tweak: u64,
    /// Type of the integrity protection, if there is any.
    pub integrity: Option<String>,
}

/// A digest: proves that a key belongs to segments.
#[derive(Clone, Debug)]
pub struct Digest {
    /// `pbkdf2` or another.
    pub kind: String,
    /// Key slots that keep the key.
    pub keyslots: Vec<u32>,
    /// Segments that the key is for; none for an unbound key.
    pub segments: Vec<u32>,
    /// Only for kind `pbkdf2`: its function and the value.
    pub pbkdf2: Option<(Kdf, Vec<u8>)>,
}

/// The `config` object.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of the JSON area.
    pub json_size: u64,
    /// Bytes of the key slots area.
    pub keyslots_size: u64,
    /// Persistent flags, for example `allow-discards`.
    pub flags: Vec<String>,
    /// Abilities that a program must have to open the volume.
    pub requirements: Vec<String>,
}

impl Metadata {
    /// Reads every object. Whether they fit together is for `validate.rs`.
    pub(crate) fn parse(json: Value) -> Result<Self, Reason> {
        let root = JsonNode::root(&json);
        let mut odd = Vec::new();
        let slots = root.get("keyslots")?.numbered(OBJECTS_MAX)?;
        let has_slot = |number| slots.iter().any(|(other, _)| *other == number);
        let keyslots = sound_of(&slots, "keyslots", &mut odd, parse_keyslot)?;
        let segments = numbered(&root.get("segments")?, OBJECTS_MAX, parse_segment)?;
        let has_segment = |number| segments.contains_key(&number);
        let tokens = root.get("tokens")?.numbered(OBJECTS_MAX)?;
        let tokens = sound_of(&tokens, "tokens", &mut odd, |node| parse_token(node, has_slot))?;
        let digests = numbered(&root.get("digests")?, DIGESTS_MAX, |node| {
            let (kind, pbkdf2) = parse_digest_value(node)?;
            Ok(Digest {
                kind,
                keyslots: node.get("keyslots")?.references(has_slot)?,
                segments: node.get("segments")?.references(has_segment)?,
                pbkdf2,
            })
        })?;
        let config = parse_config(&root.get("config")?)?;
        let mut metadata = Self { keyslots, tokens, segments, digests, config, odd, is_unambiguous: true, json };
        metadata.forget_missing_slots();
        Ok(metadata)
    }

    /// Passes over a key slot.
    pub(crate) fn pass_over(&mut self, slot: u32, reason: Reason) {
        self.keyslots.remove(&slot);
        self.odd.push(Odd { member: "keyslots", number: slot, reason });
        self.forget_missing_slots();
    }

    /// Removes all references to slots that are passed over, which open nothing and keep no key.
    fn forget_missing_slots(&mut self) {
        let slots = &self.keyslots;
        let owners = self.digests.values_mut().map(|digest| &mut digest.keyslots);
        let owners = owners.chain(self.tokens.values_mut().map(|token| &mut token.keyslots));
        owners.for_each(|owned| owned.retain(|slot| slots.contains_key(slot)));
    }
}

/// Those that are as the format has them; of the others, what is wrong. What reencryption keeps in a key slot must be
/// understood, since it says where the data is.
fn sound_of<T>(
    members: &[(u32, JsonNode<'_>)],
    member: &'static str,
    odd: &mut Vec<Odd>,
    parse: impl Fn(&JsonNode<'_>) -> Result<T, Reason>,
) -> Result<BTreeMap<u32, T>, Reason> {
    let mut sound = BTreeMap::new();
    for (number, node) in members {
        match parse(node) {
            Ok(found) => _ = sound.insert(*number, found),
            Err(reason) if node.says("type", "reencrypt") => return Err(reason),
            Err(reason) => odd.push(Odd { member, number: *number, reason }),
        }
    }
    Ok(sound)
}

fn numbered<T>(
    node: &JsonNode<'_>,
    max: u32,
    parse: impl Fn(&JsonNode<'_>) -> Result<T, Reason>,
) -> Result<BTreeMap<u32, T>, Reason> {
    node.numbered(max)?.into_iter().map(|(number, member)| Ok((number, parse(&member)?))).collect()
}

fn parse_keyslot(node: &JsonNode<'_>) -> Result<Keyslot, Reason> {
    let kind = node.get("type")?.string()?.to_owned();
    let key_len = key_len(&node.get("key_size")?)?;
    let priority = match node.find("priority")?.map(|node| node.u32()).transpose()? {
        Some(0) => Priority::Ignore,
        None | Some(1) => Priority::Normal,
        Some(2) => Priority::Prefer,
        Some(other) => return Err(node.wrong(format_args!("priority {other} is not 0, 1 or 2"))),
    };
    let area_node = node.get("area")?;
    area_node.get("type")?.string()?;
    let area = Area { offset: area_node.get("offset")?.u64()?, size: area_node.get("size")?.u64()? };
    let luks2 = (kind == "luks2").then(|| parse_luks2_keyslot(node)).transpose()?;
    if luks2.is_some() && area.size < stripes_len(key_len) {
        return Err(area_node.wrong("too small for the key"));
    }
    Ok(Keyslot { kind, key_len, priority, area, luks2 })
}

fn parse_luks2_keyslot(node: &JsonNode<'_>) -> Result<Luks2Keyslot, Reason> {
    let area = node.get("area")?;
    expect(&area.get("type")?, "raw")?;
    let af = node.get("af")?;
    expect(&af.get("type")?, "luks1")?;
    let stripes = af.get("stripes")?;
    if stripes.u32()? != STRIPES {
        return Err(stripes.wrong(format_args!("only {STRIPES} stripes are possible")));
    }
    Ok(Luks2Keyslot {
        encryption: area.get("encryption")?.string()?.to_owned(),
        encryption_key_len: key_len(&area.get("key_size")?)?,
        af_hash: af.get("hash")?.string()?.to_owned(),
        kdf: parse_kdf(&node.get("kdf")?)?,
    })
}

fn parse_kdf(node: &JsonNode<'_>) -> Result<Kdf, Reason> {
    let argon2 = |variant| -> Result<Kdf, Reason> {
        Ok(Kdf::Argon2 {
            variant,
            time: node.get("time")?.u32()?,
            memory_kib: node.get("memory")?.u32()?,
            cpus: node.get("cpus")?.u32()?,
            salt: salt(&node.get("salt")?)?,
        })
    };
    let kdf = match node.get("type")?.string()? {
        "pbkdf2" => parse_pbkdf2(node)?,
        "argon2i" => argon2(Argon2Variant::Argon2i)?,
        "argon2id" => argon2(Argon2Variant::Argon2id)?,
        other => Kdf::Other(other.to_owned()),
    };
    kdf.check().map_err(|reason| node.wrong(reason))?;
    Ok(kdf)
}

fn parse_pbkdf2(node: &JsonNode<'_>) -> Result<Kdf, Reason> {
    Ok(Kdf::Pbkdf2 {
        hash: node.get("hash")?.string()?.to_owned(),
        iterations: node.get("iterations")?.u32()?,
        salt: salt(&node.get("salt")?)?,
    })
}

fn parse_segment(node: &JsonNode<'_>) -> Result<JsonSegment, Reason> {
    let kind = node.get("type")?.string()?.to_owned();
    let size_node = node.get("size")?;
    let size = match size_node.string()? {
        "dynamic" => None,
        _ => Some(size_node.u64()?),
    };
    let flags = node.find("flags")?.map_or(Ok(Vec::new()), |flags| owned_strings(&flags))?;
    let crypt = (kind == "crypt").then(|| parse_crypt(node)).transpose()?;
    let offset = node.get("offset")?.u64()?;
    if !offset.is_multiple_of(512) {
        return Err(node.wrong("the offset is not a multiple of 512"));
    }
    if size == Some(0) {
        return Err(size_node.wrong("an empty segment"));
    }
    let sector_size = crypt.as_ref().map_or(512, |crypt| u64::from(crypt.sector_size));
    if size.is_some_and(|size| !size.is_multiple_of(sector_size)) && crypt.is_some() {
        return Err(size_node.wrong("not a multiple of the sector size"));
    }
    Ok(JsonSegment { kind, offset, size, flags, crypt })
}

fn parse_crypt(node: &JsonNode<'_>) -> Result<CryptSegment, Reason> {
    let sector_node = node.get("sector_size")?;
    let sector_size = sector_node.u32()?;
    if !(512..=4096).contains(&sector_size) || !sector_size.is_power_of_two() {
        return Err(sector_node.wrong("not 512, 1024, 2048 or 4096"));
    }
    let integrity = node.find("integrity")?.map(|integrity| {
        let kind = integrity.get("type")?.string()?;
        Ok::<_, Reason>(kind.to_owned())
    });
    Ok(CryptSegment {
        encryption: node.get("encryption")?.string()?.to_owned(),
        sector_size,
        iv_tweak: node.get("iv_tweak")?.u64()?,
        integrity: integrity.transpose()?,
    })
}

/// Parses the members that every token has. The rest of it is for the programs that made it.
pub(crate) fn parse_token(node: &JsonNode<'_>, has_slot: impl Fn(u32) -> bool) -> Result<Token, Reason> {
    let kind = node.get("type")?.string()?.to_owned();
    let mut keyslots = node.get("keyslots")?.mentions(has_slot)?;
    // cryptsetup writes a slot twice if it is told to.
    keyslots.sort_unstable();
    keyslots.dedup();
    let description = node.find("key_description")?.filter(|_| kind == KEYRING_TOKEN);
    Ok(Token { key_description: description.and_then(|node| node.string().ok().map(str::to_owned)), kind, keyslots })
}

/// The digest's own part: its kind, and for `pbkdf2` the function and the value.
#[allow(clippy::type_complexity, reason = "taken apart at once by the only caller")]
fn parse_digest_value(node: &JsonNode<'_>) -> Result<(String, Option<(Kdf, Vec<u8>)>), Reason> {
    let kind = node.get("type")?.string()?.to_owned();
    if kind != "pbkdf2" {
        return Ok((kind, None));
    }
    let kdf = parse_pbkdf2(node)?;
    kdf.check().map_err(|reason| node.wrong(reason))?;
    let value_node = node.get("digest")?;
    let value = value_node.base64()?;
    let hash = node.get("hash")?.string()?;
    // An unknown hash is refused when it is needed; `info` works without. A header that was LUKS1 has its digest.
    if let Ok(hash) = Hash::by_name(hash)
        && ![hash.output_len(), LUKS1_DIGEST_LEN].contains(&value.len())
    {
        return Err(value_node.wrong("its length is not that of the hash"));
    }
    Ok((kind, Some((kdf, value))))
}

fn parse_config(node: &JsonNode<'_>) -> Result<Config, Reason> {
    let flags = node.find("flags")?.map_or(Ok(Vec::new()), |flags| owned_strings(&flags))?;
    let requirements = match node.find("requirements")? {
        Some(requirements) => match requirements.find("mandatory")? {
            Some(mandatory) => owned_strings(&mandatory)?,
            None => Vec::new(),
        },
        None => Vec::new(),
    };
    Ok(Config {
        json_size: node.get("json_size")?.u64()?,
        keyslots_size: node.get("keyslots_size")?.u64()?,
        flags,
        requirements,
    })
}

fn owned_strings(node: &JsonNode<'_>) -> Result<Vec<String>, Reason> {
    Ok(node.strings()?.into_iter().map(str::to_owned).collect())
}

fn key_len(node: &JsonNode<'_>) -> Result<u32, Reason> {
    let len = node.u32()?;
    if !(1..=KEY_LEN_MAX).contains(&len) {
        return Err(node.wrong(format_args!("{len} bytes, 1 to {KEY_LEN_MAX} are possible")));
    }
    Ok(len)
}

fn salt(node: &JsonNode<'_>) -> Result<Vec<u8>, Reason> {
    let salt = node.base64()?;
    if salt.len() != SALT_LEN {
        return Err(node.wrong(format_args!("not {SALT_LEN} bytes")));
    }
    Ok(salt)
}

fn expect(node: &JsonNode<'_>, wanted: &str) -> Result<(), Reason> {
    let found = node.string()?;
    if found != wanted {
        return Err(node.wrong(format_args!("{} is not {wanted:?}", quote(found))));
    }
    Ok(())
}
