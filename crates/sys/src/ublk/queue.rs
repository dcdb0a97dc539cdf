//! One queue of a ublk device: its descriptors, and the commands for its tags.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};

use super::batch::{self, Batch};
use super::{UblkControl, code};
use crate::{Buffer, FileId, Io, Ring, page_size};

/// Bytes of a descriptor, and the largest number of tags, which sets how far the queues' descriptors are apart.
const DESCRIPTOR: usize = 24;
const DEPTH_MAX: usize = 4096;
const GET_INFO: u32 = 0x02;
const INFO: usize = 64;
/// The flag of a device whose data is copied by calls on its file.
const USER_COPY: u64 = 1 << 7;
/// The flag of a device whose commands are for many tags each.
const BATCHES: u64 = 1 << 15;
/// Where in its file the data of a queue's tag lies.
const DATA: u64 = 0x8000_0000;
const QUEUE_SHIFT: u32 = 41;
const TAG_SHIFT: u32 = 25;
const FETCH: u32 = code(0x20, 16);
const COMMIT_AND_FETCH: u32 = code(0x21, 16);
const INFO_LIMIT: Duration = Duration::from_secs(10);

/// An open `/dev/ublkcN`. It can be open once.
pub struct UblkDevice {
    file: Arc<OwnedFd>,
    /// No other device in this process had it.
    mark: u64,
    queues: u16,
    depth: u16,
    buffer_len: usize,
    copies: bool,
    in_batches: bool,
}

impl UblkDevice {
    /// Opens the device that the driver has made with this number.
    pub fn open(control: &mut UblkControl, id: u32) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).open(super::node(id))?;
        // Asked while it is open: as long as it is, no other device has its number.
        let info = control.command(GET_INFO, id, 0, vec![0; INFO], INFO_LIMIT)?;
        let u16_at = |at: usize| u16::from_ne_bytes([info[at], info[at + 1]]);
        let longest = u32::from_ne_bytes([info[8], info[9], info[10], info[11]]);
        let flags = u64::from_ne_bytes(info[24..].first_chunk().copied().unwrap_or_default());
        Ok(Self {
            file: Arc::new(file.into()),
            mark: crate::ring::new_mark(),
            queues: u16_at(0),
            depth: u16_at(2),
            buffer_len: usize::try_from(longest).map_err(|_| io::ErrorKind::OutOfMemory)?,
            copies: flags & USER_COPY != 0,
            in_batches: flags & BATCHES != 0,
        })
    }

    /// Its queues.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Tags of each.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Bytes that a buffer must have: the most that a request moves.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.buffer_len
    }
}

/// One queue, for the thread whose ring serves it. The thread that first fetches a tag is the only one that may
/// commit it.
pub struct UblkQueue {
    file: FileId,
    mark: u64,
    number: u16,
    depth: u16,
    buffer_len: usize,
    /// The device's file, where data is copied by calls on it.
    copies: Option<Arc<OwnedFd>>,
    in_batches: bool,
    descriptors: NonNull<u8>,
    mapped: usize,
}

/// Data that goes to the kernel with a command.
#[derive(Debug)]
pub enum Payload {
    /// Memory for the data of the next request; at its start, that of a read that ends.
    Buffer(Buffer),
    /// Of a device whose data is copied by calls: the sector at which an append that ends was written, otherwise 0.
    Sector(u64),
}

/// Command of a queue's tag, with the memory for it.
#[derive(Debug)]
pub struct UblkCommand {
    pub(crate) file: FileId,
    pub(crate) mark: u64,
    pub(crate) code: u32,
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    payload: Payload,
}

impl UblkCommand {
    /// `struct ublksrv_io_cmd`.
    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let address = self.word();
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        bytes
    }

    /// The address of its memory, or what is told in its place.
    pub(super) fn word(&mut self) -> u64 {
        match &mut self.payload {
            Payload::Buffer(buffer) => buffer.as_mut_ptr().expose_provenance() as u64,
            Payload::Sector(sector) => *sector,
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(file: FileId, queue: u16, tag: u16, result: i32, payload: Payload) -> Self {
        Self { file, mark: 0, code: batch::COMMIT, queue, tag, result, payload }
    }

    /// Tells if it goes to the kernel together with those of other tags.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self.code, batch::PREPARE | batch::COMMIT)
    }

    /// Returns the payload, once the kernel has given the command back.
    #[must_use]
    pub fn into_payload(self) -> Payload {
        self.payload
    }
}

