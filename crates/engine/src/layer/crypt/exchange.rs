//! The exchange: requests whose cipher may run on other threads (`auto` and `queue`).
//!
//! ```text
//! read    cut ─► medium, part by part ─► job ─► slots ─► back here ─┐
//! write   cut ─► job ─► slots ─► back here ─► medium ───────────────┴─► joined, completed
//! ```
//!
//! Under `auto` jobs lie in the slots for whoever comes first, this queue or a helper; under `queue`
//! workers get them. Where a medium answers at once, a large request is read and decrypted (or
//! encrypted and written) part by part, so that one core moves bytes while another runs the cipher;
//! where it does not, part k is decrypted while part k+1 is on its way.
//!
//! A piece that goes to another thread is moved there with its bytes and moved back, so nothing is borrowed. The
//! submitter never waits for a helper to come, only for one in the middle of a part, and no longer than twice the time
//! that the part should take; after that the request ends through `poll`, woken by the helper.

use std::sync::Arc;
use std::time::Instant;

use cryptline_sys::{Buffer, Ring, Stopwatch};

use super::policy::{SharingPolicy, Treatment};
use super::queue::TURN;
use super::split::{PARTS_MAX, Split, SplitCut};
use crate::cipher_map::CipherMap;
use crate::dispatch::job::{CipherJob, JobDirection, SharedSlots};
use crate::dispatch::{CipherPace, Dispatch, HelperThreads, Workers};
use crate::gate::{Gate, GatedQueue};
use crate::slab::Slab;
use crate::{Completion, Fault, Op, OpenError, Request, Submitted};

/// Requests in pieces at a time.
const SPLITS_MAX: usize = 64;
/// Operations on a medium that pieces may cause beyond one for each request.
const EXTRA_MAX: u32 = 128;
/// How often what is to be encrypted ahead is left for helpers while there is something else to do.
const PASSES_MAX: u32 = 8;
/// A finished read of fewer bytes is not worth sharing by itself.
const ALONE_LEAST: usize = 8 * 1024;

pub(super) struct Exchange {
    policy: SharingPolicy,
    workers: Option<Arc<Workers>>,
    cipher_map: Arc<CipherMap>,
    /// First byte of the data on the lower device.
    start: u64,
    answers_at_once: bool,
    /// A write may reach the medium in parts: not where it has zones, which want them in order.
    may_split: bool,
    /// A second way into the lower device: its tokens are ours.
    pieces: GatedQueue,
    slots: Arc<SharedSlots>,
    splits: Slab<Split>,
    /// Counts requests in pieces, to tell one from the next in the same place.
    serial: u64,
    /// Jobs in the shared slots that have not come back.
    lent: usize,
    /// Of these, what is to be decrypted.
    lent_reads: usize,
    /// How often what is in the slots was left for helpers since the submitter worked on it.
    passes: u32,
    /// Operations beyond one for each request.
    extra: usize,
    /// Completions that were not given out yet, with their serial numbers.
    finished: Vec<(u64, Completion)>,
    reaped: Vec<Completion>,
    watch: Arc<Stopwatch>,
}

/// Parts of an exchange.
pub(super) struct Parts<'a> {
    pub dispatch: Dispatch,
    pub helpers: Option<(HelperThreads, CipherPace)>,
    pub workers: Option<Arc<Workers>>,
    pub lower: &'a Gate,
    pub cipher_map: &'a Arc<CipherMap>,
    pub start: u64,
    pub ring: &'a mut Ring,
    pub watch: Arc<Stopwatch>,
}

impl Exchange {
    /// To be called before other queues are opened over `ring`.
    pub fn open(parts: Parts<'_>) -> Result<Self, OpenError> {
        let answers_at_once = parts.lower.geometry().answers_at_once;
        if !answers_at_once {
            parts.ring.reserve(EXTRA_MAX);
        }
        let waker = parts.ring.waker().map_err(OpenError::Ring)?;
        let mut policy = SharingPolicy::new(parts.dispatch, parts.helpers, answers_at_once);
        let has_zones = parts.lower.geometry().zones.is_some();
        if has_zones {
            policy = policy.with_ordered_writes();
        }
        if parts.lower.traits().sends_messages {
            policy = policy.without_overlap();
        }
        Ok(Self {
            policy,
            workers: parts.workers,
            cipher_map: Arc::clone(parts.cipher_map),
            start: parts.start,
            answers_at_once,
            may_split: !has_zones,
            pieces: parts.lower.open_queue(parts.ring)?,
            slots: Arc::new(SharedSlots::new(SPLITS_MAX * PARTS_MAX, waker, parts.ring.kept().to_vec())),
            splits: Slab::new(SPLITS_MAX),
            serial: 0,
            lent: 0,
            lent_reads: 0,
            passes: 0,
            extra: 0,
            finished: Vec::new(),
            reaped: Vec::new(),
            watch: parts.watch,
        })
    }

