//! Choice of who runs the cipher, from what the caller, the table and the header say about it.
//!
//! ```text
//! flags      the caller's, the words of all lines of the table and the header's flags, all together
//! modes      what the caller asked for: stronger than any flag
//!
//! a direction's mode: the mode that was asked for
//!                     else inline, where no_…_workqueue is among the flags
//!                     else queue, where any other flag is: they are about the queue
//!                     else auto
//! ```
//!
//! Demands that contradict each other are refused, not weighed. A header's flags are only its wish.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads, PerfFlags};

use crate::Warning;
use crate::direction::Direction;
use crate::error::{Error, Problem};

/// Choice of who is to run the cipher. What is left out the volume decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchOptions {
    /// For both directions.
    pub both: Option<DispatchMode>,
    /// For reads; stronger than `both`.
    pub read: Option<DispatchMode>,
    /// For writes; stronger than `both`.
    pub write: Option<DispatchMode>,
    /// dm-crypt's flags.
    pub perf: PerfFlags,
}

/// The helper threads of [`DispatchMode::Auto`], started when a volume first needs them. Clones share them.
#[derive(Clone, Default)]
pub struct HelperPool {
    wanted: Option<usize>,
    started: Arc<OnceLock<HelperThreads>>,
}

impl HelperPool {
    /// Of `count` threads, at most one for each core; with 0, `auto` is the same as `inline`.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { wanted: Some(count), ..Self::default() }
    }

    /// The helpers that `dispatch` needs, if any. A warning only where they are started now.
    pub(crate) fn helpers(&self, dispatch: &Dispatch) -> Result<(Option<HelperThreads>, Option<Warning>), Error> {
        if ![dispatch.read, dispatch.write].contains(&DispatchMode::Auto) {
            return Ok((None, None));
        }
        if let Some(helpers) = self.started.get() {
            return Ok((Some(helpers.clone()), None));
        }
        let (count, warning) = self.count();
        if count == 0 {
            return Ok((None, None));
        }
        let started = HelperThreads::start(count)?;
        let helpers = self.started.get_or_init(|| started);
        Ok((Some(helpers.clone()), warning))
    }

    /// How many there may be: by default one less than there are cores, and never more than cores, so that
    /// what was written for a large machine works on a small one.
    fn count(&self) -> (usize, Option<Warning>) {
        let cores = available_parallelism().map_or(1, usize::from);
        match self.wanted {
            None => (cores - 1, None),
            Some(count) if count <= cores => (count, None),
            Some(wanted) => (cores, Some(Warning::FewerHelpers { wanted, cores })),
        }
    }
}

impl fmt::Debug for HelperPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started = self.started.get().map(HelperThreads::count);
        f.debug_struct("HelperPool").field("wanted", &self.wanted).field("started", &started).finish()
    }
}

/// The flags that a volume brings with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// None: the volume has neither header nor table.
    Nothing,
    /// From the LUKS2 header.
    Header(PerfFlags),
    /// From a table, which the caller gave.
    Table(PerfFlags),
}

/// Choice of who will run the cipher, and the flags that say so in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub dispatch: Dispatch,
    pub flags: PerfFlags,
}

/// The mode asked for in each direction, if any.
#[derive(Clone, Copy)]
struct AskedModes {
    read: Option<Demand>,
    write: Option<Demand>,
}

/// A mode, and where it was asked for.
#[derive(Clone, Copy)]
struct Demand {
    mode: DispatchMode,
    by: Direction,
}

impl DispatchOptions {
    /// Chooses who runs the cipher of a volume that brings `stored` with it.
    pub(crate) fn decide(&self, stored: Stored) -> Result<Decision, Error> {
        let asked = self.asked();
        self.refuse_contradictions(asked)?;
        let stored = match stored {
            Stored::Nothing => PerfFlags::default(),
            Stored::Header(flags) => flags,
            Stored::Table(flags) => {
                refuse_table_words(asked, flags)?;
                flags
            }
        };
        let mut flags = stored.or(self.perf);
        if let Some(read) = asked.read {
            flags.no_read_workqueue = read.mode == DispatchMode::Inline;
        }
        if let Some(write) = asked.write {
            flags.no_write_workqueue = write.mode == DispatchMode::Inline;
        }
        if asked.rules_out_the_queue() {
            flags = PerfFlags {
                no_read_workqueue: flags.no_read_workqueue,
                no_write_workqueue: flags.no_write_workqueue,
                ..PerfFlags::default()
            };
        }
        let dispatch = asked.dispatch(flags);
        Ok(Decision { dispatch, flags })
    }

