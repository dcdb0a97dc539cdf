//! Making headers: what to make, and how costly the passphrase is to guess.

use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use cryptline_cipher::{CipherError, SectorCipher, SectorOptions, SpecError};
use cryptline_sys::SecretBuf;

use crate::area::{KEY_LEN_MAX, is_null_cipher, parse_cipher};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::kdf::{
    ARGON2_CPUS_MAX, ARGON2_MEMORY_MAX_KIB, Argon2Variant, Kdf, PBKDF2_ITERATIONS_MIN, SALT_LEN,
};
use crate::unlock::check_passphrase;
use crate::{luks1, luks2, memory, random};

/// Which header to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// LUKS1.
    Luks1,
    /// LUKS2.
    Luks2,
}

/// Which key derivation function a new key slot uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant is the function it is called after"
)]
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
        Self {
            target: Duration::from_millis(2000),
            iterations: None,
            memory_kib: None,
            cpus: None,
        }
    }
}

/// What to make. The defaults are those of `cryptsetup luksFormat`.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// LUKS1 or LUKS2.
    pub version: Version,
    /// Cipher word of the data, `aes-xts-plain64`.
    pub cipher: String,
    /// Length of the volume key in bytes: 64 (AES-256 in XTS mode) or 32 (AES-128).
    pub key_len: u32,
    /// Bytes in a cipher sector (LUKS2). `None`: 4096 where the data is a multiple of it.
    pub sector_size: Option<u32>,
    /// Hash of digest and splitter, and of PBKDF2: `sha256`.
    pub hash: String,
    /// Key derivation function. `None`: Argon2id for LUKS2, PBKDF2 for LUKS1.
    pub kdf: Option<KdfKind>,
    /// Its cost.
    pub cost: KdfCost,
    /// UUID of the volume. `None`: random.
    pub uuid: Option<String>,
    /// Label (LUKS2), up to 47 bytes.
    pub label: String,
    /// Subsystem (LUKS2), up to 47 bytes.
    pub subsystem: String,
    /// Start of the data in bytes, a multiple of 4096. `None`: 16 MiB for LUKS2, behind the key
    /// slots rounded up to 1 MiB for LUKS1, 0 for a detached header.
    pub data_offset: Option<u64>,
    /// The data is on another device: the header's device may be as small as the header.
    pub detached: bool,
    /// Allow `cipher_null`, which encrypts nothing.
    pub allow_null_cipher: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            version: Version::Luks2,
            cipher: "aes-xts-plain64".into(),
            key_len: 64,
            sector_size: None,
            hash: "sha256".into(),
            kdf: None,
            cost: KdfCost::default(),
            uuid: None,
            label: String::new(),
            subsystem: String::new(),
            data_offset: None,
            detached: false,
            allow_null_cipher: false,
        }
    }
}

/// Writes a new header with one key slot, slot 0, to `device` and returns the volume key.
///
/// What was there before is lost from the first write on. The order is such that a crash leaves
/// either no header or a whole one, given that `flush` makes earlier writes durable: old headers
/// are wiped first, then the key slots are written, the secondary copy, and the primary last.
/// `device_size` is in bytes; a detached header's file may be shorter and grows.
///
/// # Errors
/// [`Error::Parameters`] for impossible options, [`Error::TooSmall`], [`Error::Io`].
pub fn format(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    options: &FormatOptions,
) -> Result<SecretBuf, Error> {
    let key =
        SecretBuf::random(options.key_len.min(KEY_LEN_MAX) as usize).map_err(Error::KeyMemory)?;
    format_with_key(device, device_size, passphrase, &key, options)?;
    Ok(key)
}

/// As [`format()`], with a volume key that the caller brings; `key_len` must be its length.
///
/// # Errors
/// As [`format()`].
pub fn format_with_key(
    device: &mut (impl Read + Write + Seek),
    device_size: u64,
    passphrase: &[u8],
    key: &[u8],
    options: &FormatOptions,
) -> Result<(), Error> {
    check_passphrase(passphrase)?;
    options.check(key)?;
    // Headers hold the name in its usual case.
    let hash = Hash::by_name(&options.hash)?.name().to_owned();
    let options = &FormatOptions {
        hash,
        ..options.clone()
    };
    match options.version {
        Version::Luks1 => luks1::format(device, device_size, passphrase, key, options),
        Version::Luks2 => luks2::format(device, device_size, passphrase, key, options),
    }
}

