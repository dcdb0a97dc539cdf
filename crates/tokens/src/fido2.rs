//! Tokens of type `systemd-fido2`, whose passphrase a security key makes. Whoever uses the library brings along what
//! talks to it.
//!
//! ```text
//! token      a credential of the key, and a salt
//! key        the HMAC of the salt under a secret that belongs to the credential and never leaves the key
//! here       that in base64 is the passphrase
//! ```

use std::fmt;
use std::sync::Arc;

use base64ct::{Base64, Encoding};
use cryptline::luks::token::FIDO2_TOKEN;
use cryptline::{
    Error, NewToken, Problem, Result, SecretBuf, TokenMaker, TokenProvider, TokenRefusal, TokenRequest, TokenVolume,
};
use serde_json::Value;

use crate::in_base64;

/// Bytes of a salt, and of what comes of it.
const LEN: usize = 32;
/// The party that a credential is for, unless the token says otherwise.
pub const RELYING_PARTY: &str = "io.systemd.cryptsetup";

/// Talks to a FIDO2 security key that has the extension `hmac-secret`.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Returns what the key makes of the salt: 32 bytes. `None` where no key that is there knows the credential, which
    /// leaves it to other tokens and keys.
    ///
    /// This runs on a thread whose stack is wiped. It may ask somebody for a PIN or a touch.
    ///
    /// # Errors
    /// Any error ends the opening: [`Error::from_keys`] makes one of the caller's own.
    fn hmac_secret(&self, request: &HmacSecretRequest<'_>) -> Result<Option<SecretBuf>>;
}

/// Request to a security key: `authenticatorGetAssertion` of CTAP 2.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HmacSecretRequest<'a> {
    /// The volume, for a question.
    pub name: &'a str,
    /// The number of the token; `None` for one that is being made.
    pub token: Option<u32>,
    /// Whom the credential is for.
    pub relying_party: &'a str,
    /// The credential.
    pub credential: &'a [u8],
    /// The salt.
    pub salt: &'a [u8; LEN],
    /// Set if the key wants its PIN; `None`: if it says so.
    pub pin: Option<bool>,
    /// Set if the key wants a touch; `None`: if it says so.
    pub presence: Option<bool>,
    /// Set if the key wants to see who it is, as by a fingerprint; `None`: not asked for.
    pub verification: Option<bool>,
}

/// A credential that a security key has just made, and how it is to be asked.
#[derive(Clone, Debug)]
pub struct NewCredential {
    /// Its name, which the key gave it.
    pub id: Vec<u8>,
    /// The key wants its PIN.
    pub pin: bool,
    /// The key wants a touch.
    pub presence: bool,
    /// The key wants to see who it is.
    pub verification: bool,
}

/// Tokens that a security key opens. Without means of talking to one they are passed over.
#[derive(Clone, Debug)]
pub struct Fido2Tokens(pub Option<Arc<dyn Authenticator>>);

impl TokenProvider for Fido2Tokens {
    fn kind(&self) -> &str {
        FIDO2_TOKEN
    }

    fn passphrase(&self, request: &TokenRequest<'_>) -> std::result::Result<SecretBuf, TokenRefusal> {
        match &self.0 {
            Some(authenticator) => passphrase(&request.json(), request.id, request.volume.name, &**authenticator),
            None => Err(TokenRefusal::NotUsed("security keys are not used here".to_owned())),
        }
    }
}

/// A key slot for what a security key makes of a random salt, as systemd's tools make it; systemd opens it, too. The
/// credential has been made before.
#[derive(Clone, Copy, Debug)]
pub struct BindFido2<'a> {
    /// Means of talking to the key.
    pub authenticator: &'a dyn Authenticator,
    /// A credential of that key.
    pub credential: &'a NewCredential,
}

impl TokenMaker for BindFido2<'_> {
    type Prepared = ();

    fn prepare(&mut self, _: &TokenVolume<'_>) -> Result<()> {
        Ok(())
    }

    /// Fails where the key does not answer or does not know the credential.
    fn make(&self, volume: &TokenVolume<'_>, (): ()) -> Result<NewToken> {
        let made = new_token(volume.name, self.authenticator, self.credential);
        let (secret, json) = made.map_err(|error| error.on(volume.name))?;
        Ok(NewToken { secret, json, warning: None })
    }
}

