//! One thread's way through the small blocks.
//!
//! ```text
//! submit ─► errands ─► claim? ─ yes ─► device below ─► back ─► claim given up ─► part of a job, or done
//!                        └ no ─► waiting ─► tried again in every poll ─┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_sys::{Buffer, Ring};
use rustix::io::Errno;

use super::claims::Kick;
use super::cut::{Cut, Part};
use super::errand::{Cover, Errand, Job, Piece, Place, Work};
use super::lane::{Claim, Lane, Shared};
use crate::gate::{Gate, GatedQueue};
use crate::slab::Slab;
use crate::{Completion, Fault, OpenError, Operation, Queue, Request, Submitted};

/// Errands that one request can need at a time.
const ERRANDS: usize = 3;
/// Sectors that can be rewritten, or read for a part of them, at a time.
const SCRATCH_MAX: usize = 256;
/// Claims that a queue takes in a row, from its own waiting errands, while other queues wait too.
const STREAK: u32 = 8;
/// How long it then leaves the field to them. They have been woken, which takes less.
const YIELD: Duration = Duration::from_micros(100);

pub(super) struct SubBlockQueue {
    lower: GatedQueue,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    errands: Slab<Errand>,
    jobs: Slab<Job>,
    /// A sector each, for rewrites and peeks.
    scratch: Vec<Buffer>,
    /// Errands without a claim, the oldest first.
    waiting: VecDeque<usize>,
    /// Requests below that hold no claims.
    quiet: usize,
    streak: u32,
    /// A claim has been given up that nobody was told of.
    released: bool,
    finished: Vec<Completion>,
    reaped: Vec<Completion>,
}

impl SubBlockQueue {
    pub fn open(lower: &Gate, shared: &Arc<Shared>, ring: &mut Ring) -> Result<Self, OpenError> {
        let depth = ring.depth();
        let errands = depth * ERRANDS;
        ring.reserve(u32::try_from(errands - depth).unwrap_or(u32::MAX));
        let lane = Lane::open(shared, ring)?;
        let sector = usize::try_from(shared.sector).unwrap_or(usize::MAX);
        let scratch = match shared.overwrites {
            true => 0,
            false => depth.min(SCRATCH_MAX),
        };
        let scratch = (0..scratch).map(|_| Buffer::alloc(sector));
        Ok(Self {
            lower: lower.open_queue(ring)?,
            shared: Arc::clone(shared),
            lane,
            errands: Slab::new(errands),
            jobs: Slab::new(depth),
            scratch: scratch.collect::<Result<_, _>>().map_err(OpenError::Ring)?,
            waiting: VecDeque::with_capacity(errands),
            quiet: 0,
            streak: 0,
            released: false,
            finished: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(errands),
        })
    }
}

impl Queue for SubBlockQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let token = request.token;
        let before = self.finished.len();
        if let Err(request) = self.take(ring, request) {
            return Submitted::Done(request.complete(Err(Fault::Io(Errno::AGAIN))));
        }
        self.tell_of_released();
        // Its own end is the last one, if it came at once: what came before it are the ends of others
        // that it was done together with.
        let is_done = self.finished.len() > before
            && (self.finished.last()).is_some_and(|last| last.request.token == token);
        let done = if is_done { self.finished.pop() } else { None };
        if !self.finished.is_empty() || !self.waiting.is_empty() {
            ring.stay_awake();
        }
        done.map_or(Submitted::Pending, Submitted::Done)
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.lower.poll(ring, &mut reaped);
        for completion in reaped.drain(..) {
            self.follow(ring, completion);
        }
        self.reaped = reaped;
        self.try_again(ring);
        self.tell_of_released();
        done.append(&mut self.finished);
    }

    fn measure(&mut self, on: bool) {
        self.lower.measure(on);
    }

    fn crypto_time_ns(&self) -> u64 {
        self.lower.crypto_time_ns()
    }
}

