//! A header that is made in memory, and written when its time has come.

use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;

use cryptline_luks::{DataSegment, LuksHeader, SegmentPolicy, format::FormatOptions};
use cryptline_sys::{SecretBuf, is_zero};

use super::{Create, Progress};
use crate::base::Base;
use crate::bytes::GateBytes;
use crate::error::Problem;
use crate::keys::with_keys;
use crate::{DispatchMode, DispatchOptions, Gate, Open, Result, Zeroes};

/// Memory for the making of a header; no default one is longer.
const HEADER_MAX: usize = 16 << 20;
/// Bytes that make the header a header; they are written last.
const FIRST: usize = 4096;
/// Bytes of each copy of a header that are wiped where it does not open again. Unless it is said, a copy has as many.
const WIPED: usize = 16 * 1024;

/// Contents of the place where a header goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorContents {
    /// A new file: what stays zeros takes no room.
    IsZeros,
    IsUnknown,
}

/// A header that is on no medium yet, or was put on one by an earlier run.
pub(crate) struct Prepared {
    pub bytes: Vec<u8>,
    /// Where the place of the key slots begins, in bytes.
    pub slots: usize,
    /// Where the data begins, in bytes: behind the header, unless that is elsewhere.
    pub start: u64,
    pub header: LuksHeader,
    pub segments: Vec<DataSegment>,
    pub key: SecretBuf,
    pub passphrase: SecretBuf,
    /// Bytes in a cipher sector.
    pub sector: u64,
    /// In a file of its own.
    pub is_apart: bool,
}

impl Prepared {
    /// Bytes of data on a device of `size` bytes: whole cipher sectors.
    pub fn data_on(&self, size: u64) -> u64 {
        let data = size.saturating_sub(self.start);
        data - data % self.sector
    }

    /// Writes all of it: its beginning last, when all else is durable.
    pub(super) fn put(&self, mut device: impl Write + Seek, place: PriorContents) -> io::Result<()> {
        self.put_key_slots(&mut device, place)?;
        if place == PriorContents::IsUnknown {
            // A copy of the header that is found opens by them.
            device.flush()?;
        }
        self.put_copies(&mut device, place)
    }

    /// Writes the place of the key slots.
    pub(super) fn put_key_slots(&self, device: &mut (impl Write + Seek), place: PriorContents) -> io::Result<()> {
        put_data(device, self.slots, &self.bytes[self.slots..], place)
    }

    /// Writes the rest.
    pub(super) fn put_copies(&self, device: &mut (impl Write + Seek), place: PriorContents) -> io::Result<()> {
        put_data(device, FIRST, &self.bytes[FIRST..self.slots], place)?;
        device.flush()?;
        device.seek(SeekFrom::Start(0))?;
        device.write_all(&self.bytes[..FIRST])?;
        device.flush()
    }
}

/// Writes `bytes` at an offset; into a new file without the blocks of zeros: each run of others at once.
fn put_data(device: &mut (impl Write + Seek), offset: usize, bytes: &[u8], place: PriorContents) -> io::Result<()> {
    if place == PriorContents::IsUnknown {
        device.seek(SeekFrom::Start(offset as u64))?;
        return device.write_all(bytes);
    }
    let (mut at, mut left) = (offset, bytes);
    while !left.is_empty() {
        let is_first_zero = is_zero(&left[..left.len().min(FIRST)]);
        let blocks = left.chunks(FIRST).take_while(|block| is_zero(block) == is_first_zero);
        let (run, rest) = left.split_at(blocks.map(<[u8]>::len).sum());
        if !is_first_zero {
            device.seek(SeekFrom::Start(at as u64))?;
            device.write_all(run)?;
        }
        (at, left) = (at + run.len(), rest);
    }
    Ok(())
}

