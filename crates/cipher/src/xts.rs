//! XTS over whole requests (IEEE 1619-2007): many cipher sectors in one call.
//!
//! ```text
//!   IVs of up to 64 sectors ──► AES (tweak key) ──► sector tweaks          one batch
//!   sector tweak T ──► T, Tx, Tx^2 .. Tx^7 ──► x^8 ──► x^8 ..              eight lanes
//!   source ^ tweaks ──► AES (data key) ──► ^ tweaks ──► destination        one group
//! ```
//!
//! A library call per sector pays the latency of encrypting one IV each time, which halves the
//! rate for 512-byte sectors. So the unit of work here is the request: see [`XtsKernel`], behind
//! which faster kernels plug in.

use aes::Block;
use cipher::inout::InOutBuf;
use cipher::typenum::Unsigned;
use cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks,
    ParBlocksSizeUser, consts::U16,
};
use zeroize::ZeroizeOnDrop;

use crate::iv::IvSequence;

/// Bytes in a cipher block.
const BLOCK_BYTES: usize = 16;
/// Sectors whose IVs are encrypted together: the largest parallel batch of any backend.
const IV_BATCH: usize = 64;
/// Blocks that are masked, enciphered and masked again together: small enough for the first-level
/// cache and a multiple of the backends' batches (64 with AVX-512, 8 with AES-NI).
const GROUP: usize = 64;
/// The same for the backend whose batch is 30 (VAES with 256-bit registers).
const GROUP_VAES256: usize = 120;
/// Tweaks made side by side, so that doubling is not one long chain of dependent steps.
const LANES: usize = 8;

/// One implementation of XTS with its expanded keys, the seam for faster ones.
///
/// Works on `data`, whole cipher sectors of `sector_bytes` (a multiple of 512), source to
/// destination, which are the same memory or apart. `ivs` gives the first IV and the step.
/// Runs in time that depends on lengths only, never on key, data or IV.
pub(crate) trait XtsKernel: Send + Sync {
    fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>);
    fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>);
    /// Implementation and the CPU features it uses, for people.
    fn name(&self) -> &'static str;
}

/// XTS over any block cipher that works on many blocks at once.
pub(crate) struct BatchedXts<C> {
    data_cipher: C,
    tweak_cipher: C,
}

impl<C: KeyInit> BatchedXts<C> {
    /// `key` is the data key followed by the tweak key.
    pub(crate) fn new(key: &[u8]) -> BatchedXts<C> {
        let (data_key, tweak_key) = key.split_at(key.len() / 2);
        let expand = |half| C::new_from_slice(half).expect("the caller chose C by the key size");
        BatchedXts {
            data_cipher: expand(data_key),
            tweak_cipher: expand(tweak_key),
        }
    }
}

// The bound on `ZeroizeOnDrop` is the proof that both schedules are wiped.
impl<C> XtsKernel for BatchedXts<C>
where
    C: BlockCipherEncrypt
        + BlockCipherDecrypt
        + BlockSizeUser<BlockSize = U16>
        + ZeroizeOnDrop
        + Send
        + Sync,
{
    fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>) {
        let request = Request::new(&self.tweak_cipher, ivs, sector_bytes, data);
        self.data_cipher.encrypt_with_backend(request);
    }

    fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: InOutBuf<'_, '_, u8>) {
        let request = Request::new(&self.tweak_cipher, ivs, sector_bytes, data);
        self.data_cipher.decrypt_with_backend(request);
    }

    fn name(&self) -> &'static str {
        crate::cpu::rustcrypto_aes_backend()
    }
}

/// One call's work. Becomes code inside the backend's own function, so that the tweaks and the
/// XORs are compiled for the same vector registers as its AES rounds.
struct Request<'a, 'inp, 'out, C> {
    tweaks: SectorTweaks<'a, C>,
    data: InOutBuf<'inp, 'out, Block>,
}

