//! One connection's transmission phase: one thread, one ring, no locks.
//!
//! ```text
//! loop {
//!     take_requests   parse what has arrived, make jobs          (stops when out of room)
//!     pump            begin chunks of jobs while buffers last
//!     transport.send  all replies so far, one system call
//!     receive         more requests, or a payload into its buffer
//!     ring.wait       submits everything above and waits; the only system call of a busy loop
//!     reap            socket first, then the device: completions become replies
//! }
//! ```
//!
//! The way of a 4 KiB read: [`Session::take_requests`] → [`Session::pump`] → gate, crypt, file →
//! [`Session::complete`] → [`Transport::send`]. All memory is allocated when the session starts.
//!
//! Bounds: [`JOBS_MAX`] requests and the two arenas bound a connection's memory. A request is
//! taken from the socket only while there is a free job and room in the reply batch for whatever
//! all jobs can add, so nothing here ever has to wait for room in the middle of a request; a client
//! that does not read its replies is simply not read from.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::slab::Slab;
use cryptline_engine::{
    BackendChoice, Completion, Fault, Gate, GatedQueue, OpenError, Operation, Request, Submitted,
};
use cryptline_sys::{Arena, Buffer, Ring};
use rustls::ServerConnection;

use super::codec::{
    Command, ExportLimits, NbdError, Negotiated, Rejection, RequestHeader, parse_request, reply,
    validate, wire,
};
use super::export::Export;
use super::job::{CHUNK, CHUNKS_IN_FLIGHT, Job, Work};
use super::stats::{Meter, OperationKind};
use super::transport::Transport;

/// Requests of one connection served at a time.
pub const JOBS_MAX: usize = 64;
/// Bytes of a small buffer, of which there is one for each job.
const SMALL: usize = 16 * 1024;
/// Chunk buffers: enough for one largest read (32 MiB) to be gathered whole.
const LARGE_COUNT: usize = 128;
/// Every buffer may be in flight below, plus a flush or discard for each job, plus the socket.
const RING_DEPTH: u32 = 512;
/// Room in the reply batch kept for the jobs already accepted: 64 largest reads, all holes.
const REPLY_HEADER_RESERVE: usize = 300 * 1024;
const REPLY_PARTS_RESERVE: usize = 480;
/// The rest of a payload is received straight into its buffer when it is at least this long;
/// below that, receiving ahead saves more system calls than the copy costs.
const DIRECT_MIN: usize = 16 * 1024;
/// How often the processor time is looked up for the statistics.
const TIMES_INTERVAL: Duration = Duration::from_millis(50);

/// What a session needs to begin.
pub(super) struct Start<'a> {
    pub socket: Arc<OwnedFd>,
    pub tls: Option<ServerConnection>,
    /// Bytes that arrived behind the handshake.
    pub leftover: &'a [u8],
    pub export: &'a Export,
    pub negotiated: Negotiated,
    pub limits: ExportLimits,
    pub backend: BackendChoice,
}

/// What the next bytes from the client are.
enum Expect {
    Header,
    /// The payload of a write; `buffer` is away while it is received into.
    Payload {
        job: usize,
        buffer: Option<Buffer>,
        filled: usize,
    },
    /// The payload of a write that was refused.
    Drain {
        left: usize,
        cookie: u64,
        error: NbdError,
    },
}

/// A large read gathered for a client without structured replies.
struct Gathering {
    job: Option<usize>,
    parts: Vec<Option<Buffer>>,
}

pub(super) struct Session {
    ring: Ring,
    queue: GatedQueue,
    gate: Gate,
    transport: Transport,
    limits: ExportLimits,
    context: u32,
    jobs: Slab<Job>,
    /// Jobs with chunks still to begin, oldest first.
    pending: VecDeque<usize>,
    expect: Expect,
    gathering: Gathering,
    /// A large read waits until it can have all its buffers; nobody may take any before it.
    reserving: bool,
    small: Arc<Arena>,
    large: Arc<Arena>,
    done: Vec<Completion>,
    /// No more requests are taken: the client said goodbye, is gone, or made no sense.
    closing: bool,
    meter: Option<Arc<Meter>>,
    times_at: Instant,
}

impl Session {
    pub fn new(start: Start<'_>) -> Result<Self, OpenError> {
        let ring_error = OpenError::Ring;
        let mut ring = Ring::new(start.backend, RING_DEPTH).map_err(ring_error)?;
        let small = Arena::new(SMALL, JOBS_MAX).map_err(ring_error)?;
        let large = Arena::new(CHUNK as usize, LARGE_COUNT).map_err(ring_error)?;
        ring.register(&small);
        let mut queue = start.export.gate.open_queue(&mut ring)?;
        let meter = start.export.stats.connect();
        queue.measure(meter.is_some());
        let transport = Transport::new(&mut ring, start.socket, start.tls, start.leftover)
            .map_err(ring_error)?;
        Ok(Self {
            ring,
            queue,
            gate: start.export.gate.clone(),
            transport,
            limits: start.limits,
            context: start.negotiated.base_allocation.unwrap_or(0),
            jobs: Slab::new(JOBS_MAX),
            pending: VecDeque::with_capacity(JOBS_MAX + 1),
            expect: Expect::Header,
            gathering: Gathering {
                job: None,
                parts: (0..LARGE_COUNT).map(|_| None).collect(),
            },
            reserving: false,
            small,
            large,
            done: Vec::with_capacity(RING_DEPTH as usize),
            closing: false,
            meter,
            times_at: Instant::now(),
        })
    }

