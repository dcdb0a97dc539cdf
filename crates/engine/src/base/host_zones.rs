//! The zones of a real block device: its model, its reports, and actions on them.

use std::fs::File;
use std::os::fd::AsFd;

use cryptline_sys::{RawZone, ZoneCommand};
use rustix::io::Errno;

use crate::Fault;
use crate::zone::{Zone, ZoneAction, ZoneCondition, ZoneModel, ZoneType};

/// Bytes in a sector.
const SECTOR: u64 = 512;
/// Zones asked for at a time.
const BATCH: usize = 32;

/// The zone model of a block device of `block`-byte blocks; `None` where it has no zones, or may be
/// written like an ordinary disk (host-aware).
pub(super) fn model_of(device: &File, block: u32) -> Option<ZoneModel> {
    let zone_size = u64::from(cryptline_sys::zone_size(device).ok()?) * SECTOR;
    if !zone_size.is_power_of_two() || takes_any_order(attribute(device, "zoned").as_deref()) {
        return None;
    }
    let number = |name| attribute(device, name).and_then(|text| text.parse::<u32>().ok());
    let granularity = number("zone_write_granularity").filter(|bytes| bytes.is_power_of_two());
    Some(ZoneModel {
        zone_size,
        max_open: number("max_open_zones").unwrap_or(0),
        max_active: number("max_active_zones").unwrap_or(0),
        // Programs have no append but through NVMe's own commands.
        append_limit: 0,
        write_granularity: granularity.unwrap_or(block).max(block),
    })
}

/// Tells if a device with zones may be written like an ordinary disk, by the name that the kernel has for its model.
// Guard: where the kernel does not say, each zone is written in order.
fn takes_any_order(model: Option<&str>) -> bool {
    matches!(model, Some("none" | "host-aware"))
}

/// An attribute of the device's request queue. A partition has that of its disk.
fn attribute(device: &File, name: &str) -> Option<String> {
    let number = rustix::fs::fstat(device).ok()?.st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let read = |up: &str| std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{up}queue/{name}")).ok();
    let text = read("").or_else(|| read("../"))?;
    Some(text.trim().to_owned())
}

/// Fills `zones` from the zone that holds `offset` on.
pub(super) fn report(device: impl AsFd, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
    let fd = device.as_fd();
    let (mut sector, mut filled) = (offset / SECTOR, 0);
    while filled < zones.len() {
        let mut raw = [RawZone::default(); BATCH];
        let wanted = (zones.len() - filled).min(BATCH);
        let count = cryptline_sys::report_zones(fd, sector, &mut raw[..wanted])
            .map_err(|error| fault_of(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        for (place, found) in zones[filled..].iter_mut().zip(&raw[..count]) {
            *place = zone_of(found);
            sector = found.start.saturating_add(found.len);
        }
        filled += count;
        if count < wanted {
            break;
        }
    }
    Ok(filled)
}

/// A type or condition that is not known here is one that can not be written.
fn zone_of(raw: &RawZone) -> Zone {
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
    Zone {
        start: bytes(raw.start),
        length: bytes(raw.len),
        capacity: bytes(raw.capacity),
        write_pointer: bytes(raw.wp),
        kind: ZoneType::from_code(raw.kind).unwrap_or(ZoneType::SequentialRequired),
        condition: ZoneCondition::from_code(raw.cond).unwrap_or(ZoneCondition::Offline),
    }
}

/// Acts on the zone at `offset` of a device of `size` bytes. Waits until it is done.
pub(super) fn act(
    device: impl AsFd,
    model: &ZoneModel,
    size: u64,
    offset: u64,
    action: ZoneAction,
) -> Result<(), Fault> {
    let (command, start, len) = match action {
        ZoneAction::Open => (ZoneCommand::Open, offset, model.zone_size),
        ZoneAction::Close => (ZoneCommand::Close, offset, model.zone_size),
        ZoneAction::Finish => (ZoneCommand::Finish, offset, model.zone_size),
        ZoneAction::Reset => (ZoneCommand::Reset, offset, model.zone_size),
        // The kernel takes the whole device for a reset of all zones.
        ZoneAction::ResetAll => (ZoneCommand::Reset, 0, size),
    };
    let len = len.min(size.saturating_sub(start));
    cryptline_sys::zone_command(device, command, start / SECTOR, len / SECTOR)
        .map_err(|error| fault_of(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// Fault for an error number of a zoned device: the limits have numbers of their own.
pub(super) fn fault_of(errno: Errno) -> Fault {
    match errno {
        Errno::OVERFLOW => Fault::TooManyActive,
        Errno::TOOMANYREFS => Fault::TooManyOpen,
        other => Fault::from(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_written_in_order_unless_the_kernel_says_that_they_need_not_be() {
        for (model, any) in
            [(Some("host-managed"), false), (Some("host-aware"), true), (Some("none"), true), (None, false)]
        {
            assert_eq!(takes_any_order(model), any, "{model:?}");
        }
    }

    #[test]
    fn file_has_no_model_and_no_report() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(model_of(&file, 512), None);
        assert!(report(&file, 0, &mut [Zone::default()]).is_err());
        let model =
            ZoneModel { zone_size: 1 << 20, max_open: 0, max_active: 0, append_limit: 0, write_granularity: 512 };
        assert!(act(&file, &model, 1 << 24, 1 << 20, ZoneAction::Reset).is_err());
    }

    #[test]
    fn kernels_numbers_become_zones_and_unknown_ones_are_not_written() {
        let mut raw = RawZone::default();
        (raw.start, raw.len, raw.capacity, raw.wp) = (2048, 1024, 768, 2056);
        (raw.kind, raw.cond) = (2, 4);
        let zone = zone_of(&raw);
        assert_eq!((zone.start, zone.length), (1 << 20, 1 << 19));
        assert_eq!((zone.capacity, zone.write_pointer), (768 * 512, 2056 * 512));
        assert_eq!(zone.kind, ZoneType::SequentialRequired);
        assert_eq!(zone.condition, ZoneCondition::Closed);
        (raw.kind, raw.cond) = (9, 9);
        assert_eq!(zone_of(&raw).condition, ZoneCondition::Offline);
        assert_eq!(fault_of(Errno::OVERFLOW), Fault::TooManyActive);
        assert_eq!(fault_of(Errno::TOOMANYREFS), Fault::TooManyOpen);
        assert_eq!(fault_of(Errno::IO), Fault::Io(Errno::IO));
    }
}
