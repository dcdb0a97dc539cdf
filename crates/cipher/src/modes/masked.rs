//! XTS and LRW: every block is masked, enciphered and masked again.
//!
//! ```text
//!   XTS   mask of a sector's block n = E_tweak(IV) · x^n     little-endian polynomials
//!   LRW   mask of a sector's block n = K · (IV + n)          big-endian polynomials, K a second key
//! ```
//!
//! Sources: IEEE 1619-2007 (XTS), the P1619 draft of 2004 as in Linux `crypto/lrw.c`. Plain
//! AES-XTS is in the `xts` module instead.

use aes::Block;
use cryptline_sys::SecretBox;
use zeroize::Zeroizing;

use super::blocks::{BlockCipher, ServedCipher};
use super::chain::ChainMode;
use super::{BATCH, BLOCK_BYTES, GROUP, xor_all};
use crate::cpu::XtsBackend;

pub(super) struct Xts {
    data: Box<dyn BlockCipher>,
    tweak: Box<dyn BlockCipher>,
}

impl Xts {
    /// `key` is the data key followed by the tweak key.
    pub(super) fn new(algorithm: ServedCipher, key: &[u8], backend: XtsBackend) -> Option<Xts> {
        let (data, tweak) = key.split_at(key.len() / 2);
        Some(Xts { data: algorithm.cipher(data, backend)?, tweak: algorithm.cipher(tweak, backend)? })
    }

    fn run(&self, ivs: &[Block], data: &mut [Block], cipher: impl Fn(&dyn BlockCipher, &mut [Block])) {
        let mut tweaks = [Block::default(); BATCH];
        let tweaks = &mut tweaks[..ivs.len()];
        tweaks.copy_from_slice(ivs);
        self.tweak.encrypt(tweaks);
        let start = |sector: usize| u128::from_le_bytes(tweaks[sector].into());
        let next = |tweak: &mut u128| *tweak = times_x(*tweak);
        let mask = |tweak: &u128| tweak.to_le_bytes().into();
        masked(ivs.len(), data, start, next, mask, |blocks| {
            cipher(&*self.data, blocks);
        });
    }
}

impl ChainMode for Xts {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.run(ivs, data, |cipher, blocks| cipher.encrypt(blocks));
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.run(ivs, data, |cipher, blocks| cipher.decrypt(blocks));
    }
}

pub(super) struct Lrw {
    data: Box<dyn BlockCipher>,
    /// At `n` the second key times `2^(n+1) - 1`: what a counter changes by that ends in `n`
    /// ones. Which entries are read depends on sector numbers only.
    steps: SecretBox<[u128; 128]>,
}

impl Lrw {
    /// `key` is the cipher's key followed by 16 bytes, the second key.
    pub(super) fn new(algorithm: ServedCipher, key: &[u8], backend: XtsBackend) -> Option<Lrw> {
        let (data, second) = key.split_last_chunk::<BLOCK_BYTES>()?;
        let mut steps = SecretBox::new([0; 128]);
        let mut power = Zeroizing::new(u128::from_be_bytes(*second));
        let mut sum = Zeroizing::new(0);
        for step in steps.iter_mut() {
            *sum ^= *power;
            *step = *sum;
            *power = times_x(*power);
        }
        Some(Lrw { data: algorithm.cipher(data, backend)?, steps })
    }

    fn run(&self, ivs: &[Block], data: &mut [Block], cipher: impl Fn(&mut [Block])) {
        let start = |sector: usize| {
            let counter = u128::from_be_bytes(ivs[sector].into());
            (counter, self.product(counter))
        };
        let next = |(counter, product): &mut (u128, u128)| {
            *product ^= self.steps[ones_at_end(*counter)];
            *counter = counter.wrapping_add(1);
        };
        let mask = |(_, product): &(u128, u128)| product.to_be_bytes().into();
        masked(ivs.len(), data, start, next, mask, cipher);
    }

    /// The second key times `counter`, which is no secret.
    fn product(&self, counter: u128) -> u128 {
        let mut product = 0;
        for (place, step) in self.steps.iter().enumerate() {
            if counter >> place & 1 == 1 {
                let below = place.checked_sub(1).map_or(0, |place| self.steps[place]);
                product ^= step ^ below;
            }
        }
        product
    }
}

impl ChainMode for Lrw {
    fn encrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.run(ivs, data, |blocks| self.data.encrypt(blocks));
    }

    fn decrypt(&self, ivs: &[Block], data: &mut [Block]) {
        self.run(ivs, data, |blocks| self.data.decrypt(blocks));
    }
}

/// Ones at the end of `counter`, and 127 for nothing but ones, which become zeros.
fn ones_at_end(counter: u128) -> usize {
    usize::try_from(counter.trailing_ones()).map_or(127, |ones| ones.min(127))
}

/// Masks, enciphers and masks again. `start` gives a sector's first state, `next` the one of the
/// block after, `mask` the mask in a state.
fn masked<S: Default>(
    sectors: usize,
    data: &mut [Block],
    start: impl Fn(usize) -> S,
    next: impl Fn(&mut S),
    mask: impl Fn(&S) -> Block,
    cipher: impl Fn(&mut [Block]),
) {
    let sector_blocks = data.len() / sectors;
    let mut state = S::default();
    // Blocks of the present sector that come after the present one; no division for each.
    let (mut sector, mut left) = (0, 0);
    let mut masks = [Block::default(); GROUP];
    for group in data.chunks_mut(GROUP) {
        let masks = &mut masks[..group.len()];
        for kept in &mut *masks {
            if left == 0 {
                state = start(sector);
                sector += 1;
                left = sector_blocks;
            } else {
                next(&mut state);
            }
            left -= 1;
            *kept = mask(&state);
        }
        xor_all(group, masks);
        cipher(group);
        xor_all(group, masks);
    }
}

/// Multiplies by x modulo x^128 + x^7 + x^2 + x + 1, without a branch.
fn times_x(number: u128) -> u128 {
    number << 1 ^ (number >> 127).wrapping_neg() & 0x87
}
