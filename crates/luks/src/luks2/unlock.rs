//! Key slots of a LUKS2 volume, and the digests that prove what they keep.

use super::Luks2Header;
use super::metadata::{Digest, Keyslot, Priority};
use crate::area::KeyArea;
use crate::edit::HeaderEdit;
use crate::error::{Error, quote};
use crate::hash::Hash;
use crate::unlock::{KeyDigest, SlotToTry, SlotsToTry, UnlockOptions};
use crate::version::HeaderVersion;

impl Luks2Header {
    /// Key slots that keep the data segment's key: preferred ones first, then the others, lowest number first; those of
    /// priority `ignore` only when named. One that is named may keep another key, if it may be such.
    pub(super) fn chosen_slots(&self, options: &UnlockOptions) -> Result<SlotsToTry, Error> {
        self.check_usable()?;
        let (_, digest) = self.data_digest()?;
        let bound = self.metadata.keyslots.iter().map(|(&number, slot)| (number, slot));
        let wanted = |&(number, slot): &(u32, &Keyslot)| {
            let chosen = match options.slot {
                Some(named) => named == number,
                None => slot.priority != Priority::Ignore,
            };
            let is_bound = digest.keyslots.contains(&number);
            chosen && (is_bound || options.unbound && options.slot.is_some())
        };
        let mut slots: Vec<_> = bound.filter(wanted).collect();
        if slots.is_empty() && options.slot.is_none() {
            self.check_ignored()?;
        }
        slots.sort_by_key(|&(number, slot)| (std::cmp::Reverse(slot.priority), number));
        Ok(slots.into_iter().map(|(number, slot)| (number, self.to_try(number, slot))).collect())
    }

    /// Tells a volume whose slots are all to be named from one without slots.
    fn check_ignored(&self) -> Result<(), Error> {
        let numbers: Vec<_> = self.keeping().unwrap_or_default().iter().map(u32::to_string).collect();
        if numbers.is_empty() { Ok(()) } else { Err(Error::SlotsIgnored(numbers.join(", "))) }
    }

    fn to_try(&self, number: u32, slot: &Keyslot) -> Result<SlotToTry, Error> {
        let Some(luks2) = &slot.luks2 else {
            return Err(Error::NotSupported(format!("key slot type {}", quote(&slot.kind))));
        };
        let area = KeyArea {
            offset: slot.area.offset,
            encryption: luks2.encryption.clone(),
            encryption_key_len: luks2.encryption_key_len,
            af_hash: Hash::by_name(&luks2.af_hash)?,
            kdf: luks2.kdf.clone(),
            key_len: slot.key_len,
        };
        Ok(SlotToTry { area, digest: self.digest_of(number)? })
    }

    /// Returns the digest that proves the key that a slot keeps.
    pub(crate) fn digest_of(&self, slot: u32) -> Result<KeyDigest, Error> {
        let mut digests = self.metadata.digests.values();
        let digest = digests.find(|digest| digest.keyslots.contains(&slot));
        digest.ok_or_else(|| Error::invalid(format!("digests: none is for key slot {slot}")))?.proof()
    }
}

impl Digest {
    pub(super) fn proof(&self) -> Result<KeyDigest, Error> {
        match &self.pbkdf2 {
            Some((kdf, value)) => Ok(KeyDigest { kdf: kdf.clone(), value: value.clone() }),
            None => Err(Error::NotSupported(format!("digest type {}", quote(&self.kind)))),
        }
    }
}
