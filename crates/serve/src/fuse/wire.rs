//! `/dev/fuse` as a lane sees it.
//!
//! ```text
//! kernel ─► Intake ─► call ─┬─► take, bring ─► lane
//!                           └─► answered here             calls
//! kernel ◄─ Replies ◄─ give, end ◄─ lane
//! ```
//!
//! A call is taken only while there is a place for its answer. So whoever does not read answers is not read from.
//!
//! Where the kernel's requests come through the ring, they are in `Entries`; what comes as a message besides is little.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cryptline_engine::{Buffer, Fault, Ring};
use cryptline_sys::{FileId, Io, RequestSource};
use rustix::io::Errno;

use super::entries::{Came, Entries, LaneQueues};
use super::intake::MessageIntake;
use super::nodes::Nodes;
use super::replies::FuseReplies;
use super::waiting::Waiting;
use crate::lane::{Brought, LaneRoom, Wire, WireInput, WriteChunk};
use crate::net::{StopHandle, has_hung_up};

/// So many entries are taken in a row, and a message gets its turn.
const ENTRIES_IN_A_ROW: usize = 16;

/// How often a lane that waits for no message looks whether the mount is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Parts that a lane of a session is made of.
pub struct FuseStart {
    pub descriptor: Arc<OwnedFd>,
    pub nodes: Arc<Nodes>,
    /// Clear text may stay in the kernel's page cache.
    pub cached: bool,
    /// The kernel's queues that this lane serves; none where all comes as messages.
    pub queues: LaneQueues,
    /// Why a lane has ended, where it is not the end of the mount.
    pub failure: Arc<OnceLock<Errno>>,
    /// Used when the mount has ended.
    pub over: StopHandle,
}

/// Which request.
#[derive(Clone, Copy, Debug)]
pub enum FuseTag {
    /// By the place of its answer.
    Message(usize),
    /// By its entry.
    Entry(usize),
}

/// One descriptor of `/dev/fuse`.
pub struct FuseWire {
    pub(super) start: FuseStart,
    pub(super) intake: MessageIntake,
    pub(super) replies: FuseReplies,
    pub(super) entries: Entries,
    /// Messages that wait for a share of the lane.
    pub(super) waiting: Waiting,
    entries_in_a_row: usize,
    /// Nothing tells of the end of the mount: then is looked for it.
    next_look: Option<Instant>,
    source: RequestSource,
    file: FileId,
    is_stopping: bool,
}

impl FuseWire {
    pub fn new(ring: &mut Ring, start: FuseStart) -> io::Result<Self> {
        let file = ring.add_file(Arc::clone(&start.descriptor));
        let entries = Entries::new(ring, &start.descriptor, &start.queues)?;
        Ok(Self {
            entries,
            waiting: Waiting::new(start.nodes.disks().len()),
            entries_in_a_row: 0,
            next_look: None,
            intake: MessageIntake::new(),
            replies: FuseReplies::new(),
            source: ring.add_source(),
            file,
            is_stopping: false,
            start,
        })
    }

    fn can_take(&self, room: &LaneRoom) -> bool {
        !self.is_stopping && !self.intake.is_gone && room.has_job() && self.replies.has_place()
    }

    fn take_entry(&mut self, room: &LaneRoom) -> Option<WireInput<FuseTag>> {
        while !self.is_stopping && room.has_job() {
            let index = self.entries.next()?;
            self.entries_in_a_row += 1;
            if let Some(taken) = self.judge_entry(index) {
                return Some(taken);
            }
        }
        None
    }

