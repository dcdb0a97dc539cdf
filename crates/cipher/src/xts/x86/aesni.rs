//! AES-NI: units of 128 bytes, eight registers of one block.
//!
//! ```text
//!   T ──► T·x ──► T·x^2 ──► .. T·x^7     doubled one by one
//!                              T·x^8     the next unit's
//! ```

use std::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128,
    _mm_aesenclast_si128, _mm_and_si128, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi32,
    _mm_set_epi64x, _mm_shuffle_epi8, _mm_shuffle_epi32, _mm_srai_epi32, _mm_srl_epi64,
    _mm_storeu_si128, _mm_xor_si128,
};

use cipher::Array;
use cipher::consts::U128;
use cipher::inout::{InOut, InOutBuf};

use super::driver::{IV_BATCH, IV_GROUP, IvGroup, SectorTweaks, xts_kernel};
use super::keys::{Keys, Schedule};
use crate::cpu::detection::AesNi;
use crate::iv::IvSequence;
use crate::xts::{XtsKernel, advance, from_bytes, to_bytes};

type Unit = U128;
/// The tweaks of a unit's blocks.
type Powers = [__m128i; 8];

/// Sectors in an [`IvGroup`].
const SECTORS: u64 = 8;

xts_kernel! {
    /// The kernel of CPUs with AES-NI.
    AesNiXts, AesNi, "aes,ssse3", "aes-xts (aesni)"
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn crypt_unit<const ENCRYPT: bool>(
    keys: &Schedule,
    powers: Powers,
    mut data: InOut<'_, '_, Array<u8, Unit>>,
) {
    let (first, last) = (load(&keys.first), load(&keys.last));
    let masks = powers.map(|power| _mm_xor_si128(power, last));
    let mut state = masks.map(|mask| _mm_xor_si128(mask, first));
    let (source, _) = data.get_in().as_slice().as_chunks::<16>();
    for (state, source) in state.iter_mut().zip(source) {
        *state = _mm_xor_si128(*state, load(source));
    }
    for key in keys.middle() {
        let key = load(key);
        for state in &mut state {
            *state = match ENCRYPT {
                true => _mm_aesenc_si128(*state, key),
                false => _mm_aesdec_si128(*state, key),
            };
        }
    }
    let (destination, _) = data.get_out().as_mut_slice().as_chunks_mut::<16>();
    for ((state, mask), destination) in state.into_iter().zip(masks).zip(destination) {
        let out = match ENCRYPT {
            true => _mm_aesenclast_si128(state, mask),
            false => _mm_aesdeclast_si128(state, mask),
        };
        store(destination, out);
    }
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn first_powers(tweak: &[u8; 16]) -> Powers {
    powers_from(load(tweak))
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn next_powers(powers: Powers) -> Powers {
    powers_from(double(powers[7]))
}

#[inline]
#[target_feature(enable = "aes,ssse3")]
fn powers_from(first: __m128i) -> Powers {
    let mut powers = [first; 8];
    for at in 1..8 {
        powers[at] = double(powers[at - 1]);
    }
    powers
}

/// Times x.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn double(tweak: __m128i) -> __m128i {
    // The top bits of both halves, spread over the words that they change: bit 127 over the low
    // half's, where it is x^7 + x^2 + x + 1, and bit 63 over the high half's lowest.
    let top = _mm_shuffle_epi32::<0x13>(_mm_srai_epi32::<31>(tweak));
    let carried = _mm_and_si128(top, _mm_set_epi32(0, 1, 0, 0x87));
    _mm_xor_si128(_mm_add_epi64(tweak, tweak), carried)
}

/// The encrypted IVs of the next sectors, a group at a time.
#[inline]
#[target_feature(enable = "aes,ssse3")]
fn encrypt_ivs(keys: &Schedule, ivs: &mut IvSequence, groups: &mut [IvGroup]) {
    let places = load(&ivs.layout.byte_places());
    let shift = _mm_cvtsi64_si128(i64::from(ivs.shift));
    for group in groups {
        let mut state = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| {
            let number = _mm_set_epi64x(0, ivs.nth(n).cast_signed());
            let iv = _mm_shuffle_epi8(_mm_srl_epi64(number, shift), places);
            _mm_xor_si128(iv, load(&keys.first))
        });
        ivs.next = ivs.nth(SECTORS);
        for key in keys.middle() {
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