/// From a request to errands.
impl SubBlockQueue {
    /// Takes a request; gives it back where there is no place for it.
    fn take(&mut self, ring: &mut Ring, mut request: Request) -> Result<(), Request> {
        if self.errands.len() + ERRANDS > self.errands.capacity() || self.jobs.is_full() {
            return Err(request);
        }
        let (offset, len, token) = (request.offset, request.len(), request.token);
        let cut = Cut::new(offset, len, self.shared.sector);
        if matches!(request.operation, Operation::Flush) {
            self.pass(ring, Claim::None, request, (token, offset, len));
        } else if cut.is_whole() {
            self.pass(ring, self.sharing(cut), request, (token, offset, len));
        } else if self.shared.overwrites {
            let claim = match request.is_write() {
                true => self.excluding(cut),
                false => self.sharing(cut),
            };
            self.pass(ring, claim, request, (token, offset, len));
        } else if let Operation::Discard { len: inner_len } = &mut request.operation {
            // A discard is a hint, so a part of a sector simply stays.
            match cut.inner() {
                None => self.finished.push(request.complete(Ok(()))),
                Some(inner) => {
                    (request.offset, *inner_len) = (inner.offset, inner.len);
                    let cut = Cut::new(inner.offset, inner.len, self.shared.sector);
                    self.pass(ring, self.sharing(cut), request, (token, offset, len));
                }
            }
        } else {
            self.cut(ring, request, cut);
        }
        Ok(())
    }

    fn pass(
        &mut self,
        ring: &mut Ring,
        claim: Claim,
        request: Request,
        (token, offset, len): (u64, u64, u64),
    ) {
        let work = Work::Pass {
            request: Some(request),
            token,
            offset,
            len,
        };
        self.begin(ring, claim, work);
    }

    /// Makes a job of a request, and an errand of each of its parts.
    fn cut(&mut self, ring: &mut Ring, request: Request, cut: Cut) {
        let job = Job::new(request, cut.parts().map(|part| part.len));
        let is_read = job.is_read();
        let Ok(job) = self.jobs.insert(job) else {
            unreachable!("there was a free place a moment ago")
        };
        for (part, Part { offset, len }) in cut.parts().enumerate() {
            let piece = Piece { job, part };
            let cut = Cut::new(offset, len, self.shared.sector);
            let place = Place::of(offset, len, self.shared.sector);
            if cut.is_whole() {
                let request = self.job(job).body(part, offset, len);
                let work = Work::Body {
                    piece,
                    request: Some(request),
                };
                self.begin(ring, self.sharing(cut), work);
            } else if is_read {
                self.begin(ring, self.sharing(cut), Work::Peek { piece, place });
            } else {
                let work = Work::Rewrite {
                    piece,
                    place,
                    next: None,
                    is_writing: false,
                };
                self.begin(ring, self.excluding(cut), work);
            }
        }
    }

    fn sharing(&self, cut: Cut) -> Claim {
        let (first, count) = cut.span();
        Claim::Shared(self.shared.claims.span(first, count))
    }

    /// Announces a write of part of a sector.
    fn excluding(&self, cut: Cut) -> Claim {
        let (first, count) = cut.span();
        self.shared.claims.announce();
        Claim::Exclusive(self.shared.claims.span(first, count))
    }
}

/// From an errand to the device below.
impl SubBlockQueue {
    fn begin(&mut self, ring: &mut Ring, claim: Claim, work: Work) {
        let Ok(index) = self.errands.insert(Errand { claim, work }) else {
            unreachable!("the callers have looked for a free place")
        };
        if self.is_ready(index) {
            self.go(ring, index);
            return;
        }
        self.waiting.push_back(index);
        if self.shared.claims.wait(self.lane.index) {
            // It may have become free before anybody could know of the wish.
            ring.stay_awake();
        }
    }

    /// Tries the errands that wait, the oldest first, until no more of them get a claim.
    fn try_again(&mut self, ring: &mut Ring) {
        loop {
            if self.waiting.is_empty() {
                self.streak = 0;
                return;
            }
            let claims = &self.shared.claims;
            if self.streak >= STREAK && claims.others_wait(self.lane.index) {
                self.streak = 0;
                self.tell_of_released();
                ring.wake_by(Instant::now() + YIELD);
                let _ = self.shared.claims.wait(self.lane.index);
                return;
            }
            let mut progress = false;
            let mut at = 0;
            while at < self.waiting.len() {
                let index = self.waiting[at];
                match self.is_ready(index) {
                    false => at += 1,
                    true => {
                        self.waiting.remove(at);
                        self.streak += 1;
                        self.go(ring, index);
                        progress = true;
                    }
                }
            }
            if !progress && !self.shared.claims.wait(self.lane.index) {
                return;
            }
        }
    }

    /// Gets what an errand needs: its claim, and a sector of scratch space.
    fn is_ready(&mut self, index: usize) -> bool {
        let needs_scratch = matches!(
            self.errand(index).work,
            Work::Peek { .. } | Work::Rewrite { .. }
        );
        if needs_scratch && self.scratch.is_empty() {
            return false;
        }
        let claim = self.errand(index).claim;
        let (claim, is_had) = self.try_claim(claim);
        self.errand(index).claim = claim;
        is_had
    }

