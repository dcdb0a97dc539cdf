//! A virtual machine: its driver of virtio-blk, and the front-end that brings it to the server.
//!
//! ```text
//! memory    queue 0: rings, tables, data | queue 1: … | queue 2: …        buffer   what is under way
//! ```
//!
//! Each machine is of a kind of its own: how many queues, split or packed, how it is told, whether its writes are cached,
//! and whether its front-end keeps what is under way for the next connection.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_testkit::vhost::{
    EVENT_IDX, FLUSH, FrontEnd, INDIRECT, Machine, PROTOCOL, Placed, RING_PACKED, START, VERSION_1, Vring, addresses,
    regions, state,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::actor::Dialogue;
use crate::cells::SECTOR;
use crate::history::{SECTORS, Step};
use crate::judge::{Asked, Outcome};
use crate::points::{Point, sometimes};
use crate::sim;

/// A machine that has heard nothing for so long goes away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time for which a busy machine has requests ready, how many at most, and its pause between two looks.
const BUSY_FOR: u64 = 1_300_000_000;
const BUSY_DEPTH: usize = 240;
const BUSY_PAUSE: Duration = Duration::from_micros(300);
/// Places in the ring of a busy machine.
const BUSY_RING: u16 = 256;
/// A driver that wants an interrupt gets it within that.
const PROMPT: u64 = 1_000_000_000;
/// Queues that the server has.
pub const QUEUES: u16 = 3;
/// Bytes of memory for a queue, and where its data begins in it, with room for each request.
const PART: u64 = 8 << 20;
const DATA: u64 = (3 << 20) + 77;
const ROOM: u64 = 16 << 10;

const WRITE_CACHE: u64 = 1 << 11;
const MULTI_QUEUE: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;
/// Where the configuration says whether writes are cached.
const WRITE_CACHE_AT: u32 = 32;
/// Its protocol features: REPLY_ACK, CONFIG and INFLIGHT.
const NEEDED: u64 = 1 << 3 | 1 << 9 | 1 << 12;

/// Messages of the front-end.
mod message {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// Kinds of requests.
mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// Numbers that a machine draws for itself.
struct Chance {
    seed: u64,
    count: u64,
}

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.count += 1;
        sim::mix(&[self.seed, self.count]) % end
    }

    /// The machine is slow now and then.
    fn dawdle(&mut self) {
        if self.below(6) == 0 {
            std::thread::sleep(Duration::from_micros(self.below(2_000)));
        }
    }
}

/// Requests under way, in a buffer that the front-end keeps for the next connection.
struct Kept {
    place: Vec<u8>,
    file: OwnedFd,
}

/// A request that the device has.
struct Sent {
    number: u64,
    placed: Placed,
    /// Bytes that it reads.
    len: usize,
}

