//! One thread's way to an image.

use std::sync::Arc;

use cryptline_sys::{RbdDone, RbdIo, RbdQueue, Ring, Waker};
use rustix::io::Errno;

use super::{PATIENCE, RbdShared};
use crate::slab::Slab;
use crate::{Completion, Fault, Op, Queue, Request, Submitted};

/// Longest range of one discard or zeroing: the library turns each into a request for every object of it, at once.
const MOST_RANGE: u64 = 1 << 30;

pub(super) struct ImageQueue {
    /// Not there once the queue goes.
    requests: Option<RbdQueue>,
    /// Those without a buffer, whose token below is their place here.
    ranges: Slab<Ranged>,
    /// Changes under way.
    changes: usize,
    /// Operations to be told of once the image was looked at.
    parked: Vec<ParkedFlush>,
    /// Reads whose data is doubted, and the look that tells if it may be given out.
    doubted: Vec<(RbdIo, u64, u64)>,
    waker: Waker,
    shared: Arc<RbdShared>,
}

/// Operation that the library has done, and that says that writes are durable once the image was looked at.
struct ParkedFlush {
    io: RbdIo,
    token: u64,
    /// Number of the look that was asked for.
    noted: u64,
}

/// A request without data that is worked on from the start of its range to the end; a flush has none.
struct Ranged {
    head: Request,
    done: u64,
}

impl ImageQueue {
    pub fn new(shared: &Arc<RbdShared>, depth: usize, waker: Waker) -> Self {
        Self {
            requests: Some(RbdQueue::new(&shared.watched.image, depth, waker.clone())),
            ranges: Slab::new(depth),
            changes: 0,
            parked: Vec::new(),
            doubted: Vec::new(),
            waker,
            shared: Arc::clone(shared),
        }
    }

    /// Hands it down; its end where the library does not take it.
    fn start(&mut self, io: RbdIo, token: u64) -> Option<Completion> {
        let is_change = io.is_change();
        let Some(requests) = &mut self.requests else {
            return self.end(io, token, Err(Fault::Lost));
        };
        match requests.submit(io, token) {
            Ok(()) => {
                self.changes += usize::from(is_change);
                None
            }
            Err((io, errno)) => {
                let fault = self.fault(errno, is_change);
                self.end(io, token, Err(fault))
            }
        }
    }

    /// The completion of what has ended; `None` where its request goes on.
    fn ended(&mut self, done: RbdDone) -> Option<Completion> {
        let RbdDone { io, token, result } = done;
        if io.is_change() {
            self.changes -= 1;
            self.shared.allocation.note_change();
        }
        self.settle(io, token, result)
    }

    /// Settles an operation that the library has ended, where its outcome can be told.
    fn settle(&mut self, io: RbdIo, token: u64, result: Result<usize, Errno>) -> Option<Completion> {
        let is_sync = matches!(io, RbdIo::Flush | RbdIo::Write { durable: true, .. });
        if is_sync && result.is_ok() && !self.shared.geometry.read_only && !self.shared.watched.is_lost() {
            self.park(io, token);
            return None;
        }
        if let (Some(presence), RbdIo::Read { buffer, .. }, Ok(len)) = (&self.shared.presence, &io, result)
            && len == buffer.len()
            && presence.doubts(buffer)
        {
            let look = presence.look_for(&self.waker);
            self.doubted.push((io, token, look));
            return None;
        }
        let result = match (result, &io) {
            // Behind the end of an image that was made smaller.
            (Ok(len), RbdIo::Read { buffer, .. }) if len < buffer.len() => Err(Fault::Truncated),
            (Ok(_), _) if is_sync => self.vouched(),
            (Ok(_), _) => Ok(()),
            (Err(errno), io) => Err(self.fault(errno, io.is_change())),
        };
        if let (Ok(()), RbdIo::Discard { .. } | RbdIo::Zero { .. }) = (result, &io)
            && let Some(next) = self.next_part(token)
        {
            return self.start(next, token);
        }
        self.end(io, token, result)
    }

    /// Keeps what has ended until the thread that looks at the image has looked.
    fn park(&mut self, io: RbdIo, token: u64) {
        let noted = self.shared.watched.image.changes().note();
        self.parked.push(ParkedFlush { io, token, noted });
    }

    fn unpark(&mut self, done: &mut Vec<Completion>) {
        let changes = Arc::clone(self.shared.watched.image.changes());
        for index in (0..self.parked.len()).rev() {
            if changes.is_looked_at(self.parked[index].noted) || self.shared.watched.is_lost() {
                let ParkedFlush { io, token, .. } = self.parked.swap_remove(index);
                let result = self.vouched();
                done.extend(self.end(io, token, result));
            }
        }
        if let Some(next) = self.parked.iter().map(|parked| parked.noted).min() {
            changes.wake_then(next, &self.waker);
        }
    }

    /// Result of a flush, once the image was looked at.
    fn vouched(&self) -> Result<(), Fault> {
        if self.shared.watched.is_lost() { Err(Fault::Latched) } else { Ok(()) }
    }

    /// Ends the reads of which is known by now whether their data may be given out.
    fn give_out(&mut self, done: &mut Vec<Completion>) {
        let Some(presence) = self.shared.presence.clone() else {
            return;
        };
        for index in (0..self.doubted.len()).rev() {
            if let Some(result) = presence.outcome(self.doubted[index].2) {
                let (io, token, _) = self.doubted.swap_remove(index);
                done.extend(self.end(io, token, result));
            }
        }
    }