    /// The claim as it is after one more try, and whether it is had.
    fn try_claim(&mut self, claim: Claim) -> (Claim, bool) {
        let claims = &self.shared.claims;
        match claim {
            Claim::None | Claim::Quiet => (claim, true),
            Claim::Exclusive(mut span) => {
                let got: Result<(), Kick> = claims.exclude(&mut span);
                (Claim::Exclusive(span), got.is_ok())
            }
            Claim::Shared(mut span) => {
                if claims.is_quiet() && !span.is_begun() {
                    if self.quiet > 0 || claims.enter_quietly(self.lane.index) {
                        self.quiet += 1;
                        return (Claim::Quiet, true);
                    }
                    self.released = true;
                }
                let got: Result<(), Kick> = self.shared.claims.share(&mut span);
                (Claim::Shared(span), got.is_ok())
            }
        }
    }

    /// Sends an errand that has its claim on its way.
    fn go(&mut self, ring: &mut Ring, index: usize) {
        let request = match &mut self.errand(index).work {
            Work::Pass { request, .. } | Work::Body { request, .. } => {
                let request = request.take();
                request.map(|request| Request {
                    token: index as u64,
                    ..request
                })
            }
            Work::Peek { place, .. } => {
                let sector = place.sector;
                Some(self.read_sector(index, sector))
            }
            Work::Rewrite { place, .. } => {
                let place = *place;
                let is_covered = self.gather(index, place);
                Some(match is_covered {
                    true => {
                        let data = self.take_scratch();
                        self.write_sector(index, place.sector, data)
                    }
                    false => self.read_sector(index, place.sector),
                })
            }
            Work::Flush { .. } => Some(Request::flush(index as u64)),
        };
        let Some(request) = request else {
            unreachable!("an errand is sent once")
        };
        if let Submitted::Done(completion) = self.lower.submit(ring, request) {
            self.follow(ring, completion);
        }
    }

    /// Puts the waiting rewrites of the same sector behind this one. Whether together they write
    /// all of it, so that it need not be read.
    fn gather(&mut self, index: usize, place: Place) -> bool {
        let mut covered = Cover::default();
        covered.add(place);
        let mut last = index;
        let mut at = 0;
        while at < self.waiting.len() {
            let other = self.waiting[at];
            let errand = self.errand(other);
            let (Work::Rewrite { place: its, .. }, Claim::Exclusive(span)) =
                (&errand.work, &mut errand.claim)
            else {
                at += 1;
                continue;
            };
            if its.sector != place.sector {
                at += 1;
                continue;
            }
            covered.add(*its);
            let mut span = *span;
            errand.claim = Claim::None;
            self.shared.claims.withdraw(&mut span);
            self.waiting.remove(at);
            if let Work::Rewrite { next, .. } = &mut self.errand(last).work {
                *next = Some(other);
            }
            last = other;
        }
        covered.is_all_of(self.shared.sector)
    }

    fn read_sector(&mut self, index: usize, sector: u64) -> Request {
        let buffer = self.take_scratch();
        Request::read(sector, buffer, index as u64)
    }

    /// Puts the pieces of all rewrites from `index` on into `data`; the write of that.
    fn write_sector(&mut self, index: usize, sector: u64, mut data: Buffer) -> Request {
        let mut durable = false;
        let mut at = Some(index);
        while let Some(index) = at {
            let Work::Rewrite {
                piece,
                place,
                next,
                is_writing,
            } = &mut self.errand(index).work
            else {
                unreachable!("only rewrites are put together")
            };
            *is_writing = true;
            let (piece, place, next) = (*piece, *place, *next);
            let job = self.job(piece.job);
            job.put_into(
                piece.part,
                &mut data[place.within..place.within + place.len],
            );
            durable |= job.is_durable_alone();
            at = next;
        }
        Request::write(sector, data, durable, index as u64)
    }

    fn take_scratch(&mut self) -> Buffer {
        self.scratch.pop().expect("looked for before the claim")
    }
}

/// And back.
impl SubBlockQueue {
    /// What follows from a completion below, until something is pending or over.
    fn follow(&mut self, ring: &mut Ring, completion: Completion) {
        let mut completion = completion;
        while let Some(request) = self.back(completion) {
            match self.lower.submit(ring, request) {
                Submitted::Pending => return,
                Submitted::Done(done) => completion = done,
            }
        }
    }

