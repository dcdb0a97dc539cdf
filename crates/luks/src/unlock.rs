//! From a passphrase to the volume key. Of LUKS1 and LUKS2, only the key slots are found in different ways.

use std::io::{Read, Seek};
use std::time::Duration;

use cryptline_sys::SecretBuf;
use subtle::ConstantTimeEq;

use crate::LuksHeader;
use crate::area::{KeyArea, is_null_cipher};
use crate::budget::{Budget, KdfLimits};
use crate::error::Error;
use crate::hash::HASH_LEN_MAX;
use crate::kdf::Kdf;
use crate::luks2::metadata::Priority;

/// Longest passphrase in bytes: 8 MiB, as the largest key file cryptsetup reads.
pub const PASSPHRASE_LEN_MAX: usize = 8 << 20;
/// Zeros that a key ends with only where somebody has made it longer.
const PADDING: [u8; 8] = [0; 8];

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

impl LuksHeader {
    /// The volume key that `passphrase` opens, from the device that the header was read from. The key slots of the data
    /// are tried, or the one that is named: in LUKS2 preferred ones first, and lowest number first.
    ///
    /// # Errors
    /// [`Error::NoKey`] when no slot opens; otherwise why no slot could be tried.
    pub fn unlock(
        &self,
        device: &mut (impl Read + Seek),
        passphrase: &[u8],
        options: &UnlockOptions,
    ) -> Result<UnlockedSlot, Error> {
        check_passphrase(passphrase)?;
        let mut budget = Budget::new(options.limits);
        let mut attempts = Attempts::new(options.slot);
        for (slot, to_try) in self.inner().slots_to_try(options)? {
            let opened = to_try.and_then(|to_try| to_try.open(device, passphrase, options, &mut budget));
            if let Some(key) = attempts.add(opened)? {
                return Ok(UnlockedSlot { key, slot });
            }
        }
        Err(attempts.failure())
    }

    /// How long [`unlock`](Self::unlock) takes here with a passphrase that no slot opens, at about and
    /// when nothing else runs: for telling who waits. Slots that would be refused take no time.
    #[must_use]
    pub fn unlock_time(&self, options: &UnlockOptions) -> Duration {
        let mut budget = Budget::new(options.limits);
        for (_, slot) in self.inner().slots_to_try(options).unwrap_or_default() {
            // `unlock` says why a slot is refused.
            let _ = slot.and_then(|slot| slot.spend(&mut budget));
        }
        budget.spent()
    }

    // Guard: a key that is too long decrypts to noise, and what is written under it is lost.
    /// Checks that `key` is this volume's key.
    ///
    /// # Errors
    /// [`Error::WrongVolumeKey`], or why it can not be checked.
    pub fn verify_volume_key(&self, key: &[u8], limits: KdfLimits) -> Result<(), Error> {
        let digest = self.inner().key_digest()?;
        digest.spend(&mut Budget::new(limits))?;
        // HMAC pads its key with zeros, so the digest alone can not tell a key from the same
        // key with zeros behind it.
        let len_fits = match self.key_len() {
            Some(len) => len == key.len(),
            // No key slot tells, and no key that was drawn by chance ends so.
            None => !key.ends_with(&PADDING),
        };
        if len_fits && digest.matches(key)? { Ok(()) } else { Err(Error::WrongVolumeKey) }
    }

    /// The same with these key slots only, whose priority is as usual: for trying a token's passphrase.
    #[must_use]
    pub fn with_slots(&self, slots: &[u32]) -> Self {
        let mut header = self.keeping_slots(|slot| slots.contains(&slot));
        if let Self::V2(header) = &mut header {
            header.metadata.keyslots.values_mut().for_each(|slot| slot.priority = Priority::Normal);
        }
        header
    }

    /// The same without a key slot: whether a passphrase opens another one.
    #[must_use]
    pub fn without_slot(&self, slot: u32) -> Self {
        self.keeping_slots(|other| other != slot)
    }

    fn keeping_slots(&self, is_kept: impl Fn(u32) -> bool) -> Self {
        let mut header = self.clone();
        match &mut header {
            Self::V1(header) => {
                (0..).zip(&mut header.slots).filter(|(slot, _)| !is_kept(*slot)).for_each(|(_, place)| *place = None);
            }
            Self::V2(header) => {
                header.metadata.keyslots.retain(|&slot, _| is_kept(slot));
                for digest in header.metadata.digests.values_mut() {
                    digest.keyslots.retain(|&slot| is_kept(slot));
                }
            }
        }
        header
    }
}

/// Digest that proves a key.
pub(crate) struct KeyDigest {
    pub kdf: Kdf,
    pub value: Vec<u8>,
}

impl KeyDigest {
    fn spend(&self, budget: &mut Budget) -> Result<(), Error> {
        budget.spend(&self.kdf, self.value.len())
    }

    /// Compares in constant time, as far as the values go.
    pub fn matches(&self, key: &[u8]) -> Result<bool, Error> {
        let mut computed = [0; HASH_LEN_MAX];
        let Some(computed) = computed.get_mut(..self.value.len()) else {
            return Ok(false);
        };
        self.kdf.derive(key, computed)?;
        Ok(computed.ct_eq(&self.value).into())
    }
}

/// Key slots in the order in which they are tried; for those that cannot be, the reason.
pub(crate) type SlotsToTry = Vec<(u32, Result<SlotToTry, Error>)>;

/// A key slot, and the digest that proves what it keeps.
pub(crate) struct SlotToTry {
    pub area: KeyArea,
    pub digest: KeyDigest,
}

impl SlotToTry {
    fn spend(&self, budget: &mut Budget) -> Result<(), Error> {
        budget.spend(&self.area.kdf, self.area.encryption_key_len as usize)?;
        self.digest.spend(budget)
    }

    /// The key, or `None` when the passphrase is not this slot's.
    fn open(
        &self,
        device: &mut (impl Read + Seek),
        passphrase: &[u8],
        options: &UnlockOptions,
        budget: &mut Budget,
    ) -> Result<Option<SecretBuf>, Error> {
        if is_null_cipher(&self.area.encryption) && !options.allow_null_cipher {
            return Err(Error::NullCipher("the key slot".into()));
        }
        self.spend(budget)?;
        let key = self.area.open(device, passphrase)?;
        Ok(self.digest.matches(&key)?.then_some(key))
    }
}

/// The slots tried so far. A slot that can not be tried (unknown hash, too little memory) must
/// not hide the others; it is reported when no slot opens.
struct Attempts {
    named: Option<u32>,
    wrong_passphrase: bool,
    untried: Option<Error>,
}

impl Attempts {
    fn new(named: Option<u32>) -> Self {
        Self { named, wrong_passphrase: false, untried: None }
    }

    /// Notes how one slot went. Fails at once when the device does.
    fn add(&mut self, opened: Result<Option<SecretBuf>, Error>) -> Result<Option<SecretBuf>, Error> {
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
    fn failure(self) -> Error {
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
