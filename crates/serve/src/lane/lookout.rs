//! Looking out for what comes next, for a moment before a lane waits: to be woken costs more than a small request.
//!
//! A look in vain costs processor time, so each makes the next ones rarer, until something was found.

use std::time::Duration;

/// Looks in vain in a row that still make the next ones rarer.
const IN_VAIN_MAX: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// How long a look is; none where it is zero.
    limit: Duration,
    in_vain: u32,
    /// Waits to come that begin without a look.
    to_skip: u32,
}

impl Lookout {
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// How long to look before the next wait, if at all.
    pub fn limit(&self) -> Option<Duration> {
        (!self.limit.is_zero() && self.to_skip == 0).then_some(self.limit)
    }

    /// Something was found.
    pub fn found(&mut self) {
        self.in_vain = 0;
    }

    /// The look was in vain.
    pub fn found_nothing(&mut self) {
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
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

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
        let mut lookout = Lookout::new(LIMIT);
        assert_eq!(lookout.limit(), Some(LIMIT));
        let rarer = [1, 2, 4, 8, 16, 32, 32, 32].map(|_| {
            lookout.found_nothing();
            waits_before_the_next_look(&mut lookout)
        });
        assert_eq!(rarer, [1, 2, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn look_that_finds_something_is_followed_by_another() {
        let mut lookout = Lookout::new(LIMIT);
        for _ in 0..5 {
            lookout.found_nothing();
            waits_before_the_next_look(&mut lookout);
        }
        lookout.found();
        assert_eq!(lookout.limit(), Some(LIMIT));
        lookout.found_nothing();
        assert_eq!(waits_before_the_next_look(&mut lookout), 1);
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
