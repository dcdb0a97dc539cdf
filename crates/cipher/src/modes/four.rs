//! Four AES blocks side by side, in vectors of any width: one source of each mode for all of them.
//!
//! ```text
//!   trait Four ─┬ Zmm   one register     VAES, AVX-512
//!               ├ Ymm   two registers    VAES
//!               └ Xmm   four registers   AES-NI
//! ```
//!
//! A value of these types is the proof that its instructions may run: whatever makes the first one
//! takes the CPU's proof.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_aesdec_si128, _mm_aesdeclast_si128, _mm_aesenc_si128, _mm_aesenclast_si128,
    _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm256_aesdec_epi128, _mm256_aesdeclast_epi128,
    _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_alignr_epi64, _mm512_loadu_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_xor_si512,
};

use crate::cpu::detection;
use crate::xts::RoundKey;

/// Four blocks in memory: a cache line's bytes.
pub(super) type FourBlocks = [[u8; 16]; 4];

/// Four blocks.
pub(super) trait Four: Copy {
    /// Proves that this CPU has what the operations take.
    type Cpu: Copy;
    /// The same round key for all of them, in one register.
    type Key: Copy;

    fn load(cpu: Self::Cpu, line: &FourBlocks) -> Self;
    fn store(self, line: &mut FourBlocks);
    fn key(cpu: Self::Cpu, key: &RoundKey) -> Self::Key;
    fn xor(self, other: Self) -> Self;
    fn xor_key(self, key: Self::Key) -> Self;
    fn encrypt(self, key: Self::Key) -> Self;
    fn encrypt_last(self, key: Self::Key) -> Self;
    fn decrypt(self, key: Self::Key) -> Self;
    /// The last round with a key for each block.
    fn decrypt_last(self, keys: Self) -> Self;
    /// The last block of `before`, then the first three of these.
    fn behind(self, before: Self) -> Self;
    /// Block n of the m-th four becomes block m of the n-th.
    fn transposed(fours: [Self; 4]) -> [Self; 4];
}

/// `$count` registers of type `$vector`; `$behind` and `$transposed` are functions over these.
macro_rules! four {
    ($(#[$doc:meta])* $four:ident([$vector:ty; $count:literal]), $cpu:ty, $load:ident, $store:ident,
     $xor:ident, $enc:ident, $enc_last:ident, $dec:ident, $dec_last:ident, $behind:ident,
     $transposed:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $four([$vector; $count]);

        /// A register's bytes.
        const _: () = assert!(size_of::<$four>() == size_of::<FourBlocks>());

        // Every operation on values is on registers only, so the one thing it asks for is the feature.
        // What SSE2 has, every x86-64 has.
        #[allow(unused_unsafe)]
        impl Four for $four {
            type Cpu = $cpu;
            type Key = $vector;

            #[inline(always)]
            fn load(_: $cpu, line: &FourBlocks) -> $four {
                let (parts, _) = line.as_flattened().as_chunks::<{ 64 / $count }>();
                let parts: &[_; $count] = parts.first_chunk().expect("a line has as many");
                // SAFETY: the part has the bytes of a register to read, this load needs no alignment,
                // and the proof given says that the CPU has the feature.
                let mut four = [unsafe { $load(parts[0].as_ptr().cast()) }; $count];
                for (register, part) in four.iter_mut().zip(parts) {
                    // SAFETY: as above.
                    *register = unsafe { $load(part.as_ptr().cast()) };
                }
                $four(four)
            }

            #[inline(always)]
            fn store(self, line: &mut FourBlocks) {
                let (parts, _) = line.as_flattened_mut().as_chunks_mut::<{ 64 / $count }>();
                for (part, register) in parts.iter_mut().zip(self.0) {
                    // SAFETY: the part has the bytes of a register to write, borrowed by nobody else,
                    // the store needs no alignment, and there are values of this type.
                    unsafe { $store(part.as_mut_ptr().cast(), register) }
                }
            }

            #[inline(always)]
            fn key(_: $cpu, key: &RoundKey) -> $vector {
                // SAFETY: a round key has the bytes of the widest register to read, this load needs no
                // alignment, and the proof given says that the CPU has the feature.
                unsafe { $load(key.as_ptr().cast()) }
            }

            #[inline(always)]
            fn xor(mut self, other: $four) -> $four {
                for (register, other) in self.0.iter_mut().zip(other.0) {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $xor(*register, other) };
                }
                self
            }

            #[inline(always)]
            fn xor_key(mut self, key: $vector) -> $four {
                for register in &mut self.0 {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $xor(*register, key) };
                }
                self
            }

            #[inline(always)]
            fn encrypt(mut self, key: $vector) -> $four {
                for register in &mut self.0 {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $enc(*register, key) };
                }
                self
            }

            #[inline(always)]
            fn encrypt_last(mut self, key: $vector) -> $four {
                for register in &mut self.0 {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $enc_last(*register, key) };
                }
                self
            }

            #[inline(always)]
            fn decrypt(mut self, key: $vector) -> $four {
                for register in &mut self.0 {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $dec(*register, key) };
                }
                self
            }

            #[inline(always)]
            fn decrypt_last(mut self, keys: $four) -> $four {
                for (register, key) in self.0.iter_mut().zip(keys.0) {
                    // SAFETY: there are values of this type, so the CPU has the feature.
                    *register = unsafe { $dec_last(*register, key) };
                }
                self
            }

            #[inline(always)]
            fn behind(self, before: $four) -> $four {
                // SAFETY: there are values of this type, so the CPU has the feature.
                $four(unsafe { $behind(self.0, before.0) })
            }

            #[inline(always)]
            fn transposed([a, b, c, d]: [$four; 4]) -> [$four; 4] {
                // SAFETY: there are values of this type, so the CPU has the feature.
                let [a, b, c, d] = unsafe { $transposed([a.0, b.0, c.0, d.0]) };
                [$four(a), $four(b), $four(c), $four(d)]
            }
        }
    };
}

