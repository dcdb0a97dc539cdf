//! State of the work under way in each zone, shared by all queues.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use cryptline_sys::{Ring, Waker};

use crate::gate::Gate;
use crate::zone::{Zone, ZoneAction, ZoneCondition, ZoneModel};
use crate::{Fault, OpenError};

/// Zones reported at a time.
const REPORT: usize = 256;

/// All zones of the medium.
pub(super) struct ZoneStates {
    states: Box<[Mutex<ZoneState>]>,
    sequential: Box<[bool]>,
    pub model: ZoneModel,
    wakers: Mutex<Vec<(u32, Waker)>>,
    next_queue: AtomicU32,
}

/// One zone. Positions in bytes from its start.
pub(super) struct ZoneState {
    /// Where the next write to be admitted goes.
    admitted_to: u64,
    /// Where the next write to be let through starts.
    released_to: u64,
    /// Bytes of it that can be written.
    capacity: u64,
    /// Writes admitted that have not ended.
    under_way: u32,
    /// A write is with the medium.
    is_sending: bool,
    /// An action is under way, or waits for the writes before it: what comes now waits for it.
    actions: u32,
    is_acting: bool,
    broken: Option<BrokenZone>,
    /// Set if it may be other than empty.
    pub is_touched: bool,
    /// Counts actions and thaws: whether a report is still of now.
    epoch: u64,
    /// Queues to wake when something changes: bit n for those whose number is n modulo 64.
    waiting: u64,
}

/// The first write that did not reach the medium since the zone was last at rest.
#[derive(Clone, Copy)]
struct BrokenZone {
    at: u64,
    /// Where the write pointer is now nobody knows.
    is_frozen: bool,
}

/// One queue among those that share the states.
pub(super) struct ZoneMember {
    number: u32,
}

/// Permission to do something now.
pub(super) enum May {
    /// Yes; for a write, with its place in the zone.
    Go(u64),
    /// Later: this queue will be woken.
    Wait,
    /// Never.
    Not(Fault),
}

impl ZoneStates {
    /// Asks `medium` for its zones.
    pub fn new(medium: &Gate) -> Result<Self, OpenError> {
        let fail = |fault: Fault| OpenError::Geometry(format!("the zones of the device can not be reported: {fault}"));
        let model = medium.geometry().zones.ok_or_else(|| fail(Fault::NotSupported))?;
        let (size, mut offset) = (medium.geometry().size, 0);
        let (mut states, mut sequential) = (Vec::new(), Vec::new());
        let mut zones = [Zone::default(); REPORT];
        while offset < size {
            let count = medium.report_zones(offset, &mut zones).map_err(fail)?;
            let found = zones.get(..count).filter(|found| !found.is_empty());
            let found = found.ok_or_else(|| fail(Fault::OutOfRange))?;
            for zone in found {
                states.push(Mutex::new(ZoneState::new(zone)));
                sequential.push(zone.kind.is_sequential());
                offset += model.zone_size;
            }
        }
        Ok(Self {
            states: states.into(),
            sequential: sequential.into(),
            model,
            wakers: Mutex::default(),
            next_queue: AtomicU32::new(0),
        })
    }

    pub fn lock(&self, index: usize) -> MutexGuard<'_, ZoneState> {
        cryptline_sys::lock(&self.states[index])
    }

    /// The zone that holds `offset`, and how far into it that is.
    pub fn place_of(&self, offset: u64) -> (usize, u64) {
        let index = usize::try_from(self.model.index_of(offset)).unwrap_or(usize::MAX);
        (index, offset - self.model.start_of(offset))
    }

    /// Tells if a zone is written at its write pointer only. That never changes.
    pub fn is_sequential(&self, index: usize) -> bool {
        self.sequential.get(index).copied().unwrap_or_default()
    }

    /// A new queue, woken through `ring`.
    pub fn join(&self, ring: &mut Ring) -> Result<ZoneMember, OpenError> {
        let waker = ring.waker().map_err(OpenError::Ring)?;
        let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
        self.wakers().push((number, waker));
        Ok(ZoneMember { number })
    }

    pub fn leave(&self, member: &ZoneMember) {
        self.wakers().retain(|(number, _)| *number != member.number);
    }

    /// Wakes the queues in `waiting` but this one, which is awake.
    pub fn wake(&self, waiting: u64, member: &ZoneMember) {
        // Up to 64 queues each have a bit of their own.
        let has_own_bit = self.next_queue.load(Ordering::Relaxed) <= 64;
        if waiting == 0 || (waiting == member.bit() && has_own_bit) {
            return;
        }
        for (number, waker) in self.wakers().iter() {
            if *number != member.number && waiting >> (number % 64) & 1 != 0 {
                waker.wake();
            }
        }
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<(u32, Waker)>> {
        cryptline_sys::lock(&self.wakers)
    }

    /// The epoch of a zone that waits for a report; `None` for any other.
    pub fn frozen_epoch(&self, index: usize) -> Option<u64> {
        let state = self.lock(index);
        state.is_frozen_at_rest().then_some(state.epoch)
    }

    /// A zone was reported when its epoch was `epoch`: a frozen one at rest goes on from there.
    pub fn reported(&self, index: usize, zone: &Zone, epoch: u64) {
        let mut state = self.lock(index);
        if state.is_frozen_at_rest() && state.epoch == epoch {
            let waiting = state.waiting;
            *state = ZoneState::new(zone);
            state.waiting = waiting;
            state.epoch = epoch + 1;
        }
    }
}

