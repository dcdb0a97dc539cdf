//! A block device under test: the kernel is the front's client, and programs are the kernel's.
//!
//! Each request is a system call past the page cache, by a thread of its own. The kernel is told to merge none with
//! another, since an error would then be the error of both.
//!
//! Requests that a program cannot make to a block device are made of those that it can: something durable is followed
//! by a flush. What the kernel makes of requests before they reach a front is why some checks of other fronts say
//! nothing here:
//!
//! * `largest_requests_pass_with_small_ones_between_them`: the kernel cuts them.
//! * `request_that_leaves_the_disk_or_its_blocks_is_refused`: it refuses them.
//! * `zeroing_is_fast_only_where_zeros_need_not_be_written`: it asks for no zeroing that is fast or fails.
//! * `request_behind_a_failed_large_one_is_not_taken_for_it`: it sends one flush for many, and its look for partitions
//!   is the first of the reads that are counted there.
//! * `server_stops_at_the_next_chunk_of_whatever_was_asked` and
//!   `short_request_waits_for_no_more_than_a_turn_of_a_long_one`: requests of 1 GiB are cut, and reads that nobody
//!   has asked for are among the passes that are counted there.
//! * `work_for_a_client_that_is_gone_ends_soon`: the kernel does not go. A device that is taken away from it has
//!   [a check of its own](server_of_a_device_that_is_taken_away_ends_and_keeps_what_was_answered).

use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::{Buffer, Fault, Gate};
use cryptline_serve::StopHandle;
use cryptline_serve::device::EndError;
use cryptline_serve::stats::ExportStats;
use cryptline_sys::lock;
use cryptline_testkit::suite::{Fresh, Watchdog};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::common::turnstile::Turnstile;
use crate::common::wait_until;
use crate::front::client::{Ask, Client, How, Outcome, Server, Zeroing, at};

/// Hardware queues of a device.
pub const QUEUES: u16 = 2;
/// A request makes no deeper calls than a system call.
const STACK: usize = 128 << 10;

type Log = Arc<Mutex<Vec<String>>>;

/// How a front of this kind is told apart from another.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Translation by the kernel of an error of the front's.
    pub number: fn(Errno) -> Errno,
    /// Somebody else takes the device away.
    pub detach: fn(&Path),
}

/// State of a server's thread.
pub struct Serving {
    pub gate: Gate,
    pub how: How,
    pub stop: StopHandle,
    pub stats: Arc<ExportStats>,
    made: Sender<PathBuf>,
    log: Log,
}

impl Serving {
    /// The device is there.
    pub fn is_made(&self, path: PathBuf) {
        self.made.send(path).expect("somebody waits for it");
    }

    /// Takes a line of the server's.
    pub fn log(&self, line: &str) {
        lock(&self.log).push(line.to_owned());
    }
}

/// A server whose client is the kernel.
pub struct Served {
    kind: Kind,
    path: PathBuf,
    stop: StopHandle,
    stats: Arc<ExportStats>,
    log: Log,
    thread: Option<JoinHandle<Result<(), EndError>>>,
    _keep: Vec<Box<dyn Any>>,
    _watchdog: Watchdog,
}

impl Served {
    /// A server on a thread of its own: `run` makes the device, serves it, and ends.
    pub fn start(over: Fresh, how: How, kind: Kind, run: fn(&Serving) -> Result<(), EndError>) -> Self {
        let watchdog = Watchdog::start(Duration::from_secs(180));
        let stop = StopHandle::new().expect("an eventfd");
        let (made, is_made) = mpsc::channel();
        let serving = Serving {
            gate: over.gate,
            how,
            stop: stop.clone(),
            stats: ExportStats::new(true),
            made,
            log: Log::default(),
        };
        let (stats, log) = (Arc::clone(&serving.stats), Arc::clone(&serving.log));
        let thread = std::thread::spawn(move || run(&serving));
        let path = is_made.recv().expect("a device");
        Self { kind, path, stop, stats, log, thread: Some(thread), _keep: over.keep, _watchdog: watchdog }
    }

    /// Returns the folder of the kernel's files about the device.
    fn attributes(&self) -> PathBuf {
        let device = self.path.file_name().expect("a device has a name");
        Path::new("/sys/block").join(device)
    }

    fn join(&mut self) -> Result<(), EndError> {
        self.stop.stop();
        let thread = self.thread.take().expect("ended once");
        thread.join().expect("no panic")
    }
}

impl Server for Served {
    fn connect(&self) -> Box<dyn Client> {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).expect("the device");
        // Whoever opens it first waits until the partition table has been read.
        let attributes = self.attributes();
        for (name, value) in [("scheduler", "none"), ("nomerges", "2")] {
            let attribute = attributes.join("queue").join(name);
            std::fs::write(attribute, value).expect("queues have this setting");
        }
        let read_only = std::fs::read_to_string(attributes.join("ro")).expect("0 or 1");
        Box::new(Program {
            is_read_only: read_only.trim() == "1",
            file: Arc::new(file),
            kind: self.kind,
            marks: 0,
            answers: mpsc::channel(),
        })
    }

    fn connections(&self) -> usize {
        self.stats.snapshot().connections
    }

    fn stop(&self) {
        self.stop.stop();
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    fn end(mut self: Box<Self>) -> Result<(), Fault> {
        match self.join() {
            Ok(()) => Ok(()),
            Err(EndError::Flush(fault)) => Err(fault),
            Err(other) => panic!("{other}"),
        }
    }

    fn has(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Read(_) | Ask::Write { .. } | Ask::Flush => true,
            Ask::Discard { durable, .. } => !durable,
            Ask::Zero(_, how) => !how.durable,
            Ask::Cache(_) => false,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop();
        if let (Some(thread), false) = (self.thread.take(), std::thread::panicking()) {
            drop(thread.join());
        }
    }
}

