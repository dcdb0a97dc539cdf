//! Replies out: data as it comes, and the end of each job.

use std::time::Instant;

use cryptline_sys::Buffer;

use super::super::job::{CHUNK, Job, Work};
use super::super::stats::OperationKind;
use super::super::status;
use super::Session;
use cryptline_nbd::{NbdError, RequestHeader, reply};

impl Session {
    /// Data that was read: sent, gathered, or only wanted in a cache below.
    pub(super) fn read_chunk(&mut self, index: usize, offset: u64, buffer: Buffer) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        let len = buffer.len();
        let batch = &mut self.transport.filling;
        match job.work {
            Work::ReadChunks => {
                let last = if job.is_done() && job.error.is_none() {
                    reply::Last::Yes
                } else {
                    reply::Last::No
                };
                let wire_len = u32::try_from(len).unwrap_or(CHUNK);
                if is_zero(&buffer) {
                    batch.push_header(&reply::offset_hole(job.cookie, offset, wire_len, last));
                } else {
                    batch.push_header(&reply::offset_data(job.cookie, offset, wire_len, last));
                    batch.push_payload(buffer, 0, len);
                }
                job.answered = last == reply::Last::Yes;
            }
            Work::ReadWhole if job.length <= CHUNK => {
                batch.push_header(&reply::simple(job.cookie, Ok(())));
                batch.push_payload(buffer, 0, len);
                job.answered = true;
            }
            Work::ReadWhole => {
                let chunk = (offset - job.offset) / u64::from(CHUNK);
                let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
                if let Some(place) = self.gathering.parts.get_mut(chunk) {
                    *place = Some(buffer);
                }
            }
            _ => {}
        }
    }

    /// Answers a job that is over.
    pub(super) fn finish(&mut self, index: usize, job: &Job) {
        if self.gathering.job == Some(index) {
            self.send_gathered(job);
        } else if !job.answered {
            match job.error {
                Some(error) if job.work == Work::ReadChunks => self.refuse(job.cookie, error),
                error => {
                    let outcome = error.map_or(Ok(()), Err);
                    self.transport
                        .filling
                        .push_header(&reply::simple(job.cookie, outcome));
                }
            }
        }
        if let (Some(meter), Some(started)) = (&self.meter, job.started) {
            let failed = job.error.is_some();
            meter.record(job.kind(), u64::from(job.length), started.elapsed(), failed);
        }
    }

    fn send_gathered(&mut self, job: &Job) {
        let batch = &mut self.transport.filling;
        batch.push_header(&reply::simple(job.cookie, job.error.map_or(Ok(()), Err)));
        for part in self.gathering.parts.iter_mut().filter_map(Option::take) {
            if job.error.is_none() {
                let len = part.len();
                batch.push_payload(part, 0, len);
            }
        }
        self.gathering.job = None;
        self.reserving = false;
    }

    /// Answers a request that is not served.
    pub(super) fn refuse(&mut self, cookie: u64, error: NbdError) {
        let structured = self.limits.structured_replies;
        let failure = reply::failure(structured, cookie, error, "");
        self.transport.filling.push_header(failure.as_bytes());
    }

    pub(super) fn block_status(&mut self, header: &RequestHeader, req_one: bool) {
        let started = self.meter.is_some().then(Instant::now);
        let status = status::block_status(&self.gate, header, req_one, &self.small, self.context);
        let failed = status.is_none();
        match status {
            Some((buffer, len)) => {
                let batch = &mut self.transport.filling;
                batch.push_payload(buffer, 0, len);
            }
            None => self.refuse(header.cookie, NbdError::Io),
        }
        if let (Some(meter), Some(started)) = (&self.meter, started) {
            meter.record(OperationKind::Other, 0, started.elapsed(), failed);
        }
    }
}

/// Whether all bytes are zero. Data that is not is told from its first words.
fn is_zero(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks(64);
    blocks.all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
}
