//! VAES on 512-bit registers: units of 512 bytes, eight registers of four blocks.
//!
//! ```text
//!   T ──► A = T·x^0 .. T·x^3, B = T·x^4 .. T·x^7      bit shifts, once a sector
//!   A, B ──► A·x^8, B·x^8, .. B·x^24                  whole bytes, for each unit
//!   A, B ──► A·x^32, B·x^32                           the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_loadu_si128};
use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm512_add_epi64, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128,
    _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_alignr_epi8, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_maskz_mov_epi64, _mm512_maskz_set1_epi64,
    _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_shuffle_epi32, _mm512_sll_epi64, _mm512_slli_epi64, _mm512_sllv_epi64, _mm512_srl_epi64,
    _mm512_srlv_epi64, _mm512_storeu_si512, _mm512_sub_epi64, _mm512_ternarylogic_epi64,
    _mm512_xor_si512,
};

use cipher::Array;
use cipher::consts::U512;
use cipher::inout::{InOut, InOutBuf};
use cipher::typenum::Unsigned;

use super::driver::{Aligned, IV_GROUP, IvGroup, Sectors, Starts, word_by_word, xts_kernel};
use super::keys::{Keys, RoundKey, Schedule, opaque};
use crate::cpu::detection::Avx512;
use crate::iv::IvSequence;
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

type Unit = U512;
/// A and B of the picture above.
type Powers = [__m512i; 2];
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m512i; 8];

/// Sectors in an [`IvGroup`].
const SECTORS: u64 = 8;
/// Truth table of the XOR of three.
const XOR3: i32 = 0x96;

xts_kernel! {
    /// The kernel of CPUs with VAES and AVX-512.
    Avx512Xts, Avx512, "avx512f,avx512bw,vaes", "aes-xts (vaes, avx512)"
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: Masks,
    [a, b]: Powers,
    start: Option<&[u8; 16]>,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) -> (Masks, Powers) {
    let keys = opaque(keys);
    let (first, last) = (broadcast(&keys.first), broadcast(&keys.last));
    let mut state = masks;
    let (source, _) = data.get_in().as_slice().as_chunks::<64>();
    let source = source.first_chunk().expect("a unit");
    let middle = keys.middle_keys::<MIDDLE>();
    // Straight-line code: a loop would not keep all of it in registers.
    let next = [
        xor(a, last),
        xor(b, last),
        first_round::<ENCRYPT>(&mut state, source, first, &middle[0], a, last),
        round_and_times::<ENCRYPT, 1>(&mut state, &middle[1], b, last),
        round_and_times::<ENCRYPT, 2>(&mut state, &middle[2], a, last),
        round_and_times::<ENCRYPT, 2>(&mut state, &middle[3], b, last),
        round_and_times::<ENCRYPT, 3>(&mut state, &middle[4], a, last),
        round_and_times::<ENCRYPT, 3>(&mut state, &middle[5], b, last),
    ];
    let after = match start {
        Some(tweak) => {
            let tweak = broadcast(tweak);
            [
                round_and_power::<ENCRYPT>(&mut state, &middle[6], tweak, 0),
                round_and_power::<ENCRYPT>(&mut state, &middle[7], tweak, 4),
            ]
        }
        None => [
            round_and_times::<ENCRYPT, 4>(&mut state, &middle[6], a, zero()),
            round_and_times::<ENCRYPT, 4>(&mut state, &middle[7], b, zero()),
        ],
    };
    for key in &middle[8..] {
        round::<ENCRYPT>(&mut state, key);
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<64>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm512_aesenclast_epi128(state, mask),
            false => _mm512_aesdeclast_epi128(state, mask),
        };
        store(destination, out);
    }
    (next, after)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn round<const ENCRYPT: bool>(state: &mut [__m512i; 8], key: &RoundKey) {
    let key = broadcast(key);
    for state in state {
        *state = match ENCRYPT {
            true => _mm512_aesenc_epi128(*state, key),
            false => _mm512_aesdec_epi128(*state, key),
        };
    }
}

/// The masks of the unit whose A and B these are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn masks(keys: &Schedule, [a, b]: Powers) -> Masks {
    let last = broadcast(&keys.last);
    [
        xor(a, last),
        xor(b, last),
        times_bytes::<1>(a, last),
        times_bytes::<1>(b, last),
        times_bytes::<2>(a, last),
        times_bytes::<2>(b, last),
        times_bytes::<3>(a, last),
        times_bytes::<3>(b, last),
    ]
}

