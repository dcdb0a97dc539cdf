//! Code that unlocking LUKS1 and LUKS2 has in common.

use cryptline_sys::SecretBuf;

use crate::budget::KdfLimits;
use crate::error::Error;

/// Longest passphrase in bytes: 8 MiB, as the largest key file cryptsetup reads.
pub const PASSPHRASE_LEN_MAX: usize = 8 << 20;

/// How to unlock.
#[derive(Clone, Debug, Default)]
pub struct UnlockOptions {
    /// Try only this key slot, whatever its priority.
    pub slot: Option<u32>,
    /// The slot that is named may keep another key than that of the volume, which is returned then.
    pub unbound: bool,
    /// Try key slots whose area is not encrypted at all.
    pub allow_null_cipher: bool,
    /// Limits of the cost of all slots tried together.
    pub limits: KdfLimits,
}

/// The volume key and the slot it came from.
pub struct UnlockedSlot {
    /// The volume key.
    pub key: SecretBuf,
    /// Number of the key slot.
    pub slot: u32,
}

pub(crate) fn check_passphrase(passphrase: &[u8]) -> Result<(), Error> {
    if passphrase.len() > PASSPHRASE_LEN_MAX {
        return Err(Error::Parameters(format!(
            "the passphrase has {} bytes, at most {PASSPHRASE_LEN_MAX} are possible",
            passphrase.len()
        )));
    }
    Ok(())
}

/// The slots tried so far. A slot that can not be tried (unknown hash, too little memory) must
/// not hide the others; it is reported when no slot opens.
pub(crate) struct Attempts {
    named: Option<u32>,
    wrong_passphrase: bool,
    untried: Option<Error>,
}

impl Attempts {
    pub fn new(named: Option<u32>) -> Self {
        Self { named, wrong_passphrase: false, untried: None }
    }

    /// Notes how one slot went. Fails at once when the device does.
    pub fn add(&mut self, opened: Result<Option<SecretBuf>, Error>) -> Result<Option<SecretBuf>, Error> {
        match opened {
            Ok(None) => self.wrong_passphrase = true,
            Ok(key) => return Ok(key),
            Err(error @ (Error::Io { .. } | Error::Truncated { .. })) => return Err(error),
            Err(error) => {
                self.untried.get_or_insert(error);
            }
        }
        Ok(None)
    }

    /// Why no slot opened.
    pub fn failure(self) -> Error {
        match (self.untried, self.wrong_passphrase, self.named) {
            // The passphrase may well be right for a slot that was too costly.
            (Some(error @ (Error::OutOfMemory { .. } | Error::CostLimit { .. })), _, _) => error,
            (_, true, _) => Error::NoKey,
            (Some(error), false, _) => error,
            (None, false, Some(slot)) => Error::Parameters(format!("key slot {slot} is not in use for this volume")),
            (None, false, None) => Error::NoKeySlot,
        }
    }
}
