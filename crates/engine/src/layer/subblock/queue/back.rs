//! From a completion below to what follows from it: another request below, or the end of the caller's.

use super::{Claim, StepOut, StepSubject, SubBlockLayer, SubBlockStep};
use crate::{Completion, Fault, Op, Request};

impl SubBlockLayer {
    /// Takes a step back; what is to be done below because of it.
    pub(super) fn step_back(&mut self, index: usize, completion: Completion, out: &mut StepOut) -> Option<Request> {
        let Completion { request, result } = completion;
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
            StepSubject::Pass { offset, len, .. } => {
                let request = Request { offset, len, ..request };
                out.done.push(request.complete(result));
            }
            StepSubject::Body { piece, .. } => {
                self.job(piece.job).put_back(piece.part, request);
                self.body_done(piece.job, result, out);
            }
            StepSubject::Peek { piece, place } => {
                if let Some(data) = request.data {
                    let found = &data[place.within..place.within + place.len];
                    self.job(piece.job).copy_out(piece.part, found);
                    self.scratch.push(data);
                }
                self.part_done(piece.job, result, out);
            }
            StepSubject::Rewrite { piece, next, .. } => {
                self.scratch.extend(request.data);
                self.part_done(piece.job, result, out);
                self.end_those_behind(next, result, out);
            }
            StepSubject::Flush { job } => self.part_done(job, result, out),
        }
        None
    }

    /// Ends the rewrites that were done together with another.
    fn end_those_behind(&mut self, next: Option<usize>, result: Result<(), Fault>, out: &mut StepOut) {
        let mut at = next;
        while let Some(index) = at {
            let Some(SubBlockStep { work: StepSubject::Rewrite { piece, next, .. }, .. }) = self.steps.remove(index)
            else {
                unreachable!("rewrites done together come back together")
            };
            self.part_done(piece.job, result, out);
            at = next;
        }
    }

    /// Begins the steps that have waited for the body, or never.
    fn body_done(&mut self, job: usize, result: Result<(), Fault>, out: &mut StepOut) {
        for index in self.job(job).take_held() {
            if result.is_ok() {
                self.let_go(index);
            } else {
                self.steps.remove(index);
                self.job(job).skip_part();
            }
        }
        self.part_done(job, result, out);
    }

    fn part_done(&mut self, job: usize, result: Result<(), Fault>, out: &mut StepOut) {
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
        out.done.push(ended);
    }
}
