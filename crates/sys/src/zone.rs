//! Zones of a zoned block device, by the ioctls of `linux/blkzoned.h`. Sectors of 512 bytes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

// From linux/blkzoned.h; the values are part of the kernel's ABI (asm-generic encoding).
const BLKREPORTZONE: libc::c_ulong = 0xc010_1282;
const BLKRESETZONE: libc::c_ulong = 0x4010_1283;
const BLKGETZONESZ: libc::c_ulong = 0x8004_1284;
const BLKOPENZONE: libc::c_ulong = 0x4010_1286;
const BLKCLOSEZONE: libc::c_ulong = 0x4010_1287;
const BLKFINISHZONE: libc::c_ulong = 0x4010_1288;
/// `BLK_ZONE_REP_CAPACITY`: the kernel has filled in the capacities.
const REPORT_HAS_CAPACITY: u32 = 1;

/// Zones asked for at a time.
const BATCH: usize = 32;

/// `struct blk_zone`, as the kernel fills it in. In sectors.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RawZone {
    /// First sector.
    pub start: u64,
    /// Sectors up to the next zone.
    pub len: u64,
    /// Write pointer.
    pub wp: u64,
    /// `enum blk_zone_type`.
    pub kind: u8,
    /// `enum blk_zone_cond`.
    pub cond: u8,
    non_seq: u8,
    reset: u8,
    resv: [u8; 4],
    /// Sectors that can be used. Before Linux 5.9 the kernel does not say; then this is `len`.
    pub capacity: u64,
    reserved: [u8; 24],
}

/// `struct blk_zone_report` with room for a batch.
#[repr(C)]
struct ZoneReport {
    sector: u64,
    nr_zones: u32,
    flags: u32,
    zones: [RawZone; BATCH],
}

/// `struct blk_zone_range`.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    nr_sectors: u64,
}

/// Commands on zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCommand {
    /// `BLKRESETZONE`.
    Reset,
    /// `BLKOPENZONE`.
    Open,
    /// `BLKCLOSEZONE`.
    Close,
    /// `BLKFINISHZONE`.
    Finish,
}

/// Sectors from zone to zone; 0 on a device without zones.
///
/// Errors: not a block device.
pub fn zone_size(device: impl AsFd) -> io::Result<u32> {
    let mut sectors = 0u32;
    // SAFETY: BLKGETZONESZ writes one u32, to a live variable of that type.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKGETZONESZ as _, &raw mut sectors) };
    match result {
        0 => Ok(sectors),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fills `zones` from the zone that holds `sector` on; how many there were.
pub fn report_zones(device: impl AsFd, sector: u64, zones: &mut [RawZone]) -> io::Result<usize> {
    let fd = device.as_fd();
    let (mut sector, mut filled) = (sector, 0);
    while filled < zones.len() {
        let wanted = (zones.len() - filled).min(BATCH);
        let mut report = ZoneReport {
            sector,
            nr_zones: u32::try_from(wanted).map_err(|_| io::ErrorKind::InvalidInput)?,
            flags: 0,
            zones: [RawZone::default(); BATCH],
        };
        // SAFETY: BLKREPORTZONE reads the head of a `blk_zone_report` and writes at most `nr_zones`
        // zones behind it, which is at most BATCH: there is room for as many in a live structure
        // of the same layout (`repr(C)`).
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKREPORTZONE as _, &raw mut report) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let count = usize::try_from(report.nr_zones).map_or(0, |count| count.min(wanted));
        let has_capacity = report.flags & REPORT_HAS_CAPACITY != 0;
        for (place, found) in zones[filled..].iter_mut().zip(&report.zones[..count]) {
            *place = *found;
            if !has_capacity {
                place.capacity = place.len;
            }
            sector = place.start.saturating_add(place.len);
        }
        filled += count;
        if count < wanted {
            break;
        }
    }
    Ok(filled)
}

/// Does `command` to the zones of a range of whole zones. Waits until it is done.
pub fn zone_command(device: impl AsFd, command: ZoneCommand, sector: u64, sectors: u64) -> io::Result<()> {
    let request = match command {
        ZoneCommand::Reset => BLKRESETZONE,
        ZoneCommand::Open => BLKOPENZONE,
        ZoneCommand::Close => BLKCLOSEZONE,
        ZoneCommand::Finish => BLKFINISHZONE,
    };
    let range = ZoneRange { sector, nr_sectors: sectors };
    // SAFETY: each of these ioctls reads one `blk_zone_range`, from a live structure of the same
    // layout (`repr(C)`).
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), request as _, &raw const range) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_have_the_kernels_layout() {
        assert_eq!(size_of::<RawZone>(), 64);
        assert_eq!(offset_of!(RawZone, kind), 24);
        assert_eq!(offset_of!(RawZone, capacity), 32);
        assert_eq!(offset_of!(ZoneReport, flags), 12);
        assert_eq!(offset_of!(ZoneReport, zones), 16);
        assert_eq!(size_of::<ZoneRange>(), 16);
    }

    #[test]
    fn file_has_no_zones() {
        let file = tempfile::tempfile().unwrap();
        assert!(zone_size(&file).is_err());
        assert!(report_zones(&file, 0, &mut [RawZone::default(); 3]).is_err());
        assert!(zone_command(&file, ZoneCommand::Reset, 0, 8).is_err());
        assert_eq!(report_zones(&file, 0, &mut []).unwrap(), 0);
    }
}
