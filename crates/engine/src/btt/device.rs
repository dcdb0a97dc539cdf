//! A table as a device. It answers at once: a request is done when `submit` returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cryptline_sys::Ring;

use super::{Btt, BttMedium};
use crate::queue::Immediate;
use crate::{Device, Fault, Geometry, Op, OpenError, Queue, Request, Traits};

/// The sectors of an open table.
///
/// No discard and no write-zeroes: what they would put into the map, Linux misreads.
pub struct BttDevice<M> {
    table: Arc<Btt<M>>,
    read_only: bool,
    queues: AtomicUsize,
}

impl<M: BttMedium> BttDevice<M> {
    /// The device of `table`, which was opened with the same `read_only`.
    pub fn new(table: Btt<M>, read_only: bool) -> Self {
        Self::over(Arc::new(table), read_only)
    }

    /// The same over a table that others read and write too.
    pub fn over(table: Arc<Btt<M>>, read_only: bool) -> Self {
        Self { table, read_only, queues: AtomicUsize::new(0) }
    }
}

impl<M: BttMedium + 'static> Device for BttDevice<M> {
    fn traits(&self) -> Traits {
        Traits::immediate(Geometry {
            preferred_block: 4096,
            read_only: self.read_only,
            ..Geometry::plain(self.table.size(), self.table.sector_size())
        })
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(BttQueue { table: Arc::clone(&self.table), home: self.queues.fetch_add(1, Ordering::Relaxed) }))
    }
}

struct BttQueue<M> {
    table: Arc<Btt<M>>,
    home: usize,
}

impl<M: BttMedium> Immediate for BttQueue<M> {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => self.table.read(self.home, request.offset, buffer),
            (Op::Write | Op::WriteFua, Some(data)) => self.table.write(self.home, request.offset, data),
            (Op::Flush, _) => self.table.flush(),
            // The geometry offers nothing else, so the gate lets nothing through.
            _ => Err(Fault::NotSupported),
        }
    }
}
