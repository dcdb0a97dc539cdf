//! A partition of the clear disk.

use cryptline_engine::Gate;
use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions};

use crate::bytes::GateBytes;
use crate::error::Problem;
use crate::partition::{PartitionError, PartitionName, PartitionTable};
use crate::volume::LEAST_BLOCK;
use crate::{Result, Warning};

/// The partition that `name` means, in the table that the clear disk has.
///
/// One that begins or ends inside a block of the disk gets smaller blocks, where those may be changed.
pub(super) fn of_clear_disk(
    clear: Gate,
    name: &PartitionName,
    keeps_blocks: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Gate> {
    let size = clear.geometry().size;
    // Those of the cipher are no sign: whoever made the table may have seen others.
    let table = PartitionTable::read(&mut GateBytes::new(&clear)?, size, name.sector())?;
    let table = table.ok_or(PartitionError::NoTable)?;
    let range = table.find(name)?.range();
    warnings.extend(table.damage.map(Warning::PartitionTable));
    let block = clear.geometry().logical_block;
    let is_aligned = (range.start | range.end).is_multiple_of(u64::from(block));
    let lower = if is_aligned || keeps_blocks || clear.geometry().zones.is_some() {
        clear
    } else {
        let options = SubBlockOptions { logical_block: LEAST_BLOCK, sector: block, exclusion: Exclusion::Shared };
        Gate::new(SubBlockDevice::new(clear, options)?)
    };
    let segment = Segment { lower, offset: range.start, len: range.end - range.start };
    Ok(joined(vec![segment]).map_err(Problem::Device)?)
}
