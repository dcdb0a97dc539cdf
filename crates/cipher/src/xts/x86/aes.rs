//! The AES instructions that key schedules take.

use std::arch::x86_64::{
    __m128i, _mm_aesenclast_si128, _mm_aesimc_si128, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_set1_epi32,
    _mm_setzero_si128, _mm_storeu_si128,
};

use crate::cpu::detection::AesNi;

/// The S-box on each byte, by the processor's own.
pub(in crate::xts) fn sub_word(_: AesNi, word: [u8; 4]) -> [u8; 4] {
    #[target_feature(enable = "aes")]
    fn by_instruction(word: i32) -> i32 {
        // The last round is SubBytes and ShiftRows, which moves nothing where all columns are the
        // same.
        _mm_cvtsi128_si32(_mm_aesenclast_si128(_mm_set1_epi32(word), _mm_setzero_si128()))
    }
    // SAFETY: an `AesNi` exists only where the CPU has `aes`, the only feature that the function
    // is compiled for.
    unsafe { by_instruction(i32::from_le_bytes(word)) }.to_le_bytes()
}

/// Inverse MixColumns, as the equivalent inverse cipher applies it to the keys between the first and the last one.
pub(in crate::xts) fn inverse_mix_columns(_: AesNi, key: &[u8; 16]) -> [u8; 16] {
    #[target_feature(enable = "aes")]
    fn by_instruction(key: &[u8; 16]) -> [u8; 16] {
        let mut inverse = [0; 16];
        // SAFETY: `key` is 16 bytes to read and `inverse` 16 bytes to write, both live and apart;
        // these moves need no alignment.
        unsafe {
            let mixed = _mm_aesimc_si128(_mm_loadu_si128(key.as_ptr().cast::<__m128i>()));
            _mm_storeu_si128(inverse.as_mut_ptr().cast::<__m128i>(), mixed);
        }
        inverse
    }
    // SAFETY: an `AesNi` exists only where the CPU has `aes`, the only feature that the function
    // is compiled for.
    unsafe { by_instruction(key) }
}
