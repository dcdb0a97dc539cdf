//! The kernel's nbd driver by generic netlink: connect and disconnect.
//!
//! ```text
//! message     length u32, type u16, flags u16, sequence u32, port u32
//!   command   command u8, version u8, reserved u16
//!     attribute   length u16, type u16, value, padded to 4 bytes; a value may be attributes again
//! ```
//!
//! All numbers are in the machine's own order. The kernel carries a request out within `sendto`, so its answers
//! are there when that returns, and nothing here waits.
//!
//! Source: Linux's include/uapi/linux/{netlink,genetlink,nbd-netlink}.h.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const HEADER: usize = 16;
const COMMAND_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// Bytes of the longest answer: what there is to know of a family.
const ANSWER_MAX: usize = 4096;

const REQUEST_AND_ACK: u16 = 1 | 4;
/// The type of an answer that ends a request: 0 or an error.
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;

/// The family that knows the others.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

mod command {
    pub const CONNECT: u8 = 1;
    pub const DISCONNECT: u8 = 2;
}

mod attribute {
    pub const INDEX: u16 = 1;
    pub const SIZE_BYTES: u16 = 2;
    pub const BLOCK_SIZE_BYTES: u16 = 3;
    pub const TIMEOUT: u16 = 4;
    pub const SERVER_FLAGS: u16 = 5;
    pub const SOCKETS: u16 = 7;
    pub const DEAD_CONN_TIMEOUT: u16 = 8;
    /// In a list of sockets, and in one of them.
    pub const SOCK_ITEM: u16 = 1;
    pub const SOCK_FD: u16 = 1;
}

/// A disk as the driver is told of it.
pub(super) struct NbdDisk<'a> {
    /// The number of the device; `None` for any that is free.
    pub index: Option<u32>,
    pub size: u64,
    pub block: u32,
    /// NBD's transmission flags.
    pub flags: u16,
    /// Seconds that a request may take. Without, a single connection is waited for for ever, and of several another is
    /// asked after 30 s.
    pub timeout: Option<u64>,
    /// One connection each.
    pub sockets: &'a [BorrowedFd<'a>],
}

