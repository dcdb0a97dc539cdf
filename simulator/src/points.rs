//! Points that histories must reach now and then, or they would prove little: counted in a process, and summed up over all
//! of them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! points {
    ($($name:ident: $what:literal,)*) => {
        /// A point.
        #[derive(Clone, Copy)]
        pub enum Point {
            $($name,)*
        }

        /// Event that has happened there.
        const NAMES: &[&str] = &[$($what,)*];
    };
}

points! {
    IdleClosed: "the server below closed a connection that was idle",
    SentAgain: "a request went out again",
    LateEffect: "a write took effect after its connection had ended",
    OutlivedRing: "an operation was left to a ring that was dropped",
    LatchSaidNo: "a flush said no after a loss",
    SyncRefused: "a sync was refused",
    PunchRefused: "a punch or a zeroing was refused",
    TransferShort: "a transfer was short",
    WriteBackLost: "the kernel lost what it wrote back",
    SpokeAgain: "a silent medium spoke again to a ring that waited",
    AddedAgain: "an export was added again",
    FlushedByLine: "a control client was told that an export is flushed",
    FailureByLine: "a control client was told that the flush of an export has failed",
    PassedBy: "more control clients than there are places came one after the other",
    AnsweredBeside: "a control client was answered while another waited for a disk that is not well",
    LeftInFlush: "a control client left in the middle of a flush",
    FlushGivenUp: "a flush that a control client had asked for was given up",
    SeenGone: "a list had an export no more that was removed",
    SeatTaken: "a control client got the place of a silent one",
    SentAway: "a control client was sent away, since there were too many",
    DeafSentAway: "a control client that never reads was sent away",
    CutUnderWay: "a power cut came while a write was under way",
    ToldZeros: "a place was told to be zeros",
    CutInSync: "a power cut came in the middle of a sync of a mapping",
    HaltedBusy: "a queue was stopped with requests under way",
    CameBackBusy: "in-flight memory brought back requests",
    CacheOffBusy: "the write cache was turned off with requests under way",
    Lapped: "a ring went around",
    InterruptedBusy: "a driver that never stopped asking was interrupted",
}

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Something has happened that must happen sometimes.
pub fn sometimes(point: Point) {
    COUNTS[point as usize].fetch_add(1, Ordering::Relaxed);
}

/// Counts of this process, for [`Reached::take`].
pub fn tell() -> String {
    COUNTS.iter().map(|count| count.load(Ordering::Relaxed).to_string()).collect::<Vec<_>>().join(" ")
}

/// Counts of all processes.
#[derive(Default)]
pub struct Reached([u64; NAMES.len()]);

impl Reached {
    /// Adds those that a process has told.
    pub fn take(&mut self, told: &str) {
        let counts = told.split(' ').filter_map(|count| count.parse::<u64>().ok());
        self.0.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    /// A line for each point. Whether all were reached.
    pub fn print(&self) -> bool {
        for (name, count) in NAMES.iter().zip(self.0) {
            println!("{count:>10}  {name}{}", if count == 0 { ": NEVER" } else { "" });
        }
        self.0.iter().all(|count| *count > 0)
    }
}
