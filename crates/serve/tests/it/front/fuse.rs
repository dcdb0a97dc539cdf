//! FUSE as a front under test, with a kernel of our own: it speaks over a socket that keeps messages apart, as
//! `/dev/fuse` does. No mount is needed.
//!
//! As the kernel does, it cuts large requests, and asks for durable zeroing in two. What FUSE has no call for is made
//! of what it has: a discard is a hole.

mod crowded;
mod growth;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_engine::base::DirectMode;
use cryptline_engine::{BackendChoice, Fault, Gate};
use cryptline_serve::fuse::{FuseSession, MountedOver, Nodes};
use cryptline_serve::stats::ExportStats;
use cryptline_sys::lock;
use cryptline_testkit::fuse::about;
use cryptline_testkit::scripted::{Call, Silent};
use cryptline_testkit::suite::{Fresh, Watchdog};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::common::fuse::{self, READ, WRITE};
use crate::common::{stack, wait_until};
use crate::front::client::{Ask, Client, How, Outcome, Server};

/// Bytes of one read or write: more than fit into one buffer of the server's.
const PIECE: usize = 320 << 10;
/// The same, where sockets take no more.
const PIECE_SMALL: usize = 64 << 10;
const GETATTR: u32 = 3;
const FSYNC: u32 = 20;
const LSEEK: u32 = 46;
const FALLOCATE: u32 = 43;
/// A write with this flag has no flush behind it: past the page cache, the kernel leaves that to the server.
const O_DSYNC: u64 = OFlags::DSYNC.bits() as u64;

type Sessions = Arc<Mutex<Vec<FuseSession>>>;

struct Fuse {
    gate: Gate,
    how: How,
    sessions: Sessions,
    log: Arc<Mutex<Vec<String>>>,
    is_stopping: AtomicBool,
    ending: Mutex<Option<JoinHandle<Result<(), Fault>>>>,
    _keep: Vec<Box<dyn std::any::Any>>,
    _watchdog: Watchdog,
}

/// A session for each client.
pub fn sockets(over: Fresh, how: How) -> Box<dyn Server> {
    Box::new(Fuse {
        gate: over.gate,
        how,
        sessions: Sessions::default(),
        log: Arc::default(),
        is_stopping: AtomicBool::new(false),
        ending: Mutex::default(),
        _keep: over.keep,
        _watchdog: Watchdog::start(Duration::from_secs(180)),
    })
}

impl Server for Fuse {
    fn connect(&self) -> Box<dyn Client> {
        let (ours, theirs, can_grow) = fuse::sockets();
        let piece = if can_grow { PIECE } else { PIECE_SMALL };
        let cut = theirs.try_clone().expect("a second handle");
        let log = Arc::clone(&self.log);
        let options = fuse::options(
            self.how.backend,
            self.how.grace,
            move |line| lock(&log).push(line.to_owned()),
            move || {
                let _ = rustix::net::shutdown(&cut, Shutdown::Both);
            },
        );
        let session = fuse::session(&self.gate, &ours, theirs, options);
        lock(&self.sessions).push(session);
        Box::new(Kernel::new(ours, self.gate.geometry().size, piece))
    }

    fn connections(&self) -> usize {
        let sessions = lock(&self.sessions);
        let live = sessions.iter().filter(|it| !it.is_over());
        live.count()
    }

    fn stop(&self) {
        if self.is_stopping.swap(true, Ordering::Relaxed) {
            return;
        }
        let sessions = Arc::clone(&self.sessions);
        let gate = self.gate.clone();
        let How { backend, grace } = self.how;
        *lock(&self.ending) = Some(std::thread::spawn(move || {
            let sessions = std::mem::take(&mut *lock(&sessions));
            if sessions.is_empty() {
                return cryptline_serve::flush_all([("", &gate)], backend, grace).map_err(|(_, fault)| fault);
            }
            let ended = sessions.into_iter().map(|it| it.finish());
            // All of them, even after one has failed.
            let ended: Vec<_> = ended.collect();
            ended.into_iter().collect::<Result<(), _>>().map_err(|(_, fault)| fault)
        }));
    }