impl FormatOptions {
    fn check(&self, key: &[u8]) -> Result<(), Error> {
        if key.len() != self.key_len as usize {
            return Err(parameters(format!(
                "the volume key has {} bytes, {} are needed",
                key.len(),
                self.key_len
            )));
        }
        if is_null_cipher(&self.cipher) && !self.allow_null_cipher {
            return Err(Error::NullCipher("the new volume".into()));
        }
        check_cipher_takes(&self.cipher, key)?;
        let hash = Hash::by_name(&self.hash)?;
        // cryptsetup 2.6.1 makes such volumes, and opens them with any passphrase.
        if hash.output_len() < HASH_LEN_MIN {
            return Err(parameters(format!(
                "hash {} is too short for a new volume; use sha256",
                quote(&self.hash)
            )));
        }
        if let Some(offset) = self.data_offset
            && offset % 4096 != 0
        {
            return Err(parameters(format!(
                "a data offset of {offset} bytes is not possible, give a multiple of 4096"
            )));
        }
        if let Some(uuid) = self.uuid.as_deref().filter(|uuid| !random::is_uuid(uuid)) {
            return Err(parameters(format!("{} is not a UUID", quote(uuid))));
        }
        Ok(())
    }

    pub(crate) fn uuid_or_random(&self) -> Result<String, Error> {
        self.uuid.clone().map_or_else(random::uuid, Ok)
    }
}

/// Tries the key on the cipher, so that no header is written that could not be opened.
fn check_cipher_takes(cipher: &str, key: &[u8]) -> Result<(), Error> {
    let spec = parse_cipher(cipher).map_err(|error| match error {
        Error::Invalid(reason) => Error::Parameters(reason),
        other => other,
    })?;
    let options = SectorOptions {
        sector_size: 512,
        iv_offset: 0,
        iv_large_sectors: false,
    };
    let made = SectorCipher::new(&spec, key, options);
    made.map(drop).map_err(|error| match error {
        CipherError::Spec(SpecError::NotSupportedYet(what)) => Error::NotSupported(what),
        error => Error::Parameters(error.to_string()),
    })
}

/// A key derivation function for a new slot, with a fresh salt and its cost chosen.
/// `key_len` is the number of bytes it will have to derive.
pub(crate) fn new_kdf(
    kind: KdfKind,
    hash: &str,
    cost: &KdfCost,
    key_len: usize,
) -> Result<Kdf, Error> {
    let salt = random::bytes(SALT_LEN)?;
    let kdf = match kind {
        KdfKind::Pbkdf2 => {
            let hash = hash.to_owned();
            let iterations = match cost.iterations {
                Some(iterations) => iterations,
                None => pbkdf2_iterations(Hash::by_name(&hash)?, cost.target, key_len),
            };
            Kdf::Pbkdf2 {
                hash,
                iterations,
                salt,
            }
        }
        KdfKind::Argon2i => new_argon2(Argon2Variant::Argon2i, cost, salt, key_len)?,
        KdfKind::Argon2id => new_argon2(Argon2Variant::Argon2id, cost, salt, key_len)?,
    };
    kdf.check().map_err(Error::Parameters)?;
    Ok(kdf)
}

