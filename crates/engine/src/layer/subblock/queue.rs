//! One thread's way through the small blocks.
//!
//! ```text
//! submit ─┬─► as it is ─────────────► device below ─────────► done     whole sectors, and nobody rewrites
//!         └─► steps ─► claim? ─ yes ─► device below ─► back ─► claim given up ─► part of a job, or done
//!                        └ no ─► waiting ─► tried again in every poll
//! ```

mod back;
mod take;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_sys::{Arena, Buffer, Ring};

use super::cut::{CutPart, SectorCut};
use super::member::{Claim, ClaimTable, Member};
use super::step::{Cover, JobPiece, SectorBytes, StepSubject, SubBlockJob, SubBlockStep};
use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerOut, Layered};
use crate::queue::AtOnce;
use crate::slab::Slab;
use crate::{Completion, Fault, Op, OpenError, Request};

/// Steps that one request can need at a time.
const STEPS: usize = 3;
/// Sectors that can be rewritten, or read for a part of them, at a time.
const SCRATCH_MAX: usize = 256;
/// Claims that a queue takes in a row, from its own waiting steps, while other queues wait too.
const STREAK: u32 = 8;
/// How long it then leaves the field to them. They have been woken, which takes less.
const YIELD: Duration = Duration::from_micros(100);

pub(super) struct SubBlockLayer {
    shared: Arc<ClaimTable>,
    member: Arc<Member>,
    /// Bytes in a block of the device below.
    block: u64,
    /// The device below carries out all requests where they lie.
    answers_at_once: bool,
    steps: Slab<SubBlockStep>,
    jobs: Slab<SubBlockJob>,
    /// A sector each, for rewrites and peeks.
    scratch: Vec<Buffer>,
    /// Steps without a claim, the oldest first.
    waiting: VecDeque<usize>,
    /// Requests below that hold no claims.
    quiet: usize,
    streak: u32,
    round: ClaimRound,
    /// A claim has been given up that nobody was told of.
    released: bool,
}

/// How far the steps that wait have been tried.
#[derive(Default)]
struct ClaimRound {
    /// Place of the next one to try.
    at: usize,
    has_found: bool,
}

/// Note on a request below: the step that it is, or none for one that passes as it is and holds no claims.
type StepNote = Option<usize>;

type StepOut = LayerOut<StepNote>;

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

/// A queue into `lower` in smaller blocks.
pub(super) fn open(
    lower: &Gate,
    shared: &Arc<ClaimTable>,
    ring: &mut Ring,
) -> Result<Layered<SubBlockLayer>, OpenError> {
    let depth = ring.depth();
    let steps = depth * STEPS;
    ring.reserve(u32::try_from(steps - depth).unwrap_or(u32::MAX));
    let member = Member::open(shared, ring)?;
    let sector = usize::try_from(shared.sector).unwrap_or(usize::MAX);
    let scratch = if shared.overwrites { Vec::new() } else { scratch(sector, depth.min(SCRATCH_MAX))? };
    let layer = SubBlockLayer {
        shared: Arc::clone(shared),
        member,
        block: u64::from(lower.geometry().logical_block),
        answers_at_once: lower.traits().at_once == AtOnce::All,
        steps: Slab::new(steps),
        jobs: Slab::new(depth),
        scratch,
        waiting: VecDeque::new(),
        quiet: 0,
        streak: 0,
        round: ClaimRound::default(),
        released: false,
    };
    Ok(Layered::new(layer, vec![lower.open_queue(ring)?], depth + steps))
}

impl Layer for SubBlockLayer {
    type Note = StepNote;

    fn at_once(&mut self, request: &mut Request) -> Option<(usize, u64)> {
        (self.answers_at_once && self.goes_straight(request)).then_some((0, 0))
    }

    fn asked_at_once(&mut self, request: &mut Request, _result: Option<Result<(), Fault>>) {
        self.came_straight(request);
        self.tell_of_released();
    }

    fn down(&mut self, request: &mut Request) -> Descent<StepNote> {
        if self.goes_straight(request) {
            return Descent::Through { device: 0, note: None };
        }
        let has_room = self.steps.len() + STEPS <= self.steps.capacity() && !self.jobs.is_full();
        if has_room { Descent::Take } else { Descent::End(Err(Fault::Busy)) }
    }

    fn up(&mut self, completion: &mut Completion, note: StepNote, _out: &mut StepOut) -> Option<StepNote> {
        if note.is_none() {
            self.came_straight(&completion.request);
            return None;
        }
        Some(note)
    }

    fn awaits_ends(&self) -> bool {
        self.released
    }

    fn take(&mut self, request: Request, out: &mut StepOut) {
        self.take_in(request, out);
    }

    /// Goes on with what follows from a step.
    fn back(&mut self, note: StepNote, completion: Completion, out: &mut StepOut) {
        let Some(index) = note else { unreachable!("what holds no claims ends on its way up") };
        if let Some(request) = self.step_back(index, completion, out) {
            out.send(0, request, note);
        }
    }

