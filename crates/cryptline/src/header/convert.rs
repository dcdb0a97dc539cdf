//! From one LUKS version to the other, in place.

use cryptline_luks::format::LuksVersion;

use super::{Edited, Header, OpenedHeader};
use crate::Result;

impl Header {
    /// Makes the header one of another version, with the same volume key, UUID, key slots and data. Nobody may have
    /// the volume open. Whatever cuts it off, the old header or the new one opens the volume.
    ///
    /// # Errors
    /// Fails if the other version cannot have something, there is no room, or somebody uses the volume.
    pub fn convert(mut self, to: LuksVersion) -> Result<Edited> {
        let source = self.source()?;
        let opened = OpenedHeader::beside(&source, false, false)?;
        let edit = opened.load()?;
        self.demand(&opened, edit.header())?;
        let _in_use = opened.in_use(edit.header())?;
        let _lock = opened.lock()?;
        let (mut device, size) = (opened.device()?, opened.base.size());
        let conversion = opened.on(edit.convert(to, &mut device, size))?;
        let header = opened.on(conversion.commit(&mut device, size))?;
        Ok(Edited::of(header, None))
    }
}
