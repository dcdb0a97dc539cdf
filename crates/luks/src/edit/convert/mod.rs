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

use std::io::{Cursor, Read, Seek, Write};

use super::{Edit, Material, wipe};
use crate::area::Area;
use crate::device::{read_at, to_u64, write_in_order};
use crate::error::Error;
use crate::options::{LuksVersion, parameters};
use crate::{LuksHeader, luks1};

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// Of every new header, but for its key slots.
const HEADER_LEN: usize = 0x8000;
/// Longest UUID: its field has 40 bytes, the last of them zero.
const UUID_LEN_MAX: usize = luks1::UUID_FIELD.end - luks1::UUID_FIELD.start - 1;

/// A header of another version, not written yet.
#[must_use = "nothing is written before it is committed"]
pub struct Conversion<'a> {
    edit: &'a Edit,
    /// Each is durable before the next is begun.
    writes: Vec<Material>,
    /// Ranges that belonged to the old header, and may still be read.
    wiped: Vec<Area>,
}

impl Edit {
    /// The same header as that of another version. `device` is the one that it was loaded from, and has `size` bytes.
    ///
    /// # Errors
    /// [`Error::Parameters`] for what the other version cannot have, [`Error::NoRoom`]; why the header must be left
    /// alone.
    pub fn convert(
        &self,
        to: LuksVersion,
        device: &mut (impl Read + Seek),
        size: u64,
    ) -> Result<Conversion<'_>, Error> {
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

impl Conversion<'_> {
    /// Writes it to the device that the header was loaded from, which has `size` bytes now. A flush of the device must
    /// make durable what was written before.
    ///
    /// # Errors
    /// [`Error::ChangedMeanwhile`], with nothing written; [`Error::NotWiped`], with everything changed; [`Error::Io`],
    /// with the old header or the new one in place.
    pub fn commit(self, device: &mut (impl Read + Write + Seek), size: u64) -> Result<LuksHeader, Error> {
        self.edit.check_unchanged(device, size)?;
        let end = self.check_result(device, size)?;
        write_in_order(device, &self.writes)?;
        wipe(device, &self.wiped, end)?;
        crate::read(device, end)
    }

    /// Reads the new header before anything is written. Returns the size that the device will have: the file of a
    /// detached header grows.
    fn check_result(&self, device: &mut (impl Read + Seek), size: u64) -> Result<u64, Error> {
        let mut start = vec![0; HEADER_LEN];
        let there = start.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        read_at(device, 0, &mut start[..there], "the header")?;
        let mut end = size;
        for (offset, bytes) in &self.writes {
            end = end.max(offset + to_u64(bytes.len()));
            let at = usize::try_from(*offset).unwrap_or(usize::MAX);
            for (to, from) in start.iter_mut().skip(at).zip(bytes) {
                *to = *from;
            }
        }
        let read = crate::read(&mut Cursor::new(start), end).and_then(|header| header.inner().check_understood());
        read.map_err(|error| parameters(format!("nothing was written, since the new header would not open: {error}")))?;
        Ok(end)
    }
}

fn checked_uuid(uuid: &str) -> Result<&str, Error> {
    if uuid.len() > UUID_LEN_MAX {
        return Err(parameters("its UUID has characters that none has; give it another one first"));
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests;
