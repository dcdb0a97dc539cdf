//! A key of which so many of several pins give enough: Shamir's shares over the numbers modulo a prime.
//!
//! A share is a point (x, y) of a polynomial whose value at 0 is the key.

use base64ct::{Base64UrlUnpadded, Encoding};
use cryptline::{SecretBuf, TokenRefusal};
use serde_json::{Value, json};
use zeroize::Zeroize;

use super::jwe::Jwe;

/// Bytes of a number.
const LEN: usize = 32;
/// Pins that are asked, and shares that are needed, at most.
pub const PINS_MAX: usize = 32;
/// 2^256 - 189, the largest prime of this length. Shares tell nothing whatever the prime is, and readers take any:
/// clevis makes another one for each token.
const PRIME: ShareNumber = ShareNumber([u64::MAX - 188, u64::MAX, u64::MAX, u64::MAX]);

/// The key that the pins of this header give; `open` opens one of them, and is told how many may be asked yet, with it.
pub fn key_of(
    header: &Value,
    mut open: impl FnMut(&Jwe, usize) -> Result<SecretBuf, TokenRefusal>,
) -> Result<SecretBuf, TokenRefusal> {
    let sss = &header["clevis"]["sss"];
    let needed = sss["t"].as_u64().and_then(|it| usize::try_from(it).ok()).filter(|it| (1..=PINS_MAX).contains(it));
    let needed = needed.ok_or("it does not say how many of its pins are needed")?;
    let mut prime = [0; LEN];
    let text = sss["p"].as_str().unwrap_or_default();
    let decoded = Base64UrlUnpadded::decode(text, &mut prime);
    if decoded.map(<[u8]>::len) != Ok(LEN) {
        return Err("its prime is not of 256 bits".into());
    }
    let field = Field(ShareNumber::of(&prime));
    let mut shares: Vec<SecretShare> = Vec::with_capacity(needed);
    let mut last = TokenRefusal::from("it has too few pins");
    let pins = sss["jwe"].as_array().map_or(&[][..], Vec::as_slice);
    let pins = &pins[..pins.len().min(PINS_MAX)];
    for (place, pin) in pins.iter().enumerate() {
        let left = pins.len() - place;
        let opened =
            Jwe::compact(pin.as_str().unwrap_or_default()).map_err(TokenRefusal::from).and_then(|jwe| open(&jwe, left));
        match opened.and_then(|bytes| SecretShare::of(&bytes, &field)) {
            Ok(share) if shares.iter().any(|it| it.x == share.x) => {}
            Ok(share) => shares.push(share),
            Err(refusal) => last = refusal,
        }
        if shares.len() == needed {
            return field.at_zero(&shares);
        }
    }
    Err(last)
}

/// A new key, and shares of it without end.
pub struct Dealer {
    /// The lowest power first: the key is the value at 0.
    coefficients: Vec<ShareNumber>,
}

impl Drop for Dealer {
    fn drop(&mut self) {
        self.coefficients.iter_mut().for_each(|it| it.0.zeroize());
    }
}

impl Dealer {
    /// So many shares give the key.
    pub fn new(needed: usize) -> Result<Self, String> {
        // Not moved while it grows: what is left behind would not be wiped.
        let mut coefficients = Vec::with_capacity(needed);
        for _ in 0..needed {
            coefficients.push(ShareNumber::random()?);
        }
        Ok(Self { coefficients })
    }

    /// The key.
    pub fn key(&self) -> Result<SecretBuf, String> {
        let key = self.coefficients.first().ok_or("no share is needed")?;
        let mut bytes = SecretBuf::zeroed(LEN).map_err(|error| error.to_string())?;
        key.put(&mut bytes);
        Ok(bytes)
    }

