//! VAES on 256-bit registers: units of 256 bytes, eight registers of two blocks.
//!
//! ```text
//!   T ──► T·x^0 1, T·x^2 3, T·x^4 5, T·x^6 7          bit shifts, once a sector
//!   these four ──► times x^8                          whole bytes, for each unit
//!                  times x^16                         the next unit's
//! ```

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm256_aesdec_epi128,
    _mm256_aesdeclast_epi128, _mm256_aesenc_epi128, _mm256_aesenclast_epi128,
    _mm256_broadcastsi128_si256, _mm256_bslli_epi128, _mm256_bsrli_epi128,
    _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sllv_epi64, _mm256_srl_epi64,
    _mm256_srlv_epi64, _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use cipher::Array;
use cipher::consts::U256;
use cipher::inout::{InOut, InOutBuf};
use cipher::typenum::Unsigned;

use super::driver::{Aligned, IV_GROUP, IvGroup, Sectors, Starts, word_by_word, xts_kernel};
use super::keys::{Keys, RoundKey, Schedule, opaque};
use crate::cpu::detection::Avx2;
use crate::iv::IvSequence;
use crate::xts::{BLOCK_BYTES, XtsKernel, advance, from_bytes, to_bytes};

type Unit = U256;
/// The first four registers' tweaks.
type Powers = [__m256i; 4];
/// The tweaks of a unit, each XORed with the last round key.
type Masks = [__m256i; 8];

/// x^128 is x^7 + x^2 + x + 1, as bits.
const REDUCTION: i64 = 0x87;
/// Sectors in an [`IvGroup`].
const SECTORS: u64 = 8;

xts_kernel! {
    /// The kernel of CPUs with VAES, used on 256 bits.
    Avx2Xts, Avx2, "avx2,vaes,vpclmulqdq", "aes-xts (vaes, avx2)"
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn crypt_unit<const ENCRYPT: bool, const MIDDLE: usize>(
    keys: &Schedule,
    masks: Masks,
    powers: Powers,
    start: Option<&[u8; 16]>,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) -> (Masks, Powers) {
    let keys = opaque(keys);
    let (first, last) = (broadcast(&keys.first), broadcast(&keys.last));
    let mut state = masks;
    let (source, _) = data.get_in().as_slice().as_chunks::<32>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = xor(xor(*state, first), load(source));
    }
    let middle = keys.middle_keys::<MIDDLE>();
    let [a, b, c, d] = powers;
    // Straight-line code: a loop would not keep all of it in registers.
    let next = [
        xor(a, last),
        xor(b, last),
        xor(c, last),
        xor(d, last),
        round_and_times::<ENCRYPT, 1, 15>(&mut state, &middle[0], a, last),
        round_and_times::<ENCRYPT, 1, 15>(&mut state, &middle[1], b, last),
        round_and_times::<ENCRYPT, 1, 15>(&mut state, &middle[2], c, last),
        round_and_times::<ENCRYPT, 1, 15>(&mut state, &middle[3], d, last),
    ];
    let after = match start {
        Some(tweak) => {
            let tweak = broadcast(tweak);
            [
                round_and_power::<ENCRYPT>(&mut state, &middle[4], tweak, 0),
                round_and_power::<ENCRYPT>(&mut state, &middle[5], tweak, 2),
                round_and_power::<ENCRYPT>(&mut state, &middle[6], tweak, 4),
                round_and_power::<ENCRYPT>(&mut state, &middle[7], tweak, 6),
            ]
        }
        None => [
            round_and_times::<ENCRYPT, 2, 14>(&mut state, &middle[4], a, zero()),
            round_and_times::<ENCRYPT, 2, 14>(&mut state, &middle[5], b, zero()),
            round_and_times::<ENCRYPT, 2, 14>(&mut state, &middle[6], c, zero()),
            round_and_times::<ENCRYPT, 2, 14>(&mut state, &middle[7], d, zero()),
        ],
    };
    for key in &middle[8..] {
        round::<ENCRYPT>(&mut state, key);
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<32>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm256_aesenclast_epi128(state, mask),
            false => _mm256_aesdeclast_epi128(state, mask),
        };
        store(destination, out);
    }
    (next, after)
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn round<const ENCRYPT: bool>(state: &mut [__m256i; 8], key: &RoundKey) {
    let key = broadcast(key);
    for state in state {
        *state = match ENCRYPT {
            true => _mm256_aesenc_epi128(*state, key),
            false => _mm256_aesdec_epi128(*state, key),
        };
    }
}

/// A round and, in its gaps, [`times_bytes`].
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn round_and_times<const ENCRYPT: bool, const LEFT: i32, const RIGHT: i32>(
    state: &mut [__m256i; 8],
    key: &RoundKey,
    tweak: __m256i,
    other: __m256i,
) -> __m256i {
    let key = broadcast(key);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    let over = pair::<ENCRYPT>(s0, s1, key, _mm256_bsrli_epi128::<RIGHT>(tweak));
    let reduced = _mm256_clmulepi64_epi128::<0x00>(over, _mm256_set1_epi64x(REDUCTION));
    let reduced = pair::<ENCRYPT>(s2, s3, key, reduced);
    let left = xor(_mm256_bslli_epi128::<LEFT>(tweak), other);
    let left = pair::<ENCRYPT>(s4, s5, key, left);
    pair::<ENCRYPT>(s6, s7, key, xor(left, reduced))
}

