//! The AES instructions that key schedules take.

use std::arch::aarch64::{
    vaeseq_u8, vaesimcq_u8, vdupq_n_u8, vdupq_n_u32, vgetq_lane_u32, vld1q_u8, vreinterpretq_u8_u32,
    vreinterpretq_u32_u8, vst1q_u8,
};

use crate::cpu::detection::Armv8;

/// The S-box on each byte, by the processor's own.
pub(in crate::xts) fn sub_word(_: Armv8, word: [u8; 4]) -> [u8; 4] {
    #[target_feature(enable = "aes")]
    fn by_instruction(word: u32) -> u32 {
        // SubBytes and ShiftRows, which moves nothing where all columns are the same.
        let columns = vreinterpretq_u8_u32(vdupq_n_u32(word));
        vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(columns, vdupq_n_u8(0))))
    }
    // SAFETY: an `Armv8` exists only where the CPU has `aes`, the only feature that the function
    // is compiled for.
    unsafe { by_instruction(u32::from_le_bytes(word)) }.to_le_bytes()
}

/// Inverse MixColumns, as the equivalent inverse cipher applies it to the keys between the first and the last one.
pub(in crate::xts) fn inverse_mix_columns(_: Armv8, key: &[u8; 16]) -> [u8; 16] {
    #[target_feature(enable = "aes")]
    fn by_instruction(key: &[u8; 16]) -> [u8; 16] {
        let mut inverse = [0; 16];
        // SAFETY: `key` is 16 bytes to read and `inverse` 16 bytes to write, both live and apart;
        // these moves need no alignment.
        unsafe { vst1q_u8(inverse.as_mut_ptr(), vaesimcq_u8(vld1q_u8(key.as_ptr()))) };
        inverse
    }
    // SAFETY: an `Armv8` exists only where the CPU has `aes`, the only feature that the function
    // is compiled for.
    unsafe { by_instruction(key) }
}
