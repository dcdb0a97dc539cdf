//! How far a header is believed about the cipher of its data.
//!
//! Whoever can write to the disk can write a header with another cipher, under which the key slots and the digest are
//! still right, and wait for what is written next. But nobody can write a key slot that another's passphrase opens: **the
//! slot that a passphrase has opened proves the cipher of its own area**, and programs that make volumes give areas the
//! cipher of the data. So a slot vouches for that word:
//!
//! | the data's cipher is | vouched for | not vouched for, or opened by the volume key |
//! |---|---|---|
//! | sound | read and written | read and written |
//! | legacy | read and written | read only |
//! | broken | read only | refused |
//!
//! A word that the caller accepts is read and written. `cipher_null` is no matter of this: [`SegmentPolicy`] refuses it.
//!
//! [`SegmentPolicy`]: crate::SegmentPolicy

use std::fmt;

use cryptline_cipher::{CipherSpec, Strength};

use crate::error::quote;
use crate::{DataSegment, Error, LuksHeader};

/// Rights over the data of a volume that a key has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Data may be read and written.
    ReadWrite,
    /// Data may be read.
    ReadOnly(Doubted),
    /// Nothing.
    Refused(Doubted),
}

/// A cipher that a header may have been given by somebody who wants what will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubted {
    /// Its word, as the header has it.
    pub word: String,
    /// Its class.
    pub strength: Strength,
    /// The key slot that was opened, and the cipher of its area; `None` for the volume key itself.
    pub slot: Option<(u32, String)>,
}

impl fmt::Display for Doubted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.strength {
            Strength::Sound => "sound",
            Strength::Legacy => "weaker than what is made today",
            Strength::Broken => "so weak that no volume should have it",
        };
        write!(f, "the header says that the data is encrypted with {}, which is {class}", quote(&self.word))?;
        match &self.slot {
            None => f.write_str(", and no key slot vouches for that where the volume key itself is given"),
            Some((slot, word)) => write!(f, "; key slot {slot}, which was opened, is encrypted with {}", quote(word)),
        }?;
        f.write_str("; somebody who can write to the header may have changed it")
    }
}

impl Trust {
    /// For whoever goes without writing where that is doubted: why it must.
    ///
    /// # Errors
    /// [`Error::DoubtedCipher`].
    pub fn to_read(self) -> Result<Option<Doubted>, Error> {
        match self {
            Self::ReadWrite => Ok(None),
            Self::ReadOnly(doubted) => Ok(Some(doubted)),
            Self::Refused(doubted) => Err(Error::DoubtedCipher(doubted)),
        }
    }

    /// For whoever must write.
    ///
    /// # Errors
    /// [`Error::DoubtedCipher`].
    pub fn to_write(self) -> Result<(), Error> {
        match self {
            Self::ReadWrite => Ok(()),
            Self::ReadOnly(doubted) | Self::Refused(doubted) => Err(Error::DoubtedCipher(doubted)),
        }
    }
}

impl LuksHeader {
    /// Rights over the data in `segments` on a device of `device_size` bytes (`None`: its beginning only), which key slot
    /// `slot` has opened, or the volume key itself. The words in `accepted` are believed, exactly as they are written.
    #[must_use]
    pub fn trust(
        &self,
        segments: &[DataSegment],
        device_size: Option<u64>,
        slot: Option<u32>,
        accepted: &[String],
    ) -> Trust {
        let area = slot.and_then(|slot| Some((slot, self.inner().area_cipher(slot)?)));
        let mut trust = Trust::ReadWrite;
        for segment in segments {
            let Some(cipher) = segment.cipher.as_ref().filter(|cipher| !cipher.is_null()) else {
                continue;
            };
            if accepted.iter().any(|word| word == cipher.as_str()) {
                continue;
            }
            // One of an unknown size may be as long as any.
            let size = device_size.map_or(0, |size| segment.data_size(size).unwrap_or(u64::MAX));
            let sectors = segment.iv_tweak.saturating_add(size / 512);
            let strength = cipher.strength(sectors);
            let vouches = |word: &str| CipherSpec::parse(word).is_ok_and(|word| word.is_alike(cipher));
            // No area is long enough to tell a number of 32 bits from one of 64.
            let is_vouched = area.as_ref().is_some_and(|(_, word)| vouches(word)) && !cipher.wraps(sectors);
            let doubted = || Doubted { word: cipher.as_str().to_owned(), strength, slot: area.clone() };
            match (strength, is_vouched) {
                (Strength::Sound, _) | (Strength::Legacy, true) => {}
                (Strength::Broken, false) => return Trust::Refused(doubted()),
                (Strength::Legacy, false) | (Strength::Broken, true) => trust = Trust::ReadOnly(doubted()),
            }
        }
        trust
    }

    /// Tells if a key slot keeps the volume key, and not another one.
    #[must_use]
    pub fn keeps_volume_key(&self, slot: u32) -> bool {
        match self.luks2() {
            None => true,
            Some(header) => header.keeps(slot),
        }
    }
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
