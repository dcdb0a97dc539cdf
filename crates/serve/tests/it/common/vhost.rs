//! A vhost-user front-end and virtio-blk driver of our own: memory and eventfds as a virtual machine has them.
//!
//! ```text
//! socket ─► features, memory, queue        memory   rings | headers, tables | data
//! ```
//!
//! Each request has an indirect table of its own, by the number of its head; how its bytes are cut into segments
//! differs from one to the next.

use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use cryptline_sys::GuestRange;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::packed::Packed;
use super::pieces::Pieces;

pub const FLUSH: u64 = 1 << 9;
pub const INDIRECT: u64 = 1 << 28;
pub const EVENT_IDX: u64 = 1 << 29;
pub const PROTOCOL: u64 = 1 << 30;
pub const VERSION_1: u64 = 1 << 32;
pub const RING_PACKED: u64 = 1 << 34;
const REPLY_ACK: u64 = 1 << 3;
const CONFIG: u64 = 1 << 9;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const IS_INDIRECT: u16 = 4;

/// Where the process of the virtual machine would have its memory, and the guest.
pub const USER: u64 = 0x7f12_3400_0000;
pub const GUEST: u64 = 0x4000_0000;
/// Memory, of which little is ever touched, in two adjacent regions.
pub const MEMORY: u64 = 1 << 30;
const HALF: u64 = MEMORY / 2;

pub const SIZE: u16 = 256;
pub const DESCRIPTORS: u64 = 0;
pub const AVAILABLE: u64 = 0x4000;
pub const USED: u64 = 0x8000;
/// For each head: a header, the status and the indirect table.
const SLOTS: u64 = 0x10_0000;
const SLOT: u64 = 8192;
const STATUS: u64 = 128;
const TABLE: u64 = 256;
/// Bytes for data begin here.
pub const DATA: u64 = SLOTS + SLOT * SIZE as u64 + 77;
/// No segment is longer than this, so that segments of one request can share their memory.
pub const SEGMENT: u64 = 16 << 20;
/// The data of longer requests all lies in the same bytes.
pub const SHARED: u64 = 64 << 20;
/// Room for such.
pub const SCRATCH: u64 = MEMORY - SEGMENT;
/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub address: u64,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

