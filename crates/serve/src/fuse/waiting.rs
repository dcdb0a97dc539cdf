//! Requests of disks that hold much of a lane already. One that falls silent keeps what it has, so something stays free
//! for each of the others: a job and the buffers of the largest request, for up to [`BUFFERS`] / [`LARGEST`] disks.
//!
//! ```text
//! message ─► admitted ─► lane
//!         └► held, in the memory it came in ─► admitted, when others have ended
//!                └► parked, where its disk is silent and that memory is needed
//! ```
//!
//! The kernel gives any request to any descriptor, so a lane has a queue into each disk, on one ring. Each disk keeps
//! its gate and so its latch.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cryptline_engine::{Buffer, Op, Ring};

use super::abi::{CallHeader, FuseCall, HEAD};
use super::intake::{FuseMessage, MESSAGES};
use super::{PARTS, abi};
use crate::lane::{CHUNK, JOBS_MAX, LARGE_COUNT, LaneRoom, SMALL, WireRequest};

/// Large buffers for what disks are asked; the others are where messages come in.
const BUFFERS: usize = LARGE_COUNT - MESSAGES * PARTS;
/// Buffers that one request takes, at most.
const LARGEST: usize = 2 * PARTS;
/// A disk that has answered nothing for so long is silent.
const SILENT: Duration = Duration::from_millis(200);
/// Bytes of parked writes, at most, and so many requests. More of them keep others waiting.
const PARKED_BYTES: usize = 32 << 20;
const PARKED_MAX: usize = 1024;

/// Shares that the disks of a lane have of it, and the requests that wait for some.
pub struct Waiting {
    disks: Vec<WaitingDisk>,
    /// Jobs and buffers that stay free for each disk.
    least: (usize, usize),
    jobs_left: usize,
    buffers_left: usize,
    held: VecDeque<(usize, FuseMessage)>,
    parked_bytes: usize,
    parked_count: usize,
    /// There was no memory for a parked request: answers that are not written yet have it.
    lacks_memory: bool,
}

#[derive(Default)]
struct WaitingDisk {
    jobs: usize,
    buffers: usize,
    /// Set if it has answered since it was last looked at.
    is_heard: bool,
    quiet_since: Option<Instant>,
    parked: VecDeque<ParkedRequest>,
}

/// A request without the memory that it came in.
pub struct ParkedRequest {
    pub header: CallHeader,
    pub call: FuseCall,
    pub data: Vec<u8>,
}

impl Waiting {
    /// For a lane of `disks` disks. One alone has all of it.
    pub fn new(disks: usize) -> Self {
        let several = if disks > 1 { disks } else { 0 };
        Self {
            disks: (0..several).map(|_| WaitingDisk::default()).collect(),
            least: (JOBS_MAX.div_ceil(4 * disks.max(1)), LARGEST.min(BUFFERS / disks.max(1))),
            jobs_left: JOBS_MAX,
            buffers_left: BUFFERS,
            held: VecDeque::with_capacity(MESSAGES),
            parked_bytes: 0,
            parked_count: 0,
            lacks_memory: false,
        }
    }

    /// Tells if a disk may have one more request, with so many buffers, in front of those that wait.
    pub fn admits(&self, disk: usize, buffers: usize) -> bool {
        let Some(own) = self.disks.get(disk) else { return true };
        let (jobs, large) = self.least;
        if own.jobs < jobs && own.buffers + buffers <= large {
            return true;
        }
        let others = self.disks.iter().enumerate().filter(|(number, _)| *number != disk);
        let (jobs, large) = others.fold((0, 0), |sum, (_, other)| {
            (sum.0 + jobs.saturating_sub(other.jobs), sum.1 + large.saturating_sub(other.buffers))
        });
        own.jobs + jobs < self.jobs_left && own.buffers + buffers + large <= self.buffers_left
    }

    /// Tells if one that has just come must wait.
    pub fn must_wait(&self, disk: usize, buffers: usize) -> bool {
        let is_last = self.disks.get(disk).is_some_and(|disk| !disk.parked.is_empty());
        is_last || !self.admits(disk, buffers)
    }

