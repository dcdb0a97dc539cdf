//! The work: chunks of jobs, begun while there are buffers, and what becomes of them.

use cryptline_engine::{Buffer, Completion, Fault, Operation, Request, Submitted};

use super::super::job::{CHUNK, Work};
use super::{Session, take_buffer};
use cryptline_nbd::NbdError;

/// Chunks begun between two looks for the client: 2 MiB of them.
const CHUNKS_UNWATCHED: u32 = 8;

impl Session {
    /// Begins chunks, oldest job first, a few of each at a time, while there are buffers and anybody
    /// wants the rest.
    pub(super) fn pump(&mut self) {
        for _ in 0..self.pending.len() {
            if self.is_unwanted() {
                break;
            }
            let Some(index) = self.next_turn() else {
                return;
            };
            if !self.pump_job(index) {
                self.wait_for_turn_first(index);
                break;
            }
        }
        if self.transport.broken {
            self.abandon();
        }
    }

    /// Puts a job last among those that have chunks to begin.
    pub(super) fn wait_for_turn(&mut self, index: usize) {
        if self.is_to_wait(index) {
            self.pending.push_back(index);
        }
    }

    fn wait_for_turn_first(&mut self, index: usize) {
        if self.is_to_wait(index) {
            self.pending.push_front(index);
        }
    }

    /// Whether there is such a job and it does not wait already.
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
    fn abandon(&mut self) {
        self.reserving = false;
        while let Some(index) = self.next_turn() {
            if let Some(job) = self.jobs.get_mut(index) {
                job.fail(NbdError::Shutdown);
                self.advance(index);
            }
        }
    }

    /// Whether nobody waits for the rest of what was asked: the server has given it up, or the
    /// client is gone. A client is asked for every few chunks, and costs a system call then.
    fn is_unwanted(&mut self) -> bool {
        if self.begun_unwatched >= CHUNKS_UNWATCHED {
            self.begun_unwatched = 0;
            self.transport.look_for_peer();
        }
        self.transport.broken || self.orders.is_abandoned()
    }

    /// Whether a job could begin a chunk right now, without waiting for anything to end. So it is
    /// on a medium that answers at once, where a long job's turn ends before it does.
    pub(super) fn can_begin_more(&self) -> bool {
        let mut waiting = self
            .pending
            .iter()
            .filter_map(|&index| self.jobs.get(index));
        let ready = waiting.any(|job| job.in_flight < job.depth());
        ready && !self.reserving && self.large.available() > 0
    }

    /// Gives one job its turn: a few chunks, or all where it must be gathered. `false` when
    /// buffers ran out.
    fn pump_job(&mut self, index: usize) -> bool {
        if self.must_gather(index) && !self.reserve_gathering(index) {
            return false;
        }
        let gathered = self.gathering.job == Some(index);
        let mut turn = 0;
        loop {
            let Some(job) = self.jobs.get(index) else {
                return true;
            };
            let (work, depth, in_flight) = (job.work, job.depth(), job.in_flight);
            let Some((offset, len)) = job.next_chunk() else {
                return true;
            };
            let is_over = !gathered && (turn >= depth || in_flight >= depth);
            if is_over || self.is_unwanted() {
                self.wait_for_turn(index);
                return true;
            }
            let operation = match (work, len) {
                (Work::Trim { .. }, len) => Operation::Discard { len: len.into() },
                (Work::Zero { may_unmap, .. }, len) => Operation::WriteZeroes {
                    len: len.into(),
                    may_unmap,
                },
                _ => {
                    let buffer = take_buffer(&self.small, &self.large, len as usize);
                    let Some(buffer) = buffer else { return false };
                    transfer(work, buffer)
                }
            };
            if let Some(job) = self.jobs.get_mut(index) {
                job.begun += len;
            }
            turn += 1;
            self.begun_unwatched += 1;
            self.submit(index, operation, offset);
        }
    }

    fn must_gather(&mut self, index: usize) -> bool {
        let job = self.jobs.get_mut(index);
        job.is_some_and(|job| job.work == Work::ReadWhole && job.length > CHUNK && job.begun == 0)
    }

    /// Claims all buffers of a read that must be gathered, or says that it has to wait.
    fn reserve_gathering(&mut self, index: usize) -> bool {
        let chunks = self
            .jobs
            .get_mut(index)
            .map_or(0, |job| job.length.div_ceil(CHUNK));
        self.reserving = self.gathering.job.is_some() || self.large.available() < chunks as usize;
        if !self.reserving {
            self.gathering.job = Some(index);
        }
        !self.reserving
    }

