//! A virtual machine's disk driver without the machine: libblkio's, over one virtqueue or several, asleep until it is called.
//!
//! The driver takes an address for a number, so the data lies in shared memory that is mapped elsewhere: a plain vector
//! has the addresses, and a file the bytes.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_sys::GuestRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_driver::{VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};

use crate::contents::TestPattern;
use crate::error::{Of as _, Result, fail};
use crate::load::LoadTransport;
use crate::report::LoadShape;

/// Entries of the ring.
const RING: u16 = 128;
/// Bytes that are compared at each end of a read.
const END: usize = 8;

/// A driver, which reads and compares both ends of each read with what must be there. A slot's requests go to one queue.
pub struct Guest {
    // They lie in memory of the transport.
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    transport: Box<VirtioBlkTransport>,
    window: Vec<u8>,
    memory: GuestRange,
    size: u64,
    block: usize,
    /// Offset of each slot's last read.
    offsets: Vec<u64>,
    /// Bytes that must be there, where that is known.
    contents: Option<TestPattern>,
    /// When to give up.
    late: Instant,
    /// The queues of which the server was not told all yet.
    untold: Vec<bool>,
}

impl Guest {
    /// Of the server at `socket`, with one queue, for reads of this shape, until it is too late.
    pub fn connect(socket: &Path, shape: LoadShape, contents: TestPattern, late: Instant) -> Result<Self> {
        Self::with_queues(1, socket, shape, Some(contents), late)
    }

    /// The same with several queues, which share the requests in flight, of a disk whose contents may not be known.
    pub fn with_queues(
        count: usize,
        socket: &Path,
        shape: LoadShape,
        contents: Option<TestPattern>,
        late: Instant,
    ) -> Result<Self> {
        let features = (VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX).bits();
        let of_disk = if count > 1 { VirtioBlkFeatureFlags::MQ.bits() } else { 0 };
        let transport = VhostUser::new(&socket.to_string_lossy(), features | of_disk).of(socket.display())?;
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let size = u64::from(transport.get_config()?.capacity) * 512;
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, count, RING)?;
        queues.iter_mut().for_each(|queue| queue.set_used_notif_enabled(true));
        let (depth, block) = (shape.depth as usize, shape.block as usize);
        let window = vec![0; depth * block];
        let file = memfd_create("window", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, window.len() as u64)?;
        transport.map_mem_region(window.as_ptr() as usize, window.len(), file.as_raw_fd(), 0)?;
        let memory = GuestRange::map(&file, 0, window.len())?;
        // Every page, so that none is new later.
        memory.write(0, &vec![0x5a; window.len()])?;
        Ok(Self {
            queues,
            transport,
            window,
            memory,
            size,
            block,
            offsets: vec![0; depth],
            contents,
            late,
            untold: vec![false; count],
        })
    }

    /// Takes all that has ended, each compared.
    fn take(&mut self, ended: &mut Vec<usize>) -> Result<()> {
        for completion in self.queues.iter_mut().flat_map(VirtioBlkQueue::completions) {
            if completion.ret != 0 {
                fail!("a read failed with {}", completion.ret);
            }
            ended.push(completion.context);
        }
        ended.iter().try_for_each(|&slot| self.compare(slot))
    }

    /// Compares the ends of what a slot has read.
    fn compare(&self, slot: usize) -> Result<()> {
        let Some(contents) = self.contents else { return Ok(()) };
        for at in [0, self.block - END] {
            let mut found = [0; END];
            self.memory.read(slot * self.block + at, &mut found)?;
            check(contents, self.offsets[slot] + at as u64, &found)?;
        }
        Ok(())
    }

    /// Compares all that a slot has read.
    pub fn compare_whole(&self, slot: usize) -> Result<()> {
        let Some(contents) = self.contents else { fail!("the contents are not known") };
        let mut found = vec![0; self.block];
        self.memory.read(slot * self.block, &mut found)?;
        check(contents, self.offsets[slot], &found)
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
        let queue = slot % self.queues.len();
        self.queues[queue].read(offset, place, slot)?;
        self.untold[queue] = true;
        Ok(false)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<()> {
        for (index, (queue, untold)) in self.queues.iter_mut().zip(&mut self.untold).enumerate() {
            if std::mem::take(untold) && queue.avail_notif_needed() {
                self.transport.get_submission_notifier(index).notify()?;
            }
        }
        self.take(ended)?;
        while wait && ended.is_empty() {
            self.wait()?;
            self.take(ended)?;
        }
        Ok(())
    }
}

impl Guest {
    /// Sleeps until the server calls for any of the queues.
    fn wait(&self) -> Result<()> {
        let calls: Vec<_> = (0..self.queues.len()).map(|index| self.transport.get_completion_fd(index)).collect();
        let left = self.late.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left.max(Duration::from_millis(1)))?;
        let mut polled: Vec<_> = calls.iter().map(|call| PollFd::new(&**call, PollFlags::IN)).collect();
        if poll(&mut polled, Some(&left))? == 0 {
            fail!("the server did not answer in time");
        }
        let has_called: Vec<_> = polled.iter().map(|call| call.revents().contains(PollFlags::IN)).collect();
        for (call, _) in calls.iter().zip(has_called).filter(|(_, has_called)| *has_called) {
            call.read()?;
        }
        Ok(())
    }
}
