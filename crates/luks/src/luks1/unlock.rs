//! From a passphrase to the volume key of a LUKS1 volume.

use std::io::{Read, Seek};

use cryptline_sys::SecretBuf;
use subtle::ConstantTimeEq;

use super::{DIGEST_LEN, KeySlot, Luks1Header};
use crate::area::{KeyArea, is_null_cipher};
use crate::budget::{Budget, KdfLimits};
use crate::error::Error;
use crate::kdf::Kdf;
use crate::unlock::{Attempts, UnlockOptions, UnlockedSlot, check_passphrase};

impl Luks1Header {
    /// Tries `passphrase` on the active slots, lowest first, or on the one that is named.
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
        for (number, slot) in self.slots_to_try(options) {
            let opened = self.open_slot(slot, device, passphrase, options, &mut budget);
            if let Some(key) = attempts.add(opened)? {
                return Ok(UnlockedSlot { key, slot: number });
            }
        }
        Err(attempts.failure())
    }

    fn slots_to_try(&self, options: &UnlockOptions) -> impl Iterator<Item = (u32, &KeySlot)> {
        let named = options.slot;
        let wanted = move |number: u32| named.is_none_or(|slot| slot == number);
        self.active_slots().filter(move |&(number, _)| wanted(number))
    }

    /// Spends what trying every slot costs.
    pub(crate) fn spend_all(&self, options: &UnlockOptions, budget: &mut Budget) {
        for (_, slot) in self.slots_to_try(options) {
            // A slot that is refused is not paid for; `unlock` says why.
            let _ = self.spend(slot, budget);
        }
    }

    fn spend(&self, slot: &KeySlot, budget: &mut Budget) -> Result<(), Error> {
        let kdf = self.pbkdf2(slot.iterations, &slot.salt);
        budget.spend(&kdf, self.key_len as usize)?;
        budget.spend(&self.digest_kdf(), DIGEST_LEN)
    }

    /// Tells if `key` is this volume's key.
    ///
    /// # Errors
    /// [`Error::NotSupported`] when the header's hash is unknown, [`Error::CostLimit`].
    pub fn verify_volume_key(&self, key: &[u8], limits: KdfLimits) -> Result<bool, Error> {
        Budget::new(limits).spend(&self.digest_kdf(), DIGEST_LEN)?;
        self.matches(key)
    }

    /// In constant time, as far as the digests go.
    fn matches(&self, key: &[u8]) -> Result<bool, Error> {
        let mut digest = [0; DIGEST_LEN];
        self.digest_kdf().derive(key, &mut digest)?;
        let len_fits = key.len() == self.key_len as usize;
        Ok(len_fits && bool::from(digest.ct_eq(&self.digest)))
    }

    fn digest_kdf(&self) -> Kdf {
        self.pbkdf2(self.digest_iterations, &self.digest_salt)
    }

    /// The volume key, or `None` when the passphrase is not this slot's.
    fn open_slot(
        &self,
        slot: &KeySlot,
        device: &mut (impl Read + Seek),
        passphrase: &[u8],
        options: &UnlockOptions,
        budget: &mut Budget,
    ) -> Result<Option<SecretBuf>, Error> {
        let encryption = self.encryption();
        if is_null_cipher(&encryption) && !options.allow_null_cipher {
            return Err(Error::NullCipher("the key slot".into()));
        }
        self.spend(slot, budget)?;
        let kdf = self.pbkdf2(slot.iterations, &slot.salt);
        let area = KeyArea {
            offset: slot.extent(self.key_len).offset,
            encryption: &encryption,
            encryption_key_len: self.key_len as usize,
            af_hash: super::hash(&self.hash)?,
            kdf: &kdf,
            key_len: self.key_len as usize,
        };
        let key = area.open(device, passphrase)?;
        Ok(self.matches(&key)?.then_some(key))
    }

    fn pbkdf2(&self, iterations: u32, salt: &[u8]) -> Kdf {
        Kdf::Pbkdf2 { hash: self.hash.clone(), iterations, salt: salt.to_vec() }
    }
}
