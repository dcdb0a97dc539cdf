//! The back ends: which exist, which of them this CPU supports, and which one is used.
//!
//! ```text
//!   CRYPTLINE_CPU set ──► that one, or an error
//!   not set, x86 ──► avx512, if it does not slow the CPU down ──► avx2 ──► aesni ──► portable
//!            ARM ──► armv8 ──► portable
//! ```

use std::ffi::OsStr;
use std::fmt;

use thiserror::Error;

/// Names the back end to use, one of [`XtsBackend::ALL`]: for tests and comparisons.
pub const CPU_VARIABLE: &str = "CRYPTLINE_CPU";

/// One way to compute AES-XTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XtsBackend {
    /// VAES on 512-bit registers: what [`XtsBackend::Avx2`] takes, `avx512f`, `avx512bw`
    /// and `avx512vbmi2`.
    Avx512,
    /// VAES on 256-bit registers: `avx2`, `vaes` and `vpclmulqdq`.
    Avx2,
    /// AES-NI on 128-bit registers: `aes` and `ssse3`.
    AesNi,
    /// ARMv8's AES on 128-bit registers: `aes`.
    Armv8,
    /// RustCrypto's `aes`, which is constant-time software where the CPU has no AES.
    Portable,
}

/// Why a back end cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BackendError {
    /// The variable names none.
    #[error("{CPU_VARIABLE}={value} is no back end: unset it, or set one of {}", names(&XtsBackend::ALL))]
    Unknown {
        /// Value of the variable, printable.
        value: String,
    },
    /// The CPU lacks the features.
    #[error(
        "{CPU_VARIABLE}={backend} needs CPU features that are not here: unset it, or set one of {}",
        names(&XtsBackend::available())
    )]
    Unavailable {
        /// The one asked for.
        backend: XtsBackend,
    },
}

impl XtsBackend {
    /// Every back end, on this machine or not, the widest first.
    pub const ALL: [XtsBackend; 5] =
        [XtsBackend::Avx512, XtsBackend::Avx2, XtsBackend::AesNi, XtsBackend::Armv8, XtsBackend::Portable];

    /// The word for it in [`CPU_VARIABLE`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            XtsBackend::Avx512 => "avx512",
            XtsBackend::Avx2 => "avx2",
            XtsBackend::AesNi => "aesni",
            XtsBackend::Armv8 => "armv8",
            XtsBackend::Portable => "portable",
        }
    }

    /// The back ends that this CPU and its operating system can run, the widest first.
    #[must_use]
    pub fn available() -> Vec<XtsBackend> {
        let all = XtsBackend::ALL.into_iter();
        all.filter(|backend| backend.is_available()).collect()
    }

    /// The one to use: what [`CPU_VARIABLE`] says, or the fastest here.
    ///
    /// # Errors
    /// The variable names no back end, or one that this CPU cannot run.
    pub fn selected() -> Result<XtsBackend, BackendError> {
        XtsBackend::select(std::env::var_os(CPU_VARIABLE).as_deref())
    }

    fn select(variable: Option<&OsStr>) -> Result<XtsBackend, BackendError> {
        let Some(value) = variable else {
            return Ok(XtsBackend::fastest());
        };
        let Some(backend) = XtsBackend::ALL.into_iter().find(|backend| value == backend.as_str()) else {
            let value = value.to_string_lossy().escape_debug().to_string();
            return Err(BackendError::Unknown { value });
        };
        if backend.is_available() { Ok(backend) } else { Err(BackendError::Unavailable { backend }) }
    }

    fn fastest() -> XtsBackend {
        let mut candidates = XtsBackend::available().into_iter();
        let narrow = detection::wide_registers_slow_the_clock();
        candidates.find(|&backend| !(narrow && backend == XtsBackend::Avx512)).unwrap_or(XtsBackend::Portable)
    }

    fn is_available(self) -> bool {
        match self {
            XtsBackend::Avx512 => detection::Avx512::detect().is_some(),
            XtsBackend::Avx2 => detection::Avx2::detect().is_some(),
            XtsBackend::AesNi => detection::AesNi::detect().is_some(),
            XtsBackend::Armv8 => detection::Armv8::detect().is_some(),
            XtsBackend::Portable => true,
        }
    }
}

