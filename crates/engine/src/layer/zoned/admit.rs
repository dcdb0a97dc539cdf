//! Admission: above the cipher, gives each write of a sequential zone its place, and actions their
//! turn.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::Ring;
use rustix::io::Errno;

use super::state::{May, ZoneMember, ZoneStates};
use crate::gate::{Gate, GatedQueue};
use crate::in_flight::InFlight;
use crate::zone::{Zone, ZoneAction};
use crate::{Combined, Completion, Device, Fault, Op, OpenError, Queue, Request, Submitted, Traits};

/// The device above the cipher.
pub(super) struct Admission {
    lower: Gate,
    states: Arc<ZoneStates>,
    /// Zones of the medium before the first of this device.
    first: usize,
}

impl Admission {
    /// `start` is where this device starts on the medium of `states`: at a zone.
    pub fn new(lower: Gate, states: Arc<ZoneStates>, start: u64) -> Self {
        let first = states.place_of(start).0;
        Self { lower, states, first }
    }

    fn zones(&self) -> std::ops::Range<usize> {
        let count = self.states.model.count(self.lower.geometry().size);
        self.first..self.first + usize::try_from(count).unwrap_or(0)
    }
}

impl Device for Admission {
    /// An append may be as long as a zone: here it is a write.
    fn traits(&self) -> Traits {
        let mut traits = Traits::over(self.below());
        if let Some(zones) = &mut traits.geometry.zones {
            zones.append_limit = zones.zone_size;
        }
        traits
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let lower = self.lower.open_queue(ring)?;
        Ok(Box::new(AdmissionQueue {
            lower,
            member: self.states.join(ring)?,
            states: Arc::clone(&self.states),
            zones: self.zones(),
            below: InFlight::new(ring.depth()),
            parked: VecDeque::with_capacity(ring.depth()),
            all: None,
            ended: Vec::with_capacity(ring.depth()),
            arrived: Vec::with_capacity(ring.depth()),
        }))
    }

    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        let first = self.first + self.states.place_of(offset).0;
        let count = self.lower.report_zones(offset, zones)?;
        for (zone, index) in zones.iter_mut().take(count).zip(first..) {
            // Asked for again, so that what a zone goes on from is what it is at now.
            let Some(epoch) = self.states.frozen_epoch(index) else {
                continue;
            };
            if self.lower.report_zones(zone.start, std::slice::from_mut(zone))? == 1 {
                self.states.reported(index, zone, epoch);
            }
        }
        Ok(count)
    }
}

struct AdmissionQueue {
    lower: GatedQueue,
    states: Arc<ZoneStates>,
    member: ZoneMember,
    /// The zones of this device among those of the medium.
    zones: std::ops::Range<usize>,
    /// Kind of each request below.
    below: InFlight<AdmittedKind>,
    /// Requests that must wait for something before them, in the order of submission.
    parked: VecDeque<ParkedWrite>,
    /// A reset of all zones that is under way.
    all: Option<ResetAll>,
    /// Completions that were not given out yet.
    ended: Vec<Completion>,
    /// Scratch space of `poll`.
    arrived: Vec<Completion>,
}

/// Kind of a request below.
#[derive(Clone, Copy)]
enum AdmittedKind {
    /// Nothing is to be done when it comes back.
    Plain,
    /// A write of a sequential zone.
    Write {
        index: usize,
        at: u64,
        /// The zone's start on this device, where it was an append.
        append: Option<u64>,
    },
    /// An action on one zone.
    Action { index: usize, action: ZoneAction },
    /// One reset of a reset of all.
    OneOfAll { index: usize },
}

struct ParkedWrite {
    request: Request,
    /// The zone; `None` for all.
    index: Option<usize>,
    /// An action that the zone knows of.
    is_announced: bool,
}

struct ResetAll {
    token: u64,
    next: usize,
    /// The next zone knows of it.
    is_announced: bool,
    /// One reset is below.
    is_below: bool,
    outcome: Combined,
}

/// Outcome of an attempt.
enum AdmissionAttempt {
    Ended(Completion),
    Below,
    NotYet(ParkedWrite),
}

impl Queue for AdmissionQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let tried = match self.zone_of(&request) {
            None if request.op.is_append() => AdmissionAttempt::Ended(request.complete(Err(Fault::ZoneCondition))),
            Some(index) => self.enter(ring, request, index),
            None => self.send(ring, request, AdmittedKind::Plain),
        };
        let submitted = match tried {
            AdmissionAttempt::Ended(completion) => Submitted::Done(completion),
            AdmissionAttempt::Below => Submitted::Pending,
            AdmissionAttempt::NotYet(parked) => {
                self.parked.push_back(parked);
                Submitted::Pending
            }
        };
        if !self.ended.is_empty() {
            ring.stay_awake();
        }
        submitted
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.lower.poll(ring, &mut arrived);
        for completion in arrived.drain(..) {
            if let Some(completion) = self.arrive(ring, completion) {
                self.ended.push(completion);
            }
        }
        self.arrived = arrived;
        self.unpark(ring);
        done.append(&mut self.ended);
    }
}

