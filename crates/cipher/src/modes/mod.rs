//! Every chaining mode and IV of dm-crypt besides plain AES-XTS, over block ciphers that work on many
//! blocks at once.
//!
//! ```text
//!   request ──► batches of up to 64 cipher sectors under one key
//!                  │
//!                  ├─ IVs         counted, encrypted, or derived from the text
//!                  ├─ elephant   ─┐ BitLocker: diffuser below the cipher
//!                  ├─ chain      ─┤ ecb, ctr, cbc, xts, lrw over many blocks at once (parallel)
//!                  ├─ adiantum   ─┤ whole sectors as one wide block
//!                  └─ truecrypt  ─┘ TrueCrypt: whitening above it
//! ```
//!
//! Every block cipher here has blocks of 16 bytes. Source: `drivers/md/dm-crypt.c` (target 1.28).
//!
//! CBC encrypts block n of all sectors of a batch side by side; only a single sector is bound by the cipher's latency.
//! Twofish has key-dependent S-boxes.

mod adiantum;
#[cfg(target_arch = "x86_64")]
mod aes;
mod blocks;
#[cfg(target_arch = "x86_64")]
mod bytes;
#[cfg(target_arch = "x86_64")]
mod camellia;
mod chain;
mod elephant;
#[cfg(target_arch = "x86_64")]
mod four;
mod hash;
mod keys;
mod lanes;
mod loop_aes;
mod masked;
mod nh;
mod parallel;
mod polynomial;
mod serpent;
mod serpent_boxes;
#[cfg(target_arch = "x86_64")]
mod sm4;
mod supported;
mod truecrypt;
mod twofish;

use ::aes::Block;
use zeroize::Zeroizing;

use crate::cpu::XtsBackend;
use crate::iv::IvSequence;
use crate::spec::{CipherSpec, IvMode};
use adiantum::{Adiantum, AdiantumStream};
use blocks::{BlockCipher, ServedCipher};
use chain::{Cbc, ChainMode, Ctr, Ecb};
use elephant::Elephant;
use hash::{EssivHash, HashDigest};
use loop_aes::LoopAes;
use masked::{Lrw, Xts};
use truecrypt::TrueCrypt;

pub(crate) use keys::KeySizes;

/// Bytes in a cipher block.
const BLOCK_BYTES: usize = 16;
/// Cipher sectors whose IVs are made, and whose chains run, side by side.
const BATCH: usize = 64;
/// Blocks that go through the cipher together: whole batches of its widest back end.
const GROUP: usize = 64;

/// A cipher in a mode with its IVs and all its keys expanded.
pub(crate) struct Modes {
    /// A power of two of them: a sector's number chooses.
    keys: Box<[KeyedMode]>,
    /// The number that goes into the IV: so many times the sector's, plus so many.
    factor: u64,
    plus: u64,
    extra: Extra,
    name: &'static str,
}

/// One of the keys.
struct KeyedMode {
    chain: Box<dyn ChainMode>,
    /// ESSIV: the cipher under the hash of the key.
    salted: Option<Box<dyn BlockCipher>>,
}

/// Work that some IV modes do besides counting.
enum Extra {
    Nothing,
    /// Eboiv: the cipher encrypts zeros with the IV, and that is the IV.
    EncryptedOffset,
    LoopAes(LoopAes),
    TrueCrypt(TrueCrypt),
    Elephant(Elephant),
}

impl Modes {
    /// `None` if the key does not fit (see [`KeySizes`]) or the combination is none.
    pub(crate) fn new(spec: &CipherSpec, key: &[u8], sector_size: u32, backend: XtsBackend) -> Option<Modes> {
        let layout = KeySizes::of(spec)?.split(spec, key)?;
        let keyed = |key| KeyedMode::new(spec, key, backend);
        let keys: Box<[KeyedMode]> = layout.cipher_keys().map(keyed).collect::<Option<_>>()?;
        let extra = match spec.iv_mode() {
            IvMode::Lmk => Extra::LoopAes(LoopAes::new(layout.extra)),
            IvMode::Tcw => Extra::TrueCrypt(TrueCrypt::new(layout.extra)?),
            IvMode::Elephant => Extra::Elephant(Elephant::new(layout.extra, sector_size, backend)?),
            IvMode::Eboiv => Extra::EncryptedOffset,
            _ => Extra::Nothing,
        };
        let (factor, plus) = match spec.iv_mode() {
            // The sector's first block, counted from 1: blocks in 512 bytes, whatever the cipher
            // sector. A stream cipher's have one byte.
            IvMode::Benbi if spec.chain_mode() == "ctr" => (512, 1),
            IvMode::Benbi => (32, 1),
            IvMode::Eboiv | IvMode::Elephant => (sector_size.into(), 0),
            _ => (1, 0),
        };
        Some(Modes { name: name(spec, backend)?, keys, factor, plus, extra })
    }

