//! Holes as a server tells of them (`base:allocation`), over a connection that does nothing else.
//!
//! The connection is made when it is first asked, where the server takes several connections, and again some time after
//! it was lost, where lost connections are made again. Whoever asks waits for the server, one after the other and not
//! without end. What the server does not tell, or tells wrongly, is data.
//!
//! An answer tells of a range, and is kept for the questions about the rest of it: until a change of ours has ended,
//! and for [`FRESH`] at most. A change that ends later than the question is sent sets a flag, so the answer serves
//! that question alone; one that ended before was seen by the server.
//!
//! Queues thus carry nothing but data, and nothing is latched when a server tells nonsense of its holes. The connection
//! is made only after the witness has confirmed the first server; another one at the same address is as undetected as
//! for queues.

use std::io::{Read as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cryptline_nbd::client::{Content, ServerMessage, parse_reply, request};
use cryptline_nbd::wire::{CHUNK_HEADER_LEN, SIMPLE_REPLY_LEN, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, cmd};
use cryptline_nbd::{RequestHeader, TransmissionFlags, reply};
use cryptline_net::TimedStream;

use super::NbdShared;
use super::goodbye::say_goodbye;
use crate::Extent;

/// How long the server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer is good. Others may write to the export, though they should not.
const FRESH: Duration = Duration::from_secs(1);
/// How long nobody asks after the connection was lost, where lost connections are made again.
const PAUSE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(30) };
/// Bytes of the export that are asked for at a time.
const RANGE: u64 = 1 << 30;
/// Longest chunk of an answer, bytes: half a million extents.
const CHUNK_MAX: usize = 4 << 20;
/// Chunks of one answer.
const CHUNKS_MAX: usize = 16;

pub(super) struct StatusClient {
    state: Mutex<StatusState>,
    /// A change of ours has ended since the last question.
    changed: AtomicBool,
    /// The connection may lead to another server than the others by now.
    is_stale: AtomicBool,
}

#[derive(Default)]
struct StatusState {
    way: StatusLink,
    known: Option<KnownStatus>,
}

#[derive(Default)]
enum StatusLink {
    #[default]
    NotTried,
    Open(IdleConnection),
    /// The connection was lost, and is to be made again.
    Lost {
        again: Instant,
    },
    /// The server does not tell.
    Closed,
}

/// A connection on which nothing is on its way.
struct IdleConnection {
    line: TimedStream,
    context: u32,
    cookie: u64,
}

/// One answer.
struct KnownStatus {
    start: u64,
    /// One behind the other, none in the same state as the one before.
    runs: Vec<StatusRun>,
    since: Instant,
}

struct StatusRun {
    end: u64,
    flags: u32,
}

/// Why nothing more is to be heard.
enum BrokenStatus {
    /// The server broke the protocol.
    Protocol,
    /// The connection is lost, or the server does not answer.
    Lost,
}

impl Default for StatusClient {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: AtomicBool::new(true), is_stale: AtomicBool::new(false) }
    }
}

impl StatusClient {
    /// Notes that a change has ended. Nobody may be told of its end before.
    pub fn note_change(&self) {
        // A load costs the other queues nothing.
        if !self.changed.load(Ordering::SeqCst) {
            self.changed.store(true, Ordering::SeqCst);
        }
    }

    /// Believes nothing of the server that was asked so far.
    pub fn forget_server(&self) {
        self.is_stale.store(true, Ordering::SeqCst);
        self.changed.store(true, Ordering::SeqCst);
    }

    fn is_fresh(&self, known: &KnownStatus) -> bool {
        let is_current = !self.changed.load(Ordering::SeqCst) && !self.is_stale.load(Ordering::SeqCst);
        is_current && known.since.elapsed() < FRESH
    }
}

impl NbdShared {
    /// The state of the bytes from `offset` on.
    pub(super) fn extent(&self, offset: u64, len: u64) -> Extent {
        let data = Extent { len, hole: false, zero: false };
        if !self.can(TransmissionFlags::CAN_MULTI_CONN) || self.is_lost() {
            return data;
        }
        let mut state = cryptline_sys::lock(&self.status.state);
        let block = u64::from(self.geometry.logical_block);
        let known = state.known.as_ref();
        let known = known.filter(|known| self.status.is_fresh(known));
        if let Some(found) = known.and_then(|known| known.find(offset, len, block)) {
            return found;
        }
        state.known = self.ask(&mut state.way, offset);
        match &state.known {
            None => data,
            // Where it says nothing of a whole block, nothing is known of that block.
            Some(known) => known.find(offset, len, block).unwrap_or_else(|| {
                let len = len.min(block - offset % block);
                Extent { len, ..data }
            }),
        }
    }

