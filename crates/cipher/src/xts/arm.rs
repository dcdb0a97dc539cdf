//! The AES-XTS kernel of our own for 64-bit ARM.
//!
//! ```text
//!   armv8     8 registers of 1 block in flight     a unit of 128 bytes
//! ```
//!
//! What makes it fast is what makes those of x86 fast (`xts/x86.rs`), and:
//! * AESE adds the round key before its round and not after it, so it takes `k_0 ^ k_last` of the
//!   first one for nothing; AESE and AESMC stand side by side, which most CPUs run as one.
//! * A mask times x^8 is whole bytes moved up by one and the byte that leaves times 0x87: the next
//!   unit's masks come from this unit's, each from its own, so that none waits for another.
//! * Powers and reduction are by the multiplication of bytes that every CPU with vectors has. The
//!   long one, PMULL of 64 bits, would share the port of the AES rounds on many.
//!
//! For each block AES-256 is 14 pairs of AESE and AESMC, the last one alone; 7 instructions besides
//! need a vector port: two XORs with the mask and five to make the next unit's (six where a sector
//! begins). About five more, loads, stores and counters, do not. Where AES has one of two vector
//! ports, or two of four, the others have time for the seven, and the rounds are the limit; a CPU
//! with AES on all of its ports is bound to 14 of 21, two thirds of its AES rate. These are counts
//! from the assembly: nothing was measured, since the kernel was proved on an emulated CPU, whose
//! time says nothing. `cargo bench -p cryptline-cipher` measures it, on a real one.

#![allow(unsafe_code)]

mod aes;
mod armv8;

/// Proves what key schedules take.
pub(super) use crate::cpu::detection::Armv8 as AesCpu;
pub(super) use aes::{inverse_mix_columns, sub_word};
pub(super) use armv8::Armv8Xts;

/// A round key once.
pub(super) const ROUND_KEY_BYTES: usize = 16;
