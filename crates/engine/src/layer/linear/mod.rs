//! `linear`: a device made of ranges of others, one behind the other, as the lines of a device-mapper
//! table are.
//!
//! ```text
//! this device     ├──── 0 ────┼────── 1 ──────┼── 2 ──┤
//!                       │             │           │
//! devices below      file X         file Y      file X, further on
//! ```
//!
//! Where ranges are encrypted, [`CryptDevice`](super::CryptDevice) lies over all of them.
//!
//! * A request inside one range goes to the device of that range as it is, with another offset: the
//!   search for the range is all that it costs.
//! * One that crosses a border is cut there, its buffer with it, and ends when all pieces have ended
//!   (`pieces.rs`). No more of it is sent once a piece has failed.
//! * A flush goes to every device below, once however many ranges it has, and is good if all are. A
//!   durable write is durable in each of its pieces.
//!
//! The device can what all below can, in blocks as large as the largest of theirs, and no border lies
//! inside such a block. Zoned devices are refused: a zone would have to end where a range does.

mod map;
mod queue;

use std::sync::Arc;

use cryptline_sys::Ring;

use self::map::{LinearRange, Map};
use crate::gate::Gate;
use crate::queue::AtOnce;
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue, Traits};

/// Devices below at most, since each queue has a queue into each of them.
const DEVICES_MAX: usize = 64;

/// A range of a device, which becomes the next range of another.
#[derive(Clone)]
pub struct Segment {
    /// The device that has it.
    pub lower: Gate,
    /// Its first byte there.
    pub offset: u64,
    /// Bytes in it.
    pub len: u64,
}

/// Ranges of devices, one behind the other.
pub struct LinearDevice {
    devices: Vec<Gate>,
    map: Arc<Map>,
    geometry: Geometry,
}

/// The device that `segments` make, one behind the other: where one device is all of it, that device
/// itself, and otherwise a [`LinearDevice`].
///
/// Errors: as [`LinearDevice::new`].
pub fn joined(segments: Vec<Segment>) -> Result<Gate, OpenError> {
    match segments.as_slice() {
        [Segment { lower, offset, len }] if *offset == 0 && *len == lower.geometry().size => Ok(lower.clone()),
        _ => Ok(Gate::new(LinearDevice::new(segments)?)),
    }
}

impl LinearDevice {
    /// Lays `segments` one behind the other.
    ///
    /// Errors: there is none, one is empty or leaves its device, a border lies inside a block, a device
    /// has zones, or there are more devices than a queue can have queues into.
    pub fn new(segments: Vec<Segment>) -> Result<Self, OpenError> {
        let geometry = geometry_of(&segments)?;
        let mut devices: Vec<Gate> = Vec::new();
        let mut ranges = Vec::with_capacity(segments.len());
        let mut start = 0;
        for Segment { lower, offset, len } in segments {
            let known = devices.iter().position(|device| device.is_same(&lower));
            ranges.push(LinearRange { start, len, offset, device: known.unwrap_or(devices.len()) });
            if known.is_none() {
                devices.push(lower);
            }
            start += len;
        }
        if devices.len() > DEVICES_MAX {
            return Err(OpenError::Geometry(format!(
                "a device of {} others is not possible: {DEVICES_MAX} are the most",
                devices.len()
            )));
        }
        let map = Map::new(ranges, devices.len());
        debug_assert_eq!(map.size(), geometry.size);
        Ok(Self { devices, map: Arc::new(map), geometry })
    }

    /// How many ranges it has; neighbours that are neighbours below as well are one.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.map.count()
    }
}

impl Device for LinearDevice {
    fn traits(&self) -> Traits {
        let is_never = self.devices.iter().all(|device| device.traits().at_once == AtOnce::None);
        let at_once = if is_never { AtOnce::None } else { AtOnce::Some };
        Traits { geometry: self.geometry, at_once, ..Traits::over(&self.devices) }
    }

    fn below(&self) -> &[Gate] {
        &self.devices
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(queue::open(&self.map, &self.devices, ring)?))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let (way, most) = self.map.find(offset);
        self.devices[way.device].extent(offset.wrapping_add(way.shift), len.min(most))
    }
}

/// Returns the geometry that all segments allow; or why they do not fit together.
fn geometry_of(segments: &[Segment]) -> Result<Geometry, OpenError> {
    let below = segments.iter().map(|segment| *segment.lower.geometry());
    let Some(mut sum) = below.reduce(Geometry::and) else {
        return Err(OpenError::Geometry("there is nothing to join".to_owned()));
    };
    let mut start = 0_u64;
    for segment in segments {
        check(segment, start, sum.logical_block)?;
        start = start
            .checked_add(segment.len)
            .ok_or_else(|| OpenError::Geometry("the segments are longer than 2^64 bytes".to_owned()))?;
    }
    sum.size = start;
    Ok(sum)
}

fn check(segment: &Segment, start: u64, block: u32) -> Result<(), OpenError> {
    let Segment { lower, offset, len } = segment;
    let below = lower.geometry();
    let fail = |what| Err(OpenError::Geometry(what));
    if below.zones.is_some() {
        return fail("a zoned device cannot be a part of another device".to_owned());
    }
    if *len == 0 {
        return fail(format!("the segment at byte {start} is empty"));
    }
    if offset.checked_add(*len).is_none_or(|end| end > below.size) {
        return fail(format!(
            "the segment at byte {start} needs {len} bytes at offset {offset}, the device has {} in all; is the file cut short?",
            below.size
        ));
    }
    if !(start | len).is_multiple_of(u64::from(block)) {
        return fail(format!(
            "the segment of {len} bytes at byte {start} is not aligned to the device's logical block, {block} bytes"
        ));
    }
    if !offset.is_multiple_of(u64::from(below.logical_block)) {
        return Err(OpenError::Blocks(format!(
            "a segment at byte {offset} does not fit the device's {}-byte blocks",
            below.logical_block
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
