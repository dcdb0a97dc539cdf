//! VAES on 512-bit registers: units of 512 bytes, eight registers of four blocks.
//!
//! ```text
//!   T ──► A = T·x^0 .. T·x^3, B = T·x^4 .. T·x^7      bit shifts, once a sector
//!   A, B ──► A·x^8, B·x^8, .. B·x^24                  whole bytes, for each unit
//!   A, B ──► A·x^32, B·x^32                           the next unit's
//! ```

use std::arch::x86_64::{__m128i, _mm_loadu_si128};
use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm512_add_epi64, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128,
    _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_broadcast_i32x4, _mm512_bslli_epi128,
    _mm512_bsrli_epi128, _mm512_clmulepi64_epi128, _mm512_loadu_si512, _mm512_set_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi8, _mm512_sllv_epi64, _mm512_srl_epi64, _mm512_srlv_epi64,
    _mm512_storeu_si512, _mm512_sub_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use cipher::Array;
use cipher::consts::U512;
use cipher::inout::{InOut, InOutBuf};

use super::driver::{IV_BATCH, IV_GROUP, IvGroup, SectorTweaks, xts_kernel};
use super::keys::{Keys, Schedule};
use crate::cpu::detection::Avx512;
use crate::iv::IvSequence;
use crate::xts::{XtsKernel, advance, from_bytes, to_bytes};

type Unit = U512;
/// A and B of the picture above.
type Powers = [__m512i; 2];

/// x^128 is x^7 + x^2 + x + 1, as bits.
const REDUCTION: i64 = 0x87;
/// Sectors in an [`IvGroup`].
const SECTORS: u64 = 8;
/// Truth table of the XOR of three.
const XOR3: i32 = 0x96;

xts_kernel! {
    /// The kernel of CPUs with VAES and AVX-512.
    Avx512Xts, Avx512, "avx512f,avx512bw,vaes,vpclmulqdq", "aes-xts (vaes, avx512)"
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn crypt_unit<const ENCRYPT: bool>(
    keys: &Schedule,
    [a, b]: Powers,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) {
    let (first, last) = (broadcast(&keys.first), broadcast(&keys.last));
    let masks = [
        xor(a, last),
        xor(b, last),
        xor(times_bytes::<1, 15>(a), last),
        xor(times_bytes::<1, 15>(b), last),
        xor(times_bytes::<2, 14>(a), last),
        xor(times_bytes::<2, 14>(b), last),
        xor(times_bytes::<3, 13>(a), last),
        xor(times_bytes::<3, 13>(b), last),
    ];
    let mut state = masks;
    let (source, _) = data.get_in().as_slice().as_chunks::<64>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = _mm512_ternarylogic_epi64::<XOR3>(*state, load(source), first);
    }
    for key in keys.middle() {
        let key = broadcast(key);
        for state in &mut state {
            *state = match ENCRYPT {
                true => _mm512_aesenc_epi128(*state, key),
                false => _mm512_aesdec_epi128(*state, key),
            };
        }
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<64>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm512_aesenclast_epi128(state, mask),
            false => _mm512_aesdeclast_epi128(state, mask),
        };
        store(destination, out);
    }
}

/// A and B of a sector's first unit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    let tweak = broadcast(tweak);
    [
        times_x(tweak, _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0)),
        times_x(tweak, _mm512_set_epi64(7, 7, 6, 6, 5, 5, 4, 4)),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn next_powers([a, b]: Powers) -> Powers {
    [times_bytes::<4, 12>(a), times_bytes::<4, 12>(b)]
}

/// Each block times x^power, its own power of 0 to 7 in both of its halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn times_x(tweak: __m512i, power: __m512i) -> __m512i {
    let shifted = _mm512_sllv_epi64(tweak, power);
    // 64 - 0 shifts everything out.
    let over = _mm512_srlv_epi64(tweak, _mm512_sub_epi64(_mm512_set1_epi64(64), power));
    // What leaves the low half enters the high one; what leaves the high half is reduced.
    let carried = _mm512_bslli_epi128::<8>(over);
    let reduced = _mm512_clmulepi64_epi128::<0x01>(over, _mm512_set1_epi64(REDUCTION));
    _mm512_ternarylogic_epi64::<XOR3>(shifted, carried, reduced)
}

/// Each block times x^(8 · `LEFT`); `RIGHT` is 16 - `LEFT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn times_bytes<const LEFT: i32, const RIGHT: i32>(tweak: __m512i) -> __m512i {
    const { assert!(LEFT + RIGHT == 16) };
    let over = _mm512_bsrli_epi128::<RIGHT>(tweak);
    let reduced = _mm512_clmulepi64_epi128::<0x00>(over, _mm512_set1_epi64(REDUCTION));
    xor(_mm512_bslli_epi128::<LEFT>(tweak), reduced)
}

/// The encrypted IVs of the next sectors, [`IV_GROUP`] at a time.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn encrypt_ivs(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = broadcast(&ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    // The low half of each block counts, the high one stays 0.
    let [n0, n1, n2, n3] = [0, 1, 2, 3].map(|n| ivs.nth(n).cast_signed());
    let mut low = _mm512_set_epi64(0, n3, 0, n2, 0, n1, 0, n0);
    let step = ivs.step.wrapping_mul(4).cast_signed();
    let step = _mm512_set_epi64(0, step, 0, step, 0, step, 0, step);
    for group in groups {
        let high = _mm512_add_epi64(low, step);
        let numbers = [low, high];
        low = _mm512_add_epi64(high, step);
        ivs.next = ivs.nth(SECTORS);
        let mut state = numbers.map(|number| {
            let iv = _mm512_shuffle_epi8(_mm512_srl_epi64(number, shift), places);
            xor(iv, broadcast(&keys.first))
        });
        for key in keys.middle() {
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
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn xor(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn broadcast(block: &[u8; 16]) -> __m512i {
    // SAFETY: `block` is 16 bytes to read; this load needs no alignment.
    let block = unsafe { _mm_loadu_si128(block.as_ptr().cast::<__m128i>()) };
    _mm512_broadcast_i32x4(block)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn load(source: &[u8; 64]) -> __m512i {
    // SAFETY: `source` is 64 bytes to read; this load needs no alignment.
    unsafe { _mm512_loadu_si512(source.as_ptr().cast::<__m512i>()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn store(destination: &mut [u8; 64], value: __m512i) {
    // SAFETY: `destination` is 64 bytes to write, borrowed by nobody else; this store needs no
    // alignment.
    unsafe { _mm512_storeu_si512(destination.as_mut_ptr().cast::<__m512i>(), value) }
}
