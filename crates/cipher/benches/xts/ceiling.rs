//! The most that the AES instructions of this CPU can do: rounds on registers and nothing else.

use std::time::Instant;

/// A width of the AES instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `vaesenc` on 512 bits.
    Zmm,
    /// `vaesenc` on 256 bits.
    Ymm,
    /// `aesenc`.
    Xmm,
}

/// Rounds that one pass of a loop below does, on as many registers.
const PER_PASS: u32 = 12;
/// Passes in a measurement: about 5 µs.
const PASSES: u32 = 1000;
/// Rounds of one dependent chain, for the latency.
const CHAIN: u32 = 4000;

impl Width {
    /// The widest whose instructions are here.
    pub fn widest() -> Option<Width> {
        let vaes = is_x86_feature_detected!("vaes");
        if vaes && is_x86_feature_detected!("avx512f") {
            Some(Width::Zmm)
        } else if vaes && is_x86_feature_detected!("avx2") {
            Some(Width::Ymm)
        } else if is_x86_feature_detected!("aes") {
            Some(Width::Xmm)
        } else {
            None
        }
    }

    fn blocks(self) -> u32 {
        match self {
            Width::Zmm => 4,
            Width::Ymm => 2,
            Width::Xmm => 1,
        }
    }

    /// Bytes a second through one round, now.
    pub fn round_rate(self) -> f64 {
        let start = Instant::now();
        // SAFETY: whoever has a `Width` has it from `widest`, or made it smaller: the CPU has the
        // instructions.
        unsafe {
            match self {
                Width::Zmm => zmm(PASSES),
                Width::Ymm => ymm(PASSES),
                Width::Xmm => xmm(PASSES),
            }
        }
        let bytes = f64::from(PASSES * PER_PASS * self.blocks() * 16);
        bytes / start.elapsed().as_secs_f64()
    }
}

/// Nanoseconds from the input of a round to its output.
pub fn round_latency() -> f64 {
    let start = Instant::now();
    // SAFETY: a `Width` was had, so the CPU has `aes`.
    unsafe { chain(CHAIN) }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CHAIN)
}

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
rounds!(chain, "aes", "aesenc xmm0, xmm0", "");