impl<'a, 'inp, 'out, C> Request<'a, 'inp, 'out, C> {
    fn new(
        tweak_cipher: &'a C,
        ivs: IvSequence,
        sector_bytes: usize,
        data: InOutBuf<'inp, 'out, u8>,
    ) -> Self {
        let (data, rest) = data.into_chunks::<U16>();
        assert!(rest.is_empty(), "whole blocks");
        let sector_blocks = sector_bytes / BLOCK_BYTES;
        let sectors_left = data.len() / sector_blocks;
        Request {
            tweaks: SectorTweaks::new(tweak_cipher, ivs, sector_blocks, sectors_left),
            data,
        }
    }
}

impl<C> BlockSizeUser for Request<'_, '_, '_, C> {
    type BlockSize = U16;
}

impl<C> Request<'_, '_, '_, C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    /// Runs `cipher_in_place` on masked groups of `GROUP` blocks, the last one perhaps shorter.
    #[inline(always)]
    fn run<const GROUP: usize>(mut self, cipher_in_place: impl Fn(&mut [Block])) {
        const { assert!(GROUP.is_multiple_of(LANES)) };
        // Neither array is wiped: the text is the caller's own, and a tweak helps only somebody
        // who has text and ciphertext of that very sector anyway. Wiping both would cost as much
        // as a copy of the request.
        let mut tweaks = [Block::default(); GROUP];
        let mut text = [Block::default(); GROUP];
        let mut rest = self.data;
        while !rest.is_empty() {
            let len = rest.len().min(GROUP);
            let (mut group, after) = rest.split_at(len);
            rest = after;
            let (tweaks, text) = (&mut tweaks[..len], &mut text[..len]);
            self.tweaks.fill(tweaks);
            xor(group.get_in(), tweaks, text);
            cipher_in_place(text);
            xor(text, tweaks, group.get_out());
        }
    }
}

impl<C> BlockCipherEncClosure for Request<'_, '_, '_, C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let encrypt = |text: &mut [Block]| {
            in_batches::<B>(text, |batch| backend.encrypt_par_blocks(batch.into()));
        };
        match GROUP_VAES256 % B::ParBlocksSize::USIZE {
            0 => self.run::<GROUP_VAES256>(encrypt),
            _ => self.run::<GROUP>(encrypt),
        }
    }
}

impl<C> BlockCipherDecClosure for Request<'_, '_, '_, C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        let decrypt = |text: &mut [Block]| {
            in_batches::<B>(text, |batch| backend.decrypt_par_blocks(batch.into()));
        };
        match GROUP_VAES256 % B::ParBlocksSize::USIZE {
            0 => self.run::<GROUP_VAES256>(decrypt),
            _ => self.run::<GROUP>(decrypt),
        }
    }
}

/// Hands `text` to `cipher_batch` in full batches; the last one is padded with blocks that
/// nobody looks at, which costs less than its blocks one after another.
#[inline(always)]
fn in_batches<B: ParBlocksSizeUser<BlockSize = U16>>(
    text: &mut [Block],
    cipher_batch: impl Fn(&mut ParBlocks<B>),
) {
    let (batches, tail) = ParBlocks::<B>::slice_as_chunks_mut(text);
    for batch in batches {
        cipher_batch(batch);
    }
    if !tail.is_empty() {
        let mut padded = ParBlocks::<B>::default();
        padded[..tail.len()].copy_from_slice(tail);
        cipher_batch(&mut padded);
        tail.copy_from_slice(&padded[..tail.len()]);
    }
}

/// `destination = a ^ b`, byte by byte: the shape that compilers turn into their widest vectors.
#[inline(always)]
fn xor(a: &[Block], b: &[Block], destination: &mut [Block]) {
    let a = Block::cast_slice_to_core(a).as_flattened();
    let b = Block::cast_slice_to_core(b).as_flattened();
    let destination = Block::cast_slice_to_core_mut(destination).as_flattened_mut();
    for ((a, b), destination) in a.iter().zip(b).zip(destination) {
        *destination = a ^ b;
    }
}

/// The tweak of every block of a request, in order.
struct SectorTweaks<'a, C> {
    cipher: &'a C,
    ivs: IvSequence,
    sector_blocks: usize,
    sectors_left: usize,
    /// Encrypted IVs of coming sectors: those from `used` up to `made`.
    encrypted: [Block; IV_BATCH],
    used: usize,
    made: usize,
    lanes: Lanes,
    /// Blocks of the current sector that are still to come.
    blocks_left: usize,
}

