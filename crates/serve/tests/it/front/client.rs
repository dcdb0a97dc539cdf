//! Requests that a client can make to any front, and what a test can do with any server.

use std::collections::HashMap;
use std::time::Duration;

use cryptline_engine::{BackendChoice, Fault};
use cryptline_serve::lane::Poll;
use cryptline_testkit::suite::Fresh;
use rustix::io::Errno;

/// A range of the disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub len: u32,
}

/// `len` bytes at `offset`.
pub fn at(offset: u64, len: u32) -> Range {
    Range { offset, len }
}

/// One request.
#[derive(Clone, Debug)]
pub enum Ask {
    Read(Range),
    Cache(Range),
    Write { offset: u64, data: Vec<u8>, durable: bool },
    Zero(Range, Zeroing),
    Discard { range: Range, durable: bool },
    Flush,
}

/// How a range is zeroed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zeroing {
    pub durable: bool,
    pub fast: bool,
    pub may_unmap: bool,
}

impl Ask {
    /// The range that is asked for, if any.
    pub fn range(&self) -> Range {
        match self {
            Self::Read(range) | Self::Cache(range) | Self::Zero(range, _) | Self::Discard { range, .. } => *range,
            Self::Write { offset, data, .. } => at(*offset, u32::try_from(data.len()).expect("a length")),
            Self::Flush => at(0, 0),
        }
    }
}

/// How a request ended; for a read, with its data.
pub type Outcome = Result<Vec<u8>, Errno>;

/// Somebody whom a front serves.
pub trait Client {
    /// Sends requests, which arrive together; their marks.
    fn send(&mut self, asks: &[Ask]) -> Vec<u64>;

    /// The next answer, whosever it is.
    fn answer(&mut self) -> (u64, Outcome);

    /// How a request ends that the protocol has no words for, so that nobody can send it.
    fn unspeakable(&mut self, _ask: &Ask) -> Option<Outcome> {
        None
    }

    /// Returns what the protocol makes of an error: some know only a few.
    fn number(&self, error: Errno) -> Errno {
        error
    }

    /// Tells if a zeroing can be asked for that rather fails than takes long.
    fn knows_fast_zeroing(&self) -> bool {
        true
    }

    /// Waits until the server answers nothing more.
    fn wait_until_cut_off(&mut self);
}

impl dyn Client + '_ {
    /// The next `count` answers, by mark.
    pub fn answers(&mut self, count: usize) -> HashMap<u64, Outcome> {
        let answers: HashMap<_, _> = (0..count).map(|_| self.answer()).collect();
        assert_eq!(answers.len(), count, "answered twice");
        answers
    }

    /// Sends a request and waits for its answer: the only one on its way.
    pub fn run(&mut self, ask: Ask) -> Outcome {
        if let Some(outcome) = self.unspeakable(&ask) {
            return outcome;
        }
        let sent = self.send(&[ask]);
        let (mark, outcome) = self.answer();
        assert_eq!([mark], sent[..]);
        outcome
    }

    /// Reads.
    #[track_caller]
    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.run(Ask::Read(at(offset, len))).expect("it can be read")
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.write_as(offset, data, false)
    }

    /// Writes; where `durable`, the bytes survive.
    pub fn write_as(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let data = data.to_vec();
        let ask = Ask::Write { offset, data, durable };
        self.run(ask).map(drop)
    }

    /// Flushes.
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.run(Ask::Flush).map(drop)
    }
}

/// One device behind a front. Stops when it is dropped.
pub trait Server {
    fn connect(&self) -> Box<dyn Client>;
    /// Clients that are served.
    fn connections(&self) -> usize;
    /// Tells the server to stop.
    fn stop(&self);
    /// Tells if it has stopped, with the last flush.
    fn is_over(&self) -> bool;
    /// Returns what it has to say of connections that ended badly.
    fn log(&self) -> Vec<String>;
    /// Stops it; how the last flush went.
    fn end(self: Box<Self>) -> Result<(), Fault>;
    /// Tells if its protocol has such a request. Otherwise clients make it of others.
    fn has(&self, _ask: &Ask) -> bool {
        true
    }
    /// Tells if requests that are sent together come one by one.
    fn takes_one_at_a_time(&self) -> bool {
        false
    }
    /// Tells if a lane learns from another thread that its client is gone, so a few turns late.
    fn is_told_of_the_end(&self) -> bool {
        false
    }
}

/// How a server serves.
#[derive(Clone, Copy)]
pub struct How {
    pub backend: BackendChoice,
    /// How long requests may take when it stops.
    pub grace: Duration,
}

/// How long servers look out for requests that are to.
pub const POLL: Poll = Poll::Always(Duration::from_micros(200));

/// A front: starts a server.
pub type Front = fn(Fresh, How) -> Box<dyn Server>;
