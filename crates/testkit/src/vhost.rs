//! The driver's side of vhost-user: a virtual machine's memory, the messages of its front-end, and its rings.
//!
//! ```text
//! FrontEnd   socket ─► features, memory, queues
//! Machine    memory   for each queue: rings | headers, tables        then data
//! Vring      a request ─► its table, the ring, a kick        an interrupt ─► used elements
//! ```
//!
//! Each request has a table of its own, by the number of its head; how its bytes are cut into segments differs from one
//! to the next.

mod packed;
mod pieces;
mod vring;

pub use packed::{Packed, START, Turn};
pub use vring::{Placed, Vring};

use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cryptline_sys::GuestRange;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Feature bit: the driver flushes.
pub const FLUSH: u64 = 1 << 9;
/// Feature bit: requests have tables of their own.
pub const INDIRECT: u64 = 1 << 28;
/// Feature bit: each side says from where on it wants to be told.
pub const EVENT_IDX: u64 = 1 << 29;
/// Feature bit: there are protocol features.
pub const PROTOCOL: u64 = 1 << 30;
/// Feature bit: virtio 1.0.
pub const VERSION_1: u64 = 1 << 32;
/// Feature bit: packed rings.
pub const RING_PACKED: u64 = 1 << 34;
const REPLY_ACK: u64 = 1 << 3;
const CONFIG: u64 = 1 << 9;

/// Flag of a descriptor: another one follows.
pub const NEXT: u16 = 1;
/// Flag of a descriptor: the device writes.
pub const WRITE: u16 = 2;
/// Flag of a descriptor: it is a table.
pub const IS_INDIRECT: u16 = 4;

/// Where the process of the virtual machine would have its memory, and the guest.
pub const USER: u64 = 0x7f12_3400_0000;
/// Where the guest has it.
pub const GUEST: u64 = 0x4000_0000;
/// Memory, of which little is ever touched, in two adjacent regions.
pub const MEMORY: u64 = 1 << 30;
const HALF: u64 = MEMORY / 2;

/// Places of a queue.
pub const SIZE: u16 = 256;
/// Where a queue has its descriptors, in its part of the memory.
pub const DESCRIPTORS: u64 = 0;
/// Its available ring; the driver's area, in a packed one.
pub const AVAILABLE: u64 = 0x4000;
/// Its used ring; the device's area.
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
    /// Where it is, as the guest has it.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Flags.
    pub flags: u16,
    /// The one that follows.
    pub next: u16,
}

impl Piece {
    /// Its bytes in a split ring, or in a table.
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
    /// The memory, to be shared.
    pub file: OwnedFd,
    /// The same, mapped here.
    pub memory: GuestRange,
}

impl Machine {
    /// Memory of zeros.
    ///
    /// # Panics
    /// Where there is none.
    pub fn new() -> Self {
        let file = memfd_create("machine", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, MEMORY).expect("memory");
        let len = usize::try_from(MEMORY).expect("small");
        let memory = GuestRange::map(&file, 0, len).expect("mapped");
        Self { file, memory }
    }

    /// Writes bytes.
    ///
    /// # Panics
    /// Outside of the memory, as all below.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write(place(at), bytes).expect("inside");
    }

    /// Reads bytes.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        self.memory.read(place(at), bytes).expect("inside");
    }

    /// Reads a number of 64 bits.
    pub fn load64(&self, at: u64) -> u64 {
        u64::from_le(self.memory.load64(place(at)).expect("inside"))
    }

    /// Writes a number of 64 bits.
    pub fn store64(&self, at: u64, value: u64) {
        let stored = self.memory.store64(place(at), value.to_le());
        stored.expect("inside");
    }

    /// Reads a number of 16 bits.
    pub fn load(&self, at: u64) -> u16 {
        u16::from_le(self.memory.load16(place(at)).expect("inside"))
    }

    /// Writes a number of 16 bits.
    pub fn store(&self, at: u64, value: u16) {
        let stored = self.memory.store16(place(at), value.to_le());
        stored.expect("inside");
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("small")
}

/// The front-end's side of the socket.
pub struct FrontEnd {
    /// The socket.
    pub stream: UnixStream,
}

impl FrontEnd {
    /// A front-end that waits for no answer longer than [`PATIENCE`].
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream }
    }

    /// Sends a message, with descriptors.
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

    /// Sends a message; its reply, where the connection has not ended.
    pub fn ask(&self, request: u32, payload: &[u8]) -> Option<Vec<u8>> {
        self.send(request, 0, payload, &[]);
        self.reply()
    }

    /// The same where the reply is a number, and comes.
    pub fn ask_number(&self, request: u32) -> u64 {
        let reply = self.ask(request, &[]).expect("a reply");
        u64::from_ne_bytes(reply.try_into().expect("a number"))
    }

    /// Sends and waits until it is done; whether it was taken.
    pub fn tell_with(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Option<bool> {
        self.send(request, 8, payload, files);
        Some(self.reply()? == 0u64.to_ne_bytes())
    }

    /// Sends what must be taken.
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

    /// Shares all memory of a machine.
    pub fn share(&self, machine: &Machine) {
        let file = machine.file.as_fd();
        assert_eq!(self.tell_with(5, &regions(), &[file, file]), Some(true));
    }

    /// A number for a queue.
    pub fn queue(&self, request: u32, index: u32, value: u32) {
        self.tell(request, &state(index, value));
    }

    /// Tells where a queue lies.
    pub fn queue_addresses(&self, index: u32, places: [u64; 3]) {
        self.tell(9, &addresses(index, places));
    }

    /// Hands over an eventfd of a queue.
    pub fn queue_file(&self, request: u32, index: u64, file: &OwnedFd) {
        assert_eq!(self.tell_with(request, &index.to_ne_bytes(), &[file.as_fd()]), Some(true));
    }

    /// Stops a queue: where it would go on.
    pub fn base(&self, index: u32) -> Option<u32> {
        let reply = self.ask(11, &state(index, 0))?;
        Some(u32::from_ne_bytes(reply[4..8].try_into().expect("four")))
    }
}

/// All memory, as a front-end tells of it; it comes with the machine's descriptor twice.
#[must_use]
pub fn regions() -> Vec<u8> {
    let mut payload = vec![2, 0, 0, 0, 0, 0, 0, 0];
    for (offset, len) in [(0, HALF), (HALF, HALF)] {
        for word in [GUEST + offset, len, USER + offset, offset] {
            payload.extend(u64::to_ne_bytes(word));
        }
    }
    payload
}

/// Where a queue has its descriptors, used ring and available ring.
#[must_use]
pub fn addresses(index: u32, [descriptors, used, available]: [u64; 3]) -> Vec<u8> {
    let mut payload = state(index, 0).to_vec();
    for address in [descriptors, used, available, 0] {
        payload.extend(address.to_ne_bytes());
    }
    payload
}

/// A number for a queue.
#[must_use]
pub fn state(index: u32, value: u32) -> [u8; 8] {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&index.to_ne_bytes());
    payload[4..].copy_from_slice(&value.to_ne_bytes());
    payload
}

/// An eventfd that nobody waits in.
pub fn event() -> OwnedFd {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).expect("an eventfd")
}
