//! Our AES-XTS kernels for x86-64, one for each width of the AES instructions.
//!
//! ```text
//!   avx512    8 registers of 4 blocks in flight     a unit of 512 bytes
//!   avx2      8 registers of 2 blocks               256 bytes
//!   aesni     8 registers of 1 block                128 bytes
//! ```
//!
//! Reasons for their speed:
//! * Of several sectors, the first 8 IVs are encrypted together, since one alone costs the latency of all
//!   its rounds; after these, as many as 8 registers hold. The tweaks of a unit all come from its first
//!   one, not each from the one before.
//! * Everything waits for the first IV, so nothing is loaded, shuffled or stored on its way that need
//!   not be.
//! * The last round key is folded into the tweak: with `m = tweak ^ k_last` the text enters as
//!   `text ^ m ^ (k_0 ^ k_last)` and the last round takes `m` as its key, which saves one XOR for
//!   each block.
//! * Each round goes over all eight registers, so that the AES unit never waits for a result, and the
//!   next unit's tweaks are computed between the rounds, spread evenly.
//!
//! Empty `asm!` blocks keep instructions in order. Miri does not know assembly, so they are left out
//! there; it runs everything else, every pointer in these files included.
//!
//! Time depends on lengths only: no table lookups, no branch on key, text or tweak.

#![allow(unsafe_code)]

mod aes;
mod aesni;
mod avx2;
mod avx512;
mod registers;

use super::XtsKernel;
/// Proves what key schedules take.
pub(super) use crate::cpu::detection::AesNi as AesCpu;
pub(super) use aes::{inverse_mix_columns, sub_word};

/// A round key four times: the width of AVX-512.
pub(super) const ROUND_KEY_BYTES: usize = 64;

pub(super) use aesni::AesNiXts;
pub(super) use avx2::Avx2Xts;

/// The kernel for 512-bit registers that suits this CPU.
pub(super) fn avx512(key: &[u8]) -> Option<Box<dyn XtsKernel>> {
    if crate::cpu::detection::shifts_beside_aes() {
        return Some(Box::new(avx512::shifts::Avx512Xts::new(key)?));
    }
    Some(Box::new(avx512::products::Avx512Xts::new(key)?))
}