    /// Takes a request that is to be shared; gives back one that is not. `under_way` is the number of other requests
    /// in flight.
    pub fn submit(
        &mut self,
        ring: &mut Ring,
        lower: &mut GatedQueue,
        request: Request,
        under_way: usize,
    ) -> Result<Submitted, Request> {
        if self.splits.is_full() {
            return Err(request);
        }
        let most = if self.answers_at_once { PARTS_MAX } else { EXTRA_MAX as usize - self.extra + 1 };
        let plan = self.policy.plan(&request, most, under_way);
        let (Treatment::Queue(cut)
        | Treatment::Share(cut)
        | Treatment::Defer(cut)
        | Treatment::Ahead(cut)
        | Treatment::Overlap(cut)) = plan
        else {
            return Err(request);
        };
        let by_parts = self.may_split && (self.answers_at_once || matches!(plan, Treatment::Queue(_)));
        let Some(len) = request.data.as_ref().map(|data| data.len()) else {
            return Err(request);
        };
        let (index, serial) = self.open_split(request, by_parts, cut);
        let calls = match plan {
            Treatment::Share(_) | Treatment::Defer(_) => true,
            Treatment::Ahead(_) => self.policy.is_worth_calling(len),
            _ => false,
        };
        self.send_parts(ring, lower, (index, cut.count), calls);
        if let Treatment::Share(_) = plan {
            self.work_until(ring, lower, cut.part_len, |this| this.place_of(serial).is_some());
        }
        let mine = self.place_of(serial).map(|at| self.finished.swap_remove(at));
        if !self.finished.is_empty() || self.slots.waiting() > 0 {
            ring.stay_awake();
        }
        Ok(match mine {
            Some((_, completion)) => Submitted::Done(completion),
            None => Submitted::Pending,
        })
    }

    /// Turns finished reads into jobs where that is worth a helper's while.
    pub fn sort_out(&mut self, reaped: &mut Vec<Completion>) {
        let bytes = reaped.iter().map(read_len).sum();
        if reaped.is_empty() || !self.policy.is_worth_sharing(bytes) {
            return;
        }
        let before = self.lent;
        for index in (0..reaped.len()).rev() {
            let len = read_len(&reaped[index]);
            if len < ALONE_LEAST || self.splits.is_full() {
                continue;
            }
            // Nothing goes back from here: what is shared is counted from the start of the clear
            // disk, and what lies in `reaped` from that of the lower device.
            let Completion { mut request, .. } = reaped.swap_remove(index);
            request.offset -= self.start;
            let (index, _) = self.open_split(request, false, SplitCut::whole(len));
            let part = self.splits.get_mut(index).and_then(Split::next_part);
            let Some((part, buffer)) = part else { unreachable!("only a read has a length here") };
            self.offer(self.job(index, part, buffer));
        }
        self.policy.call(&self.slots, self.lent - before);
    }

    /// Takes in what has come back, works on what lies in the slots, and gives what is finished. With
    /// `has_other_work`, requests have come from the medium that the queue or its caller can go on with. Returns how
    /// many bytes of this turn are left.
    pub fn poll(
        &mut self,
        ring: &mut Ring,
        lower: &mut GatedQueue,
        has_other_work: bool,
        done: &mut Vec<Completion>,
    ) -> usize {
        self.policy.polled();
        let before = self.lent;
        let mut reaped = std::mem::take(&mut self.reaped);
        self.pieces.poll(ring, &mut reaped);
        for piece in reaped.drain(..) {
            self.piece_back(ring, lower, piece);
        }
        self.reaped = reaped;
        let offered = self.lent - before;
        if offered > 1 {
            self.policy.call(&self.slots, offered);
        }
        let mut turn = TURN;
        self.collect(ring, lower);
        if self.may_pass(has_other_work) {
            self.passes += u32::from(self.slots.waiting() > 0);
        } else {
            self.passes = 0;
            while turn > 0
                && let Some(job) = self.slots.take()
            {
                turn = turn.saturating_sub(job.data.as_ref().map_or(0, |data| data.len()));
                self.run_here(ring, lower, job);
                self.collect(ring, lower);
            }
            if self.lent > 0 && self.slots.waiting() == 0 && self.finished.is_empty() {
                let (lent, ahead) = (self.lent, self.policy.encrypts_ahead());
                // What has been encrypted ahead is to be written: the ring must be entered for that.
                self.work_until(ring, lower, TURN, |this| !this.finished.is_empty() || (ahead && this.lent < lent));
            }
        }
        done.extend(self.finished.drain(..).map(|(_, completion)| completion));
        if self.slots.waiting() > 0 {
            ring.stay_awake();
        }
        turn
    }

