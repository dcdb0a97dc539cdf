//! A mount of all disks that have this door: the server, and the kernel that it speaks with.
//!
//! ```text
//! programs ─► Kernel ─► one socket that keeps messages apart ─► lanes     whichever of them is the first takes a message
//!    ▲          │
//!    └─ answers ┘
//! ```

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use cryptline_serve::StopHandle;
use cryptline_serve::fuse::{FuseOptions, FuseSession, MountedOver, Nodes};
use cryptline_serve::stats::ExportStats;
use cryptline_testkit::fuse::{about, first_word, sockets};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, sockopt};

use crate::history::Door;
use crate::program::PATIENCE;
use crate::run::{GRACE, Play};
use crate::serving::Running;
use crate::sim;
use crate::world::World;

/// Bytes of the longest answer: a header, and all of a disk.
const ANSWER_MAX: usize = 64 << 10;

/// An answer: to which message, and what it says.
pub type Answer = (u64, Result<Vec<u8>, Errno>);

/// The kernel's side.
pub struct Kernel {
    socket: OwnedFd,
    world: Arc<World>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    unique: u64,
    /// Programs that wait for the answer to a message.
    asked: HashMap<u64, mpsc::Sender<Answer>>,
    /// Messages whose answers nobody waits for any more.
    forgotten: HashSet<u64>,
    is_gone: bool,
}

impl Kernel {
    fn new(socket: OwnedFd, world: &Arc<World>) -> io::Result<Self> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        rustix::net::send(&socket, &first_word(), SendFlags::NOSIGNAL)?;
        Ok(Self { socket, world: Arc::clone(world), table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message about a node, which `message` makes of its number. `to` gets the answer.
    pub fn send(&self, node: u64, message: impl FnOnce(u64) -> Vec<u8>, to: &mpsc::Sender<Answer>) -> io::Result<u64> {
        let unique = self.next(Some(to))?;
        let sent = rustix::net::send(&self.socket, &about(node, message(unique)), SendFlags::NOSIGNAL);
        if let Err(error) = sent {
            self.table().asked.remove(&unique);
            return Err(error.into());
        }
        Ok(unique)
    }

    /// The number of the next message.
    fn next(&self, to: Option<&mpsc::Sender<Answer>>) -> io::Result<u64> {
        let mut table = self.table();
        if table.is_gone {
            return Err(io::ErrorKind::NotConnected.into());
        }
        table.unique += 2;
        let unique = table.unique;
        match to {
            Some(to) => _ = table.asked.insert(unique, to.clone()),
            None => _ = table.forgotten.insert(unique),
        }
        Ok(unique)
    }

    /// Sends a message of whose answer nobody wants to hear, unless there is no room for it.
    pub fn tell(&self, node: u64, message: impl FnOnce(u64) -> Vec<u8>) {
        let Ok(unique) = self.next(None) else { return };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.socket, &about(node, message(unique)), flags);
    }

    /// Nobody waits for the answer to a message any more.
    pub fn forget(&self, unique: u64) {
        let mut table = self.table();
        if table.asked.remove(&unique).is_some() {
            table.forgotten.insert(unique);
        }
    }

    /// Hands answers over until the server has gone.
    pub fn serve(&self) {
        let mut message = vec![0; ANSWER_MAX];
        while let Ok((len, _)) = rustix::net::recv(&self.socket, &mut message[..], RecvFlags::empty())
            && len > 0
        {
            self.answered(&message[..len]);
        }
        let mut table = self.table();
        table.is_gone = true;
        table.asked.clear();
    }

    fn answered(&self, message: &[u8]) {
        let word = |at: usize| i32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"));
        let unique = u64::from_ne_bytes(message[8..16].try_into().expect("eight bytes"));
        if usize::try_from(word(0)) != Ok(message.len()) {
            self.world.find(format!("A3: an answer of {} bytes says it has {}", message.len(), word(0)));
        }
        let error = -word(4);
        let outcome = if error == 0 { Ok(message[16..].to_vec()) } else { Err(Errno::from_raw_os_error(error)) };
        let mut table = self.table();
        if let Some(to) = table.asked.remove(&unique) {
            drop(table);
            // Whoever has gone has forgotten it just now.
            let _ = to.send((unique, outcome));
        } else if !table.forgotten.remove(&unique) && unique != 1 {
            drop(table);
            self.world.find(format!("A3: an answer to message {unique}, which nobody has sent, or a second one"));
        }
    }

    /// The mount ends, whoever uses it.
    pub fn cut_off(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl Play<'_> {
    /// Mounts all disks that have this door; `None` where none has.
    pub fn serve_mount(&self) -> Result<Option<(Arc<Kernel>, Running)>, String> {
        let numbers = self.history.behind(Door::Mount);
        if numbers.is_empty() {
            return Ok(None);
        }
        let mut nodes: Option<Nodes> = None;
        for number in &numbers {
            let (gate, name) = (self.laid.open_in_bytes(*number)?, format!("e{number}"));
            match &mut nodes {
                Some(nodes) => nodes.add(&gate, &name, "a disk\n"),
                None => nodes = Some(Nodes::new(MountedOver::Folder, &gate, &name, "a disk\n", false)),
            }
        }
        let nodes = Arc::new(nodes.expect("one at least"));
        let failed = |error: io::Error| error.to_string();
        let (ours, theirs, _) = sockets();
        let kernel = Arc::new(Kernel::new(ours, self.world).map_err(failed)?);
        let chance = sim::mix(&[self.history.seed, 111]);
        let clones = (0..chance % 2).map(|_| theirs.try_clone()).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let descriptors = std::iter::once(theirs).chain(clones).collect();
        let (world, cut) = (Arc::clone(self.world), Arc::clone(&kernel));
        let options = FuseOptions {
            backend: self.laid.disks.media.backend(),
            poll: self.poll(),
            cached: false,
            queues: None,
            grace: GRACE,
            stats: numbers.iter().map(|_| ExportStats::new(false)).collect(),
            log: Box::new(move |line| world.say(|| format!("mount: {line}"))),
            cut_off: Box::new(move || cut.cut_off()),
        };
        let session = FuseSession::start(&nodes, descriptors, options).map_err(|error| error.to_string())?;
        drop(nodes);
        let stop = StopHandle::new().map_err(failed)?;
        let stopped = stop.clone();
        let serve = move || {
            let waited = session.wait(&stopped);
            let flushed = session.finish();
            waited.map(|()| flushed)
        };
        let thread = std::thread::Builder::new().name("mount".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Some((kernel, Running { thread, stop, exports: numbers })))
    }

    /// Cuts the mount off, as its history wants it.
    pub fn cut_off(&self, kernel: &Kernel) {
        let Some(at) = self.history.cut_off else { return };
        std::thread::sleep(at);
        {
            let mut world = self.world.lock();
            if world.is_stopping {
                return;
            }
            world.say("the mount is cut off".to_owned());
            (world.is_stopping, world.is_cut_off) = (true, true);
        }
        kernel.cut_off();
    }
}
