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

use super::job::LinearJob;
use super::map::{Map, Route};
use crate::gate::{Gate, GatedQueue};
use crate::in_flight::InFlight;
use crate::slab::Slab;
use crate::{Completion, Fault, OpenError, Queue, Request, Submitted};

/// Pieces below at a time beyond one of each request.
const EXTRA_MAX: usize = 64;

/// Note on a request below.
#[derive(Clone, Copy, Debug)]
enum Note {
    /// The caller's own, shifted by so much.
    Whole { shift: u64 },
    /// A piece of a job.
    Piece(LinearPiece),
}

#[derive(Clone, Copy, Debug)]
struct LinearPiece {
    job: usize,
    number: usize,
    device: usize,
}

pub(super) struct LinearQueue {
    map: Arc<Map>,
    devices: Vec<GatedQueue>,
    below: InFlight<Note>,
    jobs: Slab<LinearJob>,
    /// Jobs that have more to send.
    unsent: VecDeque<usize>,
    /// Pieces that found no place below.
    refused: VecDeque<(LinearPiece, Request)>,
    /// Pieces beyond one of each job.
    extra: usize,
    reaped: Vec<Completion>,
}

impl LinearQueue {
    pub fn open(map: &Arc<Map>, devices: &[Gate], ring: &mut Ring) -> Result<Self, OpenError> {
        let depth = ring.depth();
        let all = depth + EXTRA_MAX;
        ring.reserve(u32::try_from(EXTRA_MAX).unwrap_or(u32::MAX));
        let devices = devices.iter().map(|device| device.open_queue(ring));
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            map: Arc::clone(map),
            devices,
            below: InFlight::new(all),
            jobs: Slab::new(depth),
            unsent: VecDeque::with_capacity(depth),
            refused: VecDeque::with_capacity(all),
            extra: 0,
            reaped: Vec::with_capacity(all),
        })
    }
}

impl Queue for LinearQueue {
    fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        let Route { device, shift } = self.map.alone(request)?;
        request.offset = request.offset.wrapping_add(shift);
        let result = self.devices[device].answer_at_once(request);
        request.offset = request.offset.wrapping_sub(shift);
        result
    }

    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        match self.map.alone(&request) {
            Some(way) => self.submit_whole(ring, way, request),
            None => self.submit_job(ring, request),
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        for device in &mut self.devices {
            device.poll(ring, &mut reaped);
        }
        for completion in reaped.drain(..) {
            let (note, completion) = self.leave(completion);
            match note {
                Note::Whole { .. } => done.push(completion),
                Note::Piece(piece) => done.extend(self.piece_back(piece, completion)),
            }
        }
        self.reaped = reaped;
        self.try_again(ring, done);
        for _ in 0..self.unsent.len() {
            if let Some(job) = self.unsent.pop_front() {
                done.extend(self.send(ring, job));
            }
        }
        self.look_to_refused(ring);
    }
}

impl LinearQueue {
    fn submit_whole(&mut self, ring: &mut Ring, way: Route, mut request: Request) -> Submitted {
        let Route { device, shift } = way;
        if self.below.enter(&mut request, Note::Whole { shift }).is_err() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        request.offset = request.offset.wrapping_add(shift);
        match self.devices[device].submit(ring, request) {
            Submitted::Pending => Submitted::Pending,
            Submitted::Done(completion) => Submitted::Done(self.leave(completion).1),
        }
    }

    fn submit_job(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.jobs.is_full() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let job = match LinearJob::new(request, &self.map) {
            Ok(job) => job,
            Err(request) => return Submitted::Done(request.complete(Err(Fault::NotSupported))),
        };
        let Ok(job) = self.jobs.insert(job) else { unreachable!("a place was free a moment ago") };
        let done = self.send(ring, job);
        self.look_to_refused(ring);
        done.map_or(Submitted::Pending, Submitted::Done)
    }

    /// Sends as many pieces of a job as may go now; its end, where that comes at once.
    fn send(&mut self, ring: &mut Ring, index: usize) -> Option<Completion> {
        loop {
            let job = self.jobs.get_mut(index)?;
            let is_first = job.below() == 0;
            let may_go = is_first || self.extra < EXTRA_MAX;
            if may_go && let Some((number, way, request)) = job.next_piece(&self.map) {
                self.extra += usize::from(!is_first);
                let piece = LinearPiece { job: index, number, device: way.device };
                if let Some(completion) = self.pass(ring, piece, request) {
                    let ended = self.piece_back(piece, completion);
                    if ended.is_some() {
                        return ended;
                    }
                }
                continue;
            }
            if job.has_more() {
                self.unsent.push_back(index);
            }
            return None;
        }
    }

    /// Passes a piece down; gives it back where it has ended at once.
    fn pass(&mut self, ring: &mut Ring, piece: LinearPiece, mut request: Request) -> Option<Completion> {
        if self.below.enter(&mut request, Note::Piece(piece)).is_err() {
            return Some(request.complete(Err(Fault::Busy)));
        }
        match self.devices[piece.device].submit(ring, request) {
            Submitted::Pending => None,
            Submitted::Done(completion) => Some(self.leave(completion).1),
        }
    }

    /// Undoes what was done to a request on its way down.
    fn leave(&mut self, mut completion: Completion) -> (Note, Completion) {
        let request = &mut completion.request;
        let note = self.below.leave(request);
        if let Note::Whole { shift } = note {
            request.offset = request.offset.wrapping_sub(shift);
        }
        (note, completion)
    }

    /// Takes a piece back; the end of its job, if it was the last.
    fn piece_back(&mut self, piece: LinearPiece, completion: Completion) -> Option<Completion> {
        let Completion { request, result } = completion;
        if result == Err(Fault::Busy) {
            self.refused.push_back((piece, request));
            return None;
        }
        let job = self.jobs.get_mut(piece.job)?;
        job.take_back(piece.number, request.data, result);
        self.extra -= usize::from(job.below() > 0);
        if !job.is_over() {
            return None;
        }
        // One that failed may still be among those that had more to send, until this poll ends.
        self.jobs.remove(piece.job).map(LinearJob::end)
    }

    /// Sends once more what found no place below.
    fn try_again(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        for _ in 0..self.refused.len() {
            if let Some((piece, request)) = self.refused.pop_front()
                && let Some(completion) = self.pass(ring, piece, request)
            {
                done.extend(self.piece_back(piece, completion));
            }
        }
    }

    /// Sees to refused requests: they are tried again when something of this queue has ended; where nothing of it is
    /// under way, others have all places, and whoever waits must come back by himself.
    fn look_to_refused(&self, ring: &mut Ring) {
        if !self.refused.is_empty() && self.below.is_empty() {
            ring.stay_awake();
        }
    }
}
