//! FUSE over io_uring (Linux 6.14): entries that carry a request from the kernel and its answer back.
//!
//! ```text
//! register ─► kernel ─► request ─► (served) ─► answer ─► commit, and wait for the next request ─► kernel ...
//!             headers 288: header 128 │ arguments 128 │ lengths 32      payload: data, one way or the other
//! ```
//!
//! The kernel learns where an entry's memory is when the entry is registered, and uses it until the mount is gone. It
//! does so only while it has the entry: it writes to it before it gives it back, and reads it when it gets it again.
//! Each processor has a queue of its own for the requests of the programs that run there, and no queue is used before
//! all of them have an entry.
//!
//! Source: Linux's include/uapi/linux/fuse.h, fs/fuse/dev_uring.c and Documentation/filesystems/fuse/fuse-io-uring.rst.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};
use rustix::fs::{FileType, fstat, major, minor};

use crate::ring::new_mark;
use crate::{Arena, Buffer, FileId, Ring};

/// The device's numbers.
const DEVICE: (u32, u32) = (10, 229);
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Where what begins in the headers.
const ARGUMENTS: usize = 128;
const LENGTHS: usize = 256;
const COMMIT_ID: usize = LENGTHS + 8;
const PAYLOAD_LEN: usize = LENGTHS + 16;
const HEADERS: usize = 288;
/// Bytes of a command in its entry of the ring.
const COMMAND: usize = 80;

/// A descriptor of `/dev/fuse` whose requests come through a ring.
#[derive(Clone, Copy, Debug)]
pub struct FuseQueues {
    file: FileId,
    mark: u64,
}

impl FuseQueues {
    /// Errors: `InvalidInput` for a descriptor of anything else, `Unsupported` where the ring is not a wide one.
    pub fn new(ring: &mut Ring, device: Arc<OwnedFd>) -> io::Result<Self> {
        let found = fstat(&device)?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        // What others make of such commands could be anything.
        if !is_device || (major(found.st_rdev), minor(found.st_rdev)) != DEVICE {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !ring.is_wide() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mark = new_mark();
        let file = ring.add_commanded(device, mark);
        Ok(Self { file, mark })
    }

    /// An entry for a queue, with a payload of so many bytes: of the longest read or write.
    pub fn entry(&self, queue: u16, payload: usize) -> io::Result<Box<FuseEntry>> {
        let arena = Arena::new(payload, 1)?;
        Ok(Box::new(FuseEntry {
            of: *self,
            queue,
            is_registered: false,
            headers: Box::new([0; HEADERS]),
            payload: arena.take(),
            arena,
            vectors: [EMPTY; 2],
        }))
    }
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// An entry, for [`Io::Fuse`](crate::Io::Fuse). What comes back without an error has a request in it.
pub struct FuseEntry {
    of: FuseQueues,
    queue: u16,
    is_registered: bool,
    headers: Box<[u8; HEADERS]>,
    /// One slot: so whoever has all of it has what the kernel knows.
    arena: Arc<Arena>,
    payload: Option<Buffer>,
    /// Memory that the kernel reads when the entry is registered.
    vectors: [libc::iovec; 2],
}

// SAFETY: the vectors point to memory that the entry owns and that may go to other threads; they are built anew for
// each operation.
unsafe impl Send for FuseEntry {}

impl FuseEntry {
    pub(crate) fn file(&self) -> FileId {
        self.of.file
    }

    pub(crate) fn mark(&self) -> u64 {
        self.of.mark
    }

    /// The request's header, followed by other bytes.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.headers[..ARGUMENTS]
    }

    /// The first structure of its arguments, followed by other bytes.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.headers[ARGUMENTS..LENGTHS]
    }

