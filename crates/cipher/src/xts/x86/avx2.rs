//! VAES on 256-bit registers: units of 256 bytes, eight registers of two blocks.
//!
//! ```text
//!   T ──► T·x^0 1, T·x^2 3, T·x^4 5, T·x^6 7          bit shifts, once a sector
//!   these four ──► times x^8                          whole bytes, for each unit
//!                  times x^16                         the next unit's
//! ```

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm256_aesdec_epi128,
    _mm256_aesdeclast_epi128, _mm256_aesenc_epi128, _mm256_aesenclast_epi128,
    _mm256_broadcastsi128_si256, _mm256_bslli_epi128, _mm256_bsrli_epi128,
    _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_set_epi64x, _mm256_set1_epi64x,
    _mm256_shuffle_epi8, _mm256_sllv_epi64, _mm256_srl_epi64, _mm256_srlv_epi64,
    _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use cipher::Array;
use cipher::consts::U256;
use cipher::inout::{InOut, InOutBuf};

use super::driver::{IV_BATCH, IV_GROUP, IvGroup, SectorTweaks, xts_kernel};
use super::keys::{Keys, Schedule};
use crate::cpu::detection::Avx2;
use crate::iv::IvSequence;
use crate::xts::{XtsKernel, advance, from_bytes, to_bytes};

type Unit = U256;
/// The first four registers' tweaks.
type Powers = [__m256i; 4];

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
fn crypt_unit<const ENCRYPT: bool>(
    keys: &Schedule,
    powers: Powers,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) {
    let (first, last) = (broadcast(&keys.first), broadcast(&keys.last));
    let [a, b, c, d] = powers;
    let masks = [
        xor(a, last),
        xor(b, last),
        xor(c, last),
        xor(d, last),
        xor(times_bytes::<1, 15>(a), last),
        xor(times_bytes::<1, 15>(b), last),
        xor(times_bytes::<1, 15>(c), last),
        xor(times_bytes::<1, 15>(d), last),
    ];
    let mut state = masks;
    let (source, _) = data.get_in().as_slice().as_chunks::<32>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = xor(xor(*state, first), load(source));
    }
    for key in keys.middle() {
        let key = broadcast(key);
        for state in &mut state {
            *state = match ENCRYPT {
                true => _mm256_aesenc_epi128(*state, key),
                false => _mm256_aesdec_epi128(*state, key),
            };
        }
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<32>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm256_aesenclast_epi128(state, mask),
            false => _mm256_aesdeclast_epi128(state, mask),
        };
        store(destination, out);
    }
}

#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    let tweak = broadcast(tweak);
    [
        times_x(tweak, _mm256_set_epi64x(1, 1, 0, 0)),
        times_x(tweak, _mm256_set_epi64x(3, 3, 2, 2)),
        times_x(tweak, _mm256_set_epi64x(5, 5, 4, 4)),
        times_x(tweak, _mm256_set_epi64x(7, 7, 6, 6)),
    ]
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

/// Each block times x^power, its own power of 0 to 7 in both of its halves.
#[inline]
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
fn times_x(tweak: __m256i, power: __m256i) -> __m256i {
    let shifted = _mm256_sllv_epi64(tweak, power);
    // 64 - 0 shifts everything out.
    let over = _mm256_srlv_epi64(tweak, _mm256_sub_epi64(_mm256_set1_epi64x(64), power));
    // What leaves the low half enters the high one; what leaves the high half is reduced.
    let carried = _mm256_bslli_epi128::<8>(over);
    let reduced = _mm256_clmulepi64_epi128::<0x01>(over, _mm256_set1_epi64x(REDUCTION));
    xor(xor(shifted, carried), reduced)
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
fn encrypt_ivs(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = broadcast(&ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    for group in groups {
        // The low half of each block counts, the high one stays 0.
        let mut state = [0, 2, 4, 6].map(|n| {
            let [even, odd] = [n, n + 1].map(|n| ivs.nth(n).cast_signed());
            let number = _mm256_srl_epi64(_mm256_set_epi64x(0, odd, 0, even), shift);
            xor(_mm256_shuffle_epi8(number, places), broadcast(&keys.first))
        });
        ivs.next = ivs.nth(SECTORS);
        for key in keys.middle() {
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
