//! Reports of zones, as the kernel wants them: an array of `struct blk_zone`.
//!
//! Source: Linux's include/uapi/linux/blkzoned.h.
//!
//! A report can list 4096 zones, so the wire makes it itself, 32 at a time, while the lane goes on with other requests
//! ([`Wire::has_work`](crate::lane::Wire::has_work)).

use std::io;

use cryptline_engine::{Fault, Gate, Zone, ZoneModel};
use rustix::io::Errno;

use super::abi::Zones;
use crate::lane::CHUNK;

/// Bytes of a `struct blk_zone`.
const RAW: usize = 64;
/// Zones asked for at a time.
const BATCH: usize = 32;

/// Returns what the driver is told of the `count` zones of a device. `None` where it takes no such zones.
pub(super) fn parameters(model: &ZoneModel, count: u64) -> Option<Zones> {
    // It refuses limits beyond the number of zones; 0 is no limit.
    let limit = |most: u32| if u64::from(most) < count { most } else { 0 };
    // An append in pieces would not be one.
    let append = model.append_limit.min(CHUNK.into()) / 512;
    Some(Zones {
        sectors: u32::try_from(model.zone_size / 512).ok()?,
        max_open: limit(model.max_open),
        max_active: limit(model.max_active),
        append_sectors: u32::try_from(append).ok().filter(|&sectors| sectors > 0)?,
    })
}

/// A report that is being made: a few zones at a time, so that the queue's other requests go on in between.
pub(super) struct ReportInProgress {
    /// Tag of the request that asks.
    pub tag: u16,
    /// In the zone that comes next.
    offset: u64,
    done: usize,
    count: usize,
}

impl ReportInProgress {
    /// For up to `count` zones from the one that holds `offset` on, in a buffer of `space` bytes.
    pub fn new(tag: u16, offset: u64, count: u32, space: usize) -> Self {
        let most = space / RAW;
        Self { tag, offset, done: 0, count: usize::try_from(count).unwrap_or(most).min(most) }
    }

    /// Gives the next of them to `copy`, with their place in the buffer. Whether those were all: fewer than were asked
    /// for end with one of no length.
    pub fn go_on(&mut self, gate: &Gate, copy: impl FnOnce(usize, &[u8]) -> io::Result<()>) -> Result<bool, Errno> {
        let Some(model) = gate.geometry().zones else {
            return Err(Errno::OPNOTSUPP);
        };
        let mut zones = [Zone::default(); BATCH];
        let mut bytes = [0; BATCH * RAW];
        let wanted = (self.count - self.done).min(BATCH);
        let found = match gate.report_zones(self.offset, &mut zones[..wanted]) {
            // Behind the last.
            Err(Fault::OutOfRange) if self.done > 0 => 0,
            found => found.map_err(Fault::errno)?,
        };
        for (zone, raw) in zones[..found].iter().zip(bytes.chunks_exact_mut(RAW)) {
            write(zone, raw);
        }
        copy(self.done * RAW, &bytes[..wanted * RAW])
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        self.done += found;
        let start = model.start_of(self.offset);
        self.offset = start.saturating_add(found as u64 * model.zone_size);
        Ok(found < wanted || self.done == self.count)
    }
}

/// `struct blk_zone`, in sectors.
fn write(zone: &Zone, raw: &mut [u8]) {
    let mut put = |at: usize, bytes: u64| {
        raw[at..at + 8].copy_from_slice(&(bytes / 512).to_ne_bytes());
    };
    put(0, zone.start);
    put(8, zone.length);
    put(16, zone.write_pointer);
    put(32, zone.capacity);
    raw[24] = zone.kind.code();
    raw[25] = zone.condition.code();
}

#[cfg(test)]
mod tests {
    use cryptline_engine::base::{RamDevice, ZonedDevice};
    use cryptline_engine::zone::ZoneLayout;
    use cryptline_engine::{ZoneCondition, ZoneType};

    use super::*;

    #[test]
    fn zone_lies_as_the_kernel_reads_it() {
        let zone = Zone {
            start: 8192 * 512,
            length: 4096 * 512,
            capacity: 4000 * 512,
            write_pointer: 8200 * 512,
            kind: ZoneType::SequentialRequired,
            condition: ZoneCondition::Closed,
        };
        let mut raw = [0; RAW];
        write(&zone, &mut raw);
        let word = |at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().unwrap());
        assert_eq!([word(0), word(8), word(16), word(32)], [8192, 4096, 8200, 4000]);
        assert_eq!(raw[24..32], [2, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(raw[40..], [0; 24]);
    }

    /// The starts of the zones in a report of `count` of 100 zones, in their order, and how often it went on.
    fn starts(offset: u64, count: u32, space: usize) -> Result<(Vec<u64>, u32), Errno> {
        const ZONE: u64 = 64 << 10;
        let layout = ZoneLayout::new(100 * ZONE, ZONE).unwrap().check().unwrap();
        let ram = Gate::new(RamDevice::new(layout.size()).unwrap());
        let gate = Gate::new(ZonedDevice::in_memory(ram, layout).unwrap());
        let mut buffer = vec![0xff; space];
        let mut report = ReportInProgress::new(0, offset * ZONE, count, space);
        for times in 1.. {
            let copied = |at: usize, bytes: &[u8]| {
                assert!(bytes.len() <= BATCH * RAW);
                buffer[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            if report.go_on(&gate, copied)? {
                let zones = buffer.chunks_exact(RAW).take(count as usize);
                let word = |raw: &[u8], at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().unwrap());
                let zones = zones.take_while(|raw| word(raw, 8) != 0);
                let found = zones.map(|raw| word(raw, 0) * 512 / ZONE).collect();
                return Ok((found, times));
            }
        }
        unreachable!("a report ends")
    }

    #[test]
    fn report_of_many_zones_is_made_in_turns() {
        let all = 256 << 10;
        assert_eq!(starts(0, 100, all), Ok(((0..100).collect(), 4)));
        assert_eq!(starts(90, 64, all), Ok(((90..100).collect(), 1)));
        assert_eq!(starts(36, 64, all), Ok(((36..100).collect(), 2)));
        // The last zone ends a turn, and more are wanted.
        assert_eq!(starts(68, 40, all), Ok(((68..100).collect(), 2)));
        assert_eq!(starts(0, 100, 10 * RAW), Ok(((0..10).collect(), 1)));
        assert_eq!(starts(7, 0, all), Ok((Vec::new(), 1)));
        assert_eq!(starts(100, 1, all), Err(Errno::INVAL));
    }

    #[test]
    fn appends_are_no_longer_than_a_request_can_be() {
        let model = ZoneModel {
            zone_size: 4 << 20,
            max_open: 3,
            max_active: 0,
            append_limit: 4 << 20,
            write_granularity: 4096,
        };
        assert_eq!(parameters(&model, 16).map(|zones| zones.append_sectors), Some(CHUNK / 512));
        let without = ZoneModel { append_limit: 0, ..model };
        assert_eq!(parameters(&without, 16), None);
    }

    #[test]
    fn limits_that_so_few_zones_never_reach_are_none() {
        let model =
            ZoneModel { zone_size: 4 << 20, max_open: 3, max_active: 8, append_limit: 4096, write_granularity: 4096 };
        let limits = |count| parameters(&model, count).map(|it| (it.max_open, it.max_active));
        assert_eq!(limits(9), Some((3, 8)));
        assert_eq!(limits(8), Some((3, 0)));
        assert_eq!(limits(3), Some((0, 0)));
    }
}