/// The passphrase that a security key makes of a new salt, and its token.
fn new_token(name: &str, authenticator: &dyn Authenticator, credential: &NewCredential) -> Result<(SecretBuf, Value)> {
    let mut salt = [0; LEN];
    salt.copy_from_slice(&SecretBuf::random(LEN).map_err(no_memory)?);
    let made = authenticator.hmac_secret(&HmacSecretRequest {
        name,
        token: None,
        relying_party: RELYING_PARTY,
        credential: &credential.id,
        salt: &salt,
        pin: Some(credential.pin),
        presence: Some(credential.presence),
        verification: Some(credential.verification),
    })?;
    let made = made.filter(|made| made.len() == LEN);
    let made = made.ok_or_else(|| {
        let source = std::io::Error::other("it makes no secret of 32 bytes");
        Error::from(Problem::Io { action: "use the security key", source })
    })?;
    let secret = in_base64(&made).map_err(no_memory)?;
    let token = serde_json::json!({
        "type": FIDO2_TOKEN,
        "keyslots": [],
        "fido2-credential": Base64::encode_string(&credential.id),
        "fido2-salt": Base64::encode_string(&salt),
        "fido2-rp": RELYING_PARTY,
        "fido2-clientPin-required": credential.pin,
        "fido2-up-required": credential.presence,
        "fido2-uv-required": credential.verification,
    });
    Ok((secret, token))
}

fn no_memory(source: std::io::Error) -> Error {
    Problem::Luks(cryptline::luks::Error::KeyMemory(source)).into()
}

/// The passphrase that a token of this JSON yields.
fn passphrase(
    token: &str,
    id: u32,
    name: &str,
    authenticator: &dyn Authenticator,
) -> std::result::Result<SecretBuf, TokenRefusal> {
    let token: Value = serde_json::from_str(token).unwrap_or_default();
    let bytes = |member: &str| Base64::decode_vec(token[member].as_str()?).ok();
    let credential = bytes("fido2-credential").unwrap_or_default();
    let salt = bytes("fido2-salt").and_then(|salt| <[u8; LEN]>::try_from(salt).ok());
    let (Some(salt), false) = (salt, credential.is_empty()) else {
        return Err("its credential or its salt is damaged".into());
    };
    let made = authenticator.hmac_secret(&HmacSecretRequest {
        name,
        token: Some(id),
        relying_party: token["fido2-rp"].as_str().unwrap_or(RELYING_PARTY),
        credential: &credential,
        salt: &salt,
        pin: token["fido2-clientPin-required"].as_bool(),
        presence: token["fido2-up-required"].as_bool(),
        verification: token["fido2-uv-required"].as_bool(),
    })?;
    let Some(made) = made else {
        return Err(TokenRefusal::NotUsed("its security key is not there".to_owned()));
    };
    if made.len() != LEN {
        return Err("its security key gives no secret of 32 bytes".into());
    }
    Ok(in_base64(&made)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one credential, and shows what it was asked.
    #[derive(Debug)]
    struct Key;

    impl Authenticator for Key {
        fn hmac_secret(&self, request: &HmacSecretRequest<'_>) -> Result<Option<SecretBuf>> {
            if request.credential != b"credential" {
                return Ok(None);
            }
            assert_eq!(request.relying_party, RELYING_PARTY);
            assert_eq!((request.name, request.token), ("disk", Some(3)));
            assert_eq!((request.pin, request.presence), (Some(true), Some(false)));
            assert_eq!(request.verification, None);
            Ok(SecretBuf::copy_of(request.salt).ok())
        }
    }

    fn yields(member: &str, value: Value) -> std::result::Result<String, String> {
        let mut token = serde_json::json!({
            "type": "systemd-fido2",
            "keyslots": ["0"],
            "fido2-credential": Base64::encode_string(b"credential"),
            "fido2-salt": Base64::encode_string(&[7; LEN]),
            "fido2-clientPin-required": true,
            "fido2-up-required": false,
        });
        token[member] = value;
        let yielded = passphrase(&token.to_string(), 3, "disk", &Key);
        let text = |bytes: SecretBuf| String::from_utf8(bytes.to_vec()).unwrap();
        yielded.map(text).map_err(TokenRefusal::why)
    }

    #[test]
    fn passphrase_is_what_the_key_makes_of_the_salt_in_base64() {
        let expected = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        assert_eq!(yields("fido2-rp", RELYING_PARTY.into()).as_deref(), Ok(expected));
        for (member, value, why) in [
            ("fido2-salt", "AAAA", "damaged"),
            ("fido2-salt", "?", "damaged"),
            ("fido2-credential", "", "damaged"),
            ("fido2-credential", "AAAA", "not there"),
        ] {
            let refused = yields(member, value.into()).unwrap_err();
            assert!(refused.contains(why), "{member}: {refused}");
        }
    }
}
