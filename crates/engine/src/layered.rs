//! The shell of a layer's queue: what is the same for all of them.
//!
//! ```text
//! submit ─► down ─┬─ Through, with a note ─────────► device below ─┬─ at once, or in poll ─► up ─► done
//!                 ├─ Take ─► take ─► steps, with notes ─► below ───┘                          └─► back ─► steps, done
//!                 └─ End
//! ```
//!
//! A layer says what it does with a request; the shell has the queues below, the table of what is there, the steps to be
//! sent and what has ended. Its tables grow to what was ever in them at a time; from then on, nothing here allocates.
//!
//! * A request is in one place: below, with the layer, among the steps, or among what has ended.
//! * The lowest bit of a token tells if there is an entry for the request below. One of which nothing has to be known has
//!   none, and keeps its own token, one bit further up.
//! * A request that goes through and finds no place below ends with [`Fault::Busy`]. A step that finds none is tried
//!   again, in order with others of which that is true; steps that are new by then may pass them. Where nothing of this
//!   queue is below, others have all places, and the ring does not wait.
//! * Steps are sent in the order in which the layer gives them. There are none when a call begins.

use std::collections::VecDeque;
use std::time::Instant;

use cryptline_sys::Ring;

use crate::gate::GatedQueue;
use crate::in_flight::InFlight;
use crate::{Completion, Fault, Queue, Request, Submitted};

/// Knowledge of a request below, for when it comes back.
pub(crate) trait LayerNote: Send + Sized {
    /// The note of a request of which nothing has to be known.
    fn plain() -> Self {
        unreachable!("this layer has to know something of each request")
    }

    /// Tells if it is that one. Whether it was a step is forgotten with it, so it is none that
    /// [comes again](Layer::comes_again).
    fn is_plain(&self) -> bool {
        false
    }
}

impl<N: Send> LayerNote for Option<N> {
    fn plain() -> Self {
        None
    }

    fn is_plain(&self) -> bool {
        self.is_none()
    }
}

/// Behavior of a layer, of one queue.
pub(crate) trait Layer: Send {
    type Note: LayerNote;

    /// Decides on a request, and changes it where it goes through.
    fn down(&mut self, request: &mut Request) -> Descent<Self::Note>;

    /// Undoes on the way up what [`down`](Self::down) did. Gives the note back where the request does not end yet: then
    /// [`back`](Self::back) gets both.
    fn up(
        &mut self,
        completion: &mut Completion,
        note: Self::Note,
        out: &mut LayerOut<Self::Note>,
    ) -> Option<Self::Note>;

    /// Takes back what does not end yet.
    fn back(&mut self, _note: Self::Note, _completion: Completion, _out: &mut LayerOut<Self::Note>) {
        unreachable!("all that comes up to this layer ends there")
    }

    /// Takes a request that is done in steps, or later.
    fn take(&mut self, _request: Request, _out: &mut LayerOut<Self::Note>) {
        unreachable!("this layer keeps nothing")
    }

    /// Goes on with what waits, in each `poll`, and when all steps are sent. Called again as long as it sends some.
    fn turn(&mut self, _out: &mut LayerOut<Self::Note>) {}

    /// Tells if something waits for the end of a request that went through.
    fn awaits_ends(&self) -> bool {
        false
    }

    /// Tells if a step that found no place below is tried again. One that is not ends as any other.
    fn comes_again(&self, _note: &Self::Note) -> bool {
        true
    }

    /// Begins a `poll`.
    fn begin_poll(&mut self) {}

    /// Device and shift for a request that a device below may carry out where it lies. But for the offset it is as it is
    /// to go there.
    fn at_once(&mut self, _request: &mut Request) -> Option<(usize, u64)> {
        None
    }

    /// The device below has carried it out, or not.
    fn asked_at_once(&mut self, _request: &mut Request, _result: Option<Result<(), Fault>>) {}

    /// The queue is gone while this was below.
    fn lost(&mut self, _note: &Self::Note) {}
}

