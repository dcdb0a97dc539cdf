//! Contents of a place where a volume is about to be made.
//!
//! | place | what is looked at |
//! |---|---|
//! | regular file | every byte that is no hole |
//! | device, where it will be written | every byte that is not known to be zero |
//! | device, elsewhere | its first 16 MiB, its end, where partitions often begin, and 256 MiB in thousands of places: all there is, where that is no more |
//!
//! Whatever is not zero is data. Where its beginning is known, it is named.
//!
//! Samples miss what lies between them, so they are only for what a volume claims. `looked_tests.rs` has every verb
//! write to a disk of a terabyte that records what was read before.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cryptline_engine::{Gate, ZEROS};
use cryptline_luks::signatures;
use rustix::fs::SeekFrom as Place;
use rustix::io::Errno;

use super::Progress;
use crate::Result;
use crate::base::BaseDevice;
use crate::bytes::{GateBytes, WindowBytes};
use crate::durable::identity;
use crate::error::Problem;
use crate::places::open_unwaiting;

/// Bytes read at a time.
const PIECE: usize = ZEROS.len();
/// Bytes between two words about how far a look is.
const TOLD: u64 = 16 << 20;
/// Read whole at the start of a device, written or not: by default a header has as many bytes.
const START: u64 = 16 << 20;
/// Read whole at the end of a device.
const END: u64 = 1 << 20;
/// Bytes that are read of what will not be written.
const SAMPLED: u64 = 256 << 20;
/// Runs of a device that are told apart. Where there are more, all of it may hold something.
const RUNS: usize = 1 << 16;
/// Starts of partitions, and of loop devices that show one: by the geometry of old, and as partitioning programs have it.
const STARTS: [u64; 3] = [63 * 512, 63 * 4096, 1 << 20];
/// Where the second superblock of btrfs has its magic.
const SECOND_BTRFS: u64 = (64 << 20) + 64;

/// The name of what begins here, with its article; `None` for what is not known.
///
/// Everything that `signatures` knows makes the copy of a LUKS header that is left on a disk worthless. The rest is
/// known here only: it does not, but is worth a word before it is lost.
pub fn name(device: &mut (impl Read + Seek)) -> io::Result<Option<&'static str>> {
    let size = device.seek(SeekFrom::End(0))?;
    let first = [(0, &b"LUKS\xba\xbe"[..], "a LUKS header"), (4096, b"BTT_ARENA_INFO\0", "a block translation table")];
    if let Some(name) = first_of(device, size, &first)? {
        return Ok(Some(name));
    }
    match signatures::find(device, size) {
        Ok(None) => {}
        Ok(found) => return Ok(found),
        Err(cryptline_luks::Error::Io { source, .. }) => return Err(source),
        Err(error) => return Err(io::Error::other(error)),
    }
    for shift in 14..=22 {
        let second = [(1 << shift, &b"SKUL\xba\xbe"[..], "a second LUKS header")];
        if let Some(name) = first_of(device, size, &second)? {
            return Ok(Some(name));
        }
    }
    let gpt = "a GPT partition table";
    let last = [
        (0, &b"QFI\xfb"[..], "a qcow2 image"),
        (SECOND_BTRFS, b"_BHRfS_M", "a Btrfs file system"),
        (size.wrapping_sub(512), b"EFI PART", gpt),
        (size.wrapping_sub(4096), b"EFI PART", gpt),
        (0x1fe, b"\x55\xaa", "a boot sector"),
    ];
    first_of(device, size, &last)
}

