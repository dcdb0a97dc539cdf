//! Seals of headers that change: renewed in the same write, never made of what did not hold before.

use super::{Edit, HeaderChange, TokenPlace, TokenSlots};
use crate::LuksHeader;
use crate::error::Error;
use crate::seal::{Seal, SealError, SealSubject, seals_in};

impl Edit {
    /// Puts a seal into the header, in the place of the one that is there.
    ///
    /// # Errors
    /// [`SealError::Several`]; as [`set_token`](Self::set_token).
    pub fn set_seal(&self, seal: &Seal) -> Result<HeaderChange<'_>, Error> {
        let there = self.header.luks2().map_or_else(Vec::new, |header| seals_in(&header.metadata.json));
        let id = match there.as_slice() {
            [] => None,
            [(id, _)] => id.parse().ok(),
            several => return Err(SealError::Several(several.len()).into()),
        };
        let place = TokenPlace { id, replace: id.is_some() };
        Ok(self.set_token(&seal.to_json().to_string(), place, TokenSlots::AsGiven)?.0)
    }
}

impl<'a> HeaderChange<'a> {
    /// Tells if the header will not have what `seal` is of any more, although that stays: in the header, or `beside` it.
    #[must_use]
    pub fn voids(&self, seal: &Seal, beside: bool) -> bool {
        let stays = beside || self.new_header().is_some_and(|header| header.seal().as_ref() == Ok(seal));
        stays && self.subject(seal) != self.edit.header.subject(seal.covers).ok()
    }

    /// The same with a new seal in the place of `seal`, which is in the header that is changed: under the same key, which it
    /// must hold by.
    ///
    /// # Errors
    /// As [`Seal::verify`]; [`SealError::Counter`]; [`Error::MetadataFull`].
    pub fn resealed(self, seal: &Seal, key: &[u8]) -> Result<Self, Error> {
        // Guard: whoever has changed the header before gets no seal for that.
        seal.verify(&self.edit.header, key)?;
        if self.edit.header.luks2().is_none() {
            return Ok(self);
        }
        let none = || SealError::NoCanonicalForm("the changed header has none".to_owned());
        let subject = self.subject(seal).ok_or_else(none)?;
        let counter = seal.counter.checked_add(1).ok_or(SealError::Counter)?;
        let new = Seal::new(key, seal.kind, &subject, seal.covers, counter)?;
        let seals = serde_json::from_slice(&self.header.json).map_err(|_| none())?;
        let id = seals_in(&seals).first().map(|(id, _)| (*id).to_owned()).ok_or(SealError::Missing)?;
        self.and(|json| json["tokens"][id] = new.to_json())
    }

    fn subject(&self, seal: &Seal) -> Option<SealSubject> {
        self.new_header()?.subject(seal.covers).ok()
    }

    /// The header as it will be; of LUKS1, as the last write has it. What a conversion makes has no seal of this one.
    fn new_header(&self) -> Option<LuksHeader> {
        if !self.conversion.is_empty() {
            return None;
        }
        self.edit.header.inner().changed(self.edit, &self.header)
    }
}
