//! Release: below the cipher, lets the writes of each zone through in the order of their places.

use std::sync::Arc;

use cryptline_sys::Ring;
use rustix::io::Errno;

use super::state::{May, ZoneMember, ZoneStates};
use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerOut, Layered};
use crate::zone::ZoneModel;
use crate::{Completion, Device, Fault, OpenError, Queue, Request, Traits};

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
        let lower = vec![self.lower.open_queue(ring)?];
        let layer =
            ReleaseLayer { member: self.states.join(ring)?, states: Arc::clone(&self.states), held: Vec::new() };
        Ok(Box::new(Layered::new(layer, lower, ring.depth())))
    }
}

struct ReleaseLayer {
    states: Arc<ZoneStates>,
    member: ZoneMember,
    /// Writes that wait for those before them.
    held: Vec<Request>,
}

/// A write to a sequential zone that is below: the zone, the place in it, and the length.
type ReleasedWrite = (usize, u64, u64);

impl Layer for ReleaseLayer {
    type Note = Option<ReleasedWrite>;

    /// Lets a request through, unless it is a write whose turn has not come.
    fn down(&mut self, request: &mut Request) -> Descent<Self::Note> {
        let (index, at) = self.states.place_of(request.offset);
        let is_write = request.op.is_write() || request.op.is_zero();
        if !is_write || !self.states.is_sequential(index) {
            return Descent::Through { device: 0, note: None };
        }
        let may = self.states.lock(index).release(at, &self.member);
        match may {
            May::Go(_) => Descent::Through { device: 0, note: Some((index, at, request.len)) },
            May::Wait => Descent::Take,
            May::Not(fault) => Descent::End(Err(fault)),
        }
    }

    fn up(
        &mut self,
        completion: &mut Completion,
        note: Self::Note,
        _out: &mut LayerOut<Self::Note>,
    ) -> Option<Self::Note> {
        self.ended(note, completion.result);
        None
    }

    fn take(&mut self, request: Request, _out: &mut LayerOut<Self::Note>) {
        self.held.push(request);
    }

    /// Sends the held writes whose turn has come. A place in the middle is taken by the last; the order is that of the
    /// places in the zone anyway.
    fn turn(&mut self, out: &mut LayerOut<Self::Note>) {
        let mut index = 0;
        while out.room > 0
            && let Some(mut request) = (index < self.held.len()).then(|| self.held.swap_remove(index))
        {
            match self.down(&mut request) {
                Descent::Through { device, note } => out.send(device, request, note),
                Descent::End(result) => out.done.push(request.complete(result)),
                Descent::Take => {
                    self.held.push(request);
                    let last = self.held.len() - 1;
                    self.held.swap(index, last);
                    index += 1;
                }
            }
        }
    }

    fn awaits_ends(&self) -> bool {
        !self.held.is_empty()
    }

    fn lost(&mut self, note: &Self::Note) {
        self.ended(*note, Err(Fault::Io(Errno::CANCELED)));
    }
}

impl ReleaseLayer {
    fn ended(&self, note: Option<ReleasedWrite>, result: Result<(), Fault>) {
        if let Some((index, at, len)) = note {
            let waiting = self.states.lock(index).sent(at, len, result);
            self.states.wake(waiting, &self.member);
        }
    }
}

impl Drop for ReleaseLayer {
    fn drop(&mut self) {
        self.states.leave(&self.member);
    }
}