    /// Takes a completion in; what is to be done below because of it.
    fn back(&mut self, completion: Completion) -> Option<Request> {
        let Completion { request, result } = completion;
        let index = usize::try_from(request.token).unwrap_or(usize::MAX);
        if let Work::Rewrite {
            place,
            is_writing: false,
            ..
        } = &self.errand(index).work
            && result.is_ok()
            && let Operation::Read(data) = request.operation
        {
            let sector = place.sector;
            return Some(self.write_sector(index, sector, data));
        }
        let Some(Errand { claim, work }) = self.errands.remove(index) else {
            unreachable!("an errand comes back once")
        };
        self.release(claim);
        match work {
            Work::Pass {
                token, offset, len, ..
            } => {
                let request = as_given(request, (token, offset, len));
                self.finished.push(request.complete(result));
            }
            Work::Body { piece, .. } => {
                self.job(piece.job).put_back(piece.part, request);
                self.part_done(piece.job, result);
            }
            Work::Peek { piece, place } => {
                if let Operation::Read(data) = request.operation {
                    let found = &data[place.within..place.within + place.len];
                    self.job(piece.job).copy_out(piece.part, found);
                    self.scratch.push(data);
                }
                self.part_done(piece.job, result);
            }
            Work::Rewrite { piece, next, .. } => {
                if let Operation::Read(data) | Operation::Write { data, .. } = request.operation {
                    self.scratch.push(data);
                }
                self.part_done(piece.job, result);
                self.end_those_behind(next, result);
            }
            Work::Flush { job } => self.part_done(job, result),
        }
        None
    }

    /// Ends the rewrites that were done together with another.
    fn end_those_behind(&mut self, next: Option<usize>, result: Result<(), Fault>) {
        let mut at = next;
        while let Some(index) = at {
            let Some(Errand {
                work: Work::Rewrite { piece, next, .. },
                ..
            }) = self.errands.remove(index)
            else {
                unreachable!("rewrites done together come back together")
            };
            self.part_done(piece.job, result);
            at = next;
        }
    }

    fn part_done(&mut self, job: usize, result: Result<(), Fault>) {
        if !self.job(job).part_done(result) {
            return;
        }
        if self.job(job).wants_flush() {
            let errand = Errand {
                claim: Claim::None,
                work: Work::Flush { job },
            };
            let Ok(index) = self.errands.insert(errand) else {
                unreachable!("the errands of the job's parts are over")
            };
            // It needs no claim, so the next try sends it.
            self.waiting.push_back(index);
            return;
        }
        let ended = self.jobs.remove(job).expect("a job ends once").end();
        self.finished.push(ended);
    }

    fn release(&mut self, claim: Claim) {
        let claims = &self.shared.claims;
        match claim {
            Claim::None => return,
            Claim::Quiet => {
                self.quiet -= 1;
                if self.quiet > 0 {
                    return;
                }
                claims.leave_quietly(self.lane.index);
            }
            Claim::Shared(mut span) => claims.unshare(&mut span),
            Claim::Exclusive(mut span) => claims.withdraw(&mut span),
        }
        self.released = true;
    }

    fn tell_of_released(&mut self) {
        if std::mem::take(&mut self.released) {
            self.shared.wake(self.lane.index);
        }
    }

    fn errand(&mut self, index: usize) -> &mut Errand {
        self.errands.get_mut(index).expect("an errand under way")
    }

    fn job(&mut self, index: usize) -> &mut Job {
        self.jobs.get_mut(index).expect("a job under way")
    }
}

impl Drop for SubBlockQueue {
    /// What waits gives its claims up. What is under way can still change the medium, so its claims stay
    /// until the ring is gone.
    fn drop(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            match self.errands.remove(index).map(|errand| errand.claim) {
                Some(Claim::Shared(mut span)) => self.shared.claims.unshare(&mut span),
                Some(Claim::Exclusive(mut span)) => self.shared.claims.withdraw(&mut span),
                _ => {}
            }
        }
        for index in 0..self.errands.capacity() {
            if let Some(errand) = self.errands.remove(index) {
                self.lane.leave(errand.claim);
            }
        }
        self.shared.wake(self.lane.index);
    }
}

/// A request of ours as it was given to us.
fn as_given(mut request: Request, (token, offset, len): (u64, u64, u64)) -> Request {
    if let Operation::Discard { len: cut } = &mut request.operation {
        *cut = len;
    }
    Request {
        offset,
        token,
        ..request
    }
}
