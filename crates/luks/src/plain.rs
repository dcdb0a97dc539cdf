//! `cryptsetup plain`: no header at all, the key comes straight from the passphrase.
//!
//! Source: the behaviour of cryptsetup's plain mode (cryptsetup-open(8), "PLAIN MODE", and its
//! `password-hash-test`).

use cryptline_sys::SecretBuf;
use zeroize::Zeroize;

use crate::area::KEY_LEN_MAX;
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MAX, Hash};

/// Derives a key of `key_len` bytes from `passphrase`.
///
/// `hash` is `NAME` or `NAME:LENGTH`. With a length, only that many bytes are derived and the
/// rest of the key is zero. The name `plain` takes the passphrase itself as the key.
/// A key longer than the hash is made of several hashes: the n-th is over n-1 letters `A`
/// and the passphrase.
///
/// A key file is read as the key itself, without this function.
///
/// # Errors
/// [`Error::Parameters`] for an impossible length or a passphrase too short for `plain`,
/// [`Error::NotSupported`] for an unknown hash.
pub fn derive_key(passphrase: &[u8], hash: &str, key_len: usize) -> Result<SecretBuf, Error> {
    if key_len == 0 || key_len > KEY_LEN_MAX as usize {
        return Err(Error::Parameters(format!("a key of {key_len} bytes is not possible, use 1 to {KEY_LEN_MAX}")));
    }
    let (name, derived_len) = split_length(hash, key_len)?;
    let mut key = SecretBuf::zeroed(key_len).map_err(Error::KeyMemory)?;
    let derived = &mut key[..derived_len];
    if name == "plain" {
        let Some(start) = passphrase.get(..derived_len) else {
            return Err(Error::Parameters(format!(
                "the passphrase is too short: hash \"plain\" needs at least {derived_len} bytes"
            )));
        };
        derived.copy_from_slice(start);
    } else {
        hash_rounds(Hash::by_name(name)?, passphrase, derived);
    }
    Ok(key)
}

/// `NAME[:LENGTH]`, where the length is at most the key's.
fn split_length(hash: &str, key_len: usize) -> Result<(&str, usize), Error> {
    let Some((name, length)) = hash.split_once(':') else {
        return Ok((hash, key_len));
    };
    match length.parse() {
        Ok(length) if length <= key_len => Ok((name, length)),
        _ => Err(Error::Parameters(format!("{} is no hash length for a key of {key_len} bytes", quote(length)))),
    }
}

fn hash_rounds(hash: Hash, passphrase: &[u8], key: &mut [u8]) {
    const PREFIX: [u8; KEY_LEN_MAX as usize] = [b'A'; KEY_LEN_MAX as usize];
    let mut out = [0; HASH_LEN_MAX];
    for (round, piece) in key.chunks_mut(hash.output_len()).enumerate() {
        let out = &mut out[..piece.len()];
        hash.digest(&[&PREFIX[..round], passphrase], out);
        piece.copy_from_slice(out);
    }
    out.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use base16ct::lower::encode_string as hex;

    fn key(passphrase: &str, hash: &str, len: usize) -> String {
        hex(&derive_key(passphrase.as_bytes(), hash, len).unwrap())
    }

    /// Keys that cryptsetup's own test suite expects.
    #[test]
    fn keys_are_those_of_cryptsetup() {
        for (hash, len, answer) in [
            ("ripemd160", 32, "aeb26d1f69eb6dddfb9381eed4d7299f091e99aa5d3ff06866d4ce9f620f7aca"),
            ("ripemd160", 16, "aeb26d1f69eb6dddfb9381eed4d7299f"),
            ("sha1", 32, "b60d121b438a380c343d5ec3c2037564b82ffef30b1e0a6ad9af7a73aa91c197"),
            ("sha1", 16, "b60d121b438a380c343d5ec3c2037564"),
            ("sha256", 32, "cd2eb0837c9b4c962c22d2ff8b5441b7b45805887f051d39bf133b583baf6860"),
            ("sha256", 16, "cd2eb0837c9b4c962c22d2ff8b5441b7"),
        ] {
            assert_eq!(key("xxx", hash, len), answer, "{hash} {len}");
        }
        assert_eq!(key("xxx\n", "ripemd160", 32), "625ce2a8dbdf08f1de400dba7ab9fab246f2a55ad6136e6cafd6703732dab8cf");
    }

    #[test]
    fn plain_hash_takes_the_passphrase_itself() {
        assert_eq!(key("0123456789", "plain", 4), "30313233");
        assert_eq!(key("0123456789", "plain:2", 4), "30310000");
        assert_eq!(derive_key(b"012", "plain", 4).err().unwrap().kind(), ErrorKind::Parameters);
    }

    #[test]
    fn hash_length_cuts_the_key_and_leaves_zeros() {
        assert_eq!(key("xxx", "sha256:8", 16), "cd2eb0837c9b4c960000000000000000");
        for length in ["sha256:17", "sha256:", "sha256:x", "sha256:-1"] {
            assert_eq!(derive_key(b"xxx", length, 16).err().unwrap().kind(), ErrorKind::Parameters);
        }
    }

    #[test]
    fn impossible_key_lengths_are_refused() {
        assert!(derive_key(b"xxx", "sha256", 0).is_err());
        assert!(derive_key(b"xxx", "sha256", 513).is_err());
        assert!(derive_key(b"xxx", "sha1", 512).is_ok());
    }
}
