//! Places of the control socket that its clients may have, for who judges whether one may be sent away.

use std::time::Duration;

use crate::sim;

/// Clients at a time that a server has places for, as docs/control.md says.
const PLACES: usize = 16;
/// Time in which whoever goes has left its place.
pub const LEAVES_WITHIN: Duration = Duration::from_millis(5);

/// Clients that may have places.
#[derive(Default)]
pub struct Attendance {
    here: usize,
    /// Gone while a command was under way: their places may be kept as long as that is.
    kept: usize,
    /// Moments at which others have gone.
    gone: Vec<u64>,
    /// There may have been more clients than places, and any that was silent may have been sent away.
    pub is_crowded: bool,
    /// Moments at which those began to wait that wait for a disk which is not well.
    pub waits: Vec<u64>,
}

impl Attendance {
    /// One is about to come.
    pub fn come(&mut self) {
        let limit = u64::try_from(LEAVES_WITHIN.as_nanos()).expect("milliseconds");
        self.gone.retain(|at| sim::now() - at < limit);
        self.is_crowded |= self.here + self.kept + self.gone.len() >= PLACES;
        self.here += 1;
    }

    /// One has gone; with a command under way, perhaps.
    pub fn go(&mut self, is_served: bool) {
        self.here -= 1;
        if is_served {
            self.kept += 1;
        } else {
            self.gone.push(sim::now());
        }
    }
}
