//! Messages from the kernel, as they come.
//!
//! One read is posted on the ring and waits for the next message. When it has come there may be more: they
//! are read at once, without waiting, while that pays. Several posted reads would all be woken by one message.
//!
//! The wait is exclusive, so of several idle lanes the kernel wakes one.

use std::collections::VecDeque;
use std::time::Duration;

use cryptline_engine::Ring;
use cryptline_sys::{FileId, Io, ReceiveBatch, RequestSource};
use rustix::io::Errno;

use super::PARTS;
use super::abi::HEAD;
use crate::lane::{CHUNK, LaneRoom};

/// Messages read before the lane looks at any.
pub const MESSAGES: usize = 8;
/// The token of a read. Answers have the numbers of their places.
const READ: u64 = u64::MAX;
/// Reads that find nothing, until only some of them are tried.
const PATIENCE: u32 = 4;
/// One of so many is tried then.
const SELDOM: u32 = 16;
/// Reads in a row that fail though the message stays there, with a pause after each, until the mount is given up.
const RETRIES_MAX: u32 = if cfg!(test) { 20 } else { 5000 };
const PAUSE: Duration = Duration::from_millis(1);

/// One message, and how long it is.
pub struct FuseMessage {
    pub batch: Box<ReceiveBatch>,
    pub len: usize,
}

pub struct MessageIntake {
    #[expect(clippy::vec_box, reason = "the kernel has their addresses, and operations have them boxed")]
    spare: Vec<Box<ReceiveBatch>>,
    arrived: VecDeque<FuseMessage>,
    posted: bool,
    /// Reads in a row that found nothing.
    in_vain: u32,
    /// Reads in a row that failed for now.
    failed: u32,
    /// No more messages come.
    pub is_gone: bool,
    /// Why, where it is not the end of the mount.
    pub failure: Option<Errno>,
}

impl MessageIntake {
    pub fn new() -> Self {
        Self {
            spare: (0..MESSAGES).map(|_| ReceiveBatch::new(HEAD, PARTS)).collect(),
            arrived: VecDeque::with_capacity(MESSAGES),
            posted: false,
            in_vain: 0,
            failed: 0,
            is_gone: false,
            failure: None,
        }
    }

    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Tells if a read waits for the next message, or the end.
    pub fn is_posted(&self) -> bool {
        self.posted
    }

    /// Tells if all memory for messages is elsewhere.
    pub fn has_no_memory(&self) -> bool {
        self.spare.is_empty()
    }

    pub fn next(&mut self) -> Option<FuseMessage> {
        self.arrived.pop_front()
    }

    /// Takes a message back that has been looked at; its buffers may have been taken.
    pub fn put_back(&mut self, batch: Box<ReceiveBatch>) {
        self.spare.push(batch);
    }

    /// Waits for the next message, unless that is being done or buffers are short.
    pub fn post(&mut self, ring: &mut Ring, source: RequestSource, file: FileId, room: &LaneRoom) {
        // Those that will be read at once need buffers, too.
        for batch in &mut self.spare {
            if !fill(batch, room) {
                break;
            }
        }
        if self.posted || self.is_gone {
            return;
        }
        let Some(batch) = self.take_spare() else {
            return;
        };
        match ring.submit(source, READ, Io::ReadMessage { file, batch }) {
            Ok(()) => self.posted = true,
            Err(Io::ReadMessage { batch, .. }) => self.spare.push(batch),
            Err(_) => unreachable!("what was submitted comes back"),
        }
    }

    /// The posted read has ended. Reads what has come behind its message.
    pub fn came(&mut self, result: Result<usize, Errno>, batch: Box<ReceiveBatch>) {
        self.posted = false;
        self.sort(result, batch);
    }