    fn asked(&self) -> AskedModes {
        let demand = |mode: Option<DispatchMode>, by| mode.map(|mode| Demand { mode, by });
        let both = demand(self.both, Direction::Both);
        AskedModes {
            read: demand(self.read, Direction::Read).or(both),
            write: demand(self.write, Direction::Write).or(both),
        }
    }

    /// Modes against flags, both of the caller.
    fn refuse_contradictions(&self, asked: AskedModes) -> Result<(), Error> {
        let PerfFlags { no_read_workqueue, no_write_workqueue, .. } = self.perf;
        for (flag, is_set, demand) in [
            ("no_read_workqueue", no_read_workqueue, asked.read),
            ("no_write_workqueue", no_write_workqueue, asked.write),
        ] {
            if let Some(demand) = demand.filter(|demand| is_set && demand.mode != DispatchMode::Inline) {
                return Err(contradiction(flag, false, demand));
            }
        }
        match asked.useless(self.perf) {
            Some((flag, demand)) => Err(contradiction(flag, false, demand)),
            None => Ok(()),
        }
    }
}

/// Inline against words of a table that are about the queue. Its other words only choose a mode, and a
/// mode that was asked for is stronger.
fn refuse_table_words(asked: AskedModes, flags: PerfFlags) -> Result<(), Error> {
    match asked.useless(flags) {
        Some((flag, demand)) if demand.mode == DispatchMode::Inline => Err(contradiction(flag, true, demand)),
        _ => Ok(()),
    }
}

fn contradiction(flag: &'static str, stored: bool, Demand { mode, by }: Demand) -> Error {
    Problem::Dispatch { flag, stored, asked: by, mode }.into()
}

impl AskedModes {
    /// The modes, with what was not asked for taken from the flags.
    fn dispatch(self, flags: PerfFlags) -> Dispatch {
        let mode = |demand: Option<Demand>, is_inline: bool| match demand {
            Some(demand) => demand.mode,
            None if is_inline => DispatchMode::Inline,
            None if flags.wants_queue() => DispatchMode::Queue,
            None => DispatchMode::Auto,
        };
        let read = mode(self.read, flags.no_read_workqueue);
        let write = mode(self.write, flags.no_write_workqueue);
        let queues = [read, write].contains(&DispatchMode::Queue);
        Dispatch {
            read,
            write,
            same_cpu_crypt: flags.same_cpu_crypt && queues,
            submit_from_crypt_cpus: flags.submit_from_crypt_cpus && write == DispatchMode::Queue,
            high_priority: flags.high_priority && queues,
        }
    }

    fn rules_out_the_queue(self) -> bool {
        other(self.read).is_some() && other(self.write).is_some()
    }

    /// A flag about the queue that can have no effect, and the mode because of which.
    fn useless(self, flags: PerfFlags) -> Option<(&'static str, Demand)> {
        let (read, write) = (other(self.read), other(self.write));
        // Only writes are submitted from crypt CPUs.
        let writes = write.filter(|_| flags.submit_from_crypt_cpus);
        let both = read.and(write);
        let same_cpu = both.filter(|_| flags.same_cpu_crypt);
        let priority = both.filter(|_| flags.high_priority);
        [("submit_from_crypt_cpus", writes), ("same_cpu_crypt", same_cpu), ("high_priority", priority)]
            .into_iter()
            .find_map(|(flag, demand)| Some((flag, demand?)))
    }
}

/// A demand for anything but the queue.
fn other(demand: Option<Demand>) -> Option<Demand> {
    demand.filter(|demand| demand.mode != DispatchMode::Queue)
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
