//! One thread's way through the small blocks.
//!
//! ```text
//! submit ─┬─► straight ─────────────► device below ─────────► done     whole sectors, and nobody rewrites
//!         └─► steps ─► claim? ─ yes ─► device below ─► back ─► claim given up ─► part of a job, or done
//!                        └ no ─► waiting ─► tried again in every poll
//! ```

mod back;
mod take;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_sys::{Arena, Buffer, Ring};

use super::claims::NotGranted;
use super::cut::{CutPart, SectorCut};
use super::member::{Claim, ClaimTable, Member};
use super::step::{Cover, JobPiece, SectorBytes, StepSubject, SubBlockJob, SubBlockStep};
use crate::gate::{Gate, GatedQueue};
use crate::queue::AtOnce;
use crate::slab::Slab;
use crate::{Completion, Fault, Op, OpenError, Queue, Request, Submitted};

/// Steps that one request can need at a time.
const STEPS: usize = 3;
/// Sectors that can be rewritten, or read for a part of them, at a time.
const SCRATCH_MAX: usize = 256;
/// Claims that a queue takes in a row, from its own waiting steps, while other queues wait too.
const STREAK: u32 = 8;
/// How long it then leaves the field to them. They have been woken, which takes less.
const YIELD: Duration = Duration::from_micros(100);

pub(super) struct SubBlockQueue {
    /// For requests that pass as they are and hold no claims: their tokens are the caller's. Without it, they pass
    /// as steps.
    straight: Option<GatedQueue>,
    /// For steps: the tokens are ours.
    lower: GatedQueue,
    shared: Arc<ClaimTable>,
    member: Arc<Member>,
    steps: Slab<SubBlockStep>,
    jobs: Slab<SubBlockJob>,
    /// A sector each, for rewrites and peeks.
    scratch: Vec<Buffer>,
    /// Steps without a claim, the oldest first.
    waiting: VecDeque<usize>,
    /// Requests below that hold no claims.
    quiet: usize,
    streak: u32,
    /// A claim has been given up that nobody was told of.
    released: bool,
    finished: Vec<Completion>,
    reaped: Vec<Completion>,
}

/// Tells if a queue over `lower` has another one for what passes as it is: not where there can be only one.
pub(super) fn has_short_way(lower: &Gate) -> bool {
    lower.traits().queues > 1
}

/// Buffers of a sector each, in one mapping.
fn scratch(sector: usize, count: usize) -> Result<Vec<Buffer>, OpenError> {
    let arena = Arena::new(sector, count).map_err(OpenError::Ring)?;
    let buffers = std::iter::from_fn(|| arena.take()).take(count);
    Ok(buffers
        .map(|mut buffer| {
            buffer.set_len(sector);
            buffer
        })
        .collect())
}

impl SubBlockQueue {
    pub fn open(lower: &Gate, shared: &Arc<ClaimTable>, ring: &mut Ring) -> Result<Self, OpenError> {
        let depth = ring.depth();
        let steps = depth * STEPS;
        ring.reserve(u32::try_from(steps - depth).unwrap_or(u32::MAX));
        let member = Member::open(shared, ring)?;
        let sector = usize::try_from(shared.sector).unwrap_or(usize::MAX);
        let scratch = if shared.overwrites { Vec::new() } else { scratch(sector, depth.min(SCRATCH_MAX))? };
        Ok(Self {
            straight: if has_short_way(lower) { Some(lower.open_queue(ring)?) } else { None },
            lower: lower.open_queue(ring)?,
            shared: Arc::clone(shared),
            member,
            steps: Slab::new(steps),
            jobs: Slab::new(depth),
            scratch,
            waiting: VecDeque::with_capacity(steps),
            quiet: 0,
            streak: 0,
            released: false,
            finished: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(steps),
        })
    }
}