    /// Reads one more message without waiting; `false` where that is not worth it.
    pub fn read_at_once(&mut self, ring: &mut Ring, source: RequestSource, file: FileId) -> bool {
        let tries = self.in_vain < PATIENCE || self.in_vain.is_multiple_of(SELDOM);
        if !tries || self.is_gone || self.arrived.len() >= MESSAGES {
            self.in_vain = self.in_vain.wrapping_add(1).max(PATIENCE);
            return false;
        }
        let Some(batch) = self.take_spare() else {
            return false;
        };
        ring.submit_at_once(source, READ, Io::ReadMessage { file, batch });
        true
    }

    /// Such a read has ended; whether there was a message.
    pub fn came_at_once(&mut self, result: Result<usize, Errno>, batch: Box<ReceiveBatch>) -> bool {
        let found = result.is_ok_and(|len| len > 0);
        self.in_vain = if found { 0 } else { self.in_vain.wrapping_add(1) };
        self.sort(result, batch);
        found
    }

    fn sort(&mut self, result: Result<usize, Errno>, batch: Box<ReceiveBatch>) {
        match result {
            Ok(len) if len > 0 => {
                self.failed = 0;
                self.arrived.push_back(FuseMessage { batch, len });
                return;
            }
            // Another lane was faster, or the request was taken back while it was being read.
            Err(Errno::AGAIN | Errno::NOENT) => self.failed = 0,
            Err(error @ (Errno::INTR | Errno::NOMEM | Errno::CANCELED)) => self.try_again(error),
            // Unmounted; for a socket, closed.
            Ok(_) | Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::CONNRESET) => {
                self.is_gone = true;
            }
            Err(error) => self.fail(error),
        }
        self.spare.push(batch);
    }

    /// The message is still there for the next read, which is posted after a pause: memory may be short.
    fn try_again(&mut self, error: Errno) {
        self.failed += 1;
        if self.failed > RETRIES_MAX {
            return self.fail(error);
        }
        std::thread::sleep(PAUSE);
    }

    /// Nothing more can be served, though somebody waits.
    pub fn fail(&mut self, error: Errno) {
        self.is_gone = true;
        self.failure.get_or_insert(error);
    }

    /// One with all its buffers: the kernel gives no message to a reader who could not take the largest.
    fn take_spare(&mut self) -> Option<Box<ReceiveBatch>> {
        let mut spare = self.spare.iter();
        let index = spare.position(|batch| batch.buffers().len() == PARTS)?;
        Some(self.spare.swap_remove(index))
    }
}

/// Gives a message its buffers again; `false` where there are too few.
fn fill(batch: &mut ReceiveBatch, room: &LaneRoom) -> bool {
    while batch.buffers().len() < PARTS {
        let Some(buffer) = room.buffer(CHUNK as usize) else {
            return false;
        };
        batch.push(buffer);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(intake: &mut MessageIntake, result: Result<usize, Errno>) {
        intake.came(result, ReceiveBatch::new(HEAD, PARTS));
    }

    #[test]
    fn read_that_may_succeed_next_time_does_not_end_the_mount() {
        for (error, is_end, is_failure) in [
            (Errno::AGAIN, false, false),
            (Errno::INTR, false, false),
            (Errno::NOMEM, false, false),
            (Errno::CANCELED, false, false),
            (Errno::NODEV, true, false),
            (Errno::IO, true, true),
        ] {
            let mut intake = MessageIntake::new();
            came(&mut intake, Err(error));
            assert_eq!(intake.is_gone, is_end, "{error}");
            assert_eq!(intake.failure.is_some(), is_failure, "{error}");
        }
    }

    #[test]
    fn reads_that_go_on_failing_end_the_mount_with_their_reason() {
        let mut intake = MessageIntake::new();
        for _ in 0..RETRIES_MAX {
            came(&mut intake, Err(Errno::NOMEM));
        }
        came(&mut intake, Ok(HEAD));
        for _ in 0..RETRIES_MAX {
            came(&mut intake, Err(Errno::NOMEM));
        }
        assert!(!intake.is_gone, "there was a message in between");
        came(&mut intake, Err(Errno::NOMEM));
        assert_eq!((intake.is_gone, intake.failure), (true, Some(Errno::NOMEM)));
    }
}
