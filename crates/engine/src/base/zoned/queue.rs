//! One thread's way into an emulated zoned device.

use std::sync::Arc;

use cryptline_sys::Ring;

use super::ZonedShared;
use crate::gate::GatedQueue;
use crate::in_flight::InFlight;
use crate::zone::{Saved, ZoneAction};
use crate::{Combined, Completion, Fault, Op, Queue, Request, Submitted};

/// The token of the flush that this queue itself makes.
const FLUSH: u64 = u64::MAX;

pub(super) struct ZonedQueue {
    lower: GatedQueue,
    shared: Arc<ZonedShared>,
    /// Kind of each request below.
    below: InFlight<ZonedKind>,
    /// Wait for the next flush below: flushes, and durable writes that are written.
    waiting: Vec<Request>,
    /// Wait for the one that is under way.
    flushing: Vec<Request>,
    /// The zones whose state the flush under way will save.
    noted: Vec<(u32, Saved)>,
    /// Completions that were not given out yet.
    ended: Vec<Completion>,
    /// Scratch space of `poll`.
    arrived: Vec<Completion>,
}

/// Kind of a request in the device below.
enum ZonedKind {
    /// Nothing is to be done when it comes back.
    Plain,
    /// A read of a zone of which so many bytes of the buffer are behind the data.
    Read { zeros: u64 },
    /// A write to a sequential zone.
    Write {
        index: u32,
        /// The zone's start, where it was an append.
        append: Option<u64>,
        /// As it was submitted.
        op: Op,
    },
    /// A reset of this zone, whose data are being freed.
    Reset { index: u32 },
    /// The same, of all these zones, the last first.
    ResetAll { left: Vec<u32>, outcome: Combined },
}

impl ZonedQueue {
    /// `depth` is how many requests may be in flight.
    pub fn new(lower: GatedQueue, shared: Arc<ZonedShared>, depth: usize) -> Self {
        let zones = usize::try_from(shared.table.layout().count).unwrap_or(0);
        Self {
            lower,
            below: InFlight::new(depth),
            waiting: Vec::with_capacity(depth),
            flushing: Vec::with_capacity(depth),
            noted: Vec::with_capacity(if shared.journal.is_some() { zones } else { 0 }),
            ended: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            shared,
        }
    }
}

impl Queue for ZonedQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let before = self.ended.len();
        if self.below.is_full() {
            // As `file` answers more requests than the ring has places for.
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        if let Err((request, fault)) = self.start(ring, request) {
            return Submitted::Done(request.complete(Err(fault)));
        }
        // Of what ended just now, this request is the last: it came last.
        let is_over = self.ended.len() > before && self.is_idle();
        match is_over.then(|| self.ended.pop()).flatten() {
            Some(completion) => Submitted::Done(completion),
            None => {
                if !self.ended.is_empty() {
                    ring.stay_awake();
                }
                Submitted::Pending
            }
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.lower.poll(ring, &mut arrived);
        for completion in arrived.drain(..) {
            if let Some((request, kind)) = self.arrive(ring, completion) {
                self.send(ring, request, kind);
            }
        }
        self.arrived = arrived;
        done.append(&mut self.ended);
    }
}

impl ZonedQueue {
    fn is_idle(&self) -> bool {
        self.below.is_empty() && self.waiting.is_empty() && self.flushing.is_empty()
    }

    /// Starts a request. Its end may be among `ended` when this returns.
    fn start(&mut self, ring: &mut Ring, request: Request) -> Result<(), (Request, Fault)> {
        let (index, in_zone) = self.shared.place_of(request.offset);
        let layout = *self.shared.table.layout();
        let is_sequential = layout.is_sequential(index);
        if let Some(action) = request.op.zone_action() {
            return self.act(ring, request, action);
        }
        let kind = match request.op {
            Op::Flush => {
                self.waiting.push(request);
                self.flush(ring);
                return Ok(());
            }
            Op::Read => match self.shared.table.readable(index) {
                Err(fault) => return Err((request, fault)),
                Ok(readable) => {
                    let zeros = beyond(readable, in_zone, request.len);
                    if zeros == request.len {
                        let completion = clear_tail(request.complete(Ok(())), zeros);
                        self.ended.push(completion);
                        return Ok(());
                    }
                    ZonedKind::Read { zeros }
                }
            },
            Op::Discard if is_sequential => return Err((request, Fault::NotSupported)),
            op if is_sequential && op.changes() => return self.write(ring, request, index, in_zone),
            op if op.is_append() => return Err((request, Fault::ZoneCondition)),
            _ => ZonedKind::Plain,
        };
        self.send(ring, request, kind);
        Ok(())
    }