    /// Asks the server about the range that begins with the block of `offset`.
    fn ask(&self, way: &mut StatusLink, offset: u64) -> Option<KnownStatus> {
        if self.status.is_stale.swap(false, Ordering::SeqCst) && matches!(way, StatusLink::Open(_)) {
            *way = StatusLink::NotTried;
        }
        let is_due = match way {
            StatusLink::NotTried => true,
            StatusLink::Lost { again } => *again <= Instant::now(),
            StatusLink::Open(_) | StatusLink::Closed => false,
        };
        if is_due {
            *way = self.open_talk();
        }
        let StatusLink::Open(talk) = way else {
            return None;
        };
        let size = self.geometry.size;
        let start = offset - offset % u64::from(self.geometry.logical_block);
        // Before the question is sent: what ends from here on, the answer may not know.
        self.status.changed.store(false, Ordering::SeqCst);
        let since = Instant::now();
        match talk.ask(start, RANGE.min(size - start)) {
            // Whoever answered is none that is to be believed any more.
            Ok(_) if self.status.is_stale.load(Ordering::SeqCst) => None,
            Ok(extents) => extents.map(|extents| KnownStatus { start, runs: runs(start, size, &extents), since }),
            Err(BrokenStatus::Lost) => {
                *way = self.lost_talk();
                None
            }
            Err(BrokenStatus::Protocol) => {
                *way = StatusLink::Closed;
                None
            }
        }
    }

    fn open_talk(&self) -> StatusLink {
        let Ok(made) = self.server.for_status(&self.agreed, self.peer) else {
            return self.lost_talk();
        };
        let Some((line, context, peer)) = made else {
            return StatusLink::Closed;
        };
        // Another server's holes are not ours.
        if !self.knows_writes(peer) {
            return self.lost_talk();
        }
        StatusLink::Open(IdleConnection { line, context, cookie: 0 })
    }

    /// Once more after a while, where the other connections are made again, too.
    fn lost_talk(&self) -> StatusLink {
        match self.reconnect {
            Some(_) => StatusLink::Lost { again: Instant::now() + PAUSE },
            None => StatusLink::Closed,
        }
    }
}

/// Extents one behind the other from `start` on, those in the same state as one, up to `size`.
fn runs(start: u64, size: u64, extents: &[reply::NbdExtent]) -> Vec<StatusRun> {
    let mut runs: Vec<StatusRun> = Vec::new();
    let mut end = start;
    for extent in extents {
        end = end.saturating_add(extent.length.into()).min(size);
        let flags = extent.flags & (STATE_HOLE | STATE_ZERO);
        match runs.last_mut() {
            Some(last) if last.flags == flags => last.end = end,
            _ => runs.push(StatusRun { end, flags }),
        }
    }
    runs
}

impl KnownStatus {
    /// A block in which a run ends is data: whoever asks counts in blocks.
    fn find(&self, offset: u64, len: u64, block: u64) -> Option<Extent> {
        if offset < self.start {
            return None;
        }
        let at = self.runs.partition_point(|run| run.end <= offset);
        let run = self.runs.get(at)?;
        let end = run.end - run.end % block;
        if end <= offset {
            return Some(Extent { len: len.min(block - offset % block), hole: false, zero: false });
        }
        Some(Extent {
            len: len.min(end - offset),
            hole: run.flags & STATE_HOLE != 0,
            zero: run.flags & STATE_ZERO != 0,
        })
    }
}

impl IdleConnection {
    /// The extents from `offset` on; `None` where the server cannot tell.
    fn ask(&mut self, offset: u64, len: u64) -> Result<Option<Vec<reply::NbdExtent>>, BrokenStatus> {
        self.cookie += 1;
        let question = request(&RequestHeader {
            flags: 0,
            command: cmd::BLOCK_STATUS,
            cookie: self.cookie,
            offset,
            length: u32::try_from(len).map_err(|_| BrokenStatus::Protocol)?,
        });
        let deadline = Instant::now() + PATIENCE;
        let sent = self.line.until(deadline).write_all(&question);
        sent.map_err(|_| BrokenStatus::Lost)?;
        self.take_answer(deadline)
    }

