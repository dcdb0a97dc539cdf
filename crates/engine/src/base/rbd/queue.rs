//! One thread's way to an image.

use std::sync::Arc;

use cryptline_sys::{RbdDone, RbdIo, RbdQueue, Ring, Waker};
use rustix::io::Errno;

use super::{PATIENCE, Shared};
use crate::slab::Slab;
use crate::{Completion, Fault, Operation, Queue, Request, Submitted};

/// Longest range of one discard or zeroing: the library turns each into a request for every object of it, at once.
const MOST_RANGE: u64 = 1 << 30;

pub(super) struct ImageQueue {
    /// Not there once the queue goes.
    requests: Option<RbdQueue>,
    /// Those without a buffer, whose token below is their place here.
    ranges: Slab<Ranged>,
    /// Changes under way.
    changes: usize,
    /// Operations that the library has done and that say that writes are durable, to be told of once there is no news
    /// of the image.
    parked: Vec<(RbdIo, u64)>,
    /// Reads whose data is doubted, and the look that tells if it may be given out.
    doubted: Vec<(RbdIo, u64, u64)>,
    waker: Waker,
    shared: Arc<Shared>,
}

/// A range that is worked on from its start to its end; none for a flush.
struct Ranged {
    token: u64,
    offset: u64,
    len: u64,
    done: u64,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Flush,
    Discard,
    Zero { may_unmap: bool },
}

impl ImageQueue {
    pub fn new(shared: &Arc<Shared>, depth: usize, waker: Waker) -> Self {
        Self {
            requests: Some(RbdQueue::new(&shared.watched.image, depth, waker.clone())),
            ranges: Slab::new(depth),
            changes: 0,
            parked: Vec::new(),
            doubted: Vec::with_capacity(if shared.presence.is_some() { depth } else { 0 }),
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
                let fault = self.fault(errno);
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
            if self.shared.watched.is_news() {
                self.park(io, token);
                return None;
            }
            if self.shared.watched.look().is_err() {
                self.shared.watched.lose();
            }
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
            (Ok(_), _) if is_sync && self.shared.watched.is_lost() => Err(Fault::Latched),
            (Ok(_), _) => Ok(()),
            (Err(errno), _) => Err(self.fault(errno)),
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
        self.parked.push((io, token));
        self.shared.watched.image.changes().wake_then(&self.waker);
    }

    fn unpark(&mut self, done: &mut Vec<Completion>) {
        for (io, token) in std::mem::take(&mut self.parked) {
            done.extend(self.settle(io, token, Ok(0)));
        }
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
        (ranged.done < ranged.len).then(|| ranged.io())
    }

    /// The request as it was submitted, at its end.
    fn end(&mut self, io: RbdIo, token: u64, result: Result<(), Fault>) -> Option<Completion> {
        let (operation, offset, token) = match io {
            RbdIo::Read { offset, buffer } => (Operation::Read(buffer), offset, token),
            RbdIo::Write { offset, buffer, durable } => {
                let data = buffer;
                (Operation::Write { data, durable }, offset, token)
            }
            RbdIo::Flush | RbdIo::Discard { .. } | RbdIo::Zero { .. } => {
                let ranged = self.ranges.remove(place(token))?;
                (ranged.operation(), ranged.offset, ranged.token)
            }
        };
        let request = Request { operation, offset, token };
        Some(request.complete(result))
    }

    /// Fault for an error; a client that was shut out, or has lost its lock, learns it by any request.
    fn fault(&self, errno: Errno) -> Fault {
        match errno {
            Errno::SHUTDOWN | Errno::ROFS => {
                self.shared.watched.lose();
                Fault::Lost
            }
            // The gate has checked the range, so it was inside the image once.
            Errno::INVAL => Fault::Truncated,
            // No refusal: what the library has begun may be done in part. Nor is there another time to try it at, as
            // after `Busy`.
            errno => match errno.into() {
                Fault::NotSupported => Fault::Io(errno),
                fault => fault,
            },
        }
    }

    fn range(&mut self, request: &Request, work: Work) -> Option<(RbdIo, u64)> {
        let ranged = Ranged { token: request.token, offset: request.offset, len: request.len(), done: 0, work };
        let io = ranged.io();
        let place = self.ranges.insert(ranged).ok()?;
        Some((io, place as u64))
    }
}

impl Queue for ImageQueue {
    fn submit(&mut self, _ring: &mut Ring, request: Request) -> Submitted {
        if request.is_sync() && self.shared.watched.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if self.shared.is_gone() && !matches!(request.operation, Operation::Flush) {
            return Submitted::Done(request.complete(Err(Fault::Gone)));
        }
        if self.requests.as_ref().is_none_or(RbdQueue::is_full) {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let range = match request.operation {
            Operation::Flush => self.range(&request, Work::Flush),
            Operation::Discard { .. } => self.range(&request, Work::Discard),
            Operation::WriteZeroes { may_unmap, .. } => self.range(&request, Work::Zero { may_unmap }),
            _ => None,
        };
        let Request { operation, offset, token } = request;
        let (io, token) = match (operation, range) {
            (_, Some(range)) => range,
            (Operation::Read(buffer), _) => (RbdIo::Read { offset, buffer }, token),
            (Operation::Write { data, durable }, _) => {
                let buffer = data;
                let io = RbdIo::Write { offset, buffer, durable };
                (io, token)
            }
            // None of them has a place here, or an operation of the library.
            (operation, None) => {
                let is_unknown =
                    matches!(operation, Operation::Cache { .. } | Operation::ZoneAppend { .. } | Operation::Zone(_));
                let fault = if is_unknown { Fault::NotSupported } else { Fault::Busy };
                let request = Request { operation, offset, token };
                return Submitted::Done(request.complete(Err(fault)));
            }
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
        (self.len - self.done).min(MOST_RANGE)
    }

    fn io(&self) -> RbdIo {
        let (offset, len) = (self.offset + self.done, self.part());
        match self.work {
            Work::Flush => RbdIo::Flush,
            Work::Discard => RbdIo::Discard { offset, len },
            Work::Zero { may_unmap } => {
                RbdIo::Zero { offset, len: usize::try_from(len).expect("at most MOST_RANGE"), thick: !may_unmap }
            }
        }
    }

    fn operation(&self) -> Operation {
        match self.work {
            Work::Flush => Operation::Flush,
            Work::Discard => Operation::Discard { len: self.len },
            Work::Zero { may_unmap } => Operation::WriteZeroes { len: self.len, may_unmap },
        }
    }
}

/// A place in the table of ranges.
fn place(token: u64) -> usize {
    usize::try_from(token).unwrap_or(usize::MAX)
}