    /// Name of the implementation, for people.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Encrypts whole cipher sectors of `sector_bytes`, the first of which is the next of `sectors`.
    // Its batch lies on the stack, which the XTS kernels beside it must not pay for.
    #[inline(never)]
    pub(crate) fn encrypt(&self, sectors: IvSequence, sector_bytes: usize, data: &mut [u8]) {
        self.for_each_batch(sectors, sector_bytes, data, |batch| self.encrypt_batch(batch));
    }

    /// Decrypts whole cipher sectors of `sector_bytes`, the first of which is the next of `sectors`.
    #[inline(never)]
    pub(crate) fn decrypt(&self, sectors: IvSequence, sector_bytes: usize, data: &mut [u8]) {
        self.for_each_batch(sectors, sector_bytes, data, |batch| self.decrypt_batch(batch));
    }

    fn for_each_batch(
        &self,
        mut numbers: IvSequence,
        sector_bytes: usize,
        data: &mut [u8],
        work: impl Fn(SectorBatch<'_>),
    ) {
        let (blocks, odd) = Block::slice_as_chunks_mut(data);
        assert!(odd.is_empty(), "whole blocks");
        let sector_blocks = sector_bytes / BLOCK_BYTES;
        // Neighbours have different keys if there are several.
        let most = if self.keys.len() == 1 { BATCH } else { 1 };
        let mut ivs = [Block::default(); BATCH];
        for data in blocks.chunks_mut(most * sector_blocks) {
            let sectors = data.len() / sector_blocks;
            let key = self.key(numbers.next);
            let ivs = &mut ivs[..sectors];
            self.fill_ivs(key, numbers.clone(), ivs);
            work(SectorBatch { key, numbers: numbers.clone(), ivs, sector_blocks, data });
            numbers.next = numbers.after(u64::try_from(sectors).unwrap_or(0));
        }
    }

    /// The key of the cipher sector that begins at this 512-byte sector: keys go round by these,
    /// whatever the cipher sector.
    fn key(&self, sector: u64) -> &KeyedMode {
        let keys = u64::try_from(self.keys.len()).unwrap_or(1);
        &self.keys[usize::try_from(sector & (keys - 1)).unwrap_or(0)]
    }

    fn fill_ivs(&self, key: &KeyedMode, numbers: IvSequence, ivs: &mut [Block]) {
        let layout = numbers.layout;
        for (iv, number) in ivs.iter_mut().zip(numbers.clone()) {
            // Modulo 2^64, as the kernel counts.
            *iv = layout.iv(number.wrapping_mul(self.factor).wrapping_add(self.plus));
        }
        match (&self.extra, &key.salted) {
            (Extra::EncryptedOffset | Extra::Elephant(_), _) => encrypt_zeros(&*self.keys[0].chain, ivs),
            (Extra::TrueCrypt(truecrypt), _) => truecrypt.fill_ivs(numbers, ivs),
            (_, Some(salted)) => salted.encrypt(ivs),
            _ => {}
        }
    }

    fn encrypt_batch(&self, batch: SectorBatch<'_>) {
        let chain = &batch.key.chain;
        match &self.extra {
            Extra::Nothing | Extra::EncryptedOffset => {}
            Extra::LoopAes(loop_aes) => {
                let sectors = batch.data.chunks(batch.sector_blocks);
                for ((iv, number), sector) in batch.ivs.iter_mut().zip(batch.numbers).zip(sectors) {
                    *iv = loop_aes.iv(number, sector);
                }
            }
            Extra::TrueCrypt(truecrypt) => {
                chain.encrypt(batch.ivs, batch.data);
                return truecrypt.whiten(batch.numbers, batch.sector_blocks, batch.data);
            }
            Extra::Elephant(elephant) => {
                let sectors = batch.data.chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    elephant.diffuse(number, sector);
                }
            }
        }
        chain.encrypt(batch.ivs, batch.data);
    }