    /// Another share.
    pub fn share(&self) -> Result<SecretBuf, String> {
        let field = Field(PRIME);
        let mut x = ShareNumber::random()?;
        while x.is_zero() {
            x = ShareNumber::random()?;
        }
        let mut y = ShareNumber::ZERO;
        for coefficient in self.coefficients.iter().rev() {
            y = field.add(&field.mul(&y, &x), coefficient);
        }
        let share = SecretShare { x, y };
        let mut bytes = SecretBuf::zeroed(2 * LEN).map_err(|error| error.to_string())?;
        let (x, y) = bytes.split_at_mut(LEN);
        share.x.put(x);
        share.y.put(y);
        Ok(bytes)
    }

    /// Returns the header that says how the key comes of these pins, each with a share.
    pub fn header(&self, pins: Vec<String>) -> Value {
        let mut prime = [0; LEN];
        PRIME.put(&mut prime);
        let prime = Base64UrlUnpadded::encode_string(&prime);
        let needed = self.coefficients.len();
        json!({
            "alg": "dir",
            "clevis": {"pin": "sss", "sss": {"jwe": pins, "p": prime, "t": needed}},
            "enc": "A256GCM",
        })
    }
}

struct SecretShare {
    x: ShareNumber,
    y: ShareNumber,
}

/// Enough of them are the key.
impl Drop for SecretShare {
    fn drop(&mut self) {
        self.x.0.zeroize();
        self.y.0.zeroize();
    }
}

impl SecretShare {
    fn of(bytes: &[u8], field: &Field) -> Result<Self, TokenRefusal> {
        let Some((x, y)) = bytes.split_at_checked(LEN).filter(|(_, y)| y.len() == LEN) else {
            return Err("one of its pins gives no share".into());
        };
        let share = Self { x: ShareNumber::of(x), y: ShareNumber::of(y) };
        if share.x.is_zero() || !share.x.is_below(&field.0) || !share.y.is_below(&field.0) {
            return Err("one of its pins gives no share".into());
        }
        Ok(share)
    }
}

/// 256 bits, the lowest first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShareNumber([u64; 4]);

impl ShareNumber {
    const ZERO: Self = Self([0; 4]);
    const ONE: Self = Self([1, 0, 0, 0]);

