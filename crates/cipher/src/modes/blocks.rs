//! Block ciphers that work on many blocks at once, behind one call for all of them.

use ::aes::{Aes128, Aes192, Aes256, Block};
use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use cryptline_sys::SecretBox;
use zeroize::ZeroizeOnDrop;

use super::lanes::ProvenWidth;
#[cfg(target_arch = "x86_64")]
use super::lanes::{sliced, sliced_name};
use super::parallel::{BlockGroup, Chained, chain_back};
use super::serpent::{self, Serpent};
use super::twofish::{self, Twofish};
use crate::cpu::XtsBackend;

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
pub(super) enum ServedCipher {
    Aes,
    Serpent,
    Twofish,
    Camellia,
    Cast6,
    Sm4,
}

impl ServedCipher {
    pub(super) fn by_name(name: &str) -> Option<ServedCipher> {
        Some(match name {
            "aes" => ServedCipher::Aes,
            "serpent" => ServedCipher::Serpent,
            "twofish" => ServedCipher::Twofish,
            "camellia" => ServedCipher::Camellia,
            "cast6" => ServedCipher::Cast6,
            "sm4" => ServedCipher::Sm4,
            _ => return None,
        })
    }

    /// Sizes of its keys in bytes, ascending. The kernel takes serpent keys below 16 bytes as
    /// well; those protect nothing.
    pub(super) fn key_sizes(self) -> &'static [usize] {
        match self {
            ServedCipher::Aes | ServedCipher::Twofish | ServedCipher::Camellia => &[16, 24, 32],
            ServedCipher::Serpent => &[16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32],
            ServedCipher::Cast6 => &[16, 20, 24, 28, 32],
            ServedCipher::Sm4 => &[16],
        }
    }

    /// The cipher under `key`; nothing if the key has a size that it does not take.
    pub(super) fn cipher(self, key: &[u8], backend: XtsBackend) -> Option<Box<dyn BlockCipher>> {
        if let Some(native) = self.native(key, backend) {
            return Some(native);
        }
        match (self, key.len()) {
            (ServedCipher::Aes, 16) => boxed::<Aes128>(key),
            (ServedCipher::Aes, 24) => boxed::<Aes192>(key),
            (ServedCipher::Aes, _) => boxed::<Aes256>(key),
            (ServedCipher::Serpent, _) => Some(Box::new(Serpent::new(key, ProvenWidth::of(backend))?)),
            (ServedCipher::Twofish, _) => Some(Box::new(Twofish::new(key, backend)?)),
            (ServedCipher::Camellia, 16) => boxed::<camellia::Camellia128>(key),
            (ServedCipher::Camellia, 24) => boxed::<camellia::Camellia192>(key),
            (ServedCipher::Camellia, _) => boxed::<camellia::Camellia256>(key),
            (ServedCipher::Cast6, _) => boxed::<cast6::Cast6>(key),
            (ServedCipher::Sm4, _) => boxed::<sm4::Sm4>(key),
        }
    }

    /// Name of the implementation, for people.
    pub(super) fn backend_name(self, backend: XtsBackend) -> &'static str {
        if let Some(native) = self.native_name(backend) {
            return native;
        }
        match self {
            ServedCipher::Aes => crate::cpu::rustcrypto_aes_backend(),
            ServedCipher::Serpent => serpent::name(ProvenWidth::of(backend)),
            ServedCipher::Twofish => twofish::name(backend),
            ServedCipher::Camellia => "RustCrypto camellia (tables)",
            ServedCipher::Cast6 => "RustCrypto cast6 (tables)",
            ServedCipher::Sm4 => "RustCrypto sm4 (tables)",
        }
    }

    /// By instructions that the libraries do not use, where the CPU has them.
    #[cfg(target_arch = "x86_64")]
    fn native(self, key: &[u8], backend: XtsBackend) -> Option<Box<dyn BlockCipher>> {
        match self {
            ServedCipher::Aes => super::aes::new(key, backend),
            ServedCipher::Camellia => sliced(super::camellia::CamelliaKeys::new(key)?, backend),
            ServedCipher::Sm4 => sliced(super::sm4::Sm4Keys::new(key)?, backend),
            ServedCipher::Serpent | ServedCipher::Twofish | ServedCipher::Cast6 => None,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn native_name(self, backend: XtsBackend) -> Option<&'static str> {
        match self {
            ServedCipher::Aes => super::aes::name(backend),
            ServedCipher::Camellia => sliced_name(backend, ["camellia (gfni, avx512)", "camellia (gfni, avx2)"]),
            ServedCipher::Sm4 => sliced_name(backend, ["sm4 (gfni, avx512)", "sm4 (gfni, avx2)"]),
            ServedCipher::Serpent | ServedCipher::Twofish | ServedCipher::Cast6 => None,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn native(self, _: &[u8], _: XtsBackend) -> Option<Box<dyn BlockCipher>> {
        None
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn native_name(self, _: XtsBackend) -> Option<&'static str> {
        None
    }
}

fn boxed<C: KeyInit + 'static>(key: &[u8]) -> Option<Box<dyn BlockCipher>>
where
    ScheduledCipher<C>: BlockCipher,
{
    Some(Box::new(ScheduledCipher(SecretBox::new(C::new_from_slice(key).ok()?))))
}

/// A cipher whose schedule is in key memory.
struct ScheduledCipher<C>(SecretBox<C>);

// The bound on `ZeroizeOnDrop` is the proof that every schedule is wiped.
impl<C> BlockCipher for ScheduledCipher<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + ZeroizeOnDrop + Send + Sync,
{
    // Never a part of `encrypt_chained`: with two places to go, the compiler would not vectorize
    // the loop over blocks of a cipher without parallel calls, which makes serpent three times as fast.
    #[inline(never)]
    fn encrypt(&self, blocks: &mut [Block]) {
        self.0.encrypt_with_backend(BlockGroup(blocks));
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        self.0.decrypt_with_backend(BlockGroup(blocks));
    }

    fn encrypt_chained(&self, lanes: &mut [Block], sectors: &mut [Block]) {
        self.0.encrypt_with_backend(Chained {
            encrypt_row: |row: &mut [Block]| self.encrypt(row),
            lanes,
            data: sectors,
        });
    }
}
