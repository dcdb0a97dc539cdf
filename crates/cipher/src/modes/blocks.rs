//! Block ciphers that work on many blocks at once, behind one call for all of them.

use aes::Block;
use cipher::consts::U16;
use cipher::typenum::Unsigned;
use cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks,
    ParBlocksSizeUser,
};
use cryptline_sys::SecretBox;
use zeroize::ZeroizeOnDrop;

use super::cbc::Lanes;

/// A block cipher with its expanded key.
pub(super) trait BlockCipher: Send + Sync {
    /// Encrypts each block by itself.
    fn encrypt(&self, blocks: &mut [Block]);
    /// Decrypts each block by itself.
    fn decrypt(&self, blocks: &mut [Block]);
    /// Encrypts sectors whose blocks are chained.
    fn encrypt_chained(&self, sectors: Lanes<'_, '_, '_>);
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
    pub(super) fn cipher(self, key: &[u8]) -> Option<Box<dyn BlockCipher>> {
        match (self, key.len()) {
            (Algorithm::Aes, 16) => boxed::<aes::Aes128>(key),
            (Algorithm::Aes, 24) => boxed::<aes::Aes192>(key),
            (Algorithm::Aes, _) => boxed::<aes::Aes256>(key),
            (Algorithm::Serpent, _) => boxed::<serpent::Serpent>(key),
            (Algorithm::Twofish, _) => boxed::<twofish::Twofish>(key),
            (Algorithm::Camellia, 16) => boxed::<camellia::Camellia128>(key),
            (Algorithm::Camellia, 24) => boxed::<camellia::Camellia192>(key),
            (Algorithm::Camellia, _) => boxed::<camellia::Camellia256>(key),
            (Algorithm::Cast6, _) => boxed::<cast6::Cast6>(key),
            (Algorithm::Sm4, _) => boxed::<sm4::Sm4>(key),
        }
    }

    /// What does the work, for people.
    pub(super) fn backend_name(self) -> &'static str {
        match self {
            Algorithm::Aes => crate::cpu::rustcrypto_aes_backend(),
            Algorithm::Serpent => "RustCrypto serpent",
            Algorithm::Twofish => "RustCrypto twofish",
            Algorithm::Camellia => "RustCrypto camellia",
            Algorithm::Cast6 => "RustCrypto cast6",
            Algorithm::Sm4 => "RustCrypto sm4",
        }
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
    fn encrypt(&self, blocks: &mut [Block]) {
        self.0.encrypt_with_backend(Blocks(blocks));
    }

    fn decrypt(&self, blocks: &mut [Block]) {
        self.0.decrypt_with_backend(Blocks(blocks));
    }

    fn encrypt_chained(&self, sectors: Lanes<'_, '_, '_>) {
        self.0.encrypt_with_backend(sectors);
    }
}

/// Encrypts each block by itself, inside a closure that has the back end already.
#[inline(always)]
pub(super) fn encrypt_each<B>(backend: &B, blocks: &mut [Block])
where
    B: BlockCipherEncBackend<BlockSize = U16>,
{
    BlockCipherEncClosure::call(Blocks(blocks), backend);
}

/// Blocks on their way through a back end, in its parallel calls as far as they pay.
struct Blocks<'a>(&'a mut [Block]);

impl BlockSizeUser for Blocks<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Blocks<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<B>(
            |blocks| backend.encrypt_par_blocks(blocks.into()),
            |block| backend.encrypt_block(block.into()),
        );
    }
}

impl BlockCipherDecClosure for Blocks<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<B>(
            |blocks| backend.decrypt_par_blocks(blocks.into()),
            |block| backend.decrypt_block(block.into()),
        );
    }
}

impl Blocks<'_> {
    #[inline(always)]
    fn run<B>(self, many: impl Fn(&mut ParBlocks<B>), one: impl Fn(&mut Block))
    where
        B: ParBlocksSizeUser<BlockSize = U16>,
    {
        let (chunks, rest) = ParBlocks::<B>::slice_as_chunks_mut(self.0);
        chunks.iter_mut().for_each(&many);
        // A parallel call takes as long as some calls for one block.
        if rest.len() > (B::ParBlocksSize::USIZE / 4).max(1) {
            let mut filled_up = ParBlocks::<B>::default();
            filled_up[..rest.len()].copy_from_slice(rest);
            many(&mut filled_up);
            rest.copy_from_slice(&filled_up[..rest.len()]);
        } else {
            rest.iter_mut().for_each(one);
        }
    }
}
