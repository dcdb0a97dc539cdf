//! The ways of a page to a medium and back.
//!
//! ```text
//! Memcpy    the medium's own copy, and nothing else
//! OnStack   a request as a value, through gate and queue: the ordinary path of everything else
//! Heap      the same, but each request has a heap allocation of its own, as a bio had
//! ```

use std::hint::black_box;
use std::sync::Arc;

use cryptline_engine::btt::Medium;
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Operation, Submitted};

use crate::Error;
use crate::load::request;
use crate::report::Direction;

/// Entries of a ring that nothing is ever put into.
const RING_ENTRIES: u32 = 8;

/// How a page comes to a medium, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Memcpy,
    OnStack,
    Heap,
}

impl Way {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::OnStack => "on-stack request",
            Self::Heap => "heap request",
        }
    }
}

/// Moves the blocks at some offsets, all from or into the buffer, which is lost with a request that
/// fails.
pub type Walk = Box<dyn FnMut(Direction, &[u64], &mut Option<Buffer>) -> Result<(), Fault>>;

/// Copies blocks out of a medium or into it.
pub fn copies(memory: Arc<impl Medium + 'static>) -> Walk {
    Box::new(move |direction, offsets, slot| {
        let block = slot.as_deref_mut().ok_or(Fault::NotSupported)?;
        for &offset in offsets {
            match direction {
                Direction::Read => memory.read(offset, block)?,
                Direction::Write => memory.store(offset, block)?,
            }
            black_box(&mut *block);
        }
        Ok(())
    })
}

/// Moves blocks by requests through a gate, each in a box of its own until it has ended where they are
/// to come from the heap. All media here answer at once; one that does not is not what is measured.
pub fn requests<const HEAP: bool>(gate: &Gate) -> Result<Walk, Error> {
    let mut channel = Channel::open(gate, BackendChoice::Auto, RING_ENTRIES)?;
    Ok(Box::new(move |direction, offsets, slot| {
        let mut buffer = slot.take().ok_or(Fault::NotSupported)?;
        for &offset in offsets {
            let request = request(direction, offset, buffer, 0);
            let submitted = if HEAP {
                let mut boxed = Box::new(Some(request));
                // The compiler must not see that the box is not needed.
                let request = black_box(&mut *boxed).take().ok_or(Fault::NotSupported)?;
                channel.submit(request)
            } else {
                channel.submit(request)
            };
            let Submitted::Done(Completion { request, result }) = submitted else {
                return Err(Fault::NotSupported);
            };
            result?;
            buffer = match request.operation {
                Operation::Read(buffer) | Operation::Write { data: buffer, .. } => buffer,
                _ => return Err(Fault::NotSupported),
            };
            black_box(&mut *buffer);
        }
        *slot = Some(buffer);
        Ok(())
    }))
}
