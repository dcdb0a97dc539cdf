//! Our AES-XTS kernel for 64-bit ARM.
//!
//! ```text
//!   armv8     8 registers of 1 block in flight     a unit of 128 bytes
//! ```
//!
//! Fast for the same reasons as the kernels of x86 (`xts/x86.rs`), and for these:
//! * AESE adds the round key before the round instead of after it, so the first one adds
//!   `k_0 ^ k_last` for free. AESE and AESMC stay adjacent, so that most CPUs fuse them.
//! * Multiplying a mask by x^8 moves it up by one byte, and the byte that falls out comes back times
//!   0x87. Each of the next unit's masks comes from one of this unit's, so that none waits for another.
//! * Powers and reductions use the polynomial multiplication of bytes that every CPU with vectors has.
//!   The 64-bit one, PMULL, would compete with the AES rounds for a port on many CPUs.
//!
//! A block of AES-256 takes 14 pairs of AESE and AESMC (the last AESE alone) and 7 more instructions
//! on a vector port: two XORs with the mask, and five to make the next unit's (six where a sector
//! begins). About five others, loads, stores and counters, need none. Where AES has one of two vector
//! ports, or two of four, the others have time for the seven, and the rounds are the limit. A CPU with
//! AES on every port is limited to 14 of 21, two thirds of its AES rate. These counts are from the
//! assembly. Nothing was measured: the kernel was tested on an emulated CPU, whose timing means
//! nothing. `cargo bench -p cryptline-cipher` measures it on a real one.

#![allow(unsafe_code)]

mod aes;
mod armv8;

/// Proves what key schedules take.
pub(super) use crate::cpu::detection::Armv8 as AesCpu;
pub(super) use aes::{inverse_mix_columns, sub_word};
pub(super) use armv8::Armv8Xts;

/// A round key once.
pub(super) const ROUND_KEY_BYTES: usize = 16;
