//! Block ciphers that work on many blocks at once, behind one call for all of them.

use aes::Block;
use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use cryptline_sys::SecretBox;
use zeroize::ZeroizeOnDrop;

use super::lanes::Width;
use super::parallel::{Blocks, Chained};
use super::serpent::{self, Serpent};
use super::twofish::Twofish;
use crate::cpu::Backend;

/// A block cipher with its expanded key.
pub(super) trait BlockCipher: Send + Sync {
    /// Encrypts each block by itself.
    fn encrypt(&self, blocks: &mut [Block]);
    /// Decrypts each block by itself.
    fn decrypt(&self, blocks: &mut [Block]);
    /// Encrypts as many sectors of equal length as there are lanes, with their blocks chained. A
    /// lane is what its sector's first block is XORed with.
    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]);
}

/// The ciphers of 16-byte blocks that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Aes,
    Serpent,
    Twofish,
    Camellia,
    Cast6,
    Sm4,
}

impl Algorithm {
    pub(super) fn by_name(name: &str) -> Option<Algorithm> {
        Some(match name {
            "aes" => Algorithm::Aes,
            "serpent" => Algorithm::Serpent,
            "twofish" => Algorithm::Twofish,
            "camellia" => Algorithm::Camellia,
            "cast6" => Algorithm::Cast6,
            "sm4" => Algorithm::Sm4,
            _ => return None,
        })
    }

    /// Sizes of its keys in bytes, ascending. The kernel takes serpent keys below 16 bytes as
    /// well; those protect nothing.
    pub(super) fn key_sizes(self) -> &'static [usize] {
        match self {
            Algorithm::Aes | Algorithm::Twofish | Algorithm::Camellia => &[16, 24, 32],
            Algorithm::Serpent => &[
                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
            ],
            Algorithm::Cast6 => &[16, 20, 24, 28, 32],
            Algorithm::Sm4 => &[16],
        }
    }

    /// The cipher under `key`; nothing if the key has a size that it does not take.
    pub(super) fn cipher(self, key: &[u8], backend: Backend) -> Option<Box<dyn BlockCipher>> {
        match (self, key.len()) {
            (Algorithm::Aes, _) => aes(key),
            (Algorithm::Serpent, _) => Some(Box::new(Serpent::new(key, Width::of(backend))?)),
            (Algorithm::Twofish, _) => Some(Box::new(Twofish::new(key)?)),
            (Algorithm::Camellia, 16) => boxed::<camellia::Camellia128>(key),
            (Algorithm::Camellia, 24) => boxed::<camellia::Camellia192>(key),
            (Algorithm::Camellia, _) => boxed::<camellia::Camellia256>(key),
            (Algorithm::Cast6, _) => boxed::<cast6::Cast6>(key),
            (Algorithm::Sm4, _) => boxed::<sm4::Sm4>(key),
        }
    }

    /// What does the work, for people.
    pub(super) fn backend_name(self, backend: Backend) -> &'static str {
        match self {
            Algorithm::Aes => crate::cpu::rustcrypto_aes_backend(),
            Algorithm::Serpent => serpent::name(Width::of(backend)),
            Algorithm::Twofish => "twofish (tables)",
            Algorithm::Camellia => "RustCrypto camellia",
            Algorithm::Cast6 => "RustCrypto cast6",
            Algorithm::Sm4 => "RustCrypto sm4",
        }
    }
}

/// AES, whose library finds the best back end by itself.
pub(super) fn aes(key: &[u8]) -> Option<Box<dyn BlockCipher>> {
    match key.len() {
        16 => boxed::<aes::Aes128>(key),
        24 => boxed::<aes::Aes192>(key),
        _ => boxed::<aes::Aes256>(key),
    }
}

fn boxed<C: KeyInit + 'static>(key: &[u8]) -> Option<Box<dyn BlockCipher>>
where
    Keyed<C>: BlockCipher,
{
    Some(Box::new(Keyed(SecretBox::new(
        C::new_from_slice(key).ok()?,
    ))))
}

/// A cipher whose schedule is in key memory.
struct Keyed<C>(SecretBox<C>);

// The bound on `ZeroizeOnDrop` is the proof that every schedule is wiped.
impl<C> BlockCipher for Keyed<C>
where
    C: BlockCipherEncrypt
        + BlockCipherDecrypt
        + BlockSizeUser<BlockSize = U16>
        + ZeroizeOnDrop
        + Send
        + Sync,
{
    // Never a part of `encrypt_chained`: with two places to go, the compiler would not vectorize
    // the loop over blocks of a cipher without parallel calls, which makes serpent three times as fast.
    #[inline(never)]
    fn encrypt(&self, blocks: &mut [Block]) {
        self.0.encrypt_with_backend(Blocks(blocks));
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        self.0.decrypt_with_backend(Blocks(blocks));
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        self.0.encrypt_with_backend(Chained {
            encrypt_row: |row: &mut [Block]| self.encrypt(row),
            lanes,
            data: sectors,
        });
    }
}