    fn is_over(&self) -> bool {
        let ending = lock(&self.ending);
        ending.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    fn end(self: Box<Self>) -> Result<(), Fault> {
        self.stop();
        wait_until("it has stopped", || self.is_over());
        let ending = lock(&self.ending).take();
        ending.expect("stopped").join().expect("no panic")
    }

    fn has(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Read(_) | Ask::Write { .. } | Ask::Flush => true,
            Ask::Zero(_, how) => !how.durable,
            Ask::Cache(_) | Ask::Discard { .. } => false,
        }
    }

    fn takes_one_at_a_time(&self) -> bool {
        true
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// The kernel's side, and the programs above it.
struct Kernel {
    socket: OwnedFd,
    size: u64,
    piece: usize,
    unique: u64,
    marks: u64,
    to_send: VecDeque<Vec<u8>>,
    /// By the number of the message: whose, and where in its data.
    sent: HashMap<u64, (u64, usize)>,
    under_way: HashMap<u64, Progress>,
    ended: VecDeque<(u64, Outcome)>,
    message: Vec<u8>,
}

/// How far a request is.
struct Progress {
    data: Vec<u8>,
    messages: usize,
    error: Option<Errno>,
    /// A flush is to follow.
    owes_flush: bool,
    is_advice: bool,
}

impl Kernel {
    /// The kernel of a session of a disk, which has nothing to complain of.
    fn of(gate: &Gate, (ours, theirs, _): (OwnedFd, OwnedFd, bool), piece: usize) -> (Self, FuseSession) {
        let options = fuse::options(Default::default(), Duration::from_secs(5), |line| panic!("{line}"), || ());
        let session = fuse::session(gate, &ours, theirs, options);
        (Self::new(ours, gate.size(), piece), session)
    }

    fn new(socket: OwnedFd, size: u64, piece: usize) -> Self {
        let flags = rustix::fs::fcntl_getfl(&socket).expect("flags");
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK).expect("flags");
        Self {
            socket,
            size,
            piece,
            unique: 0,
            marks: 0,
            to_send: VecDeque::new(),
            sent: HashMap::new(),
            under_way: HashMap::new(),
            ended: VecDeque::new(),
            message: vec![0; 16 + PIECE],
        }
    }

    fn post(&mut self, mark: u64, at: usize, opcode: u32, arguments: &[u64], data: &[u8]) {
        self.unique += 2;
        let message = fuse::call(opcode, self.unique, arguments, data);
        self.to_send.push_back(message);
        self.sent.insert(self.unique, (mark, at));
        let progress = self.under_way.get_mut(&mark).expect("under way");
        progress.messages += 1;
    }

    fn begin(&mut self, ask: &Ask) -> u64 {
        self.marks += 1;
        let mark = self.marks;
        let range = ask.range();
        let (offset, len) = (range.offset, range.len as usize);
        let mut progress = Progress {
            data: Vec::new(),
            messages: 0,
            error: None,
            owes_flush: false,
            is_advice: matches!(ask, Ask::Discard { .. }),
        };
        // Of a change that crosses the end, a file takes the part that fits. That is another test's business.
        let crosses = offset < self.size && len as u64 > self.size - offset;
        let is_cut = crosses && matches!(ask, Ask::Write { .. } | Ask::Discard { .. });
        if is_cut || matches!(ask, Ask::Cache(_)) {
            let outcome = if crosses { Err(Errno::NOSPC) } else { Ok(vec![]) };
            self.ended.push_back((mark, outcome));
            return mark;
        }
        match ask {
            Ask::Read(_) => progress.data.resize(len, 0xee),
            Ask::Discard { durable, .. } => progress.owes_flush = *durable,
            Ask::Zero(_, how) => progress.owes_flush = how.durable,
            Ask::Write { .. } | Ask::Cache(_) | Ask::Flush => {}
        }
        self.under_way.insert(mark, progress);
        let piece = self.piece;
        let pieces = (0..len.div_ceil(piece).max(1)).map(|index| {
            let start = index * piece;
            (start, offset.wrapping_add(start as u64), piece.min(len - start))
        });
        match ask {
            Ask::Read(_) => pieces.for_each(|(start, at, len)| {
                self.post(mark, start, READ, &[0, at, len as u64, 0, 0], &[]);
            }),
            Ask::Write { data, durable, .. } => pieces.for_each(|(start, at, len)| {
                let data = &data[start..start + len];
                let flags = if *durable { O_DSYNC } else { 0 };
                self.post(mark, start, WRITE, &[0, at, len as u64, 0, flags], data);
            }),
            Ask::Zero(_, how) => {
                let mode = if how.fast { 3 } else { 16 };
                self.post(mark, 0, FALLOCATE, &[0, offset, len as u64, mode], &[]);
            }
            Ask::Discard { .. } => {
                self.post(mark, 0, FALLOCATE, &[0, offset, len as u64, 3], &[]);
            }
            Ask::Flush => self.post(mark, 0, FSYNC, &[0, 0], &[]),
            Ask::Cache(_) => unreachable!("answered above"),
        }
        mark
    }

    /// Takes an answer in.
    fn hear(&mut self, len: usize) {
        let word = |at: usize| u32::from_ne_bytes(self.message[at..at + 4].try_into().unwrap());
        let unique = u64::from_ne_bytes(self.message[8..16].try_into().unwrap());
        assert_eq!(word(0) as usize, len);
        let errno = word(4).cast_signed();
        let (mark, at) = self.sent.remove(&unique).expect("answered once");
        let progress = self.under_way.get_mut(&mark).expect("under way");
        progress.messages -= 1;
        let errno = (errno != 0).then(|| Errno::from_raw_os_error(-errno));
        if let Some(errno) = errno {
            assert_eq!(len, 16, "an error has no data");
            let is_advice = progress.is_advice && errno == Errno::OPNOTSUPP;
            if !is_advice {
                progress.error.get_or_insert(errno);
            }
        } else if !progress.data.is_empty() {
            let data = &self.message[16..len];
            let wanted = self.piece.min(progress.data.len() - at);
            if data.len() < wanted {
                progress.error.get_or_insert(Errno::INVAL);
            }
            progress.data[at..at + data.len()].copy_from_slice(data);
        }
        if progress.messages > 0 {
            return;
        }
        if progress.error.is_none() && std::mem::take(&mut progress.owes_flush) {
            progress.is_advice = false;
            return self.post(mark, 0, FSYNC, &[0, 0], &[]);
        }
        let Progress { data, error, .. } = self.under_way.remove(&mark).expect("under way");
        self.ended.push_back((mark, error.map_or(Ok(data), Err)));
    }

    /// Sends what is first; `false` where it must wait.
    fn send_one(&mut self) -> bool {
        let Some(message) = self.to_send.front() else {
            return false;
        };
        match rustix::net::send(&self.socket, message, SendFlags::NOSIGNAL) {
            Ok(len) => {
                assert_eq!(len, message.len());
                self.to_send.pop_front();
                true
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => false,
            // The server has gone, which the next answer will show.
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.to_send.clear();
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The next answer, after so many messages as can be sent; `None` where the server has gone.
    fn receive_one(&mut self) -> Option<usize> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.message[..], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return None,
                Ok((len, _)) => return Some(len),
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
            if !self.send_one() {
                self.wait();
            }
        }
    }

    fn wait(&self) {
        let out = if self.to_send.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN | out)];
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_ne!(rustix::event::poll(&mut watched, Some(&limit)), Ok(0), "no answer in time");
    }
}

