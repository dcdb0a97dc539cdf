//! Jobs: from what the wire takes, over chunks begun while there are buffers, to their ends.

use std::time::{Duration, Instant};

use cryptline_engine::{Buffer, Completion, Fault, Op, Request, Submitted};
use rustix::io::Errno;

use super::Lane;
use super::job::LaneJob;
use super::wire::{Brought, JobId, Wire, WireInput, WireRequest, WriteChunk};

/// Chunks of long jobs begun between two looks for the peer: 2 MiB of them.
const CHUNKS_UNWATCHED: u32 = 8;

/// Result of preparing a chunk.
enum Begin {
    /// With this request, whose place and token are still to be set.
    With(Request),
    /// The wire will have its bytes, or has said that they never come.
    Later,
    NoRoom,
}

impl<W: Wire> Lane<W> {
    pub(super) fn take_requests(&mut self) {
        while !self.orders.is_abandoned() {
            // Each time: a medium that answers at once never ends this loop while the peer goes on asking.
            if self.orders.is_stopping() {
                self.wire.stop();
            }
            match self.wire.take(&self.room) {
                Some(WireInput::Asked(asked)) => self.begin(asked),
                Some(WireInput::Bytes(job, data)) => self.bytes_came(job, data),
                Some(WireInput::Refused(device, op)) => self.refused(device, op),
                None => break,
            }
        }
    }

    fn refused(&mut self, device: usize, op: Option<Op>) {
        self.tally.errors += 1;
        if let Some(meter) = self.meters.get(device) {
            meter.record(op, 0, Duration::ZERO, true);
        }
    }

    fn begin(&mut self, asked: WireRequest<W::Tag>) {
        let op = asked.op;
        let job = LaneJob::new(asked, (!self.meters.is_empty()).then(Instant::now));
        let Ok(index) = self.jobs.insert(job) else {
            unreachable!("a wire takes requests only while the room has a job")
        };
        self.room.jobs_left -= 1;
        match op {
            op if !op.has_range() => self.advance(index),
            // What a stream sends next is this payload, and its first bytes may be here already.
            op if op.has_payload() => self.continue_write(index),
            _ => self.wait_for_turn(index),
        }
    }

    fn continue_write(&mut self, index: usize) {
        if !self.pump_job(index) {
            self.wait_for_turn(index);
        }
    }

    /// The bytes that the wire has put off, or its word that there will be none.
    fn bytes_came(&mut self, JobId(index): JobId, data: Option<Buffer>) {
        let Some(job) = self.jobs.get_mut(index) else {
            debug_assert!(false, "bytes for a job that is gone");
            return;
        };
        job.is_awaited = false;
        match data {
            Some(data) => {
                let request = Request::transfer(job.asked.op, 0, data, 0);
                self.begin_chunk(index, request);
                self.continue_write(index);
            }
            None => {
                job.cut_short(Fault::Io(Errno::IO));
                self.advance(index);
            }
        }
    }

    /// Begins chunks, oldest job first, a few of each at a time, while there are buffers and anybody
    /// wants the rest.
    pub(super) fn pump(&mut self) {
        for _ in 0..self.pending.len() {
            if self.is_unwanted() {
                break;
            }
            let Some(index) = self.next_turn() else {
                break;
            };
            if !self.pump_job(index) {
                self.wait_for_turn_first(index);
                break;
            }
        }
        if self.wire.is_gone() {
            self.cut_all_short();
        }
    }

    /// Puts a job last among those that have chunks to begin.
    fn wait_for_turn(&mut self, index: usize) {
        if self.is_to_wait(index) {
            self.pending.push_back(index);
        }
    }

    fn wait_for_turn_first(&mut self, index: usize) {
        if self.is_to_wait(index) {
            self.pending.push_front(index);
        }
    }

    /// Tells if there is such a job and it does not wait already.
    fn is_to_wait(&mut self, index: usize) -> bool {
        let job = self.jobs.get_mut(index);
        job.is_some_and(|job| !std::mem::replace(&mut job.is_pending, true))
    }

