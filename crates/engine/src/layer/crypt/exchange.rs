//! The exchange: requests whose cipher may run on other threads (`auto` and `queue`).
//!
//! ```text
//! read    cut ─► medium, piece by piece ─► job ─► slots ─► back here ─┐
//! write   cut ─► job ─► slots ─► back here ─► medium ─────────────────┴─► joined, completed
//! ```
//!
//! Under `auto` jobs lie in the slots for whoever comes first, this queue or a helper; under `queue`
//! workers get them. Where a medium answers at once, a large request is read and decrypted (or
//! encrypted and written) piece by piece, so that one core moves bytes while another runs the cipher;
//! where it does not, piece k is decrypted while piece k+1 is on its way.
//!
//! A piece that goes to another thread is moved there with its bytes and moved back, so nothing is borrowed. The
//! submitter never waits for a helper to come, only for one in the middle of a piece, and no longer than twice the time
//! that the piece should take; after that the request ends through `poll`, woken by the helper.
//!
//! A piece goes to the medium as a step of the layer, so work here stops where there is one to be sent.

use std::sync::Arc;
use std::time::Instant;

use cryptline_sys::{Buffer, Ring};

use super::policy::{PARTS_MAX, SharingPolicy, SplitCut, Treatment};
use super::queue::{CryptOut, CryptPiece, PlacedCipher, TURN};
use crate::dispatch::Workers;
use crate::dispatch::job::{CipherJob, JobDirection, SharedSlots};
use crate::pieces::InPieces;
use crate::slab::Slab;
use crate::{Completion, Fault, Geometry, Op, OpenError, Request};

/// Requests in pieces at a time.
const SPLITS_MAX: usize = 64;
/// Operations on a medium that pieces may cause beyond one for each request.
pub(super) const EXTRA_MAX: usize = 128;
/// How often what is to be encrypted ahead is left for helpers while there is something else to do.
const PASSES_MAX: u32 = 8;

pub(super) struct Exchange {
    policy: SharingPolicy,
    workers: Option<Arc<Workers>>,
    cipher: PlacedCipher,
    answers_at_once: bool,
    /// A write may reach the medium in parts: not where it has zones, which want them in order.
    may_split: bool,
    slots: Arc<SharedSlots>,
    splits: Slab<Split>,
    /// Operations on the medium beyond one for each request.
    extra: usize,
    /// Requests of the layer that were submitted and have not ended.
    under_way: usize,
    /// Treatment of the request that was looked at last.
    treatment: Treatment,
    /// The request on which its submitter works together with helpers, and the bytes in its pieces.
    shared: Option<(usize, usize)>,
    /// Jobs in the shared slots that have not come back.
    lent: usize,
    /// Of these, what is to be decrypted.
    lent_reads: usize,
    /// How often what is in the slots was left for helpers since the submitter worked on it.
    passes: u32,
    round: Round,
}

/// A request in pieces, at its place on the clear disk.
struct Split {
    pieces: InPieces<PARTS_MAX>,
    /// A write whose pieces are written one by one; otherwise as one request, in the end.
    by_parts: bool,
    /// Operations on the medium beyond one that it may cause.
    extra: usize,
    /// Helpers' work, once the first piece is in the slots: so many jobs.
    calls_for: usize,
}

/// State of one call of the queue.
#[derive(Default)]
struct Round {
    /// Bytes of reads that came back from the medium.
    bytes: usize,
    /// Something came back that the queue or its caller can go on with.
    has_other_work: bool,
    /// Jobs that were offered and for which no helper was called.
    offered: usize,
    /// Jobs in the slots are left for helpers.
    passes: Option<bool>,
    /// Helpers were waited for, and what has been encrypted ahead is to be written.
    has_waited: bool,
    /// Helpers were told that there will be more jobs in a moment.
    announces: bool,
    /// Helpers are waited for until then.
    until: Option<Instant>,
}

impl Exchange {
    /// To be called before the queue into `lower` is opened over `ring`.
    pub fn open(
        policy: SharingPolicy,
        workers: Option<Arc<Workers>>,
        cipher: PlacedCipher,
        lower: &Geometry,
        ring: &mut Ring,
    ) -> Result<Self, OpenError> {
        let answers_at_once = lower.answers_at_once;
        if !answers_at_once {
            ring.reserve(u32::try_from(EXTRA_MAX).unwrap_or(u32::MAX));
        }
        let waker = ring.waker().map_err(OpenError::Ring)?;
        Ok(Self {
            policy,
            workers,
            cipher,
            answers_at_once,
            may_split: lower.zones.is_none(),
            slots: Arc::new(SharedSlots::new(SPLITS_MAX * PARTS_MAX, waker, ring.kept().to_vec())),
            splits: Slab::new(SPLITS_MAX),
            extra: 0,
            under_way: 0,
            treatment: Treatment::Inline,
            shared: None,
            lent: 0,
            lent_reads: 0,
            passes: 0,
            round: Round::default(),
        })
    }

