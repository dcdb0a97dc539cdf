//! CBC: within a sector each block waits for the one before, so sectors run side by side.
//!
//! ```text
//!   encrypt   block n of every sector at once, all blocks in one call of the cipher's back end
//!   decrypt   all blocks at once
//! ```

use aes::Block;
use cipher::consts::U16;
use cipher::inout::InOutBuf;
use cipher::typenum::Unsigned;
use cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockSizeUser};

use super::blocks::{Algorithm, BlockCipher, encrypt_each};
use super::chain::Chain;
use super::{BATCH, GROUP, xor};

/// Blocks in a cache line.
const LINE: usize = 4;
/// Sectors whose lines fit the cache wherever they are.
const FEW: usize = 8;

pub(super) struct Cbc(Box<dyn BlockCipher>);

impl Cbc {
    pub(super) fn new(algorithm: Algorithm, key: &[u8]) -> Option<Cbc> {
        Some(Cbc(algorithm.cipher(key)?))
    }
}

impl Chain for Cbc {
    fn encrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        let mut lanes = [Block::default(); BATCH];
        let lanes = &mut lanes[..ivs.len()];
        lanes.copy_from_slice(ivs);
        self.0.encrypt_chained(Lanes {
            cipher: &*self.0,
            lanes,
            data,
        });
    }

    fn decrypt(&self, ivs: &[Block], data: InOutBuf<'_, '_, Block>) {
        let sector_blocks = data.len() / ivs.len();
        let mut saved = [Block::default(); GROUP + 1];
        let mut text = [Block::default(); GROUP];
        let mut rest = data;
        let mut position = 0;
        while !rest.is_empty() {
            let len = rest.len().min(GROUP);
            let (mut group, after) = rest.split_at(len);
            rest = after;
            // The source may be the destination, and the next block needs it.
            saved[1..=len].copy_from_slice(group.get_in());
            text[..len].copy_from_slice(&saved[1..=len]);
            self.0.decrypt(&mut text[..len]);
            for (index, out) in group.get_out().iter_mut().enumerate() {
                let place = position + index;
                let before = if place.is_multiple_of(sector_blocks) {
                    &ivs[place / sector_blocks]
                } else {
                    &saved[index]
                };
                xor(&mut text[index], before);
                *out = text[index];
            }
            saved[0] = saved[len];
            position += len;
        }
    }
}

/// Sectors of equal length to encrypt, and for each what its next block is XORed with.
pub(super) struct Lanes<'a, 'inp, 'out> {
    /// Whose back end is on its way here.
    cipher: &'a dyn BlockCipher,
    lanes: &'a mut [Block],
    data: InOutBuf<'inp, 'out, Block>,
}

impl BlockSizeUser for Lanes<'_, '_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Lanes<'_, '_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Lanes {
            cipher,
            lanes,
            data,
        } = self;
        // A cipher without parallel calls loses nothing by a call for each row of blocks. Inside
        // this closure the compiler would not make vectors of its loop over blocks, which gives
        // serpent three times its speed.
        if B::ParBlocksSize::USIZE == 1 {
            return chain(lanes, data, |blocks| cipher.encrypt(blocks));
        }
        match lanes {
            [lane] => chain_one(backend, *lane, data),
            lanes => chain(lanes, data, |blocks| encrypt_each(backend, blocks)),
        }
    }
}

/// The last block stays in registers.
#[inline(always)]
fn chain_one<B>(backend: &B, mut last: Block, data: InOutBuf<'_, '_, Block>)
where
    B: BlockCipherEncBackend<BlockSize = U16>,
{
    for mut block in data {
        xor(&mut last, block.get_in());
        backend.encrypt_block((&mut last).into());
        *block.get_out() = last;
    }
}

#[inline(always)]
fn chain(lanes: &mut [Block], data: InOutBuf<'_, '_, Block>, encrypt: impl Fn(&mut [Block])) {
    if lanes.len() <= FEW || !data.len().is_multiple_of(lanes.len() * LINE) {
        chain_few(lanes, data, encrypt);
    } else {
        chain_many(lanes, data, encrypt);
    }
}

/// Block by block through the sectors.
#[inline(always)]
fn chain_few(
    lanes: &mut [Block],
    mut data: InOutBuf<'_, '_, Block>,
    encrypt: impl Fn(&mut [Block]),
) {
    let sector_blocks = data.len() / lanes.len();
    for block in 0..sector_blocks {
        let text = data.get_in()[block..].iter().step_by(sector_blocks);
        for (lane, text) in lanes.iter_mut().zip(text) {
            xor(lane, text);
        }
        encrypt(lanes);
        let text = data.get_out()[block..].iter_mut().step_by(sector_blocks);
        for (lane, text) in lanes.iter().zip(text) {
            *text = *lane;
        }
    }
}

/// In tiles of a cache line of each sector: sectors are often as far apart as lines that push each
/// other out of the cache.
#[inline(always)]
fn chain_many(
    lanes: &mut [Block],
    mut data: InOutBuf<'_, '_, Block>,
    encrypt: impl Fn(&mut [Block]),
) {
    let sector_lines = data.len() / lanes.len() / LINE;
    let mut tile = [[Block::default(); LINE]; BATCH];
    let tile = &mut tile[..lanes.len()];
    for number in 0..sector_lines {
        let (lines, _) = data.get_in().as_chunks::<LINE>();
        let lines = lines[number..].iter().step_by(sector_lines);
        for (line, source) in tile.iter_mut().zip(lines) {
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
        let (lines, _) = data.get_out().as_chunks_mut::<LINE>();
        let lines = lines[number..].iter_mut().step_by(sector_lines);
        for (line, destination) in tile.iter().zip(lines) {
            *destination = *line;
        }
    }
}