    /// Tells if the jobs in the slots can wait: they are only to be encrypted ahead, and there is other work.
    fn may_pass(&self, has_other_work: bool) -> bool {
        has_other_work && self.policy.encrypts_ahead() && self.lent_reads == 0 && self.passes < PASSES_MAX
    }

    /// Makes an entry for a transfer whose parts go their own ways; its place and serial number.
    fn open_split(&mut self, request: Request, by_parts: bool, cut: SplitCut) -> (usize, u64) {
        self.serial += 1;
        let split = Split::new(request, by_parts, cut, self.serial);
        self.extra += self.extra_of(&split);
        let Ok(index) = self.splits.insert(split) else { unreachable!("the callers have looked for a free place") };
        (index, self.serial)
    }

    /// Operations on the medium beyond one that its parts cause.
    fn extra_of(&self, split: &Split) -> usize {
        if self.answers_at_once || split.is_to_be_written() { 0 } else { split.count() - 1 }
    }

    /// Sends the parts of a request on their way, and helpers to them where `calls` says so. The request may have ended
    /// meanwhile; once a part has failed, no more of them are sent.
    fn send_parts(&mut self, ring: &mut Ring, lower: &mut GatedQueue, (index, count): (usize, usize), calls: bool) {
        self.slots.announce_more(calls && count > 1);
        for _ in 0..count {
            let Some(split) = self.splits.get_mut(index) else { break };
            let Some((part, data)) = split.next_part() else { break };
            let is_read = split.op() == Op::Read;
            if is_read {
                let offset = split.offset_of(part) + self.start;
                let request = Request::read(offset, data, token(index, part));
                if let Submitted::Done(piece) = self.pieces.submit(ring, request) {
                    self.piece_back(ring, lower, piece);
                }
            } else {
                self.hand_out(ring, lower, self.job(index, part, data));
            }
            if part == 0 && calls {
                self.policy.call(&self.slots, count);
            }
            // No further ahead than the others can follow: what was read is still in the cache.
            if is_read
                && self.slots.waiting() > self.policy.lead()
                && let Some(job) = self.slots.take()
            {
                self.run_here(ring, lower, job);
            }
        }
        self.slots.announce_more(false);
    }

