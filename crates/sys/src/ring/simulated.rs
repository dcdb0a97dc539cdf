//! The engine for tests: file I/O reaches a kernel that the test provides instead of Linux.
//!
//! ```text
//! submit ──► pending ──► Kernel::run (takes effect) ──► finished (is reported)
//! ```
//!
//! Taking effect and being reported are two moments, as in a real kernel: of two `fsync` in flight
//! the second to take effect can be the first to be reported. [`SimulatedKernel::next`] chooses both.
//!
//! Descriptors are real, so that the code above opens and locks files as usual. Sockets and wakers
//! work as over system calls. A [`Mapping`](crate::Mapping) maps real memory; only its `msync` comes
//! here.

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::syscalls::{self, Syscalls};
use super::unheard::is_sync;
use super::{InKernel, Io, Patience};

/// Substitute for Linux below the rings of a test. For tests only. Unless it says otherwise, each operation is done as
/// soon as it is asked about, and mappings are always in sync.
pub trait SimulatedKernel: Send + Sync {
    /// A file was given to a ring: called before its first operation, and again each time the same
    /// open file is given to a ring.
    fn opened(&self, _file: &Arc<OwnedFd>) {}

    /// An operation was handed over, never one of a socket: a number of the kernel's own for it.
    fn begin(&self, _file: &OwnedFd, _io: &Io) -> u64 {
        0
    }

    /// Carries a file operation out. The range in the buffer was checked; never called for sockets.
    fn run(&self, file: &OwnedFd, io: &mut Io) -> Result<usize, Errno>;

    /// The same as a system call, in which the thread stays until it is done.
    fn run_at_once(&self, file: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        self.run(file, io)
    }

    /// A file was mapped.
    fn mapped(&self, _file: &File) {}

    /// Carries an `msync` of a range of a mapped file out, or an `fsync` of it.
    fn msync(&self, _file: &File, _offset: usize, _len: usize) -> Result<(), Errno> {
        Ok(())
    }

    /// Decides about one of the pending operations of a ring, of which there is one at least, oldest first.
    fn next(&self, _pending: &[HandedOver]) -> NextEvent {
        NextEvent::Finish(0)
    }

    /// Tells if a pending operation of a ring that is dropped is carried out all the same.
    fn outlives_its_ring(&self) -> bool {
        false
    }
}

/// Next event of a pending operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextEvent {
    /// The one at this index takes effect, and is reported later.
    Run(usize),
    /// The one at this index is reported, after it has taken effect.
    Finish(usize),
    /// Nothing for now. A ring that waits finishes its oldest operation all the same.
    Rest,
    /// Nothing for so long: a ring that waits goes on waiting for sockets, wakers and its moment, and asks again then.
    Wait(Duration),
}

/// A [`SimulatedKernel`] as a choice of backend. Two are equal where they are the same kernel.
#[derive(Clone, Copy)]
pub struct Simulation(&'static dyn SimulatedKernel);

impl Simulation {
    /// Rings over `kernel`.
    #[must_use]
    pub const fn new(kernel: &'static dyn SimulatedKernel) -> Self {
        Self(kernel)
    }

    pub(crate) fn kernel(self) -> &'static dyn SimulatedKernel {
        self.0
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulation")
    }
}

impl PartialEq for Simulation {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for Simulation {}

/// A pending operation.
pub struct HandedOver {
    slot: u32,
    number: u64,
    result: Option<Result<usize, Errno>>,
}

impl HandedOver {
    /// The number that [`SimulatedKernel::begin`] has given it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Tells if it has taken effect.
    #[must_use]
    pub fn has_run(&self) -> bool {
        self.result.is_some()
    }
}

pub(super) struct Simulated {
    pub simulation: Simulation,
    pub sockets: Syscalls,
    pending: Vec<HandedOver>,
}

impl Simulated {
    pub fn new(simulation: Simulation) -> Self {
        Self { simulation, sockets: Syscalls::default(), pending: Vec::new() }
    }

    pub fn opened(&self, file: &Arc<OwnedFd>) {
        self.simulation.0.opened(file);
    }

    /// Carries an operation out at once, as often as it is interrupted; not a sync (as `syscalls::run`).
    pub fn run(&self, file: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        if io.waits() {
            return syscalls::run(file, io);
        }
        loop {
            match self.simulation.0.run_at_once(file, io) {
                Err(Errno::INTR) if !is_sync(io) => {}
                result => return result,
            }
        }
    }

    pub fn start(&mut self, slot: u32, fd: &OwnedFd, io: &mut Io) -> Option<Result<usize, Errno>> {
        if io.waits() {
            return self.sockets.start(slot, fd, io);
        }
        let number = self.simulation.0.begin(fd, io);
        self.pending.push(HandedOver { slot, number, result: None });
        None
    }

    /// Lets the kernel work; until something has finished, where the caller waits for it. How long the caller can wait for
    /// what else there is.
    pub fn advance(
        &mut self,
        files: &[Arc<OwnedFd>],
        slots: &mut [Option<InKernel>],
        patience: Patience,
        finished: &mut Vec<(u32, Result<usize, Errno>)>,
    ) -> Patience {
        while !self.pending.is_empty() {
            match self.simulation.0.next(&self.pending) {
                NextEvent::Run(index) => _ = self.effect(index, files, slots),
                NextEvent::Finish(index) => self.finish(index, files, slots, finished),
                NextEvent::Rest => {
                    if patience != Patience::None && finished.is_empty() {
                        self.finish(0, files, slots, finished);
                    }
                    break;
                }
                NextEvent::Wait(_) if !finished.is_empty() => break,
                NextEvent::Wait(time) => return patience.at_most(time),
            }
        }
        if finished.is_empty() { patience } else { Patience::None }
    }

    /// The ring is dropped: what is pending may still take effect, or is cancelled.
    pub fn abandon(
        &mut self,
        files: &[Arc<OwnedFd>],
        slots: &mut [Option<InKernel>],
        ended: &mut Vec<(u32, Result<usize, Errno>)>,
    ) {
        for index in 0..self.pending.len() {
            let has_run = self.pending[index].result.is_some();
            let result = if has_run || self.simulation.0.outlives_its_ring() {
                self.effect(index, files, slots)
            } else {
                Err(Errno::CANCELED)
            };
            ended.push((self.pending[index].slot, result));
        }
    }

    fn finish(
        &mut self,
        index: usize,
        files: &[Arc<OwnedFd>],
        slots: &mut [Option<InKernel>],
        finished: &mut Vec<(u32, Result<usize, Errno>)>,
    ) {
        let result = self.effect(index, files, slots);
        finished.push((self.pending.remove(index).slot, result));
    }

    fn effect(&mut self, index: usize, files: &[Arc<OwnedFd>], slots: &mut [Option<InKernel>]) -> Result<usize, Errno> {
        let pending = &mut self.pending[index];
        *pending.result.get_or_insert_with(|| {
            let entry = slots[pending.slot as usize].as_mut();
            let entry = entry.expect("a pending operation has its slot");
            let file = &files[entry.io.file().0 as usize];
            self.simulation.0.run(file, &mut entry.io)
        })
    }
}
