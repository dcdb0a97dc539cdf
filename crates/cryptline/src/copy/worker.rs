//! One thread of a copy: its own ring, its own queues into both sides, several chunks in flight.
//!
//! ```text
//! feed ─► read ─► [hash] ─► [sum] ─► runs ─┬─ data ──► write
//!                                          └─ zeros ─► nothing, write-zeroes or write
//! ```
//!
//! Between the first chunk and the last nothing is allocated, and the workers share only counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cryptline_engine::{Arena, BackendChoice, Buffer, Channel, Completion, Fault, Gate, Op, Request, Submitted};
use cryptline_sys::{is_zero, lock};

use super::CopyTrouble;
use super::feed::{CHUNK, Feed, SourcePiece, is_set};
use super::hashes::Hashes;
use super::marks::{HeldChunks, WorkerMarks};
use super::sums::Sum;
use super::turns::{OrderedChunk, Turns};

/// Chunks that a worker has in hand.
const BUFFERS: usize = 8;
/// Numbers of the destination on a worker's channel: beside a source, and where that is a stream.
const BESIDE_SOURCE: usize = 1;
const ALONE: usize = 0;
/// Zeros are looked for in units of this many bytes.
const GRAIN: usize = 64 * 1024;
/// With more requests than these under way, no chunk is begun: zeros that are made hold no buffer.
const BEGUN: usize = 64;
/// Most that can be under way at most: these, what becomes of all chunks in hand, and a flush.
const DEPTH: u32 = 256;
/// How long a wait may keep from noticing that the copy is over.
const PATIENCE: Duration = Duration::from_millis(200);

const _: () = assert!(BEGUN + BUFFERS * CHUNK / GRAIN < DEPTH as usize);

/// Treatment of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// They are there already.
    Skip,
    /// The destination is told to make them, where it can.
    Make,
    /// They are written like everything else.
    Write,
}

/// State that all workers see.
pub(super) struct CopyShared<'a> {
    pub feed: Feed<'a>,
    pub dest: &'a Gate,
    pub backend: BackendChoice,
    pub zeros: Zeros,
    pub sums: bool,
    /// Hashes of the whole: then there is one worker.
    pub hashes: Option<Mutex<Hashes>>,
    pub marks: WorkerMarks,
    /// A flush each time so many bytes are written, which bounds what the page cache still has to write.
    pub flushed: u64,
    /// The caller wants no more.
    pub stop: &'a AtomicBool,
    /// One of the workers has failed.
    pub failed: AtomicBool,
    /// Somebody should flush, so that it is known how much is durable.
    pub flush: AtomicBool,
    /// Bytes written, or found to be there.
    pub done: AtomicU64,
    /// Those of them that were written.
    pub written: AtomicU64,
    /// Those of them that are durable.
    pub durable: AtomicU64,
    /// Those of them that were not written.
    pub skipped: AtomicU64,
}

impl CopyShared<'_> {
    pub fn is_over(&self) -> bool {
        is_set(self.stop) || is_set(&self.failed)
    }
}

pub(super) struct Worker<'w, 'a> {
    shared: &'w CopyShared<'a>,
    channel: Channel,
    /// The number of the destination on the channel.
    dest: usize,
    arena: Arc<Arena>,
    done: Vec<Completion>,
    sums: Vec<Sum>,
    /// Chunks that are still to be hashed, in their order: those that were taken from the feed since the first of
    /// them. Empty without hashes.
    turns: Turns,
    /// Ranges that the destination cannot zero.
    unzeroed: Vec<(u64, usize)>,
    can_zero: bool,
    held: HeldChunks<'w>,
    /// Everything before this was written when the flush began that is under way.
    flushing: Option<u64>,
}

impl<'w, 'a> Worker<'w, 'a> {
    pub fn new(shared: &'w CopyShared<'a>, chunks: usize) -> Result<Self, CopyTrouble> {
        let dest_gate = std::slice::from_ref(shared.dest);
        let (channel, dest) = match &shared.feed {
            Feed::Device { gate, .. } => {
                let channel = Channel::open_all(gate, dest_gate, shared.backend, DEPTH);
                (channel, BESIDE_SOURCE)
            }
            Feed::Stream(_) => {
                let channel = Channel::open(shared.dest, shared.backend, DEPTH);
                (channel, ALONE)
            }
        };
        let mut channel = channel.map_err(CopyTrouble::Open)?;
        let arena = channel.buffers(CHUNK, BUFFERS).map_err(CopyTrouble::Memory)?;
        Ok(Self {
            shared,
            channel,
            dest,
            arena,
            done: Vec::with_capacity(DEPTH as usize),
            sums: Vec::with_capacity(if shared.sums { chunks } else { 0 }),
            turns: Turns::with_capacity(if shared.hashes.is_some() { BEGUN } else { 0 }),
            unzeroed: Vec::with_capacity(DEPTH as usize),
            can_zero: shared.dest.geometry().write_zeroes,
            held: HeldChunks::new(&shared.marks, DEPTH as usize),
            flushing: None,
        })
    }