/// The costs that a new key slot would get here, and how long deriving `key_len` bytes with them
/// takes.
///
/// # Errors
/// [`Error::Parameters`] for impossible costs, [`Error::NotSupported`] for an unknown hash,
/// [`Error::OutOfMemory`].
pub fn benchmark(
    kind: KdfKind,
    hash: &str,
    cost: &KdfCost,
    key_len: usize,
) -> Result<(Kdf, Duration), Error> {
    let kdf = new_kdf(kind, hash, cost, key_len)?;
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

/// Fewest Argon2 passes when the cost is measured (as cryptsetup).
const ARGON2_TIME_MIN: u32 = 4;
/// Most memory for a new slot unless asked for more: 1 GiB.
const ARGON2_MEMORY_DEFAULT_KIB: u32 = 1 << 20;
/// Least memory a measured slot gets: 64 MiB.
const ARGON2_MEMORY_MIN_KIB: u32 = 64 << 10;

fn new_argon2(
    variant: Argon2Variant,
    cost: &KdfCost,
    salt: Vec<u8>,
    key_len: usize,
) -> Result<Kdf, Error> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let cpus = cost.cpus.unwrap_or_else(|| cores.min(ARGON2_CPUS_MAX));
    let half_of_ram = memory::total_kib().map_or(u64::MAX, |total| total / 2);
    let half_of_ram = u32::try_from(half_of_ram).unwrap_or(u32::MAX);
    let default = ARGON2_MEMORY_DEFAULT_KIB.min(half_of_ram);
    let memory_max = cost.memory_kib.unwrap_or(default);
    let kdf = |time, memory_kib| Kdf::Argon2 {
        variant,
        time,
        memory_kib,
        cpus,
        salt: salt.clone(),
    };
    // Bounds first: nothing is measured that could not be used.
    kdf(ARGON2_TIME_MIN, memory_max)
        .check()
        .map_err(Error::Parameters)?;
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
    let time = u32::try_from(passes)
        .unwrap_or(u32::MAX)
        .max(ARGON2_TIME_MIN);
    let chosen = u32::try_from(chosen).unwrap_or(ARGON2_MEMORY_MAX_KIB);
    Ok((time, chosen))
}

/// `amount * target / elapsed`.
fn scale(amount: u64, target: Duration, elapsed: Duration) -> u64 {
    let scaled = u128::from(amount) * target.as_micros() / elapsed.as_micros().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

pub(crate) fn parameters(reason: impl Into<String>) -> Error {
    Error::Parameters(reason.into())
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
            Ok(Duration::from_millis(u64::from(
                (factor * memory_kib) >> 10,
            )))
        };
        let chosen = argon2_cost(1 << 20, Duration::from_secs(2), measure).unwrap();
        assert_eq!(chosen, (4, 1000 << 10));
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
        let cost = KdfCost {
            iterations: Some(5),
            memory_kib: Some(64),
            cpus: Some(2),
            ..KdfCost::default()
        };
        let (kdf, time) = benchmark(KdfKind::Argon2i, "", &cost, 32).unwrap();
        assert!(matches!(
            kdf,
            Kdf::Argon2 {
                time: 5,
                memory_kib: 64,
                cpus: 2,
                ..
            }
        ));
        assert!(time > Duration::ZERO);
        let refused = benchmark(KdfKind::Pbkdf2, "md4", &cost, 32);
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::Parameters);
    }

    #[test]
    fn impossible_options_are_refused_before_anything_is_written() {
        let refused = |change: fn(&mut FormatOptions)| {
            let mut options = FormatOptions::default();
            change(&mut options);
            let mut device = std::io::Cursor::new(vec![0xaa_u8; 4096]);
            let error = format(&mut device, 1 << 30, b"", &options).err().unwrap();
            assert!(device.get_ref().iter().all(|&byte| byte == 0xaa));
            error
        };
        assert_eq!(
            refused(|options| options.key_len = 33).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.key_len = 0).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.key_len = 4096).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "rot13-xts-plain64".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "anubis-xts-plain64".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cipher = "cipher_null-ecb".into()).kind(),
            ErrorKind::Device
        );
        assert_eq!(
            refused(|options| options.hash = "md4".into()).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.uuid = Some("x".into())).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.data_offset = Some(100)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.sector_size = Some(520)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.label = "x".repeat(48)).kind(),
            ErrorKind::Parameters
        );
        assert_eq!(
            refused(|options| options.cost.memory_kib = Some(u32::MAX)).kind(),
            ErrorKind::Parameters
        );
    }
}
