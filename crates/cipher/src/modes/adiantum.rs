//! Adiantum: a whole cipher sector is one block of a wide cipher, so that changing one bit changes all
//! of it.
//!
//! ```text
//!   sector  =  left, all but 16 bytes                  right, 16 bytes
//!                │                                        │
//!                ├────────────── hash ───────────────────►+ ──► AES-256 ──┐
//!                ▼                                                        │
//!                ^ ◄──────── XChaCha12 or 20, from the middle ◄───────────┤  the middle
//!                │                                                        ▼
//!                ├────────────── hash ───────────────────────────────────►-
//! ```
//!
//! `hash` is Poly1305 (`polynomial`) of the length and the tweak, plus Poly1305 of NH (`nh`) of the
//! left part. XChaCha is RustCrypto's; the hash and the construction are ours.
//!
//! Sources: Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level
//! processors" (2018); dm-crypt's tweak has 32 bytes.

use aes::Block;
use chacha20::{KeyIvInit, XChaCha12, XChaCha20};
use cipher::StreamCipher;
use cryptline_sys::SecretBox;
use zeroize::Zeroizing;

use super::blocks::{BlockCipher, ServedCipher};
use super::chain::ChainMode;
use super::nh::{self, Nh};
use super::polynomial::Polynomial;
use crate::cpu::XtsBackend;
use crate::spec::{CipherSpec, IvMode};

/// The only size of a key.
pub(super) const KEY_SIZES: &[usize] = &[32];

/// Sectors whose middles go through AES together.
const SIDE_BY_SIDE: usize = 8;

/// 32 bytes.
type AdiantumTweak = [Block; 2];

/// The stream cipher in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdiantumStream {
    XChaCha12,
    XChaCha20,
}

impl AdiantumStream {
    /// By the ciphers' names as the cipher word gives them.
    pub(super) fn by_name(name: &str) -> Option<AdiantumStream> {
        match name {
            "xchacha12,aes" => Some(AdiantumStream::XChaCha12),
            "xchacha20,aes" => Some(AdiantumStream::XChaCha20),
            _ => None,
        }
    }

    /// XORs `text` with the stream under `key` that begins at `nonce`.
    fn apply(self, key: &[u8; 32], nonce: &[u8; 24], text: &mut [u8]) {
        match self {
            AdiantumStream::XChaCha12 => XChaCha12::new(key.into(), nonce.into()).apply_keystream(text),
            AdiantumStream::XChaCha20 => XChaCha20::new(key.into(), nonce.into()).apply_keystream(text),
        }
    }
}

/// The cipher under one key.
pub(super) struct Adiantum {
    stream: AdiantumStream,
    stream_key: SecretBox<[u8; 32]>,
    aes: Box<dyn BlockCipher>,
    hash: SecretBox<AdiantumHash>,
    /// The IV is the end of the tweak and not its start.
    iv_at_end: bool,
}

/// The hash under its keys.
struct AdiantumHash {
    header: Polynomial,
    text: Polynomial,
    nh: Nh,
}

impl Adiantum {
    /// Nothing if `spec` is no Adiantum or the key has not 32 bytes.
    pub(super) fn new(spec: &CipherSpec, key: &[u8], backend: XtsBackend) -> Option<Adiantum> {
        let stream = AdiantumStream::by_name(spec.cipher_name())?;
        let stream_key: SecretBox<[u8; 32]> = SecretBox::new(key.try_into().ok()?);
        // All other keys, in this order.
        let mut derived = Zeroizing::new([0; 32 + 16 + 16 + nh::KEY_BYTES]);
        stream.apply(&stream_key, &nonce(1, 0), &mut derived[..]);
        let (aes, rest) = derived.split_first_chunk::<32>()?;
        let (header, rest) = rest.split_first_chunk::<16>()?;
        let (text, rest) = rest.split_first_chunk::<16>()?;
        Some(Adiantum {
            stream,
            aes: ServedCipher::Aes.cipher(aes, backend)?,
            hash: SecretBox::new(AdiantumHash {
                header: Polynomial::at(header),
                text: Polynomial::at(text),
                nh: Nh::new(rest.try_into().ok()?),
            }),
            stream_key,
            iv_at_end: matches!(spec.iv_mode(), IvMode::Plain64Be | IvMode::Benbi),
        })
    }