    /// Copies until nothing is left, and what was read on the way.
    pub fn run(mut self) -> Result<Vec<Sum>, CopyTrouble> {
        let mut is_fed = true;
        loop {
            while let Some(completion) = self.done.pop() {
                self.end(completion)?;
            }
            if self.shared.is_over() {
                return Err(CopyTrouble::Stopped);
            }
            let mut is_full = self.is_full();
            while self.done.is_empty() && !is_full && (is_fed || !self.unzeroed.is_empty()) {
                match self.arena.take() {
                    None => is_full = true,
                    Some(buffer) => is_fed = self.begin(buffer)?,
                }
                if self.dest == ALONE {
                    // Hands over what there is: the next bytes may be long in coming.
                    self.channel.poll(&mut self.done).map_err(CopyTrouble::Ring)?;
                }
                is_full |= self.is_full();
                if self.shared.is_over() {
                    return Err(CopyTrouble::Stopped);
                }
            }
            if !self.done.is_empty() {
                continue;
            }
            self.held.publish();
            if self.channel.in_flight() == 0 {
                return Ok(self.sums);
            }
            self.channel.ring_mut().wake_by(Instant::now() + PATIENCE);
            self.channel.wait(&mut self.done).map_err(CopyTrouble::Ring)?;
        }
    }

    /// Enough is begun.
    fn is_full(&self) -> bool {
        self.channel.in_flight() >= BEGUN || self.turns.len() >= BEGUN
    }

    /// Begins a chunk; `false` at the end of the source.
    fn begin(&mut self, mut buffer: Buffer) -> Result<bool, CopyTrouble> {
        if let Some((offset, len)) = self.unzeroed.pop() {
            buffer.set_len(len);
            buffer.fill(0);
            self.submit(self.dest, Request::write(offset, buffer, false, 0));
            self.held.remove(offset);
            return Ok(true);
        }
        let shared = self.shared;
        self.held.about_to_take(&shared.feed);
        match shared.feed.next(&mut buffer, || shared.is_over())? {
            None => return Ok(false),
            Some(SourcePiece::Read { offset, len }) => {
                buffer.set_len(len);
                if shared.hashes.is_some() {
                    self.turns.begin(offset);
                }
                self.submit(0, Request::read(offset, buffer, 0));
            }
            Some(SourcePiece::Here { offset, len, came }) => {
                buffer.set_len(len);
                if let Some(hashes) = &shared.hashes {
                    // They come in their order.
                    lock(hashes).add(&buffer[..came]);
                }
                self.write(offset, buffer);
            }
            Some(SourcePiece::Zeros { offset, len }) => {
                buffer.set_len(len);
                if shared.sums {
                    self.sums.push(Sum::of_zeros(offset, len));
                }
                if shared.hashes.is_some() {
                    self.turns.add_zeros(len);
                    self.take_turns();
                }
                if shared.zeros == Zeros::Write || (shared.zeros == Zeros::Make && !self.can_zero) {
                    buffer.fill(0);
                    self.submit(self.dest, Request::write(offset, buffer, false, 0));
                } else {
                    self.zero(offset, len);
                }
            }
        }
        Ok(true)
    }

    fn submit(&mut self, device: usize, request: Request) {
        if request.op != Op::Flush {
            self.held.add(request.offset);
        }
        if let Submitted::Done(completion) = self.channel.submit_to(device, request) {
            self.done.push(completion);
        }
    }

