//! The work: chunks of jobs, begun while there are buffers, and what becomes of them.

use cryptline_engine::{Completion, Fault, Operation, Request, Submitted};

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

    /// Begins chunks of one job; `false` when buffers ran out.
    fn pump_job(&mut self, index: usize) -> bool {
        if self.must_gather(index) && !self.reserve_gathering(index) {
            return false;
        }
        loop {
            let Some(job) = self.jobs.get_mut(index) else {
                return true;
            };
            let Some((offset, len)) = job.next_chunk() else {
                return true;
            };
            let gathered = self.gathering.job == Some(index);
            if job.in_flight >= CHUNKS_IN_FLIGHT && !gathered {
                self.pending.push_back(index);
                return true;
            }
            let Some(mut buffer) = take_buffer(&self.small, &self.large, len as usize) else {
                return false;
            };
            job.begun += len;
            let operation = match job.work {
                Work::WriteZeros { durable } => {
                    buffer.fill(0);
                    Operation::Write {
                        data: buffer,
                        durable,
                    }
                }
                _ => Operation::Read(buffer),
            };
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
            self.finish(index, &job);
        }
    }
}

fn error_of(fault: Fault) -> NbdError {
    match fault {
        Fault::OutOfRange | Fault::Misaligned | Fault::NotSupported => NbdError::Inval,
        Fault::ReadOnly => NbdError::Perm,
        Fault::NoSpace => NbdError::NoSpc,
        Fault::Truncated | Fault::Latched => NbdError::Io,
        Fault::Io(errno) => NbdError::from_errno(errno),
    }
}