impl ZoneMember {
    fn bit(&self) -> u64 {
        1 << (self.number % 64)
    }
}

impl ZoneState {
    fn new(zone: &Zone) -> Self {
        use ZoneCondition as Condition;
        let at = match zone.condition {
            Condition::Empty | Condition::ImplicitOpen | Condition::ExplicitOpen | Condition::Closed => {
                zone.write_pointer.saturating_sub(zone.start)
            }
            // It takes no write anywhere.
            _ => zone.capacity,
        };
        let at = at.min(zone.capacity);
        Self {
            admitted_to: at,
            released_to: at,
            capacity: zone.capacity,
            under_way: 0,
            is_sending: false,
            actions: 0,
            is_acting: false,
            broken: None,
            is_touched: zone.condition != Condition::Empty,
            epoch: 0,
            waiting: 0,
        }
    }

    fn is_frozen_at_rest(&self) -> bool {
        let is_at_rest = self.under_way == 0 && !self.is_sending && self.actions == 0;
        self.broken.is_some() && is_at_rest
    }

    /// Admits a write of `len` bytes at `at`, or an append.
    pub fn admit(&mut self, at: Option<u64>, len: u64, member: &ZoneMember) -> May {
        if self.actions > 0 {
            return self.wait(member);
        }
        match self.broken {
            Some(BrokenZone { is_frozen: true, .. }) => return May::Not(Fault::ZoneFrozen),
            Some(_) => return May::Not(Fault::WritePointer),
            None => {}
        }
        let place = self.admitted_to;
        if at.is_some_and(|at| at != place) || len > self.capacity - place {
            return May::Not(Fault::WritePointer);
        }
        self.admitted_to += len;
        self.under_way += 1;
        self.is_touched = true;
        May::Go(place)
    }

    /// A write that was admitted has ended. Returns who is to be woken.
    pub fn end(&mut self, at: u64, result: Result<(), Fault>) -> u64 {
        self.under_way -= 1;
        if let Err(fault) = result {
            self.break_at(at, !fault.is_refusal());
        }
        self.settle();
        self.take_waiting()
    }

    /// Lets a write that was admitted through to the medium.
    pub fn release(&mut self, at: u64, member: &ZoneMember) -> May {
        if self.broken.is_some() {
            return May::Not(Fault::WritePointer);
        }
        if self.is_sending || at != self.released_to {
            return self.wait(member);
        }
        self.is_sending = true;
        May::Go(at)
    }

    /// The medium has ended a write. Returns who is to be woken.
    pub fn sent(&mut self, at: u64, len: u64, result: Result<(), Fault>) -> u64 {
        self.is_sending = false;
        match result {
            Ok(()) => self.released_to = at + len,
            Err(fault) => self.break_at(at, !fault.is_refusal()),
        }
        self.take_waiting()
    }

    /// Announces an action: what comes for this zone from now on waits for its end.
    pub fn announce(&mut self) {
        self.actions += 1;
    }

    /// Takes an announcement back.
    pub fn withdraw(&mut self) -> u64 {
        self.actions -= 1;
        self.take_waiting()
    }

    /// Begins an announced action.
    pub fn act(&mut self, member: &ZoneMember) -> May {
        if self.under_way > 0 || self.is_acting {
            return self.wait(member);
        }
        self.is_acting = true;
        May::Go(0)
    }

    /// An action has ended. Returns who is to be woken.
    pub fn acted(&mut self, action: ZoneAction, result: Result<(), Fault>) -> u64 {
        self.is_acting = false;
        self.actions -= 1;
        self.epoch += 1;
        match (action, result) {
            (ZoneAction::Reset | ZoneAction::ResetAll, Ok(())) => {
                (self.admitted_to, self.released_to) = (0, 0);
                self.broken = None;
                self.is_touched = false;
            }
            (ZoneAction::Finish, Ok(())) => {
                (self.admitted_to, self.released_to) = (self.capacity, self.capacity);
                self.broken = None;
                self.is_touched = true;
            }
            (_, Ok(())) => self.is_touched = true,
            (_, Err(fault)) if fault.is_refusal() => {}
            (_, Err(_)) => self.break_at(self.released_to, true),
        }
        self.take_waiting()
    }

    fn break_at(&mut self, at: u64, is_frozen: bool) {
        let before = self.broken.unwrap_or(BrokenZone { at, is_frozen });
        self.broken = Some(BrokenZone { at: before.at.min(at), is_frozen: before.is_frozen || is_frozen });
    }

    /// Once nothing is under way, a zone in which writes were only refused goes on where the first
    /// of them was.
    fn settle(&mut self) {
        if let Some(BrokenZone { at, is_frozen: false }) = self.broken
            && self.under_way == 0
        {
            (self.admitted_to, self.released_to) = (at, at);
            self.broken = None;
        }
    }

    fn wait(&mut self, member: &ZoneMember) -> May {
        self.waiting |= member.bit();
        May::Wait
    }

    fn take_waiting(&mut self) -> u64 {
        std::mem::take(&mut self.waiting)
    }
}
