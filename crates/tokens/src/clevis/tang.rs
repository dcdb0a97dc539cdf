//! Requests to a tang server: for its keys, and for the part that only it can do.

use std::time::Instant;

use base64ct::{Base64UrlUnpadded, Encoding};
use cryptline::{SecretBuf, TokenRefusal};
use p521::ecdsa::signature::Verifier;
use p521::ecdsa::{Signature, VerifyingKey};
use serde_json::{Value, json};

use super::PATIENCE;
use super::curve::{CurvePoint, SecretNumber};
use super::http::{self, Url};
use super::jwe::Jwe;

/// Keys of a server that are looked at.
const KEYS_MAX: usize = 64;

/// Returns what the points agree on that this header names, with the help of its server.
pub fn key_of(header: &Value, deadline: Instant) -> Result<SecretBuf, TokenRefusal> {
    let tang = &header["clevis"]["tang"];
    let text = tang["url"].as_str().unwrap_or_default();
    let url = Url::parse(text).map_err(|why| format!("its URL, '{}': {why}", text.escape_debug()))?;
    let kid = header["kid"].as_str().unwrap_or_default();
    let server = points(&tang["adv"], "deriveKey")?;
    let server = server.into_iter().find(|it| it.thumbprint() == kid || it.old_thumbprint() == kid);
    let server = server.ok_or("none of the keys that it keeps is the one that it names")?;
    let own = CurvePoint::of_jwk(&header["epk"])?;
    let key = agreed(&url, kid, &own, &server, deadline);
    Ok(key.map_err(|why| format!("the tang server {}: {why}", text.escape_debug()))?)
}

/// The server multiplies a point that tells it nothing; what we added to hide ours is taken off again.
fn agreed(url: &Url, kid: &str, own: &CurvePoint, server: &CurvePoint, deadline: Instant) -> Result<SecretBuf, String> {
    let hiding = SecretNumber::random()?;
    let hidden = own.plus(&hiding.point()).ok_or("no point")?;
    let asked = hidden.to_jwk(Some("ECMR")).to_string();
    let answer = http::ask(url, &format!("/rec/{kid}"), Some(&asked), deadline)?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|_| "its answer is no JSON")?;
    let answer = CurvePoint::of_jwk(&answer)?;
    let off = hiding.times(server).ok_or("no point")?;
    answer.minus(&off).ok_or("its answer is no point of use")?.secret()
}

/// The keys of a set that may be used so. Those of other curves are passed over.
fn points(set: &Value, usage: &str) -> Result<Vec<CurvePoint>, &'static str> {
    let keys = set["keys"].as_array().ok_or("it has no keys")?;
    let usable = keys.iter().take(KEYS_MAX).filter(|key| {
        let usages = key["key_ops"].as_array();
        usages.is_some_and(|usages| usages.iter().any(|it| it == usage))
    });
    Ok(usable.filter_map(|key| CurvePoint::of_jwk(key).ok()).collect())
}

/// The keys that a server tells everybody, each of its signing keys having signed them.
pub struct TangKeys {
    text: String,
    url: Url,
    set: Value,
    signing: Vec<CurvePoint>,
    exchange: CurvePoint,
    /// Set if it has just told them.
    is_there: bool,
}

impl TangKeys {
    /// Asks the server at `text`.
    pub(super) fn ask(text: &str) -> Result<Self, String> {
        let url = Url::parse(text)?;
        let signed = http::ask(&url, "/adv", None, Instant::now() + PATIENCE)?;
        Self::of(text, url, &signed)
    }

    /// From its answer.
    pub(super) fn of(text: &str, url: Url, signed: &[u8]) -> Result<Self, String> {
        let signed: Value = serde_json::from_slice(signed).map_err(|_| "its answer is no JSON")?;
        let payload = signed["payload"].as_str().unwrap_or_default();
        let set = Base64UrlUnpadded::decode_vec(payload).map_err(|_| "its keys are damaged")?;
        let set: Value = serde_json::from_slice(&set).map_err(|_| "its keys are damaged")?;
        let signing = points(&set, "verify")?;
        let signatures = match signed["signatures"].as_array() {
            Some(several) => several.as_slice(),
            None => std::slice::from_ref(&signed),
        };
        let is_signed = |key: &CurvePoint| {
            let mut signatures = signatures.iter().take(KEYS_MAX);
            signatures.any(|signature| is_signed_by(key, payload, signature))
        };
        if signing.is_empty() || !signing.iter().all(is_signed) {
            return Err("its keys are not signed by themselves; is it a tang server?".to_owned());
        }
        let exchange = points(&set, "deriveKey")?.into_iter().next();
        Ok(Self {
            text: text.to_owned(),
            url,
            exchange: exchange.ok_or("it has no key of the curve P-521 for what is needed")?,
            set,
            signing,
            is_there: true,
        })
    }

    /// Where the server is, as that was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.text
    }

    /// The names of its signing keys, by which it is known (RFC 7638, SHA-256).
    #[must_use]
    pub fn thumbprints(&self) -> Vec<String> {
        self.signing.iter().map(CurvePoint::thumbprint).collect()
    }

    /// Tells if a signing key has this name; by SHA-1 as well, as old servers say it.
    #[must_use]
    pub fn is_known_as(&self, thumbprint: &str) -> bool {
        let mut keys = self.signing.iter();
        keys.any(|key| key.thumbprint() == thumbprint || key.old_thumbprint() == thumbprint)
    }

    /// From what somebody has kept of the answer of the server at `text`, which may not be there.
    pub(super) fn kept(text: &str, signed: &[u8]) -> Result<Self, String> {
        let kept = Self::of(text, Url::parse(text)?, signed)?;
        let is_there = false;
        Ok(Self { is_there, ..kept })
    }

    /// Returns what `secret` opens from with the help of the server, which is tried if it is there.
    pub fn seal(&self, secret: &SecretBuf) -> Result<Jwe, String> {
        let own = SecretNumber::random()?;
        let agreed = own.times(&self.exchange).ok_or("no point")?.secret()?;
        let kid = self.exchange.thumbprint();
        let header = json!({
            "alg": "ECDH-ES",
            "clevis": {"pin": "tang", "tang": {"adv": self.set, "url": self.text}},
            "enc": "A256GCM",
            "epk": own.point().to_jwk(None),
            "kid": kid,
        });
        let jwe = Jwe::seal(header, &agreed, secret)?;
        if !self.is_there {
            return Ok(jwe);
        }
        let deadline = Instant::now() + PATIENCE;
        let again = self::agreed(&self.url, &kid, &own.point(), &self.exchange, deadline)?;
        if jwe.open(&again)?[..] != secret[..] {
            return Err("it answers with other keys than it tells".to_owned());
        }
        Ok(jwe)
    }
}

/// ES512 (RFC 7515, 7518).
fn is_signed_by(key: &CurvePoint, payload: &str, signature: &Value) -> bool {
    let protected = signature["protected"].as_str().unwrap_or_default();
    let header = Base64UrlUnpadded::decode_vec(protected).unwrap_or_default();
    let header: Value = serde_json::from_slice(&header).unwrap_or_default();
    if header["alg"] != "ES512" {
        return false;
    }
    let bytes = signature["signature"].as_str().unwrap_or_default();
    let bytes = Base64UrlUnpadded::decode_vec(bytes).unwrap_or_default();
    let (Ok(signature), Ok(key)) = (Signature::from_slice(&bytes), VerifyingKey::from_sec1_bytes(&key.to_bytes()))
    else {
        return false;
    };
    let signed = format!("{protected}.{payload}");
    key.verify(signed.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
#[path = "tang_tests.rs"]
mod tests;
