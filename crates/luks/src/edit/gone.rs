//! Key slots that were being removed when that was cut off: the header still names them, and nothing opens them.
//!
//! ```text
//!   mark in the first sector of the key material ─ flush ─ noise over the rest ─ flush ─ header without the slot
//! ```
//!
//! One sector that is overwritten destroys the key, so from the mark on the slot is gone. It does not count for whoever asks
//! whether another slot is the last. What another program has half removed looks like any key material: noise.

use std::io::{Read, Seek, Write};

use super::wipe;
use crate::LuksHeader;
use crate::area::Area;
use crate::device::{flush, read_at, write_at};
use crate::error::Error;
use crate::random::Random;

/// Mark at the start of the place of a key slot that is gone.
const MARK: [u8; 32] = *b"cryptline: this key slot is gone";
/// A disk writes so many bytes at once.
const SECTOR: u64 = SECTOR_LEN as u64;
pub(super) const SECTOR_LEN: usize = 512;

/// The key slots that the header names, though they are gone.
pub(super) fn gone_slots(device: &mut (impl Read + Seek), header: &LuksHeader) -> Vec<u32> {
    let mut is_gone = |place: Area| {
        let mut start = [0; MARK.len()];
        read_at(device, place.offset, &mut start, "a key slot").is_ok() && start == MARK
    };
    let mut gone = header.inner().areas();
    gone.retain(|&(_, place)| is_gone(place));
    gone.into_iter().map(|(slot, _)| slot).collect()
}

/// Overwrites key material that the header names until it is written, on a device of `size` bytes: all that can be.
pub(super) fn destroy(device: &mut (impl Write + Seek), doomed: &[Area], size: u64) -> Result<(), Error> {
    let mut marked = Ok(());
    for place in doomed {
        if place.size < SECTOR || place.offset + SECTOR > size {
            continue;
        }
        let mut mark = || -> Result<(), Error> {
            let mut sector = Random::Kernel.bytes("filler", 512)?;
            sector[..MARK.len()].copy_from_slice(&MARK);
            write_at(device, place.offset, &sector)
        };
        marked = marked.and(not_wiped(place.offset, mark()));
    }
    if let Some(first) = doomed.first() {
        marked = marked.and(not_wiped(first.offset, flush(device)));
    }
    let rest = doomed
        .iter()
        .map(|place| Area { offset: place.offset + SECTOR.min(place.size), size: place.size.saturating_sub(SECTOR) });
    let rest: Vec<Area> = rest.collect();
    let wiped = wipe(device, &rest, size);
    marked.and(wiped)
}

pub(super) fn not_wiped(offset: u64, done: Result<(), Error>) -> Result<(), Error> {
    done.map_err(|error| Error::NotWiped { offset, source: Box::new(error) })
}
