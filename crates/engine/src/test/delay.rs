//! `delay`: a device as slow as you like, so that SSD- and disk-like media can be measured anywhere.
//!
//! ```text
//! submit ─► lower ─► done already ──┐            ┌─► held until its time ─► poll
//!    │                              ├─► too soon ┘
//!    └─► medium: draws the time     └─► its time has come ─► completed
//! ```
//!
//! A request goes to the device below at once and comes back when both are over: the work below, and the time that the
//! simulated medium takes for it (`medium.rs`; `spec.rs` is its text form). What is read and written is what the device
//! below reads and writes, and so are its failures.
//!
//! Nobody sleeps in `submit`: the queue asks its ring to wake up when the next request is due. Per
//! request there is no allocation; the medium's state is a few atomic words shared by all queues.

mod medium;
mod spec;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use cryptline_sys::Ring;

use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerNote, LayerOut, Layered};
use crate::{Completion, Device, OpenError, Queue, Request, Traits};

use medium::DelayedMedium;
pub use spec::DelaySpec;

/// A device that takes its time.
pub struct DelayDevice {
    lower: Gate,
    medium: Arc<DelayedMedium>,
}

impl DelayDevice {
    /// Makes `lower` as slow as `spec` says.
    #[must_use]
    pub fn new(lower: Gate, spec: DelaySpec) -> Self {
        let medium = Arc::new(DelayedMedium::new(spec, lower.geometry().size));
        Self { lower, medium }
    }
}

impl Device for DelayDevice {
    fn traits(&self) -> Traits {
        let mut traits = Traits::over(self.below());
        traits.geometry.rotational |= self.medium.seeks();
        traits.geometry.answers_at_once = false;
        traits
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        // The kernel may wake a thread up to 50 µs late to save power; that would be half a
        // typical medium. Where it refuses, times are only less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let layer =
            DelayLayer { medium: Arc::clone(&self.medium), held: BinaryHeap::with_capacity(ring.depth()), arrivals: 0 };
        let lower = vec![self.lower.open_queue(ring)?];
        Ok(Box::new(Layered::new(layer, lower, ring.depth())))
    }
}

struct DelayLayer {
    medium: Arc<DelayedMedium>,
    /// Back from below, and too soon.
    held: BinaryHeap<Held>,
    arrivals: u64,
}

impl LayerNote for Instant {}

impl Layer for DelayLayer {
    /// When it may come back.
    type Note = Instant;

    fn down(&mut self, request: &mut Request) -> Descent<Instant> {
        Descent::Through { device: 0, note: self.medium.take(request, Instant::now()) }
    }

    fn up(&mut self, _completion: &mut Completion, due: Instant, _out: &mut LayerOut<Instant>) -> Option<Instant> {
        (due > Instant::now()).then_some(due)
    }

    fn back(&mut self, due: Instant, completion: Completion, _out: &mut LayerOut<Instant>) {
        self.arrivals += 1;
        self.held.push(Held { due, arrival: self.arrivals, completion });
    }

    fn turn(&mut self, out: &mut LayerOut<Instant>) {
        while let Some(next) = self.held.peek() {
            if next.due > Instant::now() {
                out.wake_by = Some(next.due);
                break;
            }
            out.done.extend(self.held.pop().map(|held| held.completion));
        }
    }
}

/// A completion that waits for its time. The greatest is the first that is due; of several due at
/// one moment, the one that came first.
struct Held {
    due: Instant,
    arrival: u64,
    completion: Completion,
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.arrival).cmp(&(self.due, self.arrival))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}