    /// Returns the part behind the one that has ended.
    fn next_part(&mut self, token: u64) -> Option<RbdIo> {
        let ranged = self.ranges.get_mut(place(token))?;
        ranged.done += ranged.part();
        (ranged.done < ranged.head.len).then(|| ranged.io())
    }

    /// The request as it was submitted, at its end.
    fn end(&mut self, io: RbdIo, token: u64, result: Result<(), Fault>) -> Option<Completion> {
        let request = match io {
            RbdIo::Read { offset, buffer } => Request::read(offset, buffer, token),
            RbdIo::Write { offset, buffer, durable } => Request::write(offset, buffer, durable, token),
            RbdIo::Flush | RbdIo::Discard { .. } | RbdIo::Zero { .. } => self.ranges.remove(place(token))?.head,
        };
        Some(request.complete(result))
    }

    /// Fault for an error; a client that was shut out, or has lost its lock, learns it by any request.
    fn fault(&self, errno: Errno, is_change: bool) -> Fault {
        match errno {
            Errno::SHUTDOWN | Errno::ROFS => {
                self.shared.watched.lose();
                Fault::Lost
            }
            // The gate has checked the range, so it was inside the image once.
            Errno::INVAL => Fault::Truncated,
            // No refusal: what the library has begun may be done in part.
            errno if is_change => Fault::from(errno).unrefused(),
            errno => match errno.into() {
                Fault::NotSupported => Fault::Io(errno),
                fault => fault,
            },
        }
    }

    /// Notes a request without data; gives it back where there is no place.
    fn range(&mut self, head: Request) -> Result<(RbdIo, u64), Request> {
        let ranged = Ranged { head, done: 0 };
        let io = ranged.io();
        let place = self.ranges.insert(ranged).map_err(|ranged| ranged.head)?;
        Ok((io, place as u64))
    }
}

impl Queue for ImageQueue {
    fn submit(&mut self, _ring: &mut Ring, mut request: Request) -> Submitted {
        if request.op.is_sync() && self.shared.watched.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if self.shared.is_gone() && request.op != Op::Flush {
            return Submitted::Done(request.complete(Err(Fault::Gone)));
        }
        if self.requests.as_ref().is_none_or(RbdQueue::is_full) {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let offset = request.offset;
        let begun = match (request.op, request.data.take()) {
            (Op::Read, Some(buffer)) => Ok((RbdIo::Read { offset, buffer }, request.token)),
            (op @ (Op::Write | Op::WriteFua), Some(buffer)) => {
                Ok((RbdIo::Write { offset, buffer, durable: op.is_sync() }, request.token))
            }
            (Op::Flush | Op::Discard | Op::Zero | Op::ZeroUnmap, None) => {
                self.range(request).map_err(|request| request.complete(Err(Fault::Busy)))
            }
            // None of them is an operation of the library.
            (_, data) => {
                request.data = data;
                Err(request.complete(Err(Fault::NotSupported)))
            }
        };
        let (io, token) = match begun {
            Ok(begun) => begun,
            Err(completion) => return Submitted::Done(completion),
        };
        match self.start(io, token) {
            None => Submitted::Pending,
            Some(completion) => Submitted::Done(completion),
        }
    }

    fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
        while let Some(ended) = self.requests.as_mut().and_then(RbdQueue::next_done) {
            done.extend(self.ended(ended));
        }
        if !self.parked.is_empty() {
            self.unpark(done);
        }
        if !self.doubted.is_empty() {
            self.give_out(done);
        }
    }
}

impl Drop for ImageQueue {
    /// A change that nobody waits for could overtake a later one, and its failure would be nobody's. So it is waited
    /// for, as a ring waits for those of files.
    fn drop(&mut self) {
        while let Some(ended) = self.requests.as_mut().and_then(RbdQueue::next_done) {
            // The rest of a range is not begun.
            let part = usize::from(ended.io.is_change());
            self.changes -= part;
            if part > 0 && ended.result.is_err() {
                self.shared.watched.lose();
            }
        }
        if let Some(requests) = self.requests.take()
            && self.changes > 0
        {
            self.shared.allocation.note_change();
            if !requests.finish(PATIENCE) {
                self.shared.watched.lose();
            }
            self.shared.allocation.note_change();
        }
    }
}

impl Ranged {
    /// Bytes of the part that is next.
    fn part(&self) -> u64 {
        (self.head.len - self.done).min(MOST_RANGE)
    }

    fn io(&self) -> RbdIo {
        let (offset, len) = (self.head.offset + self.done, self.part());
        match self.head.op {
            Op::Discard => RbdIo::Discard { offset, len },
            op @ (Op::Zero | Op::ZeroUnmap) => {
                let len = usize::try_from(len).expect("at most MOST_RANGE");
                RbdIo::Zero { offset, len, thick: op == Op::Zero }
            }
            Op::Flush => RbdIo::Flush,
            // Never taken for a flush, whose yes is believed.
            other => unreachable!("{other:?} has no range"),
        }
    }
}

/// A place in the table of ranges.
fn place(token: u64) -> usize {
    usize::try_from(token).unwrap_or(usize::MAX)
}
