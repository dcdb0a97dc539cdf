//! How a volume key is composed of cipher keys and other secrets.
//!
//! ```text
//!   key 0 | key 1 | ... | key n-1 | extra
//!                                   lmk       the seed, as long as a key (version 3), or nothing
//!                                   tcw       start of the IV (16), whitening (16)
//!                                   elephant  an AES key as long as the cipher's
//! ```

use std::fmt;
use std::slice::ChunksExact;

use super::adiantum::{self, AdiantumStream};
use super::blocks::ServedCipher;
use crate::spec::{CipherSpec, IvMode};

/// TrueCrypt's IV and whitening.
const TCW_BYTES: usize = 32;

/// The sizes in bytes that a key may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySizes(Vec<usize>);

/// A key in its parts.
pub(super) struct KeyLayout<'a> {
    cipher_keys: &'a [u8],
    subkey: usize,
    /// Empty unless the IV mode takes more secrets.
    pub(super) extra: &'a [u8],
}

impl KeySizes {
    /// Nothing for a cipher that is not served.
    pub(crate) fn of(spec: &CipherSpec) -> Option<KeySizes> {
        let count = usize::try_from(spec.key_count()).ok()?;
        let mut sizes = Vec::new();
        for &size in cipher_key_sizes(spec)? {
            let subkey = match spec.chain_mode() {
                "xts" => 2 * size,
                "lrw" => size + 16,
                _ => size,
            };
            let all = subkey.checked_mul(count)?;
            match spec.iv_mode() {
                IvMode::Tcw => sizes.push(all + TCW_BYTES),
                IvMode::Elephant => {
                    // The other half is a key of AES.
                    if count == 1 && ServedCipher::Aes.key_sizes().contains(&subkey) {
                        sizes.push(2 * subkey);
                    }
                }
                IvMode::Lmk => {
                    sizes.push(all);
                    // The kernel tells the versions by the remainder.
                    if !subkey.is_multiple_of(count) {
                        sizes.push(all + subkey);
                    }
                }
                _ => sizes.push(all),
            }
        }
        sizes.sort_unstable();
        Some(KeySizes(sizes))
    }

    pub(crate) fn contains(&self, size: usize) -> bool {
        self.0.contains(&size)
    }

    /// `key` in its parts; nothing if it has a wrong size.
    pub(super) fn split<'a>(&self, spec: &CipherSpec, key: &'a [u8]) -> Option<KeyLayout<'a>> {
        if !self.contains(key.len()) {
            return None;
        }
        let count = usize::try_from(spec.key_count()).ok()?;
        let extra = match spec.iv_mode() {
            IvMode::Tcw => TCW_BYTES,
            IvMode::Elephant => key.len() / 2,
            IvMode::Lmk if !key.len().is_multiple_of(count) => key.len() / (count + 1),
            _ => 0,
        };
        let (cipher_keys, extra) = key.split_at(key.len() - extra);
        Some(KeyLayout { cipher_keys, subkey: cipher_keys.len() / count, extra })
    }
}

fn cipher_key_sizes(spec: &CipherSpec) -> Option<&'static [usize]> {
    match spec.chain_mode() {
        "adiantum" => AdiantumStream::by_name(spec.cipher_name()).map(|_| adiantum::KEY_SIZES),
        _ => ServedCipher::by_name(spec.cipher_name()).map(ServedCipher::key_sizes),
    }
}

impl<'a> KeyLayout<'a> {
    pub(super) fn cipher_keys(&self) -> ChunksExact<'a, u8> {
        self.cipher_keys.chunks_exact(self.subkey)
    }
}

/// `32, 48 or 64 bytes`, or `16 to 32 bytes`.
impl fmt::Display for KeySizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => formatter.write_str("no key at all"),
            [only] => write!(formatter, "{only} bytes"),
            [first, .., last] if self.0.len() > 6 => {
                write!(formatter, "{first} to {last} bytes")
            }
            [firsts @ .., last] => {
                let firsts: Vec<String> = firsts.iter().map(usize::to_string).collect();
                write!(formatter, "{} or {last} bytes", firsts.join(", "))
            }
        }
    }
}
