//! The work: chunks of jobs, begun while there are buffers, and what becomes of them.

use cryptline_engine::{Buffer, Completion, Fault, Operation, Request, Submitted};

use super::super::codec::NbdError;
use super::super::job::{CHUNK, CHUNKS_IN_FLIGHT, Work};
use super::{Session, take_buffer};

impl Session {
    /// Begins chunks, oldest job first, a few of each at a time, while there are buffers.
    pub(super) fn pump(&mut self) {
        if self.transport.broken {
            return self.abandon();
        }
        for _ in 0..self.pending.len() {
            let Some(index) = self.pending.pop_front() else {
                return;
            };
            if !self.pump_job(index) {
                self.pending.push_front(index);
                return;
            }
        }
    }

    /// Begins nothing more: nobody is there to be answered.
    fn abandon(&mut self) {
        self.reserving = false;
        while let Some(index) = self.pending.pop_front() {
            if let Some(job) = self.jobs.get_mut(index) {
                job.fail(NbdError::Shutdown);
                self.advance(index);
            }
        }
    }

    /// Whether a job could begin a chunk right now, without waiting for anything to end. So it is
    /// on a medium that answers at once, where a long job's turn ends before it does.
    pub(super) fn can_begin_more(&self) -> bool {
        let mut waiting = self
            .pending
            .iter()
            .filter_map(|&index| self.jobs.get(index));
        let ready = waiting.any(|job| job.in_flight < CHUNKS_IN_FLIGHT);
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
            let Some(job) = self.jobs.get_mut(index) else {
                return true;
            };
            let (work, chunk) = (job.work, job.next_chunk());
            let Some((offset, len)) = chunk else {
                return true;
            };
            if !gathered && (turn == CHUNKS_IN_FLIGHT || job.in_flight >= CHUNKS_IN_FLIGHT) {
                self.pending.push_back(index);
                return true;
            }
            let Some(buffer) = take_buffer(&self.small, &self.large, len as usize) else {
                return false;
            };
            let Some(operation) = chunk_operation(work, buffer) else {
                debug_assert!(false, "only jobs served in chunks are pending");
                return true;
            };
            job.begun += len;
            turn += 1;
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
            Err(Fault::NotSupported) if matches!(request.operation, Operation::Discard { .. }) => {}
            Err(Fault::NotSupported) if matches!(job.work, Work::Zero { .. }) => {
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
                job.work = Work::WriteZeros { durable };
                self.pending.push_back(index);
                return;
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
            if job.error.is_some() {
                // A failed job may have had chunks to begin. Its place goes to the next request,
                // which must not be taken for it.
                self.pending.retain(|&pending| pending != index);
            }
            self.finish(index, &job);
        }
    }
}

/// What serving one chunk of a job is; `None` for work that is not done in chunks of our making.
fn chunk_operation(work: Work, mut buffer: Buffer) -> Option<Operation> {
    match work {
        Work::ReadChunks | Work::ReadWhole | Work::Cache => Some(Operation::Read(buffer)),
        Work::WriteZeros { durable } => {
            buffer.fill(0);
            Some(Operation::Write {
                data: buffer,
                durable,
            })
        }
        Work::Write { .. } | Work::Zero { .. } | Work::Trim { .. } | Work::Flush => None,
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
