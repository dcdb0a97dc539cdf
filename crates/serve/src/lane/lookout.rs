//! Looking out for what comes next, for a moment before a lane waits: to be woken costs more than a small request.
//!
//! A look in vain costs processor time, so each makes the next ones rarer, until something was found. Unless a
//! lane was told to look, it does only while that pays off ([`Trial`]) and there is a place for it ([`PollSeats`]).
//!
//! The lane looks at flags in memory, its ring's and its virtqueue's index, and no kicks are asked for meanwhile. A
//! look takes as long as a wake-up costs, measured at the start between two processors. Each look in vain doubles the
//! number of waits until the next, so an idle server sleeps. With one processor, on battery or on a busy machine none
//! begins ([`poll`](super::poll)).

use std::time::{Duration, Instant};

use super::busy::Busy;
use super::poll::Poll;
use super::seats::{PollSeat, PollSeats};
use super::trial::{Trial, TrialMoment};

/// Looks in vain in a row that still make the next ones rarer.
const IN_VAIN_MAX: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// How long a look is; none where it is zero.
    limit: Duration,
    in_vain: u32,
    /// Waits to come that begin without a look.
    to_skip: u32,
    /// Where that is to be found out.
    measured: Option<Measured>,
}

/// Measurement of whether looks pay off.
#[derive(Debug)]
struct Measured {
    trial: Trial,
    seats: PollSeats,
    /// The lane's place, while its looks find something.
    seat: Option<PollSeat>,
    busy: Busy,
}

impl Measured {
    /// So many lanes may look at a time.
    fn new(lanes: usize) -> Self {
        // One is left to others.
        let busy = Busy::new(lanes + 1);
        Self {
            trial: Trial::new(TrialMoment::now(), busy.at_first()),
            seats: PollSeats::of_process(lanes),
            seat: None,
            busy,
        }
    }

    /// Tells if the lane is to look now, if there is a place.
    fn looks(&mut self) -> bool {
        if self.trial.is_due() {
            let busy = &mut self.busy;
            if self.trial.is_first() {
                busy.watch();
            }
            self.trial.go_on(TrialMoment::now(), || busy.has_been());
        }
        if !self.trial.looks() {
            self.seat = None;
        }
        self.trial.looks()
    }

    fn has_place(&mut self) -> bool {
        if self.seat.is_none() {
            self.seat = self.seats.take();
        }
        self.seat.is_some()
    }
}

impl Lookout {
    /// For the calling thread.
    pub fn new(poll: Poll) -> Self {
        let (limit, measured) = match poll {
            Poll::Never(_) => (Duration::ZERO, None),
            Poll::Always(limit) => (limit, None),
            Poll::Measured { limit, lanes, .. } => (limit, Some(Measured::new(lanes))),
        };
        Self { limit, measured, ..Self::default() }
    }

    /// How long to look before the next wait, if at all.
    pub fn limit(&mut self) -> Option<Duration> {
        let looks = self.measured.as_mut().is_none_or(Measured::looks);
        if !looks || self.limit.is_zero() || self.to_skip > 0 {
            return None;
        }
        if !self.measured.as_mut().is_none_or(Measured::has_place) {
            // Where all are taken, asking becomes rarer as well.
            self.found_nothing();
            return None;
        }
        Some(self.limit)
    }

    /// A request of so many bytes is over.
    pub fn served(&mut self, bytes: u64) {
        if let Some(Measured { trial, .. }) = &mut self.measured {
            trial.note(bytes);
        }
    }

    /// Something was found.
    pub fn found(&mut self) {
        self.in_vain = 0;
    }

    /// The look was in vain.
    pub fn found_nothing(&mut self) {
        if let Some(measured) = &mut self.measured {
            measured.seat = None;
        }
        self.in_vain = (self.in_vain + 1).min(IN_VAIN_MAX);
        // This wait, and others.
        self.to_skip = 1 << (self.in_vain - 1);
    }

    /// A wait begins without a look. Where [`woke_up`](Self::woke_up) wants to know, when that was.
    pub fn waits(&mut self) -> Option<Instant> {
        self.to_skip = self.to_skip.saturating_sub(1);
        let measured = self.measured.as_ref();
        let is_timed = measured.is_some_and(|measured| measured.trial.times_waits());
        is_timed.then(Instant::now)
    }

    /// A wait is over.
    pub fn woke_up(&mut self, since: Option<Instant>) {
        if let (Some(Measured { trial, .. }), Some(since)) = (&mut self.measured, since) {
            trial.waited(since.elapsed(), TrialMoment::now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);
    const LOOKS: Poll = Poll::Always(LIMIT);

    fn waits_before_the_next_look(lookout: &mut Lookout) -> u32 {
        let mut waits = 0;
        while lookout.limit().is_none() {
            let _ = lookout.waits();
            waits += 1;
        }
        waits
    }

    #[test]
    fn looks_in_vain_make_the_next_ones_rarer_up_to_a_bound() {
        let mut lookout = Lookout::new(LOOKS);
        assert_eq!(lookout.limit(), Some(LIMIT));
        let rarer = [1, 2, 4, 8, 16, 32, 32, 32].map(|_| {
            lookout.found_nothing();
            waits_before_the_next_look(&mut lookout)
        });
        assert_eq!(rarer, [1, 2, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn look_that_finds_something_is_followed_by_another() {
        let mut lookout = Lookout::new(LOOKS);
        for _ in 0..5 {
            lookout.found_nothing();
            waits_before_the_next_look(&mut lookout);
        }
        lookout.found();
        assert_eq!(lookout.limit(), Some(LIMIT));
        lookout.found_nothing();
        assert_eq!(waits_before_the_next_look(&mut lookout), 1);
    }

    /// A lane that has found out that looks pay off.
    fn convinced(seats: PollSeats) -> Lookout {
        let mut measured = Measured::new(1);
        (measured.trial, measured.seats) = (Trial::that_looks(TrialMoment::now()), seats);
        Lookout { limit: LIMIT, measured: Some(measured), ..Lookout::default() }
    }

    #[test]
    fn no_more_lanes_look_than_there_are_places() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let seats = PollSeats::counted(&TAKEN, 2);
        let mut lanes = [(); 4].map(|()| convinced(seats));
        let looks = |lanes: &mut [Lookout]| {
            for lane in &mut *lanes {
                (lane.in_vain, lane.to_skip) = (0, 0);
            }
            lanes.iter_mut().map(|lane| lane.limit().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(looks(&mut lanes), [true, true, false, false]);
        // Who finds something keeps the place, and who sleeps gives it to another.
        lanes[0].found();
        lanes[1].found_nothing();
        lanes[1..].reverse();
        assert_eq!(looks(&mut lanes), [true, true, false, false]);
        // The end of a lane gives it back as well.
        drop(lanes);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lane_without_a_place_asks_for_one_ever_more_rarely() {
        static TAKEN: AtomicUsize = AtomicUsize::new(1);
        let mut lane = convinced(PollSeats::counted(&TAKEN, 1));
        let mut asked = 0;
        for _ in 0..1000 {
            asked += usize::from(lane.to_skip == 0);
            assert_eq!(lane.limit(), None);
            let _ = lane.waits();
        }
        assert!((5..50).contains(&asked), "{asked}");
        TAKEN.store(0, Ordering::Relaxed);
        waits_before_the_next_look(&mut lane);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn lane_that_is_not_to_look_never_does() {
        let mut lookout = Lookout::default();
        for _ in 0..100 {
            assert_eq!(lookout.limit(), None);
            assert_eq!(lookout.waits(), None);
            lookout.served(4096);
        }
    }
}