/// Way of a request, from where it was submitted.
pub(crate) enum Descent<N> {
    /// To a device below, as it is now.
    Through { device: usize, note: N },
    /// Into the layer.
    Take,
    /// Back.
    End(Result<(), Fault>),
}

/// Work and results that a layer gives its shell.
pub(crate) struct LayerOut<N> {
    /// Request to a device below, with its note, which goes before all others.
    next: Option<Step<N>>,
    /// Those behind it.
    send: VecDeque<Step<N>>,
    /// Ends of what was submitted.
    pub done: Vec<Completion>,
    /// Steps that may still be sent before the table is full.
    pub room: usize,
    /// The call is a `poll`.
    pub polls: bool,
    /// The next wait is to end at once.
    pub awake: bool,
    /// The next wait is to end then.
    pub wake_by: Option<Instant>,
}

/// A request of a layer for a device below.
///
/// One that is answered at once has its end where it lies: moving it right after its data was touched takes long.
struct Step<N> {
    device: usize,
    /// The request, and its result once there is one.
    completion: Completion,
    note: N,
}

impl<N> LayerOut<N> {
    /// With room for `most` steps and ends.
    pub fn new(most: usize) -> Self {
        let (send, done) = (VecDeque::new(), Vec::new());
        Self { next: None, send, done, room: most, polls: false, awake: false, wake_by: None }
    }

    /// Sends a step to a device below; its own token is the note's business.
    pub fn send(&mut self, device: usize, request: Request, note: N) {
        self.room = self.room.saturating_sub(1);
        let step = Step { device, completion: request.complete(Ok(())), note };
        // Most steps are alone, and are moved less there.
        if self.next.is_none() && self.send.is_empty() {
            self.next = Some(step);
        } else {
            self.send.push_back(step);
        }
    }

    fn next(&mut self) -> Option<Step<N>> {
        if self.next.is_some() { self.next.take() } else { self.send.pop_front() }
    }

    /// Tells if no step is to be sent.
    pub fn has_sent_all(&self) -> bool {
        self.next.is_none() && self.send.is_empty()
    }
}

/// Tokens below this one are whole when they have been moved up by one bit.
const PLAIN_TOKENS: u64 = 1 << 63;

/// Entry of a request below.
struct Below<N> {
    note: N,
    is_step: bool,
}

/// One thread's way into a layer.
pub(crate) struct Layered<L: Layer> {
    layer: L,
    lower: Vec<GatedQueue>,
    below: InFlight<Below<L::Note>>,
    out: LayerOut<L::Note>,
    /// Steps that found no place below.
    again: VecDeque<Step<L::Note>>,
}

impl<L: Layer> Layered<L> {
    /// A queue of `layer`, with queues into the devices below it. At most `most` requests and steps have an entry at a time;
    /// those without are as many as the devices below take.
    pub fn new(layer: L, lower: Vec<GatedQueue>, most: usize) -> Self {
        let out = LayerOut::new(most);
        Self { layer, lower, below: InFlight::new(most), out, again: VecDeque::new() }
    }

    /// Passes down a request that was not answered at once; what it came back with, where it has ended already. There is
    /// a place for it.
    #[inline]
    fn pass(
        &mut self,
        ring: &mut Ring,
        device: usize,
        mut request: Request,
        below: Below<L::Note>,
    ) -> Option<(Completion, Below<L::Note>)> {
        if below.note.is_plain() && request.token < PLAIN_TOKENS {
            debug_assert!(!below.is_step || !self.layer.comes_again(&below.note), "its step would be forgotten");
            request.token <<= 1;
        } else {
            let Ok(()) = self.below.enter(&mut request, below) else { unreachable!("there is a place") };
            request.token = request.token << 1 | 1;
        }
        match self.lower[device].pass(ring, request) {
            Submitted::Pending => None,
            Submitted::Done(mut completion) => {
                let below = self.leave(&mut completion.request);
                Some((completion, below))
            }
        }
    }

