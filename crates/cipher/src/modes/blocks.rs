//! Block ciphers that work on many blocks at once, behind one call for all of them.

use ::aes::{Aes128, Aes192, Aes256, Block};
use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use cryptline_sys::SecretBox;
use zeroize::ZeroizeOnDrop;

use super::lanes::Width;
#[cfg(target_arch = "x86_64")]
use super::lanes::{sliced, sliced_name};
use super::parallel::{Blocks, Chained, chain_back};
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
    /// Decrypts as many sectors of equal length as there are IVs, with their blocks chained.
    fn decrypt_chained(&self, ivs: &[Block], sectors: &mut [Block]) {
        chain_back(ivs, sectors, |group| self.decrypt(group));
    }
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
            Algorithm::Serpent => &[16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32],
            Algorithm::Cast6 => &[16, 20, 24, 28, 32],
            Algorithm::Sm4 => &[16],
        }
    }

    /// The cipher under `key`; nothing if the key has a size that it does not take.
    pub(super) fn cipher(self, key: &[u8], backend: Backend) -> Option<Box<dyn BlockCipher>> {
        if let Some(native) = self.native(key, backend) {
            return Some(native);
        }
        match (self, key.len()) {
            (Algorithm::Aes, 16) => boxed::<Aes128>(key),
            (Algorithm::Aes, 24) => boxed::<Aes192>(key),
            (Algorithm::Aes, _) => boxed::<Aes256>(key),
            (Algorithm::Serpent, _) => Some(Box::new(Serpent::new(key, Width::of(backend))?)),
            (Algorithm::Twofish, _) => Some(Box::new(Twofish::new(key)?)),
            (Algorithm::Camellia, 16) => boxed::<camellia::Camellia128>(key),
            (Algorithm::Camellia, 24) => boxed::<camellia::Camellia192>(key),
            (Algorithm::Camellia, _) => boxed::<camellia::Camellia256>(key),
            (Algorithm::Cast6, _) => boxed::<cast6::Cast6>(key),
            (Algorithm::Sm4, _) => boxed::<sm4::Sm4>(key),
        }
    }

    /// Name of the implementation, for people.
    pub(super) fn backend_name(self, backend: Backend) -> &'static str {
        if let Some(native) = self.native_name(backend) {
            return native;
        }
        match self {
            Algorithm::Aes => crate::cpu::rustcrypto_aes_backend(),
            Algorithm::Serpent => serpent::name(Width::of(backend)),
            Algorithm::Twofish => "twofish (tables)",
            Algorithm::Camellia => "RustCrypto camellia (tables)",
            Algorithm::Cast6 => "RustCrypto cast6 (tables)",
            Algorithm::Sm4 => "RustCrypto sm4 (tables)",
        }
    }

    /// By instructions that the libraries do not use, where the CPU has them.
    #[cfg(target_arch = "x86_64")]
    fn native(self, key: &[u8], backend: Backend) -> Option<Box<dyn BlockCipher>> {
        match self {
            Algorithm::Aes => super::aes::new(key, backend),
            Algorithm::Camellia => sliced(super::camellia::Keys::new(key)?, backend),
            Algorithm::Sm4 => sliced(super::sm4::Keys::new(key)?, backend),
            Algorithm::Serpent | Algorithm::Twofish | Algorithm::Cast6 => None,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn native_name(self, backend: Backend) -> Option<&'static str> {
        match self {
            Algorithm::Aes => super::aes::name(backend),
            Algorithm::Camellia => sliced_name(backend, ["camellia (gfni, avx512)", "camellia (gfni, avx2)"]),
            Algorithm::Sm4 => sliced_name(backend, ["sm4 (gfni, avx512)", "sm4 (gfni, avx2)"]),
            Algorithm::Serpent | Algorithm::Twofish | Algorithm::Cast6 => None,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn native(self, _: &[u8], _: Backend) -> Option<Box<dyn BlockCipher>> {
        None
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn native_name(self, _: Backend) -> Option<&'static str> {
        None
    }
}

fn boxed<C: KeyInit + 'static>(key: &[u8]) -> Option<Box<dyn BlockCipher>>
where
    Keyed<C>: BlockCipher,
{
    Some(Box::new(Keyed(SecretBox::new(C::new_from_slice(key).ok()?))))
}

/// A cipher whose schedule is in key memory.
struct Keyed<C>(SecretBox<C>);

// The bound on `ZeroizeOnDrop` is the proof that every schedule is wiped.
impl<C> BlockCipher for Keyed<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + ZeroizeOnDrop + Send + Sync,
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
