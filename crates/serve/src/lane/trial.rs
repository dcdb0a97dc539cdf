//! Measurement, again and again, of whether looking out makes a lane's requests faster.
//!
//! ```text
//! wait │ look │ wait │ look │ the faster of the two, for much longer │ wait │ look ...
//! ```
//!
//! Where client and server run on one processor, or many requests are in flight, to look out gains nothing or costs
//! time; which it is nobody knows beforehand. Whoever pauses between requests is not waited for: a pause begins the
//! trial again. A lane from which others take the processor, time and again, stops looking, and on a busy machine none
//! is tried.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Work in one window, and in the time that its result holds; also between two looks at who else wants the processor.
const WINDOW: u64 = 128;
const HELD: u64 = 16 * 1024;
const CHECKED: u64 = 1024;
/// Windows before a result, alternately without looks and with them.
const WINDOWS: usize = 4;
/// Bytes that are as much work as a request.
const BYTES_OF_WORK: u64 = 64 * 1024;
/// Looks must save this part of the time, since they cost processor time.
const GAIN: u32 = 10;
/// A wait as long as this is a pause of the client.
const PAUSE: Duration = Duration::from_millis(1);
/// Others want the processor if they take it so often, and this often in a row on average.
const TAKEN: u64 = 4;
const TAKEN_EVERY: Duration = Duration::from_millis(5);

/// A clock, and how often others took the processor from this thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialMoment {
    pub at: Instant,
    pub taken: u64,
}

#[derive(Debug)]
pub(super) struct Trial {
    /// Windows that are over; all of them while a result holds.
    windows: usize,
    /// The result, while it holds.
    held: bool,
    /// Work since `began`, and while the result holds.
    work: u64,
    held_for: u64,
    began: TrialMoment,
    /// For each work, without looks and with them.
    took: [Duration; 2],
}

impl TrialMoment {
    /// Returns the moment of the calling thread. Makes a system call.
    pub fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_THREAD);
        let taken = usage.map_or(0, |usage| usage.involuntary_context_switches());
        Self { at: Instant::now(), taken: u64::try_from(taken).unwrap_or(0) }
    }
}

impl Trial {
    pub fn new(began: TrialMoment, is_busy: bool) -> Self {
        Self {
            windows: if is_busy { WINDOWS } else { 0 },
            held: false,
            work: 0,
            held_for: 0,
            began,
            took: [Duration::ZERO; 2],
        }
    }

    /// One whose result is that looks pay off.
    #[cfg(test)]
    pub fn that_looks(began: TrialMoment) -> Self {
        let mut trial = Self::new(began, false);
        trial.hold(true);
        trial
    }

    /// Tells if the lane is to look out now.
    pub fn looks(&self) -> bool {
        if self.is_held() { self.held } else { self.windows % 2 == 1 }
    }

    /// A request of so many bytes is over.
    pub fn note(&mut self, bytes: u64) {
        self.work += 1 + bytes / BYTES_OF_WORK;
    }

    /// Tells if it is time to [`go_on`](Self::go_on).
    pub fn is_due(&self) -> bool {
        self.work >= if self.is_held() { CHECKED } else { WINDOW }
    }

    /// Tells if that is the first of several windows, before a result.
    pub fn is_first(&self) -> bool {
        self.windows == 0
    }

    /// The lane has waited for so long.
    pub fn waited(&mut self, time: Duration, now: impl FnOnce() -> TrialMoment) {
        if time >= PAUSE && !self.is_held() {
            self.start_over();
            self.begin(now());
        }
    }

    /// Tells if waits are to be timed.
    pub fn times_waits(&self) -> bool {
        !self.is_held()
    }

    /// Takes in what has come to pass since the last time. Asks whether the machine has been busy where looks would
    /// begin, and where a result's time is over.
    pub fn go_on(&mut self, now: TrialMoment, is_busy: impl FnOnce() -> bool) {
        let took = now.at.saturating_duration_since(self.began.at);
        let taken = now.taken.saturating_sub(self.began.taken);
        let each = took / u32::try_from(self.work.max(1)).unwrap_or(u32::MAX);
        let is_robbed = taken >= TAKEN && TAKEN_EVERY.as_nanos() * u128::from(taken) > took.as_nanos();
        if self.looks() && is_robbed {
            self.hold(false);
        } else if self.is_held() {
            self.held_for += self.work;
            if self.held_for >= HELD {
                if is_busy() {
                    self.hold(false);
                } else {
                    self.start_over();
                }
            }
        } else {
            self.took[self.windows % 2] += each;
            self.windows += 1;
            if self.is_held() {
                let [without, with] = self.took;
                self.hold(with < without - without / GAIN && !is_busy());
            }
        }
        self.begin(now);
    }