    /// Tells what was known of a request that has come back, which gets its own token again.
    fn leave(&mut self, request: &mut Request) -> Below<L::Note> {
        let has_entry = request.token & 1 != 0;
        request.token >>= 1;
        if has_entry { self.below.leave(request) } else { Below { note: LayerNote::plain(), is_step: false } }
    }

    /// Sends all steps, and what follows from those that end at once. Tells if there were any.
    #[inline]
    fn drain(&mut self, ring: &mut Ring) -> bool {
        let mut any = false;
        loop {
            if !self.out.has_sent_all() {
                any = true;
                self.send_all(ring);
            }
            self.out.room = self.below.room();
            self.layer.turn(&mut self.out);
            if self.out.has_sent_all() {
                return any;
            }
        }
    }

    #[inline(never)]
    fn send_all(&mut self, ring: &mut Ring) {
        while let Some(step) = self.out.next() {
            self.send(ring, step);
        }
    }

    fn send(&mut self, ring: &mut Ring, mut step: Step<L::Note>) {
        if self.below.is_full() {
            self.again.push_back(step);
            return;
        }
        let at_once = self.lower[step.device].answer_at_once(&mut step.completion.request);
        if let Some(result) = at_once {
            step.completion.result = result;
        } else {
            let Step { device, completion, note } = step;
            let below = Below { note, is_step: true };
            let Some((completion, Below { note, .. })) = self.pass(ring, device, completion.request, below) else {
                return;
            };
            step = Step { device, completion, note };
        }
        if step.completion.result == Err(Fault::Busy) && self.layer.comes_again(&step.note) {
            self.again.push_back(step);
            return;
        }
        match self.layer.up(&mut step.completion, step.note, &mut self.out) {
            None => self.out.done.push(step.completion),
            Some(note) => self.layer.back(note, step.completion, &mut self.out),
        }
    }

    /// Takes in what the device below has put into `done` from `at` on; what ends stays where it is.
    fn settle(&mut self, device: usize, mut at: usize, done: &mut Vec<Completion>) {
        while let Some(completion) = done.get_mut(at) {
            let Below { note, is_step } = self.leave(&mut completion.request);
            if is_step && completion.result == Err(Fault::Busy) && self.layer.comes_again(&note) {
                let completion = done.swap_remove(at);
                self.again.push_back(Step { device, completion, note });
                continue;
            }
            match self.layer.up(completion, note, &mut self.out) {
                None => at += 1,
                Some(note) => self.layer.back(note, done.swap_remove(at), &mut self.out),
            }
        }
    }

    /// Tells the ring when the next call is due.
    fn tell(&mut self, ring: &mut Ring) {
        if let Some(moment) = self.out.wake_by.take() {
            ring.wake_by(moment);
        }
        let finds_no_place = !self.again.is_empty() && self.lower.iter().all(|lower| lower.in_flight() == 0);
        if std::mem::take(&mut self.out.awake) || !self.out.done.is_empty() || finds_no_place {
            ring.stay_awake();
        }
    }
}

impl<L: Layer> Queue for Layered<L> {
    fn answer_at_once(&mut self, request: &mut Request) -> Option<Result<(), Fault>> {
        let (device, shift) = self.layer.at_once(request)?;
        request.offset = request.offset.wrapping_add(shift);
        let result = self.lower[device].answer_at_once(request);
        request.offset = request.offset.wrapping_sub(shift);
        self.layer.asked_at_once(request, result);
        result
    }

