//! Passphrase to key: PBKDF2 and Argon2 with every cost bounded before it is paid.
//!
//! The format's own bounds ([`Kdf::check`]) are part of validating a header. How long it may take is
//! for `budget.rs`, how much memory there is for `memory.rs`.

use std::io;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use cryptline_sys::SecretThread;
use rayon_core::{ThreadBuilder, ThreadPoolBuilder, current_thread_index};
use zeroize::Zeroize;

use crate::error::Error;
use crate::hash::Hash;
use crate::memory::{self, Available};

/// Argon2 memory bound of the LUKS2 format: 4 GiB, in KiB.
pub const ARGON2_MEMORY_MAX_KIB: u32 = 4 * 1024 * 1024;
/// Argon2 lanes bound of the LUKS2 format.
pub const ARGON2_CPUS_MAX: u32 = 4;
/// Fewest PBKDF2 iterations of a new key slot, as cryptsetup's.
pub const PBKDF2_ITERATIONS_MIN: u32 = 1000;
/// Fewest Argon2 passes of a new key slot, as cryptsetup's.
pub const ARGON2_TIME_MIN: u32 = 4;
/// Least Argon2 memory of a new key slot in KiB, as cryptsetup's.
const ARGON2_MEMORY_MIN_KIB: u32 = 32;
/// Every salt in LUKS1 and LUKS2 has this many bytes.
pub const SALT_LEN: usize = 32;

/// The two Argon2 variants that LUKS2 knows (RFC 9106).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the function it is called after")]
pub enum Argon2Variant {
    Argon2i,
    Argon2id,
}

/// A key derivation function with its costs and salt, as a key slot states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kdf {
    /// PBKDF2-HMAC. The hash is a name: an unknown one must not stop `info`.
    Pbkdf2 {
        /// Name of the hash.
        hash: String,
        /// Iterations.
        iterations: u32,
        /// Salt.
        salt: Vec<u8>,
    },
    /// Argon2, version 0x13.
    Argon2 {
        /// Which of the two.
        variant: Argon2Variant,
        /// Passes over the memory.
        time: u32,
        /// Memory in KiB.
        memory_kib: u32,
        /// Lanes.
        cpus: u32,
        /// Salt.
        salt: Vec<u8>,
    },
    /// A function of this name that we do not know.
    Other(String),
}

impl Kdf {
    /// Checks the costs against the format's bounds, within which a key can be derived. The error says which bound.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Pbkdf2 { iterations: 0, .. } => Err("0 PBKDF2 iterations".to_owned()),
            Self::Argon2 { time, memory_kib, cpus, .. } => check_argon2(*time, *memory_kib, *cpus),
            Self::Pbkdf2 { .. } | Self::Other(_) => Ok(()),
        }
    }

    /// Checks the costs of a new key slot: below what cryptsetup makes, a passphrase is cheap to guess.
    pub(crate) fn check_new(&self) -> Result<(), String> {
        self.check()?;
        let (what, found, least) = match self {
            Self::Pbkdf2 { iterations, .. } => ("PBKDF2 iterations", *iterations, PBKDF2_ITERATIONS_MIN),
            Self::Argon2 { time, .. } if *time < ARGON2_TIME_MIN => ("Argon2 passes", *time, ARGON2_TIME_MIN),
            Self::Argon2 { memory_kib, .. } => ("KiB of Argon2 memory", *memory_kib, ARGON2_MEMORY_MIN_KIB),
            Self::Other(name) => return Err(format!("no key slot is made with {}", crate::error::quote(name))),
        };
        if found < least {
            return Err(format!("{found} {what} are too few for a new key slot; use at least {least}"));
        }
        Ok(())
    }

    /// The name that headers use.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pbkdf2 { .. } => "pbkdf2",
            Self::Argon2 { variant: Argon2Variant::Argon2i, .. } => "argon2i",
            Self::Argon2 { variant: Argon2Variant::Argon2id, .. } => "argon2id",
            Self::Other(name) => name,
        }
    }

    /// Fills `out` with the key that `passphrase` derives. The costs must have been checked.
    pub(crate) fn derive(&self, passphrase: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Pbkdf2 { hash, iterations, salt } => {
                Hash::by_name(hash)?.pbkdf2(passphrase, salt, *iterations, out);
                Ok(())
            }
            Self::Argon2 { variant, time, memory_kib, cpus, salt } => {
                let algorithm = match variant {
                    Argon2Variant::Argon2i => Algorithm::Argon2i,
                    Argon2Variant::Argon2id => Algorithm::Argon2id,
                };
                let params = Params::new(*memory_kib, *time, *cpus, Some(out.len()))
                    .map_err(|error| Error::invalid(format!("Argon2 parameters: {error}")))?;
                derive_argon2(algorithm, params, passphrase, salt, out)
            }
            Self::Other(name) => Err(Error::unknown_kdf(name)),
        }
    }
}