impl Piece {
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }

    /// The same in a packed ring, where it has an id.
    pub fn encode_packed(&self, id: u16) -> [u8; 16] {
        let mut bytes = self.encode();
        bytes[12..14].copy_from_slice(&id.to_le_bytes());
        bytes[14..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}

/// The memory of a virtual machine.
pub struct Machine {
    pub file: OwnedFd,
    pub memory: GuestRange,
}

impl Machine {
    pub fn new() -> Self {
        let file = memfd_create("machine", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, MEMORY).expect("memory");
        let len = usize::try_from(MEMORY).expect("small");
        let memory = GuestRange::map(&file, 0, len).expect("mapped");
        Self { file, memory }
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write(place(at), bytes).expect("inside");
    }

    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.memory.read(place(at), bytes).expect("inside");
    }

    pub fn load64(&self, at: u64) -> u64 {
        u64::from_le(self.memory.load64(place(at)).expect("inside"))
    }

    pub fn store64(&self, at: u64, value: u64) {
        let stored = self.memory.store64(place(at), value.to_le());
        stored.expect("inside");
    }

    pub fn load(&self, at: u64) -> u16 {
        u16::from_le(self.memory.load16(place(at)).expect("inside"))
    }

    pub fn store(&self, at: u64, value: u16) {
        let stored = self.memory.store16(place(at), value.to_le());
        stored.expect("inside");
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("small")
}

/// The front-end's side of the socket.
pub struct FrontEnd {
    pub stream: UnixStream,
}

impl FrontEnd {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream }
    }

    pub fn send(&self, request: u32, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        let size = u32::try_from(payload.len()).expect("small");
        for word in [request, 1 | flags, size] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL;
        // A server that has ended the connection already is found out by whoever reads.
        let _ = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, flags);
    }

    /// A reply's payload; `None` where the connection has ended.
    pub fn reply(&self) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        (&self.stream).read_exact(&mut header).ok()?;
        let size = u32::from_ne_bytes(header[8..].try_into().expect("four"));
        let mut payload = vec![0; size as usize];
        (&self.stream).read_exact(&mut payload).ok()?;
        Some(payload)
    }

    pub fn ask(&self, request: u32, payload: &[u8]) -> Option<Vec<u8>> {
        self.send(request, 0, payload, &[]);
        self.reply()
    }

    pub fn ask_number(&self, request: u32) -> u64 {
        let reply = self.ask(request, &[]).expect("a reply");
        u64::from_ne_bytes(reply.try_into().expect("a number"))
    }

    /// Sends and waits until it is done; whether it was taken.
    pub fn tell_with(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Option<bool> {
        self.send(request, 8, payload, files);
        Some(self.reply()? == 0u64.to_ne_bytes())
    }

    pub fn tell(&self, request: u32, payload: &[u8]) {
        assert_eq!(self.tell_with(request, payload, &[]), Some(true), "{request}");
    }

    /// A part of the configuration space, behind a header of 12 bytes.
    pub fn config(&self, offset: u32, len: u32) -> Vec<u8> {
        let mut payload = [offset, len, 0].map(u32::to_ne_bytes).concat();
        payload.resize(12 + len as usize, 0);
        self.ask(24, &payload).expect("a reply")
    }

    /// Agrees on these of the device's features.
    pub fn agree(&self, features: u64) {
        let offered = self.ask_number(1);
        assert_eq!(features & !offered, 0, "{offered:#x}");
        self.send(3, 0, &[], &[]);
        let protocol = self.ask_number(15);
        assert_eq!(protocol & (REPLY_ACK | CONFIG), REPLY_ACK | CONFIG);
        self.send(16, 0, &protocol.to_ne_bytes(), &[]);
        self.tell(2, &features.to_ne_bytes());
    }

    pub fn share(&self, machine: &Machine) {
        let regions = [(0, HALF), (HALF, HALF)];
        let mut payload = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for (offset, len) in regions {
            for word in [GUEST + offset, len, USER + offset, offset] {
                payload.extend(u64::to_ne_bytes(word));
            }
        }
        let file = machine.file.as_fd();
        assert_eq!(self.tell_with(5, &payload, &[file, file]), Some(true));
    }

    /// A number for a queue.
    pub fn queue(&self, request: u32, index: u32, value: u32) {
        self.tell(request, &state(index, value));
    }

    pub fn queue_addresses(&self, index: u32, [descriptors, used, available]: [u64; 3]) {
        let mut payload = state(index, 0).to_vec();
        for address in [descriptors, used, available, 0] {
            payload.extend(address.to_ne_bytes());
        }
        self.tell(9, &payload);
    }

    pub fn queue_file(&self, request: u32, index: u64, file: &OwnedFd) {
        assert_eq!(self.tell_with(request, &index.to_ne_bytes(), &[file.as_fd()]), Some(true));
    }

    /// Stops a queue: where it would go on.
    pub fn base(&self, index: u32) -> Option<u32> {
        let reply = self.ask(11, &state(index, 0))?;
        Some(u32::from_ne_bytes(reply[4..8].try_into().expect("four")))
    }
}

fn state(index: u32, value: u32) -> [u8; 8] {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&index.to_ne_bytes());
    payload[4..].copy_from_slice(&value.to_ne_bytes());
    payload
}

pub fn event() -> OwnedFd {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).expect("an eventfd")
}

/// A driver of one queue.
pub struct Driver {
    pub front: FrontEnd,
    pub machine: Machine,
    pub kick: OwnedFd,
    pub call: OwnedFd,
    features: u64,
    pub available: u16,
    pub used: u16,
    /// In place of the two indices above.
    pub packed: Option<Packed>,
    free: Vec<u16>,
    /// The next free byte for data.
    data: u64,
    /// Which way bytes are cut next.
    cut: u32,
}

/// One request, as the device type has it.
pub struct Asked<'a> {
    pub kind: u32,
    pub sector: u64,
    pub to_device: &'a [u8],
    pub to_driver: u64,
}

/// Where the bytes of a request lie.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub head: u16,
    pub data: u64,
}

impl Driver {
    pub fn start(stream: UnixStream) -> Self {
        Self::start_with(stream, FLUSH | EVENT_IDX)
    }

