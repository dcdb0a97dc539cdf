//! AES-NI: units of 128 bytes, eight registers of one block.
//!
//! ```text
//!   T ──► T·x ──► T·x^2 ──► .. T·x^7     doubled one by one
//!                              T·x^8     the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128, _mm_aesenclast_si128,
    _mm_and_si128, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi32, _mm_shuffle_epi8, _mm_shuffle_epi32,
    _mm_srai_epi32, _mm_srl_epi64, _mm_storeu_si128, _mm_xor_si128,
};

use crate::cpu::detection::AesNi;
use crate::iv::IvSequence;
use crate::xts::driver::{Aligned, FIRST_SECTORS, REGISTERS, Tweaked, each, field_by_field, xts_ivs, xts_kernel};
use crate::xts::keys::{RoundKey, Schedule, XtsKeys, opaque};
use crate::xts::x86::registers::registers;
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

/// Bytes in a unit.
const UNIT: usize = 128;
type Vector = __m128i;
/// A tweak.
type Spread = __m128i;
/// The tweak of the next unit's first block, if no sector begins there.
type Powers = __m128i;
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m128i; 8];

use load as spread;

xts_ivs! { "aes,ssse3", _mm_aesenc_si128 }

registers! { "aes,ssse3", 16, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm_aesenclast_si128 }

xts_kernel! {
    /// The kernel of CPUs with AES-NI.
    AesNiXts, AesNi, "aes,ssse3", "aes-xts (aesni)", [9, 11, 13]
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: &mut Masks,
    power: &mut Powers,
    start: Option<&[u8; 16]>,
    data: &mut [u8; UNIT],
) {
    let mut tweak = match start {
        Some(tweak) => load(tweak),
        None => *power,
    };
    let keys = opaque(keys);
    let (first, last) = (round_key(&keys.first), round_key(&keys.last));
    let (source, _) = data.as_chunks::<16>();
    let mut state = each!([0 1 2 3 4 5 6 7] AT => xor(xor(masks[AT], first), load(&source[AT])));
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
    let (destination, _) = data.as_chunks_mut::<16>();
    each!([0 1 2 3 4 5 6 7] AT => {
        let out = if ENCRYPT {
            _mm_aesenclast_si128(state[AT], masks[AT])
        } else {
            _mm_aesdeclast_si128(state[AT], masks[AT])
        };
        store(&mut destination[AT], out);
    });
    *masks = next;
    *power = tweak;
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn round<const ENCRYPT: bool>(state: &mut [__m128i; 8], key: &RoundKey) {
    let key = round_key(key);
    for state in state {
        *state = if ENCRYPT { _mm_aesenc_si128(*state, key) } else { _mm_aesdec_si128(*state, key) };
    }
}

/// Keeps the compiler from moving work between rounds: everything before is done before, and
/// what comes after waits. The AES units need work that depends on nothing near it at all times.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn fence(state: &mut [__m128i; 8], made: &mut __m128i, power: &mut __m128i) {
    if cfg!(miri) {
        return;
    }
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

/// The masks of the unit that begins with this tweak, and the next unit's first tweak.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn first_masks(keys: &Schedule, mut tweak: Spread) -> (Masks, Powers) {
    let last = round_key(&keys.last);
    let masks = each!([0 1 2 3 4 5 6 7] _AT => {
        let mask = xor(tweak, last);
        tweak = double(tweak);
        mask
    });
    (masks, tweak)
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

/// The tweak of the first sector alone.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn first_iv<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> Spread {
    let [first] = encrypt_ivs::<MIDDLE, 1>(keys, ivs);
    first
}

/// The tweaks of the next sectors, and the first one's.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn first_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence) -> ([Vector; FIRST], Spread) {
    let state = encrypt_ivs::<MIDDLE, FIRST>(keys, ivs);
    (state, state[0])
}

/// The next IVs with the first round key.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn whitened_ivs<const N: usize>(keys: &Schedule, ivs: &mut IvSequence) -> [Vector; N] {
    let places = load(ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    let first = round_key(&keys.first);
    let mut state = [first; N];
    for state in &mut state {
        let number = _mm_cvtsi64_si128(ivs.next.cast_signed());
        ivs.next = ivs.after(1);
        let iv = _mm_shuffle_epi8(_mm_srl_epi64(number, shift), places);
        *state = xor(iv, first);
    }
    state
}