    fn decrypt_batch(&self, batch: SectorBatch<'_>) {
        let chain = &batch.key.chain;
        match &self.extra {
            Extra::Nothing | Extra::EncryptedOffset => chain.decrypt(batch.ivs, batch.data),
            Extra::LoopAes(loop_aes) => {
                // The IV is made of the text behind the first block, which needs none.
                batch.ivs.fill(Block::default());
                chain.decrypt(batch.ivs, batch.data);
                let sectors = batch.data.chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    let iv = loop_aes.iv(number, sector);
                    xor(&mut sector[0], &iv);
                }
            }
            Extra::TrueCrypt(truecrypt) => {
                truecrypt.whiten(batch.numbers, batch.sector_blocks, batch.data);
                chain.decrypt(batch.ivs, batch.data);
            }
            Extra::Elephant(elephant) => {
                chain.decrypt(batch.ivs, batch.data);
                let sectors = batch.data.chunks_mut(batch.sector_blocks);
                for (number, sector) in batch.numbers.zip(sectors) {
                    elephant.undo(number, sector);
                }
            }
        }
    }
}

impl KeyedMode {
    fn new(spec: &CipherSpec, key: &[u8], backend: XtsBackend) -> Option<KeyedMode> {
        if spec.chain_mode() == "adiantum" {
            return Some(KeyedMode { chain: Box::new(Adiantum::new(spec, key, backend)?), salted: None });
        }
        let algorithm = ServedCipher::by_name(spec.cipher_name())?;
        let salted = match spec.iv_mode() {
            IvMode::Essiv(name) => {
                let salt: Zeroizing<HashDigest> = EssivHash::by_name(name)?.digest(key);
                Some(algorithm.cipher(&salt, backend)?)
            }
            _ => None,
        };
        Some(KeyedMode { chain: chain(spec.chain_mode(), algorithm, key, backend)?, salted })
    }
}

/// The chaining mode called `name`; nothing if there is none or the key does not fit.
fn chain(name: &str, algorithm: ServedCipher, key: &[u8], backend: XtsBackend) -> Option<Box<dyn ChainMode>> {
    Some(match name {
        "ecb" => Box::new(Ecb(algorithm.cipher(key, backend)?)),
        "cbc" => Box::new(Cbc(algorithm.cipher(key, backend)?)),
        "ctr" => Box::new(Ctr(algorithm.cipher(key, backend)?)),
        "xts" => Box::new(Xts::new(algorithm, key, backend)?),
        "lrw" => Box::new(Lrw::new(algorithm, key, backend)?),
        _ => return None,
    })
}

fn name(spec: &CipherSpec, backend: XtsBackend) -> Option<&'static str> {
    match AdiantumStream::by_name(spec.cipher_name()) {
        Some(_) => Some(nh::backend_name()),
        None => Some(ServedCipher::by_name(spec.cipher_name())?.backend_name(backend)),
    }
}

/// Some sectors under one key.
struct SectorBatch<'a> {
    key: &'a KeyedMode,
    numbers: IvSequence,
    ivs: &'a mut [Block],
    sector_blocks: usize,
    data: &'a mut [Block],
}

/// Replaces each IV by the encryption of a block of zeros with it.
fn encrypt_zeros(chain: &dyn ChainMode, ivs: &mut [Block]) {
    let mut blocks = [Block::default(); BATCH];
    let blocks = &mut blocks[..ivs.len()];
    // Sectors of one block each.
    chain.encrypt(ivs, blocks);
    ivs.copy_from_slice(blocks);
}

fn xor(block: &mut Block, with: &Block) {
    for (byte, with) in block.iter_mut().zip(with) {
        *byte ^= with;
    }
}

/// XORs each block with its mask, in a loop of its own, which compilers make vectors of.
fn xor_all(blocks: &mut [Block], masks: &[Block]) {
    let blocks = Block::cast_slice_to_core_mut(blocks).as_flattened_mut();
    let masks = Block::cast_slice_to_core(masks).as_flattened();
    for (byte, mask) in blocks.iter_mut().zip(masks) {
        *byte ^= mask;
    }
}

#[cfg(test)]
#[path = "modes_tests.rs"]
mod tests;
