//! Speed of the key derivation functions: PBKDF2 over every hash, and what Argon2 costs a new key
//! slot would get.

use std::hint::black_box;
use std::time::Duration;

use cryptline_luks::format::{KdfCost, KdfKind, benchmark};
use cryptline_luks::{Hash, Kdf};
use serde::Serialize;

use super::work::rate;
use crate::CliError;

/// Bits that are derived: as cryptsetup.
const KEY_BITS: u16 = 256;
const KEY_BYTES: usize = 32;
/// The hashes of PBKDF2, as headers call them.
const HASHES: [&str; 13] = [
    "sha1",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "sha3-256",
    "sha3-512",
    "ripemd160",
    "whirlpool",
    "blake2b-512",
    "blake2s-256",
    "sm3",
    "stribog512",
];

/// One key derivation function to measure.
#[derive(Clone, Copy, Debug)]
pub enum KdfCase {
    /// PBKDF2 over this hash.
    Pbkdf2(Hash),
    /// Argon2i or Argon2id.
    Argon2(KdfKind),
}

/// One function's speed; what does not apply to it is `None`.
#[derive(Debug, Default, Serialize)]
pub struct KdfRow {
    pub kdf: String,
    pub hash: Option<&'static str>,
    pub key_bits: u16,
    pub iterations_per_second: Option<f64>,
    pub spread: Option<f64>,
    pub samples: Option<usize>,
    pub time: Option<u32>,
    pub memory_kib: Option<u32>,
    pub cpus: Option<u32>,
    pub target_ms: Option<u64>,
    pub took_ms: Option<f64>,
    /// Share of the time that its thread had a processor.
    #[serde(skip)]
    pub busy: Option<f64>,
}

/// Returns what to measure: the functions asked for, or all.
pub fn cases(names: &[String]) -> Result<Vec<KdfCase>, CliError> {
    let argon2 = [KdfKind::Argon2i, KdfKind::Argon2id].map(KdfCase::Argon2);
    let all_hashes = || HASHES.iter().filter_map(|name| Hash::by_name(name).ok()).map(KdfCase::Pbkdf2);
    if names.is_empty() {
        return Ok(all_hashes().chain(argon2).collect());
    }
    let mut cases = Vec::new();
    for name in names {
        match name.as_str() {
            "argon2i" => cases.push(argon2[0]),
            "argon2id" => cases.push(argon2[1]),
            "pbkdf2" => cases.extend(all_hashes()),
            _ => cases.push(KdfCase::Pbkdf2(hash_of(name)?)),
        }
    }
    Ok(cases)
}

/// The hash of `pbkdf2-HASH`.
fn hash_of(name: &str) -> Result<Hash, CliError> {
    let Some(hash) = name.strip_prefix("pbkdf2-") else {
        return Err(CliError::parameters(format!(
            "--kdf {name}: there is no such function; use argon2id, argon2i, pbkdf2 or pbkdf2-HASH, such as pbkdf2-sha256"
        )));
    };
    Hash::by_name(hash).map_err(|error| CliError::parameters(format!("--kdf {name}: {error}")))
}

impl KdfCase {
    /// Measures it: PBKDF2 for `time`, Argon2 for as long as `cost` says and its choice takes.
    pub fn measure(self, time: Duration, cost: &KdfCost) -> Result<KdfRow, CliError> {
        match self {
            Self::Pbkdf2(hash) => pbkdf2(hash, time),
            Self::Argon2(kind) => argon2(kind, cost),
        }
    }

    /// As it is asked for.
    pub fn name(self) -> String {
        match self {
            Self::Pbkdf2(hash) => format!("pbkdf2-{}", hash.name()),
            Self::Argon2(KdfKind::Argon2i) => "argon2i".into(),
            Self::Argon2(_) => "argon2id".into(),
        }
    }
}

fn pbkdf2(hash: Hash, time: Duration) -> Result<KdfRow, CliError> {
    let measured = rate(1, time, || {
        let mut out = [0; KEY_BYTES];
        Ok(move |iterations| {
            let (password, salt) = (black_box(b"benchmark"), black_box([0; KEY_BYTES]));
            hash.pbkdf2(password, &salt, iterations, black_box(&mut out));
        })
    })?;
    Ok(KdfRow {
        kdf: "pbkdf2".into(),
        hash: Some(hash.name()),
        key_bits: KEY_BITS,
        iterations_per_second: Some(measured.rate),
        spread: Some(measured.spread),
        samples: Some(measured.samples),
        busy: Some(measured.busy),
        ..KdfRow::default()
    })
}

fn argon2(kind: KdfKind, cost: &KdfCost) -> Result<KdfRow, CliError> {
    let name = KdfCase::Argon2(kind).name();
    let measured = benchmark(kind, "", cost, KEY_BYTES);
    let (kdf, took) = measured.map_err(|error| CliError::new(error.kind(), format!("{name}: {error}")))?;
    let Kdf::Argon2 { time, memory_kib, cpus, .. } = kdf else {
        return Err(CliError::device(format!("{name}: another function was measured")));
    };
    Ok(KdfRow {
        kdf: name,
        key_bits: KEY_BITS,
        time: Some(time),
        memory_kib: Some(memory_kib),
        cpus: Some(cpus),
        target_ms: Some(u64::try_from(cost.target.as_millis()).unwrap_or(u64::MAX)),
        took_ms: Some(took.as_secs_f64() * 1000.0),
        ..KdfRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_functions() {
        let names = |asked: &[&str]| -> Vec<String> {
            let asked: Vec<_> = asked.iter().map(|&name| name.to_owned()).collect();
            cases(&asked).unwrap().into_iter().map(KdfCase::name).collect()
        };
        assert_eq!(names(&["argon2id", "pbkdf2-sha512"]), ["argon2id", "pbkdf2-sha512"]);
        let all = names(&[]);
        for name in ["pbkdf2-sha1", "pbkdf2-sha256", "argon2i", "argon2id"] {
            assert!(all.iter().any(|found| found == name), "{name} in {all:?}");
        }
        assert_eq!(names(&["pbkdf2"]).len(), all.len() - 2);
    }

    #[test]
    fn unknown_functions_are_refused_by_name() {
        for name in ["scrypt", "pbkdf2-md4", "", "pbkdf2-"] {
            let error = cases(&[name.to_owned()]).unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Parameters);
            assert!(error.to_string().contains(&format!("--kdf {name}")), "{error}");
        }
    }
}
