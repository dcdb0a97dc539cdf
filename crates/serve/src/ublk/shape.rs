//! A device's shape: what the kernel is told of a volume.

use cryptline_engine::{Gate, Geometry};

use super::NAME;
use super::abi::UblkParameters;
use crate::device::AttachError;
use crate::lane::CHUNK;

/// The least and the largest block size that the driver takes.
const BLOCK: std::ops::RangeInclusive<u32> = 512..=4096;

/// Describes a device of a volume, with blocks of so many bytes at least.
pub(super) fn parameters(gate: &Gate, block: u32) -> Result<UblkParameters, AttachError> {
    let geometry = gate.geometry();
    let mut logical_block = block.max(geometry.logical_block).max(*BLOCK.start());
    let mut unit = u64::from(logical_block);
    let zones = match &geometry.zones {
        None => None,
        Some(model) => {
            logical_block = logical_block.max(model.write_granularity);
            // The kernel has no zone that is shorter than the others.
            unit = model.zone_size;
            let zones = super::zones::parameters(model, geometry.size / unit);
            Some(zones.ok_or(AttachError::Zoned(NAME))?)
        }
    };
    if !BLOCK.contains(&logical_block) {
        return Err(AttachError::Blocks(logical_block));
    }
    Ok(UblkParameters {
        read_only: geometry.read_only,
        rotational: geometry.rotational,
        logical_block,
        physical_block: geometry.preferred_block.clamp(logical_block, *BLOCK.end()),
        sectors: (geometry.size - geometry.size % unit) / 512,
        sectors_max: CHUNK / 512,
        // One could cross from one zone into the next.
        discards: geometry.discard && !geometry.read_only && zones.is_none(),
        zeroes_max: zeroes_max(geometry),
        zones,
    })
}

/// Sectors that are zeroed by one request. Where zeros are written it takes as long as a write: the kernel kills a user's
/// server that has had a request for 30 seconds.
fn zeroes_max(geometry: &Geometry) -> u32 {
    match geometry {
        // The sectors of a zone are written in order.
        Geometry { zones: Some(_), .. } => 0,
        Geometry { read_only: true, .. } => 0,
        Geometry { write_zeroes: true, .. } => UblkParameters::LONG,
        _ => CHUNK / 512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_are_written_come_in_requests_as_short_as_writes() {
        let geometry = Geometry { discard: true, ..Geometry::plain(1 << 30, 512) };
        assert_eq!(zeroes_max(&geometry), CHUNK / 512);
        let by_itself = Geometry { write_zeroes: true, ..geometry };
        assert_eq!(zeroes_max(&by_itself), UblkParameters::LONG);
        let read_only = Geometry { read_only: true, ..by_itself };
        assert_eq!(zeroes_max(&read_only), 0);
    }
}
