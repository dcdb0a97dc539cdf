//! Headers that are not changed, since what they say of their data is doubted.

use cryptline_luks::SegmentPolicy;

use super::{Header, OpenedHeader};
use crate::Result;

impl Header {
    /// Refuses to change a header that somebody may have given another cipher. A new key slot would vouch for that, and
    /// nobody would doubt it any more.
    pub(super) fn check_trust(
        &self,
        opened: &OpenedHeader,
        header: &cryptline_luks::LuksHeader,
        slot: Option<u32>,
    ) -> Result<()> {
        if slot.is_some_and(|slot| !header.keeps_volume_key(slot)) {
            return Ok(());
        }
        let policy = SegmentPolicy { allow_null_cipher: true, detached: true };
        // What cannot be opened here is no data that can be lost by it.
        let Ok(segments) = header.segments(policy) else { return Ok(()) };
        // Nor is any written now, however long it is.
        let trust = header.trust(&segments, None, slot, self.given.accepted_ciphers());
        opened.on(trust.to_write())
    }
}