    /// Takes what has waited for a share of the lane, and has it now.
    fn take_waiting(&mut self, room: &LaneRoom) -> Option<WireInput<FuseTag>> {
        while self.can_take(room) {
            let taken = match self.waiting.next_parked() {
                Some((disk, parked)) => self.judge_parked(disk, parked, room),
                None => {
                    let message = self.waiting.next_held()?;
                    self.judge(message)
                }
            };
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    fn take_message(&mut self, room: &LaneRoom) -> Option<WireInput<FuseTag>> {
        self.entries_in_a_row = 0;
        while self.can_take(room) {
            let message = self.intake.next()?;
            if let Some(taken) = self.judge(message) {
                return Some(taken);
            }
        }
        None
    }

    /// Reads what has come behind a message.
    fn read_more(&mut self, ring: &mut Ring) {
        while self.intake.read_at_once(ring, self.source, self.file) {
            let mut found = false;
            while let Some(done) = ring.next_done(self.source) {
                match done.io {
                    Io::ReadMessage { batch, .. } => {
                        found |= self.intake.came_at_once(done.result, batch);
                    }
                    io => self.written(done.token, done.result, io),
                }
            }
            if !found {
                return;
            }
        }
    }

    /// Waits for the next message, where there is memory for it.
    fn wait_for_message(&mut self, ring: &mut Ring, room: &LaneRoom) {
        let Self { waiting, intake, .. } = self;
        if intake.has_no_memory() && !intake.is_posted() {
            waiting.park(ring, |message| intake.put_back(message.batch));
        }
        intake.post(ring, self.source, self.file, room);
    }

    /// While no read is posted, nothing else tells of the end of the mount.
    fn look_now_and_then(&mut self, ring: &mut Ring) {
        if self.intake.is_posted() {
            self.next_look = None;
            return;
        }
        let now = Instant::now();
        if self.next_look.is_some_and(|at| at <= now) {
            self.look_for_peer();
            self.next_look = None;
        }
        ring.wake_by(*self.next_look.get_or_insert(now + LOOK));
    }

    /// At once: what is in flight may never end, and keeps this lane.
    fn tell_of_the_end(&self) {
        if let Some(error) = self.intake.failure {
            // The first of all lanes counts.
            let _ = self.start.failure.set(error);
        }
        self.start.over.stop();
    }

    fn written(&mut self, token: u64, result: Result<usize, Errno>, io: Io) {
        let (Io::WriteMessage { batch, .. }, Ok(index)) = (io, usize::try_from(token)) else {
            debug_assert!(false, "nothing else was submitted");
            return;
        };
        self.waiting.is_written();
        match result {
            // Whoever waited for the answer has given up.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(Errno::NODEV | Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                self.intake.is_gone = true;
            }
            // Nobody must wait for ever: what cannot be answered has failed.
            Err(_) if self.replies.can_fail(index) => return self.replies.fail(index, batch),
            Err(error) => self.intake.fail(error),
        }
        self.replies.written(index, batch);
    }
}

impl Wire for FuseWire {
    type Tag = FuseTag;

    fn take(&mut self, room: &LaneRoom) -> Option<WireInput<FuseTag>> {
        if let Some(taken) = self.take_waiting(room) {
            return Some(taken);
        }
        if self.entries_in_a_row < ENTRIES_IN_A_ROW
            && let Some(taken) = self.take_entry(room)
        {
            return Some(taken);
        }
        let taken = self.take_message(room);
        taken.or_else(|| self.take_entry(room))
    }

    fn bring(&mut self, tag: FuseTag, chunk: WriteChunk, _room: &LaneRoom) -> Brought {
        let data = match tag {
            FuseTag::Message(index) => self.replies.take(index, chunk.at),
            FuseTag::Entry(index) => self.entries.part(index, chunk.at, chunk.len),
        };
        data.map_or(Brought::Never, |mut data| {
            data.set_len(chunk.len);
            Brought::Now(data)
        })
    }

    fn lend(&mut self, tag: FuseTag, at: u64, len: usize) -> Option<Buffer> {
        match tag {
            FuseTag::Message(_) => None,
            FuseTag::Entry(index) => self.entries.part(index, at, len),
        }
    }

    fn give(&mut self, tag: FuseTag, at: u64, data: Buffer, _last: bool) {
        match tag {
            FuseTag::Message(index) => self.replies.keep(index, at, data),
            FuseTag::Entry(index) => self.entries.keep(index, data),
        }
    }

    fn device(&self, tag: FuseTag) -> usize {
        match tag {
            FuseTag::Message(index) => self.replies.device(index),
            FuseTag::Entry(index) => self.entries.device(index),
        }
    }