impl AdmissionQueue {
    /// The sequential zones whose order a request takes part in: `Some(None)` is all of them.
    fn zone_of(&self, request: &Request) -> Option<Option<usize>> {
        let index = self.zones.start + self.states.place_of(request.offset).0;
        match request.op {
            Op::Read | Op::Flush | Op::Discard | Op::Cache => None,
            Op::ZoneResetAll => Some(None),
            _ => self.states.is_sequential(index).then_some(Some(index)),
        }
    }

    /// A request that takes part in the order of a zone.
    fn enter(&mut self, ring: &mut Ring, request: Request, index: Option<usize>) -> AdmissionAttempt {
        let is_behind = |parked: &ParkedWrite| parked.index.is_none() || index.is_none() || parked.index == index;
        let parked = ParkedWrite { request, index, is_announced: false };
        if self.all.is_some() || self.parked.iter().any(is_behind) {
            AdmissionAttempt::NotYet(parked)
        } else {
            self.attempt(ring, parked)
        }
    }

    /// Tries to start a request before which nothing of this queue is parked.
    fn attempt(&mut self, ring: &mut Ring, parked: ParkedWrite) -> AdmissionAttempt {
        let Some(index) = parked.index else {
            return self.begin_all(ring, parked);
        };
        match parked.request.op.zone_action() {
            Some(action) => self.act(ring, parked, index, action),
            None => self.write(ring, parked, index),
        }
    }

    fn write(&mut self, ring: &mut Ring, parked: ParkedWrite, index: usize) -> AdmissionAttempt {
        let Request { op, len, offset, .. } = parked.request;
        let (_, in_zone) = self.states.place_of(offset);
        if !len.is_multiple_of(u64::from(self.states.model.write_granularity)) {
            return AdmissionAttempt::Ended(parked.request.complete(Err(Fault::Misaligned)));
        }
        if self.below.is_full() {
            return AdmissionAttempt::Ended(busy(parked.request));
        }
        let wanted = (!op.is_append()).then_some(in_zone);
        let may = self.states.lock(index).admit(wanted, len, &self.member);
        let at = match may {
            May::Go(at) => at,
            May::Wait => return AdmissionAttempt::NotYet(parked),
            May::Not(fault) => return AdmissionAttempt::Ended(parked.request.complete(Err(fault))),
        };
        let mut request = parked.request;
        request.offset = offset - in_zone + at;
        let append = op.is_append().then_some(offset);
        if op.is_append() {
            request.op = Op::write(op.is_sync());
        }
        self.send(ring, request, AdmittedKind::Write { index, at, append })
    }

    fn act(&mut self, ring: &mut Ring, mut parked: ParkedWrite, index: usize, action: ZoneAction) -> AdmissionAttempt {
        if self.below.is_full() && !parked.is_announced {
            return AdmissionAttempt::Ended(busy(parked.request));
        }
        let may = {
            let mut state = self.states.lock(index);
            if !parked.is_announced {
                state.announce();
                parked.is_announced = true;
            }
            if self.below.is_full() { May::Wait } else { state.act(&self.member) }
        };
        match may {
            May::Go(_) => self.send(ring, parked.request, AdmittedKind::Action { index, action }),
            May::Wait | May::Not(_) => AdmissionAttempt::NotYet(parked),
        }
    }

    /// A reset of all zones is one of each: others may lie on the same medium.
    fn begin_all(&mut self, ring: &mut Ring, parked: ParkedWrite) -> AdmissionAttempt {
        self.all = Some(ResetAll {
            token: parked.request.token,
            next: self.zones.start,
            is_announced: false,
            is_below: false,
            outcome: Combined::new(true),
        });
        match self.go_on_with_all(ring) {
            Some(completion) => AdmissionAttempt::Ended(completion),
            None => AdmissionAttempt::Below,
        }
    }

    /// Resets zone after zone until one takes time; the end of it all.
    fn go_on_with_all(&mut self, ring: &mut Ring) -> Option<Completion> {
        loop {
            let end = self.zones.end;
            let all = self.all.as_mut().filter(|all| !all.is_below)?;
            if all.next == end {
                let all = self.all.take()?;
                let request = Request::zone(0, ZoneAction::ResetAll, all.token);
                return Some(request.complete(all.outcome.result()));
            }
            let index = all.next;
            if !self.states.is_sequential(index) {
                all.next += 1;
                continue;
            }
            {
                let mut state = self.states.lock(index);
                if !all.is_announced {
                    state.announce();
                    all.is_announced = true;
                }
                if self.below.is_full() || !matches!(state.act(&self.member), May::Go(_)) {
                    return None;
                }
                if !state.is_touched {
                    let waiting = state.acted(ZoneAction::Reset, Ok(()));
                    drop(state);
                    self.states.wake(waiting, &self.member);
                    (all.next, all.is_announced) = (index + 1, false);
                    continue;
                }
            }
            all.is_below = true;
            let start = (index - self.zones.start) as u64 * self.states.model.zone_size;
            let request = Request::zone(start, ZoneAction::Reset, 0);
            // Its end is taken in by `arrive`, and goes nowhere else.
            let _ = self.send(ring, request, AdmittedKind::OneOfAll { index });
        }
    }

