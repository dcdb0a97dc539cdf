//! Every chaining mode and IV of dm-crypt besides plain AES-XTS, over RustCrypto's block ciphers.
//!
//! ```text
//!   request ──► batches of up to 64 cipher sectors under one key
//!                  │
//!                  ├─ ivs        the IV of every sector: counted, encrypted, or made of the text
//!                  ├─ elephant   ─┐ BitLocker: diffuser below the cipher
//!                  ├─ chain      ─┤ ecb, cbc, ctr, xts, lrw over many blocks at once (blocks)
//!                  ├─ adiantum   ─┤ whole sectors as one wide block
//!                  └─ truecrypt  ─┘ TrueCrypt: whitening above it
//! ```
//!
//! Every block cipher here has blocks of 16 bytes. Source: `drivers/md/dm-crypt.c` (target 1.28).

mod adiantum;
mod blocks;
mod cbc;
mod chain;
mod elephant;
mod hash;
mod ivs;
mod keys;
mod loop_aes;
mod masked;
mod nh;
mod polynomial;
mod truecrypt;

use aes::Block;
use cipher::consts::U16;
use cipher::inout::InOutBuf;
use zeroize::Zeroizing;

use crate::spec::{CipherSpec, IvMode};
use adiantum::{Adiantum, Stream};
use blocks::{Algorithm, BlockCipher};
use chain::Chain;
use elephant::Elephant;
use hash::Digest;
use ivs::IvGenerator;
use loop_aes::LoopAes;
use truecrypt::TrueCrypt;

pub(crate) use hash::EssivHash;
pub(crate) use ivs::Numbers;
pub(crate) use keys::KeySizes;

/// Bytes in a cipher block.
const BLOCK_BYTES: usize = 16;
/// Cipher sectors whose IVs are made, and whose chains run, side by side.
const BATCH: usize = 64;
/// Blocks that go through the cipher together: whole batches of its widest back end.
const GROUP: usize = 64;

/// Whether `spec` names a cipher, mode and IV that go together, whatever the key.
pub(crate) fn is_known(spec: &CipherSpec) -> bool {
    if spec.chain_mode() == "adiantum" {
        // IVs of loop-AES and TrueCrypt have 16 bytes, not 32, and SPDK knows AES-XTS alone.
        let iv_fits = !matches!(spec.iv_mode(), IvMode::Lmk | IvMode::Tcw | IvMode::Spdk);
        return Stream::by_name(spec.cipher_name()).is_some() && iv_fits;
    }
    let iv_fits = match spec.iv_mode() {
        IvMode::None => spec.chain_mode() == "ecb",
        // Made for CBC alone: its IV of the text is undone by XORing the first block.
        IvMode::Lmk => spec.chain_mode() == "cbc",
        _ => true,
    };
    Algorithm::by_name(spec.cipher_name()).is_some()
        && ["ecb", "cbc", "ctr", "xts", "lrw"].contains(&spec.chain_mode())
        && iv_fits
}

/// Whether the encrypted byte offset can be the IV: the kernel asks for a mode that works in
/// whole blocks and whose IV is one.
pub(crate) fn iv_can_be_made(spec: &CipherSpec) -> bool {
    !["ctr", "adiantum"].contains(&spec.chain_mode())
        || !matches!(spec.iv_mode(), IvMode::Eboiv | IvMode::Elephant)
}

/// A cipher in a mode with its IVs and all its keys expanded.
pub(crate) struct Modes {
    /// A power of two of them: a sector's number chooses.
    keys: Box<[Keyed]>,
    ivs: IvGenerator,
    extra: Extra,
    name: &'static str,
}

/// One of the keys.
struct Keyed {
    chain: Box<dyn Chain>,
    /// ESSIV: the cipher under the hash of the key.
    salted: Option<Box<dyn BlockCipher>>,
}

