//! One thread's way into a file.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cryptline_sys::{Done, FileId, Io, Ring, Source};
use rustix::io::Errno;

use super::shared::Shared;
use super::transfer::{self, Files, Origin};
use crate::base::host_zones;
use crate::base::syncs::Syncs;
use crate::{Completion, Fault, Operation, Queue, Request, Submitted};

/// What the queue's own open file may not have been told, so that the keeper must be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Of what was lost before the queue was opened: flushes are in doubt.
    OfFlushes,
    /// An interrupted sync may have used a report up: all syncs are in doubt.
    OfAll,
    /// The file is the keeper's own: it is only ever synced by asking.
    Shared,
}

pub(super) struct FileQueue {
    file: FileId,
    fd: Arc<OwnedFd>,
    source: Source,
    /// The keeper's file on this ring, and an inbox for its answers. A block device is claimed by this
    /// file, and drops cached pages that are still to be written only through it, as discarding and
    /// zeroing want it; to others it says EBUSY.
    keeper: (FileId, Source),
    doubt: Doubt,
    syncs: Syncs<Completion>,
    /// Begun and to be continued, when the ring has a place again.
    stalled: VecDeque<(Origin, Io)>,
    /// Begun and not ended; at most as many as the ring has places, so that its inbox never grows.
    in_flight: usize,
    /// Nobody waits for this thread but users of the same file, for whom it is the fastest.
    copies_at_once: bool,
    shared: Arc<Shared>,
}

impl Queue for FileQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.shared.truncated.load(Ordering::Relaxed) {
            return Submitted::Done(request.complete(Err(Fault::Truncated)));
        }
        if let (Operation::Zone(action), Some(model)) = (&request.operation, &self.shared.zones) {
            // There is no such thing in io_uring: this thread waits for it.
            let result = host_zones::act(&*self.fd, model, self.shared.size(), request.offset, *action);
            return Submitted::Done(request.complete(result));
        }
        if self.shared.cannot_zero(&request) {
            return Submitted::Done(request.complete(Err(Fault::NotSupported)));
        }
        if request.is_sync() && self.shared.keeper.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if let (Operation::Flush, Doubt::Shared) = (&request.operation, self.doubt) {
            let flushed = self.ask_keeper(ring);
            let result = flushed.and_then(|()| self.shared.check_size(&self.fd));
            return Submitted::Done(request.complete(result));
        }
        if self.in_flight >= ring.depth() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let is_own_sync = request.is_sync() && self.doubt != Doubt::Shared;
        let sync = is_own_sync.then(|| self.syncs.begin());
        let files = Files { own: self.file, keeper: self.keeper.0 };
        let begun = transfer::begin(request, files, sync).map_err(|request| request.complete(Err(Fault::NotSupported)));
        let started = begun.and_then(|(origin, io)| {
            // More requests than the ring has places for are the front's bug.
            self.start(ring, origin, io).map_err(|io| transfer::end(origin, io).complete(Err(Fault::Busy)))
        });
        match started {
            Ok(()) => {
                self.in_flight += 1;
                Submitted::Pending
            }
            Err(refused) => {
                if let Some(number) = sync {
                    self.syncs.end(number);
                }
                Submitted::Done(refused)
            }
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        for _ in 0..self.stalled.len() {
            if let Some((origin, io)) = self.stalled.pop_front() {
                self.go_on(ring, origin, io);
            }
        }
        while let Some(finished) = ring.next_done(self.source) {
            if let Some(completion) = self.finish(ring, finished) {
                done.push(completion);
            }
        }
        while let Some(mut completion) = self.syncs.release() {
            if self.shared.keeper.is_lost() {
                completion.result = Err(Fault::Latched);
            }
            done.push(completion);
        }
    }
}

impl FileQueue {
    /// A queue over an open file of its own, or over the keeper's.
    pub fn new(shared: &Arc<Shared>, ring: &mut Ring, own: Option<Arc<OwnedFd>>) -> Self {
        let doubt = match own {
            Some(_) => Doubt::OfFlushes,
            None => Doubt::Shared,
        };
        let fd = own.unwrap_or_else(|| Arc::clone(shared.keeper.file()));
        let source = ring.add_source();
        ring.tell_of_lost(source, shared.keeper.mark());
        Self {
            file: ring.add_file(Arc::clone(&fd)),
            fd,
            source,
            keeper: (ring.add_file(Arc::clone(shared.keeper.file())), ring.add_source()),
            doubt,
            syncs: Syncs::new(ring.depth()),
            stalled: VecDeque::with_capacity(ring.depth()),
            in_flight: 0,
            copies_at_once: !ring.serves_several(),
            shared: Arc::clone(shared),
        }
    }

    /// Submits what is left of a request; gives it back where the ring has no place.
    fn start(&mut self, ring: &mut Ring, origin: Origin, io: Io) -> Result<(), Io> {
        if self.copies_at_once && self.shared.copies_at_once(&io) {
            ring.submit_at_once(self.source, origin.mark(), io);
            return Ok(());
        }
        ring.submit(self.source, origin.mark(), io)
    }

