//! A plain file base that makes one of the known mistakes, or none: what the histories must find.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_engine::{
    Buffer, Completion, Device, Extent, Fault, Gate, Geometry, Op, OpenError, Queue, Request, Ring, Submitted, Traits,
};
use cryptline_sys::{FileId, Io, RequestSource, RingDone};
use rustix::io::Errno;

use super::history::Habits;
use super::stack::{Bed, Stack};

/// Mistake of a careless base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// ENOSPC of a durable write counts as that write's own failure, and is forgotten.
    ForgivesNoSpace,
    /// A queue believes its own open file, which was opened after others had been told.
    AsksItsOwnFileOnly,
    /// Of two syncs in flight the first to be answered is believed.
    BelievesTheFirst,
    /// A flush is answered and not made.
    FlushesNothing,
    /// A sync that was interrupted is made again, and believed.
    BelievesTheNext,
    /// A flush does not know what the one before was told. That is no mistake: the gate remembers.
    RemembersNothing,
}

/// A stack over a base that leaves it to the gate to remember failures, as used by one client.
pub fn forgetful() -> Stack {
    let mut stack = careless(Mistake::RemembersNothing);
    stack.habits = Habits { restless: false, ..Habits::ALL };
    stack
}

/// A stack with a mistake.
pub fn careless(mistake: Mistake) -> Stack {
    Stack::new(Bed::new(16 * 512, 512), move |bed, _| {
        Gate::new(Careless { path: bed.path.clone(), keeper: open(&bed.path), mistake, lost: Arc::default() })
    })
}

fn open(path: &PathBuf) -> Arc<OwnedFd> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Arc::new(file.into())
}

struct Careless {
    path: PathBuf,
    keeper: Arc<OwnedFd>,
    mistake: Mistake,
    lost: Arc<AtomicBool>,
}

impl Device for Careless {
    fn traits(&self) -> Traits {
        let file = std::fs::metadata(&self.path).unwrap();
        Traits::base(Geometry {
            size: file.len(),
            logical_block: 512,
            preferred_block: 4096,
            read_only: false,
            rotational: false,
            discard: false,
            write_zeroes: false,
            cache: false,
            answers_at_once: false,
            zones: None,
        })
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(CarelessQueue {
            file: ring.add_file(open(&self.path)),
            source: ring.add_source(),
            keeper: (ring.add_file(Arc::clone(&self.keeper)), ring.add_source()),
            flying: HashMap::new(),
            held: Vec::new(),
            next: 0,
            in_doubt: false,
            mistake: self.mistake,
            lost: Arc::clone(&self.lost),
        }))
    }

    fn extent(&self, _offset: u64, len: u64) -> Result<Extent, Fault> {
        let (hole, zero) = (false, false);
        Ok(Extent { len, hole, zero })
    }
}

struct CarelessQueue {
    file: FileId,
    source: RequestSource,
    keeper: (FileId, RequestSource),
    /// Without their buffers.
    flying: HashMap<u64, Flying>,
    /// Synced, and not believed yet.
    held: Vec<Completion>,
    next: u64,
    /// A sync was interrupted, which may have been the report of a loss.
    in_doubt: bool,
    mistake: Mistake,
    lost: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Flying {
    op: Op,
    offset: u64,
    token: u64,
    done: usize,
}

impl Queue for CarelessQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if request.op == Op::Flush && self.mistake == Mistake::FlushesNothing {
            return Submitted::Done(request.complete(Ok(())));
        }
        let Request { op, offset, data, token, .. } = request;
        let flying = Flying { op, offset, token, done: 0 };
        self.go(ring, flying, data);
        Submitted::Pending
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        while let Some(finished) = ring.next_done(self.source) {
            self.finish(ring, finished, done);
        }
        let is_clear = !self.flying.values().any(|flying| flying.op.is_sync());
        if is_clear || self.mistake == Mistake::BelievesTheFirst {
            for mut completion in self.held.drain(..) {
                if self.lost.load(Ordering::Relaxed) {
                    completion.result = Err(Fault::Latched);
                }
                done.push(completion);
            }
        }
    }
}

impl CarelessQueue {
    fn go(&mut self, ring: &mut Ring, flying: Flying, buffer: Option<Buffer>) {
        let (file, start, offset) = (self.file, flying.done, flying.offset + flying.done as u64);
        let io = match (flying.op, buffer) {
            (_, None) => Io::Sync { file },
            (Op::Read, Some(buffer)) => {
                let len = buffer.len() - start;
                Io::Read { file, buffer, start, len, offset }
            }
            (op, Some(buffer)) => {
                let (len, durable) = (buffer.len() - start, op.is_sync());
                Io::Write { file, buffer, start, len, offset, durable }
            }
        };
        self.next += 1;
        self.flying.insert(self.next, flying);
        ring.submit(self.source, self.next, io).expect("few are in flight");
    }

    fn finish(&mut self, ring: &mut Ring, finished: RingDone, done: &mut Vec<Completion>) {
        let mut flying = self.flying.remove(&finished.token).expect("answered once");
        let buffer = match finished.io {
            Io::Read { buffer, .. } | Io::Write { buffer, .. } => Some(buffer),
            _ => None,
        };
        let result = match finished.result {
            Err(Errno::INTR) => {
                self.in_doubt |= flying.op.is_sync() && self.mistake != Mistake::BelievesTheNext;
                return self.go(ring, flying, buffer);
            }
            Err(errno) => Err(self.judge(flying.op, errno)),
            Ok(moved) => {
                flying.done += moved;
                if buffer.as_ref().is_some_and(|buffer| flying.done < buffer.len()) {
                    return self.go(ring, flying, buffer);
                }
                if flying.op.is_sync() { self.ask_keeper(ring) } else { Ok(()) }
            }
        };
        let Flying { op, offset, token, .. } = flying;
        let request = match buffer {
            Some(data) => Request::transfer(op, offset, data, token),
            None => Request::new(op, offset, 0, token),
        };
        let completion = request.complete(result);
        if flying.op.is_sync() && result.is_ok() { self.held.push(completion) } else { done.push(completion) }
    }

    /// Fault for a failure. A refusal for want of room is what the gate forgets.
    fn judge(&self, op: Op, errno: Errno) -> Fault {
        match (self.mistake, op, errno) {
            (Mistake::ForgivesNoSpace, Op::WriteFua, Errno::NOSPC) => return Fault::NoSpace,
            (Mistake::RemembersNothing, ..) => {}
            (_, Op::WriteFua | Op::Flush, _) => self.lost.store(true, Ordering::Relaxed),
            _ => {}
        }
        if op.is_sync() { Fault::Io(errno) } else { Fault::from(errno) }
    }

    fn ask_keeper(&mut self, ring: &mut Ring) -> Result<(), Fault> {
        let (file, inbox) = self.keeper;
        // It would cover for the other mistakes too.
        let always = matches!(self.mistake, Mistake::None | Mistake::RemembersNothing);
        if !std::mem::take(&mut self.in_doubt) && !always {
            return Ok(());
        }
        ring.submit_at_once(inbox, 0, Io::Sync { file });
        let answer = ring.next_done(inbox).expect("it was answered at once");
        answer.result.map(drop).map_err(|errno| self.judge(Op::Flush, errno))
    }
}
