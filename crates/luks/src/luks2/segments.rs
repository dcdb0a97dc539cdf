//! Where the data of a LUKS2 volume is: its segments in the order of their numbers, one behind the other.

use super::Luks2Header;
use super::metadata::{Digest, JsonSegment};
use crate::area::is_null_cipher;
use crate::error::{Error, quote};
use crate::segment::{DataSegment, SegmentPolicy, check_offset, checked_cipher};
use crate::version::HeaderVersion;

/// Unit that tweaks count, whatever the sectors of the cipher are.
const SECTOR: u64 = 512;

impl Luks2Header {
    /// Segments in the order of the clear disk. All that are encrypted are under the volume key.
    pub(super) fn data_segments(&self, policy: SegmentPolicy) -> Result<Vec<DataSegment>, Error> {
        self.check_usable()?;
        let all = &self.metadata.segments;
        let is_only = all.len() == 1;
        if !is_only {
            self.check_order()?;
            self.data_digest()?;
        }
        let segments = all.iter().map(|(&number, segment)| {
            check_offset(segment.offset, policy)?;
            if is_only || segment.kind != "linear" {
                self.encrypted(number, segment, policy)
            } else {
                clear(number, segment, policy)
            }
        });
        segments.collect()
    }

    fn encrypted(&self, number: u32, segment: &JsonSegment, policy: SegmentPolicy) -> Result<DataSegment, Error> {
        let not_supported = |what| Err(Error::NotSupported(what));
        let Some(crypt) = &segment.crypt else {
            return not_supported(format!("segment type {}", quote(&segment.kind)));
        };
        if let Some(integrity) = &crypt.integrity {
            return not_supported(format!("integrity ({})", quote(integrity)));
        }
        if crypt.iv_tweak != 0 && self.metadata.segments.len() == 1 {
            return Err(Error::invalid(format!(
                "segments.{number}.iv_tweak: {}; a single segment has 0 outside of reencryption, and programs disagree on others",
                crypt.iv_tweak
            )));
        }
        Ok(DataSegment {
            cipher: Some(checked_cipher(&crypt.encryption, policy)?),
            sector_size: crypt.sector_size,
            offset: segment.offset,
            size: segment.size,
            iv_tweak: crypt.iv_tweak,
        })
    }

    /// Several segments are numbered from 0 on, each begins where the one before ends, and only the last may
    /// go on to the end of the device. Those that are encrypted are so by one cipher, and count their sectors from the
    /// beginning of the clear disk: else whoever can write to the device could exchange ranges of it, and the tweaks with
    /// them, or have two ranges under the same ones.
    fn check_order(&self) -> Result<(), Error> {
        let mut end = None;
        let begins = self.metadata.segments.values().next().map_or(0, |first| first.offset);
        let mut ciphers = self.metadata.segments.values().filter_map(|segment| segment.crypt.as_ref());
        let cipher = ciphers.find(|crypt| !is_null_cipher(&crypt.encryption)).map_or("", |crypt| &crypt.encryption);
        for (expected, (&number, segment)) in (0..).zip(&self.metadata.segments) {
            let wrong = |what| Err(Error::invalid(format!("segments.{number}: {what}")));
            if number != expected {
                return wrong(format!("there is no number {expected} before it"));
            }
            let begin = segment.offset;
            match end {
                Some(None) => return wrong("behind one whose size is dynamic".to_owned()),
                Some(Some(end)) if begin != end => {
                    return wrong(format!("begins at byte {begin}, the one before ends at {end}"));
                }
                _ => {}
            }
            if let Some(crypt) = &segment.crypt {
                let sector = (begin - begins) / SECTOR;
                if crypt.iv_tweak != sector {
                    return wrong(format!(
                        "iv_tweak is {}, but the segment begins at sector {sector} of the disk",
                        crypt.iv_tweak
                    ));
                }
                // What is not encrypted at all is refused by its own name.
                if crypt.encryption != cipher && !is_null_cipher(&crypt.encryption) {
                    let other = quote(&crypt.encryption);
                    return wrong(format!("its cipher is {other}, that of another segment is {}", quote(cipher)));
                }
            }
            let size = segment.size;
            if size.is_some_and(|size| begin.checked_add(size).is_none()) {
                return wrong("ends beyond 2^64 bytes".to_owned());
            }
            end = Some(size.map(|size| begin + size));
        }
        Ok(())
    }

    /// Tells if a key slot keeps the volume key, and not another one.
    pub(crate) fn keeps(&self, slot: u32) -> bool {
        self.data_digest().is_ok_and(|(_, digest)| digest.keyslots.contains(&slot))
    }

    /// The digest of the volume key, which is that of every encrypted segment.
    pub(crate) fn data_digest(&self) -> Result<(u32, &Digest), Error> {
        let mut found: Option<(u32, &Digest)> = None;
        let is_only = self.metadata.segments.len() == 1;
        for (number, segment) in &self.metadata.segments {
            let wrong = |what: &str| {
                let which = if is_only { "the data segment".to_owned() } else { format!("segment {number}") };
                Err(Error::invalid(format!("digests: {what} is for {which}")))
            };
            let digests = self.metadata.digests.iter();
            let mut bound = digests.filter(|(_, digest)| digest.segments.contains(number));
            let is_clear = segment.kind == "linear" && !is_only;
            match (bound.next(), bound.next()) {
                (None, _) if is_clear => {}
                (None, _) => return wrong("none"),
                (Some(_), _) if is_clear => return wrong("one, though it is not encrypted,"),
                (Some(_), Some(_)) => return wrong("more than one"),
                (Some((number, digest)), None) => match found {
                    Some((other, _)) if other != *number => {
                        let what = "segments under different volume keys";
                        return Err(Error::NotSupported(what.into()));
                    }
                    _ => found = Some((*number, digest)),
                },
            }
        }
        // All are in the clear, so it is no volume of ours.
        found.ok_or_else(|| Error::NotSupported("segment type 'linear'".into()))
    }
}

/// A range that is not encrypted, between others that are.
fn clear(number: u32, segment: &JsonSegment, policy: SegmentPolicy) -> Result<DataSegment, Error> {
    if !policy.allow_null_cipher {
        return Err(Error::ClearSegment(number));
    }
    if segment.size.is_some_and(|size| !size.is_multiple_of(512)) {
        return Err(Error::invalid(format!("segments.{number}.size: not a multiple of 512")));
    }
    Ok(DataSegment { cipher: None, sector_size: 512, offset: segment.offset, size: segment.size, iv_tweak: 0 })
}
