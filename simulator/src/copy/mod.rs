//! Copies in as many runs as they take: each may meet faults, be stopped, or lose its machine's power, and the next goes on
//! from what is left.
//!
//! ```text
//! source: a file, a volume, a stream ─► copy ─► a file │ a volume, new │ a range of a file │ a volume in one
//!                                        │         └► page-cache model ─► power cut ─► the next run
//!                                        └► stopped, refused, silent
//! ```

mod judge;
mod place;
mod run;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::Draw;

pub use place::Place;
pub use run::run;

/// Bytes that are copied at a time.
pub const CHUNK: usize = 1 << 20;
/// Holes are whole numbers of this many bytes.
pub const GRAIN: usize = 64 << 10;
/// Chunks of a source, at most.
pub const CHUNKS_MAX: usize = 4;

/// A copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub from: From,
    pub into: Into,
    pub chunks: usize,
    /// Bytes behind the last whole chunk.
    pub rest: usize,
    /// Holes of the source: first and count, in grains.
    pub holes: Vec<(usize, usize)>,
    pub keeps_holes: bool,
    pub verifies: bool,
    /// A byte that is another one after it was copied, once.
    pub spoils: Option<usize>,
    /// A file of that name is there already.
    pub replaces: bool,
    /// Threads that copy.
    pub workers: usize,
    /// The media are so many times as slow as others.
    pub slowness: u64,
    /// The last one is followed by others in which nothing happens, until one ends well.
    pub runs: Vec<Run>,
}

/// Kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum From {
    File,
    /// The clear disk of a volume in a file.
    Volume,
    /// A socket, of which only the end tells the size.
    Stream,
}

/// Kinds of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Into {
    /// A new file.
    File,
    /// The same, going on where an earlier run has ended.
    FileAgain,
    /// A new volume in a new file.
    Sealed,
    /// The same, going on where an earlier run has ended.
    SealedAgain,
    /// A range of a file that is there.
    Range,
    /// A volume in such a range.
    Volume,
}

/// One run of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    pub faults: Faults,
    pub events: Vec<(Duration, Event)>,
}

/// Faults that happen in a run; each one in so many, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Writes are lost on their way to the medium, or its cache flush fails.
    pub loses: u32,
    /// Syncs are refused.
    pub unsynced: u32,
    /// Transfers come back short.
    pub short: u32,
    /// Operations are interrupted.
    pub interrupts: u32,
    /// Holes can not be punched.
    pub refuses: u32,
    /// Transfers fail.
    pub errors: u32,
}

/// Things that happen to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The power fails.
    PowerCut,
    /// Whoever has asked for the copy wants no more.
    Stop,
    /// The kernel writes dirty pages back; what fails is lost.
    WriteBack { fails: bool },
    /// The kernel drops clean pages.
    Evict,
    /// A medium is silent for so long: the source's, or the destination's.
    Silence { source: bool, lasts: Duration },
}

impl Into {
    pub fn is_again(self) -> bool {
        matches!(self, Self::FileAgain | Self::SealedAgain)
    }

    pub fn is_sealed(self) -> bool {
        matches!(self, Self::Sealed | Self::SealedAgain)
    }

    pub fn is_encrypted(self) -> bool {
        self.is_sealed() || self == Self::Volume
    }

    /// Tells if the copy goes into what is there, and not into a new file.
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::Range | Self::Volume)
    }
}

impl Plan {
    pub fn of(draw: &mut Draw) -> Self {
        let into =
            [Into::File, Into::FileAgain, Into::FileAgain, Into::Sealed, Into::SealedAgain, Into::Range, Into::Volume];
        let into = into[draw.below(into.len() as u64) as usize];
        let from = match draw.below(8) {
            0..=3 => From::File,
            4 if !into.is_again() && into != Into::Sealed => From::Stream,
            _ => From::Volume,
        };
        // A journal has something to tell once a few chunks are written, or after two seconds.
        let least = if into.is_again() { 3 } else { 1 };
        let chunks = least + draw.below((CHUNKS_MAX + 1 - least) as u64) as usize;
        let rest = match draw.below(3) {
            0 => 0,
            1 => 512 * (1 + draw.below(200)) as usize,
            _ => 1 + draw.below(100_000) as usize,
        };
        // A volume has whole sectors.
        let rest = if from == From::Volume { rest.next_multiple_of(512) } else { rest };
        let grains = chunks * CHUNK / GRAIN;
        let mut hole = |_| {
            let first = draw.below(grains as u64) as usize;
            let most = if draw.one_in(2) { 4 } else { 40 };
            (first, (1 + draw.below(most) as usize).min(grains - first))
        };
        let holes = (0..4).map(&mut hole).take_while(|(first, _)| first % 5 != 0).collect();
        let slowness = [1, 20, 100, 300][draw.below(if into.is_again() { 4 } else { 3 }) as usize];
        let verifies = draw.one_in(2);
        let mut plan = Self {
            from,
            into,
            chunks,
            rest,
            holes,
            // In a new volume, or in one of which all may be made holes.
            keeps_holes: into.is_encrypted() && draw.one_in(3),
            verifies,
            spoils: (verifies && draw.one_in(6)).then(|| draw.below((chunks * CHUNK) as u64) as usize),
            replaces: !into.is_in_place() && draw.one_in(4),
            workers: 1 + draw.below(4) as usize,
            slowness,
            runs: (0..1 + draw.below(3)).map(|_| Run::of(draw, slowness)).collect(),
        };
        if into.is_again() && plan.runs.iter().any(Run::can_end_early) {
            // What goes on from a byte that was changed is refused for good, as it should be.
            plan.spoils = None;
        }
        plan
    }