    /// Tells if finished reads may be lent.
    pub fn may_lend(&self) -> bool {
        self.policy.may_share_reads()
    }

    /// Tells if a request is to be taken. Apart, as are the other ways in, so that a queue without an exchange has nothing
    /// of them.
    #[inline(never)]
    pub fn plan(&mut self, request: &Request) -> bool {
        let most = if self.answers_at_once { PARTS_MAX } else { EXTRA_MAX - self.extra + 1 };
        self.treatment =
            if !self.has_room() { Treatment::Inline } else { self.policy.plan(request, most, self.under_way) };
        self.under_way += 1;
        !matches!(self.treatment, Treatment::Inline)
    }

    /// Cuts a request that [`plan`](Self::plan) said is to be taken, and sends its pieces on their way.
    #[inline(never)]
    pub fn take(&mut self, request: Request, out: &mut CryptOut) {
        let (Treatment::Queue(cut)
        | Treatment::Share(cut)
        | Treatment::Defer(cut)
        | Treatment::Ahead(cut)
        | Treatment::Overlap(cut)) = self.treatment
        else {
            unreachable!("one that is not cut goes through")
        };
        let calls = match self.treatment {
            Treatment::Share(_) | Treatment::Defer(_) => true,
            Treatment::Ahead(_) => self.policy.is_worth_calling(usize::try_from(request.len).unwrap_or(usize::MAX)),
            _ => false,
        };
        let is_queued = matches!(self.treatment, Treatment::Queue(_));
        let by_parts = request.op.is_write() && self.may_split && (self.answers_at_once || is_queued);
        let split = self.open_split(request, by_parts, cut, calls);
        self.shared = matches!(self.treatment, Treatment::Share(_)).then_some((split, cut.part_len));
        self.round = Round::default();
        self.round.announces = calls && cut.count > 1;
        if self.round.announces {
            self.slots.announce_more(true);
        }
        while let Some((piece, request)) = self.cut(split, cut) {
            match request.data {
                Some(data) if request.op.is_write() => {
                    let job = self.job(piece, request.op, request.offset, data);
                    self.hand_out(job, out);
                }
                _ => self.send(piece, request, out),
            }
        }
    }

    /// Takes a piece back from the medium: the end of a write's, and of a read's the middle.
    #[inline(never)]
    pub fn back(&mut self, piece: CryptPiece, completion: Completion, out: &mut CryptOut) {
        let Completion { request: Request { op, offset, data, .. }, result } = completion;
        match data {
            Some(data) if op == Op::Read && result.is_ok() => {
                let job = self.job(piece, op, offset - self.cipher.start, data);
                self.hand_out(job, out);
                // No further ahead than the others can follow: what was read is still in the cache.
                if !out.polls
                    && self.slots.waiting() > self.policy.lead()
                    && let Some(job) = self.slots.take()
                {
                    self.run_here(job, out);
                }
            }
            data => self.put(piece, data, result, out),
        }
    }

    /// Begins a `poll`.
    #[inline(never)]
    pub fn begin_poll(&mut self) {
        self.policy.polled();
        self.round = Round::default();
    }

    /// Notes that a whole request has come back: `bytes` of a good read, else 0.
    pub fn came_back(&mut self, bytes: u64) {
        self.round.has_other_work = true;
        self.round.bytes = self.round.bytes.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Notes that a request of the layer has ended.
    pub fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Tells if the reads that have come back since it was last asked are to be lent.
    pub fn lends(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.round.bytes);
        bytes > 0 && self.policy.is_worth_sharing(bytes)
    }

    /// Tells if one more can be lent.
    pub fn has_room(&self) -> bool {
        !self.splits.is_full()
    }

    /// Makes a job of a read that has come back, for which there is room.
    pub fn lend(&mut self, Completion { request, .. }: Completion, out: &mut CryptOut) {
        let cut = SplitCut::whole(usize::try_from(request.len).unwrap_or(usize::MAX));
        let split = self.open_split(request, false, cut, false);
        if let Some((piece, Request { op, offset, data: Some(data), .. })) = self.cut(split, cut) {
            self.hand_out(self.job(piece, op, offset, data), out);
        }
    }