    /// Continues a request that was begun, as soon as there is a place for it.
    fn go_on(&mut self, ring: &mut Ring, origin: Origin, io: Io) {
        if let Err(io) = self.start(ring, origin, io) {
            self.stalled.push_back((origin, io));
        }
    }

    /// What a finished operation means for its request: the end, or another round.
    fn finish(&mut self, ring: &mut Ring, finished: Done) -> Option<Completion> {
        let (origin, mut io) = (Origin::of(&finished), finished.io);
        let Some(result) = self.judge(ring, origin, &mut io, finished.result) else {
            self.go_on(ring, origin, io);
            return None;
        };
        self.in_flight -= 1;
        let request = transfer::end(origin, io);
        if !request.is_sync() {
            return Some(request.complete(result));
        }
        let result = result.and_then(|()| self.confirm(ring, &request));
        if let Some(number) = origin.sync {
            self.syncs.end(number);
        }
        match result {
            Ok(()) => {
                self.syncs.hold(request.complete(Ok(())));
                None
            }
            Err(fault) => {
                self.shared.note_failed_sync(fault);
                Some(request.complete(Err(fault)))
            }
        }
    }

    /// How a request has ended; `None` where it goes on.
    fn judge(
        &mut self,
        ring: &mut Ring,
        origin: Origin,
        io: &mut Io,
        result: Result<usize, Errno>,
    ) -> Option<Result<(), Fault>> {
        let moved = match result {
            Ok(moved) => moved,
            Err(Errno::INTR | Errno::AGAIN) => {
                if origin.sync.is_some() {
                    // It may have been the report of a lost write that has this number.
                    self.doubt_all();
                }
                return None;
            }
            // Somebody else has claimed the block device and pages wait to be written: nothing was done.
            Err(Errno::BUSY) if origin.zeroes() && self.shared.block_device.is_some() => {
                return Some(Err(Fault::NotSupported));
            }
            Err(errno) if self.shared.zones.is_some() => {
                return Some(Err(host_zones::fault_of(errno)));
            }
            Err(errno) if origin.writes() && Fault::from(errno) == Fault::NoSpace => {
                return Some(Err(self.without_room(ring, origin, errno)));
            }
            Err(errno) if origin.sync.is_some() => {
                return Some(Err(self.shared.keeper.lose(errno)));
            }
            Err(errno) => return Some(Err(Fault::from(errno))),
        };
        let Some((done, len)) = transfer::advance(io, moved) else {
            return Some(Ok(()));
        };
        if done >= len {
            Some(Ok(()))
        } else if origin.reads() && (moved == 0 || self.shared.is_off_grid(done)) {
            Some(Err(self.shared.cut_short()))
        } else if moved == 0 {
            Some(Err(Fault::NoSpace))
        } else {
            None
        }
    }

    /// Fault of a write that found no room: it was refused before it was synced, or its sync tells of what was lost. NFS
    /// tells of earlier writes by whichever write comes next, durable or not, and uses the report up.
    fn without_room(&mut self, ring: &mut Ring, origin: Origin, errno: Errno) -> Fault {
        if self.doubt == Doubt::Shared && !self.shared.refuses_first {
            // The report that was used up would be the keeper's, and nobody else can be asked.
            return self.shared.keeper.lose(errno);
        }
        let sound = if origin.sync.is_some() { self.ask_keeper(ring) } else { Ok(()) };
        self.doubt_all();
        sound.err().unwrap_or(Fault::NoSpace)
    }

    /// The queue's own file may have been told of a loss in a way that nobody noticed.
    fn doubt_all(&mut self) {
        if self.doubt != Doubt::Shared {
            self.doubt = Doubt::OfAll;
        }
    }

    /// What else a sync that succeeded on this queue's file must be good on.
    fn confirm(&mut self, ring: &mut Ring, request: &Request) -> Result<(), Fault> {
        let is_flush = matches!(request.operation, Operation::Flush);
        let must_ask = match self.doubt {
            Doubt::None => false,
            Doubt::OfFlushes => is_flush,
            Doubt::OfAll | Doubt::Shared => true,
        };
        if must_ask {
            self.ask_keeper(ring)?;
            if self.doubt != Doubt::Shared {
                self.doubt = Doubt::None;
            }
        }
        if is_flush {
            self.shared.check_size(&self.fd)?;
        }
        Ok(())
    }

    /// Syncs the keeper's file and waits for it: once for a queue, unless it has no file of its own.
    fn ask_keeper(&self, ring: &mut Ring) -> Result<(), Fault> {
        let (file, inbox) = self.keeper;
        self.shared.keeper.ask(|| {
            ring.submit_at_once(inbox, 0, Io::Sync { file });
            let answer = ring.next_done(inbox);
            answer.map_or(Err(Errno::IO), |done| done.result.map(drop))
        })
    }
}
