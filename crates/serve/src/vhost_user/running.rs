//! A virtqueue that runs: a thread with a lane of its own.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Gate, OpenError};
use cryptline_sys::lock;

use super::config::SERIAL;
use super::connection::FrontEndConnection;
use super::mailbox::{LOOK, Letter, Mailbox};
use super::queue::{PackedRing, SplitRing, Virtqueue};
use super::wire::{LogFn, VirtqueueStart, VringWire};
use crate::facts::Facts;
use crate::lane::{Lane, Poll, Tally};
use crate::net::{StopHandle, is_stopped_within};
use crate::stats::ExportStats;

/// How long a queue may take to end once it is to leave its requests alone.
const LAST: Duration = Duration::from_secs(1);

/// Common state of the queues of one disk.
pub(super) struct Host {
    pub gate: Gate,
    pub facts: Arc<Facts>,
    pub serial: [u8; SERIAL],
    pub stats: Arc<ExportStats>,
    pub backend: BackendChoice,
    pub poll: Poll,
    pub connection: FrontEndConnection,
    pub grace: Arc<Grace>,
    /// Work of the queues that have ended.
    pub tally: Arc<Mutex<Tally>>,
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Host {
    /// Bytes of the disk, which may have grown.
    pub fn size(&self) -> u64 {
        self.facts.size_of(&self.gate)
    }

    /// Takes the reason why a queue ends.
    pub fn log_of(&self, index: usize) -> LogFn {
        let log = Arc::clone(&self.log);
        Box::new(move |why| log(&format!("queue {index} ends: {why}")))
    }

    /// Tells if nobody waits for a queue any longer that does not answer.
    fn is_done_waiting(&self) -> bool {
        self.grace.is_over() || self.connection.is_gone()
    }
}

/// How long requests may take once the server stops: until the same moment for all of its disks and queues.
pub(super) struct Grace {
    stop: StopHandle,
    length: Duration,
    end: OnceLock<Instant>,
}

impl Grace {
    pub fn new(stop: &StopHandle, length: Duration) -> Self {
        let (stop, end) = (stop.clone(), OnceLock::new());
        Self { stop, length, end }
    }

    fn is_stopping(&self) -> bool {
        is_stopped_within(&self.stop, Some(Duration::ZERO))
    }

    fn is_over(&self) -> bool {
        let end = || Instant::now() + self.length;
        self.is_stopping() && Instant::now() >= *self.end.get_or_init(end)
    }
}

pub(super) struct RunningQueue {
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

impl RunningQueue {
    /// Starts a queue's thread. Its ring is served when this returns, or the error says why not.
    pub fn start(host: &Host, index: usize, start: VirtqueueStart) -> io::Result<Self> {
        let mailbox = Arc::clone(&start.mailbox);
        mailbox.set_base(start.layout.base);
        let (gate, stats, tally) = (host.gate.clone(), Arc::clone(&host.stats), Arc::clone(&host.tally));
        let (how, log) = ((host.backend, host.poll), host.log_of(index));
        let end = EndOnDrop(Arc::clone(&mailbox));
        let serve = move || {
            let end = end;
            let _stack = cryptline_sys::StackGuard::new();
            let serve = if start.layout.is_packed { serve::<PackedRing> } else { serve::<SplitRing> };
            if let Err(error) = serve(&gate, &stats, &tally, how, start)
                && end.0.fail(&error)
            {
                log(&error);
            }
            drop(end);
        };
        let thread = std::thread::Builder::new()
            .name(format!("vring-{index}"))
            .stack_size(cryptline_sys::GUARDED_STACK)
            .spawn(serve)
            .map_err(|error| io::Error::other(OpenError::Thread(error)))?;
        let opened = mailbox.wait_until_open(|| host.is_done_waiting());
        opened.map_err(io::Error::other)?;
        Ok(Self { mailbox, thread })
    }

    pub fn tell(&self, letter: Letter, host: &Host) {
        self.mailbox.post(letter, || host.is_done_waiting());
    }

    /// Stops queues once everything they have taken has ended; where the next ones are to begin.
    pub fn halt(all: Vec<Self>, host: &Host) -> Vec<u32> {
        let mailboxes: Vec<_> = all.iter().map(|it| Arc::clone(&it.mailbox)).collect();
        for mailbox in &mailboxes {
            mailbox.orders.stop();
            mailbox.orders.wake();
        }
        Self::join(all, host);
        mailboxes.iter().map(|mailbox| mailbox.base()).collect()
    }

    /// Ends queues for whose answers nobody waits, or whose server stops.
    pub fn end(all: Vec<Self>, host: &Host) {
        let is_stopping = host.grace.is_stopping();
        for running in &all {
            if is_stopping {
                running.mailbox.orders.stop();
                running.mailbox.orders.wake();
            } else {
                running.mailbox.leave();
            }
        }
        Self::join(all, host);
    }

    /// Waits until they have ended. A server that stops waits for so long and no longer.
    fn join(all: Vec<Self>, host: &Host) {
        let mut abandoned = None;
        for running in &all {
            while !running.mailbox.is_over(LOOK) {
                if host.grace.is_over() {
                    let since = *abandoned.get_or_insert_with(|| {
                        (host.log)("the server stops, and requests are unfinished");
                        Instant::now()
                    });
                    all.iter().for_each(|it| it.mailbox.orders.abandon());
                    if since.elapsed() >= LAST {
                        break;
                    }
                } else if host.connection.is_gone() && !host.grace.is_stopping() {
                    // Whoever asked it to end; nobody hears what is left to be told.
                    all.iter().for_each(|it| it.mailbox.leave());
                }
            }
        }
        for running in all {
            if running.mailbox.is_over(Duration::ZERO) {
                // A panic was reported by its thread.
                let _ = running.thread.join();
            } else {
                // It is in the kernel. None of what it has not done was acknowledged.
                (host.log)("a queue does not end, and is left behind");
            }
        }
    }
}

fn serve<Q: Virtqueue>(
    gate: &Gate,
    stats: &ExportStats,
    tally: &Mutex<Tally>,
    (backend, poll): (BackendChoice, Poll),
    start: VirtqueueStart,
) -> Result<(), String> {
    stats.metered(|meter| {
        let orders = Arc::clone(&start.mailbox.orders);
        let lane = Lane::new(gate, backend, orders, meter, |ring| VringWire::<Q>::new(ring, start));
        let mut lane = lane.map_err(|error| error.to_string())?.looking_out(poll);
        let result = lane.run();
        let mut all = lock(tally);
        *all = all.and(lane.tally());
        result.map_err(|error| error.to_string())
    })
}

/// However the thread ends, whoever waits for it goes on.
struct EndOnDrop(Arc<Mailbox>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