impl Queue for SubBlockQueue {
    fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        if self.lower.at_once() != AtOnce::All || !self.goes_straight(request) {
            return None;
        }
        let result = self.straight.as_mut()?.answer_at_once(request);
        self.came_straight(request);
        self.tell_of_released();
        result
    }

    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.goes_straight(&request)
            && let Some(straight) = &mut self.straight
        {
            let submitted = straight.submit(ring, request);
            if let Submitted::Done(completion) = &submitted {
                self.came_straight(&completion.request);
                self.tell_of_released();
            }
            return submitted;
        }
        let token = request.token;
        let before = self.finished.len();
        if let Err(request) = self.take(ring, request) {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        self.tell_of_released();
        // Its own end is the last one, if it came at once: what came before it are the ends of others
        // that it was done together with.
        let is_done =
            self.finished.len() > before && (self.finished.last()).is_some_and(|last| last.request.token == token);
        let done = if is_done { self.finished.pop() } else { None };
        if !self.finished.is_empty() || !self.waiting.is_empty() {
            ring.stay_awake();
        }
        done.map_or(Submitted::Pending, Submitted::Done)
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let before = done.len();
        if let Some(straight) = &mut self.straight {
            straight.poll(ring, done);
        }
        for completion in &done[before..] {
            self.came_straight(&completion.request);
        }
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
}

/// The short way.
impl SubBlockQueue {
    /// Tells if a request needs no claim: one for whole sectors while nobody rewrites, or a flush.
    fn goes_straight(&mut self, request: &Request) -> bool {
        if self.straight.is_none() {
            return false;
        }
        let cut = match request.op {
            Op::Flush => return true,
            // It waits for nobody, and nobody is to wait for it.
            Op::Cache => return false,
            _ => SectorCut::new(request.offset, request.len, self.shared.sector),
        };
        if !cut.is_whole() || !self.shared.claims.is_quiet() {
            return false;
        }
        if self.quiet == 0 && !self.shared.claims.enter_quietly(self.member.index) {
            // A rewriter may have seen the flag while it was up, and sleep: whatever becomes of this
            // request, it must hear that the flag is down.
            self.released = true;
            self.tell_of_released();
            return false;
        }
        self.quiet += 1;
        true
    }

    fn came_straight(&mut self, request: &Request) {
        if request.op == Op::Flush {
            return;
        }
        self.quiet -= 1;
        if self.quiet == 0 {
            self.shared.claims.leave_quietly(self.member.index);
            self.released = true;
        }
    }
}

/// From a step to the device below.
impl SubBlockQueue {
    fn begin(&mut self, ring: &mut Ring, claim: Claim, work: StepSubject) {
        let Ok(index) = self.steps.insert(SubBlockStep { claim, work }) else {
            unreachable!("the callers have looked for a free place")
        };
        if self.is_ready(index) {
            self.go(ring, index);
            return;
        }
        self.waiting.push_back(index);
        if self.shared.claims.wait(self.member.index) {
            // It may have become free before anybody could know of the wish.
            ring.stay_awake();
        }
    }

    /// Tries the steps that wait, the oldest first, until no more of them get a claim.
    fn try_again(&mut self, ring: &mut Ring) {
        loop {
            if self.waiting.is_empty() {
                self.streak = 0;
                return;
            }
            let claims = &self.shared.claims;
            if self.streak >= STREAK && claims.others_wait(self.member.index) {
                self.streak = 0;
                self.tell_of_released();
                ring.wake_by(Instant::now() + YIELD);
                let _ = self.shared.claims.wait(self.member.index);
                return;
            }
            let mut progress = false;
            let mut at = 0;
            while at < self.waiting.len() {
                let index = self.waiting[at];
                if self.is_ready(index) {
                    self.waiting.remove(at);
                    self.streak += 1;
                    self.go(ring, index);
                    progress = true;
                } else {
                    at += 1
                }
            }
            if !progress && !self.shared.claims.wait(self.member.index) {
                return;
            }
        }
    }

    /// Gets what a step needs: its claim, and a sector of scratch space.
    fn is_ready(&mut self, index: usize) -> bool {
        let needs_scratch = matches!(self.step(index).work, StepSubject::Peek { .. } | StepSubject::Rewrite { .. });
        if needs_scratch && self.scratch.is_empty() {
            return false;
        }
        let claim = self.step(index).claim;
        let (claim, is_had) = self.try_claim(claim);
        self.step(index).claim = claim;
        is_had
    }