fn check_argon2(time: u32, memory_kib: u32, cpus: u32) -> Result<(), String> {
    if memory_kib > ARGON2_MEMORY_MAX_KIB {
        return Err(format!(
            "{memory_kib} KiB of Argon2 memory, at most {ARGON2_MEMORY_MAX_KIB} KiB (4 GiB) is allowed"
        ));
    }
    if !(1..=ARGON2_CPUS_MAX).contains(&cpus) {
        return Err(format!("{cpus} Argon2 lanes, 1 to {ARGON2_CPUS_MAX} are allowed"));
    }
    if memory_kib < 8 * cpus {
        return Err(format!("{memory_kib} KiB of Argon2 memory is too little for {cpus} lanes"));
    }
    if time == 0 {
        return Err("an Argon2 time cost of 0".into());
    }
    Ok(())
}

/// Argon2 over memory that is allocated fallibly and wiped afterwards.
fn derive_argon2(
    algorithm: Algorithm,
    params: Params,
    passphrase: &[u8],
    salt: &[u8],
    out: &mut [u8],
) -> Result<(), Error> {
    let needed_kib = u64::from(params.m_cost());
    // An overcommitting kernel grants any reservation and kills us when the pages are touched.
    if let Some(available) = memory::available()
        && available.kib < needed_kib
    {
        let Available { kib, bound } = available;
        let room = format!("{bound} has {kib} KiB left");
        return Err(Error::OutOfMemory { needed_kib, room });
    }
    let mut scratch = Scratch(Vec::new());
    let count = params.block_count();
    scratch.0.try_reserve_exact(count).map_err(|error| Error::OutOfMemory { needed_kib, room: error.to_string() })?;
    scratch.0.resize(count, Block::new());
    let lanes = params.p_cost() as usize;
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    let memory = &mut scratch.0;
    let work = || argon2.hash_password_into_with_memory(passphrase, salt, out, memory);
    on_lanes(lanes, |lane| Ok(SecretThread::spawn(move || lane.run())?), work)?
        .map_err(|error| Error::invalid(format!("Argon2 parameters: {error}")))
}

/// Does `work` where rayon has a thread for each lane, which `start` starts, or as many as there can be: the result is the
/// same. They end with it, and what they leave on their stacks, of which the key could be computed, goes with them;
/// rayon's own would keep it for good.
///
/// Where there can be no thread at all, the calling one does everything. It stays one of rayon's until it ends: keys are
/// handled on threads of their own.
fn on_lanes<T, R: Send>(
    lanes: usize,
    start: impl Fn(ThreadBuilder) -> io::Result<T>,
    work: impl FnOnce() -> R + Send,
) -> Result<R, Error> {
    let mut count = lanes;
    while count > 0 {
        let mut threads = Vec::with_capacity(count);
        let pool = ThreadPoolBuilder::new().num_threads(count).spawn_handler(|lane| {
            threads.push(start(lane)?);
            Ok(())
        });
        if let Ok(pool) = pool.build() {
            let result = pool.install(work);
            // Then they end; they are waited for when they are dropped.
            drop(pool);
            return Ok(result);
        }
        count = threads.len().min(count - 1);
    }
    if current_thread_index().is_none() {
        // What is left of the pool when it is dropped is this thread's place in it.
        let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        drop(alone.map_err(|error| Error::KeyMemory(io::Error::other(error)))?);
    }
    Ok(work())
}

