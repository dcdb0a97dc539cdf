//! Who runs the cipher, from what the command line, the table and the header say about it.
//!
//! ```text
//! flags      --perf-…, the table's words and the header's flags, all together
//! modes      --dispatch, --read-dispatch, --write-dispatch: stronger than any flag
//!
//! a direction's mode: the mode that was given
//!                     else inline, where no_…_workqueue is among the flags
//!                     else queue, where any other flag is: they are about the queue
//!                     else auto
//! ```
//!
//! Options that deny each other are refused, not weighed. A header's flags are only its wish.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use clap::{Args, ValueEnum};
use cryptline_engine::dispatch::{Dispatch, Helpers, Mode};
use cryptline_engine::table::CryptOptions;
use cryptline_luks::Flags;

use crate::CliError;

/// What `--dispatch` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Who {
    /// The thread that has the request, alone
    Inline,
    /// Worker threads, and a writer that sorts, as dm-crypt does it
    Queue,
    /// The thread that has the request; idle cores help with large ones
    Auto,
}

impl From<Who> for Mode {
    fn from(who: Who) -> Self {
        match who {
            Who::Inline => Self::Inline,
            Who::Queue => Self::Queue,
            Who::Auto => Self::Auto,
        }
    }
}

/// Who runs the cipher.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dispatch options (who runs the cipher)")]
pub struct DispatchOptions {
    /// Who runs the cipher [default: auto, unless --perf options, table or header say otherwise]
    #[arg(long, value_enum, value_name = "WHO")]
    pub dispatch: Option<Who>,

    /// The same for reads only
    #[arg(long, value_enum, value_name = "WHO")]
    pub read_dispatch: Option<Who>,

    /// The same for writes only
    #[arg(long, value_enum, value_name = "WHO")]
    pub write_dispatch: Option<Who>,

    /// Threads that help with large requests under `auto`, for all volumes together, at most one for
    /// each core; 0 makes `auto` the same as `inline` [default: one less than there are cores]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,

    /// Decrypt reads inline (cryptsetup's option of this name)
    #[arg(long = "perf-no_read_workqueue")]
    pub no_read_workqueue: bool,

    /// Encrypt writes inline
    #[arg(long = "perf-no_write_workqueue")]
    pub no_write_workqueue: bool,

    /// Queue to the worker of the core that has the request only
    #[arg(long = "perf-same_cpu_crypt")]
    pub same_cpu_crypt: bool,

    /// Queue, but let the workers submit writes as they come, unsorted
    #[arg(long = "perf-submit_from_crypt_cpus")]
    pub submit_from_crypt_cpus: bool,

    /// Queue to workers of the highest priority
    #[arg(long = "perf-high_priority")]
    pub high_priority: bool,

    /// The helpers, made on first need.
    #[arg(skip)]
    crew: Crew,
}

/// The helper threads of all volumes that are opened by one command.
#[derive(Clone, Default)]
struct Crew(Arc<OnceLock<Helpers>>);

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() {
            "started"
        } else {
            "none"
        })
    }
}

/// The performance flags of dm-crypt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfFlags {
    /// Encrypt on the submitting CPU.
    pub same_cpu_crypt: bool,
    /// Run the queues at high priority.
    pub high_priority: bool,
    /// Submit writes from the encrypting thread, unsorted.
    pub submit_from_crypt_cpus: bool,
    /// Decrypt inline.
    pub no_read_workqueue: bool,
    /// Encrypt inline.
    pub no_write_workqueue: bool,
}

/// The flags that a volume brings with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// None: the volume has neither header nor table.
    Nothing,
    /// From the LUKS2 header.
    Header(PerfFlags),
    /// From `--table`, which is part of the command line.
    Table(PerfFlags),
}

/// Who will run the cipher, and the flags that say so in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// For the engine.
    pub dispatch: Dispatch,
    /// For `cryptline table`.
    pub flags: PerfFlags,
}

impl From<&Flags> for PerfFlags {
    fn from(flags: &Flags) -> Self {
        Self {
            same_cpu_crypt: flags.same_cpu_crypt,
            high_priority: flags.high_priority,
            submit_from_crypt_cpus: flags.submit_from_crypt_cpus,
            no_read_workqueue: flags.no_read_workqueue,
            no_write_workqueue: flags.no_write_workqueue,
        }
    }
}

impl From<&CryptOptions> for PerfFlags {
    fn from(options: &CryptOptions) -> Self {
        Self {
            same_cpu_crypt: options.same_cpu_crypt,
            high_priority: options.high_priority,
            submit_from_crypt_cpus: options.submit_from_crypt_cpus,
            no_read_workqueue: options.no_read_workqueue,
            no_write_workqueue: options.no_write_workqueue,
        }
    }
}