    /// With these features on top of what it always needs.
    pub fn start_with(stream: UnixStream, features: u64) -> Self {
        let features = features | INDIRECT | PROTOCOL | VERSION_1;
        let features = features | FrontEnd::changes();
        let driver = Self {
            front: FrontEnd::new(stream),
            machine: Machine::new(),
            kick: event(),
            call: event(),
            features,
            available: 0,
            used: 0,
            packed: (features & RING_PACKED != 0).then(Packed::new),
            free: (0..SIZE).rev().collect(),
            data: DATA,
            cut: 0,
        };
        let front = &driver.front;
        let offered = front.ask_number(1);
        front.agree(features & offered);
        // As machines do before they start; without it nobody knows what the driver takes for granted.
        front.config(0, 60);
        front.share(&driver.machine);
        driver.start_queue(driver.packed.as_ref().map_or(0, Packed::base));
        driver
    }

    pub fn start_queue(&self, base: impl Into<u32>) {
        let front = &self.front;
        front.queue(8, 0, SIZE.into());
        front.queue(10, 0, base.into());
        front.queue_addresses(0, Packed::addresses());
        front.queue_file(12, 0, &self.kick);
        front.queue_file(13, 0, &self.call);
        front.queue(18, 0, 1);
    }

    /// Goes to another server, which it tells its features and memory. The queue is not started.
    pub fn go_to(&mut self, stream: UnixStream, features: u64) {
        self.front = FrontEnd::new(stream);
        self.front.agree(features);
        self.front.share(&self.machine);
    }

    /// Lets the queue go on as one whose driver flushes, or does not.
    pub fn set_flushes(&mut self, on: bool) {
        let base = self.front.base(0).expect("a base");
        self.features = self.features & !FLUSH | if on { FLUSH } else { 0 };
        let features = self.features & self.front.ask_number(1);
        self.front.tell(2, &features.to_ne_bytes());
        self.start_queue(base);
    }

    /// Memory for data.
    pub fn place(&mut self, len: u64) -> u64 {
        if self.free.len() == usize::from(SIZE) {
            self.data = DATA;
        }
        let data = self.data;
        // The next one begins anywhere.
        self.data += len + 13;
        assert!(self.data < SCRATCH, "more data than the machine has memory");
        data
    }

    /// Puts a request into the available ring; the device does not know yet.
    pub fn put(&mut self, asked: &Asked<'_>) -> Placed {
        let len = asked.to_driver.max(asked.to_device.len() as u64);
        let data = self.place(len);
        self.machine.write(data, asked.to_device);
        self.put_at(asked, data)
    }

    pub fn put_at(&mut self, asked: &Asked<'_>, data: u64) -> Placed {
        let lengths = (asked.to_device.len() as u64, asked.to_driver);
        self.put_pieces((asked.kind, asked.sector), lengths, data)
    }

    /// A request of this kind whose data no memory has.
    pub fn put_outside(&mut self, kind: u32, len: u64) -> Placed {
        self.put_pieces((kind, 0), (len, 0), MEMORY)
    }

    fn put_pieces(&mut self, (kind, sector): (u32, u64), (to_device, to_driver): (u64, u64), data: u64) -> Placed {
        let head = self.free.pop().expect("a free descriptor");
        let slot = SLOTS + u64::from(head) * SLOT;
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.machine.write(slot, &header);
        self.machine.write(slot + STATUS, &[0xff]);
        self.cut += 1;
        let mut pieces = Pieces::new(self.cut);
        pieces.push(slot, 16, 0);
        pieces.push(data, to_device, 0);
        pieces.push(data, to_driver, WRITE);
        pieces.push(slot + STATUS, 1, WRITE);
        let count = pieces.link();
        for (index, piece) in (0..).zip(&pieces.list[..count]) {
            let bytes = match self.packed {
                // Tables of packed rings have no flag for it: all of their descriptors count.
                Some(_) => Piece { flags: piece.flags & !NEXT, ..*piece }.encode_packed(0),
                None => piece.encode(),
            };
            self.machine.write(slot + TABLE + 16 * index, &bytes);
        }
        let table = Piece {
            address: GUEST + slot + TABLE,
            len: u32::try_from(16 * count).expect("small"),
            flags: IS_INDIRECT,
            next: 0,
        };
        if let Some(packed) = &mut self.packed {
            packed.set_table(head, u16::try_from(count).expect("small"));
        } else {
            let at = DESCRIPTORS + 16 * u64::from(head);
            self.machine.write(at, &table.encode());
        }
        self.offer(head);
        Placed { head, data }
    }