    /// The claim as it is after one more try, and whether it is had.
    fn try_claim(&mut self, claim: Claim) -> (Claim, bool) {
        let claims = &self.shared.claims;
        match claim {
            Claim::None => (claim, true),
            Claim::Exclusive(mut span) => {
                let got: Result<(), NotGranted> = claims.exclude(&mut span);
                (Claim::Exclusive(span), got.is_ok())
            }
            Claim::Shared(mut span) => {
                let got: Result<(), NotGranted> = claims.share(&mut span);
                (Claim::Shared(span), got.is_ok())
            }
        }
    }

    /// Sends a step that has its claim on its way.
    fn go(&mut self, ring: &mut Ring, index: usize) {
        let request = match &mut self.step(index).work {
            StepSubject::Pass { request, .. } | StepSubject::Body { request, .. } => {
                let request = request.take();
                request.map(|request| Request { token: index as u64, ..request })
            }
            StepSubject::Peek { place, .. } => {
                let sector = place.sector;
                Some(self.read_sector(index, sector))
            }
            StepSubject::Rewrite { place, .. } => {
                let place = *place;
                let is_covered = self.gather(index, place);
                Some(if is_covered {
                    let data = self.take_scratch();
                    self.write_sector(index, place.sector, data)
                } else {
                    self.read_sector(index, place.sector)
                })
            }
            StepSubject::Flush { .. } => Some(Request::flush(index as u64)),
        };
        let Some(request) = request else { unreachable!("a step is sent once") };
        if let Submitted::Done(completion) = self.lower.submit(ring, request) {
            self.follow(ring, completion);
        }
    }

    /// Puts the waiting rewrites of the same sector behind this one. Whether together they write
    /// all of it, so that it need not be read.
    fn gather(&mut self, index: usize, place: SectorBytes) -> bool {
        let mut covered = Cover::default();
        covered.add(place);
        let mut last = index;
        let mut at = 0;
        while at < self.waiting.len() {
            let other = self.waiting[at];
            let step = self.step(other);
            let (StepSubject::Rewrite { place: its, .. }, Claim::Exclusive(span)) = (&step.work, &mut step.claim)
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
            step.claim = Claim::None;
            self.shared.claims.withdraw(&mut span);
            self.waiting.remove(at);
            if let StepSubject::Rewrite { next, .. } = &mut self.step(last).work {
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
            let StepSubject::Rewrite { piece, place, next, is_writing } = &mut self.step(index).work else {
                unreachable!("only rewrites are put together")
            };
            *is_writing = true;
            let (piece, place, next) = (*piece, *place, *next);
            let job = self.job(piece.job);
            job.put_into(piece.part, &mut data[place.within..place.within + place.len]);
            durable |= job.is_durable_alone();
            at = next;
        }
        Request::write(sector, data, durable, index as u64)
    }

    fn take_scratch(&mut self) -> Buffer {
        self.scratch.pop().expect("looked for before the claim")
    }
}

/// Small things.
impl SubBlockQueue {
    fn release(&mut self, claim: Claim) {
        let claims = &self.shared.claims;
        match claim {
            Claim::None => return,
            Claim::Shared(mut span) => claims.unshare(&mut span),
            Claim::Exclusive(mut span) => claims.withdraw(&mut span),
        }
        self.released = true;
    }

    fn tell_of_released(&mut self) {
        if std::mem::take(&mut self.released) {
            self.shared.wake(self.member.index);
        }
    }

    fn step(&mut self, index: usize) -> &mut SubBlockStep {
        self.steps.get_mut(index).expect("a step under way")
    }

    fn job(&mut self, index: usize) -> &mut SubBlockJob {
        self.jobs.get_mut(index).expect("a job under way")
    }
}

impl Drop for SubBlockQueue {
    /// Gives up the claims of steps that wait. What is under way can still change the medium, so its claims stay until
    /// the ring is gone.
    fn drop(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            match self.steps.remove(index).map(|step| step.claim) {
                Some(Claim::Shared(mut span)) => self.shared.claims.unshare(&mut span),
                Some(Claim::Exclusive(mut span)) => self.shared.claims.withdraw(&mut span),
                _ => {}
            }
        }
        for index in 0..self.steps.capacity() {
            if let Some(step) = self.steps.remove(index) {
                self.member.leave(step.claim);
            }
        }
        self.shared.wake(self.member.index);
    }
}