    fn next_turn(&mut self) -> Option<usize> {
        let index = self.pending.pop_front()?;
        if let Some(job) = self.jobs.get_mut(index) {
            job.is_pending = false;
        }
        Some(index)
    }

    /// Begins nothing more: nobody is there to be answered.
    fn cut_all_short(&mut self) {
        self.room.reserved = false;
        while let Some(index) = self.next_turn() {
            if let Some(job) = self.jobs.get_mut(index) {
                job.cut_short(Fault::Io(Errno::SHUTDOWN));
                self.advance(index);
            }
        }
    }

    /// Tells if nobody waits for the rest of what was asked: the lane is to abandon it, or the peer is gone. Looking
    /// for the peer costs a system call, so it is done every few chunks.
    fn is_unwanted(&mut self) -> bool {
        if self.begun_unwatched >= CHUNKS_UNWATCHED {
            self.begun_unwatched = 0;
            self.wire.look_for_peer();
        }
        self.wire.is_gone() || self.orders.is_abandoned()
    }

    /// Tells if a job could begin a chunk right now, without waiting for anything to end. This happens over a medium
    /// that answers at once, where a turn ends before a long job does.
    pub(super) fn can_begin_more(&self) -> bool {
        let mut waiting = self.pending.iter().filter_map(|&index| self.jobs.get(index));
        waiting.any(LaneJob::is_ready) && !self.room.reserved && self.room.has_buffer()
    }

    /// Gives one job its turn: a few chunks, or all of a read that is wanted whole. `false` when
    /// buffers ran out.
    fn pump_job(&mut self, index: usize) -> bool {
        let reservation = self.jobs.get(index).and_then(LaneJob::reservation);
        if reservation.is_some_and(|chunks| !self.room.reserve(chunks)) {
            return false;
        }
        let mut turn = 0;
        loop {
            let Some(job) = self.jobs.get(index) else {
                return true;
            };
            let Some(len) = job.next_chunk() else {
                // It may be over already: a request of no bytes has no chunk.
                self.advance(index);
                return true;
            };
            if job.is_turn_over(turn) || self.is_unwanted() {
                self.wait_for_turn(index);
                return true;
            }
            match self.prepare(index, len) {
                Begin::With(request) => self.begin_chunk(index, request),
                Begin::Later => return true,
                Begin::NoRoom => return false,
            }
            turn += 1;
        }
    }

    /// Returns what serves the next `len` bytes of a job.
    fn prepare(&mut self, index: usize, len: u32) -> Begin {
        let Some(job) = self.jobs.get_mut(index) else {
            return Begin::Later;
        };
        let request = match job.asked.op {
            op if op.has_payload() => {
                let chunk = WriteChunk { job: JobId(index), at: job.begun, len: len as usize };
                match self.wire.bring(job.asked.tag, chunk, &self.room) {
                    Brought::Now(data) => {
                        debug_assert!(data.len() <= chunk.len, "a chunk, or the front of one");
                        Request::transfer(op, 0, data, 0)
                    }
                    Brought::NoRoom => return Begin::NoRoom,
                    Brought::Later => {
                        job.is_awaited = true;
                        return Begin::Later;
                    }
                    Brought::Never => {
                        job.cut_short(Fault::Io(Errno::IO));
                        self.advance(index);
                        return Begin::Later;
                    }
                }
            }
            op if op != Op::Read && !job.transfers => Request::new(op, 0, len.into(), 0),
            op => {
                let lent = match op {
                    Op::Read => self.wire.lend(job.asked.tag, job.begun, len as usize),
                    _ => None,
                };
                let Some(mut buffer) = lent.or_else(|| self.room.buffer(len as usize)) else {
                    return Begin::NoRoom;
                };
                if op.is_zero() {
                    buffer.fill(0);
                    Request::write(0, buffer, job.zeros_durably(), 0)
                } else {
                    Request::read(0, buffer, 0)
                }
            }
        };
        Begin::With(request)
    }