    /// Calls helpers for what was lent.
    pub fn call(&mut self) {
        self.policy.call(&self.slots, std::mem::take(&mut self.round.offered));
    }

    /// Works on what lies in the slots, in a `poll` on at most `left` bytes, until there is something to be sent.
    #[inline(never)]
    pub fn turn(&mut self, has_ripe: bool, left: &mut usize, out: &mut CryptOut) {
        // Helpers look at that word, so it is written no more often than it changes.
        if std::mem::take(&mut self.round.announces) {
            self.slots.announce_more(false);
        }
        if out.polls {
            if self.round.offered > 1 {
                self.call();
            }
            self.round.offered = 0;
            self.collect(out);
            self.work(has_ripe, left, out);
        } else if let Some((_, part_len)) = self.shared {
            self.work_until(part_len, out, |this, _| this.shared.is_none());
            // No longer waited for, unless there is something to be sent.
            self.shared = self.shared.filter(|_| !out.has_sent_all());
        }
        out.awake |= self.slots.waiting() > 0;
    }

    fn work(&mut self, has_ripe: bool, left: &mut usize, out: &mut CryptOut) {
        if !out.has_sent_all() || self.passes(has_ripe) {
            return;
        }
        while out.has_sent_all()
            && *left > 0
            && let Some(job) = self.slots.take()
        {
            *left = left.saturating_sub(job.data.as_ref().map_or(0, |data| data.len()));
            self.run_here(job, out);
            self.collect(out);
        }
        let waits = self.slots.waiting() == 0 && out.done.is_empty() && !self.round.has_waited;
        if waits {
            let (lent, ahead) = (self.lent, self.policy.encrypts_ahead());
            // What has been encrypted ahead is to be written: the ring must be entered for that.
            self.round.has_waited = ahead;
            self.work_until(TURN, out, |this, out| !out.done.is_empty() || (ahead && this.lent < lent));
        }
    }

    /// Tells if the jobs in the slots can wait: they are only to be encrypted ahead, and there is other work. Once for
    /// each `poll`.
    fn passes(&mut self, has_ripe: bool) -> bool {
        if let Some(passes) = self.round.passes {
            return passes;
        }
        let has_other_work = has_ripe || self.round.has_other_work;
        let may_pass = self.policy.encrypts_ahead() && self.lent_reads == 0 && self.passes < PASSES_MAX;
        let passes = has_other_work && may_pass;
        self.passes = if passes { self.passes + u32::from(self.slots.waiting() > 0) } else { 0 };
        self.round.passes = Some(passes);
        passes
    }