    fn submit(&mut self, ring: &mut Ring, mut request: Request) -> Submitted {
        debug_assert!(self.out.has_sent_all(), "all steps are sent when a call ends");
        if self.below.is_full() {
            // As `file` answers more requests than the ring has places for.
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let (token, before) = (request.token, self.out.done.len());
        match self.layer.down(&mut request) {
            Descent::End(result) => return Submitted::Done(request.complete(result)),
            Descent::Through { device, note } => {
                let below = Below { note, is_step: false };
                let ended = match self.lower[device].answer_at_once(&mut request) {
                    Some(result) => Some((request.complete(result), below)),
                    None => self.pass(ring, device, request, below),
                };
                let Some((mut completion, Below { note, .. })) = ended else {
                    return Submitted::Pending;
                };
                match self.layer.up(&mut completion, note, &mut self.out) {
                    Some(note) => self.layer.back(note, completion, &mut self.out),
                    None => {
                        if self.layer.awaits_ends() {
                            self.drain(ring);
                        }
                        self.tell(ring);
                        return Submitted::Done(completion);
                    }
                }
            }
            Descent::Take => {
                self.out.room = self.below.room();
                self.layer.take(request, &mut self.out);
            }
        }
        self.drain(ring);
        // Its own end, if it is the last of those that came meanwhile.
        let mut new = self.out.done.iter().skip(before);
        let is_own = new.next_back().is_some_and(|last| last.request.token == token);
        let own = if is_own { self.out.done.pop() } else { None };
        self.tell(ring);
        own.map_or(Submitted::Pending, Submitted::Done)
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        self.out.polls = true;
        self.layer.begin_poll();
        loop {
            for device in 0..self.lower.len() {
                let before = done.len();
                self.lower[device].poll(ring, done);
                self.settle(device, before, done);
            }
            for _ in 0..self.again.len() {
                if let Some(step) = self.again.pop_front() {
                    self.send(ring, step);
                }
            }
            // What was sent now may have ended already: a copy into the page cache does.
            if !self.drain(ring) {
                break;
            }
        }
        self.out.polls = false;
        if !self.out.done.is_empty() {
            done.append(&mut self.out.done);
        }
        self.tell(ring);
    }
}

/// Requests below that nobody waits for: their layer is told of each.
impl<L: Layer> Drop for Layered<L> {
    fn drop(&mut self) {
        let steps = self.again.drain(..).chain(self.out.next.take()).chain(self.out.send.drain(..));
        steps.for_each(|step| self.layer.lost(&step.note));
        self.below.notes().for_each(|below| self.layer.lost(&below.note));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cryptline_sys::BackendChoice;

    use super::*;
    use crate::{Device, Gate, Geometry, OpenError, Traits};

    /// A device that has a place for one request, which ends in the next poll.
    struct OnePlace(Arc<AtomicUsize>);

    struct OnePlaceQueue {
        asked: Arc<AtomicUsize>,
        taken: Option<Request>,
    }

    impl Device for OnePlace {
        fn traits(&self) -> Traits {
            Traits::base(Geometry::plain(1 << 20, 512))
        }

        fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
            Ok(Box::new(OnePlaceQueue { asked: Arc::clone(&self.0), taken: None }))
        }
    }

    impl Queue for OnePlaceQueue {
        fn submit(&mut self, _ring: &mut Ring, request: Request) -> Submitted {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.taken.is_some() {
                return Submitted::Done(request.complete(Err(Fault::Busy)));
            }
            self.taken = Some(request);
            Submitted::Pending
        }

        fn poll(&mut self, _ring: &mut Ring, done: &mut Vec<Completion>) {
            done.extend(self.taken.take().map(|request| request.complete(Ok(()))));
        }
    }

    /// A layer that sends each flush twice, and lets all else through.
    struct Twice {
        flushes: Vec<(Request, u8)>,
        worst: Result<(), Fault>,
        gives_up: bool,
        lost: Arc<AtomicUsize>,
    }

    type IsFlush = Option<()>;

    impl Layer for Twice {
        type Note = IsFlush;

        fn down(&mut self, request: &mut Request) -> Descent<IsFlush> {
            if request.op == crate::Op::Flush { Descent::Take } else { Descent::Through { device: 0, note: None } }
        }

        fn up(&mut self, _completion: &mut Completion, note: IsFlush, _: &mut LayerOut<IsFlush>) -> Option<IsFlush> {
            note.is_some().then_some(note)
        }

