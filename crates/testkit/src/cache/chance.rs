//! Choices that the model leaves to chance, drawn from a new seed at each step of a history, so that a step does the
//! same whichever steps were removed before it.

/// How wild a kernel is: each field is "one in so many", 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Temper {
    /// Transfers that come back short.
    pub short: u32,
    /// Operations that are interrupted (EINTR, EAGAIN) before they did anything.
    pub interrupted: u32,
    /// Syncs whose writeback fails.
    pub writeback: u32,
    /// Syncs whose cache flush of the medium fails.
    pub flush: u32,
    /// Direct writes and `fallocate` that fail.
    pub direct: u32,
    /// `fallocate` that the file system does not support, whatever it has done before.
    pub refused: u32,
    /// Syncs that are refused: nothing is written back, and nobody is told of a loss.
    pub unsynced: u32,
}

/// A seed's decisions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chance {
    state: u64,
    /// Nothing is left to chance: all goes well, at once and in order.
    calm: bool,
    pub(super) temper: Temper,
}

impl Chance {
    /// Draws from `seed` from here on; nothing where that is `None`.
    pub fn restart(&mut self, seed: Option<u64>) {
        self.calm = seed.is_none();
        self.state = seed.unwrap_or(0);
    }

    /// splitmix64.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Tells if what happens one time in `count` happens now.
    pub fn one_in(&mut self, count: u32) -> bool {
        !self.calm && count > 0 && self.draw().is_multiple_of(u64::from(count))
    }

    /// A number below `end`; 0 when calm.
    pub fn below(&mut self, end: usize) -> usize {
        if self.calm || end == 0 { 0 } else { usize::try_from(self.draw() % end as u64).unwrap_or(0) }
    }

    /// Tells if all goes well.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm
    }
}
