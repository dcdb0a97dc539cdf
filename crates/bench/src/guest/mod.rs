//! A virtual machine's disk driver without the machine: memory, one virtqueue, and somebody who drives it.
//!
//! ```text
//! load::Stream ─► submit: the sector into its header, its head into the available ring
//!      ▲          collect: index published ─► kick, where it is wanted ─► used ring, checked ─┐
//!      └────────────────────── slots whose requests have ended ◄──────────────────────────────┘
//! ```
//!
//! What a guest's kernel does and no more: a chain of three descriptors for each slot, laid out once;
//! kicks and calls only where the other side wants them (event indices); one system call to wait. Data
//! stays where the server puts it, as a guest's does, and can be looked at.
//!
//! Servers are not trusted: heads, lengths and status are checked, and one that falls silent ends the
//! run with an error when it is too late.

mod front;

use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use cryptline_sys::{GuestFault, GuestRange};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::Error;
use crate::load::Transport;
use crate::report::{Direction, Shape};
use front::{FrontEnd, Memory, Vring};

/// Where the process of a machine would have its memory, and the guest.
const USER: u64 = 0x7f12_3400_0000;
const GUEST: u64 = 0x4000_0000;
/// Entries of the ring, and descriptors of each slot.
const RING: u16 = 256;
const CHAIN: u16 = 3;
/// Places in memory. Each part of the ring has pages of its own.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 0x2000;
const USED: usize = 0x3000;
const SLOTS: usize = 0x5000;
/// Each slot has a header and a status.
const SLOT: usize = 64;
const STATUS: usize = 32;
/// Data begins at a page.
const PAGE: usize = 4096;
/// Bits of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// A status before there is one.
const NO_STATUS: u8 = 0xff;
const SECTOR: u64 = 512;
/// What the disk's driver asks for: `VIRTIO_BLK_T_IN`.
const READ: u32 = 0;
/// How long a server may take to agree.
const PATIENCE: Duration = Duration::from_secs(10);

/// A driver of one queue, which reads.
pub struct Guest {
    name: String,
    size: u64,
    block: usize,
    /// Whether each slot's request is under way.
    in_flight: Vec<bool>,
    memory: GuestRange,
    len: usize,
    file: OwnedFd,
    data: usize,
    /// The next entry of the available ring, up to where the server was told, and the next of the used.
    available: u16,
    told: u16,
    used: u16,
    kick: OwnedFd,
    /// Wakes at each call, and need not be read.
    calls: OwnedFd,
    /// When to give up.
    late: Instant,
    call: OwnedFd,
    /// The machine runs as long as this is open.
    front: FrontEnd,
}

impl Guest {
    /// Connects to a server's socket, for reads of this shape, until it is too late.
    pub fn connect(socket: &Path, shape: Shape, late: Instant) -> Result<Self, Error> {
        let name = socket.display().to_string();
        let failed = |why: String| Error::device(format!("{name}: {why}"));
        let slots = usize::try_from(shape.depth).unwrap_or(usize::MAX);
        let fits = slots <= usize::from(RING / CHAIN) && shape.streams == 1;
        if !fits || shape.direction != Direction::Read {
            return Err(failed("one queue reads, and takes no more requests".into()));
        }
        let stream = UnixStream::connect(socket).map_err(|error| failed(error.to_string()))?;
        let front = FrontEnd::new(stream, PATIENCE).map_err(|error| failed(error.to_string()))?;
        let size = front.agree().map_err(failed)?;
        if size < shape.block.into() {
            return Err(failed(format!("a disk of {size} bytes is too small")));
        }
        let guest = Self::new(name, front, size, shape, late)?;
        guest.start().map_err(|why| guest.failed(why))?;
        Ok(guest)
    }