four! {
    /// In one register of AVX-512.
    Zmm([__m512i; 1]), detection::Avx512, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_xor_si512, _mm512_aesenc_epi128, _mm512_aesenclast_epi128, _mm512_aesdec_epi128,
    _mm512_aesdeclast_epi128, behind_512, transposed_512
}

four! {
    /// In two registers of AVX2.
    Ymm([__m256i; 2]), detection::Avx2, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256,
    _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_aesdec_epi128,
    _mm256_aesdeclast_epi128, behind_256, transposed_256
}

four! {
    /// In four registers of SSE.
    Xmm([__m128i; 4]), detection::AesNi, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128,
    _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aesdec_si128, _mm_aesdeclast_si128, behind_128,
    transposed_128
}

#[inline]
#[target_feature(enable = "avx512f")]
fn behind_512([now]: [__m512i; 1], [before]: [__m512i; 1]) -> [__m512i; 1] {
    [_mm512_alignr_epi64::<6>(now, before)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn behind_256([low, high]: [__m256i; 2], [_, before]: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_permute2x128_si256::<0x21>(before, low), _mm256_permute2x128_si256::<0x21>(low, high)]
}

#[inline]
#[target_feature(enable = "aes")]
fn behind_128([a, b, c, _]: [__m128i; 4], [.., before]: [__m128i; 4]) -> [__m128i; 4] {
    [before, a, b, c]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn transposed_512([[a], [b], [c], [d]]: [[__m512i; 1]; 4]) -> [[__m512i; 1]; 4] {
    let (even_ab, odd_ab) = (_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b));
    let (even_cd, odd_cd) = (_mm512_shuffle_i32x4::<0b10_00_10_00>(c, d), _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d));
    [
        [_mm512_shuffle_i32x4::<0b10_00_10_00>(even_ab, even_cd)],
        [_mm512_shuffle_i32x4::<0b10_00_10_00>(odd_ab, odd_cd)],
        [_mm512_shuffle_i32x4::<0b11_01_11_01>(even_ab, even_cd)],
        [_mm512_shuffle_i32x4::<0b11_01_11_01>(odd_ab, odd_cd)],
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn transposed_256([a, b, c, d]: [[__m256i; 2]; 4]) -> [[__m256i; 2]; 4] {
    [
        [low_halves(a[0], b[0]), low_halves(c[0], d[0])],
        [high_halves(a[0], b[0]), high_halves(c[0], d[0])],
        [low_halves(a[1], b[1]), low_halves(c[1], d[1])],
        [high_halves(a[1], b[1]), high_halves(c[1], d[1])],
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn low_halves(a: __m256i, b: __m256i) -> __m256i {
    _mm256_permute2x128_si256::<0x20>(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn high_halves(a: __m256i, b: __m256i) -> __m256i {
    _mm256_permute2x128_si256::<0x31>(a, b)
}

#[inline]
#[target_feature(enable = "aes")]
fn transposed_128([a, b, c, d]: [[__m128i; 4]; 4]) -> [[__m128i; 4]; 4] {
    [[a[0], b[0], c[0], d[0]], [a[1], b[1], c[1], d[1]], [a[2], b[2], c[2], d[2]], [a[3], b[3], c[3], d[3]]]
}