impl Client for Kernel {
    fn send(&mut self, asks: &[Ask]) -> Vec<u64> {
        let marks = asks.iter().map(|ask| self.begin(ask)).collect();
        while !self.to_send.is_empty() {
            if self.send_one() {
                continue;
            }
            // The server may be waiting for its answers to be read.
            match rustix::net::recv(&self.socket, &mut self.message[..], RecvFlags::empty()) {
                Ok((len, _)) if len > 0 => self.hear(len),
                _ => self.wait(),
            }
        }
        marks
    }

    fn answer(&mut self) -> (u64, Outcome) {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return ended;
            }
            let len = self.receive_one().expect("the server answers");
            self.hear(len);
        }
    }

    fn wait_until_cut_off(&mut self) {
        while self.receive_one().is_some() {}
    }
}

/// The number of the error that answers a message, 0 for none.
fn answer_to(kernel: &mut Kernel, message: Vec<u8>) -> i32 {
    kernel.to_send.push_back(message);
    assert!(kernel.receive_one().expect("an answer") >= 16);
    -i32::from_ne_bytes(kernel.message[4..8].try_into().unwrap())
}

/// One attribute, by its bit.
fn set_attributes(valid: u64, value: u64) -> Vec<u8> {
    let high = value << 32;
    fuse::call(4, 2, &[valid, 0, 0, 0, 0, 0, 0, 0, high, high, value], &[])
}

