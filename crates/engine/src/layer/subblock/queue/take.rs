//! From a request to steps.

use super::{
    Claim, CutPart, JobPiece, SectorBytes, SectorCut, StepOut, StepSubject, SubBlockJob, SubBlockLayer, SubBlockStep,
};
use crate::{Op, Request};

impl SubBlockLayer {
    /// Takes a request, for whose steps there are places.
    pub(super) fn take_in(&mut self, mut request: Request, out: &mut StepOut) {
        let (offset, len) = (request.offset, request.len);
        let cut = SectorCut::new(offset, len, self.shared.sector);
        if request.op == Op::Cache {
            // Nothing of it is seen or changed, so it needs no claim; only whole blocks below.
            let end = (offset + len).next_multiple_of(self.block);
            request.offset = offset - offset % self.block;
            request.len = end - request.offset;
            self.pass(out, Claim::None, request, (offset, len));
        } else if request.op == Op::Flush {
            self.pass(out, Claim::None, request, (offset, len));
        } else if cut.is_whole() {
            self.pass(out, self.sharing(cut), request, (offset, len));
        } else if self.shared.overwrites {
            let claim = if request.op.changes() { self.excluding(cut) } else { self.sharing(cut) };
            self.pass(out, claim, request, (offset, len));
        } else if request.op == Op::Discard {
            // A discard is a hint, so a part of a sector simply stays.
            match cut.inner() {
                None => out.done.push(request.complete(Ok(()))),
                Some(inner) => {
                    (request.offset, request.len) = (inner.offset, inner.len);
                    let cut = SectorCut::new(inner.offset, inner.len, self.shared.sector);
                    self.pass(out, self.sharing(cut), request, (offset, len));
                }
            }
        } else {
            self.cut(out, request, cut);
        }
    }

    fn pass(&mut self, out: &mut StepOut, claim: Claim, request: Request, (offset, len): (u64, u64)) {
        let work = StepSubject::Pass { request: Some(request), offset, len };
        self.begin(out, claim, work);
    }

    /// Makes a job of a request, and a step of each of its parts.
    fn cut(&mut self, out: &mut StepOut, request: Request, cut: SectorCut) {
        let job = SubBlockJob::new(request, cut.parts().map(|part| part.len));
        let is_read = job.is_read();
        let waits_for_body = job.asks_body_first() && cut.inner().is_some();
        let mut body = None;
        let Ok(job) = self.jobs.insert(job) else { unreachable!("there was a free place a moment ago") };
        for (part, CutPart { offset, len }) in cut.parts().enumerate() {
            let piece = JobPiece { job, part };
            let cut = SectorCut::new(offset, len, self.shared.sector);
            let place = SectorBytes::of(offset, len, self.shared.sector);
            if cut.is_whole() {
                let request = self.job(job).body(part, offset, len);
                let work = StepSubject::Body { piece, request: Some(request) };
                if waits_for_body { body = Some((cut, work)) } else { self.begin(out, self.sharing(cut), work) }
            } else if is_read {
                self.begin(out, self.sharing(cut), StepSubject::Peek { piece, place });
            } else {
                let work = StepSubject::Rewrite { piece, place, next: None, is_writing: false };
                if waits_for_body { self.hold(job, work) } else { self.begin(out, self.excluding(cut), work) }
            }
        }
        // It may end at once, and then decides about the others.
        if let Some((cut, work)) = body {
            self.begin(out, self.sharing(cut), work);
        }
    }

    /// Makes a step of a part of a job that waits for the body of it. It has no claim meanwhile.
    fn hold(&mut self, job: usize, work: StepSubject) {
        let Ok(index) = self.steps.insert(SubBlockStep { claim: Claim::None, work }) else {
            unreachable!("there are places for all parts")
        };
        self.job(job).hold(index);
    }

    /// Has a step that was held wait for its claim, as any other.
    pub(super) fn let_go(&mut self, index: usize) {
        if let StepSubject::Rewrite { place, .. } = self.step(index).work {
            let sector = self.shared.sector;
            self.step(index).claim = self.excluding(SectorCut::new(place.sector, sector, sector));
        }
        self.waiting.push_back(index);
    }

    fn sharing(&self, cut: SectorCut) -> Claim {
        let (first, count) = cut.span();
        Claim::Shared(self.shared.claims.span(first, count))
    }

    /// Announces a write of part of a sector.
    fn excluding(&self, cut: SectorCut) -> Claim {
        let (first, count) = cut.span();
        self.shared.claims.announce();
        Claim::Exclusive(self.shared.claims.span(first, count))
    }
}