    fn end(&mut self, completion: Completion) -> Result<(), CopyTrouble> {
        let Request { offset, op, data, len, token } = completion.request;
        match (op, data, completion.result) {
            (Op::Read, Some(buffer), Ok(())) if self.shared.hashes.is_some() => {
                self.turns.arrived(offset, buffer);
                self.take_turns();
            }
            (Op::Read, Some(buffer), Ok(())) => {
                self.write(offset, buffer);
                self.held.remove(offset);
            }
            (Op::Read, _, Err(fault)) => return Err(CopyTrouble::Read { offset, fault }),
            (Op::Write | Op::WriteFua, _, Ok(())) => {
                self.held.remove(offset);
                self.count(usize::try_from(len).unwrap_or(CHUNK), true);
            }
            (Op::Zero | Op::ZeroUnmap, _, Ok(())) => {
                self.held.remove(offset);
                let len = usize::try_from(len).unwrap_or(CHUNK);
                self.shared.skipped.fetch_add(len as u64, Ordering::Relaxed);
                self.count(len, true);
            }
            (Op::Zero | Op::ZeroUnmap, _, Err(Fault::NotSupported | Fault::Partly)) => {
                self.can_zero = false;
                let len = usize::try_from(len).unwrap_or(CHUNK);
                self.unzeroed.push((offset, len));
            }
            (Op::Flush, _, Ok(())) => {
                self.shared.durable.fetch_max(token, Ordering::Relaxed);
                if let Some(mark) = self.flushing.take() {
                    self.shared.marks.note(mark);
                }
            }
            (Op::Flush, _, Err(fault)) => return Err(CopyTrouble::Flush(fault)),
            (_, _, Err(fault)) => return Err(CopyTrouble::Write { offset, fault }),
            (_, _, Ok(())) => {}
        }
        Ok(())
    }

    /// Hashes the chunks whose turn it is, and writes them.
    fn take_turns(&mut self) {
        let shared = self.shared;
        let Some(hashes) = &shared.hashes else { return };
        while let Some(chunk) = self.turns.take() {
            match chunk {
                OrderedChunk::Zeros(len) => lock(hashes).add_zeros(len as u64),
                OrderedChunk::Read { offset, buffer } => {
                    lock(hashes).add(&buffer);
                    self.write(offset, buffer);
                    self.held.remove(offset);
                }
            }
        }
    }

    /// Writes a chunk: each run of data and each of zeros as it deserves.
    fn write(&mut self, offset: u64, buffer: Buffer) {
        if self.shared.sums {
            self.sums.push(Sum::of(offset, &buffer));
        }
        let writes_all = self.shared.zeros == Zeros::Write || (self.shared.zeros == Zeros::Make && !self.can_zero);
        if writes_all {
            self.submit(self.dest, Request::write(offset, buffer, false, 0));
            return;
        }
        let (mut at, mut run) = (offset, buffer);
        loop {
            let (is_zero, len) = first_run(&run);
            let rest = (len < run.len()).then(|| run.split_off(len));
            if is_zero {
                self.zero(at, len);
            } else {
                self.submit(self.dest, Request::write(at, run, false, 0));
            }
            at += len as u64;
            match rest {
                Some(rest) => run = rest,
                None => return,
            }
        }
    }

    /// Zeros that need not be written.
    fn zero(&mut self, offset: u64, len: usize) {
        if self.shared.zeros == Zeros::Skip {
            self.shared.skipped.fetch_add(len as u64, Ordering::Relaxed);
            self.count(len, false);
            return;
        }
        self.submit(self.dest, Request::new(Op::ZeroUnmap, offset, len as u64, 0));
    }

    /// Notes what was done, and has it made durable from time to time: one flush at a time.
    fn count(&mut self, len: usize, is_written: bool) {
        let (shared, len) = (self.shared, len as u64);
        let done = shared.done.fetch_add(len, Ordering::Relaxed) + len;
        if is_written {
            let before = shared.written.fetch_add(len, Ordering::Relaxed);
            if before / shared.flushed != (before + len) / shared.flushed {
                shared.flush.store(true, Ordering::Relaxed);
            }
        }
        let wants = self.flushing.is_none() && is_set(&shared.flush);
        if wants && shared.flush.swap(false, Ordering::Relaxed) {
            self.held.publish();
            self.flushing = Some(shared.marks.reached(&shared.feed));
            self.submit(self.dest, Request::flush(done));
        }
    }
}

/// Tells if `bytes` begin with zeros, and how long that is so; in whole units but for the last.
fn first_run(bytes: &[u8]) -> (bool, usize) {
    let mut units = bytes.chunks(GRAIN);
    let first = units.next().is_some_and(is_zero);
    let more = units.take_while(|unit| is_zero(unit) == first);
    let len = GRAIN + more.map(<[u8]>::len).sum::<usize>();
    (first, len.min(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_whole_units_and_end_with_the_bytes() {
        let mut bytes = vec![0; 3 * GRAIN + 512];
        assert_eq!(first_run(&bytes), (true, bytes.len()));
        bytes[2 * GRAIN + 5] = 1;
        assert_eq!(first_run(&bytes), (true, 2 * GRAIN));
        assert_eq!(first_run(&bytes[2 * GRAIN..]), (false, GRAIN));
        assert_eq!(first_run(&bytes[3 * GRAIN..]), (true, 512));
        bytes[0] = 1;
        assert_eq!(first_run(&bytes), (false, GRAIN));
        assert_eq!(first_run(&bytes[..512]), (false, 512));
    }
}