    fn turn(&mut self, out: &mut StepOut) {
        match (out.polls, out.wake_by) {
            (true, None) => self.try_again(out),
            // The field is left to others until then.
            (true, Some(_)) => {}
            (false, _) => out.awake |= !self.waiting.is_empty(),
        }
        // A claim that the next step has taken already is not to be told of.
        if out.has_sent_all() {
            self.tell_of_released();
        }
    }
}

/// The short way.
impl SubBlockLayer {
    /// Tells if a request needs no claim: one for whole sectors while nobody rewrites, or a flush.
    fn goes_straight(&mut self, request: &Request) -> bool {
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
impl SubBlockLayer {
    fn begin(&mut self, out: &mut StepOut, claim: Claim, work: StepSubject) {
        let Ok(index) = self.steps.insert(SubBlockStep { claim, work }) else {
            unreachable!("the callers have looked for a free place")
        };
        if self.is_ready(index) {
            self.go(out, index);
            return;
        }
        self.waiting.push_back(index);
        if self.shared.claims.wait(self.member.index) {
            // It may have become free before anybody could know of the wish.
            out.awake = true;
        }
    }

    /// Tries the steps that wait, the oldest first, up to one that gets its claim: the device below may carry that out where
    /// it lies, and then its claim is free for the next one. The next call goes on behind it, until a round has found none.
    fn try_again(&mut self, out: &mut StepOut) {
        loop {
            if self.waiting.is_empty() {
                self.streak = 0;
                self.round = ClaimRound::default();
                return;
            }
            let claims = &self.shared.claims;
            let begins = self.round.at == 0 && !self.round.has_found;
            if begins && self.streak >= STREAK && claims.others_wait(self.member.index) {
                self.streak = 0;
                self.tell_of_released();
                out.wake_by = Some(Instant::now() + YIELD);
                let _ = self.shared.claims.wait(self.member.index);
                return;
            }
            while let Some(&index) = self.waiting.get(self.round.at) {
                if self.is_ready(index) {
                    self.waiting.remove(self.round.at);
                    self.streak += 1;
                    self.round.has_found = true;
                    self.go(out, index);
                    return;
                }
                self.round.at += 1;
            }
            let has_found = std::mem::take(&mut self.round).has_found;
            if !has_found && !self.shared.claims.wait(self.member.index) {
                return;
            }
        }
    }

    /// Gets what a step needs: its claim, and a sector of scratch space.
    fn is_ready(&mut self, index: usize) -> bool {
        let SubBlockStep { claim, work } = self.steps.get_mut(index).expect("a step under way");
        let needs_scratch = matches!(work, StepSubject::Peek { .. } | StepSubject::Rewrite { .. });
        if needs_scratch && self.scratch.is_empty() {
            return false;
        }
        match claim {
            Claim::None => true,
            Claim::Exclusive(span) => self.shared.claims.exclude(span).is_ok(),
            Claim::Shared(span) => self.shared.claims.share(span).is_ok(),
        }
    }

    /// Sends a step that has its claim on its way.
    fn go(&mut self, out: &mut StepOut, index: usize) {
        let request = match &mut self.step(index).work {
            StepSubject::Pass { request, .. } | StepSubject::Body { request, .. } => request.take(),
            StepSubject::Peek { place, .. } => {
                let sector = place.sector;
                Some(self.read_sector(sector))
            }
            StepSubject::Rewrite { place, .. } => {
                let place = *place;
                let is_covered = self.gather(index, place);
                Some(if is_covered {
                    let data = self.take_scratch();
                    self.write_sector(index, place.sector, data)
                } else {
                    self.read_sector(place.sector)
                })
            }
            StepSubject::Flush { .. } => Some(Request::flush(0)),
        };
        let Some(request) = request else { unreachable!("a step is sent once") };
        out.send(0, request, Some(index));
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
            match (&step.work, step.claim) {
                (StepSubject::Rewrite { place: its, .. }, Claim::Exclusive(_)) if its.sector == place.sector => {
                    covered.add(*its);
                }
                _ => {
                    at += 1;
                    continue;
                }
            }
            std::mem::replace(&mut step.claim, Claim::None).give_up(&self.shared.claims);
            self.waiting.remove(at);
            if let StepSubject::Rewrite { next, .. } = &mut self.step(last).work {
                *next = Some(other);
            }
            last = other;
        }
        covered.is_all_of(self.shared.sector)
    }

    fn read_sector(&mut self, sector: u64) -> Request {
        let buffer = self.take_scratch();
        Request::read(sector, buffer, 0)
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
        Request::write(sector, data, durable, 0)
    }

    fn take_scratch(&mut self) -> Buffer {
        self.scratch.pop().expect("looked for before the claim")
    }
}

/// Small things.
impl SubBlockLayer {
    fn release(&mut self, claim: Claim) {
        self.released |= claim.give_up(&self.shared.claims);
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

impl Drop for SubBlockLayer {
    /// Gives up the claims of steps that wait. What is under way can still change the medium, so its claims stay until
    /// the ring is gone.
    fn drop(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            if let Some(step) = self.steps.remove(index) {
                step.claim.give_up(&self.shared.claims);
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
