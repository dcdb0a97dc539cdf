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
//! A unit of AES-256 is 14 pairs of AESE and AESMC (the last one alone) for each block, and 8 or 9
//! instructions besides: two XORs with the mask, five or six to make the next unit's, and its part
//! of loads and stores. Where AES takes one of two ports, or two of four, the others have time for
//! all of those, and the rounds are the limit; a CPU with AES on all of four ports is bound to
//! about 14 of 22 of its AES rate. No figure here was measured: these kernels were proved on an
//! emulated CPU, whose time says nothing.

#![allow(unsafe_code)]

mod aes;
mod armv8;

/// Proves what key schedules take.
pub(super) use crate::cpu::detection::Armv8 as AesCpu;
pub(super) use aes::{inverse_mix_columns, sub_word};
pub(super) use armv8::Armv8Xts;

/// A round key once.
pub(super) const ROUND_KEY_BYTES: usize = 16;
