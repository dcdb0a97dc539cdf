//! The ways of a page to a medium and back.
//!
//! ```text
//! Memcpy    the medium's own copy, and nothing else
//! OnStack   a request as a value, through gate and queue: the ordinary path of everything else
//! Heap      the same, but each request has a heap allocation of its own, as a bio had
//! ```

use std::hint::black_box;

use cryptline_engine::btt::Medium;
use cryptline_engine::{
    BackendChoice, Buffer, Completion, Fault, Gate, GatedQueue, Operation, Request, Ring, Submitted,
};

use crate::Error;
use crate::report::Direction;

/// Entries of a ring that nothing is ever put into.
const RING_ENTRIES: u32 = 8;

/// How a page comes to a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a bare copy.
    Memcpy,
    /// By a request that is a value.
    OnStack,
    /// By a request on the heap.
    Heap,
}

impl Way {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Memcpy, Self::OnStack, Self::Heap];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::OnStack => "on-stack request",
            Self::Heap => "heap request",
        }
    }
}

/// Copies blocks out of a medium or into it.
pub fn copy(
    memory: &impl Medium,
    direction: Direction,
    offsets: &[u64],
    block: &mut [u8],
) -> Result<(), Fault> {
    for &offset in offsets {
        match direction {
            Direction::Read => memory.read(offset, block)?,
            Direction::Write => memory.store(offset, block)?,
        }
        black_box(&mut *block);
    }
    Ok(())
}

/// A queue through the gate of a medium.
pub struct Requests {
    ring: Ring,
    queue: GatedQueue,
}

impl Requests {
    /// A queue into the device behind `gate`.
    pub fn new(gate: &Gate) -> Result<Self, Error> {
        let mut ring = Ring::new(BackendChoice::Auto, RING_ENTRIES)
            .map_err(|error| Error::device(format!("cannot set up I/O: {error}")))?;
        let queue = gate.open_queue(&mut ring)?;
        Ok(Self { ring, queue })
    }

    /// Moves blocks by requests on the stack.
    pub fn on_stack(
        &mut self,
        direction: Direction,
        offsets: &[u64],
        mut buffer: Buffer,
    ) -> Result<Buffer, Fault> {
        for &offset in offsets {
            let request = request(direction, offset, buffer);
            let Some(Completion { request, result }) =
                ended(self.queue.submit(&mut self.ring, request))
            else {
                return Err(Fault::NotSupported);
            };
            result?;
            let Some(back) = buffer_of(request) else {
                return Err(Fault::NotSupported);
            };
            buffer = back;
            black_box(&mut *buffer);
        }
        Ok(buffer)
    }

    /// Moves blocks by requests that each live on the heap until they have ended.
    pub fn heap(
        &mut self,
        direction: Direction,
        offsets: &[u64],
        mut buffer: Buffer,
    ) -> Result<Buffer, Fault> {
        for &offset in offsets {
            let mut boxed = Box::new(Some(request(direction, offset, buffer)));
            // The compiler must not see that the box is not needed.
            let request = black_box(&mut *boxed).take().ok_or(Fault::NotSupported)?;
            let Some(Completion { request, result }) =
                ended(self.queue.submit(&mut self.ring, request))
            else {
                return Err(Fault::NotSupported);
            };
            result?;
            let Some(back) = buffer_of(request) else {
                return Err(Fault::NotSupported);
            };
            buffer = back;
            black_box(&mut *buffer);
            drop(boxed);
        }
        Ok(buffer)
    }
}

fn request(direction: Direction, offset: u64, buffer: Buffer) -> Request {
    match direction {
        Direction::Read => Request::read(offset, buffer, 0),
        Direction::Write => Request::write(offset, buffer, false, 0),
    }
}

/// What has ended. All media here answer at once; one that does not is not what is measured.
fn ended(submitted: Submitted) -> Option<Completion> {
    match submitted {
        Submitted::Done(completion) => Some(completion),
        Submitted::Pending => None,
    }
}

/// The buffer of a request that has ended. No `Result`: its bytes would be moved in other pieces than
/// they were stored in.
fn buffer_of(request: Request) -> Option<Buffer> {
    match request.operation {
        Operation::Read(buffer) => Some(buffer),
        Operation::Write { data, .. } => Some(data),
        _ => None,
    }
}