/// Argon2's working memory: from it the key could be computed, so it is wiped.
struct Scratch(Vec<Block>);

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use base16ct::lower::encode_string as hex;

    fn argon2(time: u32, memory_kib: u32, cpus: u32) -> Kdf {
        let variant = Argon2Variant::Argon2id;
        let salt = vec![2; SALT_LEN];
        Kdf::Argon2 { variant, time, memory_kib, cpus, salt }
    }

    fn pbkdf2(iterations: u32) -> Kdf {
        let (hash, salt) = ("sha256".to_owned(), vec![2; SALT_LEN]);
        Kdf::Pbkdf2 { hash, iterations, salt }
    }

    /// From the reference implementation's own test list (`phc-winner-argon2`, `src/test.c`).
    #[test]
    fn argon2id_matches_the_reference_implementation() {
        let salt = b"somesalt".to_vec();
        let variant = Argon2Variant::Argon2id;
        let kdf = Kdf::Argon2 { variant, time: 2, memory_kib: 256, cpus: 1, salt };
        let mut out = [0; 32];
        kdf.derive(b"password", &mut out).unwrap();
        assert_eq!(hex(&out), "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe");
    }

    #[test]
    fn lanes_that_get_no_thread_are_done_by_those_that_there_are() {
        let of = |available: usize| {
            let mut scratch = vec![Block::new(); 64];
            let mut out = [0; 32];
            let params = Params::new(64, 3, 4, Some(out.len())).unwrap();
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let left = AtomicUsize::new(available);
            let start = |lane: ThreadBuilder| {
                let take = |left: usize| left.checked_sub(1);
                let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
                taken.map_err(|_| io::Error::from_raw_os_error(11))?;
                Ok(SecretThread::spawn(move || lane.run())?)
            };
            let work = || argon2.hash_password_into_with_memory(b"password", &[2; SALT_LEN], &mut out, &mut scratch);
            on_lanes(4, start, work).unwrap().unwrap();
            out
        };
        let expected = of(usize::MAX);
        // Those of an attempt that failed do not come back here.
        for available in [0, 1, 2, 3, 5, 7, 0] {
            assert_eq!(of(available), expected, "{available} threads");
        }
    }

    #[test]
    fn argon2_cost_of_terabytes_is_refused_before_it_is_allocated() {
        let reason = argon2(4, u32::MAX, 4).check().unwrap_err();
        assert!(reason.contains("at most 4194304 KiB (4 GiB)"), "{reason}");
    }

    #[test]
    fn argon2_lanes_time_and_least_memory_are_bounded() {
        assert!(argon2(4, 64, 4).check().is_ok());
        assert!(argon2(4, 64, 5).check().is_err());
        assert!(argon2(4, 64, 0).check().is_err());
        assert!(argon2(0, 64, 1).check().is_err());
        assert!(argon2(4, 31, 4).check().is_err());
    }

    #[test]
    fn too_few_pbkdf2_iterations_are_refused() {
        assert!(pbkdf2(0).check().is_err());
        assert!(pbkdf2(1).check().is_ok());
    }

    #[test]
    fn new_key_slots_cost_what_those_of_cryptsetup_do_at_the_least() {
        for (kdf, least) in [
            (pbkdf2(999), "at least 1000"),
            (argon2(3, 32, 1), "at least 4"),
            (argon2(4, 31, 1), "at least 32"),
            (argon2(1, 8, 1), "at least 4"),
        ] {
            assert!(kdf.check().is_ok(), "{kdf:?} can be read");
            let why = kdf.check_new().unwrap_err();
            assert!(why.contains(least), "{why}");
        }
        for kdf in [pbkdf2(1000), argon2(4, 32, 1), argon2(4, 32, 4)] {
            kdf.check_new().unwrap();
        }
    }

    #[test]
    fn unknown_kdf_is_refused_by_name() {
        let error = Kdf::Other("scrypt".into()).derive(b"", &mut [0; 32]).unwrap_err();
        assert_eq!(error.to_string(), "not supported yet: key derivation function 'scrypt'");
    }
}
