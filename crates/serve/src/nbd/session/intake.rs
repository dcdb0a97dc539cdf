//! Requests in: from received bytes to jobs, and payloads into their buffers.

use std::time::Instant;

use cryptline_engine::Operation;
use cryptline_sys::Buffer;

use super::super::job::{CHUNK, Job, Work};
use super::{Expect, REPLY_HEADER_RESERVE, REPLY_PARTS_RESERVE, Session, take_buffer};
use cryptline_nbd::{Command, NbdError, Rejection, RequestHeader, parse_request, validate, wire};

/// The rest of a payload is received straight into its buffer when it is at least this long;
/// below that, receiving ahead saves more system calls than the copy costs.
const DIRECT_MIN: usize = 16 * 1024;

impl Session {
    pub(super) fn take_requests(&mut self) {
        if self.orders.is_stopping() && matches!(self.expect, Expect::Header) {
            // What has arrived is the last that is taken.
            self.transport.ended = true;
        }
        while !self.closing && !self.orders.is_abandoned() && self.take_one() {}
        let ended = self.transport.ended && !self.is_short_of_room();
        if !self.closing && (ended || self.transport.broken) {
            self.close();
        }
    }

    /// Whether requests that have arrived wait for something in flight to end.
    fn is_short_of_room(&self) -> bool {
        match &self.expect {
            Expect::Header => {
                !self.has_room() && self.transport.unread().len() >= wire::REQUEST_LEN
            }
            Expect::Payload { buffer, .. } => {
                buffer.is_none() && !self.transport.unread().is_empty()
            }
            Expect::Drain { .. } => false,
        }
    }

    /// Whether a request or a part of a payload that has arrived can be taken now. A medium that
    /// answers at once makes room before anything is waited for, and no later event tells of it.
    pub(super) fn can_take_more(&self) -> bool {
        if self.closing {
            return false;
        }
        let unread = self.transport.unread().len();
        match &self.expect {
            Expect::Header => unread >= wire::REQUEST_LEN && self.has_room(),
            Expect::Payload { buffer: None, .. } => {
                unread > 0 && !self.transport.is_receiving() && self.large.available() > 0
            }
            _ => false,
        }
    }

    /// Takes one step with what has arrived; `false` when it takes more bytes or more room.
    fn take_one(&mut self) -> bool {
        match &mut self.expect {
            Expect::Header => self.take_header(),
            Expect::Payload { .. } => self.take_payload(),
            Expect::Drain {
                left,
                cookie,
                error,
            } => {
                let taken = self.transport.unread().len().min(*left);
                *left -= taken;
                let (finished, cookie, error) = (*left == 0, *cookie, *error);
                self.transport.consume(taken);
                if finished {
                    self.expect = Expect::Header;
                    self.refuse(cookie, error);
                }
                finished || (taken > 0 && !self.transport.unread().is_empty())
            }
        }
    }