    /// Serves the client until it leaves; every request taken is finished first.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            self.take_requests();
            self.pump();
            self.transport.send(&mut self.ring);
            self.receive();
            if self.is_finished() {
                return Ok(());
            }
            self.ring.wait()?;
            self.reap();
            self.publish_times();
        }
    }

    /// The meter this session writes.
    pub fn meter(&self) -> Option<&Arc<Meter>> {
        self.meter.as_ref()
    }

    fn is_finished(&self) -> bool {
        self.closing && self.jobs.is_empty() && !self.transport.has_unsent()
    }

    fn reap(&mut self) {
        let arrived = self.transport.reap(&mut self.ring);
        if let (Some((returned, len)), Expect::Payload { buffer, filled, .. }) =
            (arrived.direct, &mut self.expect)
        {
            *buffer = Some(returned);
            *filled += len;
        }
        let mut done = std::mem::take(&mut self.done);
        self.queue.poll(&mut self.ring, &mut done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
    }

    // ---- requests in -------------------------------------------------------------------------

    fn take_requests(&mut self) {
        while !self.closing && self.take_one() {}
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
        let structured = self.limits.structured_replies;
        let (work, kind) = match command {
            Command::Disconnect => return self.close(),
            Command::BlockStatus { req_one } => return self.block_status(header, req_one),
            // One chunk is at least the 64 KiB that the protocol demands here.
            Command::Read { df: true } if header.length > CHUNK => {
                return self.refuse(header.cookie, NbdError::Overflow);
            }
            Command::Read { .. } if structured => (Work::ReadChunks, OperationKind::Read),
            Command::Read { .. } => (Work::ReadWhole, OperationKind::Read),
            Command::Cache => (Work::Cache, OperationKind::Read),
            Command::Write { fua } => (Work::Write { durable: fua }, OperationKind::Write),
            Command::WriteZeroes { fua, fast_zero, .. } if self.limits.zeroes_are_fast => {
                let work = Work::Zero {
                    durable: fua,
                    fast: fast_zero,
                };
                (work, OperationKind::Write)
            }
            Command::WriteZeroes { fua, .. } => {
                (Work::WriteZeros { durable: fua }, OperationKind::Write)
            }
            Command::Flush => (Work::Single { durable: false }, OperationKind::Flush),
            Command::Trim { fua } => (Work::Single { durable: fua }, OperationKind::Other),
        };
        let job = Job {
            cookie: header.cookie,
            work,
            kind,
            offset: header.offset,
            length: header.length,
            begun: 0,
            in_flight: 0,
            error: None,
            flushed: false,
            answered: false,
            started: self.meter.is_some().then(Instant::now),
        };
        let Ok(index) = self.jobs.insert(job) else {
            unreachable!("has_room found a free job")
        };
        match command {
            Command::Flush => self.submit(index, Operation::Flush, 0),
            Command::Trim { .. } => {
                let len = u64::from(header.length);
                self.submit(index, Operation::Discard { len }, header.offset);
            }
            Command::WriteZeroes { no_hole, .. } if self.limits.zeroes_are_fast => {
                let len = u64::from(header.length);
                let operation = Operation::WriteZeroes {
                    len,
                    may_unmap: !no_hole,
                };
                self.submit(index, operation, header.offset);
            }
            Command::Write { .. } => {
                self.expect = Expect::Payload {
                    job: index,
                    buffer: None,
                    filled: 0,
                };
            }
            _ => self.pending.push_back(index),
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

    fn receive(&mut self) {
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
    fn close(&mut self) {
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

    // ---- work --------------------------------------------------------------------------------

    /// Begins chunks, oldest job first, a few of each at a time, while there are buffers.
    fn pump(&mut self) {
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

    fn submit(&mut self, index: usize, operation: Operation, offset: u64) {
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
    fn complete(&mut self, completion: Completion) {
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

    // ---- replies out -------------------------------------------------------------------------

    /// Data that was read: sent, gathered, or only wanted in a cache below.
    fn read_chunk(&mut self, index: usize, offset: u64, buffer: Buffer) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        let len = buffer.len();
        let batch = &mut self.transport.filling;
        match job.work {
            Work::ReadChunks => {
                let last = match job.is_done() && job.error.is_none() {
                    true => reply::Last::Yes,
                    false => reply::Last::No,
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
    fn finish(&mut self, index: usize, job: &Job) {
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
            meter.record(job.kind, u64::from(job.length), started.elapsed(), failed);
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
    fn refuse(&mut self, cookie: u64, error: NbdError) {
        let structured = self.limits.structured_replies;
        let failure = reply::failure(structured, cookie, error, "");
        self.transport.filling.push_header(failure.as_bytes());
    }

    fn block_status(&mut self, header: &RequestHeader, req_one: bool) {
        let started = self.meter.is_some().then(Instant::now);
        let status =
            super::status::block_status(&self.gate, header, req_one, &self.small, self.context);
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

    fn publish_times(&mut self) {
        let Some(meter) = &self.meter else { return };
        if self.times_at.elapsed() >= TIMES_INTERVAL {
            self.times_at = Instant::now();
            let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let busy = Duration::try_from(cpu).unwrap_or_default();
            meter.set_times(self.queue.crypto_time_ns(), busy);
        }
    }
}

/// A buffer of `len` bytes: a small one where that is enough and there is one.
fn take_buffer(small: &Arc<Arena>, large: &Arc<Arena>, len: usize) -> Option<Buffer> {
    let from_small = if len <= SMALL { small.take() } else { None };
    let mut buffer = from_small.or_else(|| large.take())?;
    buffer.set_len(len);
    Some(buffer)
}

/// Whether all bytes are zero. Data that is not is told from its first words.
fn is_zero(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks(64);
    blocks.all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
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
