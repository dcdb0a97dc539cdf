//! The polynomial of Poly1305, without the secret that a message authentication code adds to it.
//!
//! ```text
//!   b1 .. bn  ─►  (b1 + 2^128) x^n + .. + (bn + 2^128) x   modulo 2^130 - 5, of it the low 128 bits
//! ```
//!
//! Adiantum hashes at most eight blocks. RustCrypto's `poly1305` first prepares for long messages,
//! which takes several times as long as the work here; the tests compare with it.
//!
//! Sources: Bernstein, "The Poly1305-AES message-authentication code" (2005); RFC 8439, 2.5.

use aes::Block;
use zeroize::Zeroizing;

/// Bits of the key that count.
const CLAMP: u128 = 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;

/// The point at which polynomials are evaluated.
pub(super) struct Polynomial {
    /// Low and high half, both below 2^60.
    point: Zeroizing<[u64; 2]>,
}

/// A number below 2^131: its low 128 bits and the others.
#[derive(Clone, Copy)]
struct PolyNumber {
    low: u128,
    top: u64,
}

impl Polynomial {
    pub(super) fn at(key: &[u8; 16]) -> Polynomial {
        let point = Zeroizing::new(u128::from_le_bytes(*key) & CLAMP);
        Polynomial { point: Zeroizing::new(halves(*point)) }
    }

    /// The value of the polynomial whose coefficients are `blocks`.
    pub(super) fn value(&self, blocks: &[Block]) -> u128 {
        let zero = PolyNumber { low: 0, top: 0 };
        let sum = blocks.iter().fold(zero, |sum, block| {
            let (low, carry) = sum.low.overflowing_add(u128::from_le_bytes((*block).into()));
            self.times_point(PolyNumber { low, top: sum.top + u64::from(carry) + 1 })
        });
        sum.reduced()
    }

    /// 2^130 is 5, so what is left of it is added 5 times below it. The high half of the point is
    /// a multiple of 4, so 2^128 times that is 5/4 of it.
    fn times_point(&self, number: PolyNumber) -> PolyNumber {
        let [x0, x1] = *self.point;
        let folded = x1 + (x1 >> 2);
        let [n0, n1] = halves(number.low);
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let [low, carry] = halves(product(n0, x0) + product(n1, folded));
        let middle = product(n0, x1) + product(n1, x0) + product(number.top, folded);
        let [middle, carry] = halves(middle + u128::from(carry));
        let top = number.top * x0 + carry;
        let above = (top >> 2) + (top & !3);
        let low = u128::from(low) | u128::from(middle) << 64;
        let (low, carry) = low.overflowing_add(above.into());
        PolyNumber { low, top: (top & 3) + u64::from(carry) }
    }
}

impl PolyNumber {
    /// The low 128 bits once 2^130 - 5 is taken off, if it can be; in the same time if not.
    fn reduced(self) -> u128 {
        let (less, carry) = self.low.overflowing_add(5);
        let at_least = u128::from((self.top + u64::from(carry)) >> 2).min(1);
        let choose = at_least.wrapping_neg();
        less & choose | self.low & !choose
    }
}

fn halves(number: u128) -> [u64; 2] {
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    [half(number), half(number >> 64)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cipher::KeyInit;
    use poly1305::Poly1305;
    use proptest::prelude::*;

    /// RustCrypto's, with zeros as the secret.
    fn expected(key: [u8; 16], blocks: &[Block]) -> u128 {
        let mut with_zeros = [0; 32];
        with_zeros[..16].copy_from_slice(&key);
        let polynomial = Poly1305::new(&with_zeros.into());
        let value = polynomial.compute_unpadded(Block::slice_as_flattened(blocks));
        u128::from_le_bytes(value.into())
    }

    /// Bytes with many carries among them.
    fn bytes() -> impl Strategy<Value = [u8; 16]> {
        prop_oneof![any::<[u8; 16]>(), prop::array::uniform16(prop::sample::select(vec![0, 1, 0xfb, 0xfc, 0xff])),]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]
        #[test]
        fn values_are_those_of_poly1305(
            key in bytes(),
            blocks in prop::collection::vec(bytes().prop_map(Block::from), 0..12),
        ) {
            prop_assert_eq!(Polynomial::at(&key).value(&blocks), expected(key, &blocks));
        }
    }

    /// The points 1 and 2 reach every number around the modulus.
    #[test]
    fn numbers_around_the_modulus_are_reduced() {
        for point in [1, 2] {
            let mut key = [0; 16];
            key[0] = point;
            for below in 0..16_u128 {
                for last in [0, 1, 3, 4, 5, 6, u128::MAX, u128::MAX - below] {
                    let blocks = [u128::MAX - below, u128::MAX, last];
                    let blocks = blocks.map(|block| Block::from(block.to_le_bytes()));
                    for blocks in [&blocks[..], &blocks[..1], &blocks[1..]] {
                        let value = Polynomial::at(&key).value(blocks);
                        assert_eq!(value, expected(key, blocks), "{point} {below} {last}");
                    }
                }
            }
        }
    }
}
