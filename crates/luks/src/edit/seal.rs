//! Seals of headers that change: renewed in the same write, never made of what did not hold before.

use super::{Edit, HeaderChange, NewHeader, TokenPlace, TokenSlots};
use crate::LuksHeader;
use crate::error::Error;
use crate::luks2::binary::text;
use crate::luks2::metadata::Metadata;
use crate::seal::{Seal, SealError, SealSubject, seals_in};

impl Edit {
    /// Puts a seal into the header, in the place of the one that is there.
    ///
    /// # Errors
    /// [`SealError::Several`]; as [`set_token`](Self::set_token).
    pub fn set_seal(&self, seal: &Seal) -> Result<HeaderChange<'_>, Error> {
        let there = match &self.header {
            LuksHeader::V1(_) => Vec::new(),
            LuksHeader::V2(header) => seals_in(&header.metadata.json),
        };
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
        let (NewHeader::V2 { raw, json }, LuksHeader::V2(header)) = (&self.header, &self.edit.header) else {
            return Ok(self);
        };
        let none = || SealError::NoCanonicalForm("the changed header has none".to_owned());
        let subject = self.subject(seal).ok_or_else(none)?;
        let counter = seal.counter.checked_add(1).ok_or(SealError::Counter)?;
        let new = Seal::new(key, seal.kind, &subject, seal.covers, counter)?;
        let mut json: serde_json::Value = serde_json::from_slice(json).map_err(|_| none())?;
        let id = seals_in(&json).first().map(|(id, _)| (*id).to_owned()).ok_or(SealError::Missing)?;
        json["tokens"][id] = new.to_json();
        let editing = super::luks2::Luks2Editing { edit: self.edit, header };
        let NewHeader::V2 { json, .. } = editing.rewrite(json)?.header else { return Ok(self) };
        Ok(Self { header: NewHeader::V2 { raw: raw.clone(), json }, ..self })
    }

    fn subject(&self, seal: &Seal) -> Option<SealSubject> {
        self.new_header()?.subject(seal.covers).ok()
    }

    /// The header as it will be; of LUKS1, as the last write has it.
    fn new_header(&self) -> Option<LuksHeader> {
        match (&self.header, &self.edit.header) {
            (NewHeader::V1(steps), LuksHeader::V1(_)) => {
                let mut bytes = self.edit.raw.clone();
                let last = steps.last()?;
                bytes.get_mut(..last.len())?.copy_from_slice(last);
                crate::luks1::parse(bytes.first_chunk()?).ok().map(LuksHeader::V1)
            }
            (NewHeader::V2 { raw, json }, LuksHeader::V2(header)) => {
                let mut header = header.clone();
                header.binary.uuid = text(&raw[super::luks2::UUID_FIELD..][..40]);
                header.metadata = Metadata::parse(serde_json::from_slice(json).ok()?).ok()?;
                Some(LuksHeader::V2(header))
            }
            _ => None,
        }
    }
}