    /// Works on what there is until `is_enough`, or until what is missing is with helpers that take
    /// much longer for a part of `part_len` bytes than it should take.
    fn work_until(
        &mut self,
        ring: &mut Ring,
        lower: &mut GatedQueue,
        part_len: usize,
        is_enough: impl Fn(&Self) -> bool,
    ) {
        let mut until = None;
        while !is_enough(self) && self.lent > 0 {
            self.collect(ring, lower);
            if let Some(job) = self.slots.take() {
                self.run_here(ring, lower, job);
                until = None;
                continue;
            }
            let now = Instant::now();
            if now > *until.get_or_insert_with(|| now + self.policy.patience(part_len)) {
                return;
            }
            (0..16).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Takes in the jobs that other threads have given back.
    fn collect(&mut self, ring: &mut Ring, lower: &mut GatedQueue) {
        while let Some(job) = self.slots.collect() {
            self.note_return(&job);
            self.watch.note_elsewhere(job.took_ns);
            self.settle(ring, lower, job);
        }
    }

    fn run_here(&mut self, ring: &mut Ring, lower: &mut GatedQueue, mut job: CipherJob) {
        self.note_return(&job);
        job.run();
        self.settle(ring, lower, job);
    }

    /// Gives a job to a worker, or offers it to whoever comes first.
    fn hand_out(&mut self, ring: &mut Ring, lower: &mut GatedQueue, job: CipherJob) {
        let by_worker = self.policy.uses_workers(job.direction == JobDirection::Decrypt);
        match self.workers.as_ref().filter(|_| by_worker) {
            Some(workers) => workers.hand_out(job, &self.slots),
            None => {
                if self.slots.has_room() {
                    self.offer(job)
                } else {
                    self.run_here(ring, lower, job)
                }
            }
        }
    }

    fn offer(&mut self, mut job: CipherJob) {
        job.lent = true;
        self.lent += 1;
        self.lent_reads += usize::from(job.direction == JobDirection::Decrypt);
        let full = self.slots.offer(job).is_err();
        debug_assert!(!full, "there are slots for all parts of all requests");
    }

    fn note_return(&mut self, job: &CipherJob) {
        if job.lent {
            self.lent -= 1;
            self.lent_reads -= usize::from(job.direction == JobDirection::Decrypt);
        }
    }

    fn job(&self, index: usize, part: usize, data: Buffer) -> CipherJob {
        let Some(split) = self.splits.get(index) else { unreachable!("a part is away, so its request is here") };
        CipherJob {
            cipher_map: Arc::clone(&self.cipher_map),
            direction: match split.op() {
                Op::Read => JobDirection::Decrypt,
                op => JobDirection::Encrypt { durable: op.is_sync() },
            },
            offset: split.offset_of(part),
            data: Some(data),
            split: index,
            part,
            result: None,
            lent: false,
            measured: self.watch.is_on(),
            took_ns: 0,
        }
    }

    /// A part has come back from the cipher: the end of a read's, and of a write's the middle, unless
    /// the writer has written it.
    fn settle(&mut self, ring: &mut Ring, lower: &mut GatedQueue, job: CipherJob) {
        self.watch.add(job.took_ns);
        let (Some(data), Some(split)) = (job.data, self.splits.get_mut(job.split)) else {
            debug_assert!(false, "a job for nothing");
            return;
        };
        match job.result {
            None if split.is_written_by_parts() => {
                let offset = split.offset_of(job.part) + self.start;
                let request = Request::transfer(split.op(), offset, data, token(job.split, job.part));
                if let Submitted::Done(piece) = self.pieces.submit(ring, request) {
                    self.piece_back(ring, lower, piece);
                }
            }
            result => {
                split.pieces.put(job.part, Some(data), result.unwrap_or(Ok(())));
                self.end_if_whole(ring, lower, job.split);
            }
        }
    }

    /// A part has come back from the medium: the end of a write's, and of a read's the middle.
    fn piece_back(&mut self, ring: &mut Ring, lower: &mut GatedQueue, piece: Completion) {
        let Completion { request, result } = piece;
        let (index, part) = place_of(request.token);
        let Some(data) = request.data else {
            debug_assert!(false, "only transfers are cut");
            return;
        };
        if let (Op::Read, Ok(())) = (request.op, result) {
            let job = self.job(index, part, data);
            return self.hand_out(ring, lower, job);
        }
        if let Some(split) = self.splits.get_mut(index) {
            split.pieces.put(part, Some(data), result);
        }
        self.end_if_whole(ring, lower, index);
    }

    /// Ends a request whose parts are all back; one that was only encrypted in parts is written now.
    fn end_if_whole(&mut self, ring: &mut Ring, lower: &mut GatedQueue, index: usize) {
        if !self.splits.get(index).is_some_and(|split| split.pieces.is_over()) {
            return;
        }
        let Some(split) = self.splits.remove(index) else { unreachable!("it was there a moment ago") };
        self.extra -= self.extra_of(&split);
        let (serial, to_be_written, encrypted) = (split.serial, split.is_to_be_written(), split.pieces.sent());
        let mut completion = split.pieces.end();
        if to_be_written && completion.result.is_ok() {
            let mut request = completion.request;
            request.offset += self.start;
            match lower.submit(ring, request) {
                // It comes back through `lower` like any other write.
                Submitted::Pending => return,
                Submitted::Done(written) => completion = written,
            }
            completion.request.offset -= self.start;
        }
        if let (true, Err(Fault::Busy), Some(data)) =
            (completion.request.op.is_write(), completion.result, &mut completion.request.data)
        {
            // It may come again, with what it came with before. Parts that were not sent have not been encrypted.
            let encrypted = usize::try_from(encrypted).map_or(data.len(), |len| len.min(data.len()));
            self.cipher_map.decrypt(completion.request.offset, &mut data[..encrypted]);
        }
        self.finished.push((serial, completion));
    }

    fn place_of(&self, serial: u64) -> Option<usize> {
        self.finished.iter().position(|(of, _)| *of == serial)
    }
}

/// Pieces are marked with their request's place and their own.
fn token(index: usize, part: usize) -> u64 {
    (index * PARTS_MAX + part) as u64
}

fn place_of(token: u64) -> (usize, usize) {
    let both = usize::try_from(token).unwrap_or(usize::MAX);
    (both / PARTS_MAX, both % PARTS_MAX)
}

/// Bytes of a successful read, else 0.
fn read_len(completion: &Completion) -> usize {
    match (completion.request.op, &completion.request.data, completion.result) {
        (Op::Read, Some(buffer), Ok(())) => buffer.len(),
        _ => 0,
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