impl fmt::Display for XtsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn names(backends: &[XtsBackend]) -> String {
    let names: Vec<&str> = backends.iter().map(|backend| backend.as_str()).collect();
    names.join(", ")
}

/// Proofs that the CPU has certain features: each value is made by its `detect` only, so whoever
/// holds one may run code compiled for those features.
#[cfg(target_arch = "x86_64")]
pub(crate) mod detection {
    use std::arch::x86_64::{__cpuid, CpuidResult};
    use std::sync::OnceLock;

    /// `avx512f`, `avx512bw`, `avx512vbmi2`, and what [`Avx2`] proves.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());
    /// `avx2`, `vaes`, `vpclmulqdq`, and what [`AesNi`] proves.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());
    /// `aes`, `ssse3`.
    #[derive(Clone, Copy)]
    pub(crate) struct AesNi(());

    /// `avx2` alone.
    #[derive(Clone, Copy)]
    pub(crate) struct Words256(());

    /// `gfni` alone.
    #[derive(Clone, Copy)]
    pub(crate) struct Gfni(());

    /// `avx512vbmi`, `gfni`, and what [`Avx512`] proves.
    #[derive(Clone, Copy)]
    pub(crate) struct ByteLookups(());

    impl ByteLookups {
        pub(crate) fn detect() -> Option<ByteLookups> {
            Avx512::detect()?;
            Gfni::detect()?;
            is_x86_feature_detected!("avx512vbmi").then_some(ByteLookups(()))
        }

        pub(crate) fn words(self) -> Avx512 {
            Avx512(())
        }

        pub(crate) fn gfni(self) -> Gfni {
            Gfni(())
        }
    }

    impl Gfni {
        pub(crate) fn detect() -> Option<Gfni> {
            is_x86_feature_detected!("gfni").then_some(Gfni(()))
        }
    }

    impl Words256 {
        pub(crate) fn detect() -> Option<Words256> {
            is_x86_feature_detected!("avx2").then_some(Words256(()))
        }
    }

    impl Avx512 {
        /// The standard library asks the operating system about the registers, too.
        pub(crate) fn detect() -> Option<Avx512> {
            Avx2::detect()?;
            let here = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vbmi2");
            here.then_some(Avx512(()))
        }

        pub(crate) fn aes(self) -> AesNi {
            AesNi(())
        }
    }

    impl Avx2 {
        pub(crate) fn detect() -> Option<Avx2> {
            AesNi::detect()?;
            let here = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("vaes")
                && is_x86_feature_detected!("vpclmulqdq");
            here.then_some(Avx2(()))
        }

        pub(crate) fn aes(self) -> AesNi {
            AesNi(())
        }
    }

    impl AesNi {
        pub(crate) fn detect() -> Option<AesNi> {
            let here = is_x86_feature_detected!("aes") && is_x86_feature_detected!("ssse3");
            here.then_some(AesNi(()))
        }

        pub(crate) fn aes(self) -> AesNi {
            self
        }
    }

    pub(crate) use super::elsewhere::Armv8;

    /// Tells if this is an Intel CPU that lowers its clock for 512-bit registers by more than they bring: the ones for
    /// which Linux's AES-XTS prefers 256 bits (`arch/x86/crypto`).
    pub(crate) fn wide_registers_slow_the_clock() -> bool {
        static SLOWED: OnceLock<bool> = OnceLock::new();
        *SLOWED.get_or_init(|| is_of_intel() && cpuid(0).eax >= 1 && is_slowed_model(cpuid(1)))
    }

    /// Tells if bit shifts leave the AES units alone, as on AMD's CPUs. On Intel's carry-less multiplications do.
    pub(crate) fn shifts_beside_aes() -> bool {
        !is_of_intel()
    }

