//! Speed of the ciphers: which there are in this build, and each in requests of two sizes.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions, XtsBackend};
use serde::Serialize;

use super::ceiling;
use super::report::BenchmarkFigure;
use super::work::{Speed, buffer, rate};
use crate::CliError;

/// Block ciphers and modes whose every combination is looked for.
const BLOCK_CIPHERS: [&str; 6] = ["aes", "serpent", "twofish", "camellia", "cast6", "sm4"];
const MODES: [&str; 3] = ["xts-plain64", "cbc-essiv:sha256", "cbc-plain64"];
/// Further cipher words, each one of its kind.
const OTHERS: [&str; 8] = [
    "xchacha12,aes-adiantum-plain64",
    "xchacha20,aes-adiantum-plain64",
    "aes-lrw-benbi",
    "aes-ctr-plain64",
    "aes-cbc-eboiv",
    "aes-cbc-elephant",
    "aes:64-cbc-lmk",
    "aes-cbc-tcw",
];
/// Cipher sectors that are measured, in bytes.
const SECTOR_SIZES: [u32; 2] = [512, 4096];
/// Requests that are measured, in bytes: with source and destination they fit any L2 cache.
const REQUESTS: [u32; 2] = [4096, 64 << 10];
/// Longest key that is looked for, in bytes: 65 AES-256 keys of loop-AES.
const KEY_LEN_MAX: usize = 65 * 32;
/// A shorter key is not measured unless asked for.
const KEY_LEN_MIN: usize = 16;
/// Ciphers of XTS whose speed is a figure, and the least in MB/s that is good enough with AVX-512.
const SPEEDS: [(&str, &str, Option<f64>); 4] = [
    ("twofish-xts-plain64", "twofish_mb_s", Some(150.0)),
    ("serpent-xts-plain64", "serpent_mb_s", Some(800.0)),
    ("camellia-xts-plain64", "camellia_mb_s", None),
    ("sm4-xts-plain64", "sm4_mb_s", None),
];
/// Requests go round in this many 512-byte sectors.
const SECTORS: u64 = 1 << 20;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CipherDirection {
    /// Plaintext to ciphertext.
    Encrypt,
    /// Ciphertext to plaintext.
    Decrypt,
}

impl CipherDirection {
    /// Returns the function that does it to whole cipher sectors.
    pub fn run(self) -> fn(&SectorCipher, u64, &mut [u8]) {
        match self {
            CipherDirection::Encrypt => SectorCipher::encrypt_in_place,
            CipherDirection::Decrypt => SectorCipher::decrypt_in_place,
        }
    }
}

/// One speed.
#[derive(Debug, Serialize)]
pub struct CipherRow {
    pub cipher: String,
    pub key_bits: usize,
    pub sector_size: u32,
    pub request: u32,
    pub direction: CipherDirection,
    pub threads: usize,
    pub bytes_per_second: f64,
    pub spread: f64,
    pub samples: usize,
    pub backend: &'static str,
    /// Share of the time that its threads had a processor.
    #[serde(skip)]
    pub busy: f64,
}

/// A cipher with a key, to be measured in each direction, request size and number of threads.
pub struct CipherCase {
    spec: CipherSpec,
    key_bits: usize,
    cipher: SectorCipher,
}

/// Returns what to measure: the cipher words asked for, or all that this build has.
pub fn cases(words: &[String], key_bits: Option<usize>) -> Result<Vec<CipherCase>, CliError> {
    XtsBackend::selected().map_err(|error| CliError::parameters(error.to_string()))?;
    let wanted = key_bits.map(key_len).transpose()?;
    let specs =
        if words.is_empty() { supported() } else { words.iter().map(|word| parse(word)).collect::<Result<_, _>>()? };
    let mut cases = Vec::new();
    for spec in specs {
        let lens = wanted.map_or_else(|| key_lens(&spec), |len| BTreeSet::from([len]));
        for len in lens {
            match cases_of(&spec, len) {
                Ok(made) => cases.extend(made),
                // Among all there are, some do not take the length.
                Err(_) if words.is_empty() => {}
                Err(error) => return Err(CliError::parameters(error.to_string())),
            }
        }
    }
    match (cases.is_empty(), key_bits) {
        (true, Some(bits)) => Err(CliError::parameters(format!(
            "--key-size {bits}: no cipher takes such a key; use for example 256 or 512"
        ))),
        _ => Ok(cases),
    }
}

