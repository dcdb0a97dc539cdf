//! An export: a volume as clients see it, with a name and transmission flags.

use std::sync::Arc;

use cryptline_engine::{Gate, Geometry};

use crate::stats::ExportStats;
use cryptline_nbd::{BlockSizes, Capabilities, ExportInfo, TransmissionFlags};

/// The block size in bytes that a client assumes when it does not ask.
const UNASKED_BLOCK: u32 = 512;

/// One volume to serve.
pub struct Export {
    /// The name clients ask for; the first export also answers to the empty name.
    pub name: String,
    /// A line for people, shown when a client lists the exports.
    pub description: String,
    /// The volume.
    pub gate: Gate,
    /// The minimum block size in bytes to advertise, where it is larger than the volume's: a client that
    /// keeps to it spares the volume the cost of smaller writes. A client that does not ask gets the
    /// volume's own; where that is larger than 512, the client is refused.
    pub minimum_block: u32,
    /// Its counters.
    pub stats: Arc<ExportStats>,
}

impl Export {
    pub(super) fn info(&self) -> ExportInfo {
        let geometry = self.gate.geometry();
        let minimum = self.minimum_block.max(geometry.logical_block);
        let flags = TransmissionFlags::from(Capabilities {
            write_zeroes: true,
            dont_fragment: true,
            // Where there can be one connection only, a client must not be told to make more.
            multi_conn: self.gate.traits().queues > 1,
            cache: true,
            // Where zeroing must write, a fast zero is refused with ENOTSUP: that is what
            // advertising the flag promises.
            fast_zero: geometry.write_zeroes || !geometry.read_only,
            ..capabilities(geometry)
        });
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            size: self.gate.size(),
            flags,
            block_sizes: BlockSizes {
                minimum,
                preferred: geometry.preferred_block.max(minimum),
                ..BlockSizes::default()
            },
            block_size_required: geometry.logical_block > UNASKED_BLOCK,
            base_allocation: true,
        }
    }
}

/// Returns the abilities of a volume, as every client is told of them.
pub(crate) fn capabilities(geometry: &Geometry) -> Capabilities {
    Capabilities {
        read_only: geometry.read_only,
        flush: true,
        fua: true,
        rotational: geometry.rotational,
        trim: geometry.discard,
        // Long runs of zeros that are written one by one would keep a queue busy for longer than the kernel waits.
        write_zeroes: geometry.write_zeroes,
        // All connections share one device, and its flush covers every write that has ended.
        multi_conn: true,
        ..Capabilities::default()
    }
}