/// A and B of a sector's first unit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    let tweak = broadcast(tweak);
    [0, 4].map(|first| {
        let (shifted, crossed) = times_x(tweak, first);
        reduce(shifted, crossed, low_halves(crossed))
    })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn next_powers([a, b]: Powers) -> Powers {
    [times_bytes::<4>(a, zero()), times_bytes::<4>(b, zero())]
}

/// Each block times x^`first`, x^(`first` + 1) and so on, in two parts whose XOR it is once
/// the low halves of the second part are reduced.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn times_x(tweak: __m512i, first: i64) -> (__m512i, __m512i) {
    let power = _mm512_add_epi64(
        _mm512_set1_epi64(first),
        _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0),
    );
    let shifted = _mm512_sllv_epi64(tweak, power);
    // 64 - 0 shifts everything out.
    let over = _mm512_srlv_epi64(tweak, _mm512_sub_epi64(_mm512_set1_epi64(64), power));
    // What leaves the low half enters the high one, and what leaves the high half the low one:
    // that is its product with the 1 of x^7 + x^2 + x + 1.
    (shifted, _mm512_shuffle_epi32::<0x4e>(over))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn low_halves(blocks: __m512i) -> __m512i {
    _mm512_maskz_mov_epi64(0x55, blocks)
}

/// `a ^ b ^ over · (x^7 + x^2 + x)`.
///
/// Without a carry-less multiplication, since that runs where the AES rounds do on AMD's CPUs,
/// and with few bit shifts, since those do on Intel's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn reduce(a: __m512i, b: __m512i, over: __m512i) -> __m512i {
    reduce_high(reduce_low(a, over), b, over)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn reduce_low(a: __m512i, over: __m512i) -> __m512i {
    let by_x = _mm512_add_epi64(over, over);
    _mm512_ternarylogic_epi64::<XOR3>(a, by_x, _mm512_slli_epi64::<2>(over))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn reduce_high(low: __m512i, b: __m512i, over: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<XOR3>(low, b, _mm512_slli_epi64::<7>(over))
}

/// Each block times x^(8 · `BYTES`), and XORed with `other`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn times_bytes<const BYTES: usize>(tweak: __m512i, other: __m512i) -> __m512i {
    // What leaves at the top comes in at the bottom: that is its product with the 1 of
    // x^7 + x^2 + x + 1.
    let rotated = rotate_bytes::<BYTES>(tweak);
    let over = _mm512_and_si512(rotated, load(&const { lowest(BYTES) }));
    reduce(rotated, other, over)
}

/// The lowest `bytes` bytes of every block.
const fn lowest(bytes: usize) -> [u8; 64] {
    let mut mask = [0; 64];
    let mut at = 0;
    while at < 64 {
        if at % 16 < bytes {
            mask[at] = 0xff;
        }
        at += 1;
    }
    mask
}

/// A round and, in its gaps, [`times_bytes`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn round_and_times<const ENCRYPT: bool, const BYTES: usize>(
    state: &mut [__m512i; 8],
    key: &RoundKey,
    tweak: __m512i,
    other: __m512i,
) -> __m512i {
    let key = broadcast(key);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    let rotated = pair::<ENCRYPT>(s0, s1, key, rotate_bytes::<BYTES>(tweak));
    let over = _mm512_and_si512(rotated, load(&const { lowest(BYTES) }));
    let over = pair::<ENCRYPT>(s2, s3, key, over);
    let low = pair::<ENCRYPT>(s4, s5, key, reduce_low(rotated, over));
    pair::<ENCRYPT>(s6, s7, key, reduce_high(low, other, over))
}

/// As [`round_and_times`] of one byte, and the text comes in before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn first_round<const ENCRYPT: bool>(
    state: &mut [__m512i; 8],
    source: &[[u8; 64]; 8],
    first: __m512i,
    key: &RoundKey,
    tweak: __m512i,
    other: __m512i,
) -> __m512i {
    let key = broadcast(key);
    let enter = |mask, at: usize| _mm512_ternarylogic_epi64::<XOR3>(mask, load(&source[at]), first);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    (*s0, *s1) = (enter(*s0, 0), enter(*s1, 1));
    let rotated = pair::<ENCRYPT>(s0, s1, key, rotate_bytes::<1>(tweak));
    (*s2, *s3) = (enter(*s2, 2), enter(*s3, 3));
    let over = _mm512_and_si512(rotated, load(&const { lowest(1) }));
    let over = pair::<ENCRYPT>(s2, s3, key, over);
    (*s4, *s5) = (enter(*s4, 4), enter(*s5, 5));
    let low = pair::<ENCRYPT>(s4, s5, key, reduce_low(rotated, over));
    (*s6, *s7) = (enter(*s6, 6), enter(*s7, 7));
    pair::<ENCRYPT>(s6, s7, key, reduce_high(low, other, over))
}

