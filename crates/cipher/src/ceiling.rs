//! The peak rate of this CPU's AES instructions (rounds on registers and nothing else), and the share
//! of it that some work reaches.
//!
//! ```text
//!   ceiling  work  ceiling  work  ceiling ..      about 5 and 20 µs each
//!      └──────┬──────┘
//!   a sample: work / mean of both ceilings; discarded if the two differ
//! ```
//!
//! The clock and the neighbours of a virtual machine change from moment to moment, so a speed alone
//! says little; its ratio to a ceiling measured just before and after says more. For benchmarks only.

#![cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), allow(unsafe_code))]

use std::time::Instant;

use crate::XtsBackend;

/// A width of the AES instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AesWidth(VectorRegisters);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorRegisters {
    /// `vaesenc` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Zmm,
    /// `vaesenc` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    Ymm,
    /// `aesenc`, or ARM's `aese` and `aesmc`.
    Xmm,
}

/// Measurement by [`AesWidth::share`]: medians of the samples that nothing disturbed.
#[derive(Debug, Clone, Copy)]
pub struct CeilingShare {
    /// Bytes a second.
    pub rate: f64,
    /// The rate over that of the bare rounds.
    pub of_ceiling: f64,
    /// How many samples there were.
    pub kept: usize,
}

/// Rounds that one pass of a loop below does, on as many registers.
const PER_PASS: u32 = 12;
/// Passes in a measurement: about 5 µs.
const PASSES: u32 = 1000;
/// Rounds of one dependent chain, for the latency.
const CHAIN: u32 = 4000;
/// Ceilings before and after a sample that differ by more were disturbed. So was a sample whose
/// ceiling is this far from the median of all.
const DISTURBED: f64 = 0.02;

impl AesWidth {
    /// The one that the kernels of `backend` are held against: the widest of this CPU, but
    /// AES-NI's own for AES-NI, which has a half or a quarter of the others'. Nothing on a CPU
    /// whose ceiling is not known.
    #[must_use]
    pub fn of(backend: XtsBackend) -> Option<AesWidth> {
        let widest = VectorRegisters::widest()?;
        Some(AesWidth(match backend {
            XtsBackend::AesNi | XtsBackend::Armv8 => VectorRegisters::Xmm,
            _ => widest,
        }))
    }

    /// Measures `work`, which enciphers `bytes` bytes in `rounds` rounds each, so many times.
    pub fn share(self, rounds: u32, bytes: u32, samples: usize, mut work: impl FnMut()) -> CeilingShare {
        let mut sampled = Vec::with_capacity(samples);
        work();
        let mut before = self.ceiling(rounds);
        for _ in 0..samples {
            let start = Instant::now();
            work();
            let rate = f64::from(bytes) / start.elapsed().as_secs_f64();
            let after = self.ceiling(rounds);
            if (before / after - 1.0).abs() < DISTURBED {
                sampled.push((f64::midpoint(before, after), rate));
            }
            before = after;
        }
        let usual = middle(sampled.iter().map(|(ceiling, _)| *ceiling));
        sampled.retain(|(ceiling, _)| (ceiling / usual - 1.0).abs() < DISTURBED);
        let ratios = sampled.iter().map(|(ceiling, rate)| rate / ceiling);
        CeilingShare {
            of_ceiling: middle(ratios),
            rate: middle(sampled.iter().map(|(_, rate)| *rate)),
            kept: sampled.len(),
        }
    }

    /// Bytes a second through `rounds` rounds, now.
    fn ceiling(self, rounds: u32) -> f64 {
        let start = Instant::now();
        self.0.run();
        let bytes = f64::from(PASSES * PER_PASS * self.0.blocks() * 16);
        bytes / start.elapsed().as_secs_f64() / f64::from(rounds)
    }

    /// Nanoseconds from the input of a round to its output.
    #[must_use]
    pub fn round_latency(self) -> f64 {
        let samples = (0..51).map(|_| {
            let start = Instant::now();
            self.0.run_chain();
            start.elapsed().as_secs_f64() * 1e9 / f64::from(CHAIN)
        });
        middle(samples)
    }
}