/// A way to the driver.
pub(super) struct NetlinkDriver {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

impl NetlinkDriver {
    /// Finds the driver. An error of [`Errno::NOENT`]: this kernel has none, or it is not loaded.
    pub fn find() -> io::Result<Self> {
        let family = AddressFamily::NETLINK;
        let flags = SocketFlags::CLOEXEC;
        let protocol = Some(netlink::GENERIC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut driver = Self { socket, family: CONTROL, sequence: 0 };
        let mut name = NetlinkAttributes::default();
        name.push(FAMILY_NAME, b"nbd\0");
        let answer = driver.ask(GET_FAMILY, &name)?;
        let id = find(&answer, FAMILY_ID).and_then(|value| value.first_chunk());
        driver.family = u16::from_ne_bytes(*id.ok_or(io::ErrorKind::InvalidData)?);
        Ok(driver)
    }

    /// Makes a disk of sockets; its number.
    pub fn connect(&mut self, disk: &NbdDisk<'_>) -> io::Result<u32> {
        let mut all = NetlinkAttributes::default();
        if let Some(index) = disk.index {
            all.push(attribute::INDEX, &index.to_ne_bytes());
        }
        let block = u64::from(disk.block);
        all.push(attribute::SIZE_BYTES, &disk.size.to_ne_bytes());
        all.push(attribute::BLOCK_SIZE_BYTES, &block.to_ne_bytes());
        let flags = u64::from(disk.flags);
        all.push(attribute::SERVER_FLAGS, &flags.to_ne_bytes());
        // Whoever serves the disk and is gone does not come back: what is asked then fails at once.
        all.push(attribute::DEAD_CONN_TIMEOUT, &0_u64.to_ne_bytes());
        if let Some(timeout) = disk.timeout {
            all.push(attribute::TIMEOUT, &timeout.to_ne_bytes());
        }
        let mut sockets = NetlinkAttributes::default();
        for socket in disk.sockets {
            let mut item = NetlinkAttributes::default();
            item.push(attribute::SOCK_FD, &socket.as_raw_fd().to_ne_bytes());
            sockets.push(attribute::SOCK_ITEM | NESTED, &item.0);
        }
        all.push(attribute::SOCKETS | NESTED, &sockets.0);
        let answer = self.ask(command::CONNECT, &all)?;
        let index = find(&answer, attribute::INDEX).and_then(|value| value.first_chunk());
        Ok(u32::from_ne_bytes(*index.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Takes a disk's sockets away. Nothing happens where it has none.
    pub fn disconnect(&mut self, index: u32) -> io::Result<()> {
        let mut attributes = NetlinkAttributes::default();
        attributes.push(attribute::INDEX, &index.to_ne_bytes());
        self.ask(command::DISCONNECT, &attributes).map(drop)
    }

    /// Sends a request; the attributes of its answer, if it has any.
    fn ask(&mut self, command: u8, attributes: &NetlinkAttributes) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let message = self.request(command, attributes);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut found = Vec::new();
        let mut answers = [0; ANSWER_MAX];
        loop {
            let (len, _) = rustix::net::recv(&self.socket, &mut answers, RecvFlags::DONTWAIT)?;
            let mut rest = &answers[..len.min(ANSWER_MAX)];
            while let Some((kind, sequence, body)) = next_message(&mut rest) {
                if sequence != self.sequence {
                    continue;
                }
                if kind != ERROR {
                    found = body.get(COMMAND_HEADER..).unwrap_or_default().to_vec();
                    continue;
                }
                let error = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return match error {
                    0 => Ok(found),
                    error => Err(Errno::from_raw_os_error(error.saturating_neg()).into()),
                };
            }
        }
    }

    fn request(&self, command: u8, attributes: &NetlinkAttributes) -> Vec<u8> {
        let len = HEADER + COMMAND_HEADER + attributes.0.len();
        let mut message = Vec::with_capacity(len);
        message.extend(u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
        message.extend(self.family.to_ne_bytes());
        message.extend(REQUEST_AND_ACK.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        // Our port: the kernel knows it.
        message.extend([0; 4]);
        message.extend([command, 1, 0, 0]);
        message.extend(&attributes.0);
        message
    }
}

/// Attributes in the making.
#[derive(Default)]
struct NetlinkAttributes(Vec<u8>);

impl NetlinkAttributes {
    fn push(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("an attribute is short");
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Type, sequence number and body of the message in front, which is taken off.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, u32, &'a [u8])> {
    let header: &[u8; HEADER] = rest.first_chunk()?;
    let [l0, l1, l2, l3, k0, k1, _, _, s0, s1, s2, s3, ..] = *header;
    let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    let body = rest.get(HEADER..len)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([k0, k1]), u32::from_ne_bytes([s0, s1, s2, s3]), body))
}

/// The value of the first attribute of a type.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [l0, l1, k0, k1] = *attributes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = attributes.get(ATTRIBUTE_HEADER..len)?;
        if u16::from_ne_bytes([k0, k1]) & !NESTED == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_found_also_inside_of_another() {
        let mut inner = NetlinkAttributes::default();
        inner.push(7, &[1]);
        inner.push(9, &5_u32.to_ne_bytes());
        let mut outer = NetlinkAttributes::default();
        outer.push(1, b"odd");
        outer.push(3 | NESTED, &inner.0);
        assert!(outer.0.len().is_multiple_of(4));
        assert_eq!(find(&outer.0, 1), Some(&b"odd"[..]));
        let nested = find(&outer.0, 3).unwrap();
        assert_eq!(find(nested, 9), Some(&5_u32.to_ne_bytes()[..]));
        assert_eq!(find(nested, 8), None);
    }

    #[test]
    fn answer_that_is_cut_short_anywhere_is_no_attribute_and_no_message() {
        let mut attributes = NetlinkAttributes::default();
        attributes.push(1, b"value");
        for cut in 0..attributes.0.len() {
            let found = find(&attributes.0[..cut], 1);
            assert!(cut >= 9 || found.is_none(), "{cut}");
        }
        // A length of 0 must not be looked at for ever.
        assert_eq!(find(&[0; 16], 1), None);
        assert_eq!(next_message(&mut &[0; 64][..]), None);
        let mut short = &[200, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..];
        assert_eq!(next_message(&mut short), None);
    }

    #[test]
    fn kernel_without_the_driver_says_so() {
        match NetlinkDriver::find() {
            Ok(_) => {}
            Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error())),
        }
    }
}
