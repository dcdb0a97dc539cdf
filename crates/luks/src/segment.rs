//! Where the data is and how it is encrypted: what the crypt layer needs to know of a header.

use cryptline_cipher::CipherSpec;

use crate::area::{is_null_cipher, parse_cipher};
use crate::error::Error;

/// Permissions of the caller for what a header says.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentPolicy {
    /// Accept `cipher_null`, and of several segments some in the clear. A header is not authenticated: an
    /// attacker who swaps it for one with `cipher_null` reads everything written afterwards (CVE-2025-59054).
    pub allow_null_cipher: bool,
    /// The header is on another device than the data, so the data may start at 0.
    pub detached: bool,
}

/// A range of the data, and how it is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSegment {
    /// Cipher, mode and IV; `None` for what lies there in the clear.
    pub cipher: Option<CipherSpec>,
    /// Bytes in a cipher sector: 512, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// Start of the data on its device, in bytes.
    pub offset: u64,
    /// Length in bytes; `None`: to the end of the device.
    pub size: Option<u64>,
    /// Added to the number of the sector in the segment for the IV, in 512-byte sectors.
    pub iv_tweak: u64,
}

impl DataSegment {
    /// Length of the data in bytes on a device of `device_size` bytes: whole cipher sectors.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the device ends before the data does, [`Error::TooSmall`] when
    /// there is no data at all.
    pub fn data_size(&self, device_size: u64) -> Result<u64, Error> {
        let Some(size) = self.size else {
            let rest = device_size.saturating_sub(self.offset);
            let sector = u64::from(self.sector_size);
            let size = rest - rest % sector;
            if size == 0 {
                let needed = self.offset.saturating_add(sector);
                return Err(Error::TooSmall { needed, size: device_size });
            }
            return Ok(size);
        };
        match self.offset.checked_add(size) {
            Some(end) if end <= device_size => Ok(size),
            end => Err(Error::Truncated {
                what: "the encrypted data".into(),
                needed: end.unwrap_or(u64::MAX),
                size: device_size,
            }),
        }
    }
}

/// Checks the parts that LUKS1 and LUKS2 have in common.
pub(crate) fn checked_cipher(encryption: &str, policy: SegmentPolicy) -> Result<CipherSpec, Error> {
    if is_null_cipher(encryption) && !policy.allow_null_cipher {
        return Err(Error::NullCipher("the data segment".into()));
    }
    parse_cipher(encryption)
}

/// The data must start behind the header, or at 0 if the header is elsewhere.
pub(crate) fn check_offset(offset: u64, policy: SegmentPolicy) -> Result<(), Error> {
    if offset == 0 && !policy.detached {
        return Err(Error::DetachedHeader);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, size: Option<u64>) -> DataSegment {
        DataSegment {
            cipher: Some(CipherSpec::parse("aes-xts-plain64").unwrap()),
            sector_size: 4096,
            offset,
            size,
            iv_tweak: 0,
        }
    }

    #[test]
    fn dynamic_data_ends_with_the_last_whole_cipher_sector() {
        assert_eq!(segment(4096, None).data_size(3 * 4096 + 511).unwrap(), 8192);
    }

    #[test]
    fn device_without_room_for_data_is_too_small() {
        for size in [0, 4096, 8191] {
            let error = segment(4096, None).data_size(size).unwrap_err();
            assert!(matches!(error, Error::TooSmall { needed: 8192, .. }), "{error}");
        }
    }

    #[test]
    fn fixed_data_beyond_the_device_is_truncated_even_past_64_bits() {
        assert_eq!(segment(4096, Some(8192)).data_size(12288).unwrap(), 8192);
        assert!(segment(4096, Some(8192)).data_size(12287).is_err());
        let huge = u64::MAX - 4095;
        assert!(segment(4096, Some(huge)).data_size(u64::MAX).is_err());
    }
}
