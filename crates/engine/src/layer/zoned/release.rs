//! Release: below the cipher, lets the writes of each zone through in the order of their places.

use std::sync::Arc;

use cryptline_sys::Ring;
use rustix::io::Errno;

use super::state::{May, ZoneMember, ZoneStates};
use crate::gate::{Gate, GatedQueue};
use crate::in_flight::InFlight;
use crate::zone::ZoneModel;
use crate::{Completion, Device, Fault, OpenError, Queue, Request, Submitted, Traits};

/// A zoned medium, written in order.
pub(super) struct Release {
    lower: Gate,
    states: Arc<ZoneStates>,
}

impl Release {
    pub fn new(lower: Gate, states: Arc<ZoneStates>) -> Self {
        Self { lower, states }
    }
}

impl Device for Release {
    /// Appends are admission's.
    fn traits(&self) -> Traits {
        let mut traits = Traits::over(self.below());
        traits.geometry.zones = Some(ZoneModel { append_limit: 0, ..self.states.model });
        traits
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let lower = self.lower.open_queue(ring)?;
        Ok(Box::new(ReleaseQueue {
            lower,
            member: self.states.join(ring)?,
            states: Arc::clone(&self.states),
            below: InFlight::new(ring.depth()),
            held: Vec::with_capacity(ring.depth()),
            ended: Vec::with_capacity(ring.depth()),
            arrived: Vec::with_capacity(ring.depth()),
        }))
    }
}

struct ReleaseQueue {
    lower: GatedQueue,
    states: Arc<ZoneStates>,
    member: ZoneMember,
    /// Of each write to a sequential zone that is below: the zone, the place in it, and the length.
    below: InFlight<Option<(usize, u64, u64)>>,
    /// Writes that wait for those before them.
    held: Vec<Request>,
    /// Completions that were not given out yet.
    ended: Vec<Completion>,
    /// Scratch space of `poll`.
    arrived: Vec<Completion>,
}

/// Outcome of an attempt.
enum Sent {
    Ended(Completion),
    Below,
    NotYet(Request),
}

impl Queue for ReleaseQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        let submitted = match self.send(ring, request) {
            Sent::Ended(completion) => Submitted::Done(completion),
            Sent::Below => Submitted::Pending,
            Sent::NotYet(request) => {
                self.held.push(request);
                Submitted::Pending
            }
        };
        if !self.held.is_empty() && matches!(submitted, Submitted::Done(_)) {
            self.send_held(ring);
        }
        if !self.ended.is_empty() {
            ring.stay_awake();
        }
        submitted
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        loop {
            let mut arrived = std::mem::take(&mut self.arrived);
            self.lower.poll(ring, &mut arrived);
            for completion in arrived.drain(..) {
                let completion = self.arrive(completion);
                self.ended.push(completion);
            }
            self.arrived = arrived;
            // What was sent now may have ended already: a copy into the page cache does.
            if !self.send_held(ring) {
                break;
            }
        }
        done.append(&mut self.ended);
    }
}

impl ReleaseQueue {
    /// Passes a request down, unless it is a write whose turn has not come.
    fn send(&mut self, ring: &mut Ring, mut request: Request) -> Sent {
        if self.below.is_full() {
            // As `file` answers more requests than the ring has places for.
            return Sent::Ended(request.complete(Err(Fault::Busy)));
        }
        let mut write = None;
        if request.op.is_write() || request.op.is_zero() {
            let (index, at) = self.states.place_of(request.offset);
            if self.states.is_sequential(index) {
                let may = self.states.lock(index).release(at, &self.member);
                match may {
                    May::Go(_) => write = Some((index, at, request.len)),
                    May::Wait => return Sent::NotYet(request),
                    May::Not(fault) => return Sent::Ended(request.complete(Err(fault))),
                }
            }
        }
        let Ok(()) = self.below.enter(&mut request, write) else { unreachable!("a place was free a moment ago") };
        match self.lower.submit(ring, request) {
            Submitted::Done(completion) => Sent::Ended(self.arrive(completion)),
            Submitted::Pending => Sent::Below,
        }
    }

    /// Sends the held writes whose turn has come. Whether any went.
    fn send_held(&mut self, ring: &mut Ring) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.held.len() {
            // A place in the middle is taken by the last; the order is that of the places in the
            // zone anyway.
            let request = self.held.swap_remove(index);
            match self.send(ring, request) {
                Sent::NotYet(request) => {
                    self.held.push(request);
                    let last = self.held.len() - 1;
                    self.held.swap(index, last);
                    index += 1;
                }
                sent => {
                    if let Sent::Ended(completion) = sent {
                        self.ended.push(completion);
                    }
                    // Another may be next now, wherever it is.
                    any = true;
                    index = 0;
                }
            }
        }
        any
    }

    fn arrive(&mut self, mut completion: Completion) -> Completion {
        if let Some((index, at, len)) = self.below.leave(&mut completion.request) {
            let waiting = self.states.lock(index).sent(at, len, completion.result);
            self.states.wake(waiting, &self.member);
        }
        completion
    }
}

/// Where a write ends that nobody waits for is not known.
impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        for &(index, at, len) in self.below.notes().flatten() {
            let lost = Err(Fault::Io(Errno::CANCELED));
            let waiting = self.states.lock(index).sent(at, len, lost);
            self.states.wake(waiting, &self.member);
        }
        self.states.leave(&self.member);
    }
}
