//! Admission: above the cipher, gives each write of a sequential zone its place, and actions their
//! turn.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::Ring;
use rustix::io::Errno;

use super::state::{May, ZoneMember, ZoneStates};
use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerNote, LayerOut, Layered};
use crate::zone::{Zone, ZoneAction};
use crate::{Combined, Completion, Device, Fault, Op, OpenError, Queue, Request, Traits};

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
        let lower = vec![self.lower.open_queue(ring)?];
        let layer = AdmissionLayer {
            member: self.states.join(ring)?,
            states: Arc::clone(&self.states),
            zones: self.zones(),
            parked: VecDeque::new(),
            all: None,
        };
        Ok(Box::new(Layered::new(layer, lower, ring.depth())))
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

struct AdmissionLayer {
    states: Arc<ZoneStates>,
    member: ZoneMember,
    /// The zones of this device among those of the medium.
    zones: std::ops::Range<usize>,
    /// Requests that must wait for something before them, in the order of submission.
    parked: VecDeque<ParkedWrite>,
    /// A reset of all zones that is under way.
    all: Option<ResetAll>,
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

impl LayerNote for AdmittedKind {}

impl Layer for AdmissionLayer {
    type Note = AdmittedKind;

    fn down(&mut self, request: &mut Request) -> Descent<AdmittedKind> {
        match self.zone_of(request) {
            None if request.op.is_append() => Descent::End(Err(Fault::ZoneCondition)),
            None => Descent::Through { device: 0, note: AdmittedKind::Plain },
            Some(Some(index)) if request.op.zone_action().is_none() && !self.is_behind(Some(index)) => {
                self.admit(request, index)
            }
            Some(_) => Descent::Take,
        }
    }

    /// Gives what came back the shape of its request again.
    fn up(
        &mut self,
        completion: &mut Completion,
        kind: AdmittedKind,
        out: &mut LayerOut<AdmittedKind>,
    ) -> Option<AdmittedKind> {
        match kind {
            AdmittedKind::Plain => return None,
            AdmittedKind::OneOfAll { .. } => return Some(kind),
            AdmittedKind::Write { append, .. } => {
                as_submitted(completion, append);
                // Those behind a failed one, which wait below the cipher, have to hear of it.
                out.awake |= completion.result.is_err();
            }
            AdmittedKind::Action { .. } => {}
        }
        self.ended(kind, completion.result);
        None
    }

    fn back(&mut self, kind: AdmittedKind, completion: Completion, _out: &mut LayerOut<AdmittedKind>) {
        self.ended(kind, completion.result);
        if let (AdmittedKind::OneOfAll { index }, Some(all)) = (kind, &mut self.all) {
            (all.next, all.is_below, all.is_announced) = (index + 1, false, false);
            // Read-only and offline zones are passed over.
            if !matches!(completion.result, Err(Fault::ZoneCondition)) {
                all.outcome.add(completion.result);
            }
        }
    }

    fn take(&mut self, request: Request, out: &mut LayerOut<AdmittedKind>) {
        let index = self.zone_of(&request).flatten();
        let parked = ParkedWrite { request, index, is_announced: false };
        let parked = if self.is_behind(index) { Some(parked) } else { self.attempt(parked, out) };
        self.parked.extend(parked);
    }

    /// Starts what is parked and need not wait any more.
    fn turn(&mut self, out: &mut LayerOut<AdmittedKind>) {
        self.go_on_with_all(out);
        let count = self.parked.len();
        for done in 0..count {
            let Some(parked) = self.parked.pop_front() else {
                return;
            };
            // Those that were looked at and stayed are at the back now.
            let still = self.parked.len() + 1 - (count - done);
            let mut stayed = self.parked.iter().rev().take(still);
            let is_behind = self.all.is_some() || stayed.any(|other| other.excludes(parked.index));
            let parked = if is_behind { Some(parked) } else { self.attempt(parked, out) };
            self.parked.extend(parked);
        }
    }

    /// A write that found no place has broken its zone below, which goes on once that write has ended.
    fn comes_again(&self, kind: &AdmittedKind) -> bool {
        !matches!(kind, AdmittedKind::Write { .. })
    }

    /// Whoever comes next must not trust what a queue that is gone left behind.
    fn lost(&mut self, kind: &AdmittedKind) {
        self.ended(*kind, Err(Fault::Io(Errno::CANCELED)));
    }
}

impl ParkedWrite {
    /// Tells if a request for a zone, or for all, must stay behind it.
    fn excludes(&self, index: Option<usize>) -> bool {
        self.index.is_none() || index.is_none() || self.index == index
    }
}

impl AdmissionLayer {
    /// The sequential zones whose order a request takes part in: `Some(None)` is all of them.
    fn zone_of(&self, request: &Request) -> Option<Option<usize>> {
        let index = self.zones.start + self.states.place_of(request.offset).0;
        match request.op {
            Op::Read | Op::Flush | Op::Discard | Op::Cache => None,
            Op::ZoneResetAll => Some(None),
            _ => self.states.is_sequential(index).then_some(Some(index)),
        }
    }

