//! How costly the passphrase of a new key slot is to guess.

use std::time::Duration;

use clap::Args;
use cryptline::luks::KEY_LEN_MAX;
use cryptline::luks::format::{KdfCost, KdfKind};

use super::choice::{self, ChoiceWords};
use crate::CliError;

const KDFS: &ChoiceWords<KdfKind> = &[
    ("pbkdf2", "PBKDF2, which GPUs attack cheaply", KdfKind::Pbkdf2),
    ("argon2i", "Argon2i", KdfKind::Argon2i),
    ("argon2id", "Argon2id", KdfKind::Argon2id),
];

/// A key derivation function and its cost.
#[derive(Args, Clone, Debug)]
pub struct PbkdfArgs {
    /// Key derivation function [default: argon2id; LUKS1: pbkdf2]
    #[arg(long, value_name = "NAME", value_parser = choice::of(KDFS))]
    pub pbkdf: Option<KdfKind>,

    /// Time that unlocking should take on this machine, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub iter_time: u64,

    /// Number of PBKDF2 iterations or Argon2 passes, instead of measuring
    #[arg(long, value_name = "N", conflicts_with = "iter_time")]
    pub pbkdf_force_iterations: Option<u32>,

    /// Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations
    #[arg(long, value_name = "KIB")]
    pub pbkdf_memory: Option<u32>,

    /// Argon2 lanes [default: one per processor, at most 4]
    #[arg(long, value_name = "N")]
    pub pbkdf_parallel: Option<u32>,
}

/// How a key slot is encrypted (LUKS2).
#[derive(Args, Clone, Debug)]
pub struct SlotCipherArgs {
    /// Cipher of the key slot (LUKS2) [default: as the data]
    #[arg(long, value_name = "SPEC", requires = "keyslot_key_size")]
    pub keyslot_cipher: Option<String>,

    /// Size of that cipher's key in bits
    #[arg(long, value_name = "BITS", requires = "keyslot_cipher")]
    pub keyslot_key_size: Option<u32>,
}

impl SlotCipherArgs {
    /// The cipher, and the bytes of its key.
    ///
    /// # Errors
    /// Exit code 1 for the size of a key that is none.
    pub fn cipher(&self) -> Result<Option<(String, u32)>, CliError> {
        let (Some(cipher), Some(bits)) = (&self.keyslot_cipher, self.keyslot_key_size) else {
            return Ok(None);
        };
        bytes_of_key("--keyslot-key-size", bits).map(|bytes| Some((cipher.clone(), bytes)))
    }
}

/// Converts so many bits to bytes.
///
/// # Errors
/// Exit code 1 where they are no bytes.
pub fn bytes_of_key(option: &str, bits: u32) -> Result<u32, CliError> {
    if bits == 0 || !bits.is_multiple_of(8) {
        return Err(CliError::parameters(format!("{option} {bits}: use a multiple of 8 bits, such as 512")));
    }
    if bits / 8 > KEY_LEN_MAX {
        return Err(CliError::parameters(format!(
            "{option} {bits}: no header has keys of more than {} bits",
            8 * KEY_LEN_MAX
        )));
    }
    Ok(bits / 8)
}

impl PbkdfArgs {
    /// Its cost.
    pub fn cost(&self) -> KdfCost {
        KdfCost {
            target: Duration::from_millis(self.iter_time),
            iterations: self.pbkdf_force_iterations,
            memory_kib: self.pbkdf_memory,
            cpus: self.pbkdf_parallel,
        }
    }
}