    pub fn begin(&mut self, disk: usize, buffers: usize) {
        if let Some(disk) = self.disks.get_mut(disk) {
            disk.jobs += 1;
            disk.buffers += buffers;
            self.jobs_left -= 1;
            self.buffers_left -= buffers;
        }
    }

    pub fn end(&mut self, disk: usize, buffers: usize) {
        if let Some(disk) = self.disks.get_mut(disk) {
            disk.jobs -= 1;
            disk.buffers -= buffers;
            disk.is_heard = true;
            self.jobs_left += 1;
            self.buffers_left += buffers;
        }
    }

    /// Keeps a message for later.
    pub fn hold(&mut self, disk: usize, message: FuseMessage) {
        self.held.push_back((disk, message));
    }

    /// The next message that was held and whose disk may have more by now.
    pub fn next_held(&mut self) -> Option<FuseMessage> {
        let may = |(disk, message): &(usize, FuseMessage)| !self.must_wait(*disk, message_needs(message));
        let place = self.held.iter().position(may)?;
        self.held.remove(place).map(|(_, message)| message)
    }

    /// The next request that was parked and whose disk may have more by now.
    pub fn next_parked(&mut self) -> Option<(usize, ParkedRequest)> {
        if self.parked_count == 0 || self.lacks_memory {
            return None;
        }
        let may = |disk: &usize| {
            let next = self.disks[*disk].parked.front();
            next.is_some_and(|next| self.admits(*disk, needs(&next.call)))
        };
        let disk = (0..self.disks.len()).find(may)?;
        let parked = self.disks[disk].parked.pop_front()?;
        self.parked_count -= 1;
        self.parked_bytes -= parked.data.len();
        Some((disk, parked))
    }

    /// Takes a request back for which there is no memory, until an answer has been written.
    pub fn put_back(&mut self, disk: usize, parked: ParkedRequest) {
        self.parked_count += 1;
        self.parked_bytes += parked.data.len();
        self.disks[disk].parked.push_front(parked);
        self.lacks_memory = true;
    }

    /// Notes that an answer has been written, whose memory is free.
    pub fn is_written(&mut self) {
        self.lacks_memory = false;
    }

    /// Tells if a request waits whose disk may have more by now.
    pub fn can_go_on(&self) -> bool {
        let held = self.held.iter().any(|(disk, message)| !self.must_wait(*disk, message_needs(message)));
        let next = |(number, disk): (usize, &WaitingDisk)| {
            disk.parked.front().is_some_and(|next| self.admits(number, needs(&next.call)))
        };
        held || self.parked_count > 0 && !self.lacks_memory && self.disks.iter().enumerate().any(next)
    }

    /// Parks what is held for disks that are silent: the memory of each goes to `free`. Where one is not silent yet, the
    /// ring is woken when it is.
    pub fn park(&mut self, ring: &mut Ring, mut free: impl FnMut(FuseMessage)) {
        for _ in 0..self.held.len() {
            let Some((disk, message)) = self.held.pop_front() else { return };
            let silent = self.disks[disk].silent_at();
            let has_room = self.parked_bytes < PARKED_BYTES && self.parked_count < PARKED_MAX;
            if Instant::now() >= silent && has_room {
                if let Some((header, Ok(call))) = message.parse() {
                    let data = message.data();
                    self.parked_bytes += data.len();
                    self.parked_count += 1;
                    self.disks[disk].parked.push_back(ParkedRequest { header, call, data });
                }
                free(message);
                continue;
            }
            if has_room {
                ring.wake_by(silent);
            }
            self.held.push_back((disk, message));
        }
    }
}

impl WaitingDisk {
    /// The moment from which it counts as silent, unless it answers until then.
    fn silent_at(&mut self) -> Instant {
        if std::mem::take(&mut self.is_heard) {
            self.quiet_since = None;
        }
        *self.quiet_since.get_or_insert_with(Instant::now) + SILENT
    }
}