/// A machine whose queues run.
pub struct Guest {
    path: PathBuf,
    chance: Chance,
    features: u64,
    machine: Machine,
    front: FrontEnd,
    queues: Vec<Vring>,
    kept: Option<Kept>,
    /// By queue and head.
    sent: HashMap<(usize, u16), Sent>,
    /// Requests so far; the first is number 1.
    numbers: u64,
    /// A write is durable only once a flush has said yes.
    is_cached: bool,
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// Judges an answer to a busy machine. What it reads is judged of others.
fn judge_busy(number: u64) -> io::Result<()> {
    if number == 0 { Err(wrong("an answer to nothing that was asked".to_owned())) } else { Ok(()) }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn connect(path: &Path) -> io::Result<FrontEnd> {
    let front = FrontEnd::new(UnixStream::connect(path)?);
    front.stream.set_read_timeout(Some(PATIENCE))?;
    Ok(front)
}

impl Guest {
    /// Comes to the server, as a machine of the kind that belongs to `seed`, and starts its queues; looks whether the disk
    /// is called `name`. One that will be busy has large rings.
    pub fn come(path: PathBuf, name: &str, seed: u64, is_busy: bool) -> io::Result<Self> {
        let mut chance = Chance { seed, count: 0 };
        let mut features = INDIRECT | PROTOCOL | VERSION_1 | MULTI_QUEUE | DISCARD | WRITE_ZEROES | FLUSH | WRITE_CACHE;
        for (bit, kept) in [(RING_PACKED, 2), (EVENT_IDX, 3)] {
            features |= if chance.below(4) < kept { bit } else { 0 };
        }
        match chance.below(4) {
            0 => features &= !(FLUSH | WRITE_CACHE),
            1 => features &= !WRITE_CACHE,
            _ => {}
        }
        let size = [32, 64, BUSY_RING][chance.below(3) as usize];
        let size = if is_busy { BUSY_RING } else { size };
        let count = 1 + chance.below(QUEUES.into());
        let keeps = chance.below(2) == 0;
        let front = connect(&path)?;
        let queues = (0..count).map(|index| Vring::new(features, size, index * PART)).collect();
        let is_cached = features & FLUSH != 0;
        let (machine, sent) = (Machine::new(), HashMap::new());
        let mut guest =
            Self { path, chance, features, machine, front, queues, kept: None, sent, numbers: 0, is_cached };
        guest.introduce()?;
        if keeps {
            guest.kept = Some(guest.ask_for_buffer()?);
        }
        guest.hand_over()?;
        let bases: Vec<_> = guest.queues.iter().map(Vring::base).collect();
        guest.start_queues(&bases)?;
        guest.look_at_name(name)?;
        Ok(guest)
    }

    fn tell(&self, message: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.front.tell_with(message, payload, files) {
            Some(true) => Ok(()),
            Some(false) => Err(wrong(format!("message {message} is refused"))),
            None => Err(gone()),
        }
    }

    fn ask(&self, message: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.front.ask(message, payload).ok_or_else(gone)
    }

    /// Agrees with the server, looks at the disk, and shares its memory.
    fn introduce(&mut self) -> io::Result<()> {
        let number = |reply: Vec<u8>| Ok::<_, io::Error>(u64::from_ne_bytes(reply.try_into().map_err(|_| gone())?));
        let offered = number(self.ask(message::GET_FEATURES, &[])?)?;
        self.front.send(message::SET_OWNER, 0, &[], &[]);
        let protocol = number(self.ask(message::GET_PROTOCOL_FEATURES, &[])?)? & NEEDED;
        self.front.send(message::SET_PROTOCOL_FEATURES, 0, &protocol.to_ne_bytes(), &[]);
        self.features &= offered;
        self.tell(message::SET_FEATURES, &self.features.to_ne_bytes(), &[])?;
        let mut payload = [0, 60, 0].map(u32::to_ne_bytes).concat();
        payload.resize(12 + 60, 0);
        let space = self.ask(message::GET_CONFIG, &payload)?;
        // Some stacks have a little more than is used.
        let sectors = space.get(12..20).and_then(|size| size.first_chunk().copied()).map_or(0, u64::from_le_bytes);
        if sectors < SECTORS as u64 {
            return Err(wrong(format!("the disk has {sectors} sectors")));
        }
        let file = self.machine.file.as_fd();
        self.tell(message::SET_MEM_TABLE, &regions(), &[file, file])
    }

    fn ask_for_buffer(&self) -> io::Result<Kept> {
        let counts = [self.queues.len() as u16, self.queues[0].size()].map(u16::to_ne_bytes);
        let asked = [&[0; 16], counts.as_flattened(), &[0; 4]].concat();
        // Its descriptor is not taken: a file of the machine's own does as well.
        let place = self.ask(message::GET_INFLIGHT_FD, &asked)?;
        let file = memfd_create("under way", MemfdFlags::CLOEXEC)?;
        let size = place.first_chunk().copied().map_or(0, u64::from_ne_bytes);
        ftruncate(&file, size)?;
        Ok(Kept { place, file })
    }

    fn hand_over(&self) -> io::Result<()> {
        match &self.kept {
            Some(Kept { place, file }) => self.tell(message::SET_INFLIGHT_FD, place, &[file.as_fd()]),
            None => Ok(()),
        }
    }

    fn start_queue(&self, index: usize, base: u32) -> io::Result<()> {
        let (queue, number) = (&self.queues[index], index as u32);
        let file = |message, file: &OwnedFd| self.tell(message, &(index as u64).to_ne_bytes(), &[file.as_fd()]);
        self.tell(message::SET_VRING_NUM, &state(number, queue.size().into()), &[])?;
        self.tell(message::SET_VRING_BASE, &state(number, base), &[])?;
        self.tell(message::SET_VRING_ADDR, &addresses(number, queue.addresses()), &[])?;
        file(message::SET_VRING_CALL, &queue.call)?;
        file(message::SET_VRING_KICK, &queue.kick)
    }

    fn enable(&self, index: usize) -> io::Result<()> {
        self.tell(message::SET_VRING_ENABLE, &state(index as u32, 1), &[])
    }

    fn look_at_name(&mut self, name: &str) -> io::Result<()> {
        let number = self.put(kind::GET_ID, 0, &[], 20);
        self.queues.iter_mut().for_each(|queue| queue.kick(&self.machine));
        match self.hear()? {
            (heard, Ok(told)) if heard == number && told.starts_with(name.as_bytes()) => Ok(()),
            other => Err(wrong(format!("the disk's name is {other:?}"))),
        }
    }

    /// Puts a request into one of the rings.
    fn put(&mut self, kind: u32, sector: u64, to_device: &[u8], to_driver: usize) -> u64 {
        let mut index = self.chance.below(self.queues.len() as u64) as usize;
        while !self.queues[index].has_room() {
            index = (index + 1) % self.queues.len();
        }
        self.put_at(index, kind, sector, to_device, to_driver)
    }

    fn put_at(&mut self, index: usize, kind: u32, sector: u64, to_device: &[u8], to_driver: usize) -> u64 {
        let queue = &mut self.queues[index];
        let data = index as u64 * PART + DATA + u64::from(queue.next_head()) * ROOM;
        self.machine.write(data, to_device);
        let lengths = (to_device.len() as u64, to_driver as u64);
        let placed = queue.put(&self.machine, (kind, sector), lengths, data);
        if queue.available > queue.size() || queue.packed.as_ref().is_some_and(|packed| !packed.available.wrap) {
            sometimes(Point::Lapped);
        }
        self.numbers += 1;
        self.sent.insert((index, placed.head), Sent { number: self.numbers, placed, len: to_driver });
        self.numbers
    }

    /// The next request that is over.
    fn harvest(&mut self) -> io::Result<Option<(u64, Outcome)>> {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Some((head, len)) = queue.take(&self.machine) else { continue };
            let Some(sent) = self.sent.remove(&(index, head)) else {
                // Nobody has sent it, or it was over before.
                return Ok(Some((0, Ok(Vec::new()))));
            };
            let outcome = match queue.status(&self.machine, head) {
                0 if len as usize != sent.len + 1 => {
                    return Err(wrong(format!("{len} bytes were written of {}", sent.len + 1)));
                }
                0 => {
                    let mut data = vec![0; sent.len];
                    self.machine.read(sent.placed.data, &mut data);
                    Ok(data)
                }
                1 => Err(Errno::IO),
                2 => Err(Errno::OPNOTSUPP),
                status => return Err(wrong(format!("a request is over with status {status}"))),
            };
            return Ok(Some((sent.number, outcome)));
        }
        Ok(None)
    }

    /// Waits for an interrupt. `false` where the server has gone.
    fn wait(&self) -> io::Result<bool> {
        let calls = self.queues.iter().map(|queue| PollFd::from_borrowed_fd(queue.call.as_fd(), PollFlags::IN));
        let mut polled: Vec<_> = calls.collect();
        polled.push(PollFd::from_borrowed_fd(self.front.stream.as_fd(), PollFlags::empty()));
        let timeout = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        if poll(&mut polled, Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let is_there = polled.last().is_some_and(|socket| socket.revents().is_empty());
        for queue in &self.queues {
            let _ = rustix::io::read(&queue.call, &mut [0; 8]);
        }
        Ok(is_there)
    }

    /// Asks again and again, so that there is always a request that the device has not taken: it has a place for a quarter of
    /// these reads, and the flushes between take its time. A driver is interrupted all the same.
    fn be_busy(&mut self) -> io::Result<()> {
        let index = 0;
        if self.features & FLUSH == 0 || self.queues[index].size() < BUSY_RING {
            return Ok(());
        }
        let began = sim::now();
        let mut told = began;
        while sim::now() - began < BUSY_FOR {
            while self.sent.len() < BUSY_DEPTH {
                match self.numbers % 3 {
                    0 => self.put_at(index, kind::FLUSH, 0, &[], 0),
                    _ => self.put_at(index, kind::IN, 0, &[], SECTOR),
                };
            }
            self.queues[index].kick(&self.machine);
            std::thread::sleep(BUSY_PAUSE);
            while let Some((number, _)) = self.harvest()? {
                judge_busy(number)?;
            }
            self.queues[index].ask_for_interrupt(&self.machine);
            if rustix::io::read(&self.queues[index].call, &mut [0; 8]).is_ok() {
                sometimes(Point::InterruptedBusy);
                told = sim::now();
            } else if sim::now() - told > PROMPT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no interrupt while requests go on"));
            }
        }
        while !self.sent.is_empty() {
            judge_busy(self.hear()?.0)?;
        }
        Ok(())
    }

    /// Stops all queues, with whatever is under way, and starts them where they are.
    fn halt(&mut self) -> io::Result<()> {
        self.queues.iter_mut().for_each(|queue| queue.kick(&self.machine));
        if !self.sent.is_empty() {
            sometimes(Point::HaltedBusy);
        }
        let bases = self.stop_queues()?;
        self.start_queues(&bases)
    }

    /// Stops all queues, with which nothing is left. Where they are to go on.
    fn stop_queues(&mut self) -> io::Result<Vec<u32>> {
        let mut bases = Vec::new();
        for index in 0..self.queues.len() {
            let reply = self.ask(message::GET_VRING_BASE, &state(index as u32, 0))?;
            let base = reply.get(4..8).and_then(|base| base.first_chunk().copied()).map_or(0, u32::from_ne_bytes);
            self.look_at_base(index, base)?;
            bases.push(base);
        }
        if self.kept.is_some() && self.chance.below(2) == 0 {
            // Nothing is under way, so a new buffer does as well.
            self.kept = Some(self.ask_for_buffer()?);
            self.hand_over()?;
        }
        Ok(bases)
    }

    fn start_queues(&self, bases: &[u32]) -> io::Result<()> {
        for (index, base) in bases.iter().enumerate() {
            self.start_queue(index, *base)?;
        }
        (0..bases.len()).try_for_each(|index| self.enable(index))
    }

    /// All that a queue has taken is over when it has stopped.
    fn look_at_base(&self, index: usize, base: u32) -> io::Result<()> {
        let queue = &self.queues[index];
        let under_way = self.sent.keys().filter(|(of, _)| *of == index).count();
        let Some(used) = queue.used_index(&self.machine) else { return Ok(()) };
        let over = used.wrapping_sub(queue.used);
        let untaken = queue.available.wrapping_sub(base as u16);
        if under_way == usize::from(over) + usize::from(untaken) {
            return Ok(());
        }
        Err(wrong(format!(
            "queue {index} was stopped with {under_way} requests, of which {over} are over, {untaken} untaken"
        )))
    }

    /// The front-end goes without a word and comes again, with all that is under way.
    fn come_again(&mut self) -> io::Result<()> {
        if self.kept.is_none() {
            return Ok(());
        }
        if !self.sent.is_empty() {
            sometimes(Point::CameBackBusy);
        }
        self.front = connect(&self.path)?;
        self.introduce()?;
        self.hand_over()?;
        let start = u32::from(START.bits());
        let base = |queue: &Vring| queue.used_index(&self.machine).map_or(start | start << 16, u32::from);
        let mut bases: Vec<_> = self.queues.iter().map(base).collect();
        if self.chance.below(3) == 0 {
            // What was under way is done even by queues that are stopped before they are enabled.
            for (index, base) in bases.iter().enumerate() {
                self.start_queue(index, *base)?;
            }
            bases = self.stop_queues()?;
        }
        self.start_queues(&bases)
    }

    fn cache(&mut self, on: bool) -> io::Result<()> {
        if self.features & WRITE_CACHE == 0 {
            return Ok(());
        }
        if !on && !self.sent.is_empty() {
            sometimes(Point::CacheOffBusy);
        }
        self.is_cached |= on;
        let payload = [&[WRITE_CACHE_AT, 1, 0].map(u32::to_ne_bytes).concat()[..], &[u8::from(on)]].concat();
        self.tell(message::SET_CONFIG, &payload, &[])?;
        self.is_cached = on;
        Ok(())
    }
}

/// The payload of a discard or a zeroing.
fn range(asked: &Asked, flags: u32) -> Vec<u8> {
    let place = asked.place();
    let mut range = (place.first as u64).to_le_bytes().to_vec();
    range.extend((place.count as u32).to_le_bytes());
    range.extend(flags.to_le_bytes());
    range
}

impl Dialogue for Guest {
    /// The protocol has no durable requests, but machines whose writes are not cached.
    fn phrase(&self, asked: Asked) -> Asked {
        let durable = !self.is_cached;
        match asked {
            Asked::Write { place, .. } => Asked::Write { place, durable },
            Asked::Zero { place, may_unmap, .. } => Asked::Zero { place, fast: false, may_unmap, durable },
            other => other,
        }
    }

