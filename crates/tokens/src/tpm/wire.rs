//! The bytes of commands and responses (TPM 2.0 Library, parts 2 and 3): numbers are big-endian, and what has no fixed
//! length has its length in front, in two bytes.

/// Longest command and response, bytes.
pub const MESSAGE_MAX: usize = 4096;
/// Bytes of tag, length and code at the beginning of each.
pub const HEADER: usize = 10;

pub const ST_NO_SESSIONS: u16 = 0x8001;
pub const ST_SESSIONS: u16 = 0x8002;

pub const ALG_RSA: u16 = 0x0001;
pub const ALG_SHA1: u16 = 0x0004;
pub const ALG_AES: u16 = 0x0006;
pub const ALG_KEYEDHASH: u16 = 0x0008;
pub const ALG_SHA256: u16 = 0x000b;
pub const ALG_SHA384: u16 = 0x000c;
pub const ALG_SHA512: u16 = 0x000d;
pub const ALG_NULL: u16 = 0x0010;
pub const ALG_ECC: u16 = 0x0023;
pub const ALG_CFB: u16 = 0x0043;
pub const CURVE_P256: u16 = 0x0003;

pub const RH_OWNER: u32 = 0x4000_0001;
pub const RH_NULL: u32 = 0x4000_0007;
/// Authorises with a password, here with an empty one.
pub const RS_PASSWORD: u32 = 0x4000_0009;

/// Bytes that become a command, or a part of one.
#[derive(Clone, Debug, Default)]
pub struct CommandWriter(pub Vec<u8>);

impl CommandWriter {
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Bytes with their length in front. What is longer than a message makes one that is refused as too long.
    pub fn sized(self, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(len).bytes(bytes)
    }
}

/// Rest of a response. `None` where it is too short.
#[derive(Clone, Copy, Debug)]
pub struct ResponseReader<'a>(pub &'a [u8]);

impl<'a> ResponseReader<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Bytes that have their length in front.
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// The same, with the length.
    pub fn with_size(&mut self) -> Option<&'a [u8]> {
        let len = Self(self.0).u16()?;
        self.take(usize::from(len) + 2)
    }

    /// Which registers of this bank a `TPML_PCR_SELECTION` names, one bit each.
    pub fn pcrs(&mut self, bank: u16) -> Option<u32> {
        let mut pcrs = 0;
        for _ in 0..self.u32()? {
            let (named, len) = (self.u16()?, self.u8()?);
            let bits = self.take(len.into())?;
            let shifts = (0_u32..24).step_by(8);
            let bits = bits.iter().zip(shifts).map(|(&byte, by)| u32::from(byte) << by);
            if named == bank {
                pcrs |= bits.sum::<u32>();
            }
        }
        Some(pcrs)
    }
}

/// Which registers of which bank, as `TPML_PCR_SELECTION`.
pub fn pcr_selection(bank: u16, pcrs: u32) -> CommandWriter {
    let [_, high, middle, low] = pcrs.to_be_bytes();
    CommandWriter::default().u32(1).u16(bank).u8(3).u8(low).u8(middle).u8(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_short_is_not() {
        let written = CommandWriter::default().u8(1).u16(2).u32(3).sized(b"ab").0;
        let mut reader = ResponseReader(&written);
        assert_eq!((reader.u8(), reader.u16()), (Some(1), Some(2)));
        assert_eq!(reader.u32(), Some(3));
        assert_eq!(ResponseReader(reader.0).with_size(), Some(&b"\0\x02ab"[..]));
        assert_eq!(reader.sized(), Some(&b"ab"[..]));
        assert_eq!(reader.u8(), None);
        assert_eq!(ResponseReader(b"\0\x03ab").sized(), None);
        assert_eq!(ResponseReader(b"\xff\xff").with_size(), None);
        let selection = pcr_selection(ALG_SHA256, 1 << 7 | 1 << 8 | 1 << 23).0;
        assert_eq!(selection, b"\0\0\0\x01\0\x0b\x03\x80\x01\x80");
        assert_eq!(ResponseReader(&selection).pcrs(ALG_SHA256), Some(1 << 7 | 1 << 8 | 1 << 23));
        assert_eq!(ResponseReader(&selection).pcrs(ALG_SHA1), Some(0));
        assert_eq!(ResponseReader(&selection[..9]).pcrs(ALG_SHA256), None);
        assert_eq!(ResponseReader(b"\xff\xff\xff\xff\0").pcrs(ALG_SHA256), None);
    }
}