/// The name of the first of `known` (its place, what is there, its name) that is there.
fn first_of(
    device: &mut (impl Read + Seek),
    size: u64,
    known: &[(u64, &[u8], &'static str)],
) -> io::Result<Option<&'static str>> {
    for &(at, magic, name) in known {
        let mut found = [0; 16];
        let found = &mut found[..magic.len()];
        let end = at.checked_add(found.len() as u64);
        if end.is_none_or(|end| end > size) {
            continue;
        }
        device.seek(SeekFrom::Start(at))?;
        device.read_exact(found)?;
        if found == magic {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Shows `visit` the data of a regular file in this range, piece by piece, until it has seen enough. Holes cost nothing.
fn look_through<T>(
    file: &File,
    range: Range<u64>,
    mut visit: impl FnMut(u64, &[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let (mut piece, mut at) = (vec![0; PIECE], range.start);
    while let Some(data) = next_data(file, at..range.end)? {
        at = data.start;
        while at < data.end {
            let len = piece_len(data.end - at);
            let read = file.read_at(&mut piece[..len], at)?;
            if read == 0 {
                return Ok(None);
            }
            if let Some(seen) = visit(at, &piece[..read]) {
                return Ok(Some(seen));
            }
            at += read as u64;
        }
    }
    Ok(None)
}

/// Looks for a byte that is not zero in these ranges of a regular file.
pub fn file_has_data(file: &File, ranges: &[Range<u64>]) -> io::Result<bool> {
    for range in ranges {
        let found = look_through(file, range.clone(), |_, piece| (piece != &ZEROS[..piece.len()]).then_some(()))?;
        if found.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The place behind the last byte of a regular file in this range that is not zero.
pub fn end_of_data(file: &File, range: Range<u64>) -> io::Result<Option<u64>> {
    let mut end = None;
    look_through(file, range, |at, piece| {
        if piece != &ZEROS[..piece.len()] {
            let last = piece.iter().rposition(|&byte| byte != 0);
            end = last.map(|last| at + last as u64 + 1);
        }
        None::<()>
    })?;
    Ok(end)
}

/// The same on anything else, from its end, where less has to be read.
pub fn end_of_bytes(device: &mut (impl Read + Seek), range: Range<u64>) -> io::Result<Option<u64>> {
    let (mut piece, mut end) = (vec![0; PIECE], range.end);
    while end > range.start {
        // Whoever reads ahead does so in pieces of this size.
        let start = ((end - 1) - (end - 1) % PIECE as u64).max(range.start);
        let piece = &mut piece[..piece_len(end - start)];
        device.seek(SeekFrom::Start(start))?;
        device.read_exact(piece)?;
        if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
            return Ok(Some(start + last as u64 + 1));
        }
        end = start;
    }
    Ok(None)
}

/// The first run in `range` that is no hole.
fn next_data(file: &File, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, Place::Data(range.start)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not tell.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
        Err(error) => return Err(error.into()),
    };
    let end = match rustix::fs::seek(file, Place::Hole(start)) {
        Ok(end) => end.min(range.end),
        Err(_) => range.end,
    };
    Ok((start < end).then_some(start..end))
}

/// The name of what would be lost on a device of which the first `written` bytes will be written; `None` where there is
/// nothing.
pub fn what_is_there(
    device: &BaseDevice,
    written: u64,
    path: Option<&Path>,
    tell: impl Fn(Progress<'_>) -> Result<()>,
) -> Result<Option<&'static str>> {
    let mut bytes = GateBytes::reading_on(&device.gate)?;
    tell(Progress::Looking)?;
    let found = match path.and_then(|path| file_of(device, path)) {
        // Of the file and not of the mapping: a page that is only looked at may become a page in use.
        Some(file) => {
            let name = name_of_any(&mut bytes).map_err(unread)?;
            let has_data = || file_has_data(&file, &device.data).map_err(unread);
            if name.is_some() { name } else { has_data()?.then_some("data") }
        }
        None => {
            let known = |at, len| known(&device.gate, at, len);
            device_holds(&mut bytes, written, known, |bytes, of| tell(Progress::LookedAt { bytes, of }))?
        }
    };
    tell(Progress::Looked)?;
    Ok(found)
}

/// The regular file of a device, opened once more by its path, which may lead elsewhere by now.
fn file_of(device: &BaseDevice, path: &Path) -> Option<File> {
    let file = open_unwaiting(path).ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && identity(Ok(found)) == device.file).then_some(file)
}

/// Returns what is known from `at` on of `len` bytes.
pub fn known(gate: &Gate, at: u64, len: u64) -> KnownPart {
    match gate.extent(at, len) {
        Ok(extent) => KnownPart { len: extent.len, zeros: extent.zero },
        Err(_) => KnownPart { len, zeros: false },
    }
}

/// Knowledge about a part of a device from a place on.
#[derive(Clone, Copy)]
pub struct KnownPart {
    /// Its bytes, at least one.
    pub len: u64,
    /// All of them are zeros. Where nobody knows, they are not.
    pub zeros: bool,
}

// Guard: what is not known to be zeros is read before it is written.
/// The name of what would be lost on a device of which the first `written` bytes will be written; `None` where there is
/// nothing. `known` tells what is known from a place on of so many bytes; zeros are not read. `tell` is told how many of
/// the bytes that will be written were looked at, and ends the look by an error.
pub fn device_holds(
    device: &mut (impl Read + Seek),
    written: u64,
    known: impl Fn(u64, u64) -> KnownPart,
    tell: impl FnMut(u64, u64) -> Result<()>,
) -> Result<Option<&'static str>> {
    let size = device.seek(SeekFrom::End(0)).map_err(unread)?;
    if let Some(name) = name_of_any(device).map_err(unread)? {
        return Ok(Some(name));
    }
    let written = written.max(START).min(size);
    let mut eye = Eye { device, known, tell, piece: vec![0; PIECE], of: written };
    let end = size.saturating_sub(END).max(written);
    let has_data = eye.sees_data(0..written)? || eye.sees_data(end..size)? || eye.samples_data(written..end)?;
    Ok(has_data.then_some("data"))
}

/// The same of anything that is looked at from its start: of what is there as a whole, else of what begins where a
/// partition might.
pub fn name_of_any(device: &mut (impl Read + Seek)) -> io::Result<Option<&'static str>> {
    let size = device.seek(SeekFrom::End(0))?;
    if let Some(name) = name(device)? {
        return Ok(Some(name));
    }
    for start in STARTS.into_iter().filter(|start| *start < size) {
        if let Some(name) = name(&mut WindowBytes::new(&mut *device, start..size))? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A device that is looked at.
struct Eye<'a, D, K, T> {
    device: &'a mut D,
    known: K,
    tell: T,
    piece: Vec<u8>,
    /// Bytes that will be written.
    of: u64,
}

impl<D: Read + Seek, K: Fn(u64, u64) -> KnownPart, T: FnMut(u64, u64) -> Result<()>> Eye<'_, D, K, T> {
    /// Looks at all of a range.
    fn sees_data(&mut self, range: Range<u64>) -> Result<bool> {
        let mut at = range.start;
        while at < range.end {
            let known = (self.known)(at, range.end - at);
            let end = at.saturating_add(known.len.max(1)).min(range.end);
            if !known.zeros && self.reads_data(at..end)? {
                return Ok(true);
            }
            at = end;
        }
        Ok(false)
    }

    fn reads_data(&mut self, range: Range<u64>) -> Result<bool> {
        let mut at = range.start;
        while at < range.end {
            let piece = &mut self.piece[..piece_len(range.end - at)];
            self.device.seek(SeekFrom::Start(at)).map_err(unread)?;
            self.device.read_exact(piece).map_err(unread)?;
            if piece != &ZEROS[..piece.len()] {
                return Ok(true);
            }
            let before = at;
            at += piece.len() as u64;
            if before / TOLD != at / TOLD {
                (self.tell)(at.min(self.of), self.of)?;
            }
        }
        Ok(false)
    }

    /// Looks at a range in places, spread over what is not known to be zeros; at all of that where it is little.
    fn samples_data(&mut self, range: Range<u64>) -> Result<bool> {
        let runs = self.runs(range);
        let all: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let stride = if all <= SAMPLED { PIECE as u64 } else { all / (SAMPLED / PIECE as u64) };
        for run in runs {
            // Each run from its start on, so that what begins there is seen.
            let mut at = run.start;
            while at < run.end {
                if self.reads_data(at..at.saturating_add(PIECE as u64).min(run.end))? {
                    return Ok(true);
                }
                at = at.saturating_add(stride);
            }
        }
        Ok(false)
    }

    /// Returns what is not known to be zeros.
    fn runs(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut runs, mut at) = (Vec::<Range<u64>>::new(), range.start);
        while at < range.end {
            let known = (self.known)(at, range.end - at);
            let end = at.saturating_add(known.len.max(1)).min(range.end);
            if known.zeros {
                at = end;
                continue;
            }
            if let Some(last) = runs.last_mut().filter(|last| last.end == at) {
                last.end = end;
            } else if runs.len() == RUNS {
                return vec![range];
            } else {
                runs.push(at..end);
            }
            at = end;
        }
        runs
    }
}

fn unread(source: io::Error) -> crate::Error {
    Problem::Io { action: "use it", source }.into()
}

fn piece_len(left: u64) -> usize {
    usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;