#[test]
fn answer_that_cannot_be_written_is_a_failure_and_the_next_one_is_written() {
    let over = stack::crypt_over_ram(4 << 20);
    let sockets = fuse::sockets();
    rustix::net::sockopt::set_socket_send_buffer_size(&sockets.1, 64 << 10).expect("a small one");
    let (mut kernel, session) = Kernel::of(&over.gate, sockets, PIECE);
    let client: &mut dyn Client = &mut kernel;
    for _ in 0..3 {
        assert_eq!(client.run(Ask::Read(crate::front::client::at(0, 300 << 10))), Err(Errno::IO));
        assert_eq!(client.read(0, 4096).len(), 4096);
    }
    drop(kernel);
    session.finish().expect("flushed");
}

#[test]
fn calls_that_make_no_sense_are_refused_and_the_next_one_is_served() {
    let over = stack::crypt_over_ram(4 << 20);
    let (ours, theirs, _) = fuse::sockets();
    let mut options = fuse::options(Default::default(), Duration::from_secs(5), |line| panic!("{line}"), || ());
    let stats = ExportStats::new(true);
    options.stats = vec![Arc::clone(&stats)];
    let session = fuse::session(&over.gate, &ours, theirs, options);
    let mut kernel = Kernel::new(ours, over.gate.size(), PIECE_SMALL);
    let huge = u64::from(u32::MAX);
    for (message, errno) in [
        (fuse::call(4711, 2, &[0; 5], &[]), Errno::NOSYS),
        (fuse::call(36, 2, &[4], &[]), Errno::NOSYS),
        (fuse::call(39, 2, &[0; 4], &[]), Errno::NOTTY),
        // Another mode, owner and group than those that it has.
        (set_attributes(1, 0o100_777), Errno::PERM),
        (set_attributes(2, 4_711_000), Errno::PERM),
        (set_attributes(4, 4_711_000), Errno::PERM),
        (fuse::call(35, 2, &[0; 2], b"name\0"), Errno::PERM),
        (fuse::call(READ, 2, &[0, 0, huge, 0, 0], &[]), Errno::INVAL),
        (fuse::call(READ, 2, &[0, 0, 0, 0, 0], &[]), Errno::INVAL),
        (fuse::call(READ, 2, &[0, 0], &[]), Errno::INVAL),
        (fuse::call(WRITE, 2, &[0, 0, 4096, 0, 0], &[1; 4095]), Errno::INVAL),
        (fuse::call(WRITE, 2, &[0, u64::MAX, 512, 0, 0], &[1; 512]), Errno::NOSPC),
        (fuse::call(FALLOCATE, 2, &[0, 0, 4096, 0], &[]), Errno::OPNOTSUPP),
        (fuse::call(FALLOCATE, 2, &[0, 512, u64::MAX, 16], &[]), Errno::INVAL),
        (fuse::call(46, 2, &[0, u64::MAX, 3], &[]), Errno::NXIO),
        (fuse::call(46, 2, &[0, 0, 77], &[]), Errno::INVAL),
        (fuse::call(1, 2, &[], b"disk\0"), Errno::NOTDIR),
        (fuse::call(28, 2, &[0, 0, 4096, 0, 0], &[]), Errno::INVAL),
    ] {
        let number = i32::from_le_bytes(message[4..8].try_into().unwrap());
        let expected = errno.raw_os_error();
        assert_eq!(answer_to(&mut kernel, message), expected, "call {number}");
    }
    // Requests to the disk have failed; other calls are none.
    assert_eq!(stats.snapshot().operations.map(|totals| totals.errors), [2, 3, 0, 0]);
    // The mode that it has, and a time.
    for (valid, value) in [(1, 0o100_600), (1 << 4, 0)] {
        assert_eq!(answer_to(&mut kernel, set_attributes(valid, value)), 0);
    }
    let mut elsewhere = fuse::call(3, 2, &[0; 2], &[]);
    elsewhere[16..24].copy_from_slice(&99_u64.to_ne_bytes());
    assert_eq!(answer_to(&mut kernel, elsewhere), Errno::STALE.raw_os_error());
    let mut longer = fuse::call(3, 2, &[0; 2], &[]);
    longer[0] += 1;
    assert_eq!(answer_to(&mut kernel, longer), Errno::INVAL.raw_os_error());
    // Too short to be answered, and what wants no answer.
    for message in [vec![0; 39], vec![1], fuse::call(2, 2, &[1], &[])] {
        kernel.to_send.push_back(message);
    }
    let client: &mut dyn Client = &mut kernel;
    assert_eq!(client.read(0, 4096).len(), 4096);
    drop(kernel);
    session.finish().expect("flushed");
}