/// What some IV modes do besides making IVs.
enum Extra {
    Nothing,
    LoopAes(LoopAes),
    TrueCrypt(TrueCrypt),
    Elephant(Elephant),
}

impl Modes {
    /// `None` if the key does not fit (see [`KeySizes`]) or the combination is none.
    pub(crate) fn new(spec: &CipherSpec, key: &[u8], sector_size: u32) -> Option<Modes> {
        let layout = KeySizes::of(spec)?.split(spec, key)?;
        let keyed = |key| Keyed::new(spec, key);
        let keys: Box<[Keyed]> = layout.cipher_keys().map(keyed).collect::<Option<_>>()?;
        let extra = match spec.iv_mode() {
            IvMode::Lmk => Extra::LoopAes(LoopAes::new(layout.extra)),
            IvMode::Tcw => Extra::TrueCrypt(TrueCrypt::new(layout.extra)?),
            IvMode::Elephant => Extra::Elephant(Elephant::new(layout.extra, sector_size)?),
            _ => Extra::Nothing,
        };
        Some(Modes {
            name: name(spec)?,
            keys,
            ivs: IvGenerator::of(spec, sector_size)?,
            extra,
        })
    }

    /// What does the work, for people.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Encrypts whole cipher sectors of `sector_bytes`; `numbers` begins with the first one's.
    // Its batch lies on the stack, which the XTS kernels beside it must not pay for.
    #[inline(never)]
    pub(crate) fn encrypt(
        &self,
        numbers: Numbers,
        sector_bytes: usize,
        data: InOutBuf<'_, '_, u8>,
    ) {
        self.for_each_batch(numbers, sector_bytes, data, |batch| {
            self.encrypt_batch(batch)
        });
    }

    /// Decrypts whole cipher sectors of `sector_bytes`; `numbers` begins with the first one's.
    #[inline(never)]
    pub(crate) fn decrypt(
        &self,
        numbers: Numbers,
        sector_bytes: usize,
        data: InOutBuf<'_, '_, u8>,
    ) {
        self.for_each_batch(numbers, sector_bytes, data, |batch| {
            self.decrypt_batch(batch)
        });
    }

    fn for_each_batch(
        &self,
        mut numbers: Numbers,
        sector_bytes: usize,
        data: InOutBuf<'_, '_, u8>,
        work: impl Fn(Batch<'_, '_, '_>),
    ) {
        let (mut rest, odd) = data.into_chunks::<U16>();
        assert!(odd.is_empty(), "whole blocks");
        let sector_blocks = sector_bytes / BLOCK_BYTES;
        // Neighbours have different keys if there are several.
        let most = if self.keys.len() == 1 { BATCH } else { 1 };
        let mut ivs = [Block::default(); BATCH];
        while !rest.is_empty() {
            let sectors = most.min(rest.len() / sector_blocks);
            let (data, after) = rest.split_at(sectors * sector_blocks);
            rest = after;
            let key = &self.keys[numbers.key_index(self.keys.len())];
            let ivs = &mut ivs[..sectors];
            self.fill_ivs(key, numbers.clone(), ivs);
            work(Batch {
                key,
                numbers: numbers.clone(),
                ivs,
                sector_blocks,
                data,
            });
            numbers.skip_sectors(sectors);
        }
    }

    fn fill_ivs(&self, key: &Keyed, numbers: Numbers, ivs: &mut [Block]) {
        self.ivs.fill(numbers.clone(), ivs);
        match (&self.ivs, &key.salted, &self.extra) {
            (IvGenerator::Encrypted { .. }, ..) => encrypt_zeros(&*self.keys[0].chain, ivs),
            (_, Some(salted), _) => salted.encrypt(ivs),
            (_, _, Extra::TrueCrypt(truecrypt)) => truecrypt.fill_ivs(numbers, ivs),
            _ => {}
        }
    }

    fn encrypt_batch(&self, mut batch: Batch<'_, '_, '_>) {
        let chain = &batch.key.chain;
        match &self.extra {
            Extra::Nothing => chain.encrypt(batch.ivs, batch.data),
            Extra::LoopAes(loop_aes) => {
                let sectors = batch.data.get_in().chunks(batch.sector_blocks);
                for ((iv, number), sector) in batch.ivs.iter_mut().zip(batch.numbers).zip(sectors) {
                    *iv = loop_aes.iv(number, sector);
                }
                chain.encrypt(batch.ivs, batch.data);
            }
            Extra::TrueCrypt(truecrypt) => {
                chain.encrypt(batch.ivs, batch.data.reborrow());
                truecrypt.whiten(batch.numbers, batch.sector_blocks, batch.data.get_out());
            }
            Extra::Elephant(elephant) => {
                let text = batch.data.into_out_with_copied_in();
                let sectors = text.chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    elephant.diffuse(number, sector);
                }
                chain.encrypt(batch.ivs, text.into());
            }
        }
    }

