//! A program that uses a file of a mount, past the page cache.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cryptline_testkit::fuse::{ROOT, call, code};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::actor::Dialogue;
use crate::cells::Cells;
use crate::judge::{Asked, Outcome};
use crate::mount::{Answer, Kernel};

/// A program that has heard nothing for so long goes away.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Calls that have no number in [`code`].
const BATCH_FORGET: u32 = 42;
/// Modes of fallocate(2).
const KEEP_SIZE: u64 = 1;
const PUNCH_HOLE: u64 = 2;
const ZERO_RANGE: u64 = 16;
/// A whence of lseek(2).
const SEEK_DATA: u64 = 3;

/// An open file.
pub struct Program {
    kernel: Arc<Kernel>,
    node: u64,
    cells: Cells,
    tell: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    /// Forms of the answers that it waits for.
    flying: HashMap<u64, Form>,
}

/// Form of an answer.
#[derive(Clone, Copy)]
enum Form {
    Data(usize),
    Written(usize),
    Size,
    Empty,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn long(bytes: &[u8], at: usize) -> io::Result<u64> {
    let long = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    long.map(u64::from_ne_bytes).ok_or_else(|| wrong("an answer is too short"))
}

impl Program {
    /// Finds a disk in the folder, opens it and looks where it has data.
    pub fn open(kernel: &Arc<Kernel>, export: usize, cells: &Cells) -> io::Result<Self> {
        let (tell, answers) = mpsc::channel();
        let kernel = Arc::clone(kernel);
        let mut program = Self { kernel, node: ROOT, cells: cells.clone(), tell, answers, flying: HashMap::new() };
        let found = program.ask(|unique| call(code::LOOKUP, unique, &[], format!("e{export}\0").as_bytes()))??;
        program.node = long(&found, 0)?;
        program.ask(|unique| call(code::OPEN, unique, &[u64::from(OFlags::RDWR.bits())], &[]))??;
        match program.ask(|unique| call(code::LSEEK, unique, &[0, 0, SEEK_DATA], &[]))? {
            Ok(_) | Err(Errno::NXIO) => Ok(program),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, message: impl FnOnce(u64) -> Vec<u8>) -> io::Result<Result<Vec<u8>, Errno>> {
        let unique = self.kernel.send(self.node, message, &self.tell)?;
        self.flying.insert(unique, Form::Empty);
        let (_, outcome) = self.next()?;
        self.flying.remove(&unique);
        Ok(outcome)
    }

    fn next(&self) -> io::Result<Answer> {
        self.answers.recv_timeout(PATIENCE).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => io::ErrorKind::TimedOut.into(),
            mpsc::RecvTimeoutError::Disconnected => io::ErrorKind::NotConnected.into(),
        })
    }
}

/// Form of the answer, call and arguments of a request for a range.
fn encode(asked: &Asked, range: &Range<usize>) -> (Form, u32, Vec<u64>) {
    let (at, len) = (range.start as u64, range.len() as u64);
    match *asked {
        Asked::Read(_) => (Form::Data(range.len()), code::READ, vec![0, at, len, 0, 0]),
        Asked::Write { durable, .. } => {
            let flags = if durable { u64::from(OFlags::DSYNC.bits()) } else { 0 };
            (Form::Written(range.len()), code::WRITE, vec![0, at, len, 0, flags])
        }
        Asked::Zero { fast: true, may_unmap: true, .. } | Asked::Discard(_) => {
            (Form::Empty, code::FALLOCATE, vec![0, at, len, PUNCH_HOLE | KEEP_SIZE])
        }
        Asked::Zero { may_unmap, .. } => {
            let keep = if may_unmap { KEEP_SIZE } else { 0 };
            (Form::Empty, code::FALLOCATE, vec![0, at, len, ZERO_RANGE | keep])
        }
        Asked::Flush => (Form::Empty, code::FSYNC, vec![0, 0]),
        Asked::Size => (Form::Size, code::GETATTR, vec![0, 0]),
        Asked::Status(_) | Asked::Odd(_) => unreachable!("only clients of NBD ask that"),
    }
}

impl Dialogue for Program {
    fn send(&mut self, asked: &Asked, data: &[u8]) -> io::Result<u64> {
        let (form, opcode, arguments) = encode(asked, &self.cells.range(asked.place()));
        let unique = self.kernel.send(self.node, |unique| call(opcode, unique, &arguments, data), &self.tell)?;
        self.flying.insert(unique, form);
        Ok(unique)
    }

    fn hear(&mut self) -> io::Result<(u64, Outcome)> {
        let (unique, outcome) = self.next()?;
        let form = self.flying.remove(&unique).ok_or_else(|| wrong("an answer to nothing"))?;
        let outcome = match (form, outcome) {
            (Form::Data(wanted), Ok(bytes)) if bytes.len() != wanted => return Err(wrong("a read is short")),
            (Form::Written(wanted), Ok(bytes)) if long(&bytes, 0)? != wanted as u64 => {
                return Err(wrong("a write is short"));
            }
            (Form::Size, Ok(bytes)) => Ok(long(&bytes, 24)?.to_le_bytes().to_vec()),
            (_, outcome) => outcome,
        };
        Ok((unique, outcome))
    }
}

/// Whoever is killed waits for nothing: the server is told that it may let go, and that the file is closed.
impl Drop for Program {
    fn drop(&mut self) {
        for &unique in self.flying.keys() {
            self.kernel.forget(unique);
            self.kernel.tell(0, |own| call(code::INTERRUPT, own, &[unique], &[]));
        }
        self.kernel.tell(self.node, |unique| call(code::FLUSH, unique, &[0; 3], &[]));
        self.kernel.tell(self.node, |unique| call(code::RELEASE, unique, &[0; 3], &[]));
        self.kernel.tell(0, |unique| call(BATCH_FORGET, unique, &[1, self.node, 1], &[]));
    }
}