    fn send(&mut self, ring: &mut Ring, mut request: Request, kind: AdmittedKind) -> AdmissionAttempt {
        if self.below.enter(&mut request, kind).is_err() {
            return AdmissionAttempt::Ended(busy(request));
        }
        let Submitted::Done(completion) = self.lower.submit(ring, request) else {
            return AdmissionAttempt::Below;
        };
        match self.take_back(ring, completion) {
            Some(completion) => AdmissionAttempt::Ended(completion),
            None => AdmissionAttempt::Below,
        }
    }

    /// Takes what came back in `poll`, and goes on with what follows from it.
    fn arrive(&mut self, ring: &mut Ring, completion: Completion) -> Option<Completion> {
        let completion = self.take_back(ring, completion);
        let ended = self.go_on_with_all(ring);
        self.ended.extend(ended);
        completion
    }

    /// Takes what came back; its completion in the shape of its request.
    fn take_back(&mut self, ring: &mut Ring, mut completion: Completion) -> Option<Completion> {
        let kind = self.below.leave(&mut completion.request);
        let result = completion.result;
        let waiting = match kind {
            AdmittedKind::Plain => return Some(completion),
            AdmittedKind::Write { index, at, append } => {
                as_submitted(&mut completion, append);
                if result.is_err() {
                    // Those behind it, which wait below the cipher, have to hear of it.
                    ring.stay_awake();
                }
                self.states.lock(index).end(at, result)
            }
            AdmittedKind::Action { index, action } => self.states.lock(index).acted(action, result),
            AdmittedKind::OneOfAll { index } => {
                let waiting = self.states.lock(index).acted(ZoneAction::Reset, result);
                if let Some(all) = &mut self.all {
                    (all.next, all.is_below, all.is_announced) = (index + 1, false, false);
                    // Read-only and offline zones are passed over.
                    if !matches!(result, Err(Fault::ZoneCondition)) {
                        all.outcome.add(result);
                    }
                }
                self.states.wake(waiting, &self.member);
                return None;
            }
        };
        self.states.wake(waiting, &self.member);
        Some(completion)
    }

    /// Starts what is parked and need not wait any more.
    fn unpark(&mut self, ring: &mut Ring) {
        let ended = self.go_on_with_all(ring);
        self.ended.extend(ended);
        let count = self.parked.len();
        for done in 0..count {
            let Some(parked) = self.parked.pop_front() else {
                return;
            };
            // Those that were looked at and stayed are at the back now.
            let still = self.parked.len() + 1 - (count - done);
            let stayed = self.parked.iter().rev().take(still);
            let is_behind = self.all.is_some()
                || stayed
                    .into_iter()
                    .any(|other| other.index.is_none() || parked.index.is_none() || other.index == parked.index);
            let tried = if is_behind { AdmissionAttempt::NotYet(parked) } else { self.attempt(ring, parked) };
            match tried {
                AdmissionAttempt::Ended(completion) => self.ended.push(completion),
                AdmissionAttempt::Below => {}
                AdmissionAttempt::NotYet(parked) => self.parked.push_back(parked),
            }
        }
    }
}

/// Whoever comes next must not wait for a queue that is gone, nor trust what it left behind.
impl Drop for AdmissionQueue {
    fn drop(&mut self) {
        let mut waiting = 0;
        for &kind in self.below.notes() {
            let lost = Err(Fault::Io(Errno::CANCELED));
            match kind {
                AdmittedKind::Plain => {}
                AdmittedKind::Write { index, at, .. } => waiting |= self.states.lock(index).end(at, lost),
                AdmittedKind::Action { index, action } => {
                    waiting |= self.states.lock(index).acted(action, lost);
                }
                AdmittedKind::OneOfAll { index } => {
                    waiting |= self.states.lock(index).acted(ZoneAction::Reset, lost);
                }
            }
        }
        let announced = (self.parked.iter()).filter(|parked| parked.is_announced).filter_map(|parked| parked.index);
        let of_all = self.all.as_ref().filter(|all| all.is_announced && !all.is_below);
        for index in announced.chain(of_all.map(|all| all.next)) {
            waiting |= self.states.lock(index).withdraw();
        }
        self.states.wake(waiting, &self.member);
        self.states.leave(&self.member);
    }
}

/// Gives a write the shape again that it was submitted in. An append keeps the offset it was given,
/// unless it failed.
fn as_submitted(completion: &mut Completion, append: Option<u64>) {
    let Some(zone_start) = append else { return };
    let request = &mut completion.request;
    if completion.result.is_err() {
        request.offset = zone_start;
    }
    request.op = Op::append(request.op.is_sync());
}

/// As `file` answers more requests than the ring has places for.
fn busy(request: Request) -> Completion {
    request.complete(Err(Fault::Busy))
}