impl PerfFlags {
    /// Writes the flags into the feature words of a table.
    pub fn put_into(self, options: &mut CryptOptions) {
        options.same_cpu_crypt = self.same_cpu_crypt;
        options.high_priority = self.high_priority;
        options.submit_from_crypt_cpus = self.submit_from_crypt_cpus;
        options.no_read_workqueue = self.no_read_workqueue;
        options.no_write_workqueue = self.no_write_workqueue;
    }

    fn and(self, other: Self) -> Self {
        Self {
            same_cpu_crypt: self.same_cpu_crypt || other.same_cpu_crypt,
            high_priority: self.high_priority || other.high_priority,
            submit_from_crypt_cpus: self.submit_from_crypt_cpus || other.submit_from_crypt_cpus,
            no_read_workqueue: self.no_read_workqueue || other.no_read_workqueue,
            no_write_workqueue: self.no_write_workqueue || other.no_write_workqueue,
        }
    }

    /// Whether any flag is about the queue.
    fn wants_queue(self) -> bool {
        self.same_cpu_crypt || self.high_priority || self.submit_from_crypt_cpus
    }
}

/// The mode given for each direction, if any.
#[derive(Clone, Copy)]
struct Given {
    read: Option<Asked>,
    write: Option<Asked>,
}

/// A mode, and the option that asked for it.
#[derive(Clone, Copy)]
struct Asked {
    who: Who,
    option: &'static str,
}

impl DispatchOptions {
    /// Who runs the cipher of a volume that brings `stored` with it.
    ///
    /// # Errors
    /// Exit code 1 for options that contradict each other.
    pub fn decide(&self, stored: Stored) -> Result<Decision, CliError> {
        let given = self.given();
        self.refuse_contradictions(given)?;
        let stored = match stored {
            Stored::Nothing => PerfFlags::default(),
            Stored::Header(flags) => flags,
            Stored::Table(flags) => {
                refuse_table_words(given, flags)?;
                flags
            }
        };
        let mut flags = stored.and(self.flags());
        if let Some(asked) = given.read {
            flags.no_read_workqueue = asked.who == Who::Inline;
        }
        if let Some(asked) = given.write {
            flags.no_write_workqueue = asked.who == Who::Inline;
        }
        if given.rules_out_the_queue() {
            flags = PerfFlags {
                no_read_workqueue: flags.no_read_workqueue,
                no_write_workqueue: flags.no_write_workqueue,
                ..PerfFlags::default()
            };
        }
        let dispatch = given.dispatch(flags);
        Ok(Decision { dispatch, flags })
    }

    /// The helpers that `dispatch` needs, if any: the same ones for every volume.
    pub fn helpers(&self, dispatch: &Dispatch) -> Result<Option<Helpers>, CliError> {
        let (count, warning) = self.helper_count();
        if count == 0 || ![dispatch.read, dispatch.write].contains(&Mode::Auto) {
            return Ok(None);
        }
        if let Some(helpers) = self.crew.0.get() {
            return Ok(Some(helpers.clone()));
        }
        let started = Helpers::start(count)?;
        crate::output::warn(warning.as_slice());
        Ok(Some(self.crew.0.get_or_init(|| started).clone()))
    }

    /// How many helpers there may be, and what is to be said about it. No more than cores: so that the
    /// command line of a large machine works on a small one.
    fn helper_count(&self) -> (usize, Option<String>) {
        let cores = available_parallelism().map_or(1, usize::from);
        match self.helpers {
            None => (cores - 1, None),
            Some(count) if count <= cores => (count, None),
            Some(count) => (
                cores,
                Some(format!(
                    "--helpers {count}: this program may use {cores} cores, and more helpers would only wait for each other; it starts {cores}"
                )),
            ),
        }
    }

    fn given(&self) -> Given {
        let asked = |who: Option<Who>, option| who.map(|who| Asked { who, option });
        let both = asked(self.dispatch, "--dispatch");
        Given {
            read: asked(self.read_dispatch, "--read-dispatch").or(both),
            write: asked(self.write_dispatch, "--write-dispatch").or(both),
        }
    }

    fn flags(&self) -> PerfFlags {
        PerfFlags {
            same_cpu_crypt: self.same_cpu_crypt,
            high_priority: self.high_priority,
            submit_from_crypt_cpus: self.submit_from_crypt_cpus,
            no_read_workqueue: self.no_read_workqueue,
            no_write_workqueue: self.no_write_workqueue,
        }
    }