    fn new(name: String, front: FrontEnd, size: u64, shape: Shape, late: Instant) -> Result<Self, Error> {
        let (slots, block) = (shape.depth as usize, shape.block as usize);
        let data = (SLOTS + slots * SLOT).next_multiple_of(PAGE);
        let len = data + slots * block.next_multiple_of(PAGE);
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).map_err(system)?;
        ftruncate(&file, len as u64).map_err(system)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (kick, call) = (eventfd(0, flags), eventfd(0, flags));
        let (kick, call) = (kick.map_err(system)?, call.map_err(system)?);
        let calls = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        // Each call is an edge, whether those before were read or not.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data_of_event = epoll::EventData::new_u64(0);
        epoll::add(&calls, &call, data_of_event, edges).map_err(system)?;
        let guest = Self {
            name,
            size,
            block,
            in_flight: vec![false; slots],
            memory: GuestRange::map(&file, 0, len).map_err(system)?,
            len,
            file,
            data,
            available: 0,
            told: 0,
            used: 0,
            kick,
            calls,
            late,
            call,
            front,
        };
        guest.lay_out().map_err(system)?;
        Ok(guest)
    }

    /// Shares the memory, and lets the server have the queue.
    fn start(&self) -> Result<(), String> {
        let memory = Memory { file: self.file.as_fd(), len: self.len as u64, guest: GUEST, user: USER };
        let vring = Vring {
            size: RING,
            descriptors: USER + DESCRIPTORS as u64,
            available: USER + AVAILABLE as u64,
            used: USER + USED as u64,
            kick: self.kick.as_fd(),
            call: self.call.as_fd(),
        };
        self.front.start(memory, vring)
    }

    /// Headers and descriptors of all slots, and every page of their data, so that none is new later.
    fn lay_out(&self) -> Result<(), GuestFault> {
        let noise = vec![0x5a; self.block];
        for slot in 0..self.in_flight.len() {
            let (header, data) = (SLOTS + slot * SLOT, self.place(slot));
            self.memory.write(header, &READ.to_le_bytes())?;
            self.memory.write(data, &noise)?;
            let pieces = [(header, 16, NEXT), (data, self.block, NEXT | WRITE), (header + STATUS, 1, WRITE)];
            let first = slot * usize::from(CHAIN);
            for (index, (place, len, flags)) in (first..).zip(pieces) {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&(GUEST + place as u64).to_le_bytes());
                bytes[8..12].copy_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
                bytes[12..14].copy_from_slice(&flags.to_le_bytes());
                bytes[14..].copy_from_slice(&u16::try_from(index + 1).unwrap_or(0).to_le_bytes());
                self.memory.write(DESCRIPTORS + 16 * index, &bytes)?;
            }
        }
        Ok(())
    }

    /// Where the data of a slot lies.
    fn place(&self, slot: usize) -> usize {
        self.data + slot * self.block.next_multiple_of(PAGE)
    }

    /// Bytes of each read.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Copies out what a slot's last request has read, from its byte `at` on.
    pub fn look(&self, slot: usize, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.memory.read(self.place(slot) + at, bytes);
        read.map_err(|fault| self.failed(fault))
    }

    fn put(&mut self, slot: usize, offset: u64) -> Result<(), GuestFault> {
        let header = SLOTS + slot * SLOT;
        let sector = (offset / SECTOR).to_le_bytes();
        self.memory.write(header + 8, &sector)?;
        self.memory.write(header + STATUS, &[NO_STATUS])?;
        let head = u16::try_from(slot).unwrap_or(0) * CHAIN;
        let entry = AVAILABLE + 4 + 2 * usize::from(self.available % RING);
        self.memory.store16(entry, head.to_le())?;
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    /// Tells the server of what was put aside, and kicks it where it wants that.
    fn tell(&mut self) -> Result<(), Error> {
        let fault = |fault: GuestFault| Error::device(format!("{}: {fault}", self.name));
        if self.told == self.available {
            return Ok(());
        }
        let index = self.available.to_le();
        self.memory.store16(AVAILABLE + 2, index).map_err(fault)?;
        // Between our store and our load, as between the server's.
        fence(Ordering::SeqCst);
        let event = USED + 4 + 8 * usize::from(RING);
        let event = u16::from_le(self.memory.load16(event).map_err(fault)?);
        let new = self.available.wrapping_sub(self.told);
        let wants = self.available.wrapping_sub(event).wrapping_sub(1) < new;
        self.told = self.available;
        if wants {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// Takes all that has ended.
    fn take(&mut self, ended: &mut Vec<usize>) -> Result<(), Error> {
        let index = self.memory.load16(USED + 2);
        let index = u16::from_le(index.map_err(|fault| self.failed(fault))?);
        if usize::from(index.wrapping_sub(self.used)) > self.in_flight.len() {
            return Err(self.failed("ended more requests than there were"));
        }
        while self.used != index {
            ended.push(self.take_one()?);
            self.used = self.used.wrapping_add(1);
        }
        Ok(())
    }

    fn take_one(&mut self) -> Result<usize, Error> {
        let mut element = [0; 8];
        let place = USED + 4 + 8 * usize::from(self.used % RING);
        let read = self.memory.read(place, &mut element);
        read.map_err(|fault| self.failed(fault))?;
        let head = u32::from_le_bytes([element[0], element[1], element[2], element[3]]);
        let slot = head as usize / usize::from(CHAIN);
        let is_head = head.is_multiple_of(CHAIN.into());
        if !is_head || !self.in_flight.get(slot).is_some_and(|asked| *asked) {
            return Err(self.failed(format!("ended request {head}, which was not under way")));
        }
        let mut status = [NO_STATUS];
        let read = (self.memory).read(SLOTS + slot * SLOT + STATUS, &mut status);
        read.map_err(|fault| self.failed(fault))?;
        if status != [0] {
            return Err(self.failed(format!("a read failed with status {}", status[0])));
        }
        self.in_flight[slot] = false;
        Ok(slot)
    }

    /// Sleeps until the server calls, unless something has ended since the last look.
    fn sleep(&self) -> Result<(), Error> {
        let fault = |fault: GuestFault| self.failed(fault);
        let event = AVAILABLE + 4 + 2 * usize::from(RING);
        self.memory.store16(event, self.used.to_le()).map_err(fault)?;
        fence(Ordering::SeqCst);
        let index = u16::from_le(self.memory.load16(USED + 2).map_err(fault)?);
        if index != self.used {
            return Ok(());
        }
        let left = self.late.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|error| self.failed(error))?;
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        match epoll::wait(&self.calls, &mut events, Some(&left)) {
            Ok(0) => Err(self.failed("the server did not answer in time")),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, why: impl Display) -> Error {
        Error::device(format!("{}: {why}", self.name))
    }
}

fn system(error: impl Display) -> Error {
    Error::memory(format!("cannot make the memory of a virtual machine: {error}"))
}

impl Transport for Guest {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool, Error> {
        self.put(slot, offset).map_err(|fault| self.failed(fault))?;
        self.in_flight[slot] = true;
        Ok(false)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<(), Error> {
        self.tell()?;
        let before = ended.len();
        self.take(ended)?;
        while wait && ended.len() == before {
            self.sleep()?;
            self.take(ended)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
