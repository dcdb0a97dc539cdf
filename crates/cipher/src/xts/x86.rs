//! AES-XTS kernels of our own for x86-64, one for each width of the AES instructions.
//!
//! ```text
//!   avx512    8 registers of 4 blocks in flight     a unit of 512 bytes
//!   avx2      8 registers of 2 blocks               256 bytes
//!   aesni     8 registers of 1 block                128 bytes
//! ```
//!
//! What makes them fast:
//! * The IVs of 8 sectors are encrypted together, since one alone costs the latency of all its
//!   rounds, and those after them as many as 8 registers hold; the tweaks of a unit come from its
//!   first one and not each from the one before.
//! * All waits for the first IV: nothing is loaded, shuffled or stored on its way that need not be.
//! * The last round key is folded into the tweak: with `m = tweak ^ k_last` the text enters as
//!   `text ^ m ^ (k_0 ^ k_last)` and the last round takes `m` as its key, which leaves one XOR
//!   fewer for each block.
//! * Rounds go over all eight registers in turn, so that the AES unit never waits for a result, and
//!   the next unit's tweaks are made between them in even parts.
//!
//! Order is kept by empty pieces of assembly. Miri knows no assembly, so they are left out there,
//! and it runs all the rest: every pointer in these files.
//!
//! Time depends on lengths only: no table look-ups, no branch on key, text or tweak.

#![allow(unsafe_code)]

mod aes;
mod aesni;
mod avx2;
mod avx512;

/// Proves what key schedules take.
pub(super) use crate::cpu::detection::AesNi as AesCpu;
pub(super) use aes::{inverse_mix_columns, sub_word};

/// A round key four times: the width of AVX-512.
pub(super) const ROUND_KEY_BYTES: usize = 64;

pub(super) use aesni::AesNiXts;
pub(super) use avx2::Avx2Xts;
pub(super) use avx512::Avx512Xts;
