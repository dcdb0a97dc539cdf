//! The JSON of a token of type `systemd-tpm2`.

use base64ct::{Base64, Encoding};
use cryptline::TokenRefusal;
use cryptline::luks::token::TPM_TOKEN;
use serde_json::{Value, json};

use super::Pcrs;
use super::chip::PrimaryKind;
use super::wire::{ALG_SHA1, ALG_SHA256, ALG_SHA384, ALG_SHA512, ResponseReader};

const BANKS: [(&str, u16); 4] =
    [("sha1", ALG_SHA1), ("sha256", ALG_SHA256), ("sha384", ALG_SHA384), ("sha512", ALG_SHA512)];

/// Handles of keys that stay in a TPM.
const PERSISTENT: std::ops::RangeInclusive<u32> = 0x8100_0000..=0x81ff_ffff;

/// Contents of a token.
pub struct TpmToken {
    /// The secret for the TPM, and what everybody may know of it, each with its length in front.
    pub private: Vec<u8>,
    pub public: Vec<u8>,
    pub pcrs: Pcrs,
    pub bank: u16,
    /// Of the key that the secret lies under, where that is made each time.
    pub algorithm: PrimaryKind,
    /// Result of the policy.
    pub policy: Vec<u8>,
    pub has_pin: bool,
    pub salt: Option<Vec<u8>>,
    /// The key that the secret lies under, where that stays in the TPM.
    pub parent: Option<ParentKey>,
}

/// A key that stays in the TPM.
#[derive(Debug, PartialEq, Eq)]
pub struct ParentKey {
    pub handle: u32,
    pub name: Vec<u8>,
}

impl TpmToken {
    pub fn parse(json: &Value) -> Result<Self, TokenRefusal> {
        if json["tpm2_pcrlock"] == true {
            return Err(not_used("a policy of systemd-pcrlock"));
        }
        if json["tpm2_pubkey_pcrs"].as_array().is_some_and(|pcrs| !pcrs.is_empty()) {
            return Err(not_used("a signed policy"));
        }
        if json["tpm2-blob"].is_array() {
            return Err(not_used("a secret in several parts"));
        }
        let blob = bytes(json, "tpm2-blob")?;
        let mut areas = ResponseReader(&blob);
        let (Some(private), Some(public)) = (areas.with_size(), areas.with_size()) else {
            return Err("its tpm2-blob is damaged".into());
        };
        if !areas.0.is_empty() {
            return Err(not_used("a secret that was sealed elsewhere"));
        }
        let bank = json["tpm2-pcr-bank"].as_str().unwrap_or("sha256");
        let bank = BANKS.iter().find(|(name, _)| *name == bank);
        let algorithm = match json["tpm2-primary-alg"].as_str() {
            None | Some("ecc") => PrimaryKind::Ecc,
            Some("rsa") => PrimaryKind::Rsa,
            Some(_) => return Err("its tpm2-primary-alg is not known".into()),
        };
        let policy = json["tpm2-policy-hash"].as_str().unwrap_or_default();
        let salt = json.get("tpm2_salt").map(|_| bytes(json, "tpm2_salt"));
        let parent = json.get("tpm2_srk").map(|_| bytes(json, "tpm2_srk"));
        Ok(Self {
            private: private.to_vec(),
            public: public.to_vec(),
            pcrs: pcrs(&json["tpm2-pcrs"]).ok_or("its tpm2-pcrs are damaged")?,
            bank: bank.ok_or("its tpm2-pcr-bank is not known")?.1,
            algorithm,
            policy: of_hex(policy).ok_or("its tpm2-policy-hash is damaged")?,
            has_pin: json["tpm2-pin"] == true,
            salt: salt.transpose()?,
            parent: parent.transpose()?.map(|it| ParentKey::parse(&it)).transpose()?,
        })
    }

    /// As the header has it, for the key slots that are to be named.
    pub fn to_json(&self) -> Value {
        let pcrs: Vec<u32> = self.pcrs.numbers().collect();
        let bank = BANKS.iter().find(|(_, bank)| *bank == self.bank);
        let algorithm = match self.algorithm {
            PrimaryKind::Ecc => "ecc",
            PrimaryKind::Rsa => "rsa",
        };
        let policy: String = self.policy.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({
            "type": TPM_TOKEN,
            "keyslots": [],
            "tpm2-blob": Base64::encode_string(&[&self.private[..], &self.public].concat()),
            "tpm2-pcrs": pcrs,
            "tpm2-pcr-bank": bank.map(|(name, _)| name),
            "tpm2-primary-alg": algorithm,
            "tpm2-policy-hash": policy,
            "tpm2-pin": self.has_pin,
        })
    }
}

