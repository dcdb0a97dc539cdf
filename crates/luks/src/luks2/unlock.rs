//! From a passphrase to the volume key of a LUKS2 volume.

use std::io::{Read, Seek};

use cryptline_sys::SecretBuf;
use subtle::ConstantTimeEq;

use super::Luks2Header;
use super::metadata::{Digest, Keyslot, Luks2Keyslot};
use crate::area::{KeyArea, is_null_cipher};
use crate::budget::{Budget, KdfLimits};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MAX, Hash};
use crate::kdf::Kdf;
use crate::unlock::{Attempts, UnlockOptions, UnlockedSlot, check_passphrase};

/// Zeros that a key ends with only where somebody has made it longer.
const PADDING: [u8; 8] = [0; 8];

impl Luks2Header {
    /// Tries `passphrase` on the key slots of the data segment: preferred ones first, then the
    /// others, lowest number first; those of priority `ignore` only when named.
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
        self.check_usable()?;
        let slots = self.slots_to_try(options)?;
        if slots.is_empty() && options.slot.is_none() {
            self.check_ignored()?;
        }
        let mut budget = Budget::new(options.limits);
        let mut attempts = Attempts::new(options.slot);
        for (number, slot) in slots {
            let digest = self.digest_of(number)?;
            let opened = open_slot(slot, digest, device, passphrase, options, &mut budget);
            if let Some(key) = attempts.add(opened)? {
                return Ok(UnlockedSlot { key, slot: number });
            }
        }
        Err(attempts.failure())
    }

    /// Tells a volume whose slots are all to be named from one without slots.
    fn check_ignored(&self) -> Result<(), Error> {
        let (_, digest) = self.data_digest()?;
        let slots = digest.keyslots.iter();
        let slots = slots.filter(|slot| {
            let slot = self.metadata.keyslots.get(slot);
            slot.is_some_and(|slot| slot.luks2.is_some())
        });
        let numbers: Vec<_> = slots.map(u32::to_string).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        Err(Error::SlotsIgnored(numbers.join(", ")))
    }

    /// Spends what trying every slot costs.
    pub(crate) fn spend_all(&self, options: &UnlockOptions, budget: &mut Budget) {
        let Ok(slots) = self.slots_to_try(options) else {
            return;
        };
        for (number, slot) in slots {
            // A slot that is refused is not paid for; `unlock` says why.
            if let (Some(luks2), Ok(digest)) = (&slot.luks2, self.digest_of(number)) {
                let _ = spend(luks2, digest, budget);
            }
        }
    }

    /// Returns the digest that proves the key that a slot keeps.
    fn digest_of(&self, slot: u32) -> Result<&Digest, Error> {
        let mut digests = self.metadata.digests.values();
        let digest = digests.find(|digest| digest.keyslots.contains(&slot));
        digest.ok_or_else(|| Error::invalid(format!("digests: none is for key slot {slot}")))
    }

    /// Checks that `key` is what the slot keeps.
    // Guard: the digest alone does not tell a key from the same key with zeros behind it.
    pub(crate) fn verify_key_of(&self, slot: u32, key: &[u8]) -> Result<(), Error> {
        let keeps = self.metadata.keyslots.get(&slot).ok_or(Error::SlotNotInUse(slot))?;
        let fits = keeps.key_len as usize == key.len();
        if fits && matches(self.digest_of(slot)?, key)? { Ok(()) } else { Err(Error::WrongVolumeKey) }
    }

    // Guard: a key that is too long decrypts to noise, and what is written under it is lost.
    /// Tells if `key` is the data segment's key.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::NotSupported`] when the header has no digest to check with.
    pub fn verify_volume_key(&self, key: &[u8], limits: KdfLimits) -> Result<bool, Error> {
        let (_, digest) = self.data_digest()?;
        let (kdf, value) = pbkdf2_of(digest)?;
        Budget::new(limits).spend(kdf, value.len())?;
        // HMAC pads its key with zeros, so the digest alone can not tell a key from the same
        // key with zeros behind it.
        let len_fits = match self.key_len() {
            Some(len) => len == key.len(),
            // No key slot tells, and no key that was drawn by chance ends so.
            None => !key.ends_with(&PADDING),
        };
        Ok(len_fits && matches(digest, key)?)
    }
}

/// The volume key, or `None` when the passphrase is not this slot's.
fn open_slot(
    slot: &Keyslot,
    digest: &Digest,
    device: &mut (impl Read + Seek),
    passphrase: &[u8],
    options: &UnlockOptions,
    budget: &mut Budget,
) -> Result<Option<SecretBuf>, Error> {
    let Some(luks2) = &slot.luks2 else {
        let kind = quote(&slot.kind);
        return Err(Error::NotSupported(format!("key slot type {kind}")));
    };
    if is_null_cipher(&luks2.encryption) && !options.allow_null_cipher {
        return Err(Error::NullCipher("the key slot".into()));
    }
    spend(luks2, digest, budget)?;
    let area = KeyArea {
        offset: slot.area.offset,
        encryption: &luks2.encryption,
        encryption_key_len: luks2.encryption_key_len as usize,
        af_hash: Hash::by_name(&luks2.af_hash)?,
        kdf: &luks2.kdf,
        key_len: slot.key_len as usize,
    };
    let key = area.open(device, passphrase)?;
    Ok(matches(digest, &key)?.then_some(key))
}

fn spend(slot: &Luks2Keyslot, digest: &Digest, budget: &mut Budget) -> Result<(), Error> {
    let (digest_kdf, value) = pbkdf2_of(digest)?;
    budget.spend(&slot.kdf, slot.encryption_key_len as usize)?;
    budget.spend(digest_kdf, value.len())
}

/// In constant time, as far as the values go.
fn matches(digest: &Digest, key: &[u8]) -> Result<bool, Error> {
    let (kdf, value) = pbkdf2_of(digest)?;
    let mut computed = [0; HASH_LEN_MAX];
    let Some(computed) = computed.get_mut(..value.len()) else {
        return Ok(false);
    };
    kdf.derive(key, computed)?;
    Ok(computed.ct_eq(value).into())
}

fn pbkdf2_of(digest: &Digest) -> Result<(&Kdf, &[u8]), Error> {
    match &digest.pbkdf2 {
        Some((kdf, value)) => Ok((kdf, value)),
        None => Err(Error::NotSupported(format!("digest type {}", quote(&digest.kind)))),
    }
}