/// How a request ended, by its mark.
type Answer = (u64, Outcome);

/// A program that has the device open.
struct Program {
    file: Arc<OwnedFd>,
    is_read_only: bool,
    kind: Kind,
    marks: u64,
    answers: (Sender<Answer>, Receiver<Answer>),
}

impl Client for Program {
    fn send(&mut self, asks: &[Ask]) -> Vec<u64> {
        let mut marks = Vec::new();
        for ask in asks {
            self.marks += 1;
            marks.push(self.marks);
            let (ask, mark) = (ask.clone(), self.marks);
            let (file, answers) = (Arc::clone(&self.file), self.answers.0.clone());
            let thread = std::thread::Builder::new().stack_size(STACK);
            let carry_out = move || {
                let outcome = carry_out(&file, &ask);
                // A device is gone only once nobody has it open.
                drop(file);
                let _ = answers.send((mark, outcome));
            };
            thread.spawn(carry_out).expect("a thread");
        }
        marks
    }

    fn answer(&mut self) -> (u64, Outcome) {
        let answer = self.answers.1.recv_timeout(Duration::from_secs(120));
        answer.expect("an answer in time")
    }

    fn unspeakable(&mut self, ask: &Ask) -> Option<Outcome> {
        // The kernel asks no such device for that.
        let is_refused = self.is_read_only && matches!(ask, Ask::Discard { .. });
        is_refused.then_some(Err(Errno::PERM))
    }

    fn number(&self, error: Errno) -> Errno {
        (self.kind.number)(error)
    }

    fn knows_fast_zeroing(&self) -> bool {
        false
    }

    fn wait_until_cut_off(&mut self) {
        let read = Ask::Read(at(0, 4096));
        wait_until("the device has gone", || carry_out(&self.file, &read).is_err());
    }
}

fn carry_out(file: &OwnedFd, ask: &Ask) -> Outcome {
    let range = ask.range();
    let (offset, len) = (range.offset, u64::from(range.len));
    match ask {
        Ask::Read(_) => {
            let mut buffer = Buffer::alloc(range.len as usize).expect("memory");
            let count = rustix::io::pread(file, &mut *buffer, offset)?;
            if count == 0 && !buffer.is_empty() {
                // A device that has gone has no bytes.
                return Err(Errno::NODEV);
            }
            assert_eq!(count, buffer.len(), "all of it or an error");
            return Ok(buffer.to_vec());
        }
        Ask::Write { data, durable, .. } => {
            let mut buffer = Buffer::alloc(data.len()).expect("memory");
            buffer.copy_from_slice(data);
            let flags = if *durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let slices = [std::io::IoSlice::new(&buffer)];
            let count = rustix::io::pwritev2(file, &slices, offset, flags)?;
            assert_eq!(count, data.len(), "all of it or an error");
        }
        Ask::Zero(_, how) => zero(file, offset, len, *how)?,
        Ask::Discard { durable, .. } => {
            match cryptline_sys::discard_blocks(file, offset, len) {
                // Advice.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {}
                done => done.map_err(|error| Errno::from_io_error(&error).expect("a number"))?,
            }
            if *durable {
                rustix::fs::fdatasync(file)?;
            }
        }
        Ask::Flush => rustix::fs::fdatasync(file)?,
        Ask::Cache(_) => {}
    }
    Ok(vec![])
}

fn zero(file: &OwnedFd, offset: u64, len: u64, how: Zeroing) -> Result<(), Errno> {
    let fill = || rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, offset, len);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zeroed = if how.may_unmap { rustix::fs::fallocate(file, hole, offset, len) } else { Err(Errno::OPNOTSUPP) };
    match zeroed {
        Err(Errno::OPNOTSUPP) => fill()?,
        zeroed => zeroed?,
    }
    if how.durable {
        rustix::fs::fdatasync(file)?;
    }
    Ok(())
}

/// Somebody else takes the device away while requests are under way.
pub fn server_of_a_device_that_is_taken_away_ends_and_keeps_what_was_answered(start: fn(Fresh, How) -> Served) {
    const READS: usize = 4;
    for backend in crate::front::checks::backends() {
        let disk = Turnstile::new(1 << 30);
        disk.let_pass(u64::MAX);
        let grace = Duration::from_millis(500);
        let server = Box::new(start(disk.stack(), How { backend, grace }));
        let mut client = server.connect();
        client.write(0, &[1; 4096]).expect("written");
        disk.take_back();
        client.send(&vec![Ask::Read(at(0, 4096)); READS]);
        disk.wait_for(disk.passed());
        let (path, detach) = (server.path.clone(), server.kind.detach);
        let other = std::thread::spawn(move || detach(&path));
        disk.let_pass(u64::MAX);
        wait_until("the server has noticed", || server.is_over());
        other.join().expect("it can be taken away");
        // All of them are answered, whichever way.
        assert_eq!(client.answers(READS).len(), READS);
        client.run(Ask::Read(at(0, 4096))).expect_err("it is gone");
        assert!(disk.flushes() > 0, "what was written is safe");
        drop(client);
        assert_eq!(server.end(), Ok(()));
    }
}
