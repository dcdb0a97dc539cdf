//! Looking out for what comes next, for a moment before a lane waits: to be woken costs more than a small request.
//!
//! The lane looks at flags in memory, its ring's and its virtqueue's index, and no kicks are asked for meanwhile. Each
//! look in vain doubles the number of waits until the next, so an idle server sleeps. A look that took twice its time
//! was preempted: others want the processor, and the next one is far off, ever farther while that happens again. Only
//! so many lanes of a process look at a time ([`PollSeats`]), by its processors ([`poll`](super::poll)).

use std::time::Duration;

use super::poll::Poll;
use super::seats::{PollSeat, PollSeats};

/// Looks in vain in a row that still make the next ones rarer: a client on the same processor is kept by each of them.
const IN_VAIN_MAX: u32 = 12;
/// Binary logarithms of the waits without a look after one that was preempted: at first, and at last.
const PAUSES: [u32; 2] = [9, 16];
/// A look that took twice its time and this was preempted: what it finds takes some time as well.
const MARGIN: Duration = Duration::from_micros(50);
/// So many looks after the last one that was preempted, the next begins anew.
const CALM: u32 = 4096;

#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// How long a look is; none where it is zero.
    limit: Duration,
    in_vain: u32,
    /// Waits to come that begin without a look.
    to_skip: u32,
    /// Looks since the last one that was preempted.
    calm: u32,
    /// Binary logarithm of the waits after that.
    pause: u32,
    /// Limit of lanes that look at a time, where there is one.
    seats: Option<PollSeats>,
    /// The lane's own, while its looks find something.
    seat: Option<PollSeat>,
}

impl Lookout {
    pub fn new(poll: Poll) -> Self {
        let (limit, seats) = match poll {
            Poll::Never(_) => (Duration::ZERO, None),
            Poll::Always(limit) => (limit, None),
            Poll::Shared { limit, lanes } => (limit, Some(PollSeats::of_process(lanes))),
        };
        Self { limit, seats, calm: CALM, ..Self::default() }
    }

    /// How long to look before the next wait, if at all.
    pub fn limit(&mut self) -> Option<Duration> {
        if self.limit.is_zero() || self.to_skip > 0 {
            return None;
        }
        Some(self.limit)
    }

    /// Tells if there is a seat for a look that begins now.
    pub fn begins(&mut self) -> bool {
        if let (Some(seats), None) = (self.seats, &self.seat) {
            self.seat = seats.take();
            if self.seat.is_none() {
                // Where all are taken, asking becomes rarer as well.
                self.found_nothing();
                return false;
            }
        }
        true
    }

    /// There is enough to do without looking.
    pub fn needs_no_look(&mut self) {
        self.seat = None;
    }

    /// A look is over, after this time.
    pub fn looked(&mut self, has_found: bool, took: Duration) {
        if took >= 2 * self.limit + MARGIN {
            self.pause = if self.calm < CALM { (self.pause + 1).min(PAUSES[1]) } else { PAUSES[0] };
            self.calm = 0;
            self.found_nothing();
            self.to_skip = 1 << self.pause;
            return;
        }
        self.calm = self.calm.saturating_add(1);
        if has_found {
            self.in_vain = 0;
        } else {
            self.found_nothing();
        }
    }

    fn found_nothing(&mut self) {
        self.seat = None;
        self.in_vain = (self.in_vain + 1).min(IN_VAIN_MAX);
        // This wait, and others.
        self.to_skip = 1 << (self.in_vain - 1);
    }

    /// A wait begins without a look.
    pub fn waits(&mut self) {
        self.to_skip = self.to_skip.saturating_sub(1);
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
            lookout.waits();
            waits += 1;
        }
        waits
    }

    #[test]
    fn looks_in_vain_make_the_next_ones_rarer_up_to_a_bound() {
        let mut lookout = Lookout::new(LOOKS);
        assert_eq!(lookout.limit(), Some(LIMIT));
        for waits in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 2048] {
            lookout.looked(false, LIMIT);
            assert_eq!(waits_before_the_next_look(&mut lookout), waits);
        }
    }

    #[test]
    fn look_that_finds_something_is_followed_by_another() {
        let mut lookout = Lookout::new(LOOKS);
        for _ in 0..5 {
            lookout.looked(false, LIMIT);
            waits_before_the_next_look(&mut lookout);
        }
        lookout.looked(true, LIMIT);
        assert_eq!(lookout.limit(), Some(LIMIT));
        lookout.looked(false, LIMIT);
        assert_eq!(waits_before_the_next_look(&mut lookout), 1);
    }

    #[test]
    fn look_that_was_preempted_is_the_last_for_ever_longer_though_it_has_found_something() {
        for has_found in [false, true] {
            let mut lookout = Lookout::new(LOOKS);
            for pause in [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 65536] {
                lookout.looked(has_found, 2 * LIMIT + MARGIN);
                assert_eq!(waits_before_the_next_look(&mut lookout), pause);
                (0..CALM - 1).for_each(|_| lookout.looked(true, LIMIT));
            }
            lookout.looked(true, LIMIT);
            lookout.looked(has_found, 2 * LIMIT + MARGIN);
            assert_eq!(waits_before_the_next_look(&mut lookout), 512, "long after that");
        }
    }

    fn lane(seats: PollSeats) -> Lookout {
        Lookout { seats: Some(seats), ..Lookout::new(LOOKS) }
    }

    #[test]
    fn no_more_lanes_look_than_there_are_seats() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let seats = PollSeats::counted(&TAKEN, 2);
        let mut lanes = [(); 4].map(|()| lane(seats));
        let looks = |lanes: &mut [Lookout]| {
            for lane in &mut *lanes {
                (lane.in_vain, lane.to_skip) = (0, 0);
            }
            lanes.iter_mut().map(|lane| lane.limit().is_some() && lane.begins()).collect::<Vec<_>>()
        };
        assert_eq!(looks(&mut lanes), [true, true, false, false]);
        // Who finds something keeps the seat, and who sleeps gives it to another.
        lanes[0].looked(true, LIMIT);
        lanes[1].looked(false, LIMIT);
        lanes[1..].reverse();
        assert_eq!(looks(&mut lanes), [true, true, false, false]);
        // The end of a lane gives it back as well.
        drop(lanes);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lane_without_a_seat_asks_for_one_ever_more_rarely() {
        static TAKEN: AtomicUsize = AtomicUsize::new(1);
        let mut lane = lane(PollSeats::counted(&TAKEN, 1));
        let mut asked = 0;
        for _ in 0..1000 {
            if lane.limit().is_some() {
                asked += 1;
                assert!(!lane.begins());
            }
            lane.waits();
        }
        assert!((5..50).contains(&asked), "{asked}");
        TAKEN.store(0, Ordering::Relaxed);
        waits_before_the_next_look(&mut lane);
        assert!(lane.begins());
        assert_eq!(TAKEN.load(Ordering::Relaxed), 1);
        lane.needs_no_look();
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lane_that_is_not_to_look_never_does() {
        let mut lookout = Lookout::default();
        for _ in 0..100 {
            assert_eq!(lookout.limit(), None);
            lookout.waits();
        }
    }
}