/// How many measurements `cases` take.
pub fn count(cases: &[CipherCase], cores: usize) -> usize {
    cases.len() * REQUESTS.len() * DIRECTIONS.len() * threads(cores).len()
}

/// Both, in the order of the tables.
pub const DIRECTIONS: [CipherDirection; 2] = [CipherDirection::Encrypt, CipherDirection::Decrypt];

impl CipherCase {
    /// Its figures over the ceiling, if it has any.
    pub fn of_ceiling(&self) -> Result<Vec<BenchmarkFigure>, CliError> {
        ceiling::figures(&self.cipher, self.spec.as_str(), self.key_bits)
    }

    /// Measures it in each way for `time`. `done` is called after each.
    pub fn measure(&self, cores: usize, time: Duration, done: &impl Fn()) -> Result<Vec<CipherRow>, CliError> {
        let mut rows = Vec::new();
        for request in REQUESTS {
            for threads in threads(cores) {
                for direction in DIRECTIONS {
                    let measured = speed(&self.cipher, direction, request, threads, time)?;
                    rows.push(CipherRow {
                        cipher: self.spec.as_str().to_owned(),
                        key_bits: self.key_bits,
                        sector_size: self.cipher.sector_size(),
                        request,
                        direction,
                        threads,
                        bytes_per_second: measured.rate,
                        spread: measured.spread,
                        samples: measured.samples,
                        backend: self.cipher.backend_name(),
                        busy: measured.busy,
                    });
                    done();
                }
            }
        }
        Ok(rows)
    }
}

/// The figures of ciphers that were measured: the slowest key, cipher sector and direction of each, on
/// one core in large requests.
pub fn speeds(rows: &[CipherRow]) -> Vec<BenchmarkFigure> {
    let other = XtsBackend::selected() != Ok(XtsBackend::Avx512);
    let figure = |(word, name, goal): (&str, &'static str, Option<f64>)| {
        let rows = rows.iter().filter(|row| (row.cipher.as_str(), row.request, row.threads) == (word, REQUESTS[1], 1));
        let slowest = rows.map(|row| row.bytes_per_second / 1e6).reduce(f64::min)?;
        let figure = BenchmarkFigure::new(name, Some(slowest), "MB/s");
        Some(match goal {
            Some(goal) => figure.at_least(goal, other.then_some("the goal is for AVX-512")),
            None => figure,
        })
    };
    SPEEDS.into_iter().filter_map(figure).collect()
}

/// One core, and all of them where there are more.
fn threads(cores: usize) -> BTreeSet<usize> {
    BTreeSet::from([1, cores.max(1)])
}

fn key_len(bits: usize) -> Result<usize, CliError> {
    if !bits.is_multiple_of(8) || bits > KEY_LEN_MAX * 8 {
        return Err(CliError::parameters(format!("--key-size {bits}: use a multiple of 8 bits, such as 512")));
    }
    Ok(bits / 8)
}

fn parse(word: &str) -> Result<CipherSpec, CliError> {
    let spec = CipherSpec::parse(word).and_then(|spec| spec.check_supported().map(|()| spec));
    spec.map_err(|error| CliError::parameters(format!("--cipher {word}: {error}")))
}

/// Every candidate that this build can serve.
fn supported() -> Vec<CipherSpec> {
    let modes = MODES.iter();
    let combined = modes.flat_map(|mode| BLOCK_CIPHERS.map(|cipher| format!("{cipher}-{mode}")));
    combined.chain(OTHERS.map(str::to_owned)).filter_map(|word| parse(&word).ok()).collect()
}

/// The shortest and the longest key: with XTS 256 and 512 bits, for example.
fn key_lens(spec: &CipherSpec) -> BTreeSet<usize> {
    let lens = (0..=KEY_LEN_MAX).step_by(8);
    let taken: Vec<usize> = lens.filter(|&len| cases_of(spec, len).is_ok()).collect();
    let strong = taken.iter().find(|&&len| len >= KEY_LEN_MIN);
    [strong.or(taken.first()), taken.last()].into_iter().flatten().copied().collect()
}

