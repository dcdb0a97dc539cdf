//! XTS over any block cipher that works on many blocks at once: the kernel that runs everywhere.
//!
//! ```text
//!   IVs of up to 64 sectors ──► AES (tweak key) ──► their first tweaks     one batch
//!   first tweak T of 512 bytes ──► T·x^0 .. T·x^31, then T·x^32            side by side
//!   text ^ tweaks ──► AES (data key) ──► ^ tweaks                          one group
//! ```

use aes::Block;
use cipher::typenum::Unsigned;
use cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure,
    BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks, ParBlocksSizeUser, consts::U16,
};
use cryptline_sys::SecretBox;
use zeroize::ZeroizeOnDrop;

use super::{BLOCK_BYTES, Tweak, XtsKernel, advance, from_bytes, times_x, to_bytes};
use crate::iv::IvSequence;

/// Sectors whose IVs are encrypted together: the largest parallel batch of any backend.
const IV_BATCH: usize = 64;
/// Blocks that are masked, enciphered and masked again together: small enough for the first-level
/// cache, whole units, and a multiple of most backends' batches (64 with AVX-512, 8 with AES-NI).
const GROUP: usize = 64;
/// The same for the backend whose batch is 30 (VAES with 256-bit registers), and nine batches.
const GROUP_VAES256: usize = 256;
const ROOM_VAES256: usize = 270;
/// Blocks in 512 bytes, the unit in which tweaks are made: every cipher sector is some of them.
const UNIT: usize = 32;
/// A unit's first tweak is the one of the unit before times x to this.
const UNIT_POWER: u64 = 32;

/// XTS over any block cipher that works on many blocks at once.
pub(crate) struct BatchedXts<C>(SecretBox<Pair<C>>);

/// A cipher under both keys.
struct Pair<C> {
    data: C,
    tweak: C,
}

impl<C: KeyInit> BatchedXts<C> {
    /// `key` is the data key followed by the tweak key.
    pub(crate) fn new(key: &[u8]) -> BatchedXts<C> {
        let (data_key, tweak_key) = key.split_at(key.len() / 2);
        let expand = |half| C::new_from_slice(half).expect("the caller chose C by the key size");
        BatchedXts(SecretBox::new(Pair { data: expand(data_key), tweak: expand(tweak_key) }))
    }
}

// The bound on `ZeroizeOnDrop` is the proof that both schedules are wiped.
impl<C> XtsKernel for BatchedXts<C>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + ZeroizeOnDrop + Send + Sync,
{
    fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]) {
        self.for_each_batch(ivs, sector_bytes, data, |batch| {
            self.0.data.encrypt_with_backend(batch);
        });
    }

    fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]) {
        self.for_each_batch(ivs, sector_bytes, data, |batch| {
            self.0.data.decrypt_with_backend(batch);
        });
    }

    fn encrypt_slice(&self, ivs: IvSequence, blocks_before: usize, data: &mut [u8]) {
        self.for_slice(ivs, blocks_before, data, |batch| {
            self.0.data.encrypt_with_backend(batch);
        });
    }

    fn decrypt_slice(&self, ivs: IvSequence, blocks_before: usize, data: &mut [u8]) {
        self.for_slice(ivs, blocks_before, data, |batch| {
            self.0.data.decrypt_with_backend(batch);
        });
    }

    fn name(&self) -> &'static str {
        crate::cpu::rustcrypto_aes_backend()
    }
}

impl<C> BatchedXts<C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    /// Encrypts the IVs of up to [`IV_BATCH`] sectors at once, then does `work` on those sectors.
    #[inline(always)]
    fn for_each_batch(
        &self,
        mut ivs: IvSequence,
        sector_bytes: usize,
        data: &mut [u8],
        work: impl Fn(PortableBatch<'_>),
    ) {
        let (blocks, odd) = Block::slice_as_chunks_mut(data);
        assert!(odd.is_empty(), "whole blocks");
        let sector_blocks = sector_bytes / BLOCK_BYTES;
        // Not wiped, here and in `PortableBatch::run`: the text is the caller's own, which lies in the
        // caller's buffer too, and a tweak tells nothing about the keys. Wiping 3 KiB of stack
        // would make a request of 4 KiB some 5 % slower.
        let mut sector_tweaks = [Block::default(); IV_BATCH];
        for data in blocks.chunks_mut(IV_BATCH * sector_blocks) {
            let sector_tweaks = &mut sector_tweaks[..data.len() / sector_blocks];
            ivs.fill(sector_tweaks);
            self.0.tweak.encrypt_blocks(sector_tweaks);
            work(PortableBatch { tweaks: PortableTweaks::new(sector_tweaks, sector_blocks), data });
        }
    }
}

impl<C> BatchedXts<C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    /// Does `work` on a part of one sector, as if it were a sector that begins there.
    fn for_slice(&self, mut ivs: IvSequence, blocks_before: usize, data: &mut [u8], work: impl Fn(PortableBatch<'_>)) {
        let (data, odd) = Block::slice_as_chunks_mut(data);
        assert!(odd.is_empty(), "whole blocks");
        let mut tweak = [Block::default()];
        ivs.fill(&mut tweak);
        self.0.tweak.encrypt_blocks(&mut tweak);
        let first = advance(from_bytes(tweak[0].into()), blocks_before);
        tweak[0] = to_bytes(first).into();
        work(PortableBatch { tweaks: PortableTweaks::new(&tweak, data.len()), data });
    }
}