impl<'a, C> SectorTweaks<'a, C> {
    fn new(cipher: &'a C, ivs: IvSequence, sector_blocks: usize, sectors_left: usize) -> Self {
        SectorTweaks {
            cipher,
            ivs,
            sector_blocks,
            sectors_left,
            encrypted: [Block::default(); IV_BATCH],
            used: 0,
            made: 0,
            lanes: Lanes::default(),
            blocks_left: 0,
        }
    }
}

impl<C> SectorTweaks<'_, C>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    /// Writes the next tweaks; a multiple of [`LANES`] of them.
    #[inline(always)]
    fn fill(&mut self, tweaks: &mut [Block]) {
        let mut rest = tweaks;
        while !rest.is_empty() {
            if self.blocks_left == 0 {
                self.lanes = Lanes::spread(self.next_sector());
                self.blocks_left = self.sector_blocks;
            }
            let len = rest.len().min(self.blocks_left);
            let (run, after) = rest.split_at_mut(len);
            rest = after;
            self.blocks_left -= len;
            let mut lanes = self.lanes;
            for tweaks in run.chunks_exact_mut(LANES) {
                lanes.write(tweaks);
                lanes.advance();
            }
            self.lanes = lanes;
        }
    }

    #[inline(always)]
    fn next_sector(&mut self) -> Block {
        if self.used == self.made {
            self.encrypt_ivs();
        }
        let tweak = self.encrypted[self.used];
        self.used += 1;
        tweak
    }

    fn encrypt_ivs(&mut self) {
        self.made = self.sectors_left.min(IV_BATCH);
        self.sectors_left -= self.made;
        self.used = 0;
        let ivs = &mut self.encrypted[..self.made];
        self.ivs.fill(ivs);
        self.cipher.encrypt_blocks(ivs);
    }
}

/// Eight consecutive tweaks as polynomials over GF(2): bit n of `low` is x^n, of `high` x^(64+n),
/// modulo x^128 + x^7 + x^2 + x + 1 (IEEE 1619-2007, 5.2). Plain shifts and XORs, side by side, so
/// that they become vector instructions; no tables and no branches on the tweak.
#[derive(Clone, Copy, Default)]
struct Lanes {
    low: [u64; LANES],
    high: [u64; LANES],
}

impl Lanes {
    /// `T·x^0 .. T·x^7`
    #[inline(always)]
    fn spread(tweak: Block) -> Lanes {
        let [low, high] = halves(tweak);
        let mut lanes = Lanes::default();
        for (lane, power) in (0..8_u32).enumerate() {
            // Two shifts: by 64 - power in one would be a shift by 64 for power 0.
            let carry = (low >> 1) >> (63 - power);
            let overflow = (high >> 1) >> (63 - power);
            lanes.low[lane] = (low << power) ^ reduce(overflow);
            lanes.high[lane] = (high << power) | carry;
        }
        lanes
    }

    /// Multiplies every lane by x^8.
    #[inline(always)]
    fn advance(&mut self) {
        for (low, high) in self.low.iter_mut().zip(&mut self.high) {
            let overflow = *high >> 56;
            *high = (*high << 8) | (*low >> 56);
            *low = (*low << 8) ^ reduce(overflow);
        }
    }

    #[inline(always)]
    fn write(&self, tweaks: &mut [Block]) {
        for ((low, high), tweak) in self.low.iter().zip(&self.high).zip(tweaks) {
            let value = u128::from(*low) | (u128::from(*high) << 64);
            *tweak = value.to_le_bytes().into();
        }
    }
}

fn halves(block: Block) -> [u64; 2] {
    let (halves, _) = block.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

/// What up to 8 bits above x^127 add below: times x^7 + x^2 + x + 1.
#[inline(always)]
fn reduce(overflow: u64) -> u64 {
    overflow ^ (overflow << 1) ^ (overflow << 2) ^ (overflow << 7)
}