    /// A write, append or zeroing of a sequential zone.
    fn write(
        &mut self,
        ring: &mut Ring,
        mut request: Request,
        index: u32,
        in_zone: u64,
    ) -> Result<(), (Request, Fault)> {
        let Request { op, len, .. } = request;
        let granularity = u64::from(self.shared.table.layout().write_granularity);
        let at = (!op.is_append()).then_some(in_zone);
        let begun = if len.is_multiple_of(granularity) {
            (self.shared.may_write()).and_then(|()| self.shared.table.begin_write(index, at, len))
        } else {
            Err(Fault::Misaligned)
        };
        let at = match begun {
            Ok(at) => at,
            Err(fault) => return Err((request, fault)),
        };
        let append = op.is_append().then_some(request.offset);
        request.offset = self.shared.table.layout().start_of(index) + at;
        // Durable is the pointer too: that takes a flush, when the data are written.
        request.op = if op.moves_data() { Op::Write } else { op };
        let kind = ZonedKind::Write { index, append, op };
        self.send(ring, request, kind);
        Ok(())
    }

    fn act(&mut self, ring: &mut Ring, request: Request, action: ZoneAction) -> Result<(), (Request, Fault)> {
        let index = self.shared.place_of(request.offset).0;
        let table = &self.shared.table;
        let result = match action {
            ZoneAction::Open => table.open(index),
            ZoneAction::Close => table.close(index),
            ZoneAction::Finish => table.finish(index),
            ZoneAction::Reset => return self.reset(ring, request, index),
            ZoneAction::ResetAll => {
                self.reset_all(ring, request);
                return Ok(());
            }
        };
        self.ended.push(request.complete(result));
        Ok(())
    }

    fn reset(&mut self, ring: &mut Ring, request: Request, index: u32) -> Result<(), (Request, Fault)> {
        match self.shared.table.begin_reset(index) {
            Err(fault) => return Err((request, fault)),
            Ok(false) => {
                // Empty here; but not there, where the reset that made it so could not be saved.
                let saved = self.shared.may_write();
                self.ended.push(request.complete(saved));
                return Ok(());
            }
            Ok(true) => {}
        }
        let saved = [(index, self.shared.table.saved(index))];
        if let Err(fault) = self.save(&saved) {
            self.shared.table.end_reset(index);
            return Err((request, fault));
        }
        let freeing = self.free(request.token, index);
        self.send(ring, freeing, ZonedKind::Reset { index });
        Ok(())
    }

    fn reset_all(&mut self, ring: &mut Ring, request: Request) {
        let layout = *self.shared.table.layout();
        let mut left = Vec::new();
        let mut outcome = Combined::new(true);
        if let Err(fault) = self.shared.may_write() {
            outcome.add(Err(fault));
        }
        for index in layout.conventional..layout.count {
            match self.shared.table.begin_reset(index) {
                Ok(true) => {
                    left.push(index);
                    outcome.add(Ok(()));
                }
                // Read-only and offline zones are passed over.
                Ok(false) | Err(Fault::ZoneCondition) => {}
                Err(fault) => outcome.add(Err(fault)),
            }
        }
        let saved: Vec<_> = (left.iter()).map(|&index| (index, self.shared.table.saved(index))).collect();
        if let Err(fault) = self.save(&saved) {
            left.iter().for_each(|&index| self.shared.table.end_reset(index));
            self.ended.push(request.complete(Err(fault)));
            return;
        }
        match left.last() {
            None => self.ended.push(request.complete(outcome.result())),
            Some(&index) => {
                let freeing = self.free(request.token, index);
                self.send(ring, freeing, ZonedKind::ResetAll { left, outcome });
            }
        }
    }

    fn save(&self, zones: &[(u32, Saved)]) -> Result<(), Fault> {
        match &self.shared.journal {
            Some(journal) => journal.commit(zones, &self.shared.table),
            None => Ok(()),
        }
    }

    /// Gives the space of a zone that was reset back.
    fn free(&self, token: u64, index: u32) -> Request {
        let layout = self.shared.table.layout();
        Request::new(Op::Discard, layout.start_of(index), layout.zone_size, token)
    }