        fn take(&mut self, request: Request, out: &mut LayerOut<IsFlush>) {
            self.flushes.push((request, 2));
            (0..2).for_each(|_| out.send(0, Request::flush(99), Some(())));
        }

        fn back(&mut self, _note: IsFlush, completion: Completion, out: &mut LayerOut<IsFlush>) {
            assert_eq!(completion.request.token, 99);
            self.worst = self.worst.and(completion.result);
            self.flushes[0].1 -= 1;
            if self.flushes[0].1 == 0 {
                out.done.push(self.flushes.remove(0).0.complete(self.worst));
            }
        }

        fn comes_again(&self, _note: &IsFlush) -> bool {
            !self.gives_up
        }

        fn lost(&mut self, _note: &IsFlush) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Bench {
        queue: Layered<Twice>,
        ring: Ring,
        asked: Arc<AtomicUsize>,
        lost: Arc<AtomicUsize>,
    }

    fn bench(most: usize) -> Bench {
        let (asked, lost) = (Arc::default(), Arc::default());
        let mut ring = Ring::new(BackendChoice::Syscalls, 8).unwrap();
        let lower = Gate::new(OnePlace(Arc::clone(&asked))).open_queue(&mut ring).unwrap();
        let layer = Twice { flushes: Vec::new(), worst: Ok(()), gives_up: false, lost: Arc::clone(&lost) };
        Bench { queue: Layered::new(layer, vec![lower], most), ring, asked, lost }
    }

    fn write(token: u64) -> Request {
        Request::write(0, cryptline_sys::Buffer::alloc(512).unwrap(), false, token)
    }

    #[test]
    fn step_that_finds_no_place_comes_again_and_what_goes_through_does_not() {
        for most in [1, 4] {
            let Bench { mut queue, mut ring, asked, .. } = bench(most);
            assert!(matches!(queue.submit(&mut ring, Request::flush(7)), Submitted::Pending));
            let busy = queue.submit(&mut ring, write(8));
            assert!(matches!(busy, Submitted::Done(Completion { result: Err(Fault::Busy), .. })));
            let mut done = Vec::new();
            queue.poll(&mut ring, &mut done);
            assert!(done.is_empty(), "the second step is below now");
            queue.poll(&mut ring, &mut done);
            assert_eq!((done.len(), done[0].request.token, done[0].result), (1, 7, Ok(())));
            // With one place in the table, who finds it taken does not ask below.
            assert_eq!(asked.load(Ordering::Relaxed), if most == 1 { 2 } else { 4 });
        }
    }

    #[test]
    fn request_without_an_entry_keeps_its_token_whatever_it_is() {
        for token in [0, 1, PLAIN_TOKENS - 1, PLAIN_TOKENS, u64::MAX] {
            let Bench { mut queue, mut ring, .. } = bench(4);
            assert!(matches!(queue.submit(&mut ring, write(token)), Submitted::Pending));
            assert_eq!(queue.below.is_empty(), token < PLAIN_TOKENS);
            let mut done = Vec::new();
            queue.poll(&mut ring, &mut done);
            assert_eq!((done.len(), done[0].request.token, done[0].result), (1, token, Ok(())));
        }
    }

    #[test]
    fn step_that_does_not_come_again_ends_with_what_it_found() {
        let Bench { mut queue, mut ring, .. } = bench(4);
        queue.layer.gives_up = true;
        assert!(matches!(queue.submit(&mut ring, Request::flush(7)), Submitted::Pending));
        let mut done = Vec::new();
        queue.poll(&mut ring, &mut done);
        assert_eq!((done.len(), done[0].request.token, done[0].result), (1, 7, Err(Fault::Busy)));
    }

    #[test]
    fn queue_that_is_dropped_tells_of_all_that_was_below_or_to_be_sent() {
        let Bench { mut queue, mut ring, lost, .. } = bench(4);
        assert!(matches!(queue.submit(&mut ring, Request::flush(7)), Submitted::Pending));
        drop(queue);
        assert_eq!(lost.load(Ordering::Relaxed), 2);
    }
}