    fn begin_chunk(&mut self, index: usize, request: Request) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        let request = Request { offset: job.asked.offset + job.begun, token: index as u64, ..request };
        debug_assert!(job.begun == 0 || !job.asked.op.is_append(), "an append in one piece");
        if request.len > job.asked.length - job.begun {
            // A wire that brings more than it was asked for must not write behind the request.
            job.cut_short(Fault::Io(Errno::IO));
            return self.advance(index);
        }
        job.begun += request.len;
        // What ends soon needs no look for the peer.
        self.begun_unwatched += u32::from(job.begun < job.asked.length);
        self.submit(index, request);
    }

    fn submit(&mut self, index: usize, request: Request) {
        let Some(job) = self.jobs.get_mut(index) else {
            debug_assert!(false, "a request for a job that is gone");
            return;
        };
        job.in_flight += 1;
        let device = self.wire.device(job.asked.tag);
        match self.channel.submit_to(device, request) {
            Submitted::Done(completion) => self.complete(completion),
            Submitted::Pending => {}
        }
    }

    /// Takes a finished request from the device and answers where its job is done.
    pub(super) fn complete(&mut self, completion: Completion) {
        let Completion { request, result } = completion;
        let index = usize::try_from(request.token).unwrap_or(usize::MAX);
        let Some(job) = self.jobs.get_mut(index) else {
            debug_assert!(false, "completion for a job that is gone");
            return;
        };
        job.in_flight -= 1;
        match (request.op, result) {
            (_, Ok(())) => job.outcome.add(Ok(())),
            // Advice: a file system that cannot punch holes keeps the data.
            (Op::Discard, Err(Fault::NotSupported | Fault::Partly)) => {
                job.begun = job.asked.length;
            }
            (Op::Zero | Op::ZeroUnmap | Op::Cache, Err(fault @ (Fault::NotSupported | Fault::Partly))) => {
                // One step is in flight at a time, so this one is the last that has begun.
                job.begun -= request.len;
                if job.transfer_instead(fault) {
                    return self.wait_for_turn(index);
                }
            }
            (_, Err(fault)) => job.fail(fault),
        }
        match (request.op, request.data, result) {
            (Op::Read, Some(data), Ok(())) if job.asked.op == Op::Read => {
                let last = job.is_done() && !job.outcome.has_failed();
                let at = request.offset - job.asked.offset;
                self.wire.give(job.asked.tag, at, data, last);
            }
            (Op::Append | Op::AppendFua, _, Ok(())) => {
                self.wire.placed(job.asked.tag, request.offset);
            }
            _ => {}
        }
        self.advance(index);
    }

    /// Goes on to what comes last in a job or to its end, once everything before is done.
    fn advance(&mut self, index: usize) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        if !job.is_done() {
            return;
        }
        if let Some(op) = job.last() {
            job.is_last_begun = true;
            let offset = if op == Op::Flush { 0 } else { job.asked.offset };
            return self.submit(index, Request::new(op, offset, 0, index as u64));
        }
        if let Some(job) = self.jobs.remove(index) {
            self.room.jobs_left += 1;
            if job.is_pending {
                // A failed job may have had chunks to begin. Its place goes to the next request,
                // which must not be taken for it.
                self.pending.retain(|&pending| pending != index);
            }
            self.end(&job);
        }
    }

    fn end(&mut self, job: &LaneJob<W::Tag>) {
        let result = job.outcome.result();
        let WireRequest { op, length, .. } = job.asked;
        self.tally.add(op, length, result.is_err());
        let meter = self.meters.get(self.wire.device(job.asked.tag));
        if let (Some(meter), Some(started)) = (meter, job.started) {
            meter.record(Some(job.counted()), length, started.elapsed(), result.is_err());
        }
        self.wire.end(job.asked.tag, result);
    }
}
