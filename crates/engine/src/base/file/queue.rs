//! One thread's way into a file.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cryptline_sys::{FileId, Io, RequestSource, Ring, RingDone};
use rustix::io::Errno;

use super::questions::{Questions, SyncAnswer, SyncQuestion};
use super::shared::FileShared;
use super::transfer::{self, Files, Origin};
use crate::base::host_zones;
use crate::base::syncs::Syncs;
use crate::{Completion, Fault, Op, Queue, Request, Submitted};

/// Losses that the queue's own open file may not have been told of, so that the keeper must be asked.
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

/// How an operation has ended.
struct EndedOperation {
    result: Result<(), Fault>,
    /// Unless the keeper, which must be asked, knows of worse.
    asks: bool,
}

impl EndedOperation {
    const WELL: Self = Self { result: Ok(()), asks: false };

    fn by(fault: Fault) -> Self {
        Self { result: Err(fault), asks: false }
    }

    /// The end of a request that failed by an error number of the kernel. A write that was made in part was not refused.
    #[cold]
    fn failed(origin: Origin, io: &Io, fault: Fault) -> Self {
        let is_part = origin.writes() && transfer::has_moved(io);
        Self::by(if is_part { fault.unrefused() } else { fault })
    }
}

pub(super) struct FileQueue {
    file: FileId,
    fd: Arc<OwnedFd>,
    source: RequestSource,
    /// The keeper's file on this ring, and an inbox for its answers. A block device is claimed by this
    /// file, and drops cached pages that are still to be written only through it, as discarding and
    /// zeroing want it; to others it says EBUSY.
    keeper: (FileId, RequestSource),
    doubt: Doubt,
    /// How often it has come to be in doubt.
    doubts: u64,
    syncs: Syncs<Completion>,
    /// For a thread that serves other disks, too.
    questions: Option<Questions>,
    /// Begun and to be continued, when the ring has a place again.
    stalled: VecDeque<(Origin, Io)>,
    /// Begun and not ended; at most as many as the ring has places.
    in_flight: usize,
    shared: Arc<FileShared>,
}