    fn take_answer(&mut self, deadline: Instant) -> Result<Option<Vec<reply::NbdExtent>>, BrokenStatus> {
        let (mut found, mut has_failed) = (None, false);
        for _ in 0..CHUNKS_MAX {
            let bytes = self.message(deadline)?;
            let parsed = parse_reply(&bytes).map_err(|_| BrokenStatus::Protocol)?;
            let (message, _) = parsed.ok_or(BrokenStatus::Protocol)?;
            let (cookie, done, content) = match message {
                ServerMessage::Simple { cookie, outcome } => {
                    let is_refusal = cookie == self.cookie && outcome.is_err();
                    return if is_refusal { Ok(None) } else { Err(BrokenStatus::Protocol) };
                }
                ServerMessage::Chunk { cookie, done, content } => (cookie, done, content),
            };
            match content {
                _ if cookie != self.cookie => return Err(BrokenStatus::Protocol),
                Content::BlockStatus { context, extents } if context == self.context && found.is_none() => {
                    found = Some(extents);
                }
                Content::Error { .. } => has_failed = true,
                Content::None if done => {}
                _ => return Err(BrokenStatus::Protocol),
            }
            if done {
                return Ok(found.filter(|_| !has_failed));
            }
        }
        Err(BrokenStatus::Protocol)
    }

    /// One message, whole.
    fn message(&mut self, deadline: Instant) -> Result<Vec<u8>, BrokenStatus> {
        let mut bytes = vec![0; SIMPLE_REPLY_LEN];
        self.fill(&mut bytes, deadline)?;
        if bytes[..4] == SIMPLE_REPLY_MAGIC.to_be_bytes() {
            return Ok(bytes);
        }
        let mut length = [0; CHUNK_HEADER_LEN - SIMPLE_REPLY_LEN];
        self.fill(&mut length, deadline)?;
        bytes.extend(length);
        let len = usize::try_from(u32::from_be_bytes(length)).map_err(|_| BrokenStatus::Protocol)?;
        if len > CHUNK_MAX {
            return Err(BrokenStatus::Protocol);
        }
        bytes.resize(CHUNK_HEADER_LEN + len, 0);
        self.fill(&mut bytes[CHUNK_HEADER_LEN..], deadline)?;
        Ok(bytes)
    }

    fn fill(&mut self, target: &mut [u8], deadline: Instant) -> Result<(), BrokenStatus> {
        let filled = self.line.until(deadline).read_exact(target);
        filled.map_err(|_| BrokenStatus::Lost)
    }
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        say_goodbye(&mut self.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_state_are_one_run_and_none_leaves_the_device() {
        let of = |length, flags| reply::NbdExtent { length, flags };
        let extents = [of(512, 0), of(512, 4), of(1024, 3), of(u32::MAX, 3)];
        let known = KnownStatus { start: 4096, runs: runs(4096, 8192, &extents), since: Instant::now() };
        let found = |at, len| {
            let found = known.find(at, len, 512)?;
            Some((found.len, found.hole, found.zero))
        };
        assert_eq!(found(4095, 1), None);
        assert_eq!(found(4096, 4096), Some((1024, false, false)));
        assert_eq!(found(5119, 3), Some((1, false, false)));
        assert_eq!(found(5120, 100), Some((100, true, true)));
        assert_eq!(found(5121, 9999), Some((3071, true, true)));
        assert_eq!(found(8192, 1), None);
    }

    #[test]
    fn block_that_is_a_hole_in_part_is_data() {
        let of = |length, flags| reply::NbdExtent { length, flags };
        let extents = [of(700, 3), of(600, 0), of(100, 3), of(3000, 3)];
        let known = KnownStatus { start: 0, runs: runs(0, 4096, &extents), since: Instant::now() };
        let mut at = 0;
        let mut found = Vec::new();
        while let Some(extent) = known.find(at, 4096 - at, 512) {
            found.push((at, extent.len, extent.hole, extent.zero));
            at += extent.len;
        }
        let hole = |at, len| (at, len, true, true);
        let data = |at, len| (at, len, false, false);
        assert_eq!(found, [hole(0, 512), data(512, 512), data(1024, 512), hole(1536, 2560)]);
    }
}
