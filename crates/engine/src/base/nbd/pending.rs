//! One request on its way: in parts where it is longer than the server takes, each with a cookie of its own.

use cryptline_nbd::NbdError;
use cryptline_nbd::RequestHeader;
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_sys::Buffer;
use rustix::io::Errno;

use super::coverage::Coverage;
use crate::{Combined, Completion, Fault, Op, Request};

/// Limits and abilities of the server.
#[derive(Clone, Copy)]
pub(super) struct Abilities {
    /// Longest data of one read or write, bytes: whole logical blocks.
    pub most_data: u64,
    /// Writes can be made durable alone.
    pub fua: bool,
    /// All are, because nothing else makes them durable.
    pub writes_through: bool,
}

/// Longest range of one discard or zeroing. The protocol has 32 bits, and some servers use a sign.
const MOST_RANGE: u64 = 1 << 30;
/// Chunks of one reply that say what failed.
const ERRORS_MAX: u8 = 16;

pub(super) struct NbdPending {
    /// As it was submitted, without its data.
    head: Request,
    /// Of a read or a write; not here while the ring has it.
    pub buffer: Option<Buffer>,
    /// Of the part under way, once its header is in a batch and until its answer is there.
    pub cookie: Option<u64>,
    /// Its payload is in a batch.
    pub is_sending: bool,
    /// How the part ended, while its payload is still on its way.
    pub answer: Option<Result<(), Fault>>,
    /// Number of changes made up to the flush that is under way.
    pub changes: u64,
    /// Bytes of the parts that have ended, and of the one under way.
    done: u64,
    part: u32,
    /// The part under way is the flush behind a durable write.
    is_syncing: bool,
    /// The part under way belongs to a durable write, and the server makes it durable.
    is_made_durable: bool,
    /// Ranges of a read's part that have come.
    coverage: Coverage,
    /// Errors reported by the chunks of a reply.
    outcome: Combined,
    errors: u8,
    /// How often it was under way when the connection was lost.
    rewinds: u8,
}

impl NbdPending {
    /// Notes what is to be known of `request`; gives it back where no server has an operation for it.
    pub fn new(mut request: Request) -> Result<Self, Request> {
        if request.op.is_zoned() {
            return Err(request);
        }
        Ok(Self {
            buffer: request.data.take(),
            head: request,
            cookie: None,
            is_sending: false,
            answer: None,
            changes: 0,
            done: 0,
            part: 0,
            is_syncing: false,
            is_made_durable: false,
            coverage: Coverage::default(),
            outcome: Combined::new(false),
            errors: 0,
            rewinds: 0,
        })
    }

    /// The header of its next part.
    pub fn begin(&mut self, cookie: u64, can: Abilities) -> RequestHeader {
        let op = self.head.op;
        // Of a hint, too, QEMU's server takes no more at a time.
        let most = if op.moves_data() || op == Op::Cache { can.most_data } else { MOST_RANGE };
        let part = if self.is_syncing { 0 } else { (self.head.len - self.done).min(most) };
        self.cookie = Some(cookie);
        self.part = u32::try_from(part).expect("at most MOST_RANGE");
        self.coverage = Coverage::default();
        let fua = |wanted| {
            if can.fua && (wanted || can.writes_through) { cmd_flag::FUA } else { 0 }
        };
        let (command, flags) = match op {
            _ if self.is_syncing => (cmd::FLUSH, 0),
            Op::Read => (cmd::READ, 0),
            Op::Write | Op::WriteFua => (cmd::WRITE, fua(op.is_sync())),
            Op::Discard => (cmd::TRIM, fua(false)),
            Op::Cache => (cmd::CACHE, 0),
            Op::ZeroUnmap => (cmd::WRITE_ZEROES, fua(false)),
            Op::Zero => (cmd::WRITE_ZEROES, fua(false) | cmd_flag::NO_HOLE),
            Op::Flush => (cmd::FLUSH, 0),
            // Never taken for a flush, whose yes is believed.
            other => unreachable!("{other:?} was given back"),
        };
        self.is_made_durable = flags & cmd_flag::FUA != 0 && op == Op::WriteFua;
        let offset = if command == cmd::FLUSH { 0 } else { self.head.offset + self.done };
        RequestHeader { flags, command, cookie, offset, length: self.part }
    }

    /// Goes on behind a part that has ended well. Whether there is more to be done.
    pub fn advance(&mut self, can: Abilities) -> bool {
        if self.is_syncing {
            return false;
        }
        self.done += u64::from(self.part);
        let owes_flush = self.head.op == Op::WriteFua && !can.fua;
        self.is_syncing = self.done == self.head.len && owes_flush;
        self.is_syncing || self.done < self.head.len
    }

