//! NH, the fast half of Adiantum's hash: products of sums, 32 bytes for every 1024.
//!
//! ```text
//!   words of unit u   m0 m1 m2 m3           (16 bytes)
//!   words of its key  k0 k1 k2 k3           in pass p those of unit u + p
//!   sum of pass p     (m0 + k0) (m2 + k2) + (m1 + k1) (m3 + k3) over all units
//! ```
//!
//! Words are little-endian; factors are modulo 2^32, sums modulo 2^64. Left and right factors are
//! stored separately, so that the same loop serves vectors of any width.
//!
//! Source: Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level
//! processors" (2018).

use aes::Block;
use zeroize::Zeroizing;

/// Units of 16 bytes that make one hash.
pub(super) const UNITS: usize = 64;
const PASSES: usize = 4;
/// Left or right factors in the key: two a unit, and each pass begins one unit later.
const KEY_FACTORS: usize = 2 * (UNITS + PASSES - 1);
/// Bytes of key.
pub(super) const KEY_BYTES: usize = KEY_FACTORS * 8;

/// Left or right factors of a message.
type Factors = [u32; 2 * UNITS];

/// Names of the hash and the stream cipher that goes with it, for people.
pub(super) fn backend_name() -> &'static str {
    if wide_registers() { "RustCrypto chacha20 + NH (avx2)" } else { "RustCrypto chacha20 + NH" }
}

/// A key in the order of the loop.
pub(super) struct Nh {
    left: Zeroizing<[u32; KEY_FACTORS]>,
    right: Zeroizing<[u32; KEY_FACTORS]>,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    wide: bool,
}

impl Nh {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Nh {
        let mut left = Zeroizing::new([0; KEY_FACTORS]);
        let mut right = Zeroizing::new([0; KEY_FACTORS]);
        let units = key.as_chunks::<16>().0;
        for ((left, right), unit) in left.chunks_mut(2).zip(right.chunks_mut(2)).zip(units) {
            let words = words(unit);
            left.copy_from_slice(&words[..2]);
            right.copy_from_slice(&words[2..]);
        }
        Nh { left, right, wide: wide_registers() }
    }

    /// The hash of up to [`UNITS`] units: the sums of the four passes, little-endian.
    pub(super) fn hash(&self, units: &[Block]) -> [Block; 2] {
        let sums = self.sums(units);
        let block = |low: u64, high: u64| (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        [block(sums[0], sums[1]).into(), block(sums[2], sums[3]).into()]
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    fn sums(&self, units: &[Block]) -> [u64; PASSES] {
        if self.wide {
            // SAFETY: `wide` is set only where the CPU has AVX2, all that the function asks for.
            return unsafe { sums_avx2(&self.left, &self.right, units) };
        }
        sums(&self.left, &self.right, units)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn sums(&self, units: &[Block]) -> [u64; PASSES] {
        sums(&self.left, &self.right, units)
    }
}

#[cfg(target_arch = "x86_64")]
fn wide_registers() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn wide_registers() -> bool {
    false
}

/// [`sums`] in 256-bit registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sums_avx2(left: &[u32; KEY_FACTORS], right: &[u32; KEY_FACTORS], units: &[Block]) -> [u64; PASSES] {
    sums(left, right, units)
}

#[inline(always)]
fn sums(left: &[u32; KEY_FACTORS], right: &[u32; KEY_FACTORS], units: &[Block]) -> [u64; PASSES] {
    let mut message: [Factors; 2] = [[0; 2 * UNITS]; 2];
    let [message_left, message_right] = &mut message;
    let factors = message_left.as_chunks_mut::<2>().0.iter_mut();
    let factors = factors.zip(message_right.as_chunks_mut::<2>().0);
    for ((left, right), unit) in factors.zip(units) {
        [left[0], left[1], right[0], right[1]] = words(unit.as_ref());
    }
    let factors = 2 * units.len();
    let (message_left, message_right) = (&message_left[..factors], &message_right[..factors]);
    std::array::from_fn(|pass| {
        let left = left[2 * pass..].iter().zip(message_left);
        let right = right[2 * pass..].iter().zip(message_right);
        let products =
            left.zip(right).map(|((k, m), (l, n))| u64::from(m.wrapping_add(*k)) * u64::from(n.wrapping_add(*l)));
        products.fold(0, u64::wrapping_add)
    })
}

#[inline(always)]
fn words(unit: &[u8; 16]) -> [u32; 4] {
    let bytes = unit.as_chunks::<4>().0;
    std::array::from_fn(|place| u32::from_le_bytes(bytes[place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word by word, in every number of units.
    #[test]
    fn sums_are_those_of_the_definition() {
        let key: [u8; KEY_BYTES] = std::array::from_fn(|place| (place * 151 % 253).to_le_bytes()[0]);
        let key_words: Vec<u32> = key.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let text: Vec<Block> = (0..UNITS)
            .map(|unit| std::array::from_fn::<u8, 16, _>(|place| (unit * 37 + place * 201).to_le_bytes()[0]).into())
            .collect();
        let mut nh = Nh::new(&key);
        for len in 0..=UNITS {
            let sum = |pass: usize| {
                text[..len].iter().enumerate().fold(0_u64, |sum, (unit, text)| {
                    let m = words(text.as_ref());
                    let k = &key_words[4 * (unit + pass)..];
                    let factor = |place: usize| u64::from(m[place].wrapping_add(k[place]));
                    sum.wrapping_add(factor(0) * factor(2)).wrapping_add(factor(1) * factor(3))
                })
            };
            let expected: Vec<u8> = (0..PASSES).flat_map(|pass| sum(pass).to_le_bytes()).collect();
            for wide in [false, wide_registers()] {
                nh.wide = wide;
                assert_eq!(nh.hash(&text[..len]).concat(), expected, "{len}");
            }
        }
    }
}
