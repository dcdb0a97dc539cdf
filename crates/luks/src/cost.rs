//! How costly the passphrase of a new key slot is to guess: chosen, or measured on this machine.

use std::time::{Duration, Instant};

use cryptline_sys::SecretBuf;

use crate::error::Error;
use crate::hash::Hash;
use crate::kdf::{
    ARGON2_CPUS_MAX, ARGON2_MEMORY_MAX_KIB, ARGON2_TIME_MIN, Argon2Variant, Kdf, PBKDF2_ITERATIONS_MIN, SALT_LEN,
};
use crate::memory;
use crate::random::Random;

/// Which key derivation function a new key slot uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the function it is called after")]
pub enum KdfKind {
    Pbkdf2,
    Argon2i,
    Argon2id,
}

/// The cost of a new key slot. What is `None` is measured or taken from the machine.
#[derive(Clone, Debug)]
pub struct KdfCost {
    /// How long unlocking should take on this machine.
    pub target: Duration,
    /// PBKDF2 iterations or Argon2 passes; with it nothing is measured.
    pub iterations: Option<u32>,
    /// Argon2 memory in KiB: exactly this with `iterations`, at most this without.
    pub memory_kib: Option<u32>,
    /// Argon2 lanes.
    pub cpus: Option<u32>,
}

impl Default for KdfCost {
    /// 2 s, as cryptsetup.
    fn default() -> Self {
        Self { target: Duration::from_millis(2000), iterations: None, memory_kib: None, cpus: None }
    }
}

impl KdfCost {
    /// The same with nothing left to measure: 4 passes over 256 MiB in 4 lanes, or a million iterations of PBKDF2. That
    /// takes any machine with so much memory about a second, and stays what it is.
    #[must_use]
    pub fn fixed(&self, kind: KdfKind) -> Self {
        let iterations = match kind {
            KdfKind::Pbkdf2 => 1_000_000,
            KdfKind::Argon2i | KdfKind::Argon2id => ARGON2_TIME_MIN,
        };
        Self {
            target: self.target,
            iterations: self.iterations.or(Some(iterations)),
            memory_kib: self.memory_kib.or(Some(256 << 10)),
            cpus: self.cpus.or(Some(4)),
        }
    }
}

/// A key derivation function for a new slot, with a fresh salt and its cost chosen.
/// `key_len` is the number of bytes it will have to derive.
pub(crate) fn new_kdf(
    kind: KdfKind,
    hash: &str,
    cost: &KdfCost,
    key_len: usize,
    random: &Random,
) -> Result<Kdf, Error> {
    let salt = random.bytes("key slot salt", SALT_LEN)?;
    let kdf = match kind {
        KdfKind::Pbkdf2 => {
            let hash = hash.to_owned();
            let iterations = match cost.iterations {
                Some(iterations) => iterations,
                None => pbkdf2_iterations(Hash::by_name(&hash)?, cost.target, key_len),
            };
            Kdf::Pbkdf2 { hash, iterations, salt }
        }
        KdfKind::Argon2i => new_argon2(Argon2Variant::Argon2i, cost, salt, key_len)?,
        KdfKind::Argon2id => new_argon2(Argon2Variant::Argon2id, cost, salt, key_len)?,
    };
    kdf.check_new().map_err(Error::Parameters)?;
    Ok(kdf)
}

/// The costs that a new key slot would get here, and how long deriving `key_len` bytes with them
/// takes.
///
/// # Errors
/// [`Error::Parameters`] for impossible costs, [`Error::NotSupported`] for an unknown hash,
/// [`Error::OutOfMemory`].
pub fn benchmark(kind: KdfKind, hash: &str, cost: &KdfCost, key_len: usize) -> Result<(Kdf, Duration), Error> {
    let kdf = new_kdf(kind, hash, cost, key_len, &Random::Kernel)?;
    let mut out = SecretBuf::zeroed(key_len).map_err(Error::KeyMemory)?;
    let start = Instant::now();
    kdf.derive(b"benchmark", &mut out)?;
    Ok((kdf, start.elapsed()))
}

/// PBKDF2 iterations that take `target` for `key_len` bytes: measured on a shorter run.
pub(crate) fn pbkdf2_iterations(hash: Hash, target: Duration, key_len: usize) -> u32 {
    const MEASURED_MIN: Duration = Duration::from_millis(100);
    let mut out = vec![0; key_len];
    let mut iterations: u32 = 1 << 14;
    loop {
        let start = Instant::now();
        hash.pbkdf2(b"benchmark", &[0; SALT_LEN], iterations, &mut out);
        let elapsed = start.elapsed();
        if elapsed >= MEASURED_MIN || iterations >= 1 << 28 {
            let scaled = scale(u64::from(iterations), target, elapsed);
            let capped = u32::try_from(scaled).unwrap_or(u32::MAX);
            return capped.max(PBKDF2_ITERATIONS_MIN);
        }
        iterations *= 2;
    }
}

/// Most memory for a new slot unless asked for more: 1 GiB.
const ARGON2_MEMORY_DEFAULT_KIB: u32 = 1 << 20;
/// Least memory a measured slot gets: 64 MiB.
const ARGON2_MEMORY_MIN_KIB: u32 = 64 << 10;

