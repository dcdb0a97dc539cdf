//! Lookups in tables of 256 bytes that are read as a whole, by the VBMI of x86-64: in constant time.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_blend_epi8, _mm512_movepi8_mask,
    _mm512_permutex2var_epi8, _mm512_set4_epi32, _mm512_shuffle_epi8, _mm512_unpackhi_epi8, _mm512_unpackhi_epi16,
    _mm512_unpacklo_epi8, _mm512_unpacklo_epi16,
};

use super::Words512;
use crate::cpu::detection::ByteLookups;

/// Bytes of a vector.
const VECTOR: usize = size_of::<__m512i>();

impl Words512 {
    /// The sums modulo 2^32.
    #[inline(always)]
    pub(in crate::modes) fn add(self, other: Words512) -> Words512 {
        // SAFETY: there are values of this type, so the CPU has the feature.
        Words512(unsafe { _mm512_add_epi32(self.0, other.0) })
    }
}

/// Entries of `table` for the bytes of `places`.
#[inline(always)]
pub(in crate::modes) fn looked_up(_: ByteLookups, table: &[u8; 256], Words512(places): Words512) -> Words512 {
    let (parts, _) = table.as_chunks::<VECTOR>();
    // SAFETY: each part has the bytes of a vector to read, these loads need no alignment, the rest is on
    // registers only, and the proof given says that the CPU has the features.
    Words512(unsafe {
        let (a, b) = (_mm512_loadu_si512(parts[0].as_ptr().cast()), _mm512_loadu_si512(parts[1].as_ptr().cast()));
        let (c, d) = (_mm512_loadu_si512(parts[2].as_ptr().cast()), _mm512_loadu_si512(parts[3].as_ptr().cast()));
        let (low, high) = (_mm512_permutex2var_epi8(a, places, b), _mm512_permutex2var_epi8(c, places, d));
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high)
    })
}

/// Byte n of all words in the n-th vector, where the last two vectors' words are taken for rotated to the
/// left by a byte.
#[inline(always)]
pub(in crate::modes) fn bytes_apart([a, b, c, d]: [Words512; 4]) -> [Words512; 4] {
    // Four words' first bytes, then the second ones, and so on; or their last bytes, then the first ones.
    // SAFETY: registers only; the CPU has the features, `avx512bw` among them, as there are values of
    // this type.
    unsafe {
        let places = _mm512_set4_epi32(0x0f0b_0703, 0x0e0a_0602, 0x0d09_0501, 0x0c08_0400);
        let rotated = _mm512_set4_epi32(0x0e0a_0602, 0x0d09_0501, 0x0c08_0400, 0x0f0b_0703);
        Words512::transposed([
            Words512(_mm512_shuffle_epi8(a.0, places)),
            Words512(_mm512_shuffle_epi8(b.0, places)),
            Words512(_mm512_shuffle_epi8(c.0, rotated)),
            Words512(_mm512_shuffle_epi8(d.0, rotated)),
        ])
    }
}

/// Undoes [`bytes_apart`], but for the rotation.
#[inline(always)]
pub(in crate::modes) fn bytes_together([a, b, c, d]: [Words512; 4]) -> [Words512; 4] {
    // SAFETY: as above.
    unsafe {
        let (low, high) = (_mm512_unpacklo_epi8(a.0, b.0), _mm512_unpackhi_epi8(a.0, b.0));
        let (other_low, other_high) = (_mm512_unpacklo_epi8(c.0, d.0), _mm512_unpackhi_epi8(c.0, d.0));
        [
            Words512(_mm512_unpacklo_epi16(low, other_low)),
            Words512(_mm512_unpackhi_epi16(low, other_low)),
            Words512(_mm512_unpacklo_epi16(high, other_high)),
            Words512(_mm512_unpackhi_epi16(high, other_high)),
        ]
    }
}
