//! How long deriving keys may take.
//!
//! A header says how often a hash is applied; how long that takes depends on the hash and on the
//! machine. So a hash is measured for some milliseconds, once, when a key slot asks for so much that
//! it matters, and what a hostile header asks for is refused before it is paid.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, quote};
use crate::hash::Hash;
use crate::kdf::{Argon2Variant, Kdf, SALT_LEN};

/// Limits of what all key slots tried in one unlock may take together.
#[derive(Clone, Copy, Debug)]
pub struct KdfLimits {
    /// Time on this machine when it has nothing else to do.
    pub time: Duration,
}

impl KdfLimits {
    /// Nothing is refused.
    pub const NONE: Self = Self { time: Duration::MAX };
}

impl Default for KdfLimits {
    /// Five minutes: a hundred times what `luksFormat` chooses for a slot.
    fn default() -> Self {
        Self { time: Duration::from_secs(300) }
    }
}

/// Rest of the limits while slot after slot is tried.
pub(crate) struct Budget {
    limit: Duration,
    left: Duration,
}

impl Budget {
    pub fn new(limits: KdfLimits) -> Self {
        Self { limit: limits.time, left: limits.time }
    }

    /// Takes what deriving `key_len` bytes takes off what is left. Fails with
    /// [`Error::CostLimit`], or as the key derivation function deserves.
    pub fn spend(&mut self, kdf: &Kdf, key_len: usize) -> Result<(), Error> {
        let needed = estimate(kdf, key_len)?;
        let Some(left) = self.left.checked_sub(needed) else {
            return Err(Error::CostLimit { what: describe(kdf), needed, limit: self.limit });
        };
        self.left = left;
        Ok(())
    }

    /// Returns the time that has been spent.
    pub fn spent(&self) -> Duration {
        self.limit - self.left
    }
}

/// Less than this much never matters and is not measured: some 10 ms on any machine.
const PBKDF2_FREE: u64 = 4096;
/// The same in KiB times passes.
const ARGON2_FREE: u64 = 1 << 10;

/// How long deriving `key_len` bytes takes here, at about.
fn estimate(kdf: &Kdf, key_len: usize) -> Result<Duration, Error> {
    let (cost, free, unit) = match kdf {
        Kdf::Pbkdf2 { hash, iterations, .. } => {
            let hash = Hash::by_name(hash)?;
            let blocks = u64::try_from(key_len.div_ceil(hash.output_len())).unwrap_or(u64::MAX);
            let cost = u64::from(*iterations).saturating_mul(blocks);
            (cost, PBKDF2_FREE, Unit::Iteration(hash))
        }
        Kdf::Argon2 { time, memory_kib, cpus, .. } => {
            let cost = u64::from(*time).saturating_mul(u64::from(*memory_kib));
            (cost / lanes_at_once(*cpus), ARGON2_FREE, Unit::KibPass)
        }
        Kdf::Other(name) => return Err(Error::unknown_kdf(name)),
    };
    if cost <= free {
        return Ok(Duration::ZERO);
    }
    let picos = u128::from(cost).saturating_mul(u128::from(unit.picoseconds()?));
    let nanos = u64::try_from(picos / 1000).unwrap_or(u64::MAX);
    Ok(Duration::from_nanos(nanos))
}

fn lanes_at_once(lanes: u32) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    u64::from(lanes).min(u64::try_from(cores).unwrap_or(1)).max(1)
}

/// Unit in which costs are counted.
#[derive(Clone, Copy)]
enum Unit {
    /// Of PBKDF2 with a hash.
    Iteration(Hash),
    /// Of Argon2: a pass over a KiB of memory, by one lane.
    KibPass,
}

impl Unit {
    /// How long one takes, measured at the first call.
    fn picoseconds(self) -> Result<u64, Error> {
        static ITERATIONS: [OnceLock<u64>; Hash::COUNT] = [const { OnceLock::new() }; Hash::COUNT];
        static KIB_PASSES: OnceLock<u64> = OnceLock::new();
        let known = match self {
            Self::Iteration(hash) => &ITERATIONS[hash as usize],
            Self::KibPass => &KIB_PASSES,
        };
        if let Some(&picoseconds) = known.get() {
            return Ok(picoseconds);
        }
        let measured = match self {
            Self::Iteration(hash) => measure_iteration(hash),
            Self::KibPass => measure_kib_pass()?,
        };
        Ok(*known.get_or_init(|| measured))
    }
}

fn measure_iteration(hash: Hash) -> u64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(10);
    let mut iterations: u32 = 256;
    loop {
        let taken = cpu_time(ClockId::ThreadCPUTime, || {
            let mut out = [0; 1];
            hash.pbkdf2(b"measure", &[0; SALT_LEN], iterations, &mut out);
        });
        if taken >= LONG_ENOUGH || iterations >= 1 << 24 {
            return each(taken, iterations.into());
        }
        iterations *= 4;
    }
}

/// One pass over 16 MiB: more than most caches hold, as what a key slot asks for.
fn measure_kib_pass() -> Result<u64, Error> {
    const MEMORY_KIB: u32 = 16 << 10;
    let kdf = Kdf::Argon2 {
        variant: Argon2Variant::Argon2id,
        time: 1,
        memory_kib: MEMORY_KIB,
        cpus: 1,
        salt: vec![0; SALT_LEN],
    };
    let mut derived = Ok(());
    let start = Instant::now();
    // The lanes run on other threads. What else this process does counts too, but no longer than by
    // the clock.
    let work = || derived = kdf.derive(b"measure", &mut [0; 32]);
    let taken = cpu_time(ClockId::ProcessCPUTime, work).min(start.elapsed());
    derived?;
    Ok(each(taken, MEMORY_KIB.into()))
}

fn each(taken: Duration, count: u64) -> u64 {
    let picos = taken.as_nanos().saturating_mul(1000) / u128::from(count);
    u64::try_from(picos).unwrap_or(u64::MAX).max(1)
}

/// Time on a processor, so that others on the machine do not count.
fn cpu_time(clock: ClockId, work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(clock);
        Duration::try_from(time).unwrap_or_default()
    };
    let start = now();
    work();
    now().saturating_sub(start)
}

/// For a message: the costs as the header states them.
fn describe(kdf: &Kdf) -> String {
    match kdf {
        Kdf::Pbkdf2 { hash, iterations, .. } => format!("{iterations} iterations of PBKDF2 with {}", quote(hash)),
        Kdf::Argon2 { time, memory_kib, .. } => format!("{time} passes of {} over {memory_kib} KiB", kdf.name()),
        Kdf::Other(name) => quote(name),
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
