//! Rights over a volume whose header is all that says how it is encrypted. Every way of opening one asks here.
//!
//! Doubted volumes get gates that write nothing, or, where somebody must write (`Open::writes`), an error. New key
//! areas take the data's word unless that is broken, so that they vouch. Verbs that unlock ask before they change a
//! header: a new key slot would vouch for what was put there.

use cryptline_luks::{DataSegment, Doubted, LuksHeader, Trust};

use super::Open;
use crate::error::Problem;
use crate::{Result, Warning};

impl Open {
    /// Has a volume whose cipher is doubted opened for reading only; what is to be said of it then. `slot` is the key slot
    /// that was opened, and `size` that of the device in bytes.
    pub(super) fn open_as_trusted(
        &mut self,
        header: &LuksHeader,
        segments: &[DataSegment],
        size: u64,
        slot: Option<u32>,
        name: &str,
    ) -> Result<Option<Warning>> {
        let failed = |error| Problem::Luks(error).on(name);
        let trust = self.trust(header, segments, size, slot);
        if self.writes && !self.access.read_only {
            return trust.to_write().map(|()| None).map_err(failed);
        }
        let doubted: Option<Doubted> = trust.to_read().map_err(failed)?;
        self.access.read_only |= doubted.is_some();
        Ok(doubted.map(Warning::Doubted))
    }

    /// How far the header is believed.
    pub(super) fn trust(&self, header: &LuksHeader, segments: &[DataSegment], size: u64, slot: Option<u32>) -> Trust {
        header.trust(segments, Some(size), slot, self.given.accepted_ciphers())
    }
}