    /// Bytes of what is in the payload: the other arguments, and data.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let bytes = self.headers[PAYLOAD_LEN..].first_chunk();
        let len = bytes.copied().map_or(0, u32::from_ne_bytes);
        usize::try_from(len).unwrap_or(usize::MAX)
    }

    /// All of the payload's memory. `None` while a part of what was [taken](Self::take_payload) is not dropped.
    pub fn payload(&mut self) -> Option<&mut [u8]> {
        if self.payload.is_none() {
            self.payload = self.arena.take();
        }
        // No more than its bytes: nobody must put another buffer there.
        self.payload.as_deref_mut()
    }

    /// Takes the payload's memory, as [`payload`](Self::payload) has it. Once all of its pieces are dropped it is here
    /// again, with the bytes that are in it by then.
    pub fn take_payload(&mut self) -> Option<Buffer> {
        self.payload()?;
        self.payload.take()
    }

    /// Tells if a buffer is a piece of the payload's memory.
    #[must_use]
    pub fn owns(&self, buffer: &Buffer) -> bool {
        buffer.belongs_to(&self.arena)
    }

    /// Puts in an answer's header. Its body is the first `payload` bytes of the payload.
    pub fn answer(&mut self, header: &[u8; 16], payload: u32) {
        self.headers[..header.len()].copy_from_slice(header);
        self.headers[PAYLOAD_LEN..][..4].copy_from_slice(&payload.to_ne_bytes());
    }

    /// Tells if the kernel can have it: nobody else has a part of its memory.
    pub fn is_whole(&mut self) -> bool {
        self.payload().is_some()
    }

    /// The command for a ring. What it points to stays where it is as long as the entry is neither dropped nor changed.
    pub(crate) fn describe(&mut self, device: &OwnedFd) -> Entry128 {
        assert!(self.is_whole(), "an entry with all its memory");
        let command = if self.is_registered { COMMIT_AND_FETCH } else { REGISTER };
        let mut bytes = [0; COMMAND];
        if self.is_registered {
            // As the kernel has left it there: no entry can be taken for another.
            bytes[8..16].copy_from_slice(&self.headers[COMMIT_ID..COMMIT_ID + 8]);
        }
        bytes[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let fd = types::Fd(device.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, command).cmd(bytes);
        if self.is_registered {
            return entry.build();
        }
        self.is_registered = true;
        let headers: &mut [u8] = &mut *self.headers;
        let payload = self.payload.as_mut().map_or(&mut [][..], |it| &mut *it);
        self.vectors =
            [headers, payload].map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        let vectors = self.vectors.as_mut_ptr().expose_provenance() as u64;
        let entry = entry.addr(Some(vectors)).build();
        with_len(entry, 2)
    }
}

/// The same entry with a length, which those of commands have not.
fn with_len(mut entry: Entry128, len: u32) -> Entry128 {
    const LEN: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: an entry is the kernel's `struct io_uring_sqe`: 128 bytes of numbers, with a `u32` at this place.
    unsafe { (&raw mut entry).byte_add(LEN).cast::<u32>().write(len) };
    entry
}

impl fmt::Debug for FuseEntry {
    /// Without the bytes: payloads hold clear text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FuseEntry(queue {})", self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BackendChoice;

    fn ring(choice: BackendChoice) -> Option<Ring> {
        Ring::new(choice, 8).ok()
    }

    #[test]
    fn only_the_device_of_fuse_takes_entries_and_only_through_a_wide_ring() {
        let open = |path| Arc::new(OwnedFd::from(std::fs::File::open(path).unwrap()));
        for choice in [BackendChoice::WideIoUring, BackendChoice::Syscalls] {
            let Some(mut ring) = ring(choice) else {
                continue; // no io_uring here
            };
            for path in ["/dev/null", "/"] {
                let refused = FuseQueues::new(&mut ring, open(path)).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            }
            if let Ok(device) = std::fs::File::open("/dev/fuse") {
                let device = Arc::new(OwnedFd::from(device));
                assert_eq!(FuseQueues::new(&mut ring, device).is_ok(), choice == BackendChoice::WideIoUring);
            }
        }
    }

    #[test]
    fn payload_is_back_when_all_its_pieces_are_dropped_and_the_kernel_knows_it_still() {
        let queues = FuseQueues { file: FileId::for_test(), mark: 0 };
        let mut entry = queues.entry(3, 8192).unwrap();
        let mut whole = entry.take_payload().unwrap();
        let place = whole.as_ptr().addr();
        whole.fill(7);
        let rest = whole.split_off(4096);
        assert!(entry.owns(&rest) && !entry.is_whole());
        drop(whole);
        assert!(entry.payload().is_none());
        drop(rest);
        let back = entry.payload().unwrap();
        assert_eq!((back.as_ptr().addr(), back.len()), (place, 8192));
        assert!(back.iter().all(|byte| *byte == 7));
    }
}