    /// Asked once: a virtual machine may leave its host for each answer, which takes microseconds.
    fn is_of_intel() -> bool {
        static INTEL: OnceLock<bool> = OnceLock::new();
        *INTEL.get_or_init(|| {
            // It does not run the instruction.
            if cfg!(miri) {
                return false;
            }
            let vendor = cpuid(0);
            // "GenuineIntel" in three registers.
            (vendor.ebx, vendor.edx, vendor.ecx) == (0x756e_6547, 0x4965_6e69, 0x6c65_746e)
        })
    }

    // The instruction is a safe function in newer Rust only, and not yet in 1.89.
    #[allow(unsafe_code, unused_unsafe)]
    fn cpuid(leaf: u32) -> CpuidResult {
        // SAFETY: every 64-bit x86 CPU has the instruction, the only thing it asks for.
        unsafe { __cpuid(leaf) }
    }

    /// By the family and model in leaf 1 (Intel SDM volume 2A, CPUID, figure 3-6).
    pub(super) fn is_slowed_model(leaf: CpuidResult) -> bool {
        let family = (leaf.eax >> 8) & 0xf;
        let model = ((leaf.eax >> 4) & 0xf) | ((leaf.eax >> 12) & 0xf0);
        // Skylake-X, Ice Lake (server, two kinds; client, three) and Tiger Lake (two).
        let slowed = [0x55, 0x6a, 0x6c, 0x7d, 0x7e, 0x9d, 0x8c, 0x8d];
        family == 6 && slowed.contains(&model)
    }
}

/// The same for 64-bit ARM.
#[cfg(target_arch = "aarch64")]
pub(crate) mod detection {
    pub(crate) use super::elsewhere::{AesNi, Avx2, Avx512, ByteLookups, Words256};

    /// `aes`.
    #[derive(Clone, Copy)]
    pub(crate) struct Armv8(());

    impl Armv8 {
        /// On little-endian systems only: the order of the halves of a register.
        pub(crate) fn detect() -> Option<Armv8> {
            let here = cfg!(target_endian = "little") && std::arch::is_aarch64_feature_detected!("aes");
            here.then_some(Armv8(()))
        }

        pub(crate) fn aes(self) -> Armv8 {
            self
        }
    }

    pub(crate) fn wide_registers_slow_the_clock() -> bool {
        false
    }
}

/// Nothing to detect: there is the portable back end only.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod detection {
    pub(crate) use super::elsewhere::{AesNi, Armv8, Avx2, Avx512, ByteLookups, Words256};

    pub(crate) fn wide_registers_slow_the_clock() -> bool {
        false
    }
}

/// Features that no CPU of this architecture has. On each some of these are not asked for.
#[allow(dead_code)]
mod elsewhere {
    macro_rules! nowhere {
        ($($feature:ident)*) => {$(
            #[derive(Clone, Copy)]
            pub(crate) enum $feature {}

            impl $feature {
                pub(crate) fn detect() -> Option<$feature> {
                    None
                }
            }
        )*};
    }
    nowhere!(Avx512 Avx2 AesNi Armv8 Words256 ByteLookups);
}

/// The backend that the `aes` crate (0.9.4) selects at run time, by the same rules.
pub(crate) fn rustcrypto_aes_backend() -> &'static str {
    if !aes::hardware_accelerated() {
        return "rustcrypto-aes (soft)";
    }
    accelerated()
}

#[cfg(target_arch = "x86_64")]
fn accelerated() -> &'static str {
    // Its detection asks for the 512-bit register state before it uses VAES at all, so on a CPU
    // with VAES but without AVX-512 it runs AES-NI.
    if is_x86_feature_detected!("vaes") && is_x86_feature_detected!("avx512f") {
        "rustcrypto-aes (vaes512)"
    } else {
        "rustcrypto-aes (aesni)"
    }
}

#[cfg(target_arch = "aarch64")]
fn accelerated() -> &'static str {
    "rustcrypto-aes (armv8)"
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn accelerated() -> &'static str {
    "rustcrypto-aes"
}

#[cfg(test)]
#[path = "cpu_tests.rs"]
mod tests;