    fn start_over(&mut self) {
        (self.windows, self.took) = (0, [Duration::ZERO; 2]);
    }

    fn hold(&mut self, looks: bool) {
        (self.windows, self.held, self.held_for) = (WINDOWS, looks, 0);
    }

    fn begin(&mut self, now: TrialMoment) {
        (self.work, self.began) = (0, now);
    }

    fn is_held(&self) -> bool {
        self.windows >= WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose requests take so long, without looks and with them.
    struct Client {
        trial: Trial,
        now: TrialMoment,
        takes: [Duration; 2],
        /// How often others take the processor in the middle of so many requests, while the lane looks out.
        taken_of: Option<u64>,
        machine_is_busy: bool,
        requests: u64,
    }

    impl Client {
        fn new(takes: [u64; 2]) -> Self {
            let at = Instant::now();
            let now = TrialMoment { at, taken: 0 };
            Self {
                trial: Trial::new(now, false),
                now,
                takes: takes.map(Duration::from_micros),
                taken_of: None,
                machine_is_busy: false,
                requests: 0,
            }
        }

        /// Makes requests; the share of those for which the lane looked out.
        fn ask(&mut self, requests: u64, bytes: u64) -> f64 {
            let mut looked = 0;
            for _ in 0..requests {
                let looks = self.trial.looks();
                looked += u64::from(looks);
                self.now.at += self.takes[usize::from(looks)];
                self.requests += 1;
                let is_taken = |every| looks && self.requests.is_multiple_of(every);
                self.now.taken += u64::from(self.taken_of.is_some_and(is_taken));
                self.trial.note(bytes);
                if self.trial.is_due() {
                    self.trial.go_on(self.now, || self.machine_is_busy);
                }
            }
            looked as f64 / requests as f64
        }
    }

    #[test]
    fn lane_looks_out_while_that_makes_requests_faster() {
        let mut client = Client::new([70, 45]);
        assert!(client.ask(100_000, 4096) > 0.98);
        client.takes = [10, 20].map(Duration::from_micros);
        client.ask(HELD, 4096);
        assert!(client.ask(100_000, 4096) < 0.02);
    }

    #[test]
    fn looks_that_save_too_little_are_not_worth_the_processor_time() {
        assert!(Client::new([70, 66]).ask(100_000, 4096) < 0.02);
        assert!(Client::new([70, 70]).ask(100_000, 1 << 20) < 0.02);
    }

    #[test]
    fn large_requests_are_tried_as_well_before_long() {
        assert!(Client::new([900, 500]).ask(2000, 1 << 20) > 0.9);
    }

    #[test]
    fn lane_that_loses_its_processor_again_and_again_stops_looking() {
        let mut client = Client::new([70, 45]);
        client.ask(1000, 4096);
        client.taken_of = Some(50);
        client.ask(2 * CHECKED, 4096);
        assert!(client.ask(100_000, 4096) < 0.1);
        // As seldom as on an idle machine.
        let mut client = Client::new([70, 45]);
        client.taken_of = Some(500);
        assert!(client.ask(100_000, 4096) > 0.98);
    }

    #[test]
    fn client_that_pauses_is_not_tried() {
        let mut client = Client::new([70, 45]);
        for _ in 0..1000 {
            assert_eq!(client.ask(100, 4096), 0.0);
            client.now.at += PAUSE;
            let now = client.now;
            client.trial.waited(PAUSE, || now);
        }
    }

    #[test]
    fn client_that_begins_to_pause_is_not_tried_either() {
        for quick in [WINDOW, WINDOW + 1, 2 * WINDOW, 3 * WINDOW + 1] {
            let mut client = Client::new([70, 45]);
            client.ask(quick, 4096);
            for _ in 0..1000 {
                client.now.at += PAUSE;
                let now = client.now;
                client.trial.waited(PAUSE, || now);
                assert_eq!(client.ask(1, 4096), 0.0, "{quick}");
            }
        }
    }

    #[test]
    fn lane_stops_looking_when_the_machine_gets_busy_and_begins_when_it_is_no_more() {
        let mut client = Client::new([70, 45]);
        client.ask(1000, 4096);
        client.machine_is_busy = true;
        client.ask(2 * HELD, 4096);
        assert_eq!(client.ask(100_000, 4096), 0.0);
        client.machine_is_busy = false;
        client.ask(HELD, 4096);
        assert!(client.ask(100_000, 4096) > 0.98);

        let mut trial = Trial::new(client.now, true);
        assert!(!trial.looks() && !trial.times_waits());
        trial.note(HELD * BYTES_OF_WORK);
        trial.go_on(client.now, || false);
        assert!(trial.times_waits());
    }
}
