//! How long a cipher takes here, measured when a volume is opened.

use std::time::{Duration, Instant};

use cryptline_cipher::SectorCipher;
use cryptline_sys::on_secret_stack;

/// Bytes of the first look, and of the later ones if the first was quick.
const SHORT: usize = 4096;
const LONG: usize = 32 * 1024;
/// A cipher that takes longer for [`SHORT`] bytes need not be measured more closely.
const SLOW: Duration = Duration::from_micros(200);

/// The speed of a cipher on one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CipherPace {
    picos_per_byte: u64,
}

impl CipherPace {
    /// Measures `cipher`; takes a millisecond or two for a fast one. On a stack of its own, since round keys
    /// can come to lie there; where none can be had, on the caller's.
    pub fn of(cipher: &SectorCipher) -> Self {
        on_secret_stack(|| Self::measure(cipher)).unwrap_or_else(|_| Self::measure(cipher))
    }

    fn measure(cipher: &SectorCipher) -> Self {
        let mut data = vec![0; LONG];
        let mut take = |len: usize| {
            let start = Instant::now();
            cipher.decrypt_in_place(0, &mut data[..len]);
            start.elapsed()
        };
        // The first time warms caches and fills lazily made tables.
        let first = take(SHORT);
        let (time, len) =
            if first > SLOW { (take(SHORT), SHORT) } else { ((0..4).map(|_| take(LONG)).min().unwrap_or(first), LONG) };
        let picos = time.as_nanos().saturating_mul(1000) / len as u128;
        Self { picos_per_byte: u64::try_from(picos).unwrap_or(u64::MAX).max(1) }
    }

    /// Bytes that take `time`.
    pub fn bytes_in(self, time: Duration) -> usize {
        let picos = time.as_nanos().saturating_mul(1000);
        usize::try_from(picos / u128::from(self.picos_per_byte)).unwrap_or(usize::MAX)
    }

    /// The time that `bytes` take.
    pub fn time_of(self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as u64).saturating_mul(self.picos_per_byte) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_time_are_two_sides_of_one_speed() {
        let pace = CipherPace { picos_per_byte: 200 };
        assert_eq!(pace.bytes_in(Duration::from_micros(1)), 5000);
        assert_eq!(pace.time_of(5000), Duration::from_micros(1));
        assert_eq!(pace.time_of(usize::MAX), pace.time_of(usize::MAX));
    }
}