/// The cipher with each sector size that it takes; why not where it takes none.
fn cases_of(spec: &CipherSpec, len: usize) -> Result<Vec<CipherCase>, CipherError> {
    // Without equal parts, which some ciphers refuse; it need not be secret here.
    let key: Vec<u8> = (1u32..).map(|it| it.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).take(len).collect();
    let made = SECTOR_SIZES.map(|sector_size| {
        let cipher = sector_cipher(spec, &key, sector_size)?;
        Ok(CipherCase { spec: spec.clone(), key_bits: len * 8, cipher })
    });
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    match refused.into_iter().find_map(Result::err) {
        Some(error) if made.is_empty() => Err(error),
        _ => made.into_iter().collect(),
    }
}

/// A cipher with sectors counted from 0.
pub fn sector_cipher(spec: &CipherSpec, key: &[u8], sector_size: u32) -> Result<SectorCipher, CipherError> {
    let options = SectorOptions { sector_size, iv_offset: 0, iv_large_sectors: false };
    SectorCipher::new(spec, key, options)
}

fn speed(
    cipher: &SectorCipher,
    direction: CipherDirection,
    request: u32,
    threads: usize,
    time: Duration,
) -> Result<Speed, CliError> {
    let run = direction.run();
    let mut measured = rate(threads, time, || {
        let mut buffer = buffer(request)?;
        let mut sector = 0;
        Ok(move |calls| {
            for _ in 0..calls {
                run(cipher, sector, black_box(&mut buffer));
                sector = (sector + u64::from(request) / 512) % SECTORS;
            }
        })
    })?;
    measured.rate *= f64::from(request);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_xts_is_found_with_its_shortest_and_longest_key() {
        let all = cases(&[], None).unwrap();
        let of_xts = all.iter().filter(|case| case.spec.as_str() == "aes-xts-plain64");
        let found: Vec<_> = of_xts.map(|case| (case.key_bits, case.cipher.sector_size())).collect();
        assert_eq!(found, [(256, 512), (256, 4096), (512, 512), (512, 4096)]);
    }

    #[test]
    fn a_key_size_selects_the_ciphers_that_take_it() {
        let all = cases(&[], Some(512)).unwrap();
        assert!(!all.is_empty() && all.iter().all(|case| case.key_bits == 512));
        let refused = |words: &[String], bits| cases(words, Some(bits)).err().unwrap();
        assert_eq!(refused(&[], 8).kind(), cryptline::ErrorKind::Parameters);
        assert_eq!(refused(&[], 511).kind(), cryptline::ErrorKind::Parameters);
        let xts = ["aes-xts-plain64".to_owned()];
        assert!(refused(&xts, 264).to_string().contains("33 bytes"));
    }

    #[test]
    fn the_slowest_row_of_large_requests_on_one_core_is_the_figure() {
        let row = |cipher: &str, request, threads, bytes_per_second| CipherRow {
            cipher: cipher.to_owned(),
            key_bits: 512,
            sector_size: 512,
            request,
            direction: CipherDirection::Encrypt,
            threads,
            bytes_per_second,
            spread: 0.0,
            samples: 1,
            backend: "",
            busy: 1.0,
        };
        let rows = [
            row("serpent-xts-plain64", 65536, 1, 9e8),
            row("serpent-xts-plain64", 65536, 1, 7e8),
            row("serpent-xts-plain64", 65536, 2, 6e8),
            row("serpent-xts-plain64", 4096, 1, 5e8),
            row("serpent-cbc-plain64", 65536, 1, 4e8),
        ];
        let found = speeds(&rows);
        let found: Vec<_> = found.iter().map(|it| (it.name, it.value)).collect();
        assert_eq!(found, [("serpent_mb_s", Some(700.0))]);
    }

    #[test]
    fn the_null_cipher_is_measured_when_asked_for() {
        let null = cases(&["cipher_null-ecb".to_owned()], None).unwrap();
        assert!(null.iter().all(|case| case.key_bits == 0) && null.len() == 2);
        let all = cases(&[], None).unwrap();
        assert!(all.iter().all(|case| !case.spec.is_null()));
    }
}
