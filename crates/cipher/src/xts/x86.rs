//! AES-XTS kernels of our own for x86-64, one for each width of the AES instructions.
//!
//! ```text
//!   keys      key schedules in the order and form that the kernels read them
//!   driver    requests, sectors, tails: the same for every width
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
//! Time depends on lengths only: no table look-ups, no branch on key, text or tweak.

#![allow(unsafe_code)]

mod aesni;
mod avx2;
mod avx512;
mod driver;
mod keys;

pub(super) use aesni::AesNiXts;
pub(super) use avx2::Avx2Xts;
pub(super) use avx512::Avx512Xts;
