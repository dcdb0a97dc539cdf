//! A device that grows with its volume.
//!
//! The thread that waits for the end of the device looks, and tells the driver (Linux 6.16). The kernel's NBD client
//! keeps its size; FUSE looks when the kernel asks for attributes; over NBD whoever connects later sees the new size.

use std::io;
use std::time::Duration;

use cryptline_engine::Gate;
use rustix::io::Errno;

use super::abi::{DeviceInfo, GROWTH, UblkParameters};
use super::{Ublk, path};

/// How often is looked whether the volume has grown.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Known facts about a device's size.
pub(super) struct Growth {
    /// Sectors that it has.
    sectors: u64,
    /// Sectors of a block.
    unit: u64,
    /// Set if the kernel gives it more.
    is_possible: bool,
    /// Set if it was said that it does not.
    is_told: bool,
}

impl Growth {
    pub fn of(info: &DeviceInfo, parameters: UblkParameters) -> Self {
        Self {
            sectors: parameters.sectors,
            unit: u64::from(parameters.logical_block / 512).max(1),
            is_possible: info.flags & GROWTH != 0 && parameters.zones.is_none(),
            is_told: false,
        }
    }

    /// Tells if the device may be that of a volume with so many sectors.
    pub fn accepts(&self, sectors: u64) -> bool {
        sectors == self.sectors || self.is_possible && sectors > self.sectors
    }

    /// Tells if it is worth looking for.
    pub fn may_come(&self, gate: &Gate) -> bool {
        gate.geometry().zones.is_none()
    }

    /// Sectors that the device is to have, where it has fewer.
    fn due(&self, size: u64) -> Option<u64> {
        let sectors = size / 512;
        Some(sectors - sectors % self.unit).filter(|&sectors| sectors > self.sectors)
    }
}

impl Ublk {
    pub(super) fn look_for_growth(&mut self, grown: impl Fn(u64), log: impl Fn(&str)) {
        // Requests reach what is new from here on, and so before anybody asks for it.
        let Some(sectors) = self.growth.due(self.facts.size_of(&self.gate)) else {
            return;
        };
        let updated = if self.growth.is_possible {
            self.control.update_size(self.id, sectors)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        };
        match updated {
            Ok(()) => {
                self.growth.sectors = sectors;
                self.growth.is_told = false;
                log(&format!("{} has grown to {} bytes", path(self.id).display(), sectors * 512));
                grown(sectors * 512);
            }
            // It is being taken away.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => {}
            Err(_) if self.growth.is_told => {}
            Err(error) => {
                self.growth.is_told = true;
                log(&format!(
                    "the volume has grown to {} bytes, and {} cannot grow with it ({}): detach it, and attach it again",
                    sectors * 512,
                    path(self.id).display(),
                    reason(&error)
                ));
            }
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Unsupported => "it takes Linux 6.16 or later".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ublk::abi::RECOVERY;

    fn growth(flags: u64) -> Growth {
        let info = DeviceInfo { queues: 1, depth: 64, buffer_len: 1 << 18, id: 0, pid: 0, flags, owner: (0, 0) };
        let parameters = UblkParameters {
            read_only: false,
            rotational: false,
            logical_block: 4096,
            physical_block: 4096,
            sectors: 800,
            sectors_max: 512,
            discards: true,
            zeroes_max: 0,
            zones: None,
        };
        Growth::of(&info, parameters)
    }

    #[test]
    fn device_grows_in_whole_blocks_and_never_shrinks() {
        let growth = growth(GROWTH);
        for size in [0, 799 * 512, 800 * 512, 807 * 512] {
            assert_eq!(growth.due(size), None, "{size}");
        }
        assert_eq!(growth.due(808 * 512), Some(808));
        assert_eq!(growth.due(823 * 512 + 511), Some(816));
    }

    #[test]
    fn later_kernel_is_named_only_where_this_one_knows_no_growth() {
        for (errno, named) in [(Errno::OPNOTSUPP, true), (Errno::IO, false)] {
            let reason = reason(&errno.into());
            assert_eq!(reason.contains("6.16"), named, "{reason}");
        }
    }

    #[test]
    fn larger_volume_is_accepted_only_where_its_device_can_grow() {
        for (flags, larger) in [(RECOVERY, false), (RECOVERY | GROWTH, true)] {
            let growth = growth(flags);
            assert!(growth.accepts(800));
            assert_eq!(growth.accepts(808), larger);
            assert!(!growth.accepts(792));
        }
    }
}
