//! Checks that the parts of a LUKS2 header fit together. What fails here is damage or malice, so the other copy is
//! tried. A key slot that alone is wrong is passed over: the others open the volume. What is sound but can not be
//! opened (reencryption, unknown requirements) is refused later, when the volume is opened: `info` must be able to show
//! it.

use super::binary::BINARY_LEN;
use super::metadata::{Metadata, Odd};
use super::node::Reason;
use crate::area::Area;
use crate::device::to_u64;
use crate::error::quote;

/// Largest key slots area: 128 MiB (cryptsetup's bound as well).
pub const KEYSLOTS_SIZE_MAX: u64 = 128 << 20;

/// Checks `metadata` against itself and against the size of the copy it came in, in bytes.
pub(crate) fn validate(copy_size: u64, metadata: &mut Metadata) -> Result<(), Reason> {
    check_config(copy_size, metadata)?;
    check_areas(copy_size, metadata)?;
    check_segments(metadata)?;
    check_digests(metadata)
}

/// The two copies and the key slots area, from the start of the device.
pub(crate) fn header_end(copy_size: u64, metadata: &Metadata) -> u64 {
    2 * copy_size + metadata.config.keyslots_size
}

fn check_config(copy_size: u64, metadata: &Metadata) -> Result<(), Reason> {
    let config = &metadata.config;
    let json_size = copy_size - to_u64(BINARY_LEN);
    if config.json_size != json_size {
        let found = config.json_size;
        return Err(format!("config.json_size: {found}, the JSON area has {json_size} bytes"));
    }
    let keyslots_size = config.keyslots_size;
    if keyslots_size > KEYSLOTS_SIZE_MAX || !keyslots_size.is_multiple_of(4096) {
        return Err(format!(
            "config.keyslots_size: {keyslots_size} is not a multiple of 4096 up to {KEYSLOTS_SIZE_MAX}"
        ));
    }
    // Offset 0 is that of a detached header: the data is on another device.
    let offsets = metadata.segments.values().map(|segment| segment.offset);
    let first_data = offsets.min().unwrap_or(0);
    if first_data != 0 && first_data < header_end(copy_size, metadata) {
        return Err(format!("config.keyslots_size: {keyslots_size} reaches into the data at {first_data}"));
    }
    Ok(())
}

/// Of two that lie over each other, it is not known which one is right: both are tried, and the header is not changed.
fn check_areas(copy_size: u64, metadata: &mut Metadata) -> Result<(), Reason> {
    let start = 2 * copy_size;
    let end = header_end(copy_size, metadata);
    let mut taken: Vec<(u32, Area)> = Vec::new();
    let mut odd = Vec::new();
    for (&number, slot) in &metadata.keyslots {
        let inside = slot.area.offset >= start && slot.area.end().is_some_and(|area| area <= end);
        if !inside || slot.area.size == 0 {
            odd.push((number, format!("keyslots.{number}.area: not inside the key slots area")));
            continue;
        }
        if let Some((other, _)) = taken.iter().find(|(_, other)| slot.area.overlaps(*other)) {
            let reason = format!("keyslots.{number}.area: overlaps that of key slot {other}");
            metadata.odd.push(Odd { member: "keyslots", number, reason });
        }
        taken.push((number, slot.area));
    }
    pass_over(metadata, odd)
}

/// Passes over key slots that are wrong, unless what they are says where the data is.
fn pass_over(metadata: &mut Metadata, odd: Vec<(u32, Reason)>) -> Result<(), Reason> {
    for (number, reason) in odd {
        if metadata.keyslots.get(&number).is_some_and(|slot| slot.kind == "reencrypt") {
            return Err(reason);
        }
        metadata.pass_over(number, reason);
    }
    Ok(())
}

/// Reencryption keeps what the segments were and will be under these flags, beside the current
/// ones: those lie over each other on purpose.
fn check_segments(metadata: &Metadata) -> Result<(), Reason> {
    if metadata.segments.is_empty() {
        return Err("segments: there are none".into());
    }
    let mut last: Option<(u32, Area)> = None;
    let mut current: Vec<_> = metadata.segments.iter().filter(|(_, segment)| !segment.is_backup()).collect();
    current.sort_by_key(|(_, segment)| segment.offset);
    for (&number, segment) in current {
        let (offset, size) = (segment.offset, segment.size.unwrap_or(u64::MAX - segment.offset));
        let extent = Area { offset, size };
        if let Some((other, before)) = last
            && before.overlaps(extent)
        {
            return Err(format!("segments.{number}: overlaps segment {other}"));
        }
        last = Some((number, extent));
    }
    Ok(())
}

/// Every key slot that a passphrase opens keeps exactly one key. What other kinds keep, and whether a
/// digest is for it, their own programs know.
fn check_digests(metadata: &mut Metadata) -> Result<(), Reason> {
    let mut odd = Vec::new();
    for (number, slot) in &metadata.keyslots {
        let digests = metadata.digests.values();
        let count = digests.filter(|digest| digest.keyslots.contains(number)).count();
        let wrong = match slot.kind.as_str() {
            "luks2" => count != 1,
            "reencrypt" => count > 1,
            _ => false,
        };
        if wrong {
            let kind = quote(&slot.kind);
            odd.push((*number, format!("keyslots.{number}: {count} digests for a slot of type {kind}")));
        }
    }
    pass_over(metadata, odd)
}