    /// Passes a request down, and what follows from it, until something takes time or all is over.
    fn send(&mut self, ring: &mut Ring, request: Request, kind: ZonedKind) {
        let mut next = Some((request, kind));
        while let Some((mut request, kind)) = next.take() {
            let Ok(()) = self.below.enter(&mut request, kind) else {
                unreachable!("the callers have looked for a free place, or just freed one")
            };
            if let Submitted::Done(completion) = self.lower.submit(ring, request) {
                next = self.arrive(ring, completion);
            }
        }
    }

    /// Takes what came back from below to its end, or gives its next step.
    fn arrive(&mut self, ring: &mut Ring, mut completion: Completion) -> Option<(Request, ZonedKind)> {
        if completion.request.token == FLUSH {
            self.flushed(completion.result);
            self.flush(ring);
            return None;
        }
        let kind = self.below.leave(&mut completion.request);
        let token = completion.request.token;
        match kind {
            ZonedKind::Plain => self.ended.push(completion),
            ZonedKind::Read { zeros } => self.ended.push(clear_tail(completion, zeros)),
            ZonedKind::Write { index, append, op } => {
                let written = if completion.result.is_ok() { completion.request.len } else { 0 };
                self.shared.table.end_write(index, written);
                let mut completion = as_submitted(completion, append, op);
                match completion.result {
                    Ok(()) if op.is_sync() => {
                        self.waiting.push(completion.request);
                        self.flush(ring);
                    }
                    result => {
                        completion.result = result;
                        self.ended.push(completion);
                    }
                }
            }
            ZonedKind::Reset { index } => {
                self.shared.table.end_reset(index);
                // Space that can not be freed is only not freed: it is behind the pointer.
                let start = self.shared.table.layout().start_of(index);
                let request = Request::zone(start, ZoneAction::Reset, token);
                self.ended.push(request.complete(Ok(())));
            }
            ZonedKind::ResetAll { mut left, outcome } => {
                if let Some(index) = left.pop() {
                    self.shared.table.end_reset(index);
                }
                match left.last() {
                    Some(&index) => {
                        return Some((self.free(token, index), ZonedKind::ResetAll { left, outcome }));
                    }
                    None => {
                        let request = Request::zone(0, ZoneAction::ResetAll, token);
                        self.ended.push(request.complete(outcome.result()));
                    }
                }
            }
        }
        None
    }

    /// Starts a flush for all that wait, unless one is under way: the next covers them.
    fn flush(&mut self, ring: &mut Ring) {
        while self.flushing.is_empty() && !self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, &mut self.flushing);
            if self.shared.journal.is_some() {
                let noted = &mut self.noted;
                noted.clear();
                let table = &self.shared.table;
                table.each_unsaved(|index, saved| noted.push((index, saved)));
            }
            match self.lower.submit(ring, Request::flush(FLUSH)) {
                Submitted::Done(completion) => self.flushed(completion.result),
                Submitted::Pending => return,
            }
        }
    }

    /// The data are durable: now the pointers that were noted before.
    fn flushed(&mut self, result: Result<(), Fault>) {
        let result = result.and_then(|()| self.save(&self.noted));
        let ended = self.flushing.drain(..);
        self.ended.extend(ended.map(|request| request.complete(result)));
    }
}

/// How many bytes of a read of `len` at `in_zone` lie behind the first `readable` bytes of its zone.
fn beyond(readable: u64, in_zone: u64, len: u64) -> u64 {
    (in_zone + len).saturating_sub(readable.max(in_zone))
}

fn clear_tail(mut completion: Completion, zeros: u64) -> Completion {
    if let Some(buffer) = &mut completion.request.data {
        let zeros = usize::try_from(zeros).unwrap_or(usize::MAX);
        let start = buffer.len().saturating_sub(zeros);
        buffer[start..].fill(0);
    }
    completion
}

/// Gives a write the shape again that it was submitted in. An append keeps the offset it was given,
/// unless it failed.
fn as_submitted(mut completion: Completion, append: Option<u64>, op: Op) -> Completion {
    let request = &mut completion.request;
    if let (Some(zone_start), Err(_)) = (append, &completion.result) {
        request.offset = zone_start;
    }
    request.op = op;
    completion
}
