//! Blocking calls: an on-stack request over the same path as any other.

use std::borrow::BorrowMut;

use cryptline_sys::{BackendChoice, Buffer, Ring, RoamingRing};
use rustix::io::Errno;

use crate::gate::{Gate, GatedQueue};
use crate::zone::ZoneAction;
use crate::{Combined, Completion, Fault, Op, OpenError, Request, Submitted};

/// Bytes a blocking call moves at a time.
const CHUNK: usize = 1024 * 1024;
/// Operations in flight: a request may be carried out as several.
const DEPTH: u32 = 8;

/// A device used one call at a time, on the calling thread: the one that opened it, or with a [`RoamingRing`] any.
///
/// Where its ring can not be waited for, the request under way is lost with it, and this call and
/// all later ones fail.
pub struct Blocking<R = Ring> {
    // Before the queue: what is in flight has ended when the queue goes.
    ring: R,
    queue: GatedQueue,
    /// Not here while a request has it.
    buffer: Option<Buffer>,
    /// Why the ring is of no use any more.
    broken: Option<Fault>,
    done: Vec<Completion>,
}

impl Blocking {
    /// Opens a queue of its own into the device behind `gate`.
    pub fn new(gate: &Gate, backend: BackendChoice) -> Result<Self, OpenError> {
        Self::over(Ring::new(backend, DEPTH).map_err(OpenError::Ring)?, gate)
    }
}

impl Blocking<RoamingRing> {
    /// The same for callers that come from one thread now and from another later.
    pub fn roaming(gate: &Gate) -> Result<Self, OpenError> {
        Self::over(RoamingRing::new(DEPTH).map_err(OpenError::Ring)?, gate)
    }
}

impl<R: BorrowMut<Ring>> Blocking<R> {
    fn over(mut ring: R, gate: &Gate) -> Result<Self, OpenError> {
        let queue = gate.open_queue(ring.borrow_mut())?;
        Ok(Self {
            ring,
            queue,
            buffer: Some(Buffer::alloc(CHUNK).map_err(OpenError::Ring)?),
            broken: None,
            done: Vec::with_capacity(8),
        })
    }

