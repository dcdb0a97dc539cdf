//! A secret under a key that two points agree on, or that others give: JWE with ECDH-ES or without, and A256GCM (RFC
//! 7516, 7518).

use base64ct::{Base64UrlUnpadded, Encoding};
use cryptline::SecretBuf;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const METHOD: &str = "A256GCM";
const AGREED: &str = "ECDH-ES";
const GIVEN: &str = "dir";
const TAG: usize = 16;
const IV: usize = 12;

/// A secret that is not open yet.
pub struct Jwe {
    /// As it is authenticated.
    protected: String,
    /// Parameters that it states.
    pub header: Value,
    iv: [u8; IV],
    /// With the tag behind it.
    sealed: Vec<u8>,
}

impl Jwe {
    /// In its other notation: five parts between dots.
    pub fn compact(text: &str) -> Result<Self, &'static str> {
        let parts: Vec<_> = text.splitn(6, '.').collect();
        let [protected, encrypted_key, iv, ciphertext, tag] = parts[..] else {
            return Err("its JWE is damaged");
        };
        Self::parse(&json!({
            "protected": protected,
            "encrypted_key": encrypted_key,
            "iv": iv,
            "ciphertext": ciphertext,
            "tag": tag,
        }))
    }

    pub fn parse(jwe: &Value) -> Result<Self, &'static str> {
        let text = |name: &str| jwe[name].as_str().unwrap_or_default();
        let bytes = |name: &str| Base64UrlUnpadded::decode_vec(text(name)).map_err(|_| "its JWE is damaged");
        let protected = text("protected").to_owned();
        let header: Value = serde_json::from_slice(&bytes("protected")?).map_err(|_| "its JWE is damaged")?;
        if !text("encrypted_key").is_empty()
            || !(header["alg"] == AGREED || header["alg"] == GIVEN)
            || header["enc"] != METHOD
            || header.get("zip").is_some()
            || header.get("crit").is_some()
        {
            return Err("its JWE is not of ECDH-ES or dir, and A256GCM");
        }
        let tag = bytes("tag")?;
        if tag.len() != TAG {
            return Err("its JWE is damaged");
        }
        Ok(Self {
            protected,
            iv: bytes("iv")?.try_into().map_err(|_| "its JWE is damaged")?,
            sealed: [bytes("ciphertext")?, tag].concat(),
            header,
        })
    }

    /// Returns its contents, given what the points agree on, or the key itself.
    pub fn open(&self, agreed: &SecretBuf) -> Result<SecretBuf, String> {
        let key = self.key(agreed)?;
        let no_memory = |error: std::io::Error| error.to_string();
        let mut bytes = SecretBuf::copy_of(&self.sealed).map_err(no_memory)?;
        let nonce = Nonce::assume_unique_for_key(self.iv);
        let aad = Aad::from(self.protected.as_bytes());
        let opened = key.open_in_place(nonce, aad, &mut bytes);
        let opened = opened.map_err(|_| "its JWE does not open: the answer gives another key")?;
        SecretBuf::copy_of(opened).map_err(no_memory)
    }

    /// A new one.
    pub fn seal(header: Value, agreed: &SecretBuf, secret: &SecretBuf) -> Result<Self, String> {
        let no_memory = |error: std::io::Error| error.to_string();
        let random = SecretBuf::random(IV).map_err(no_memory)?;
        let mut iv = [0; IV];
        iv.copy_from_slice(&random);
        let mut jwe = Self {
            protected: Base64UrlUnpadded::encode_string(header.to_string().as_bytes()),
            header,
            iv,
            sealed: Vec::new(),
        };
        let mut bytes = SecretBuf::copy_of(secret).map_err(no_memory)?;
        let nonce = Nonce::assume_unique_for_key(iv);
        let aad = Aad::from(jwe.protected.as_bytes());
        let key = jwe.key(agreed)?;
        let tag = key.seal_in_place_separate_tag(nonce, aad, &mut bytes).map_err(|_| "the passphrase is too long")?;
        jwe.sealed = [&bytes[..], tag.as_ref()].concat();
        Ok(jwe)
    }

    /// As [`compact`](Self::compact) takes it.
    pub fn to_compact(&self) -> String {
        let (text, tag) = self.sealed.split_at(self.sealed.len() - TAG);
        let [iv, text, tag] = [&self.iv[..], text, tag].map(Base64UrlUnpadded::encode_string);
        format!("{}..{iv}.{text}.{tag}", self.protected)
    }

    pub fn to_json(&self) -> Value {
        let (text, tag) = self.sealed.split_at(self.sealed.len() - TAG);
        json!({
            "ciphertext": Base64UrlUnpadded::encode_string(text),
            "encrypted_key": "",
            "iv": Base64UrlUnpadded::encode_string(&self.iv),
            "protected": self.protected,
            "tag": Base64UrlUnpadded::encode_string(tag),
        })
    }

    /// RFC 7518, 4.6.2: one round of the hash gives the whole key.
    fn key(&self, agreed: &SecretBuf) -> Result<LessSafeKey, String> {
        if self.header["alg"] == GIVEN {
            let key = UnboundKey::new(&AES_256_GCM, agreed);
            return Ok(LessSafeKey::new(key.map_err(|_| "its key has another length")?));
        }
        let mut hash = Sha256::new();
        hash.update(1_u32.to_be_bytes());
        hash.update(&agreed[..]);
        let party = |name: &str| {
            let text = self.header[name].as_str().unwrap_or_default();
            Base64UrlUnpadded::decode_vec(text).map_err(|_| "its JWE is damaged")
        };
        for part in [METHOD.as_bytes(), &party("apu")?, &party("apv")?] {
            let len = u32::try_from(part.len()).map_err(|_| "its JWE is damaged")?;
            hash.update(len.to_be_bytes());
            hash.update(part);
        }
        hash.update(256_u32.to_be_bytes());
        let key = UnboundKey::new(&AES_256_GCM, &hash.finalize());
        Ok(LessSafeKey::new(key.map_err(|_| "no key")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_under_the_same_key_only_and_as_it_was() {
        let secret = |byte| SecretBuf::copy_of(&[byte; 66]).unwrap();
        let header = json!({"alg": "ECDH-ES", "enc": METHOD});
        let sealed = Jwe::seal(header, &secret(1), &secret(9)).unwrap().to_json();
        let parsed = Jwe::parse(&sealed).unwrap();
        assert!(parsed.open(&secret(1)).unwrap()[..] == [9; 66]);
        assert!(parsed.open(&secret(2)).is_err());
        assert!(Jwe::compact(&parsed.to_compact()).unwrap().open(&secret(1)).unwrap()[..] == [9; 66]);
        let mut other = sealed.clone();
        other["protected"] =
            Base64UrlUnpadded::encode_string(json!({"enc": METHOD, "alg": "ECDH-ES"}).to_string().as_bytes()).into();
        assert!(Jwe::parse(&other).unwrap().open(&secret(1)).is_err());
        for (name, value) in [("tag", "AAAA"), ("iv", ""), ("protected", "e30"), ("encrypted_key", "AA")] {
            let mut other = sealed.clone();
            other[name] = value.into();
            assert!(Jwe::parse(&other).is_err(), "{name}");
        }
    }
}
