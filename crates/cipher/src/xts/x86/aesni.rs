//! AES-NI: units of 128 bytes, eight registers of one block.
//!
//! ```text
//!   T ──► T·x ──► T·x^2 ──► .. T·x^7     doubled one by one
//!                              T·x^8     the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128,
    _mm_aesenclast_si128, _mm_and_si128, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi32,
    _mm_set_epi64x, _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_srai_epi32, _mm_srl_epi64,
    _mm_storeu_si128, _mm_xor_si128,
};

use cipher::Array;
use cipher::consts::U128;
use cipher::inout::{InOut, InOutBuf};
use cipher::typenum::Unsigned;

use super::driver::{Aligned, IV_GROUP, IvGroup, Sectors, Starts, word_by_word, xts_kernel};
use super::keys::{Keys, RoundKey, Schedule, opaque};
use crate::cpu::detection::AesNi;
use crate::iv::IvSequence;
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

type Unit = U128;
/// The tweak of a unit's first block.
type Powers = __m128i;
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m128i; 8];

/// Sectors in an [`IvGroup`].
const SECTORS: u64 = 8;

xts_kernel! {
    /// The kernel of CPUs with AES-NI.
    AesNiXts, AesNi, "aes,ssse3", "aes-xts (aesni)"
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: Masks,
    mut tweak: Powers,
    start: Option<&[u8; 16]>,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) -> (Masks, Powers) {
    let keys = opaque(keys);
    let (first, last) = (load(&keys.first), load(&keys.last));
    let mut state = masks;
    let (source, _) = data.get_in().as_slice().as_chunks::<16>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = xor(xor(*state, first), load(source));
    }
    let middle = keys.middle_keys::<MIDDLE>();
    let mut next = [last; 8];
    // Straight-line code: a loop would not keep all of it in registers.
    macro_rules! round_and_mask {
        ($at:literal) => {
            round::<ENCRYPT>(&mut state, &middle[$at]);
            next[$at] = xor(tweak, last);
            tweak = double(tweak);
            fence(&mut state, &mut next[$at], &mut tweak);
        };
    }
    round_and_mask!(0);
    round_and_mask!(1);
    round_and_mask!(2);
    round_and_mask!(3);
    round_and_mask!(4);
    round_and_mask!(5);
    round_and_mask!(6);
    round_and_mask!(7);
    for key in &middle[8..] {
        round::<ENCRYPT>(&mut state, key);
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<16>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm_aesenclast_si128(state, mask),
            false => _mm_aesdeclast_si128(state, mask),
        };
        store(destination, out);
    }
    let after = match start {
        Some(tweak) => first_powers(tweak),
        None => tweak,
    };
    (next, after)
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn round<const ENCRYPT: bool>(state: &mut [__m128i; 8], key: &RoundKey) {
    let key = load(key);
    for state in state {
        *state = match ENCRYPT {
            true => _mm_aesenc_si128(*state, key),
            false => _mm_aesdec_si128(*state, key),
        };
    }
}

/// Keeps the compiler from moving work between rounds: everything before is done before, and
/// what comes after waits. The AES units need work that depends on nothing near it at all times.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn fence(state: &mut [__m128i; 8], made: &mut __m128i, power: &mut __m128i) {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    // SAFETY: no instruction at all.
    unsafe {
        asm!(
            "/* {} {} {} {} {} {} {} {} {} {} */",
            inout(xmm_reg) * s0,
            inout(xmm_reg) * s1,
            inout(xmm_reg) * s2,
            inout(xmm_reg) * s3,
            inout(xmm_reg) * s4,
            inout(xmm_reg) * s5,
            inout(xmm_reg) * s6,
            inout(xmm_reg) * s7,
            inout(xmm_reg) * made,
            inout(xmm_reg) * power,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
}

/// The masks of the unit whose first tweak this is.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn masks(keys: &Schedule, mut tweak: Powers) -> Masks {
    let last = load(&keys.last);
    [(); 8].map(|()| {
        let mask = xor(tweak, last);
        tweak = double(tweak);
        mask
    })
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    load(tweak)
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn next_powers(tweak: Powers) -> Powers {
    (0..8).fold(tweak, |tweak, _| double(tweak))
}

/// Times x.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn double(tweak: __m128i) -> __m128i {
    // The top bits of both halves, spread over the words that they change: bit 127 over the low
    // half's, where it is x^7 + x^2 + x + 1, and bit 63 over the high half's lowest.
    let top = _mm_shuffle_epi32::<0x13>(_mm_srai_epi32::<31>(tweak));
    let carried = _mm_and_si128(top, _mm_set_epi32(0, 1, 0, 0x87));
    xor(_mm_add_epi64(tweak, tweak), carried)
}

/// The encrypted IVs of the next sectors, a group at a time.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn encrypt_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = load(ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    for group in groups {
        let keys = opaque(keys);
        let mut state = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| {
            let number = _mm_set_epi64x(0, ivs.nth(n).cast_signed());
            let iv = _mm_shuffle_epi8(_mm_srl_epi64(number, shift), places);
            xor(iv, load(&keys.first))
        });
        ivs.next = ivs.nth(SECTORS);
        for key in keys.middle_keys::<MIDDLE>() {
            let key = load(key);
            state = state.map(|state| _mm_aesenc_si128(state, key));
        }
        for (state, out) in state.into_iter().zip(group) {
            store(out, _mm_aesenclast_si128(state, load(&keys.last)));
        }
    }
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn load(source: &[u8; 16]) -> __m128i {
    // SAFETY: `source` is 16 bytes to read; this load needs no alignment.
    unsafe { _mm_loadu_si128(source.as_ptr().cast::<__m128i>()) }
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn store(destination: &mut [u8; 16], value: __m128i) {
    // SAFETY: `destination` is 16 bytes to write, borrowed by nobody else; this store needs no
    // alignment.
    unsafe { _mm_storeu_si128(destination.as_mut_ptr().cast::<__m128i>(), value) }
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn xor(a: __m128i, b: __m128i) -> __m128i {
    _mm_xor_si128(a, b)
}