#[test]
fn disk_that_hangs_keeps_no_other_of_its_session_waiting() {
    const SIZE: u64 = 1 << 20;
    const SEEK_HOLE: u64 = 4;
    for backend in [BackendChoice::Syscalls, BackendChoice::Auto] {
        let (hung, well) = (Silent::new(SIZE), stack::VolatileDisk::new(1 << 20));
        let [one, two] = [Fresh::new(hung.gate()), well.stack()];
        let mut nodes = Nodes::new(MountedOver::Folder, &one.gate, "one", "", false);
        nodes.add(&two.gate, "two", "");
        let (ours, theirs, _) = fuse::sockets();
        let mut options = fuse::options(backend, Duration::from_millis(50), |_| (), || ());
        options.stats = [(); 2].map(|()| ExportStats::new(false)).to_vec();
        let session = fuse::session_of(nodes, &ours, theirs, options);
        let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
        hung.fall_silent(&Call::ALL);
        // What is asked of the medium is not answered; and its facts are the last that were known.
        for (number, message) in (1..).zip([
            fuse::call(READ, 2, &[0, 0, 4096, 0, 0], &[]),
            fuse::call(WRITE, 4, &[0, 0, 4096, 0, 0], &[1; 4096]),
            fuse::call(FSYNC, 6, &[0, 0], &[]),
        ]) {
            kernel.to_send.push_back(message);
            assert!(kernel.send_one());
            wait_until("it has been asked", || hung.taken() == number);
        }
        for _ in 0..2 {
            assert_eq!(answer_to(&mut kernel, fuse::call(GETATTR, 8, &[0, 0], &[])), 0);
            assert_eq!(answer_to(&mut kernel, fuse::call(LSEEK, 10, &[0, 4096, SEEK_HOLE], &[])), 0);
            assert_eq!(kernel.message[16..24], SIZE.to_ne_bytes(), "all of it may be data");
        }
        for message in [
            fuse::call(WRITE, 2, &[0, 0, 4096, 0, 0], &[7; 4096]),
            fuse::call(READ, 2, &[0, 0, 4096, 0, 0], &[]),
            fuse::call(GETATTR, 2, &[0, 0], &[]),
            fuse::call(LSEEK, 2, &[0, 4096, SEEK_HOLE], &[]),
        ] {
            assert_eq!(answer_to(&mut kernel, about(4, message)), 0);
        }
        assert_eq!(session.finish(), Err(("one".to_owned(), cryptline_serve::UNANSWERED)));
        assert_eq!(well.stable()[..4096], [7; 4096], "the other is flushed");
    }
}

