//! The writer: one thread that submits encrypted writes sorted by sector, as dm-crypt's
//! `dmcrypt_write`.
//!
//! The thread takes everything that has come since it last looked, sorts it and submits it in that order; what comes
//! meanwhile waits for the next round. On rotating disks that turns many writers' jumble into sweeps; elsewhere it is
//! one more hand-off, which is what there is to measure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cryptline_sys::{BackendChoice, Waker, lock};
use rustix::io::Errno;

use super::job::{JobDirection, JobOrder};
use super::own_thread::OwnThread;
use super::priority::raise_priority;
use crate::gate::Gate;
use crate::in_flight::InFlight;
use crate::{Channel, Completion, Fault, OpenError, Request, Submitted};

/// Writes in flight at a time.
const DEPTH: u32 = 256;
/// Writes for which there is room in the lists from the start.
const LIST: usize = 1024;
/// How long who closes the device waits for the last writes.
const LAST: Duration = Duration::from_millis(250);

/// The writer's thread. Finishes what it has been given before it ends, unless the medium takes too long for who closes the
/// device: then nothing more goes to the medium, which others may have opened by then. Nobody was told that it is done.
pub(super) struct WriterThread {
    inbox: Arc<Inbox>,
    waker: Waker,
    thread: Option<OwnThread>,
}

struct Inbox {
    orders: Mutex<Vec<JobOrder>>,
    stop: AtomicBool,
    /// The device is closed, whatever was not written.
    abandon: AtomicBool,
}

impl WriterThread {
    pub fn start(lower: Gate, start: u64, backend: BackendChoice, high_priority: bool) -> Result<Arc<Self>, OpenError> {
        let inbox = Arc::new(Inbox {
            orders: Mutex::new(Vec::with_capacity(LIST)),
            stop: AtomicBool::default(),
            abandon: AtomicBool::default(),
        });
        let (say, heard) = std::sync::mpsc::channel();
        let thread_inbox = Arc::clone(&inbox);
        let builder = std::thread::Builder::new().name("dmcrypt_write".to_owned());
        let run = move || {
            // A refusal is told where the option is read (`may_raise_priority`).
            let _ = high_priority.then(raise_priority);
            match WriterLoop::open(&lower, start, backend) {
                Ok((mut writer, waker)) => {
                    let _ = say.send(Ok(waker));
                    writer.run(&thread_inbox);
                }
                Err(error) => _ = say.send(Err(error)),
            }
        };
        let thread = builder.spawn(run).map_err(OpenError::Thread)?;
        let waker =
            heard.recv().map_err(|_| OpenError::Ring(std::io::Error::other("the writer's thread did not start")))??;
        Ok(Arc::new(Self { inbox, waker, thread: Some(OwnThread::new(thread)) }))
    }

    /// Gives an encrypted write to the writer.
    pub fn hand_over(&self, order: JobOrder) {
        lock(&self.inbox.orders).push(order);
        self.waker.wake();
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.inbox.stop.store(true, Ordering::Release);
        self.waker.wake();
        if self.thread.take().is_some_and(|thread| !thread.join_within(LAST)) {
            self.inbox.abandon.store(true, Ordering::Release);
            self.waker.wake();
        }
    }
}

/// State of the thread.
struct WriterLoop {
    lower: Channel,
    start: u64,
    /// Sorted, the lowest sector last.
    held: Vec<JobOrder>,
    below: InFlight<JobOrder>,
    done: Vec<Completion>,
}

impl WriterLoop {
    fn open(lower: &Gate, start: u64, backend: BackendChoice) -> Result<(Self, Waker), OpenError> {
        let mut lower = Channel::open(lower, backend, DEPTH)?;
        let waker = lower.ring_mut().waker().map_err(OpenError::Ring)?;
        let writer = Self {
            // Of the places of the ring, those below have some for themselves.
            below: InFlight::new(DEPTH as usize),
            lower,
            start,
            held: Vec::with_capacity(LIST),
            done: Vec::with_capacity(DEPTH as usize),
        };
        Ok((writer, waker))
    }

    fn run(&mut self, inbox: &Inbox) {
        loop {
            let stop = inbox.stop.load(Ordering::Acquire);
            if self.held.is_empty() {
                std::mem::swap(&mut self.held, &mut lock(&inbox.orders));
                self.held.sort_unstable_by_key(|order| std::cmp::Reverse(order.job.offset));
            }
            self.submit_held(inbox);
            if inbox.abandon.load(Ordering::Acquire) {
                self.give_up(inbox);
                return;
            }
            if stop && self.below.is_empty() && self.held.is_empty() {
                return;
            }
            if self.lower.wait(&mut self.done).is_err() {
                // Nothing that was submitted is lost by this; the next wait may work.
                std::thread::sleep(Duration::from_millis(1));
            }
            while let Some(completion) = self.done.pop() {
                self.give_back(completion);
            }
        }
    }

    /// Gives back all that has not gone to the medium.
    fn give_up(&mut self, inbox: &Inbox) {
        for JobOrder { mut job, slots } in self.held.drain(..).chain(lock(&inbox.orders).drain(..)) {
            job.result = Some(Err(Fault::Io(Errno::CANCELED)));
            slots.give_back(job);
        }
    }

    fn submit_held(&mut self, inbox: &Inbox) {
        while !self.below.is_full() && !inbox.abandon.load(Ordering::Acquire) {
            let Some(mut order) = self.held.pop() else {
                return;
            };
            let (offset, direction) = (order.job.offset + self.start, order.job.direction);
            let Some(data) = order.job.data.take() else {
                debug_assert!(false, "a write without its data");
                continue;
            };
            let durable = direction == JobDirection::Encrypt { durable: true };
            let mut request = Request::write(offset, data, durable, 0);
            let Ok(()) = self.below.enter(&mut request, order) else { unreachable!("a place was free a moment ago") };
            match self.lower.submit(request) {
                Submitted::Done(completion) => self.give_back(completion),
                Submitted::Pending => {}
            }
        }
    }

    fn give_back(&mut self, completion: Completion) {
        let Completion { mut request, result } = completion;
        let JobOrder { mut job, slots } = self.below.leave(&mut request);
        job.data = request.data;
        job.result = Some(result);
        slots.give_back(job);
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
