//! One thread's way into a device of several ranges.
//!
//! ```text
//! submit ─┬─► in one range ── shift ──────────────────────► device below ─► shift back ─► done
//!         └─► over a border ─► job ─► piece by piece, ─────► device below ─► joined ─► done
//!                               └◄──── a window at a time ◄──┘
//! ```
//!
//! Each job has the place on the ring that its request was to have. Further pieces use the places that
//! were reserved for that, and wait while there is none; so no request is refused because another was
//! cut.

use std::collections::VecDeque;
use std::sync::Arc;

use cryptline_sys::Ring;

use super::map::{Map, Route};
use crate::gate::Gate;
use crate::layered::{Descent, Layer, LayerNote, LayerOut, Layered};
use crate::pieces::InPieces;
use crate::slab::Slab;
use crate::{Completion, Fault, Op, OpenError, Request};

/// Pieces of one request below at a time.
const WINDOW: usize = 8;
/// Pieces below at a time beyond one of each request.
const EXTRA_MAX: usize = 64;

/// Note on a request below.
pub(super) enum LinearNote {
    /// The caller's own, shifted by so much.
    Whole { shift: u64 },
    /// A piece of a job: which job, and its number there.
    Piece { job: usize, number: usize },
}

pub(super) struct LinearLayer {
    map: Arc<Map>,
    /// Requests that are cut.
    jobs: Slab<InPieces<WINDOW>>,
    /// Jobs that have more to send.
    unsent: VecDeque<usize>,
    /// Pieces below beyond one of each job.
    extra: usize,
}

/// A queue into the ranges that `map` tells of.
pub(super) fn open(map: &Arc<Map>, devices: &[Gate], ring: &mut Ring) -> Result<Layered<LinearLayer>, OpenError> {
    let depth = ring.depth();
    ring.reserve(u32::try_from(EXTRA_MAX).unwrap_or(u32::MAX));
    let devices = devices.iter().map(|device| device.open_queue(ring));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let layer = LinearLayer { map: Arc::clone(map), jobs: Slab::new(depth), unsent: VecDeque::new(), extra: 0 };
    Ok(Layered::new(layer, devices, depth + EXTRA_MAX))
}

impl LayerNote for LinearNote {}

impl Layer for LinearLayer {
    type Note = LinearNote;

    fn at_once(&mut self, request: &mut Request) -> Option<(usize, u64)> {
        self.map.alone(request).map(|way| (way.device, way.shift))
    }

    fn down(&mut self, request: &mut Request) -> Descent<LinearNote> {
        if let Some(Route { device, shift }) = self.map.alone(request) {
            request.offset = request.offset.wrapping_add(shift);
            return Descent::Through { device, note: LinearNote::Whole { shift } };
        }
        if request.op.is_zoned() {
            // It has neither a range nor is it a flush.
            return Descent::End(Err(Fault::NotSupported));
        }
        if self.jobs.is_full() { Descent::End(Err(Fault::Busy)) } else { Descent::Take }
    }

    fn up(
        &mut self,
        completion: &mut Completion,
        note: LinearNote,
        _out: &mut LayerOut<LinearNote>,
    ) -> Option<LinearNote> {
        let LinearNote::Whole { shift } = note else { return Some(note) };
        completion.request.offset = completion.request.offset.wrapping_sub(shift);
        None
    }

    fn take(&mut self, request: Request, out: &mut LayerOut<LinearNote>) {
        let len = if request.op == Op::Flush { self.map.devices() as u64 } else { request.len };
        let changes = request.op.changes();
        let Ok(job) = self.jobs.insert(InPieces::new(request, len, changes)) else {
            unreachable!("a place was free a moment ago")
        };
        if self.send_piece(job, out) {
            self.unsent.push_back(job);
        }
    }

    /// Sends a piece more of each job that may.
    fn turn(&mut self, out: &mut LayerOut<LinearNote>) {
        for _ in 0..self.unsent.len() {
            // One that failed may have ended with more to send.
            if let Some(job) = self.unsent.pop_front()
                && self.send_piece(job, out)
            {
                self.unsent.push_back(job);
            }
        }
    }

    /// Takes a piece back. One at a time goes to devices that answer at once, so none after one that has failed.
    fn back(&mut self, note: LinearNote, completion: Completion, out: &mut LayerOut<LinearNote>) {
        let LinearNote::Piece { job: index, number } = note else { unreachable!("whole requests end on their way up") };
        let Some(job) = self.jobs.get_mut(index) else { unreachable!("a job stays until its pieces are back") };
        job.put(number, completion.request.data, completion.result);
        if job.is_over() {
            out.done.extend(self.jobs.remove(index).map(InPieces::end));
        } else if job.away() == 0 {
            self.send_piece(index, out);
        } else {
            self.extra -= 1;
        }
    }
}

impl LinearLayer {
    /// Sends a piece more of a job, if it may go. Tells if there are more.
    fn send_piece(&mut self, index: usize, out: &mut LayerOut<LinearNote>) -> bool {
        let Some(job) = self.jobs.get_mut(index) else { return false };
        let is_first = job.away() == 0;
        if (is_first || self.extra < EXTRA_MAX)
            && let Some((number, way, request)) = next_piece(job, &self.map)
        {
            self.extra += usize::from(!is_first);
            out.send(way.device, request, LinearNote::Piece { job: index, number });
        }
        job.has_more()
    }
}

/// Cuts off the next piece of a job, if it may go now: its number, its way, and the request for it, with its place on the
/// device below.
fn next_piece(job: &mut InPieces<WINDOW>, map: &Map) -> Option<(usize, Route, Request)> {
    let (offset, sent) = (job.head().offset, job.sent());
    let (way, most) = match job.head().op {
        Op::Flush => (Route { device: usize::try_from(sent).ok()?, shift: 0 }, 1),
        _ => map.find(offset.wrapping_add(sent)),
    };
    let (number, mut piece) = job.cut(most)?;
    piece.offset = piece.offset.wrapping_add(way.shift);
    Some((number, way, piece))
}