    /// Makes a head available, which the device does not know yet.
    pub fn offer(&mut self, head: u16) {
        if let Some(packed) = &mut self.packed {
            let table = SLOTS + u64::from(head) * SLOT + TABLE;
            packed.offer(&self.machine, head, table, self.free.len());
            return;
        }
        let place = u64::from(self.available % SIZE);
        self.machine.store(AVAILABLE + 4 + 2 * place, head);
        self.available = self.available.wrapping_add(1);
    }

    /// Makes a request that is over available once more, as it is.
    pub fn put_again(&mut self, head: u16) {
        self.free.retain(|free| *free != head);
        self.offer(head);
    }

    /// Lets the device know of all that was put there, and kicks where it wants that.
    pub fn kick(&mut self) {
        let event_idx = self.features & EVENT_IDX != 0;
        if let Some(packed) = &mut self.packed {
            if packed.show(&self.machine, event_idx) {
                self.kick_anyway();
            }
            return;
        }
        let old = self.machine.load(AVAILABLE + 2);
        self.machine.store(AVAILABLE + 2, self.available);
        fence(Ordering::SeqCst);
        let wants = if self.features & EVENT_IDX == 0 {
            self.machine.load(USED) & 1 == 0
        } else {
            let event = self.machine.load(USED + 4 + 8 * u64::from(SIZE));
            self.available.wrapping_sub(event).wrapping_sub(1) < self.available.wrapping_sub(old)
        };
        if wants {
            self.kick_anyway();
        }
    }

    pub fn kick_anyway(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).expect("kicked");
    }

    /// The next used element: its head and length. `None` where nothing comes within `patience`.
    pub fn take_within(&mut self, patience: Duration) -> Option<(u16, u32)> {
        loop {
            if let Some((head, len)) = self.take_now() {
                self.free.push(head);
                return Some((head, len));
            }
            self.ask_for_interrupt();
            if self.has_used() {
                continue;
            }
            let mut polled = [PollFd::from_borrowed_fd(self.call.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(patience).expect("small");
            if poll(&mut polled, Some(&timeout)).expect("polled") == 0 {
                return None;
            }
            let _ = rustix::io::read(&self.call, &mut [0; 8]);
        }
    }

    fn ask_for_interrupt(&self) {
        if let Some(packed) = &self.packed {
            packed.ask(&self.machine, self.features & EVENT_IDX != 0);
            return;
        }
        let event = AVAILABLE + 4 + 2 * u64::from(SIZE);
        self.machine.store(event, self.used);
        fence(Ordering::SeqCst);
    }

    fn has_used(&self) -> bool {
        match &self.packed {
            Some(packed) => packed.has_used(&self.machine),
            None => self.machine.load(USED + 2) != self.used,
        }
    }

    fn take_now(&mut self) -> Option<(u16, u32)> {
        if !self.has_used() {
            return None;
        }
        if let Some(packed) = &mut self.packed {
            return Some(packed.take(&self.machine));
        }
        let place = u64::from(self.used % SIZE);
        let mut element = [0; 8];
        self.machine.read(USED + 4 + 8 * place, &mut element);
        self.used = self.used.wrapping_add(1);
        let head = u16::from_le_bytes([element[0], element[1]]);
        let len = u32::from_le_bytes(element[4..].try_into().expect("four"));
        Some((head, len))
    }

    pub fn take(&mut self) -> (u16, u32) {
        self.take_within(PATIENCE).expect("an answer")
    }

    /// Where the status of a request is written.
    pub fn status_at(head: u16) -> u64 {
        SLOTS + u64::from(head) * SLOT + STATUS
    }

    /// The status of a request that is over.
    pub fn status(&self, head: u16) -> u8 {
        let mut status = [0];
        self.machine.read(Self::status_at(head), &mut status);
        status[0]
    }

    /// One request and its end: status, used length, and what was written to the driver.
    pub fn run(&mut self, asked: &Asked<'_>) -> (u8, u32, Vec<u8>) {
        let placed = self.put(asked);
        self.kick();
        let (head, len) = self.take();
        assert_eq!(head, placed.head);
        let mut data = vec![0; place(asked.to_driver)];
        self.machine.read(placed.data, &mut data);
        (self.status(head), len, data)
    }
}

impl FrontEnd {
    /// Discard and zeroing, which a read-only disk does not offer.
    fn changes() -> u64 {
        1 << 13 | 1 << 14
    }
}