impl UblkQueue {
    /// Maps the queue's descriptors and makes the device known to the ring.
    pub fn open(device: &UblkDevice, number: u16, ring: &mut Ring) -> io::Result<Self> {
        let depth = usize::from(device.depth);
        if number >= device.queues || depth > DEPTH_MAX || depth == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let page = page_size();
        let apart = (DEPTH_MAX * DESCRIPTOR).next_multiple_of(page);
        let mapped = (depth * DESCRIPTOR).next_multiple_of(page);
        let offset = usize::from(number) * apart;
        // SAFETY: a new mapping: it aliases nothing. It is read-only.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                &device.file,
                offset as u64,
            )
        }?;
        let descriptors = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let queue = Self {
            file: ring.add_commanded(Arc::clone(&device.file), device.mark),
            mark: device.mark,
            number,
            depth: device.depth,
            buffer_len: device.buffer_len,
            copies: device.copies.then(|| Arc::clone(&device.file)),
            in_batches: device.in_batches,
            descriptors,
            mapped,
        };
        if queue.in_batches {
            let device = Arc::clone(&device.file);
            ring.add_batch(Batch::new(device, number, queue.depth, queue.copies())?)?;
        }
        Ok(queue)
    }

    /// Tags.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Bytes that a buffer must have.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// The descriptor of a tag whose request has come.
    ///
    /// # Panics
    /// Where there is no such tag: a caller's bug.
    #[must_use]
    pub fn descriptor(&self, tag: u16) -> [u8; DESCRIPTOR] {
        assert!(tag < self.depth, "a tag of this queue");
        let mut descriptor = [0; DESCRIPTOR];
        // SAFETY: the tag's descriptor lies in the mapping, which lives as long as this queue. Only the kernel writes
        // to it.
        unsafe {
            let from = self.descriptors.as_ptr().add(usize::from(tag) * DESCRIPTOR);
            crate::racing::copy_out(from, &mut descriptor);
        }
        descriptor
    }

    /// Tells if data is copied by [`copy_in`](Self::copy_in) and [`copy_out`](Self::copy_out), and not in buffers.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.copies.is_some()
    }

    /// Tells if its commands go to the kernel together, when the ring does.
    #[must_use]
    pub fn in_batches(&self) -> bool {
        self.in_batches
    }

    /// Fills `data` with what the request of a tag writes, from its start.
    pub fn copy_in(&self, tag: u16, mut data: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while !data.is_empty() {
            let (file, offset) = self.place(tag, at, data.len())?;
            match rustix::io::pread(file, &mut *data, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    at += count;
                    data = &mut data[count..];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives what the request of a tag reads, from `at` bytes behind its start.
    pub fn copy_out(&self, tag: u16, mut at: usize, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let (file, offset) = self.place(tag, at, data.len())?;
            match rustix::io::pwrite(file, data, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count;
                    data = &data[count..];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The file, and where in it the data of a tag's request lies.
    fn place(&self, tag: u16, at: usize, len: usize) -> io::Result<(&OwnedFd, u64)> {
        let file = self.copies.as_deref().ok_or(io::ErrorKind::Unsupported)?;
        // What lies behind is the next tag's.
        let fits = at.checked_add(len).is_some_and(|end| end <= self.buffer_len);
        if tag >= self.depth || !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = u64::from(self.number) << QUEUE_SHIFT | u64::from(tag) << TAG_SHIFT;
        Ok((file, DATA + start + at as u64))
    }

    /// Waits for the first request of a tag.
    #[must_use]
    pub fn fetch(&self, tag: u16, payload: Payload) -> Io {
        self.command(if self.in_batches { batch::PREPARE } else { FETCH }, tag, 0, payload)
    }

    /// Ends a tag's request and waits for its next. The result is bytes, or an error's number below zero.
    #[must_use]
    pub fn commit(&self, tag: u16, result: i32, payload: Payload) -> Io {
        self.command(if self.in_batches { batch::COMMIT } else { COMMIT_AND_FETCH }, tag, result, payload)
    }

    fn command(&self, code: u32, tag: u16, result: i32, payload: Payload) -> Io {
        // The kernel copies that much to where the buffer begins, and takes as much as the result says from there.
        // A number in its place is an address to it, unless the device copies by calls.
        let fits = match &payload {
            Payload::Buffer(buffer) => !self.copies() && buffer.len() >= self.buffer_len,
            Payload::Sector(_) => self.copies(),
        };
        assert!(tag < self.depth && fits, "a tag of this queue, with what its device takes");
        let most = i32::try_from(self.buffer_len).unwrap_or(i32::MAX);
        Io::Command(UblkCommand {
            file: self.file,
            mark: self.mark,
            code,
            queue: self.number,
            tag,
            result: result.min(most),
            payload,
        })
    }
}

impl Drop for UblkQueue {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, to which nothing refers any more: descriptors are copied out.
        let _ = unsafe { rustix::mm::munmap(self.descriptors.as_ptr().cast(), self.mapped) };
    }
}