impl Create {
    /// Makes the header for a device of so many bytes, and its key, in memory.
    pub(super) fn prepare(
        &self,
        name: &str,
        passphrase: SecretBuf,
        size: u64,
        options: &FormatOptions,
    ) -> Result<Prepared> {
        with_keys(move || {
            self.tell(Progress::Deriving)?;
            let mut bytes = Cursor::new(vec![0; HEADER_MAX]);
            let key = self.put_header(&mut bytes, size, &passphrase, options, name)?;
            self.tell(Progress::Looked)?;
            let failed = |error| Problem::Luks(error).on(name);
            let header = cryptline_luks::read(&mut bytes, size).map_err(failed)?;
            let is_apart = options.detached;
            let policy = SegmentPolicy { allow_null_cipher: options.allow_null_cipher, detached: is_apart };
            let segments = header.segments(policy).map_err(failed)?;
            let (start, sector) = (segments[0].offset, segments[0].sector_size.into());
            let len = if is_apart { options.header_len().map_err(failed)? } else { start };
            let mut bytes = bytes.into_inner();
            bytes.truncate(usize::try_from(len).unwrap_or(HEADER_MAX));
            let slots = usize::try_from(options.metadata_len()).unwrap_or(HEADER_MAX).min(bytes.len());
            Ok(Prepared { bytes, slots, start, header, segments, key, passphrase, sector, is_apart })
        })
    }

    /// Returns a size for [`prepare`](Self::prepare) with room for so much data: the header says "up to the end", wherever
    /// that is, and what does not fit is refused elsewhere. It only chooses the sector.
    pub(super) fn size_with(data: u64) -> u64 {
        data.max(1 << 20) + HEADER_MAX as u64
    }

    /// The volume under a header that is not there yet. As many threads use it as there are cores.
    pub(super) fn volume(&self, base: Base, name: &str, prepared: &Prepared, zeroes: Zeroes) -> Result<Gate> {
        let dispatch = DispatchOptions { both: Some(DispatchMode::Inline), ..DispatchOptions::default() };
        let open = Open::new(name).dispatch(dispatch).zeroes(zeroes).allow_null_cipher(self.format.allow_null_cipher);
        let open = open.with(self.header.as_deref(), |open, path: &Path| open.header(path));
        Ok(open.under(base, &prepared.header, &prepared.key)?.gate().clone())
    }

    /// Wipes half a header, which helps nobody; the second copy of one is looked for where the first is damaged. The device
    /// may be failing, so nothing is said if this does too.
    pub(super) fn wipe(&self, device: &mut GateBytes) {
        let second = self.format.metadata_size.unwrap_or(WIPED as u64);
        for start in [0, second] {
            let _ = device.seek(SeekFrom::Start(start)).and_then(|_| device.write_all(&[0; WIPED]));
        }
        let _ = device.flush();
    }
}

#[cfg(test)]
mod tests {
    use cryptline_luks::format::LuksVersion;

    use super::*;

    /// Stands for a flush.
    const FLUSH: (u64, usize) = (u64::MAX, 0);

    /// A medium that notes where each write goes, and how long it is.
    #[derive(Default)]
    struct Noted(Cursor<Vec<u8>>, Vec<(u64, usize)>);

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.push((self.0.position(), bytes.len()));
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1.push(FLUSH);
            Ok(())
        }
    }

    impl Seek for Noted {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn blocks_of_zeros_are_left_out_and_each_run_of_others_is_one_write() {
        let mut bytes = vec![0; 6 * FIRST + 512];
        bytes[FIRST..3 * FIRST].fill(1);
        bytes[4 * FIRST + 7] = 1;
        bytes[6 * FIRST] = 1;
        let mut noted = Noted::default();
        put_data(&mut noted, FIRST, &bytes, PriorContents::IsZeros).unwrap();
        let at = |block: usize| (block * FIRST) as u64;
        assert_eq!(noted.1, [(at(2), 2 * FIRST), (at(5), FIRST), (at(7), 512)]);
        assert_eq!(noted.0.into_inner()[FIRST..], bytes);
    }

    #[test]
    fn key_slots_are_durable_before_the_copies_that_open_by_them_and_those_before_the_first_bytes() {
        let options = crate::testing::cheap(LuksVersion::Luks2);
        let passphrase = SecretBuf::copy_of(b"pass phrase").unwrap();
        let prepared = Create::new("disk").prepare("disk", passphrase, 32 << 20, &options).unwrap();
        let mut noted = Noted::default();
        prepared.put(&mut noted, PriorContents::IsUnknown).unwrap();
        let (slots, end) = (prepared.slots, prepared.bytes.len());
        let expected = [(slots, end - slots), (FIRST, slots - FIRST), (0, FIRST)];
        let expected = expected.map(|(at, len)| [(at as u64, len), FLUSH]);
        assert_eq!(noted.1, expected.concat());
        assert!(noted.0.into_inner() == prepared.bytes);
    }
}
