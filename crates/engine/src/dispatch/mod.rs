//! Dispatch: who runs the cipher.
//!
//! ```text
//! inline   the thread that has the request
//! queue    as dm-crypt does: a pool of workers, and for writes one thread that sorts and submits
//! auto     the thread that has the request; idle cores take pieces of a large one
//! ```
//!
//! Work for another thread is a [`Job`](job::Job): a value that owns the bytes to work on. It is moved there and moved
//! back to the [`SharedSlots`](job::SharedSlots) of the queue it came from, so two threads never see the same bytes.
//!
//! ```text
//! auto     Exchange ─ job ─► SharedSlots.todo ◄─ whoever is first: the queue itself, or a helper
//!                    ◄─ job ─ SharedSlots.done ◄─┘
//! queue    Exchange ─ job ─► Workers ─► (writes: Writer, sorted by sector) ─► SharedSlots.done
//! ```

mod helpers;
mod idle;
pub(crate) mod job;
mod own_thread;
mod pace;
mod perf;
mod pool;
mod priority;
mod quota;
mod ticks;
mod workers;
mod writer;

pub use helpers::HelperThreads;
pub(crate) use pace::CipherPace;
pub use perf::PerfFlags;
pub use priority::may_raise_priority;
pub use quota::usable_cores;
pub use ticks::CpuTicks;
pub(crate) use workers::Workers;

use std::fmt;
use std::str::FromStr;

/// Threads that run the cipher, for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DispatchMode {
    /// The thread that has the request, alone.
    Inline,
    /// Worker threads, as dm-crypt's work queues. To measure against, and for rotating disks.
    Queue,
    /// The thread that has the request; helpers take pieces of a large one while cores are idle.
    #[default]
    Auto,
}

/// How a volume's requests reach its cipher. The flags have the names they have in a device-mapper
/// table, and matter for [`DispatchMode::Queue`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// Threads that decrypt reads.
    pub read: DispatchMode,
    /// Threads that encrypt writes.
    pub write: DispatchMode,
    /// A request's worker is the one of the core it was submitted on.
    pub same_cpu_crypt: bool,
    /// Encrypted writes are submitted as they come: no writer thread, no sorting by sector.
    pub submit_from_crypt_cpus: bool,
    /// Workers and the writer run at the highest priority (nice -20), where that is permitted.
    pub high_priority: bool,
}

impl Dispatch {
    /// The same mode for both directions, no flags.
    #[must_use]
    pub fn both(mode: DispatchMode) -> Self {
        Self { read: mode, write: mode, ..Self::default() }
    }

    /// Tells if a direction goes through worker threads.
    #[must_use]
    pub fn uses_workers(&self) -> bool {
        self.read == DispatchMode::Queue || self.write == DispatchMode::Queue
    }

    /// Tells if writes go through a thread that has a queue of its own into the device below.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.write == DispatchMode::Queue && !self.submit_from_crypt_cpus
    }
}

impl FromStr for DispatchMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "inline" => Ok(Self::Inline),
            "queue" => Ok(Self::Queue),
            "auto" => Ok(Self::Auto),
            other => Err(format!("{other:?} is no dispatch mode; inline, queue and auto are")),
        }
    }
}

impl fmt::Display for DispatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Queue => "queue",
            Self::Auto => "auto",
        })
    }
}