/// A round and, in its gaps, a quarter of [`first_powers`].
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn round_and_power<const ENCRYPT: bool>(
    state: &mut [__m256i; 8],
    key: &RoundKey,
    tweak: __m256i,
    first: i64,
) -> __m256i {
    let key = broadcast(key);
    let [s0, s1, s2, s3, s4, s5, s6, s7] = state;
    let over = pair::<ENCRYPT>(s0, s1, key, over_by(tweak, first));
    let reduced = pair::<ENCRYPT>(s2, s3, key, reduce_high(over));
    let shifted = _mm256_sllv_epi64(tweak, two_powers(first));
    let shifted = pair::<ENCRYPT>(s4, s5, key, xor(shifted, reduced));
    let carried = _mm256_bslli_epi128::<8>(over);
    pair::<ENCRYPT>(s6, s7, key, xor(shifted, carried))
}

/// A quarter of a round. The compiler leaves the four in their order and has `made` ready after
/// this one: it would do all other work together otherwise, which then waits for the ports that
/// the AES units leave, and the AES units for it.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn pair<const ENCRYPT: bool>(
    s0: &mut __m256i,
    s1: &mut __m256i,
    key: __m256i,
    mut made: __m256i,
) -> __m256i {
    for state in [&mut *s0, &mut *s1] {
        *state = match ENCRYPT {
            true => _mm256_aesenc_epi128(*state, key),
            false => _mm256_aesdec_epi128(*state, key),
        };
    }
    // SAFETY: no instruction at all.
    unsafe {
        asm!(
            "/* {} {} {} */",
            inout(ymm_reg) *s0, inout(ymm_reg) *s1, inout(ymm_reg) made,
            options(nomem, nostack, preserves_flags)
        );
    }
    made
}

/// The masks of the unit whose first four registers these are.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn masks(keys: &Schedule, [a, b, c, d]: Powers) -> Masks {
    let last = broadcast(&keys.last);
    [
        xor(a, last),
        xor(b, last),
        xor(c, last),
        xor(d, last),
        xor(times_bytes::<1, 15>(a), last),
        xor(times_bytes::<1, 15>(b), last),
        xor(times_bytes::<1, 15>(c), last),
        xor(times_bytes::<1, 15>(d), last),
    ]
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    let tweak = broadcast(tweak);
    [0, 2, 4, 6].map(|first| {
        let over = over_by(tweak, first);
        let shifted = _mm256_sllv_epi64(tweak, two_powers(first));
        // What leaves the low half enters the high one; what leaves the high half is reduced.
        xor(
            xor(shifted, _mm256_bslli_epi128::<8>(over)),
            reduce_high(over),
        )
    })
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn next_powers([a, b, c, d]: Powers) -> Powers {
    [
        times_bytes::<2, 14>(a),
        times_bytes::<2, 14>(b),
        times_bytes::<2, 14>(c),
        times_bytes::<2, 14>(d),
    ]
}

/// Powers of x for the two blocks, in both halves of each.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn two_powers(first: i64) -> __m256i {
    _mm256_set_epi64x(first + 1, first + 1, first, first)
}

/// What leaves each half of the blocks when it is shifted left by its power.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn over_by(tweak: __m256i, first: i64) -> __m256i {
    // 64 - 0 shifts everything out.
    let rest = _mm256_sub_epi64(_mm256_set1_epi64x(64), two_powers(first));
    _mm256_srlv_epi64(tweak, rest)
}

/// The high halves times x^128, modulo the polynomial.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn reduce_high(over: __m256i) -> __m256i {
    _mm256_clmulepi64_epi128::<0x01>(over, _mm256_set1_epi64x(REDUCTION))
}

/// Each block times x^(8 · `LEFT`); `RIGHT` is 16 - `LEFT`.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn times_bytes<const LEFT: i32, const RIGHT: i32>(tweak: __m256i) -> __m256i {
    const { assert!(LEFT + RIGHT == 16) };
    let over = _mm256_bsrli_epi128::<RIGHT>(tweak);
    let reduced = _mm256_clmulepi64_epi128::<0x00>(over, _mm256_set1_epi64x(REDUCTION));
    xor(_mm256_bslli_epi128::<LEFT>(tweak), reduced)
}

/// The encrypted IVs of the next sectors, a group at a time.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn encrypt_ivs<const MIDDLE: usize>(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = broadcast(ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    for group in groups {
        let keys = opaque(keys);
        // The low half of each block counts, the high one stays 0.
        let mut state = [0, 2, 4, 6].map(|n| {
            let [even, odd] = [n, n + 1].map(|n| ivs.nth(n).cast_signed());
            let number = _mm256_srl_epi64(_mm256_set_epi64x(0, odd, 0, even), shift);
            xor(_mm256_shuffle_epi8(number, places), broadcast(&keys.first))
        });
        ivs.next = ivs.nth(SECTORS);
        for key in keys.middle_keys::<MIDDLE>() {
            let key = broadcast(key);
            state = state.map(|state| _mm256_aesenc_epi128(state, key));
        }
        let (out, _) = group.as_flattened_mut().as_chunks_mut::<32>();
        for (state, out) in state.into_iter().zip(out) {
            store(out, _mm256_aesenclast_epi128(state, broadcast(&keys.last)));
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn xor(a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn broadcast(block: &[u8; 16]) -> __m256i {
    // SAFETY: `block` is 16 bytes to read; this load needs no alignment.
    let block = unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>()) };
    _mm256_broadcastsi128_si256(block)
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn load(source: &[u8; 32]) -> __m256i {
    // SAFETY: `source` is 32 bytes to read; this load needs no alignment.
    unsafe { _mm256_loadu_si256(source.as_ptr().cast::<__m256i>()) }
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn store(destination: &mut [u8; 32], value: __m256i) {
    // SAFETY: `destination` is 32 bytes to write, borrowed by nobody else; this store needs no
    // alignment.
    unsafe { _mm256_storeu_si256(destination.as_mut_ptr().cast::<__m256i>(), value) }
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn zero() -> __m256i {
    _mm256_setzero_si256()
}
