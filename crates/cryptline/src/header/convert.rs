//! From one LUKS version to the other, in place.

use cryptline_luks::format::LuksVersion;

use super::{Edited, Header, OpenedHeader};
use crate::Result;
use crate::keys::with_keys;

impl Header {
    /// Makes the header one of another version, with the same volume key, UUID, key slots and data. Nobody may have the
    /// file or device of the header open; a volume that is open already by a detached header no longer needs it. Wherever
    /// the conversion is cut off, the old header or the new one opens the volume.
    ///
    /// # Errors
    /// Fails if the other version cannot have something, there is no room, or somebody uses the volume; and with all
    /// converted, if old key material could not be overwritten.
    pub fn convert(mut self, to: LuksVersion) -> Result<Edited> {
        let source = self.source()?;
        let opened = OpenedHeader::beside(&source, false, false)?;
        let edit = opened.load()?;
        with_keys(|| self.demand(&opened, edit.header()))?;
        let _locks = opened.locks(edit.header())?;
        let change = opened.on(edit.convert(to, &mut opened.device()?, opened.base.size()))?;
        let (change, renewed) = self.resealed(&opened, change, None)?;
        self.noted(opened.commit_locked(change, None), renewed)
    }
}