    pub(super) fn submit(&mut self, index: usize, operation: Operation, offset: u64) {
        if let Some(job) = self.jobs.get_mut(index) {
            job.in_flight += 1;
        }
        let token = index as u64;
        let request = Request {
            operation,
            offset,
            token,
        };
        match self.queue.submit(&mut self.ring, request) {
            Submitted::Done(completion) => self.complete(completion),
            Submitted::Pending => {}
        }
    }

    /// Takes a finished request from the device and answers the client where its job is done.
    pub(super) fn complete(&mut self, completion: Completion) {
        let Completion { request, result } = completion;
        let index = usize::try_from(request.token).unwrap_or(usize::MAX);
        let Some(job) = self.jobs.get_mut(index) else {
            debug_assert!(false, "completion for a job that is gone");
            return;
        };
        job.in_flight -= 1;
        match result {
            Ok(()) => {}
            // Trim is advice: a file system that can not punch holes keeps the data.
            Err(Fault::NotSupported) if matches!(request.operation, Operation::Discard { .. }) => {
                job.begun = job.length;
            }
            // The flush behind it can be refused as well: that is a failure like any other.
            Err(Fault::NotSupported)
                if matches!(request.operation, Operation::WriteZeroes { .. }) =>
            {
                // One step is in flight at a time, so this one is the last that was begun.
                job.begun -= u32::try_from(request.len()).unwrap_or(job.begun);
                return self.zero_by_writing(index);
            }
            Err(fault) => job.fail(error_of(fault)),
        }
        if let (Operation::Read(buffer), Ok(())) = (request.operation, result) {
            self.read_chunk(index, request.offset, buffer);
        }
        self.advance(index);
    }

    /// The device can not zero after all: write zeros, unless the client wants it fast or not at all.
    fn zero_by_writing(&mut self, index: usize) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        match job.work {
            Work::Zero { fast: true, .. } => job.fail(NbdError::NotSup),
            Work::Zero { durable, .. } => {
                // What the device has zeroed so far is not durable, and durable writes of the rest do not
                // make it so.
                job.flush_owed = durable && job.begun > 0;
                let durable = durable && !job.flush_owed;
                job.work = Work::WriteZeros { durable };
                return self.wait_for_turn(index);
            }
            _ => {}
        }
        self.advance(index);
    }

    /// Goes on to a job's flush or its reply, once everything before is done.
    fn advance(&mut self, index: usize) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        if !job.is_done() {
            return;
        }
        if job.owes_flush() {
            job.flushed = true;
            return self.submit(index, Operation::Flush, 0);
        }
        if let Some(job) = self.jobs.remove(index) {
            if job.is_pending {
                // A failed job may have had chunks to begin. Its place goes to the next request,
                // which must not be taken for it.
                self.pending.retain(|&pending| pending != index);
            }
            self.finish(index, &job);
        }
    }
}

/// What serving one chunk of a job is, where bytes are moved.
fn transfer(work: Work, mut buffer: Buffer) -> Operation {
    match work {
        Work::WriteZeros { durable } => {
            buffer.fill(0);
            Operation::Write {
                data: buffer,
                durable,
            }
        }
        _ => {
            debug_assert!(
                matches!(work, Work::ReadChunks | Work::ReadWhole | Work::Cache),
                "only jobs served in chunks are pending"
            );
            Operation::Read(buffer)
        }
    }
}

fn error_of(fault: Fault) -> NbdError {
    match fault {
        Fault::OutOfRange | Fault::Misaligned | Fault::NotSupported | Fault::CrossesZone => {
            NbdError::Inval
        }
        Fault::ReadOnly => NbdError::Perm,
        Fault::NoSpace => NbdError::NoSpc,
        Fault::Busy => NbdError::NoMem,
        // The zones' own never come here: NBD has no zones, so no zoned volume is exported.
        Fault::Truncated
        | Fault::Latched
        | Fault::WritePointer
        | Fault::ZoneCondition
        | Fault::ZoneBusy
        | Fault::ZoneFrozen
        | Fault::TooManyOpen
        | Fault::TooManyActive => NbdError::Io,
        Fault::Io(errno) => NbdError::from_errno(errno),
    }
}