    /// Bytes of the source.
    pub fn size(&self) -> usize {
        self.chunks * CHUNK + self.rest
    }

    /// Bytes of the destination that belong to the copy.
    pub fn needs(&self) -> usize {
        self.size().next_multiple_of(512)
    }

    /// Plans with one thing less.
    pub fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            all.push(plan);
        };
        for number in 0..self.runs.len() {
            with(&|plan| _ = plan.runs.remove(number));
        }
        for number in 0..self.runs.len() {
            for calmer in CALMER {
                if self.runs[number].faults.without(calmer) != self.runs[number].faults {
                    with(&|plan| plan.runs[number].faults = plan.runs[number].faults.without(calmer));
                }
            }
            for event in 0..self.runs[number].events.len() {
                with(&|plan| _ = plan.runs[number].events.remove(event));
            }
        }
        for number in 0..self.holes.len() {
            with(&|plan| _ = plan.holes.remove(number));
        }
        if self.spoils.is_none() && self.verifies {
            with(&|plan| plan.verifies = false);
        }
        let smaller: [(bool, Change); 6] = [
            (self.keeps_holes, |plan| plan.keeps_holes = false),
            (self.replaces, |plan| plan.replaces = false),
            (self.rest > 0, |plan| plan.rest = 0),
            (self.workers > 1, |plan| plan.workers -= 1),
            (self.slowness > 1, |plan| plan.slowness = 1),
            (self.chunks > 1 && self.holes.is_empty() && self.spoils.is_none(), |plan| plan.chunks -= 1),
        ];
        smaller.into_iter().filter(|(is, _)| *is).for_each(|(_, change)| with(&change));
        all
    }

    /// Lines for people.
    pub fn tell(&self) -> Vec<String> {
        let Self { from, into, chunks, rest, holes, keeps_holes, verifies, spoils, replaces, workers, slowness, runs } =
            self;
        let mut lines = vec![
            format!("copy {from:?} of {chunks} chunks and {rest} bytes into {into:?}, holes {holes:?}"),
            format!(
                "  keeps_holes={keeps_holes} verifies={verifies} spoils={spoils:?} replaces={replaces} workers={workers} slowness={slowness}"
            ),
        ];
        for Run { faults, events } in runs {
            lines.push(format!("  run with {faults:?}"));
            lines.extend(events.iter().map(|(at, event)| format!("    after {at:?}: {event:?}")));
        }
        lines
    }
}

/// Makes a plan smaller.
type Change = fn(&mut Plan);

/// One kind of fault less each.
const CALMER: [fn(&mut Faults); 6] = [
    |faults| faults.loses = 0,
    |faults| faults.unsynced = 0,
    |faults| faults.short = 0,
    |faults| faults.interrupts = 0,
    |faults| faults.refuses = 0,
    |faults| faults.errors = 0,
];

impl Faults {
    fn of(draw: &mut Draw) -> Self {
        let mut faults = Self::default();
        for _ in 0..draw.below(3) {
            match draw.below(6) {
                0 => faults.loses = 2 + draw.below(6) as u32,
                1 => faults.unsynced = 2 + draw.below(6) as u32,
                2 => faults.short = 2 + draw.below(8) as u32,
                3 => faults.interrupts = 2 + draw.below(20) as u32,
                4 => faults.refuses = 1 + draw.below(4) as u32,
                _ => faults.errors = 6 + draw.below(30) as u32,
            }
        }
        faults
    }

    fn without(mut self, calmer: fn(&mut Self)) -> Self {
        calmer(&mut self);
        self
    }

    /// Tells if a run with them may fail.
    pub fn can_fail(self) -> bool {
        let Self { loses, unsynced, interrupts, errors, short: _, refuses: _ } = self;
        loses > 0 || unsynced > 0 || interrupts > 0 || errors > 0
    }
}

impl Run {
    /// Tells if it may end before what it has copied was compared.
    fn can_end_early(&self) -> bool {
        let ends = |event: &Event| matches!(event, Event::PowerCut | Event::Stop);
        self.faults.can_fail() || self.events.iter().any(|(_, event)| ends(event))
    }

    fn of(draw: &mut Draw, slowness: u64) -> Self {
        let faults = Faults::of(draw);
        let mut at = Duration::ZERO;
        let mut event = |_| {
            at += Duration::from_micros(draw.below(20_000) * slowness);
            let event = match draw.below(8) {
                0..=2 => Event::PowerCut,
                3 => Event::Stop,
                4 | 5 => Event::WriteBack { fails: faults.loses > 0 && draw.one_in(2) },
                6 => Event::Evict,
                _ => Event::Silence { source: draw.one_in(2), lasts: Duration::from_millis(draw.below(6_000)) },
            };
            (at, event)
        };
        let events = (0..4).map(&mut event).collect::<Vec<_>>();
        let count = draw.below(5) as usize;
        Self { faults, events: events.into_iter().take(count).collect() }
    }
}
