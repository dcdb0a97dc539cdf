//! The front-end's side of a vhost-user socket: what QEMU says of a virtual machine and its disk.
//!
//! The messages are those of QEMU's docs/interop/vhost-user.rst. Each is acknowledged, so what a server
//! does not take is known at once.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Features of the disk, its ring and the protocol.
pub mod feature {
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    /// Of the protocol: messages are acknowledged, and the configuration can be read.
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const CONFIG: u64 = 1 << 9;
}

mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
}

/// The version of the protocol, and a bit that asks for an acknowledgement.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;
/// Longest answer that is taken.
const ANSWER_MAX: usize = 512;
const SECTOR: u64 = 512;

/// Where a machine's memory is, in the terms of whoever runs it and of its guest.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    pub file: BorrowedFd<'a>,
    pub len: u64,
    pub guest: u64,
    pub user: u64,
}

/// Its one virtqueue: user addresses of the three parts of the ring, and what wakes whom.
#[derive(Clone, Copy, Debug)]
pub struct Vring<'a> {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    pub kick: BorrowedFd<'a>,
    pub call: BorrowedFd<'a>,
}

/// A connected front-end.
#[derive(Debug)]
pub struct FrontEnd(UnixStream);

type Answer<T> = Result<T, String>;

impl FrontEnd {
    /// Over a stream whose server may keep silent for so long.
    pub fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        let patience = Some(patience.max(Duration::from_millis(1)));
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        Ok(Self(stream))
    }

    /// Agrees on features, all of which are needed. Gives the bytes of the disk.
    pub fn agree(&self) -> Answer<u64> {
        let needed = feature::EVENT_IDX | feature::PROTOCOL | feature::VERSION_1;
        let offered = self.ask_number(request::GET_FEATURES)?;
        if offered & needed != needed {
            return Err(format!("offers features {offered:#x}, and {needed:#x} are needed"));
        }
        self.send(request::SET_OWNER, 0, &[], &[])?;
        let protocol = feature::REPLY_ACK | feature::CONFIG;
        let offered = self.ask_number(request::GET_PROTOCOL_FEATURES)?;
        if offered & protocol != protocol {
            return Err(format!("offers protocol features {offered:#x}, and {protocol:#x} are needed"));
        }
        let payload = protocol.to_ne_bytes();
        self.send(request::SET_PROTOCOL_FEATURES, 0, &payload, &[])?;
        self.tell(request::SET_FEATURES, &needed.to_ne_bytes(), &[])?;
        self.disk_size()
    }

    /// The first number of the disk's configuration is its size in sectors.
    fn disk_size(&self) -> Answer<u64> {
        const HEADER: usize = 12;
        let mut payload = [0; HEADER + 8];
        payload[4..8].copy_from_slice(&8u32.to_ne_bytes());
        let answer = self.ask(request::GET_CONFIG, &payload)?;
        let sectors = answer.get(HEADER..).and_then(<[u8]>::first_chunk);
        let sectors = sectors.ok_or("does not say how large the disk is")?;
        Ok(u64::from_le_bytes(*sectors).saturating_mul(SECTOR))
    }

    /// Shares all memory, and starts the queue.
    pub fn start(&self, memory: Memory<'_>, vring: Vring<'_>) -> Answer<()> {
        let words = [memory.guest, memory.len, memory.user, 0];
        let region = words.map(u64::to_ne_bytes);
        let count = [1u32, 0].map(u32::to_ne_bytes);
        let table = [count.as_flattened(), region.as_flattened()].concat();
        self.tell(request::SET_MEM_TABLE, &table, &[memory.file])?;
        let state = |value: u32| [[0; 4], value.to_ne_bytes()];
        let number = |kind, value| self.tell(kind, state(value).as_flattened(), &[]);
        number(request::SET_VRING_NUM, vring.size.into())?;
        number(request::SET_VRING_BASE, 0)?;
        let words = [0, vring.descriptors, vring.used, vring.available, 0];
        let addresses = words.map(u64::to_ne_bytes);
        self.tell(request::SET_VRING_ADDR, addresses.as_flattened(), &[])?;
        self.tell(request::SET_VRING_KICK, &[0; 8], &[vring.kick])?;
        self.tell(request::SET_VRING_CALL, &[0; 8], &[vring.call])?;
        number(request::SET_VRING_ENABLE, 1)
    }

    /// Sends, and waits until it was done.
    fn tell(&self, kind: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Answer<()> {
        self.send(kind, NEED_REPLY, payload, files)?;
        match self.answer(kind)?[..] {
            [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
            _ => Err(format!("refuses message {kind}")),
        }
    }

    fn ask_number(&self, kind: u32) -> Answer<u64> {
        let answer = self.ask(kind, &[])?;
        let number = answer.try_into().map(u64::from_ne_bytes);
        number.map_err(|_| format!("answers message {kind} wrongly"))
    }

    fn ask(&self, kind: u32, payload: &[u8]) -> Answer<Vec<u8>> {
        self.send(kind, 0, payload, &[])?;
        self.answer(kind)
    }

    fn send(&self, kind: u32, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> Answer<()> {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let header = [kind, VERSION | flags, size].map(u32::to_ne_bytes);
        let message = [header.as_flattened(), payload].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err("too many descriptors for one message".into());
        }
        let pieces = [IoSlice::new(&message)];
        // A message is far smaller than a socket's buffer, so all of it goes at once.
        match sendmsg(self.0.as_fd(), &pieces, &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err("takes no more messages".into()),
            Err(error) => Err(format!("takes no message: {error}")),
        }
    }

    fn answer(&self, kind: u32) -> Answer<Vec<u8>> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("did not answer message {kind} in time")
            }
            _ => format!("ended the connection at message {kind}: {error}"),
        };
        let mut header = [0; 12];
        (&self.0).read_exact(&mut header).map_err(failed)?;
        let word = |at: usize| header[at..].first_chunk().map_or(0, |it| u32::from_ne_bytes(*it));
        let size = word(8) as usize;
        if word(0) != kind || size > ANSWER_MAX {
            return Err(format!("answers message {kind} wrongly"));
        }
        let mut payload = vec![0; size];
        (&self.0).read_exact(&mut payload).map_err(failed)?;
        Ok(payload)
    }
}