    /// The payload of the part under way: where it lies in the buffer, and its length. None for a read, whose
    /// data comes from the server.
    pub fn payload(&self) -> Option<(usize, usize)> {
        let is_write = self.head.op.is_write() && !self.is_syncing;
        is_write.then(|| (index(self.done), self.part as usize))
    }

    pub fn is_read(&self) -> bool {
        self.head.op == Op::Read
    }

    /// The part under way is a flush.
    pub fn is_flush(&self) -> bool {
        self.head.op == Op::Flush || self.is_syncing
    }

    /// Tells if it changes what the server stores.
    pub fn is_change(&self) -> bool {
        self.head.op.changes()
    }

    /// Forgets the part under way, which begins again; how often that was counted.
    pub fn rewind(&mut self, is_counted: bool) -> u8 {
        self.cookie = None;
        self.outcome = Combined::new(false);
        self.errors = 0;
        self.rewinds = self.rewinds.saturating_add(u8::from(is_counted));
        self.rewinds
    }

    /// Bytes of the part under way.
    pub fn part(&self) -> usize {
        self.part as usize
    }

    /// Where in the buffer `length` bytes that the server has at `offset` belong. `None` where they are not part
    /// of the read, or have come already.
    pub fn place(&mut self, offset: u64, length: u32) -> Option<usize> {
        let start = offset.checked_sub(self.head.offset + self.done)?;
        let start = u32::try_from(start).ok()?;
        let end = start.checked_add(length).filter(|&end| end <= self.part)?;
        let is_new = self.is_read() && self.coverage.add(start, end);
        is_new.then(|| index(self.done) + start as usize)
    }

    /// Where a simple reply's data belongs.
    pub fn place_all(&mut self) -> Option<usize> {
        self.place(self.head.offset + self.done, self.part)
    }

    /// Notes that the server has said what went wrong. `false` where it says so without end.
    pub fn fail(&mut self, error: NbdError) -> bool {
        let fault = self.fault(error);
        self.outcome.add(Err(fault));
        self.errors = self.errors.saturating_add(1);
        self.errors <= ERRORS_MAX
    }

    /// How the part has ended, now that its reply is complete. `None` where the reply is not: bytes are missing.
    pub fn outcome(&self) -> Option<Result<(), Fault>> {
        let is_short = self.is_read() && !self.coverage.is_all(self.part);
        match self.outcome.result() {
            Ok(()) if is_short => None,
            result => Some(result),
        }
    }

    /// Tells if the ring has its buffer.
    pub fn is_away(&self) -> bool {
        self.buffer.is_none() && self.head.op.moves_data()
    }

    /// The request as it was submitted, at its end. `result` is that of its last part; those before have ended well.
    pub fn complete(mut self, result: Result<(), Fault>) -> Completion {
        let mut outcome = Combined::new(self.is_change());
        if self.done > 0 {
            outcome.add(Ok(()));
        }
        outcome.add(result);
        debug_assert!(!self.is_away(), "a request ends when its buffer is back");
        self.head.data = self.buffer;
        self.head.complete(outcome.result())
    }

    /// A discard, zeroing or hint that the server does not want has lost nothing; zeros can be written, and bytes read.
    fn fault(&self, error: NbdError) -> Fault {
        let is_optional = !self.head.op.moves_data() && self.head.op != Op::Flush;
        match error {
            // The server may have been told so by a sync that was to make earlier writes durable. Nothing in the protocol tells
            // that from a write for which there is no room, and the sync's report is used up: a second flush would succeed.
            // Where plain writes are made durable, too, nothing earlier waits to be, and a plain one only had no room.
            NbdError::NoSpc if self.is_flush() || self.is_made_durable => Fault::Io(Errno::NOSPC),
            NbdError::NoSpc => Fault::NoSpace,
            NbdError::Perm | NbdError::Inval | NbdError::NotSup if is_optional => Fault::NotSupported,
            NbdError::Perm => Fault::Io(Errno::PERM),
            NbdError::Io => Fault::Io(Errno::IO),
            NbdError::NoMem => Fault::Io(Errno::NOMEM),
            NbdError::Inval => Fault::Io(Errno::INVAL),
            NbdError::Overflow => Fault::Io(Errno::OVERFLOW),
            NbdError::NotSup => Fault::Io(Errno::OPNOTSUPP),
            NbdError::Shutdown => Fault::Io(Errno::SHUTDOWN),
        }
    }
}

/// A place in a buffer, which fits into memory.
fn index(at: u64) -> usize {
    usize::try_from(at).expect("a buffer fits into memory")
}