/// The middle value, or the mean of the two in the middle; none of none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A quarter of the values lies below the first and a quarter above the second; 0 of none.
#[must_use]
pub fn quartiles(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    [last / 4, last - last / 4].map(|at| sorted.get(at).copied().unwrap_or(0.0))
}

/// Distance of the quartiles over the median: half of the values are this close together.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let [low, high] = quartiles(values);
    match median(values) {
        None | Some(0.0) => 0.0,
        Some(median) => (high - low) / median,
    }
}

/// Not a number of none.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

impl VectorRegisters {
    fn blocks(self) -> u32 {
        match self {
            #[cfg(target_arch = "x86_64")]
            VectorRegisters::Zmm => 4,
            #[cfg(target_arch = "x86_64")]
            VectorRegisters::Ymm => 2,
            VectorRegisters::Xmm => 1,
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl VectorRegisters {
    /// The only maker of a value, besides [`AesWidth::of`], which makes it smaller.
    fn widest() -> Option<VectorRegisters> {
        if !is_x86_feature_detected!("aes") {
            return None;
        }
        let vaes = is_x86_feature_detected!("vaes");
        if vaes && is_x86_feature_detected!("avx512f") {
            Some(VectorRegisters::Zmm)
        } else if vaes && is_x86_feature_detected!("avx2") {
            Some(VectorRegisters::Ymm)
        } else {
            Some(VectorRegisters::Xmm)
        }
    }

    fn run(self) {
        // SAFETY: a value is what `widest` found or smaller, so the CPU has the instructions; the
        // functions ask for nothing else.
        unsafe {
            match self {
                VectorRegisters::Zmm => zmm(PASSES),
                VectorRegisters::Ymm => ymm(PASSES),
                VectorRegisters::Xmm => xmm(PASSES),
            }
        }
    }

    fn run_chain(self) {
        // SAFETY: there is a value, so `widest` found `aes`, all that the function asks for.
        unsafe { chain(CHAIN) }
    }
}

#[cfg(target_arch = "aarch64")]
impl VectorRegisters {
    /// The only maker of a value, besides [`AesWidth::of`].
    fn widest() -> Option<VectorRegisters> {
        std::arch::is_aarch64_feature_detected!("aes").then_some(VectorRegisters::Xmm)
    }

    fn run(self) {
        // SAFETY: there is a value, so `widest` found `aes`, all that the function asks for.
        unsafe { twelve(PASSES) }
    }

    fn run_chain(self) {
        // SAFETY: as above.
        unsafe { chain(CHAIN) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl VectorRegisters {
    fn widest() -> Option<VectorRegisters> {
        None
    }

    fn run(self) {}

    fn run_chain(self) {}
}

#[cfg(target_arch = "x86_64")]
macro_rules! rounds {
    ($name:ident, $features:literal, $instruction:literal, $after:literal) => {
        #[target_feature(enable = $features)]
        fn $name(passes: u32) {
            // SAFETY: changes only the counter and vector registers, all declared; no memory, no
            // stack. The counter is not 0, so the loop ends.
            unsafe {
                std::arch::asm!(
                    "2:",
                    $instruction, "dec {passes:e}", "jnz 2b",
                    $after,
                    passes = inout(reg) passes => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                    out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    options(nomem, nostack)
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
rounds!(
    zmm,
    "avx512f,vaes",
    "
    vaesenc zmm0, zmm0, zmm0
    vaesenc zmm1, zmm1, zmm1
    vaesenc zmm2, zmm2, zmm2
    vaesenc zmm3, zmm3, zmm3
    vaesenc zmm4, zmm4, zmm4
    vaesenc zmm5, zmm5, zmm5
    vaesenc zmm6, zmm6, zmm6
    vaesenc zmm7, zmm7, zmm7
    vaesenc zmm8, zmm8, zmm8
    vaesenc zmm9, zmm9, zmm9
    vaesenc zmm10, zmm10, zmm10
    vaesenc zmm11, zmm11, zmm11",
    "vzeroupper"
);
#[cfg(target_arch = "x86_64")]
rounds!(
    ymm,
    "avx2,vaes",
    "
    vaesenc ymm0, ymm0, ymm0
    vaesenc ymm1, ymm1, ymm1
    vaesenc ymm2, ymm2, ymm2
    vaesenc ymm3, ymm3, ymm3
    vaesenc ymm4, ymm4, ymm4
    vaesenc ymm5, ymm5, ymm5
    vaesenc ymm6, ymm6, ymm6
    vaesenc ymm7, ymm7, ymm7
    vaesenc ymm8, ymm8, ymm8
    vaesenc ymm9, ymm9, ymm9
    vaesenc ymm10, ymm10, ymm10
    vaesenc ymm11, ymm11, ymm11",
    "vzeroupper"
);
#[cfg(target_arch = "x86_64")]
rounds!(
    xmm,
    "aes",
    "
    aesenc xmm0, xmm0
    aesenc xmm1, xmm1
    aesenc xmm2, xmm2
    aesenc xmm3, xmm3
    aesenc xmm4, xmm4
    aesenc xmm5, xmm5
    aesenc xmm6, xmm6
    aesenc xmm7, xmm7
    aesenc xmm8, xmm8
    aesenc xmm9, xmm9
    aesenc xmm10, xmm10
    aesenc xmm11, xmm11",
    ""
);
// One register after itself.
#[cfg(target_arch = "x86_64")]
rounds!(chain, "aes", "aesenc xmm0, xmm0", "");

#[cfg(target_arch = "aarch64")]
macro_rules! rounds {
    ($name:ident, $($register:literal)*) => {
        #[target_feature(enable = "aes")]
        fn $name(passes: u32) {
            // SAFETY: changes only the counter and vector registers, all declared; no memory, no
            // stack. The counter is not 0, so the loop ends.
            unsafe {
                std::arch::asm!(
                    "2:",
                    $(
                        concat!("aese v", $register, ".16b, v31.16b"),
                        concat!("aesmc v", $register, ".16b, v", $register, ".16b"),
                    )*
                    "subs {passes:w}, {passes:w}, #1", "b.ne 2b",
                    passes = inout(reg) passes => _,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                    out("v4") _, out("v5") _, out("v6") _, out("v7") _,
                    out("v16") _, out("v17") _, out("v18") _, out("v19") _,
                    options(nomem, nostack)
                );
            }
        }
    };
}

// `PER_PASS` registers.
#[cfg(target_arch = "aarch64")]
rounds!(twelve, "0" "1" "2" "3" "4" "5" "6" "7" "16" "17" "18" "19");
#[cfg(target_arch = "aarch64")]
rounds!(chain, "0");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_sample_moves_neither_median_nor_spread() {
        let mut rates = [10.0; 9];
        rates[4] = 1.0;
        assert_eq!((median(&rates), spread(&rates)), (Some(10.0), 0.0));
        assert_eq!(spread(&[]), 0.0);
        assert_eq!(spread(&[1.0, 3.0, 5.0, 4.0, 2.0]), 2.0 / 3.0);
    }

    #[test]
    fn half_of_the_values_lie_between_the_quartiles() {
        assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), [2.0, 4.0]);
        assert_eq!(quartiles(&[7.0]), [7.0, 7.0]);
        assert_eq!(quartiles(&[7.0, 8.0]), [7.0, 8.0]);
    }

    #[test]
    fn work_that_takes_longer_has_a_smaller_share() {
        let Some(width) = AesWidth::of(XtsBackend::Portable) else {
            return crate::skip("no ceiling is known for this CPU");
        };
        let work = |times| move || (0..times).for_each(|_| width.0.run());
        let bytes = PASSES * PER_PASS * width.0.blocks() * 16;
        let once = width.share(1, bytes, 51, work(1));
        let thrice = width.share(1, bytes, 51, work(3));
        assert!(once.kept == 0 || thrice.kept == 0 || thrice.of_ceiling < once.of_ceiling);
    }

    #[test]
    fn aes_ni_is_held_against_its_own_width() {
        let of_aesni = AesWidth::of(XtsBackend::AesNi);
        assert!(of_aesni.is_none_or(|width| width.0.blocks() == 1));
        assert_eq!(of_aesni.is_some(), AesWidth::of(XtsBackend::Avx512).is_some());
    }
}