    /// Tells if a request must stay behind what this queue has parked.
    fn is_behind(&self, index: Option<usize>) -> bool {
        self.all.is_some() || self.parked.iter().any(|parked| parked.excludes(index))
    }

    /// Tries to start a request before which nothing of this queue is parked; gives back one that must wait.
    fn attempt(&mut self, mut parked: ParkedWrite, out: &mut LayerOut<AdmittedKind>) -> Option<ParkedWrite> {
        let descent = match (parked.index, parked.request.op.zone_action()) {
            _ if out.room == 0 => return Some(parked),
            (None, _) => {
                self.begin_all(&parked, out);
                return None;
            }
            (Some(index), Some(action)) => self.act(&mut parked, index, action),
            (Some(index), None) => self.admit(&mut parked.request, index),
        };
        match descent {
            Descent::Through { device, note } => out.send(device, parked.request, note),
            Descent::End(result) => out.done.push(parked.request.complete(result)),
            Descent::Take => return Some(parked),
        }
        None
    }

    /// Gives a write of a zone its place.
    fn admit(&mut self, request: &mut Request, index: usize) -> Descent<AdmittedKind> {
        let (_, in_zone) = self.states.place_of(request.offset);
        if !request.len.is_multiple_of(u64::from(self.states.model.write_granularity)) {
            return Descent::End(Err(Fault::Misaligned));
        }
        let append = request.op.is_append().then_some(request.offset);
        let wanted = if append.is_none() { Some(in_zone) } else { None };
        let may = self.states.lock(index).admit(wanted, request.len, &self.member);
        let at = match may {
            May::Go(at) => at,
            May::Wait => return Descent::Take,
            May::Not(fault) => return Descent::End(Err(fault)),
        };
        request.offset = request.offset - in_zone + at;
        if append.is_some() {
            request.op = Op::write(request.op.is_sync());
        }
        Descent::Through { device: 0, note: AdmittedKind::Write { index, at, append } }
    }

    fn act(&mut self, parked: &mut ParkedWrite, index: usize, action: ZoneAction) -> Descent<AdmittedKind> {
        let mut state = self.states.lock(index);
        if !parked.is_announced {
            state.announce();
            parked.is_announced = true;
        }
        match state.act(&self.member) {
            May::Go(_) => Descent::Through { device: 0, note: AdmittedKind::Action { index, action } },
            May::Wait | May::Not(_) => Descent::Take,
        }
    }

    /// A reset of all zones is one of each: others may lie on the same medium.
    fn begin_all(&mut self, parked: &ParkedWrite, out: &mut LayerOut<AdmittedKind>) {
        self.all = Some(ResetAll {
            token: parked.request.token,
            next: self.zones.start,
            is_announced: false,
            is_below: false,
            outcome: Combined::new(true),
        });
        self.go_on_with_all(out);
    }

    /// Resets the next zone that has to be, or ends it all.
    fn go_on_with_all(&mut self, out: &mut LayerOut<AdmittedKind>) {
        while let Some(all) = self.all.as_mut().filter(|all| !all.is_below) {
            if all.next == self.zones.end {
                let request = Request::zone(0, ZoneAction::ResetAll, all.token);
                out.done.push(request.complete(all.outcome.result()));
                self.all = None;
                return;
            }
            let index = all.next;
            if !self.states.is_sequential(index) {
                all.next += 1;
                continue;
            }
            let mut state = self.states.lock(index);
            if !all.is_announced {
                state.announce();
                all.is_announced = true;
            }
            if out.room == 0 || !matches!(state.act(&self.member), May::Go(_)) {
                return;
            }
            if !state.is_touched {
                let waiting = state.acted(ZoneAction::Reset, Ok(()));
                drop(state);
                self.states.wake(waiting, &self.member);
                (all.next, all.is_announced) = (index + 1, false);
                continue;
            }
            all.is_below = true;
            let start = (index - self.zones.start) as u64 * self.states.model.zone_size;
            out.send(0, Request::zone(start, ZoneAction::Reset, 0), AdmittedKind::OneOfAll { index });
        }
    }

    /// Tells the zone that what was below has ended, and wakes those that wait for it.
    fn ended(&self, kind: AdmittedKind, result: Result<(), Fault>) {
        let waiting = match kind {
            AdmittedKind::Plain => return,
            AdmittedKind::Write { index, at, .. } => self.states.lock(index).end(at, result),
            AdmittedKind::Action { index, action } => self.states.lock(index).acted(action, result),
            AdmittedKind::OneOfAll { index } => self.states.lock(index).acted(ZoneAction::Reset, result),
        };
        self.states.wake(waiting, &self.member);
    }
}

/// Whoever comes next must not wait for a queue that is gone.
impl Drop for AdmissionLayer {
    fn drop(&mut self) {
        let announced = (self.parked.iter()).filter(|parked| parked.is_announced).filter_map(|parked| parked.index);
        let of_all = self.all.as_ref().filter(|all| all.is_announced && !all.is_below);
        let mut waiting = 0;
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
