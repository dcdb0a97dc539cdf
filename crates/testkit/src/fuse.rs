//! The kernel's side of FUSE: its messages, over sockets that keep them apart, as `/dev/fuse` does. No mount is needed.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

/// The node of the first disk in a folder; that of the next is two more.
pub const DISK: u64 = 2;
/// The folder that is mounted.
pub const ROOT: u64 = 1;
/// Bytes that a socket is asked to take.
const SOCKET: usize = 4 << 20;

/// The number of each call.
pub mod code {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const READDIR: u32 = 28;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const FALLOCATE: u32 = 43;
    pub const LSEEK: u32 = 46;
}

/// A pair of connected sockets, and whether large messages fit.
///
/// # Panics
/// Where there are no sockets to be had.
#[must_use]
pub fn sockets() -> (OwnedFd, OwnedFd, bool) {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.expect("a pair of sockets");
    let grown = [&ours, &theirs].map(|end| sockopt::set_socket_send_buffer_size_force(end, SOCKET).is_ok());
    (ours, theirs, grown == [true; 2])
}

/// A call about the first disk.
///
/// # Panics
/// Where its length is no number of four bytes.
#[must_use]
pub fn encode(opcode: u32, unique: u64, arguments: &[u8], data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + arguments.len() + data.len()).expect("small");
    let mut message = Vec::with_capacity(len as usize);
    message.extend(len.to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(DISK.to_ne_bytes());
    message.extend([0; 16]);
    message.extend(arguments);
    message.extend(data);
    message
}

/// A call whose arguments are numbers of eight bytes.
#[must_use]
pub fn call(opcode: u32, unique: u64, arguments: &[u64], data: &[u8]) -> Vec<u8> {
    let bytes: Vec<u8> = arguments.iter().flat_map(|it| it.to_ne_bytes()).collect();
    encode(opcode, unique, &bytes, data)
}

/// The same call about another node.
#[must_use]
pub fn about(node: u64, mut message: Vec<u8>) -> Vec<u8> {
    message[16..24].copy_from_slice(&node.to_ne_bytes());
    message
}

/// The kernel's first word, with all that it can offer.
#[must_use]
pub fn first_word() -> Vec<u8> {
    let words = [7, 45, 131_072, u32::MAX, u32::MAX];
    let mut arguments: Vec<u8> = words.iter().flat_map(|it: &u32| it.to_ne_bytes()).collect();
    arguments.resize(64, 0);
    encode(code::INIT, 1, &arguments, &[])
}