    fn tweak(&self, iv: &Block) -> AdiantumTweak {
        if self.iv_at_end { [Block::default(), *iv] } else { [*iv, Block::default()] }
    }

    /// Sectors of equal length; `tweak` is told which.
    fn run(&self, sectors: usize, tweak: impl Fn(usize) -> AdiantumTweak, data: &mut [Block], way: AdiantumWay) {
        let sector_blocks = data.len() / sectors;
        let groups = data.chunks_mut(SIDE_BY_SIDE * sector_blocks);
        for (first, group) in (0..).step_by(SIDE_BY_SIDE).zip(groups) {
            self.run_group(sector_blocks, |place| tweak(first + place), group, way);
        }
    }

    /// At most [`SIDE_BY_SIDE`] sectors, one way or the other: the ways differ in what AES does,
    /// and on which side of it the stream's nonce is.
    fn run_group(
        &self,
        sector_blocks: usize,
        tweak: impl Fn(usize) -> AdiantumTweak,
        text: &mut [Block],
        way: AdiantumWay,
    ) {
        let sectors = text.len() / sector_blocks;
        let mut headers = [0; SIDE_BY_SIDE];
        let mut middles = [Block::default(); SIDE_BY_SIDE];
        for (place, sector) in text.chunks(sector_blocks).enumerate() {
            let (right, left) = sector.split_last().expect("whole sectors");
            headers[place] = self.hash.header(left.len(), tweak(place));
            let sum = headers[place].wrapping_add(self.hash.text(left));
            middles[place] = block(number(right).wrapping_add(sum));
        }
        let mut nonces = middles;
        match way {
            AdiantumWay::Encrypt => {
                self.aes.encrypt(&mut middles[..sectors]);
                nonces = middles;
            }
            AdiantumWay::Decrypt => self.aes.decrypt(&mut middles[..sectors]),
        }
        for (place, sector) in text.chunks_mut(sector_blocks).enumerate() {
            let (right, left) = sector.split_last_mut().expect("whole sectors");
            let nonce = nonce(number(&nonces[place]), 1);
            let bytes = Block::slice_as_flattened_mut(left);
            self.stream.apply(&self.stream_key, &nonce, bytes);
            let sum = headers[place].wrapping_add(self.hash.text(left));
            *right = block(number(&middles[place]).wrapping_sub(sum));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum AdiantumWay {
    Encrypt,
    Decrypt,
}

impl ChainMode for Adiantum {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let tweak = |place: usize| self.tweak(&ivs[place]);
        self.run(ivs.len(), tweak, data, AdiantumWay::Encrypt);
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        let tweak = |place: usize| self.tweak(&ivs[place]);
        self.run(ivs.len(), tweak, data, AdiantumWay::Decrypt);
    }
}

impl AdiantumHash {
    /// The part that is not about the text: its length in bits, and the tweak.
    fn header(&self, left_blocks: usize, tweak: AdiantumTweak) -> u128 {
        // At most 4096 bytes.
        let bits = u128::try_from(left_blocks * 128).unwrap_or(0);
        self.header.value(&[block(bits), tweak[0], tweak[1]])
    }

    /// The part that is about the text, at most 4096 bytes.
    fn text(&self, left: &[Block]) -> u128 {
        let mut hashes = [[Block::default(); 2]; 4];
        let chunks = left.chunks(nh::UNITS);
        let hashes = &mut hashes[..chunks.len()];
        for (hash, chunk) in hashes.iter_mut().zip(chunks) {
            *hash = self.nh.hash(chunk);
        }
        self.text.value(hashes.as_flattened())
    }
}

/// XChaCha's nonce: 16 bytes and 8.
fn nonce(start: u128, end: u64) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(&start.to_le_bytes());
    nonce[16..].copy_from_slice(&end.to_le_bytes());
    nonce
}

fn number(block: &Block) -> u128 {
    u128::from_le_bytes((*block).into())
}

fn block(number: u128) -> Block {
    number.to_le_bytes().into()
}

#[cfg(test)]
#[path = "adiantum_tests.rs"]
mod tests;
