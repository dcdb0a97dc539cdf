//! [`BlockWords`] in the vectors of x86-64.
//!
//! A value of these types is the proof that its instructions may run: whatever makes the first one
//! takes the CPU's proof.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, __m512i, _mm_cvtsi32_si128, _mm256_and_si256, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_sll_epi32, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
    _mm512_and_si512, _mm512_andnot_si512, _mm512_loadu_si512, _mm512_or_si512, _mm512_rol_epi32, _mm512_set1_epi32,
    _mm512_sll_epi32, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::BlockWords;
use crate::cpu::detection;

#[path = "bytes_x86.rs"]
mod bytes;
#[path = "lookups_x86.rs"]
mod lookups;

pub(in crate::modes) use bytes::{sliced, sliced_name};
pub(in crate::modes) use lookups::{bytes_apart, bytes_together, looked_up};

/// `$rotate` is `$word` rotated by the constants `LEFT` and `RIGHT`.
macro_rules! words {
    ($(#[$doc:meta])* $words:ident($vector:ty), $cpu:ty, $blocks:literal, $load:ident, $store:ident,
     $splat:ident, $xor:ident, $and:ident, $or:ident, $not_and:ident, $shift:ident,
     $low32:ident, $high32:ident, $low64:ident, $high64:ident, $word:ident => $rotate:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(in crate::modes) struct $words($vector);

        impl $words {
            /// Words of blocks to blocks of words, and back.
            #[inline(always)]
            fn transposed(rows: [$words; 4]) -> [$words; 4] {
                let [$words(a), $words(b), $words(c), $words(d)] = rows;
                // SAFETY: registers only, and there are values of this type.
                unsafe {
                    let (low, high) = ($low32(a, b), $high32(a, b));
                    let (other_low, other_high) = ($low32(c, d), $high32(c, d));
                    [
                        $words($low64(low, other_low)),
                        $words($high64(low, other_low)),
                        $words($low64(high, other_high)),
                        $words($high64(high, other_high)),
                    ]
                }
            }
        }

        // Every operation below is on registers only, so the one thing it asks for is the feature.
        impl BlockWords for $words {
            type Cpu = $cpu;
            const BLOCKS: usize = $blocks;

            #[inline(always)]
            fn load(_: $cpu, blocks: &[[u8; 16]]) -> [$words; 4] {
                let (rows, _) = blocks.as_flattened().as_chunks::<{ 4 * $blocks }>();
                let rows: &[_; 4] = rows.first_chunk().expect("as many blocks as lanes");
                // SAFETY: each row has the bytes of a vector to read, these loads need no alignment,
                // and the proof given says that the CPU has the feature.
                let rows = unsafe {
                    [
                        $words($load(rows[0].as_ptr().cast())),
                        $words($load(rows[1].as_ptr().cast())),
                        $words($load(rows[2].as_ptr().cast())),
                        $words($load(rows[3].as_ptr().cast())),
                    ]
                };
                $words::transposed(rows)
            }

            #[inline(always)]
            fn store(words: [$words; 4], blocks: &mut [[u8; 16]]) {
                let (rows, _) = blocks.as_flattened_mut().as_chunks_mut::<{ 4 * $blocks }>();
                let rows: &mut [_; 4] = rows.first_chunk_mut().expect("as many blocks as lanes");
                for (row, words) in rows.iter_mut().zip($words::transposed(words)) {
                    // SAFETY: a row has the bytes of a vector to write, borrowed by nobody else, the
                    // store needs no alignment, and there are values of this type.
                    unsafe { $store(row.as_mut_ptr().cast(), words.0) }
                }
            }

            #[inline(always)]
            fn splat(_: $cpu, word: u32) -> $words {
                // SAFETY: the proof given says that the CPU has the feature.
                $words(unsafe { $splat(word.cast_signed()) })
            }

            #[inline(always)]
            fn opaque<C>(cipher: &C) -> &C {
                crate::xts::opaque(cipher)
            }

            #[inline(always)]
            fn xor(self, other: $words) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            fn and(self, other: $words) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $and(self.0, other.0) })
            }

            #[inline(always)]
            fn or(self, other: $words) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $or(self.0, other.0) })
            }

            #[inline(always)]
            fn not_and(self, other: $words) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $not_and(self.0, other.0) })
            }

            #[inline(always)]
            fn not(self) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $xor(self.0, $splat(-1)) })
            }

            #[inline(always)]
            fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> $words {
                let $word = self.0;
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $rotate })
            }

            #[inline(always)]
            fn shift_left<const BITS: i32>(self) -> $words {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $words(unsafe { $shift(self.0, _mm_cvtsi32_si128(BITS)) })
            }
        }
    };
}

words! {
    /// Eight blocks' words, by AVX2.
    Words256(__m256i), detection::Words256, 8, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_set1_epi32, _mm256_xor_si256, _mm256_and_si256, _mm256_or_si256, _mm256_andnot_si256,
    _mm256_sll_epi32, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64,
    word => _mm256_or_si256(_mm256_slli_epi32::<LEFT>(word), _mm256_srli_epi32::<RIGHT>(word))
}

words! {
    /// Sixteen blocks' words, by AVX-512.
    Words512(__m512i), detection::Avx512, 16, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_set1_epi32, _mm512_xor_si512, _mm512_and_si512, _mm512_or_si512, _mm512_andnot_si512,
    _mm512_sll_epi32, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64, word => _mm512_rol_epi32::<LEFT>(word)
}