impl Queue for FileQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.shared.truncated.load(Ordering::Relaxed) {
            return Submitted::Done(request.complete(Err(Fault::Truncated)));
        }
        if let (Some(action), Some(model)) = (request.op.zone_action(), &self.shared.zones) {
            // There is no such thing in io_uring: this thread waits for it.
            let result = host_zones::act(&*self.fd, model, self.shared.size(), request.offset, action);
            return Submitted::Done(request.complete(result));
        }
        if self.shared.cannot_zero(&request) {
            return Submitted::Done(request.complete(Err(Fault::NotSupported)));
        }
        if request.op.is_sync() && self.shared.keeper.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if self.in_flight >= ring.depth() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        if let (Op::Flush, Doubt::Shared) = (request.op, self.doubt) {
            self.in_flight += 1;
            let question = SyncQuestion { request, sync: None, keeper: true, then: Ok(()), doubts: self.doubts };
            return self.ask(ring, question).map_or(Submitted::Pending, Submitted::Done);
        }
        let is_own_sync = request.op.is_sync() && self.doubt != Doubt::Shared;
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
        while let Some(answer) = self.questions.as_mut().and_then(Questions::next_answer) {
            if let Some(completion) = self.settle(answer) {
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
    pub fn new(shared: &Arc<FileShared>, ring: &mut Ring, own: Option<Arc<OwnedFd>>) -> Self {
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
            doubts: 0,
            syncs: Syncs::new(),
            stalled: VecDeque::new(),
            in_flight: 0,
            questions: if ring.serves_several() { Questions::new(shared, ring) } else { None },
            shared: Arc::clone(shared),
        }
    }

    /// Submits what is left of a request; gives it back where the ring has no place.
    fn start(&mut self, ring: &mut Ring, origin: Origin, io: Io) -> Result<(), Io> {
        // Where nobody waits for this thread but users of the same file, for whom it is the fastest.
        if self.questions.is_none() && self.shared.copies_at_once(&io) {
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

    /// Decides what follows for the request of a finished operation: the end, or another round.
    fn finish(&mut self, ring: &mut Ring, finished: RingDone) -> Option<Completion> {
        let (origin, mut io) = (Origin::of(&finished), finished.io);
        let Some(EndedOperation { result, asks }) = self.judge(origin, &mut io, finished.result) else {
            self.go_on(ring, origin, io);
            return None;
        };
        let request = transfer::end(origin, io);
        if asks || request.op.is_sync() && result.is_ok() {
            let keeper = asks || self.is_in_doubt(&request);
            let question = SyncQuestion { request, sync: origin.sync, keeper, then: result, doubts: self.doubts };
            return self.ask(ring, question);
        }
        self.end(origin.sync, request, result)
    }

    /// Ends a request. A sync that was good waits for those beside it.
    fn end(&mut self, sync: Option<u64>, request: Request, result: Result<(), Fault>) -> Option<Completion> {
        self.in_flight -= 1;
        if !request.op.is_sync() {
            return Some(request.complete(result));
        }
        if let Some(number) = sync {
            self.syncs.end(number);
        }
        match result {
            Ok(()) if sync.is_none() => {
                // A write beside it may have used up the report that this sync would have had.
                let is_lost = self.shared.keeper.is_lost();
                Some(request.complete(if is_lost { Err(Fault::Latched) } else { Ok(()) }))
            }
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
    fn judge(&mut self, origin: Origin, io: &mut Io, result: Result<usize, Errno>) -> Option<EndedOperation> {
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
                return Some(EndedOperation::by(Fault::NotSupported));
            }
            Err(errno) if self.shared.zones.is_some() => {
                return Some(EndedOperation::failed(origin, io, host_zones::fault_of(errno)));
            }
            Err(errno) if origin.writes() && Fault::from(errno) == Fault::NoSpace => {
                return Some(self.without_room(origin, errno));
            }
            Err(errno) if origin.sync.is_some() => {
                return Some(EndedOperation::by(self.shared.keeper.lose(errno)));
            }
            Err(errno) => return Some(EndedOperation::failed(origin, io, errno.into())),
        };
        let Some((done, len)) = transfer::advance(io, moved) else {
            return Some(EndedOperation::WELL);
        };
        if done >= len {
            Some(EndedOperation::WELL)
        } else if origin.reads() && (moved == 0 || self.shared.is_off_grid(done)) {
            Some(EndedOperation::by(self.shared.cut_short()))
        } else if moved == 0 {
            Some(EndedOperation::by(Fault::NoSpace))
        } else {
            None
        }
    }

    /// Fault of a write that found no room: it was refused before it was synced, or its sync tells of what was lost. NFS
    /// tells of earlier writes by whichever write comes next, durable or not, and uses the report up.
    fn without_room(&mut self, origin: Origin, errno: Errno) -> EndedOperation {
        if self.doubt == Doubt::Shared && !self.shared.refuses_first {
            // The report that was used up would be the keeper's, and nobody else can be asked.
            return EndedOperation::by(self.shared.keeper.lose(errno));
        }
        self.doubt_all();
        EndedOperation { result: Err(Fault::NoSpace), asks: origin.sync.is_some() }
    }

    /// The queue's own file may have been told of a loss in a way that nobody noticed.
    fn doubt_all(&mut self) {
        self.doubts += 1;
        if self.doubt != Doubt::Shared {
            self.doubt = Doubt::OfAll;
        }
    }

    /// Tells if a sync that succeeded on this queue's file must be good on the keeper's, too.
    fn is_in_doubt(&self, request: &Request) -> bool {
        match self.doubt {
            Doubt::None => false,
            Doubt::OfFlushes => request.op == Op::Flush,
            Doubt::OfAll | Doubt::Shared => true,
        }
    }

    /// Asks what else a sync must be good on. The answer is there at once, unless the thread serves others meanwhile.
    fn ask(&mut self, ring: &mut Ring, question: SyncQuestion) -> Option<Completion> {
        let asks = question.keeper || self.asks_size(&question);
        let unasked = match &mut self.questions {
            Some(questions) if asks => questions.ask(question).err()?,
            _ => question,
        };
        let vouched = if unasked.keeper { self.ask_keeper(ring) } else { Ok(()) };
        let checks_size = unasked.checks_size();
        let good = vouched.and_then(|()| if checks_size { self.shared.check_size(&self.fd) } else { Ok(()) });
        self.settle(SyncAnswer { question: unasked, good })
    }

    /// Tells if the medium is asked for its size. A block device is not.
    fn asks_size(&self, question: &SyncQuestion) -> bool {
        question.checks_size() && self.shared.block_device.is_none()
    }

    /// Ends a sync, as it was found to be.
    fn settle(&mut self, SyncAnswer { question, good }: SyncAnswer) -> Option<Completion> {
        let SyncQuestion { request, sync, keeper, then, doubts } = question;
        let has_vouched = keeper && good.is_ok() && then.is_ok();
        if has_vouched && self.doubt != Doubt::Shared && self.doubts == doubts {
            self.doubt = Doubt::None;
        }
        self.end(sync, request, good.and(then))
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