fn new_argon2(variant: Argon2Variant, cost: &KdfCost, salt: Vec<u8>, key_len: usize) -> Result<Kdf, Error> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let cpus = cost.cpus.unwrap_or_else(|| cores.min(ARGON2_CPUS_MAX));
    let half_of_ram = memory::total_kib().map_or(u64::MAX, |total| total / 2);
    let half_of_ram = u32::try_from(half_of_ram).unwrap_or(u32::MAX);
    let default = ARGON2_MEMORY_DEFAULT_KIB.min(half_of_ram);
    let memory_max = cost.memory_kib.unwrap_or(default);
    let kdf = |time, memory_kib| Kdf::Argon2 { variant, time, memory_kib, cpus, salt: salt.clone() };
    // Bounds first: nothing is measured that could not be used.
    kdf(cost.iterations.unwrap_or(ARGON2_TIME_MIN), memory_max).check_new().map_err(Error::Parameters)?;
    if let Some(time) = cost.iterations {
        return Ok(kdf(time, memory_max));
    }
    let measure = |memory_kib, runs| -> Result<Duration, Error> {
        let mut out = SecretBuf::zeroed(key_len).map_err(Error::KeyMemory)?;
        let mut least = Duration::MAX;
        for _ in 0..runs {
            let start = Instant::now();
            kdf(ARGON2_TIME_MIN, memory_kib).derive(b"benchmark", &mut out)?;
            least = least.min(start.elapsed());
        }
        Ok(least)
    };
    let (time, memory_kib) = argon2_cost(memory_max, cost.target, measure)?;
    Ok(kdf(time, memory_kib))
}

/// Passes and memory that take `target`, given how long the fewest passes over some memory take at
/// the least in some runs: what else runs here may disturb one, but seldom all.
/// Memory comes first, since it is what makes guessing expensive; then passes.
fn argon2_cost(
    memory_max_kib: u32,
    target: Duration,
    measure: impl Fn(u32, u32) -> Result<Duration, Error>,
) -> Result<(u32, u32), Error> {
    const MEASURED_MIN: Duration = Duration::from_millis(250);
    const RUNS: u32 = 3;
    let floor = ARGON2_MEMORY_MIN_KIB.min(memory_max_kib);
    let wanted = |memory, elapsed| scale(u64::from(memory), target, elapsed);
    let chosen = |wanted: u64| wanted.clamp(u64::from(floor), u64::from(memory_max_kib));
    let mut memory = floor;
    let mut elapsed = measure(memory, RUNS)?;
    while elapsed < MEASURED_MIN && memory < memory_max_kib {
        memory = memory.saturating_mul(2).min(memory_max_kib);
        elapsed = measure(memory, RUNS)?;
    }
    let estimate = chosen(wanted(memory, elapsed));
    let estimate = u32::try_from(estimate).unwrap_or(memory_max_kib);
    // Caches hold less of more memory, so that it takes more than its share. Not below what was
    // measured well, and once only, since this takes the whole time.
    if estimate > memory {
        elapsed = measure(estimate, 1)?;
        memory = estimate;
    }
    let wanted_kib = wanted(memory, elapsed);
    let chosen = chosen(wanted_kib);
    let passes = u64::from(ARGON2_TIME_MIN) * wanted_kib / chosen.max(1);
    let time = u32::try_from(passes).unwrap_or(u32::MAX).max(ARGON2_TIME_MIN);
    let chosen = u32::try_from(chosen).unwrap_or(ARGON2_MEMORY_MAX_KIB);
    Ok((time, chosen))
}

/// `amount * target / elapsed`.
fn scale(amount: u64, target: Duration, elapsed: Duration) -> u64 {
    let scaled = u128::from(amount) * target.as_micros() / elapsed.as_micros().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// A machine that needs `millis` for the fewest passes over 64 MiB.
    fn cost_on(millis: u64, memory_max_kib: u32) -> (u32, u32) {
        let measure = |memory_kib: u32, _| {
            let micros = millis * 1000 * u64::from(memory_kib) / u64::from(ARGON2_MEMORY_MIN_KIB);
            Ok(Duration::from_micros(micros))
        };
        argon2_cost(memory_max_kib, Duration::from_secs(2), measure).unwrap()
    }

    #[test]
    fn fast_machine_gets_all_memory_and_more_passes() {
        assert_eq!(cost_on(50, 1 << 20), (10, 1 << 20));
    }

    #[test]
    fn slow_machine_gets_less_memory_but_never_fewer_passes() {
        assert_eq!(cost_on(1000, 1 << 20), (4, 128 << 10));
        assert_eq!(cost_on(10_000, 1 << 20), (4, 64 << 10));
    }

    #[test]
    fn memory_beyond_the_caches_is_measured_too() {
        // Twice as slow for each byte beyond 256 MiB.
        let measure = |memory_kib: u32, _| {
            let factor = if memory_kib > 256 << 10 { 2 } else { 1 };
            Ok(Duration::from_millis(u64::from((factor * memory_kib) >> 10)))
        };
        assert_eq!(argon2_cost(1 << 20, Duration::from_secs(2), measure).unwrap(), (4, 1000 << 10));
    }

    #[test]
    fn small_machine_makes_up_with_passes() {
        assert_eq!(cost_on(100, 32 << 10), (160, 32 << 10));
    }

    #[test]
    fn pbkdf2_is_measured_to_about_the_target() {
        let iterations = pbkdf2_iterations(Hash::Sha256, Duration::from_millis(200), 32);
        assert!(iterations > 10_000, "{iterations}");
    }

    #[test]
    fn benchmark_tells_costs_and_the_time_they_take() {
        let cost = KdfCost { iterations: Some(5), memory_kib: Some(64), cpus: Some(2), ..KdfCost::default() };
        let (kdf, time) = benchmark(KdfKind::Argon2i, "", &cost, 32).unwrap();
        assert!(matches!(kdf, Kdf::Argon2 { time: 5, memory_kib: 64, cpus: 2, .. }));
        assert!(time > Duration::ZERO);
        assert_eq!(benchmark(KdfKind::Pbkdf2, "md4", &cost, 32).err().unwrap().kind(), ErrorKind::Parameters);
    }
}
