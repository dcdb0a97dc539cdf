//! A session whose key only we and the TPM have, so that a secret does not cross the bus in the clear (TPM 2.0 Library,
//! part 1, 17.6, 19 and 21).
//!
//! ```text
//! salt     what a new point of ours and the TPM's key agree on (ECDH on P-256)
//! key      of the salt and both nonces
//! command  parameters, encrypted by the key and new nonces (AES-128-CFB)  ──►  and a HMAC of it all
//! response the same, the other way round; one that the TPM did not make is refused
//! ```

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use cryptline::SecretBuf;
use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey};
use ring::hmac;
use ring::rand::SystemRandom;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::wire::{ALG_AES, ALG_CFB, ALG_SHA256, CommandWriter, RH_NULL};

/// Bytes of keys, digests and our nonces: SHA-256 everywhere.
pub const DIGEST: usize = 32;
/// Bytes of a coordinate of P-256.
pub const COORDINATE: usize = 32;
const BLOCK: usize = 16;
const AES_BITS: u16 = 128;

/// The session ends with the command.
pub const LAST: u8 = 0;
/// The TPM decrypts the first parameter of the command, or encrypts that of the response.
pub const DECRYPT: u8 = 0x20;
pub const ENCRYPT: u8 = 0x40;

/// Purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    Hmac = 0,
    Policy = 1,
}

/// Parts of a session before the TPM has answered.
pub struct Proposal {
    salt: Zeroizing<[u8; DIGEST]>,
    nonce: [u8; DIGEST],
    /// Parameters of `StartAuthSession`, handles included.
    pub command: Vec<u8>,
}

impl Proposal {
    /// Salted with the public point `x`, `y` of a key that the TPM has at `handle`.
    pub fn new(kind: SessionUse, handle: u32, (x, y): &([u8; COORDINATE], [u8; COORDINATE])) -> Result<Self, String> {
        let random = SystemRandom::new();
        let no_key = |_| "no key can be made for it";
        let own = EphemeralPrivateKey::generate(&ECDH_P256, &random).map_err(no_key)?;
        let public = own.compute_public_key().map_err(no_key)?;
        // Uncompressed: 4, x, y.
        let (own_x, own_y) = public.as_ref()[1..].split_at(COORDINATE);
        let theirs = [&[4][..], x, y].concat();
        let theirs = UnparsedPublicKey::new(&ECDH_P256, theirs);
        let salt = agreement::agree_ephemeral(own, &theirs, |agreed| {
            let mut hash = Sha256::new();
            hash.update(1_u32.to_be_bytes());
            for part in [agreed, b"SECRET\0", own_x, x] {
                hash.update(part);
            }
            Zeroizing::new(hash.finalize().into())
        });
        let salt = salt.map_err(|_| "its key is no point of the curve")?;
        let nonce = nonce()?;
        let point = CommandWriter::default().sized(own_x).sized(own_y).0;
        let command = CommandWriter::default().u32(handle).u32(RH_NULL).sized(&nonce).sized(&point).u8(kind as u8);
        let command = command.u16(ALG_AES).u16(AES_BITS).u16(ALG_CFB);
        Ok(Self { salt, nonce, command: command.u16(ALG_SHA256).0 })
    }

    /// With what the TPM answered.
    pub fn accepted(self, handle: u32, nonce_tpm: &[u8]) -> TpmSession {
        TpmSession { handle, key: kdf(&self.salt[..], "ATH", nonce_tpm, &self.nonce), nonce_tpm: nonce_tpm.to_vec() }
    }
}

/// A session that the TPM has as well.
pub struct TpmSession {
    pub handle: u32,
    key: Zeroizing<[u8; DIGEST]>,
    nonce_tpm: Vec<u8>,
}

/// One command in a session.
pub struct TpmCall<'a> {
    session: &'a TpmSession,
    nonce: [u8; DIGEST],
    attributes: u8,
    code: u32,
    /// Session key, and the secret of what the command is about.
    value: SecretBuf,
    /// Secret that HMACs are made with.
    authorised_by: SecretBuf,
}