    fn decrypt_batch(&self, mut batch: Batch<'_, '_, '_>) {
        let chain = &batch.key.chain;
        match &self.extra {
            Extra::Nothing => chain.decrypt(batch.ivs, batch.data),
            Extra::LoopAes(loop_aes) => {
                // The IV is made of the text behind the first block, which needs none.
                batch.ivs.fill(Block::default());
                chain.decrypt(batch.ivs, batch.data.reborrow());
                let sectors = batch.data.get_out().chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    let iv = loop_aes.iv(number, sector);
                    xor(&mut sector[0], &iv);
                }
            }
            Extra::TrueCrypt(truecrypt) => {
                let text = batch.data.into_out_with_copied_in();
                truecrypt.whiten(batch.numbers, batch.sector_blocks, text);
                chain.decrypt(batch.ivs, text.into());
            }
            Extra::Elephant(elephant) => {
                chain.decrypt(batch.ivs, batch.data.reborrow());
                let sectors = batch.data.get_out().chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    elephant.undo(number, sector);
                }
            }
        }
    }
}

impl Keyed {
    fn new(spec: &CipherSpec, key: &[u8]) -> Option<Keyed> {
        if spec.chain_mode() == "adiantum" {
            return Some(Keyed {
                chain: Box::new(Adiantum::new(spec, key)?),
                salted: None,
            });
        }
        let algorithm = Algorithm::by_name(spec.cipher_name())?;
        let salted = match spec.iv_mode() {
            IvMode::Essiv(name) => {
                let salt: Zeroizing<Digest> = EssivHash::by_name(name)?.digest(key);
                Some(algorithm.cipher(&salt)?)
            }
            _ => None,
        };
        Some(Keyed {
            chain: chain::new(spec.chain_mode(), algorithm, key)?,
            salted,
        })
    }
}

fn name(spec: &CipherSpec) -> Option<&'static str> {
    match Stream::by_name(spec.cipher_name()) {
        Some(_) => Some(nh::backend_name()),
        None => Some(Algorithm::by_name(spec.cipher_name())?.backend_name()),
    }
}

/// Some sectors under one key.
struct Batch<'a, 'inp, 'out> {
    key: &'a Keyed,
    numbers: Numbers,
    ivs: &'a mut [Block],
    sector_blocks: usize,
    data: InOutBuf<'inp, 'out, Block>,
}

/// Replaces each IV by the encryption of a block of zeros with it.
fn encrypt_zeros(chain: &dyn Chain, ivs: &mut [Block]) {
    let mut blocks = [Block::default(); BATCH];
    let blocks = &mut blocks[..ivs.len()];
    // Sectors of one block each.
    chain.encrypt(ivs, (&mut *blocks).into());
    ivs.copy_from_slice(blocks);
}

fn xor(block: &mut Block, with: &Block) {
    for (byte, with) in block.iter_mut().zip(with) {
        *byte ^= with;
    }
}

#[cfg(test)]
#[path = "modes_tests.rs"]
mod tests;