    /// Modes against `--perf` options.
    fn refuse_contradictions(&self, given: Given) -> Result<(), CliError> {
        for (flag, asked, says) in [
            (
                self.no_read_workqueue,
                given.read,
                "--perf-no_read_workqueue decrypts reads inline",
            ),
            (
                self.no_write_workqueue,
                given.write,
                "--perf-no_write_workqueue encrypts writes inline",
            ),
        ] {
            let asked = asked.filter(|asked| flag && asked.who != Who::Inline);
            if let Some(asked) = asked {
                return Err(contradiction(says, asked));
            }
        }
        match given.useless(self.flags()) {
            Some((flag, asked)) => {
                let says = format!("--perf-{flag} is about the queue");
                Err(contradiction(&says, asked))
            }
            None => Ok(()),
        }
    }
}

/// `--dispatch inline` against words of `--table` that are about the queue. Its other words only
/// choose a mode, and a mode that is given is stronger.
fn refuse_table_words(given: Given, flags: PerfFlags) -> Result<(), CliError> {
    match given.useless(flags) {
        Some((flag, asked)) if asked.who == Who::Inline => {
            let says = format!("{flag} in the table is about the queue");
            Err(contradiction(&says, asked))
        }
        _ => Ok(()),
    }
}

fn contradiction(says: &str, Asked { who, option }: Asked) -> CliError {
    let mode = Mode::from(who);
    CliError::parameters(format!(
        "{says}, but {option} says {mode}; leave one of them out"
    ))
}

impl Given {
    /// The modes, with what is not given taken from the flags.
    fn dispatch(self, flags: PerfFlags) -> Dispatch {
        let mode = |asked: Option<Asked>, is_inline: bool| match asked {
            Some(asked) => asked.who.into(),
            None if is_inline => Mode::Inline,
            None if flags.wants_queue() => Mode::Queue,
            None => Mode::Auto,
        };
        let read = mode(self.read, flags.no_read_workqueue);
        let write = mode(self.write, flags.no_write_workqueue);
        let queues = [read, write].contains(&Mode::Queue);
        Dispatch {
            read,
            write,
            same_cpu_crypt: flags.same_cpu_crypt && queues,
            submit_from_crypt_cpus: flags.submit_from_crypt_cpus && write == Mode::Queue,
            high_priority: flags.high_priority && queues,
        }
    }

    fn rules_out_the_queue(self) -> bool {
        let other = |asked: Option<Asked>| asked.is_some_and(|asked| asked.who != Who::Queue);
        other(self.read) && other(self.write)
    }

    /// A flag about the queue that can have no effect, and the mode because of which.
    fn useless(self, flags: PerfFlags) -> Option<(&'static str, Asked)> {
        let other = |asked: Option<Asked>| asked.filter(|asked| asked.who != Who::Queue);
        let (read, write) = (other(self.read), other(self.write));
        // Only writes are submitted from crypt CPUs.
        let writes = write.filter(|_| flags.submit_from_crypt_cpus);
        let both = read.and(write);
        writes
            .map(|asked| ("submit_from_crypt_cpus", asked))
            .or_else(|| {
                both.filter(|_| flags.same_cpu_crypt)
                    .map(|asked| ("same_cpu_crypt", asked))
            })
            .or_else(|| {
                both.filter(|_| flags.high_priority)
                    .map(|asked| ("high_priority", asked))
            })
    }
}

/// For people: `auto (3 helpers)`, or `read inline, write queue (high_priority)`.
#[must_use]
pub fn describe(dispatch: &Dispatch, helpers: usize) -> String {
    let help = match helpers {
        0 => "auto (no helpers)".to_owned(),
        1 => "auto (1 helper)".to_owned(),
        count => format!("auto ({count} helpers)"),
    };
    let mode = |mode: Mode| match mode {
        Mode::Auto => help.clone(),
        other => other.to_string(),
    };
    let modes = if dispatch.read == dispatch.write {
        mode(dispatch.read)
    } else {
        format!(
            "read {}, write {}",
            mode(dispatch.read),
            mode(dispatch.write)
        )
    };
    let flags = [
        (dispatch.same_cpu_crypt, "same_cpu_crypt"),
        (dispatch.high_priority, "high_priority"),
        (dispatch.submit_from_crypt_cpus, "submit_from_crypt_cpus"),
    ];
    let flags: Vec<_> = flags
        .iter()
        .filter_map(|(set, name)| set.then_some(*name))
        .collect();
    if flags.is_empty() {
        modes
    } else {
        format!("{modes} ({})", flags.join(", "))
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