    fn send(&mut self, asked: &Asked, data: &[u8]) -> io::Result<u64> {
        let sector = asked.place().first as u64;
        let number = match asked {
            Asked::Read(place) => self.put(kind::IN, sector, &[], place.count * SECTOR),
            Asked::Write { .. } => self.put(kind::OUT, sector, data, 0),
            Asked::Zero { may_unmap, .. } => self.put(kind::WRITE_ZEROES, 0, &range(asked, (*may_unmap).into()), 0),
            Asked::Discard(_) => self.put(kind::DISCARD, 0, &range(asked, 0), 0),
            Asked::Flush => self.put(kind::FLUSH, 0, &[], 0),
            Asked::Size => unreachable!("a machine is told it when it comes"),
            Asked::Status(_) | Asked::Odd(_) => unreachable!("only clients of NBD ask that"),
        };
        self.chance.dawdle();
        // Several become known at once, now and then.
        if self.chance.below(3) > 0 {
            self.queues.iter_mut().for_each(|queue| queue.kick(&self.machine));
        }
        Ok(number)
    }

    fn hear(&mut self) -> io::Result<(u64, Outcome)> {
        self.queues.iter_mut().for_each(|queue| queue.kick(&self.machine));
        self.chance.dawdle();
        loop {
            if let Some(heard) = self.harvest()? {
                return Ok(heard);
            }
            self.queues.iter().for_each(|queue| queue.ask_for_interrupt(&self.machine));
            if self.queues.iter().any(|queue| queue.has_used(&self.machine)) {
                continue;
            }
            if !self.wait()? {
                // What it has answered before it went counts.
                return self.harvest()?.ok_or_else(gone);
            }
        }
    }

    fn turn(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Halt => self.halt(),
            Step::Return => self.come_again(),
            Step::Cache(on) => self.cache(on),
            Step::Busy => self.be_busy(),
            _ => Ok(()),
        }
    }
}
