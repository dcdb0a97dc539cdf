//! The answer to a block status request, from the holes of the device below.

use cryptline_engine::{Buffer, Extent, Gate};
use cryptline_nbd::reply::{self, BlockStatus};
use cryptline_nbd::{RequestHeader, wire};

use crate::lane::{LaneRoom, SMALL};

/// Extents looked up for one request: each is a system call or two.
const EXTENTS_MAX: usize = 256;

/// The whole reply in a buffer, and its length. `None` where the device gives no answer.
pub(super) fn block_status(
    gate: &Gate,
    header: &RequestHeader,
    req_one: bool,
    room: &LaneRoom,
    context: u32,
) -> Option<(Buffer, usize)> {
    // A chunk buffer would be held from reads and writes for as long as the reply waits.
    let free = room.small_buffer();
    let mut buffer = free.or_else(|| Buffer::alloc(SMALL).ok())?;
    let mut status = BlockStatus::new(&mut buffer)?;
    let end = header.offset + u64::from(header.length);
    let mut position = header.offset;
    let mut run: Option<reply::NbdExtent> = None;
    let mut looked_up = 0;
    while position < end && looked_up < EXTENTS_MAX {
        let extent = gate.extent(position, end - position).ok()?;
        looked_up += 1;
        let next = describe(extent);
        match &mut run {
            Some(run) if run.flags == next.flags => run.length += next.length,
            Some(_) if req_one => break,
            run => {
                if let Some(finished) = run.replace(next)
                    && !status.push(finished)
                {
                    break;
                }
            }
        }
        position += u64::from(next.length);
    }
    status.push(run?);
    let len = status.finish(header.cookie, context, reply::ChunkPosition::Yes)?.len();
    Some((buffer, len))
}

/// A hole that the cipher does not show as zeros is reported as data. The protocol has holes of unknown
/// content, but clients do not read those (`qemu-img compare` then finds two disks different that hold the
/// same bytes), and here such a hole holds bytes like any other range.
fn describe(extent: Extent) -> reply::NbdExtent {
    let flags = match (extent.hole, extent.zero) {
        (_, false) => 0,
        (false, true) => wire::STATE_ZERO,
        (true, true) => wire::STATE_HOLE | wire::STATE_ZERO,
    };
    reply::NbdExtent {
        // The range of a request is a u32, and an extent never leaves it.
        length: u32::try_from(extent.len).unwrap_or(u32::MAX),
        flags,
    }
}