impl ParentKey {
    /// As tpm2-tss writes what it knows of an object: handle, name, what it is, public area.
    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = ResponseReader(bytes);
        let (handle, name) = (reader.u32(), reader.sized());
        let (Some(handle), Some(name)) = (handle, name) else {
            return Err("its tpm2_srk is damaged");
        };
        if !PERSISTENT.contains(&handle) {
            return Err("its tpm2_srk names no key that stays in the TPM");
        }
        Ok(Self { handle, name: name.to_vec() })
    }
}

fn not_used(what: &str) -> TokenRefusal {
    TokenRefusal::NotUsed(format!("TPM tokens with {what} are not used here; use another key, or systemd-cryptsetup"))
}

fn bytes(json: &Value, name: &str) -> Result<Vec<u8>, TokenRefusal> {
    let decoded = json[name].as_str().and_then(|it| Base64::decode_vec(it).ok());
    decoded.ok_or_else(|| format!("its {name} is damaged").into())
}

fn pcrs(json: &Value) -> Option<Pcrs> {
    let mut numbers = json.as_array()?.iter().map(|pcr| {
        let pcr = pcr.as_u64()?;
        u32::try_from(pcr).ok()
    });
    numbers.try_fold(Pcrs::NONE, |pcrs, pcr| pcrs.with(pcr?))
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As systemd 252 writes one.
    fn enrolled() -> Value {
        json!({
            "type": "systemd-tpm2",
            "keyslots": [],
            "tpm2-blob": Base64::encode_string(b"\0\x01p\0\x02PU"),
            "tpm2-pcrs": [7, 11],
            "tpm2-pcr-bank": "sha256",
            "tpm2-primary-alg": "ecc",
            "tpm2-policy-hash": "00ff",
            "tpm2-pin": true,
        })
    }

    #[test]
    fn token_is_written_as_it_was_read() {
        let token = TpmToken::parse(&enrolled()).ok().unwrap();
        assert_eq!(token.private, b"\0\x01p");
        assert_eq!(token.public, b"\0\x02PU");
        assert_eq!(token.policy, [0, 255]);
        assert_eq!(token.to_json().to_string(), enrolled().to_string());
        let mut old = enrolled();
        for member in ["tpm2-pcr-bank", "tpm2-primary-alg", "tpm2-pin"] {
            old.as_object_mut().unwrap().shift_remove(member);
        }
        let old = TpmToken::parse(&old).ok().unwrap();
        assert!(old.bank == ALG_SHA256 && !old.has_pin && old.algorithm == PrimaryKind::Ecc);
    }

    #[test]
    fn what_is_damaged_or_not_known_is_refused_by_name() {
        let blob = |bytes: &[u8]| Value::from(Base64::encode_string(bytes));
        for (member, value, why) in [
            ("tpm2-blob", blob(b"\0\x09p"), "tpm2-blob is damaged"),
            ("tpm2-blob", blob(b"\0\0\0\0\0\x01s"), "sealed elsewhere"),
            ("tpm2-blob", json!(["AA", "AA"]), "several parts"),
            ("tpm2-blob", "?".into(), "tpm2-blob is damaged"),
            ("tpm2-pcrs", json!([24]), "tpm2-pcrs are damaged"),
            ("tpm2-pcrs", json!([-1]), "tpm2-pcrs are damaged"),
            ("tpm2-pcrs", Value::Null, "tpm2-pcrs are damaged"),
            ("tpm2-pcr-bank", "md5".into(), "tpm2-pcr-bank is not known"),
            ("tpm2-primary-alg", "x".into(), "tpm2-primary-alg is not known"),
            ("tpm2-policy-hash", "0".into(), "tpm2-policy-hash is damaged"),
            ("tpm2-policy-hash", "\u{e4}".into(), "tpm2-policy-hash is damaged"),
            ("tpm2_salt", 7.into(), "tpm2_salt is damaged"),
            ("tpm2_srk", blob(b"\x81\0\0"), "tpm2_srk is damaged"),
            ("tpm2_srk", blob(b"\x80\xff\xff\xff\0\0"), "names no key"),
            ("tpm2_srk", blob(b"\x82\0\0\0\0\0"), "names no key"),
            ("tpm2_pubkey_pcrs", json!([11]), "a signed policy"),
            ("tpm2_pcrlock", true.into(), "systemd-pcrlock"),
        ] {
            let mut token = enrolled();
            token[member] = value;
            let refused = TpmToken::parse(&token).err().unwrap().why();
            assert!(refused.contains(why), "{member}: {refused}");
        }
    }
}
