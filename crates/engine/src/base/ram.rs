//! `ram`: a sparse disk in memory. It answers at once: a request is done when `submit` returns.

use std::sync::Arc;

use cryptline_sys::{Ring, SharedMemory};

use crate::queue::Immediate;
use crate::{Device, Extent, Fault, Geometry, Op, OpenError, Queue, Request, Traits};

/// A disk in memory. Pages that were never written, or were discarded, use none.
pub struct RamDevice {
    memory: Arc<SharedMemory>,
}

impl RamDevice {
    /// A disk of `size` bytes, a multiple of 512, that reads as zeros.
    pub fn new(size: u64) -> Result<Self, OpenError> {
        check_size(size)?;
        let memory = usize::try_from(size)
            .ok()
            .and_then(|len| SharedMemory::new(len).ok())
            .ok_or_else(|| OpenError::Memory(format!("a RAM disk of {size} bytes")))?;
        Self::over(Arc::new(memory))
    }

    /// The disk that `memory` holds; others may read and write it too.
    pub fn over(memory: Arc<SharedMemory>) -> Result<Self, OpenError> {
        check_size(memory.len() as u64)?;
        Ok(Self { memory })
    }
}

fn check_size(size: u64) -> Result<(), OpenError> {
    if size > 0 && size.is_multiple_of(512) {
        Ok(())
    } else {
        Err(OpenError::Geometry(format!("a RAM disk of {size} bytes is not a whole number of 512-byte sectors")))
    }
}

impl Device for RamDevice {
    fn traits(&self) -> Traits {
        Traits::immediate(Geometry {
            preferred_block: 4096,
            discard: true,
            write_zeroes: true,
            cache: true,
            ..Geometry::plain(self.memory.len() as u64, 512)
        })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(RamQueue { memory: Arc::clone(&self.memory) }))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let (start, end) = (position(offset), position(offset + len));
        let (written, run_end) = self.memory.run(start, end);
        Ok(Extent { len: (run_end - start) as u64, hole: !written, zero: !written })
    }
}

struct RamQueue {
    memory: Arc<SharedMemory>,
}

impl Immediate for RamQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        let offset = position(request.offset);
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => self.memory.read(offset, buffer),
            (Op::Write | Op::WriteFua, Some(data)) => self.memory.write(offset, data),
            (Op::Discard | Op::Zero | Op::ZeroUnmap, _) => self.memory.clear(offset, position(request.len)),
            // Nothing is nearer.
            (Op::Flush | Op::Cache, _) => {}
            _ => return Err(Fault::NotSupported),
        }
        Ok(())
    }
}

/// The gate has checked that the range lies in memory, so it fits.
fn position(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a range inside memory fits in usize")
}