    fn of(bytes: &[u8]) -> Self {
        let mut number = Self::ZERO;
        for (word, bytes) in number.0.iter_mut().rev().zip(bytes.chunks(8)) {
            *word = bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        number
    }

    /// Below [`PRIME`].
    fn random() -> Result<Self, String> {
        loop {
            let bytes = SecretBuf::random(LEN).map_err(|error| error.to_string())?;
            let number = Self::of(&bytes);
            if number.is_below(&PRIME) {
                return Ok(number);
            }
        }
    }

    /// The highest byte first.
    fn put(&self, bytes: &mut [u8]) {
        for (bytes, word) in bytes.chunks_mut(8).zip(self.0.iter().rev()) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }

    fn is_zero(&self) -> bool {
        self.0 == [0; 4]
    }

    fn is_below(&self, other: &Self) -> bool {
        self.minus(other).1
    }

    fn bit(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// And whether there is a carry.
    fn plus(&self, other: &Self) -> (Self, bool) {
        let (mut sum, mut carry) = (Self::ZERO, false);
        for (place, (a, b)) in sum.0.iter_mut().zip(self.0.iter().zip(other.0)) {
            let (half, first) = a.overflowing_add(b);
            let (whole, second) = half.overflowing_add(u64::from(carry));
            (*place, carry) = (whole, first || second);
        }
        (sum, carry)
    }

    /// And whether it is below zero.
    fn minus(&self, other: &Self) -> (Self, bool) {
        let (mut rest, mut borrow) = (Self::ZERO, false);
        for (place, (a, b)) in rest.0.iter_mut().zip(self.0.iter().zip(other.0)) {
            let (half, first) = a.overflowing_sub(b);
            let (whole, second) = half.overflowing_sub(u64::from(borrow));
            (*place, borrow) = (whole, first || second);
        }
        (rest, borrow)
    }
}

/// The numbers below a prime. Of another modulus the answers are of no use, and there is no other harm.
struct Field(ShareNumber);

impl Field {
    fn add(&self, a: &ShareNumber, b: &ShareNumber) -> ShareNumber {
        let (sum, carry) = a.plus(b);
        let (reduced, is_below) = sum.minus(&self.0);
        if carry || !is_below { reduced } else { sum }
    }

    fn sub(&self, a: &ShareNumber, b: &ShareNumber) -> ShareNumber {
        let (rest, is_below) = a.minus(b);
        if is_below { rest.plus(&self.0).0 } else { rest }
    }

    fn mul(&self, a: &ShareNumber, b: &ShareNumber) -> ShareNumber {
        (0..256).rev().fold(ShareNumber::ZERO, |sum, bit| {
            let twice = self.add(&sum, &sum);
            if b.bit(bit) { self.add(&twice, a) } else { twice }
        })
    }

    /// Returns what gives one when it is multiplied with `a`: the power p - 2, after Fermat.
    fn inverse(&self, a: &ShareNumber) -> ShareNumber {
        let power = self.0.minus(&ShareNumber([2, 0, 0, 0])).0;
        (0..256).rev().fold(ShareNumber::ONE, |product, bit| {
            let square = self.mul(&product, &product);
            if power.bit(bit) { self.mul(&square, a) } else { square }
        })
    }

    /// Returns the value at 0 of the polynomial through these points, after Lagrange.
    fn at_zero(&self, shares: &[SecretShare]) -> Result<SecretBuf, TokenRefusal> {
        let mut sum = ShareNumber::ZERO;
        for one in shares {
            let (mut term, mut distance) = (one.y, ShareNumber::ONE);
            for other in shares.iter().filter(|other| other.x != one.x) {
                term = self.mul(&term, &other.x);
                distance = self.mul(&distance, &self.sub(&other.x, &one.x));
            }
            sum = self.add(&sum, &self.mul(&term, &self.inverse(&distance)));
        }
        let mut key = SecretBuf::zeroed(LEN).map_err(|error| error.to_string())?;
        sum.put(&mut key);
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_shares_give_the_value_at_zero() {
        let field = Field(PRIME);
        let number = |seed: u64| {
            let word = |by| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.rotate_left(by));
            ShareNumber([word(1), word(17), word(33), word(49)])
        };
        let (secret, slope, bend) = (number(1), number(2), number(3));
        let point = |x: u64| {
            let x = number(x + 10);
            let y = field.add(&field.mul(&bend, &x), &slope);
            let y = field.add(&field.mul(&y, &x), &secret);
            SecretShare { x, y }
        };
        for chosen in [[1, 2, 3], [7, 5, 4]] {
            let key = field.at_zero(&chosen.map(point)).ok().unwrap();
            assert!(ShareNumber::of(&key) == secret);
        }
        let too_few = field.at_zero(&[point(1), point(2)]).ok().unwrap();
        assert!(ShareNumber::of(&too_few) != secret);
        assert!(field.mul(&slope, &field.inverse(&slope)) == ShareNumber::ONE);
    }

    #[test]
    fn shares_that_were_dealt_give_the_key_and_too_few_do_not() {
        for needed in 1..=4 {
            let dealer = Dealer::new(needed).unwrap();
            let key = dealer.key().unwrap();
            let field = Field(PRIME);
            let deal = |number| {
                let shares = (0..number).map(|_| dealer.share().unwrap());
                let shares: Vec<_> = shares.map(|share| SecretShare::of(&share, &field).ok().unwrap()).collect();
                field.at_zero(&shares).ok().unwrap()
            };
            assert!(deal(needed)[..] == key[..], "{needed}");
            assert!(deal(needed - 1)[..] != key[..], "{needed}");
        }
    }

    #[test]
    fn hostile_numbers_end() {
        for modulus in [ShareNumber::ZERO, ShareNumber::ONE, ShareNumber([2, 0, 0, 0])] {
            let field = Field(modulus);
            let share = |x| SecretShare { x: ShareNumber([x, 0, 0, 0]), y: ShareNumber([u64::MAX; 4]) };
            assert!(field.at_zero(&[share(1), share(2)]).is_ok());
        }
    }
}