    fn end(&mut self, tag: FuseTag, result: Result<(), Fault>) {
        let device = self.device(tag);
        match tag {
            FuseTag::Message(index) => {
                self.waiting.end(device, self.replies.buffers(index));
                self.replies.end_served(index, result);
            }
            FuseTag::Entry(index) => {
                self.waiting.end(device, 0);
                self.entries.end_served(index, result);
            }
        }
    }

    fn arm(&mut self, ring: &mut Ring, room: &LaneRoom) -> bool {
        if self.intake.is_gone {
            self.tell_of_the_end();
            return false;
        }
        self.replies.write(ring, self.source, self.file);
        if !self.entries.submit(ring, self.source) {
            self.intake.fail(Errno::IO);
        }
        let has_entries = self.entries.has_arrived() && !self.is_stopping && room.has_job();
        let can_take = self.can_take(room);
        if can_take && (self.intake.has_arrived() || self.waiting.can_go_on()) {
            return true;
        }
        // However many entries there are: nobody else looks for messages.
        if can_take {
            self.wait_for_message(ring, room);
        }
        self.look_now_and_then(ring);
        // Then the lane is to see that it has nobody to serve.
        has_entries || self.intake.is_gone
    }

    fn reap(&mut self, ring: &mut Ring) {
        self.entries.handed_over(ring);
        let mut has_come = false;
        while let Some(done) = ring.next_done(self.source) {
            match done.io {
                Io::ReadMessage { batch, .. } => {
                    self.intake.came(done.result, batch);
                    has_come = true;
                }
                Io::Fuse(entry) => {
                    if let Came::Refused(error) = self.entries.came(done.token, done.result, entry) {
                        self.intake.fail(error);
                    }
                }
                io => self.written(done.token, done.result, io),
            }
        }
        if has_come && !self.is_stopping {
            self.read_more(ring);
        }
    }

    fn stop(&mut self) {
        self.is_stopping = true;
    }

    fn has_work(&self) -> bool {
        // Such an answer has no end of its own to wait for.
        self.is_stopping && self.entries.has_unsent()
    }

    fn is_over(&self) -> bool {
        let has_answers = self.replies.has_unwritten() || self.entries.has_unsent();
        self.intake.is_gone || self.is_stopping && !has_answers
    }

    fn look_for_peer(&mut self) {
        self.intake.is_gone |= has_hung_up(&self.start.descriptor);
    }

    fn is_gone(&self) -> bool {
        self.intake.is_gone
    }
}

#[cfg(test)]
mod tests {
    use cryptline_engine::base::RamDevice;
    use cryptline_engine::{Arena, BackendChoice, Gate};
    use rustix::event::EventfdFlags;

    use super::super::nodes::MountedOver;
    use super::*;
    use crate::net::is_stopped_within;

    #[test]
    fn lane_that_has_failed_says_so_at_once_though_what_is_in_flight_may_never_end() {
        let gate = Gate::new(RamDevice::new(1 << 20).unwrap());
        let descriptor = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (failure, over) = (Arc::new(OnceLock::new()), StopHandle::new().unwrap());
        let start = FuseStart {
            descriptor: Arc::new(descriptor),
            nodes: Arc::new(Nodes::new(MountedOver::File, &gate, "disk", "", false)),
            cached: false,
            queues: LaneQueues::default(),
            failure: Arc::clone(&failure),
            over: over.clone(),
        };
        let mut ring = Ring::new(BackendChoice::Syscalls, 8).unwrap();
        let mut wire = FuseWire::new(&mut ring, start).unwrap();
        let [small, large] = [(); 2].map(|()| Arena::new(4096, 1).unwrap());
        let room = LaneRoom::new(small, large, 1);
        wire.intake.fail(Errno::BADF);
        assert!(!is_stopped_within(&over, Some(Duration::ZERO)));
        assert!(!wire.arm(&mut ring, &room));
        assert!(is_stopped_within(&over, Some(Duration::ZERO)));
        assert_eq!(failure.get(), Some(&Errno::BADF));
    }
}
