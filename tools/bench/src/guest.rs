//! A virtual machine's disk driver without the machine: libblkio's, over one virtqueue, asleep until it is called.
//!
//! The driver takes an address for a number, so the data lies in shared memory that is mapped elsewhere: a plain vector
//! has the addresses, and a file the bytes.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_sys::GuestRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_driver::{VhostUser, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};

use crate::contents::TestPattern;
use crate::error::{Of as _, Result, fail};
use crate::load::LoadTransport;
use crate::report::LoadShape;

/// Entries of the ring.
const RING: u16 = 128;
/// Bytes that are compared at each end of a read.
const END: usize = 8;

/// A driver of one queue, which reads and compares both ends of each read with what must be there.
pub struct Guest {
    // They lie in memory of the transport.
    queue: VirtioBlkQueue<'static, usize>,
    transport: Box<VirtioBlkTransport>,
    window: Vec<u8>,
    memory: GuestRange,
    size: u64,
    block: usize,
    /// Offset of each slot's last read.
    offsets: Vec<u64>,
    contents: TestPattern,
    /// When to give up.
    late: Instant,
    /// Set if the server was not told of all yet.
    untold: bool,
}

impl Guest {
    /// Of the server at `socket`, for reads of this shape, until it is too late.
    pub fn connect(socket: &Path, shape: LoadShape, contents: TestPattern, late: Instant) -> Result<Self> {
        let features = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
        let transport = VhostUser::new(&socket.to_string_lossy(), features.bits()).of(socket.display())?;
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let size = u64::from(transport.get_config()?.capacity) * 512;
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, 1, RING)?;
        let Some(mut queue) = queues.into_iter().next() else { fail!("{}: no queue", socket.display()) };
        queue.set_used_notif_enabled(true);
        let (depth, block) = (shape.depth as usize, shape.block as usize);
        let window = vec![0; depth * block];
        let file = memfd_create("window", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, window.len() as u64)?;
        transport.map_mem_region(window.as_ptr() as usize, window.len(), file.as_raw_fd(), 0)?;
        let memory = GuestRange::map(&file, 0, window.len())?;
        // Every page, so that none is new later.
        memory.write(0, &vec![0x5a; window.len()])?;
        Ok(Self {
            queue,
            transport,
            window,
            memory,
            size,
            block,
            offsets: vec![0; depth],
            contents,
            late,
            untold: false,
        })
    }

    /// Takes all that has ended, each compared.
    fn take(&mut self, ended: &mut Vec<usize>) -> Result<()> {
        for completion in self.queue.completions() {
            if completion.ret != 0 {
                fail!("a read failed with {}", completion.ret);
            }
            ended.push(completion.context);
        }
        ended.iter().try_for_each(|&slot| self.compare(slot))
    }

    /// Compares the ends of what a slot has read.
    fn compare(&self, slot: usize) -> Result<()> {
        for at in [0, self.block - END] {
            let mut found = [0; END];
            self.memory.read(slot * self.block + at, &mut found)?;
            check(self.contents, self.offsets[slot] + at as u64, &found)?;
        }
        Ok(())
    }

    /// Compares all that a slot has read.
    pub fn compare_whole(&self, slot: usize) -> Result<()> {
        let mut found = vec![0; self.block];
        self.memory.read(slot * self.block, &mut found)?;
        check(self.contents, self.offsets[slot], &found)
    }
}

fn check(contents: TestPattern, offset: u64, found: &[u8]) -> Result<()> {
    match contents.first_difference(offset, found) {
        Some(at) => fail!("the server gave wrong data at byte {at}"),
        None => Ok(()),
    }
}

impl LoadTransport for Guest {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool> {
        self.offsets[slot] = offset;
        let place = &mut self.window[slot * self.block..][..self.block];
        self.queue.read(offset, place, slot)?;
        self.untold = true;
        Ok(false)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()> {
        if std::mem::take(&mut self.untold) && self.queue.avail_notif_needed() {
            self.transport.get_submission_notifier(0).notify()?;
        }
        self.take(ended)?;
        while wait && ended.is_empty() {
            let call = self.transport.get_completion_fd(0);
            let left = self.late.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left.max(Duration::from_millis(1)))?;
            if poll(&mut [PollFd::new(&*call, PollFlags::IN)], Some(&left))? == 0 {
                fail!("the server did not answer in time");
            }
            call.read()?;
            self.take(ended)?;
        }
        Ok(())
    }
}