#[test]
fn mount_that_is_cut_off_is_over_though_a_medium_never_answers() {
    const SIZE: u64 = 1 << 20;
    for backend in [BackendChoice::Syscalls, BackendChoice::Auto] {
        let hung = Silent::new(SIZE);
        let stack = Fresh::new(hung.gate());
        let (ours, theirs, _) = fuse::sockets();
        let options = fuse::options(backend, Duration::from_millis(50), |_| (), || ());
        let session = fuse::session(&stack.gate, &ours, theirs, options);
        let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
        hung.fall_silent(&Call::ALL);
        kernel.to_send.push_back(fuse::call(WRITE, 2, &[0, 0, 4096, 0, 0], &[1; 4096]));
        assert!(kernel.send_one());
        wait_until("it has been asked", || hung.taken() == 1);
        assert!(!session.is_over());
        drop(kernel);
        wait_until("it is over", || session.is_over());
        assert_eq!(session.finish(), Err(("disk".to_owned(), cryptline_serve::UNANSWERED)));
    }
}

#[test]
fn disks_of_one_session_have_data_counts_and_failures_of_their_own() {
    const SIZE: u64 = 4 << 20;
    for backend in [BackendChoice::Syscalls, BackendChoice::Auto] {
        let [(one, _), (two, path)] = [(); 2].map(|()| stack::file_at(SIZE, DirectMode::Off, false));
        let mut nodes = Nodes::new(MountedOver::Folder, &one.gate, "one", "", false);
        nodes.add(&two.gate, "two", "");
        let (ours, theirs, _) = fuse::sockets();
        let grace = Duration::from_secs(5);
        let mut options = fuse::options(backend, grace, |line| panic!("{line}"), || ());
        let stats = [(); 2].map(|()| ExportStats::new(true));
        options.stats = stats.to_vec();
        let session = fuse::session_of(nodes, &ours, theirs, options);
        let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
        let at = SIZE - 8192;
        let write = |node, byte| {
            let message = fuse::call(WRITE, 2, &[0, at, 4096, 0, 0], &[byte; 4096]);
            about(node, message)
        };
        let read = |node| about(node, fuse::call(READ, 2, &[0, at, 4096, 0, 0], &[]));
        let flush = |node| about(node, fuse::call(FSYNC, 2, &[0, 0], &[]));
        for (node, byte) in [(2, 1), (4, 2)] {
            assert_eq!(answer_to(&mut kernel, write(node, byte)), 0);
        }
        for (node, byte) in [(2, 1), (4, 2)] {
            assert_eq!(answer_to(&mut kernel, read(node)), 0);
            assert_eq!(kernel.message[16..][..4096], [byte; 4096]);
            assert_eq!(answer_to(&mut kernel, flush(node)), 0);
        }
        // The second loses its end, and with it every promise; the first does not notice.
        let cut = std::fs::OpenOptions::new().write(true).open(path);
        cut.and_then(|file| file.set_len(4096)).expect("cut");
        let lost = Errno::IO.raw_os_error();
        for message in [read(4), write(4, 3), flush(4)] {
            assert_eq!(answer_to(&mut kernel, message), lost);
        }
        for message in [write(2, 5), flush(2), read(2)] {
            assert_eq!(answer_to(&mut kernel, message), 0);
        }
        assert_eq!(kernel.message[16..][..4096], [5; 4096]);
        assert_eq!(session.finish().expect_err("one of them").0, "two");
        let written = stats.map(|it| it.snapshot().operations[1].bytes);
        assert_eq!(written, [8192, 4096]);
    }
}