/// Sectors with their encrypted IVs. As a closure it becomes code inside the backend's own
/// function, so that tweaks and XORs are compiled for the same vector registers as its AES rounds.
struct PortableBatch<'a> {
    tweaks: PortableTweaks<'a>,
    data: &'a mut [Block],
}

impl BlockSizeUser for PortableBatch<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for PortableBatch<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.run_grouped::<B>(|blocks| backend.encrypt_par_blocks(blocks.into()));
    }
}

impl BlockCipherDecClosure for PortableBatch<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.run_grouped::<B>(|blocks| backend.decrypt_par_blocks(blocks.into()));
    }
}

impl PortableBatch<'_> {
    /// Chooses the group by the backend's number of parallel blocks.
    #[inline(always)]
    fn run_grouped<B>(self, cipher: impl Fn(&mut ParBlocks<B>))
    where
        B: ParBlocksSizeUser<BlockSize = U16>,
    {
        match B::ParBlocksSize::USIZE {
            30 => self.run::<B, GROUP_VAES256, ROOM_VAES256>(cipher),
            _ => self.run::<B, GROUP, GROUP>(cipher),
        }
    }

    /// Masks, enciphers and masks again groups of `GROUP` blocks, the last one perhaps shorter.
    #[inline(always)]
    fn run<B, const GROUP: usize, const ROOM: usize>(mut self, cipher: impl Fn(&mut ParBlocks<B>))
    where
        B: ParBlocksSizeUser<BlockSize = U16>,
    {
        // Folded when compiling, but `run_grouped` names both groups for every backend.
        assert!(GROUP.is_multiple_of(UNIT) && padded::<B>(GROUP) <= ROOM);
        let mut tweaks = [Tweak::default(); GROUP];
        let mut text = [Block::default(); ROOM];
        for group in self.data.chunks_mut(GROUP) {
            let len = group.len();
            self.tweaks.fill(&mut tweaks[..len]);
            mask(group, &tweaks[..len], &mut text[..len]);
            // Full parallel calls only. The last one may work on old text too, which costs less
            // than blocks one after another.
            for blocks in ParBlocks::<B>::slice_as_chunks_mut(&mut text[..padded::<B>(len)]).0 {
                cipher(blocks);
            }
            mask(&text[..len], &tweaks[..len], group);
        }
    }
}

/// `len` blocks as whole batches.
#[inline(always)]
fn padded<B: ParBlocksSizeUser>(len: usize) -> usize {
    len.next_multiple_of(B::ParBlocksSize::USIZE)
}

/// `destination = source ^ tweaks`, in the shape that compilers turn into their widest vectors.
#[inline(always)]
fn mask(source: &[Block], tweaks: &[Tweak], destination: &mut [Block]) {
    let (source, _) = Block::cast_slice_to_core(source).as_flattened().as_chunks::<8>();
    let destination = Block::cast_slice_to_core_mut(destination).as_flattened_mut();
    let (destination, _) = destination.as_chunks_mut::<8>();
    for ((source, tweak), destination) in source.iter().zip(tweaks.as_flattened()).zip(destination) {
        *destination = (u64::from_le_bytes(*source) ^ tweak).to_le_bytes();
    }
}

/// The tweak of every block of a batch, in order, a unit of 512 bytes at a time.
struct PortableTweaks<'a> {
    /// Encrypted IVs of the sectors that have not begun.
    sectors: std::slice::Iter<'a, Block>,
    sector_units: usize,
    /// The tweak of the next unit's first block.
    next: Tweak,
    /// Units of the current sector that are still to come.
    units_left: usize,
}

impl<'a> PortableTweaks<'a> {
    fn new(sectors: &'a [Block], sector_blocks: usize) -> Self {
        let sector_units = sector_blocks.div_ceil(UNIT);
        PortableTweaks { sectors: sectors.iter(), sector_units, next: [0; 2], units_left: 0 }
    }

    /// Writes the tweaks of the next units, which `tweaks` is as long as. Only a slice may end
    /// inside a unit.
    #[inline(always)]
    fn fill(&mut self, tweaks: &mut [Tweak]) {
        let (units, part) = tweaks.as_chunks_mut::<UNIT>();
        for unit in units {
            self.fill_unit(unit);
        }
        if !part.is_empty() {
            self.fill_unit(part);
        }
    }

    /// Writes the first tweaks of the next unit.
    #[inline(always)]
    fn fill_unit(&mut self, unit: &mut [Tweak]) {
        if self.units_left == 0 {
            let sector = self.sectors.next().expect("a tweak for every sector");
            self.next = from_bytes((*sector).into());
            self.units_left = self.sector_units;
        }
        // Every tweak from the first one, not each from the one before: 32 steps that do not
        // wait for each other.
        for (tweak, power) in unit.iter_mut().zip(0..) {
            *tweak = times_x(self.next, power);
        }
        self.next = times_x(self.next, UNIT_POWER);
        self.units_left -= 1;
    }
}

#[cfg(test)]
#[path = "portable_tests.rs"]
mod tests;
