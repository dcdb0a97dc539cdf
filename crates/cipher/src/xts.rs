//! XTS over whole requests (IEEE 1619-2007): many cipher sectors in one call.
//!
//! ```text
//!                        ┌─ x86::avx512   VAES, 512-bit registers
//!   kernel(backend, key) ├─ x86::Avx2     VAES, 256-bit registers
//!      = dyn XtsKernel   ├─ x86::AesNi    AES-NI, 128-bit registers
//!                        ├─ arm::Armv8    ARMv8's AES, 128-bit registers
//!                        └─ BatchedXts    RustCrypto's AES, on every machine
//! ```
//!
//! The kernels for x86 and ARM differ in their inner loops only: `driver` cuts requests into sectors
//! and tails, `keys` holds the key schedules in the layout in which they are read.
//!
//! A library call per sector pays the latency of encrypting one IV each time, which halves the rate
//! for 512-byte sectors. So a kernel takes a whole request.

use aes::{Aes128, Aes192, Aes256};

use crate::cpu::XtsBackend;
use crate::iv::IvSequence;

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod driver;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod keys;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
use arm as native;
#[cfg(target_arch = "x86_64")]
use x86 as native;

#[cfg(target_arch = "x86_64")]
pub(crate) use keys::{BlockKeys, RoundKey, Schedule, opaque};

use portable::BatchedXts;

/// Bytes in a cipher block.
const BLOCK_BYTES: usize = 16;

/// One implementation of XTS with its expanded keys.
///
/// Works on `data` in place, in time that depends on lengths and places only, never on key or data.
pub(crate) trait XtsKernel: Send + Sync {
    /// `data` is whole cipher sectors of `sector_bytes` (a multiple of 512). `ivs` gives the
    /// first IV and the step.
    fn encrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]);
    fn decrypt(&self, ivs: IvSequence, sector_bytes: usize, data: &mut [u8]);
    /// `data` is some blocks of the one sector whose IV is the first of `ivs`, and
    /// `blocks_before` blocks of that sector precede it.
    fn encrypt_slice(&self, ivs: IvSequence, blocks_before: usize, data: &mut [u8]);
    fn decrypt_slice(&self, ivs: IvSequence, blocks_before: usize, data: &mut [u8]);
    /// Implementation and the CPU features it uses, for people.
    fn name(&self) -> &'static str;
}

/// The kernel of `backend` with `key` (data key, then tweak key: 32, 48 or 64 bytes) expanded;
/// nothing if this CPU has not what it takes.
///
/// The schedules are in key memory, and moving the cipher about moves no more than their address.
pub(crate) fn kernel(backend: XtsBackend, key: &[u8]) -> Option<Box<dyn XtsKernel>> {
    match backend {
        #[cfg(target_arch = "x86_64")]
        XtsBackend::Avx512 => x86::avx512(key),
        #[cfg(target_arch = "x86_64")]
        XtsBackend::Avx2 => Some(Box::new(x86::Avx2Xts::new(key)?)),
        #[cfg(target_arch = "x86_64")]
        XtsBackend::AesNi => Some(Box::new(x86::AesNiXts::new(key)?)),
        #[cfg(not(target_arch = "x86_64"))]
        XtsBackend::Avx512 | XtsBackend::Avx2 | XtsBackend::AesNi => None,
        #[cfg(target_arch = "aarch64")]
        XtsBackend::Armv8 => Some(Box::new(arm::Armv8Xts::new(key)?)),
        #[cfg(not(target_arch = "aarch64"))]
        XtsBackend::Armv8 => None,
        XtsBackend::Portable => Some(match key.len() {
            32 => Box::new(BatchedXts::<Aes128>::new(key)),
            48 => Box::new(BatchedXts::<Aes192>::new(key)),
            _ => Box::new(BatchedXts::<Aes256>::new(key)),
        }),
    }
}

/// A block as a polynomial over GF(2): bit n of the first half is x^n, of the second x^(64+n),
/// modulo x^128 + x^7 + x^2 + x + 1 (IEEE 1619-2007, 5.2).
type Tweak = [u64; 2];

/// Multiplies by x^`power`, at most 57. Shifts and XORs only: no tables, no branches.
#[inline(always)]
fn times_x([low, high]: Tweak, power: u64) -> Tweak {
    // Two shifts: 64 - power in one would be a shift by 64 for power 0.
    let carry = (low >> 1) >> (63 - power);
    let overflow = (high >> 1) >> (63 - power);
    // x^128 is x^7 + x^2 + x + 1.
    let reduced = overflow ^ (overflow << 1) ^ (overflow << 2) ^ (overflow << 7);
    [(low << power) ^ reduced, (high << power) | carry]
}

/// The tweak `blocks` blocks later.
fn advance(mut tweak: Tweak, mut blocks: usize) -> Tweak {
    while blocks > 0 {
        let step = blocks.min(32);
        tweak = times_x(tweak, u64::try_from(step).unwrap_or(0));
        blocks -= step;
    }
    tweak
}

fn from_bytes(block: [u8; BLOCK_BYTES]) -> Tweak {
    let (halves, _) = block.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

fn to_bytes([low, high]: Tweak) -> [u8; BLOCK_BYTES] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}
