//! From a completion below to what follows from it: another request below, or the end of the caller's.

use cryptline_sys::Ring;

use super::{Claim, StepSubject, SubBlockQueue, SubBlockStep};
use crate::{Completion, Fault, Op, Request, Submitted};

impl SubBlockQueue {
    /// Follows a completion below, until something is pending or over.
    pub(super) fn follow(&mut self, ring: &mut Ring, completion: Completion) {
        let mut completion = completion;
        while let Some(request) = self.back(completion) {
            match self.lower.submit(ring, request) {
                Submitted::Pending => return,
                Submitted::Done(done) => completion = done,
            }
        }
    }

    /// Takes a completion in; what is to be done below because of it.
    fn back(&mut self, completion: Completion) -> Option<Request> {
        let Completion { request, result } = completion;
        let index = usize::try_from(request.token).unwrap_or(usize::MAX);
        if let StepSubject::Rewrite { place, is_writing: false, .. } = &self.step(index).work
            && result.is_ok()
            && request.op == Op::Read
            && let Some(data) = request.data
        {
            let sector = place.sector;
            return Some(self.write_sector(index, sector, data));
        }
        let Some(SubBlockStep { claim, work }) = self.steps.remove(index) else {
            unreachable!("a step comes back once")
        };
        self.release(claim);
        match work {
            StepSubject::Pass { token, offset, len, .. } => {
                let request = as_given(request, (token, offset, len));
                self.finished.push(request.complete(result));
            }
            StepSubject::Body { piece, .. } => {
                self.job(piece.job).put_back(piece.part, request);
                self.body_done(piece.job, result);
            }
            StepSubject::Peek { piece, place } => {
                if let Some(data) = request.data {
                    let found = &data[place.within..place.within + place.len];
                    self.job(piece.job).copy_out(piece.part, found);
                    self.scratch.push(data);
                }
                self.part_done(piece.job, result);
            }
            StepSubject::Rewrite { piece, next, .. } => {
                self.scratch.extend(request.data);
                self.part_done(piece.job, result);
                self.end_those_behind(next, result);
            }
            StepSubject::Flush { job } => self.part_done(job, result),
        }
        None
    }

    /// Ends the rewrites that were done together with another.
    fn end_those_behind(&mut self, next: Option<usize>, result: Result<(), Fault>) {
        let mut at = next;
        while let Some(index) = at {
            let Some(SubBlockStep { work: StepSubject::Rewrite { piece, next, .. }, .. }) = self.steps.remove(index)
            else {
                unreachable!("rewrites done together come back together")
            };
            self.part_done(piece.job, result);
            at = next;
        }
    }

    /// Begins the steps that have waited for the body, or never.
    fn body_done(&mut self, job: usize, result: Result<(), Fault>) {
        for index in self.job(job).take_held() {
            if result.is_ok() {
                self.let_go(index);
            } else {
                self.steps.remove(index);
                self.job(job).skip_part();
            }
        }
        self.part_done(job, result);
    }

    fn part_done(&mut self, job: usize, result: Result<(), Fault>) {
        if !self.job(job).part_done(result) {
            return;
        }
        if self.job(job).wants_flush() {
            let step = SubBlockStep { claim: Claim::None, work: StepSubject::Flush { job } };
            let Ok(index) = self.steps.insert(step) else { unreachable!("the steps of the job's parts are over") };
            // It needs no claim, so the next try sends it.
            self.waiting.push_back(index);
            return;
        }
        let ended = self.jobs.remove(job).expect("a job ends once").end();
        self.finished.push(ended);
    }
}

/// A request of ours as it was given to us.
fn as_given(request: Request, (token, offset, len): (u64, u64, u64)) -> Request {
    Request { offset, len, token, ..request }
}