    /// Works on what there is until `is_enough`, something is to be sent, or what is missing is with helpers that take
    /// much longer for a piece of `part_len` bytes than it should take.
    fn work_until(&mut self, part_len: usize, out: &mut CryptOut, is_enough: impl Fn(&Self, &CryptOut) -> bool) {
        while self.lent > 0 && out.has_sent_all() && !is_enough(self, out) {
            if let Some(job) = self.slots.collect() {
                self.come_back(job, out);
                continue;
            }
            if let Some(job) = self.slots.take() {
                self.run_here(job, out);
                self.round.until = None;
                continue;
            }
            let now = Instant::now();
            if now > *self.round.until.get_or_insert_with(|| now + self.policy.patience(part_len)) {
                return;
            }
            (0..16).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Makes an entry for a transfer whose pieces go their own ways; there is a place for it.
    fn open_split(&mut self, request: Request, by_parts: bool, cut: SplitCut, calls: bool) -> usize {
        let is_one_operation = self.answers_at_once || (request.op.is_write() && !by_parts);
        let extra = if is_one_operation { 0 } else { cut.count - 1 };
        self.extra += extra;
        // Of a write whose pieces are only encrypted, nothing is changed before all of them are.
        let len = request.len;
        let pieces = InPieces::new(request, len, by_parts);
        let calls_for = if calls { cut.count } else { 0 };
        let Ok(index) = self.splits.insert(Split { pieces, by_parts, extra, calls_for }) else {
            unreachable!("the callers have looked for a free place")
        };
        index
    }

    /// Cuts off the next piece, unless one has failed: a request at its place on the clear disk.
    fn cut(&mut self, split: usize, cut: SplitCut) -> Option<(CryptPiece, Request)> {
        let (part, request) = self.splits.get_mut(split)?.pieces.cut(cut.part_len as u64)?;
        Some((CryptPiece { split, part }, request))
    }

    fn send(&self, piece: CryptPiece, mut request: Request, out: &mut CryptOut) {
        request.offset += self.cipher.start;
        out.send(0, request, Some(piece));
    }

    /// Gives a job to a worker, or offers it to whoever comes first, and calls helpers to the first of a request.
    fn hand_out(&mut self, mut job: CipherJob, out: &mut CryptOut) {
        let is_read = job.direction == JobDirection::Decrypt;
        if let Some(workers) = self.workers.as_ref().filter(|_| self.policy.uses_workers(is_read)) {
            return workers.hand_out(job, &self.slots);
        }
        let split = job.split;
        job.lent = true;
        self.lent += 1;
        self.lent_reads += usize::from(is_read);
        self.round.offered += 1;
        if let Err(job) = self.slots.offer(job) {
            return self.run_here(job, out);
        }
        let calls_for = self.splits.get_mut(split).map(|split| std::mem::take(&mut split.calls_for));
        if let Some(count @ 1..) = calls_for {
            self.policy.call(&self.slots, count);
        }
    }

    /// Takes in the jobs that other threads have given back.
    fn collect(&mut self, out: &mut CryptOut) {
        while out.has_sent_all()
            && let Some(job) = self.slots.collect()
        {
            self.come_back(job, out);
        }
    }

    fn come_back(&mut self, job: CipherJob, out: &mut CryptOut) {
        self.cipher.watch.note_elsewhere(job.took_ns);
        self.settle(job, out);
    }

    fn run_here(&mut self, mut job: CipherJob, out: &mut CryptOut) {
        job.run();
        self.settle(job, out);
    }

    fn job(&self, piece: CryptPiece, op: Op, offset: u64, data: Buffer) -> CipherJob {
        CipherJob {
            cipher_map: Arc::clone(&self.cipher.cipher_map),
            direction: match op {
                Op::Read => JobDirection::Decrypt,
                op => JobDirection::Encrypt { durable: op.is_sync() },
            },
            offset,
            data: Some(data),
            split: piece.split,
            part: piece.part,
            result: None,
            lent: false,
            measured: self.cipher.watch.is_on(),
            took_ns: 0,
        }
    }

    /// A piece has come back from the cipher: the end of a read's, and of a write's the middle, unless
    /// the writer has written it.
    fn settle(&mut self, job: CipherJob, out: &mut CryptOut) {
        let CipherJob { direction, offset, data, split, part, result, lent, took_ns, .. } = job;
        if lent {
            self.lent -= 1;
            self.lent_reads -= usize::from(direction == JobDirection::Decrypt);
        }
        self.cipher.watch.add(took_ns);
        let piece = CryptPiece { split, part };
        let by_parts = self.splits.get(split).is_some_and(|split| split.by_parts);
        match (result, direction, data) {
            (None, JobDirection::Encrypt { durable }, Some(data)) if by_parts => {
                self.send(piece, Request::write(offset, data, durable, 0), out);
            }
            (result, _, data) => self.put(piece, data, result.unwrap_or(Ok(())), out),
        }
    }

    /// Puts a piece in its place. A request whose pieces are all back ends; one that was only encrypted in pieces is
    /// written now.
    fn put(&mut self, piece: CryptPiece, data: Option<Buffer>, result: Result<(), Fault>, out: &mut CryptOut) {
        let Some(split) = self.splits.get_mut(piece.split) else {
            unreachable!("a request stays until its pieces are back")
        };
        split.pieces.put(piece.part, data, result);
        if !split.pieces.is_over() {
            return;
        }
        let Some(Split { pieces, by_parts, extra, .. }) = self.splits.remove(piece.split) else { return };
        self.extra -= extra;
        if self.shared.is_some_and(|(split, _)| split == piece.split) {
            self.shared = None;
        }
        let encrypted = pieces.sent();
        let Completion { mut request, result } = pieces.end();
        if request.op.is_write() && !by_parts && result.is_ok() {
            request.offset += self.cipher.start;
            // It comes back like any other write.
            return out.send(0, request, None);
        }
        if let (true, Err(Fault::Busy), Some(data)) = (request.op.is_write(), result, &mut request.data) {
            // It may come again, with what it came with before. Pieces that were not cut have not been encrypted.
            let encrypted = usize::try_from(encrypted).map_or(data.len(), |len| len.min(data.len()));
            self.cipher.decrypt(request.offset, &mut data[..encrypted]);
        }
        self.ended();
        out.done.push(request.complete(result));
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