    /// Fills `target` from `offset`. Neither needs to be whole blocks: those around it are read.
    pub fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let block = self.queue.geometry().logical_block as usize;
        let mut at = offset;
        let mut rest = target;
        while !rest.is_empty() {
            let before = usize::try_from(at % block as u64).unwrap_or(0);
            let wanted = self.chunk_len(at, rest.len()).min(CHUNK - before);
            let (piece, after) = rest.split_at_mut(wanted);
            rest = after;
            let buffer = self.take_buffer((before + wanted).next_multiple_of(block))?;
            let request = Request::read(at - before as u64, buffer, 0);
            let (buffer, result) = self.transfer(request)?;
            if result.is_ok() {
                piece.copy_from_slice(&buffer[before..before + wanted]);
            }
            self.buffer = Some(buffer);
            result?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes `source` at `offset`; durable on return where asked. What is refused has changed nothing.
    pub fn write_at(&mut self, offset: u64, source: &[u8], durable: bool) -> Result<(), Fault> {
        let mut at = offset;
        let mut rest = source;
        let mut outcome = Combined::new(true);
        if !rest.is_empty() {
            self.queue.check_blocks(offset, rest.len() as u64)?;
        }
        while !rest.is_empty() && !outcome.has_failed() {
            let (piece, after) = rest.split_at(self.chunk_len(at, rest.len()));
            rest = after;
            let mut buffer = self.take_buffer(piece.len())?;
            buffer.copy_from_slice(piece);
            let (buffer, result) = self.transfer(Request::write(at, buffer, durable, 0))?;
            self.buffer = Some(buffer);
            outcome.add(result);
            at += piece.len() as u64;
        }
        outcome.result()
    }

    /// Makes all completed writes durable.
    pub fn flush(&mut self) -> Result<(), Fault> {
        self.run(Request::flush(0))?.result
    }

    /// Discards a range.
    pub fn discard(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.operate(offset, len, Op::Discard)
    }

    /// Makes a range read as zeros.
    pub fn write_zeroes(&mut self, offset: u64, len: u64, may_unmap: bool) -> Result<(), Fault> {
        self.operate(offset, len, Op::zero(may_unmap))
    }

    /// Tells the device that a range will be read soon.
    pub fn cache(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.operate(offset, len, Op::Cache)
    }

    /// Appends to the zone that starts at `zone_start`; where the bytes are.
    pub fn zone_append(&mut self, zone_start: u64, source: &[u8], durable: bool) -> Result<u64, Fault> {
        let mut buffer = Buffer::alloc(source.len()).map_err(|_| Fault::Io(Errno::NOMEM))?;
        buffer.copy_from_slice(source);
        let completion = self.run(Request::zone_append(zone_start, buffer, durable, 0))?;
        completion.result.map(|()| completion.request.offset)
    }

    /// Acts on the zone that starts at `zone_start`.
    pub fn zone(&mut self, zone_start: u64, action: ZoneAction) -> Result<(), Fault> {
        self.run(Request::zone(zone_start, action, 0))?.result
    }

    /// Runs what carries no data.
    fn operate(&mut self, offset: u64, len: u64, op: Op) -> Result<(), Fault> {
        self.run(Request::new(op, offset, len, 0))?.result
    }

    /// Submits one request and waits for its end.
    ///
    /// Errors: the ring can not be waited for, now or ever before. What becomes of the request is
    /// not known then.
    pub fn run(&mut self, request: Request) -> Result<Completion, Fault> {
        self.broken.map_or(Ok(()), Err)?;
        if let Submitted::Done(completion) = self.queue.submit(self.ring.borrow_mut(), request) {
            return Ok(completion);
        }
        loop {
            let ring = self.ring.borrow_mut();
            let waited = ring.wait();
            self.queue.poll(ring, &mut self.done);
            if let Err(error) = waited {
                let fault = Fault::Io(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                return Err(*self.broken.insert(fault.unrefused()));
            }
            if let Some(completion) = self.done.pop() {
                return Ok(completion);
            }
        }
    }

    /// Bytes of the next piece: never more than a chunk, and never across zones.
    fn chunk_len(&self, at: u64, left: usize) -> usize {
        let len = left.min(CHUNK);
        let Some(zones) = &self.queue.geometry().zones else {
            return len;
        };
        let in_zone = zones.zone_size - (at - zones.start_of(at));
        usize::try_from(in_zone).map_or(len, |in_zone| len.min(in_zone))
    }

    fn take_buffer(&mut self, len: usize) -> Result<Buffer, Fault> {
        self.broken.map_or(Ok(()), Err)?;
        let mut buffer = self.buffer.take().expect("one call at a time on a sound ring, so the buffer is here");
        buffer.set_len(len);
        Ok(buffer)
    }

    fn transfer(&mut self, request: Request) -> Result<(Buffer, Result<(), Fault>), Fault> {
        let Completion { request, result } = self.run(request)?;
        let buffer = request.data.expect("a transfer comes back with its data");
        Ok((buffer, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RamDevice;
    use crate::{Device, Extent, Geometry, Queue, Traits};

    const BLOCK: u32 = 4096;

    /// Memory in larger blocks.
    struct Blocks(RamDevice);

    impl Device for Blocks {
        fn traits(&self) -> Traits {
            Traits::immediate(Geometry { logical_block: BLOCK, ..self.0.traits().geometry })
        }

        fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
            self.0.open_queue(ring)
        }

        fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
            self.0.extent(offset, len)
        }
    }

    #[test]
    fn reads_take_any_bytes_and_writes_whole_blocks() {
        let size = 3 * CHUNK + 8192;
        let gate = Gate::new(Blocks(RamDevice::new(size as u64).unwrap()));
        let mut disk = Blocking::new(&gate, BackendChoice::Auto).unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at / 7).to_le_bytes()[0]).collect();
        disk.write_at(0, &bytes, false).unwrap();
        for (offset, len) in [
            (1, 16),
            (4093, 6),
            (4096, 10),
            (CHUNK - 3, 7),
            (CHUNK - 1, CHUNK + 2),
            (4095, 3 * CHUNK),
            (size - 5, 5),
            (0, size),
        ] {
            let mut read = vec![0; len];
            disk.read_at(offset as u64, &mut read).unwrap();
            assert!(read == bytes[offset..offset + len], "{len} at {offset}");
        }
        assert_eq!(disk.read_at(size as u64 - 5, &mut [0; 6]), Err(Fault::OutOfRange));
        assert_eq!(
            disk.write_at(1, &[0; 16], false),
            Err(Fault::Misaligned),
            "two who share it would lose each other's"
        );
        // What is refused at its end has not changed its beginning.
        for (offset, len, refused) in [
            (size - CHUNK, CHUNK + 8192, Fault::OutOfRange),
            (0, CHUNK + 1, Fault::Misaligned),
            (0, 2 * CHUNK + 512, Fault::Misaligned),
        ] {
            assert_eq!(disk.write_at(offset as u64, &vec![0xff; len], false), Err(refused), "{len} at {offset}");
        }
        assert_eq!(disk.write_at(u64::MAX - 4095, &[0; 4096], false), Err(Fault::OutOfRange));
        assert_eq!(disk.write_at(0, &[], false), Ok(()));
        let mut read = vec![0; size];
        disk.read_at(0, &mut read).unwrap();
        assert!(read == bytes);
    }
}