impl TpmSession {
    /// Begins a command about something whose secret is `auth`. `proves` says that the session proves knowledge of
    /// that, which a policy may not ask for.
    pub fn call(&self, code: u32, attributes: u8, auth: &[u8], proves: bool) -> Result<TpmCall<'_>, String> {
        let no_memory = |error: std::io::Error| error.to_string();
        let mut value = SecretBuf::zeroed(DIGEST + auth.len()).map_err(no_memory)?;
        value[..DIGEST].copy_from_slice(&self.key[..]);
        value[DIGEST..].copy_from_slice(auth);
        let used = if proves { value.len() } else { DIGEST };
        Ok(TpmCall {
            session: self,
            nonce: nonce()?,
            attributes,
            code,
            authorised_by: SecretBuf::copy_of(&value[..used]).map_err(no_memory)?,
            value,
        })
    }
}

impl TpmCall<'_> {
    /// Encrypts the bytes of the first parameter, for the TPM.
    pub fn encrypt(&self, bytes: &mut [u8]) {
        let (cipher, iv) = self.cipher(&self.nonce, &self.session.nonce_tpm);
        cfb(&cipher, iv, bytes, |plain, mixed| {
            *plain ^= mixed;
            *plain
        });
    }

    /// The area of the session behind the handles, whose names are these.
    pub fn authorisation(&self, names: &[&[u8]], parameters: &[u8]) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(self.code.to_be_bytes());
        names.iter().for_each(|name| hash.update(name));
        hash.update(parameters);
        let sum = self.sum(&hash.finalize(), &self.nonce, &self.session.nonce_tpm);
        let area = CommandWriter::default().u32(self.session.handle).sized(&self.nonce).u8(self.attributes);
        area.sized(hmac::sign(&self.hmac_key(), &sum).as_ref()).0
    }

    /// Tells if the TPM that has the key has made this response, whose parameters are still encrypted.
    pub fn is_genuine(&self, parameters: &[u8], nonce_tpm: &[u8], attributes: u8, mac: &[u8]) -> bool {
        let mut hash = Sha256::new();
        // It has succeeded.
        hash.update(0_u32.to_be_bytes());
        hash.update(self.code.to_be_bytes());
        hash.update(parameters);
        let mut sum = self.sum(&hash.finalize(), nonce_tpm, &self.nonce);
        // The last byte: these may say that the session goes on.
        sum.pop();
        sum.push(attributes);
        hmac::verify(&self.hmac_key(), &sum, mac).is_ok()
    }

    /// Decrypts the bytes of the response's first parameter.
    pub fn decrypt(&self, nonce_tpm: &[u8], bytes: &mut [u8]) {
        let (cipher, iv) = self.cipher(nonce_tpm, &self.nonce);
        cfb(&cipher, iv, bytes, |encrypted, mixed| {
            let before = *encrypted;
            *encrypted ^= mixed;
            before
        });
    }

    fn hmac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.authorised_by)
    }

    fn sum(&self, digest: &[u8], newer: &[u8], older: &[u8]) -> Vec<u8> {
        [digest, newer, older, &[self.attributes]].concat()
    }

    fn cipher(&self, newer: &[u8], older: &[u8]) -> (Aes128, [u8; BLOCK]) {
        let bytes = kdf(&self.value, "CFB", newer, older);
        let (mut key, mut iv) = (Zeroizing::new([0; BLOCK]), [0; BLOCK]);
        key.copy_from_slice(&bytes[..BLOCK]);
        iv.copy_from_slice(&bytes[BLOCK..]);
        (Aes128::new(&(*key).into()), iv)
    }
}

/// `mix` changes a byte and returns the encrypted one, of which the next block is made.
fn cfb(cipher: &Aes128, mut last: [u8; BLOCK], bytes: &mut [u8], mix: impl Fn(&mut u8, u8) -> u8) {
    for block in bytes.chunks_mut(BLOCK) {
        let mut mixed = last.into();
        cipher.encrypt_block(&mut mixed);
        for ((byte, mixed), last) in block.iter_mut().zip(mixed).zip(&mut last) {
            *last = mix(byte, mixed);
        }
    }
}

/// KDFa, of which one round gives all 256 bits.
fn kdf(key: &[u8], label: &str, newer: &[u8], older: &[u8]) -> Zeroizing<[u8; DIGEST]> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(&1_u32.to_be_bytes());
    for part in [label.as_bytes(), &[0], newer, older, &256_u32.to_be_bytes()] {
        context.update(part);
    }
    let mut made = Zeroizing::new([0; DIGEST]);
    made.copy_from_slice(context.sign().as_ref());
    made
}

fn nonce() -> Result<[u8; DIGEST], String> {
    let random = SecretBuf::random(DIGEST).map_err(|error| error.to_string())?;
    let mut nonce = [0; DIGEST];
    nonce.copy_from_slice(&random);
    Ok(nonce)
}
