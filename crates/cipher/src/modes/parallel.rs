//! Closures that run inside a block cipher's back end, where its parallel calls are.
//!
//! ```text
//!   Blocks    each block by itself
//!   Chained   CBC encryption: block n of every sector at once
//! ```

use aes::Block;
use cipher::consts::U16;
use cipher::typenum::Unsigned;
use cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherEncBackend, BlockCipherEncClosure, BlockSizeUser,
    ParBlocks, ParBlocksSizeUser,
};

use super::{BATCH, GROUP, xor, xor_all};

/// Blocks in a cache line.
const LINE: usize = 4;
/// Sectors whose lines fit the cache wherever they are.
const FEW: usize = 8;

/// Blocks on their way through a back end, in its parallel calls as far as they pay.
pub(super) struct BlockGroup<'a>(pub(super) &'a mut [Block]);

impl BlockSizeUser for BlockGroup<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for BlockGroup<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<B>(|blocks| backend.encrypt_par_blocks(blocks.into()), |block| backend.encrypt_block(block.into()));
    }
}

impl BlockCipherDecClosure for BlockGroup<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<B>(|blocks| backend.decrypt_par_blocks(blocks.into()), |block| backend.decrypt_block(block.into()));
    }
}

impl BlockGroup<'_> {
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

/// Sectors of equal length to encrypt, with one lane each: what its next block is XORed with.
pub(super) struct Chained<'a, F> {
    /// Encrypts a row of blocks by a call from outside the back end.
    pub(super) encrypt_row: F,
    pub(super) lanes: &'a mut [Block],
    pub(super) data: &'a mut [Block],
}

impl<F> BlockSizeUser for Chained<'_, F> {
    type BlockSize = U16;
}

impl<F: Fn(&mut [Block])> BlockCipherEncClosure for Chained<'_, F> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Chained { lanes, data, .. } = self;
        // A cipher without parallel calls loses nothing by a call for each row of blocks, and gains
        // a vectorized loop over them.
        if B::ParBlocksSize::USIZE == 1 {
            return chain(lanes, data, self.encrypt_row);
        }
        match lanes {
            [lane] => chain_one(backend, *lane, data),
            lanes => chain(lanes, data, |row| {
                BlockCipherEncClosure::call(BlockGroup(row), backend);
            }),
        }
    }
}

/// The last block stays in registers.
#[inline(always)]
fn chain_one<B>(backend: &B, mut last: Block, data: &mut [Block])
where
    B: BlockCipherEncBackend<BlockSize = U16>,
{
    for block in data {
        xor(&mut last, block);
        backend.encrypt_block((&mut last).into());
        *block = last;
    }
}

#[inline(always)]
pub(super) fn chain(lanes: &mut [Block], data: &mut [Block], encrypt: impl Fn(&mut [Block])) {
    if lanes.len() <= FEW || !data.len().is_multiple_of(lanes.len() * LINE) {
        chain_few(lanes, data, encrypt);
    } else {
        chain_many(lanes, data, encrypt);
    }
}

/// Block by block through the sectors.
#[inline(always)]
fn chain_few(lanes: &mut [Block], data: &mut [Block], encrypt: impl Fn(&mut [Block])) {
    let sector_blocks = data.len() / lanes.len();
    for place in 0..sector_blocks {
        let text = data[place..].iter().step_by(sector_blocks);
        for (lane, text) in lanes.iter_mut().zip(text) {
            xor(lane, text);
        }
        encrypt(lanes);
        let text = data[place..].iter_mut().step_by(sector_blocks);
        for (lane, text) in lanes.iter().zip(text) {
            *text = *lane;
        }
    }
}

/// In tiles of one cache line of each sector: sectors are often so far apart that their lines
/// would evict each other from the cache.
#[inline(always)]
fn chain_many(lanes: &mut [Block], data: &mut [Block], encrypt: impl Fn(&mut [Block])) {
    let (lines, _) = data.as_chunks_mut::<LINE>();
    let sector_lines = lines.len() / lanes.len();
    let mut tile = [[Block::default(); LINE]; BATCH];
    let tile = &mut tile[..lanes.len()];
    for number in 0..sector_lines {
        let sources = lines[number..].iter().step_by(sector_lines);
        for (line, source) in tile.iter_mut().zip(sources) {
            *line = *source;
        }
        for place in 0..LINE {
            for (lane, line) in lanes.iter_mut().zip(&*tile) {
                xor(lane, &line[place]);
            }
            encrypt(lanes);
            for (lane, line) in lanes.iter().zip(&mut *tile) {
                line[place] = *lane;
            }
        }
        let destinations = lines[number..].iter_mut().step_by(sector_lines);
        for (line, destination) in tile.iter().zip(destinations) {
            *destination = *line;
        }
    }
}

/// CBC decryption, a group of blocks at a time.
pub(super) fn chain_back(ivs: &[Block], data: &mut [Block], decrypt: impl Fn(&mut [Block])) {
    let sector_blocks = data.len() / ivs.len();
    // What each block of a group is XORed with: the ciphertext before it, or its sector's IV.
    let mut before = [Block::default(); GROUP + 1];
    let mut starts = (0..data.len()).step_by(sector_blocks).zip(ivs).peekable();
    for (group, first) in data.chunks_mut(GROUP).zip((0..).step_by(GROUP)) {
        let len = group.len();
        before[1..=len].copy_from_slice(group);
        let last = before[len];
        while let Some((place, iv)) = starts.next_if(|(place, _)| *place < first + len) {
            before[place - first] = *iv;
        }
        decrypt(group);
        xor_all(group, &before[..len]);
        before[0] = last;
    }
}