/// A round and, in its gaps, one half of [`first_powers`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn round_and_power<const ENCRYPT: bool>(
    state: &mut [__m512i; 8],
    key: &RoundKey,
    tweak: __m512i,
    first: i64,
) -> __m512i {
    let key = broadcast(key);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    let (shifted, crossed) = times_x(tweak, first);
    let shifted = pair::<ENCRYPT>(s0, s1, key, shifted);
    let over = pair::<ENCRYPT>(s2, s3, key, low_halves(crossed));
    let low = pair::<ENCRYPT>(s4, s5, key, reduce_low(shifted, over));
    pair::<ENCRYPT>(s6, s7, key, reduce_high(low, crossed, over))
}

/// A quarter of a round. The compiler leaves the four in their order and has `made` ready after
/// this one: it would do all other work together otherwise, which then waits for the one port
/// that the AES unit leaves, and the AES unit for it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn pair<const ENCRYPT: bool>(
    s0: &mut __m512i,
    s1: &mut __m512i,
    key: __m512i,
    mut made: __m512i,
) -> __m512i {
    for state in [&mut *s0, &mut *s1] {
        *state = match ENCRYPT {
            true => _mm512_aesenc_epi128(*state, key),
            false => _mm512_aesdec_epi128(*state, key),
        };
    }
    // SAFETY: no instruction at all.
    unsafe {
        asm!(
            "/* {} {} {} */",
            inout(zmm_reg) *s0, inout(zmm_reg) *s1, inout(zmm_reg) made,
            options(nomem, nostack, preserves_flags)
        );
    }
    made
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn rotate_bytes<const BYTES: usize>(tweak: __m512i) -> __m512i {
    match BYTES {
        1 => _mm512_alignr_epi8::<15>(tweak, tweak),
        2 => _mm512_alignr_epi8::<14>(tweak, tweak),
        3 => _mm512_alignr_epi8::<13>(tweak, tweak),
        _ => _mm512_alignr_epi8::<12>(tweak, tweak),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn zero() -> __m512i {
    _mm512_setzero_si512()
}

/// The encrypted IVs of the next sectors, [`IV_GROUP`] at a time.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn encrypt_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = broadcast(ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    // The low half of each block counts, the high one stays 0.
    let in_low = |number: u64| _mm512_maskz_set1_epi64(0x55, number.cast_signed());
    // A step is a power of two.
    let log = _mm_cvtsi64_si128(i64::from(ivs.step.trailing_zeros()));
    let places_in_four = _mm512_sll_epi64(_mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0), log);
    let mut low = _mm512_add_epi64(in_low(ivs.next), places_in_four);
    let step = in_low(ivs.step.wrapping_mul(4));
    for group in groups {
        let keys = opaque(keys);
        let high = _mm512_add_epi64(low, step);
        let numbers = [low, high];
        low = _mm512_add_epi64(high, step);
        ivs.next = ivs.nth(SECTORS);
        let mut state = numbers.map(|number| {
            let iv = _mm512_shuffle_epi8(_mm512_srl_epi64(number, shift), places);
            xor(iv, broadcast(&keys.first))
        });
        for key in keys.middle_keys::<MIDDLE>() {
            let key = broadcast(key);
            state = state.map(|state| _mm512_aesenc_epi128(state, key));
        }
        let (out, _) = group.as_flattened_mut().as_chunks_mut::<64>();
        for (state, out) in state.into_iter().zip(out) {
            store(out, _mm512_aesenclast_epi128(state, broadcast(&keys.last)));
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn xor(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn broadcast(block: &[u8; 16]) -> __m512i {
    // SAFETY: `block` is 16 bytes to read; this load needs no alignment.
    let block = unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>()) };
    _mm512_broadcast_i32x4(block)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn load(source: &[u8; 64]) -> __m512i {
    // SAFETY: `source` is 64 bytes to read; this load needs no alignment.
    unsafe { _mm512_loadu_si512(source.as_ptr().cast::<__m512i>()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn store(destination: &mut [u8; 64], value: __m512i) {
    // SAFETY: `destination` is 64 bytes to write, borrowed by nobody else; this store needs no
    // alignment.
    unsafe { _mm512_storeu_si512(destination.as_mut_ptr().cast::<__m512i>(), value) }
}
