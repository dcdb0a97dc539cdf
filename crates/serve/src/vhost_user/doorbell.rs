//! Kicks in and interrupts out: eventfds, read and written by the queue's own ring together with everything else.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_engine::Ring;
use cryptline_sys::{Backend, FileId, Io, ReceiveBatch, RequestSource, RingDone, SendBatch};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::queue::RingError;

/// The count of an eventfd.
const COUNT: usize = 8;
/// Interrupts on their way at a time: one that the kernel does not have yet, and one that cannot wait for it.
const SIGNALS: usize = 2;
/// How often a ring without a kick descriptor is looked at.
const LOOK: Duration = Duration::from_micros(100);

pub(super) struct Doorbell {
    source: RequestSource,
    kick: Option<FileId>,
    /// Away while a kick is waited for.
    listener: Option<Box<ReceiveBatch>>,
    call: Option<FileId>,
    /// The next descriptor for interrupts, as soon as nothing is on its way to the one before.
    next_call: Option<Arc<OwnedFd>>,
    /// Receiver of interrupts.
    heard_by: Option<Arc<OwnedFd>>,
    /// Some are away while they are sent.
    #[expect(clippy::vec_box, reason = "a batch is on its way as a box")]
    signals: Vec<Box<SendBatch>>,
    /// The driver is to be told once more.
    is_owed: bool,
}

impl Doorbell {
    pub fn new(ring: &mut Ring, kick: Option<Arc<OwnedFd>>, call: Option<Arc<OwnedFd>>) -> Self {
        let mut doorbell = Self {
            source: ring.add_source(),
            kick: kick.map(|file| ring.add_file(file)),
            listener: Some(ReceiveBatch::for_event()),
            call: None,
            next_call: None,
            heard_by: None,
            signals: (0..SIGNALS).map(|_| SendBatch::new(COUNT, 1)).collect(),
            is_owed: false,
        };
        doorbell.call_at(call);
        doorbell
    }

    /// Interrupts go to another descriptor. What the driver may have missed meanwhile it is told there.
    pub fn call_at(&mut self, file: Option<Arc<OwnedFd>>) {
        self.heard_by.clone_from(&file);
        self.is_owed = file.is_some();
        self.next_call = file;
    }

    /// Tells the driver with the next call into the kernel.
    pub fn ring(&mut self) {
        self.is_owed = true;
    }

    /// Tells if the driver has been told of everything, or nobody can.
    pub fn is_silent(&self) -> bool {
        self.heard_by.is_none() || !self.is_owed && self.signals.len() == SIGNALS
    }

    /// Submits what is owed.
    pub fn send(&mut self, ring: &mut Ring) -> Result<(), RingError> {
        if !self.is_owed {
            return Ok(());
        }
        self.change_call(ring)?;
        let (Some(file), Some(heard_by)) = (self.call, &self.heard_by) else {
            return Ok(());
        };
        if would_block(ring, heard_by) {
            return Ok(());
        }
        // Without one, the counter is full, and the driver has been woken.
        let Some(mut batch) = self.signals.pop() else {
            return Ok(());
        };
        let is_another_away = self.signals.len() + 1 < SIGNALS;
        batch.push_header(&1u64.to_ne_bytes());
        match ring.submit(self.source, 0, Io::WriteMessage { file, batch }) {
            Ok(()) => self.is_owed = false,
            Err(io) => self.put_back(io),
        }
        if is_another_away {
            // That one may have been too early for this, and what the lane does next may take long. Never by a write
            // of our own: the front-end can make its descriptor one that blocks. A ring that fails says so again.
            let _ = ring.poll();
        }
        Ok(())
    }

    /// From now on interrupts go to the next descriptor, if there is one and something can be sent to it.
    fn change_call(&mut self, ring: &mut Ring) -> Result<(), RingError> {
        // A descriptor that takes no interrupts keeps one of them, so there are never many such.
        if self.next_call.is_some() && self.signals.len() == 1 {
            let _ = ring.poll();
            self.reap(ring)?;
        }
        if !self.signals.is_empty()
            && let Some(next) = self.next_call.take()
        {
            self.call = match self.call {
                Some(id) if ring.replace_file(id, Arc::clone(&next)) => Some(id),
                _ => Some(ring.add_file(next)),
            };
        }
        Ok(())
    }

    /// Tells the front-end that the ring is served no further.
    pub fn alarm(&mut self, ring: &mut Ring, file: Arc<OwnedFd>) {
        if would_block(ring, &file) {
            return;
        }
        let file = ring.add_file(file);
        let mut batch = SendBatch::new(COUNT, 1);
        batch.push_header(&1u64.to_ne_bytes());
        // Nothing is to be done where it does not take it, and nobody waits for it.
        if let Ok(()) = ring.submit(self.source, 0, Io::WriteMessage { file, batch }) {
            let _ = ring.poll();
        }
    }

    /// Waits for a kick from now on.
    pub fn listen(&mut self, ring: &mut Ring) {
        let Some(file) = self.kick else {
            return ring.wake_by(Instant::now() + LOOK);
        };
        if let Some(batch) = self.listener.take()
            && let Err(io) = ring.submit(self.source, 0, Io::ReadMessage { file, batch })
        {
            self.put_back(io);
        }
    }

    /// Takes in kicks, and what has been sent.
    pub fn reap(&mut self, ring: &mut Ring) -> Result<(), RingError> {
        let mut result = Ok(());
        while let Some(RingDone { result: moved, io, .. }) = ring.next_done(self.source) {
            match (&io, moved) {
                (Io::ReadMessage { .. }, moved) if moved != Ok(COUNT) => {
                    result = Err(RingError::Kick);
                }
                // The kernel was short of memory, which passes.
                (Io::WriteMessage { .. }, Err(Errno::CANCELED | Errno::NOMEM)) => {
                    self.is_owed = true;
                }
                _ => {}
            }
            self.put_back(io);
        }
        result
    }

    fn put_back(&mut self, io: Io) {
        match io {
            Io::ReadMessage { batch, .. } => self.listener = Some(batch),
            Io::WriteMessage { mut batch, .. } => {
                batch.clear();
                if self.signals.len() < SIGNALS {
                    self.signals.push(batch);
                }
            }
            _ => {}
        }
    }
}

/// Tells if a ring without io_uring, which writes by itself, would wait for the front-end: its counter is full.
fn would_block(ring: &Ring, file: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::OUT)];
    let at_once = Timespec::default();
    ring.backend() == Backend::Syscalls && poll(&mut polled, Some(&at_once)) == Ok(0)
}
