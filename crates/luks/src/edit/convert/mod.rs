//! From LUKS1 to LUKS2 and back, in place: the same volume key, UUID, key slots and data.
//!
//! ```text
//!   to LUKS1   the primary copy is damaged ─ first sector: LUKS1 ─ the rest of LUKS2 overwritten
//!   to LUKS2   (a longer file) ─ key slots out of the way ─ secondary copy ─ JSON of the primary ─ first sector: LUKS2 ─ its rest
//! ```
//!
//! Each step is flushed before the next. The first sector, of 512 bytes that are written whole or not at all, decides
//! which version it is: what a cut leaves is the old header or the new one, and every passphrase opens it.

mod to_luks1;
mod to_luks2;

use std::io::{Cursor, Read, Seek};

use super::{Edit, HeaderChange, Material, NewHeader};
use crate::device::read_at;
use crate::error::Error;
use crate::options::{LuksVersion, parameters};
use crate::{LuksHeader, luks1};

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// Of every new header, but for its key slots.
const HEADER_LEN: usize = 0x8000;
/// Longest UUID: its field has 40 bytes, the last of them zero.
const UUID_LEN_MAX: usize = luks1::UUID_FIELD.end - luks1::UUID_FIELD.start - 1;

impl Edit {
    /// The same header as that of another version. `device` is the one that it was loaded from, and has `size` bytes. What
    /// lies there of key slots is read, so nobody else may write to them before the change is committed.
    ///
    /// # Errors
    /// [`Error::Parameters`] for what the other version cannot have, [`Error::NoRoom`]; why the header must be left
    /// alone.
    pub fn convert(
        &self,
        to: LuksVersion,
        device: &mut (impl Read + Seek),
        size: u64,
    ) -> Result<HeaderChange<'_>, Error> {
        self.check_usable()?;
        if self.header.version() == to {
            return Err(parameters(format!("it is {to} already")));
        }
        match &self.header {
            LuksHeader::V1(header) => to_luks2::plan(self, header, device, size),
            LuksHeader::V2(header) => to_luks1::plan(self, header, size),
        }
    }
}

/// Reads the header that `writes` make, before any is made, of a device of `size` bytes that will have `end`.
pub(super) fn check_result(
    device: &mut (impl Read + Seek),
    [size, end]: [u64; 2],
    writes: &[Material],
) -> Result<(), Error> {
    let mut start = vec![0; HEADER_LEN];
    let there = start.len().min(usize::try_from(size).unwrap_or(usize::MAX));
    read_at(device, 0, &mut start[..there], "the header")?;
    for (offset, bytes) in writes {
        let at = usize::try_from(*offset).unwrap_or(usize::MAX);
        for (to, from) in start.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }
    let read = crate::read(&mut Cursor::new(start), end).and_then(|header| header.inner().check_understood());
    read.map_err(|error| parameters(format!("nothing was written, since the new header would not open: {error}")))
}

fn checked_uuid(uuid: &str) -> Result<&str, Error> {
    if uuid.len() > UUID_LEN_MAX {
        return Err(parameters("its UUID has characters that none has; give it another one first"));
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests;