    fn take_header(&mut self) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(bytes) = self
            .transport
            .unread()
            .first_chunk::<{ wire::REQUEST_LEN }>()
        else {
            return self.transport.refill();
        };
        let Ok(header) = parse_request(bytes) else {
            // Out of step: whatever follows would be taken for something else.
            self.close();
            return false;
        };
        self.transport.consume(wire::REQUEST_LEN);
        match validate(&header, &self.limits) {
            Ok(command) => self.begin(&header, command),
            Err(Rejection::Reply(error)) => self.refuse(header.cookie, error),
            Err(Rejection::ReplyAfterDraining { error, length }) => {
                self.expect = Expect::Drain {
                    left: length as usize,
                    cookie: header.cookie,
                    error,
                };
            }
            Err(Rejection::DropConnection) => self.close(),
        }
        true
    }

    fn has_room(&self) -> bool {
        let batch = &self.transport.filling;
        !self.jobs.is_full()
            && !self.reserving
            && batch.has_room(REPLY_HEADER_RESERVE, REPLY_PARTS_RESERVE)
    }

    fn begin(&mut self, header: &RequestHeader, command: Command) {
        let work = match command {
            Command::Disconnect => return self.close(),
            Command::BlockStatus { req_one } => return self.block_status(header, req_one),
            // One chunk is at least the 64 KiB that the protocol demands here.
            Command::Read { df: true } if header.length > CHUNK => {
                return self.refuse(header.cookie, NbdError::Overflow);
            }
            Command::Read { .. } if self.limits.structured_replies => Work::ReadChunks,
            Command::Read { .. } => Work::ReadWhole,
            Command::Cache => Work::Cache,
            Command::Write { fua } => Work::Write { durable: fua },
            Command::Flush => Work::Flush,
            Command::Trim { fua } => Work::Trim { durable: fua },
            Command::WriteZeroes { fua, .. } if !self.limits.zeroes_are_fast => {
                Work::WriteZeros { durable: fua }
            }
            Command::WriteZeroes {
                fua,
                no_hole,
                fast_zero,
            } => Work::Zero {
                durable: fua,
                fast: fast_zero,
                may_unmap: !no_hole,
            },
        };
        let job = Job::new(header, work, self.meter.is_some().then(Instant::now));
        let Ok(index) = self.jobs.insert(job) else {
            unreachable!("has_room found a free job")
        };
        match work {
            Work::Flush => self.submit(index, Operation::Flush, 0),
            Work::Write { .. } => {
                self.expect = Expect::Payload {
                    job: index,
                    buffer: None,
                    filled: 0,
                };
            }
            _ => self.wait_for_turn(index),
        }
    }

    fn take_payload(&mut self) -> bool {
        let Expect::Payload {
            job: index,
            buffer,
            filled,
        } = &mut self.expect
        else {
            return false;
        };
        let Some(job) = self.jobs.get_mut(*index) else {
            unreachable!("a job stays until its payload has come")
        };
        if self.transport.is_receiving() {
            return false;
        }
        if buffer.is_none() {
            let left = (job.length - job.begun).min(CHUNK) as usize;
            *buffer = take_buffer(&self.small, &self.large, left);
            *filled = 0;
        }
        let Some(target) = buffer else { return false };
        let unread = self.transport.unread();
        let taken = unread.len().min(target.len() - *filled);
        target[*filled..*filled + taken].copy_from_slice(&unread[..taken]);
        *filled += taken;
        let complete = *filled == target.len();
        self.transport.consume(taken);
        if !complete {
            return taken > 0 && !self.transport.unread().is_empty() || self.transport.refill();
        }
        let (index, chunk) = (*index, buffer.take());
        if let Some(data) = chunk {
            self.write_chunk(index, data);
        }
        true
    }

    /// Submits a received chunk; the next bytes are its successor or the next request.
    fn write_chunk(&mut self, index: usize, data: Buffer) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        let offset = job.offset + u64::from(job.begun);
        job.begun += u32::try_from(data.len()).unwrap_or(CHUNK);
        if job.begun == job.length {
            self.expect = Expect::Header;
        }
        let durable = matches!(job.work, Work::Write { durable: true });
        self.submit(index, Operation::Write { data, durable }, offset);
    }

    pub(super) fn receive(&mut self) {
        if self.closing || self.transport.is_receiving() {
            return;
        }
        let has_room = self.has_room();
        match &mut self.expect {
            Expect::Header if !has_room => {}
            // No buffer for the payload: some are freed by what is in flight.
            Expect::Payload { buffer: None, .. } => {}
            Expect::Payload { buffer, filled, .. } if self.transport.can_receive_direct() => {
                let (filled, target) = (*filled, buffer.take());
                match target {
                    Some(target) if target.len() - filled >= DIRECT_MIN => {
                        self.transport
                            .receive_direct(&mut self.ring, target, filled);
                    }
                    target => {
                        *buffer = target;
                        self.transport.receive(&mut self.ring);
                    }
                }
            }
            _ => self.transport.receive(&mut self.ring),
        }
    }

    /// Takes no more requests. A write whose payload will not come is over.
    pub(super) fn close(&mut self) {
        self.closing = true;
        if let Expect::Payload { job, .. } = std::mem::replace(&mut self.expect, Expect::Header) {
            let over = self.jobs.get_mut(job).is_none_or(|job| {
                job.length = job.begun;
                job.fail(NbdError::Io);
                job.in_flight == 0
            });
            if over {
                self.jobs.remove(job);
            }
        }
        self.transport.ended = true;
    }
}