impl FuseMessage {
    /// Parses its header and its call.
    pub fn parse(&self) -> Option<(CallHeader, Result<FuseCall, rustix::io::Errno>)> {
        let rest = self.batch.buffers().first().map_or(&[][..], |first| first);
        abi::parse(self.batch.head(), rest, self.len)
    }

    /// The bytes behind its head.
    fn data(&self) -> Vec<u8> {
        let mut left = self.len.saturating_sub(HEAD);
        let mut data = Vec::with_capacity(left);
        for buffer in self.batch.buffers() {
            let len = left.min(buffer.len());
            data.extend_from_slice(&buffer[..len]);
            left -= len;
        }
        data
    }
}

fn message_needs(message: &FuseMessage) -> usize {
    message.parse().and_then(|(_, call)| call.ok()).map_or(0, |call| needs(&call))
}

/// Large buffers that a call takes, at most.
pub fn needs(call: &FuseCall) -> usize {
    match *call {
        FuseCall::Read { size, .. } => pieces(size.into(), false),
        FuseCall::Write { size, .. } => pieces(size.into(), true),
        FuseCall::Allocate { length, .. } => pieces(length, false),
        _ => 0,
    }
}

/// The same of a request. Data that was written lies in large ones, however little it is.
pub fn buffers_of<T>(asked: &WireRequest<T>) -> usize {
    match asked.op {
        Op::Read | Op::Zero | Op::ZeroUnmap => pieces(asked.length, false),
        Op::Write | Op::WriteFua => pieces(asked.length, true),
        _ => 0,
    }
}

fn pieces(length: u64, is_written: bool) -> usize {
    if !is_written && length <= SMALL as u64 {
        return 0;
    }
    // Zeros are written in as many pieces at a time as a long job has.
    usize::try_from(length.div_ceil(CHUNK.into())).unwrap_or(usize::MAX).min(LARGEST)
}

/// Buffers of a lane with the bytes of a parked write; `None` where it has too few.
pub fn buffers(data: &[u8], room: &LaneRoom) -> Option<[Option<Buffer>; PARTS]> {
    let mut buffers = [const { None }; PARTS];
    for (place, bytes) in buffers.iter_mut().zip(data.chunks(CHUNK as usize)) {
        let mut buffer = room.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        *place = Some(buffer);
    }
    Some(buffers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes for a disk whatever it is admitted to, in requests with so many buffers.
    fn fill(waiting: &mut Waiting, disk: usize, buffers: usize) {
        while waiting.admits(disk, buffers) {
            waiting.begin(disk, buffers);
        }
    }

    #[test]
    fn silent_disks_leave_room_for_the_largest_request_of_each_other() {
        for disks in [2, 3, 8, BUFFERS / LARGEST] {
            for buffers in [0, 1, PARTS, LARGEST] {
                let mut waiting = Waiting::new(disks);
                (1..disks).for_each(|disk| fill(&mut waiting, disk, buffers));
                assert!(waiting.admits(0, LARGEST), "{disks} disks, requests of {buffers}");
                waiting.begin(0, LARGEST);
            }
        }
    }

    #[test]
    fn busy_disk_beside_idle_ones_has_most_of_the_lane() {
        let mut waiting = Waiting::new(2);
        fill(&mut waiting, 0, 0);
        assert!(waiting.disks[0].jobs >= JOBS_MAX / 4, "{}", waiting.disks[0].jobs);
        fill(&mut waiting, 1, 0);
        assert!(waiting.jobs_left <= JOBS_MAX / 3, "{}", waiting.jobs_left);
    }

    #[test]
    fn parked_request_without_memory_waits_for_an_answer_to_be_written() {
        let mut waiting = Waiting::new(2);
        let header = CallHeader { unique: 0, node: 0 };
        let call = FuseCall::Write { offset: 0, size: CHUNK, durable: false };
        waiting.put_back(1, ParkedRequest { header, call, data: Vec::new() });
        assert!(waiting.next_parked().is_none() && !waiting.can_go_on());
        waiting.is_written();
        assert!(waiting.can_go_on() && waiting.next_parked().is_some());
    }
}
