//! Options about who runs the cipher.

use std::sync::OnceLock;

use clap::Args;
use cryptline::{DispatchMode, HelperPool, Open, PerfFlags};

use super::choice::{self, ChoiceWords};

const MODES: &ChoiceWords<DispatchMode> = &[
    ("inline", "The thread that has the request, alone", DispatchMode::Inline),
    ("queue", "Worker threads, and a writer that sorts, as dm-crypt does", DispatchMode::Queue),
    ("auto", "The thread that has the request; idle cores help with large ones", DispatchMode::Auto),
];

/// Options on who runs the cipher.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dispatch options (who runs the cipher)")]
pub struct DispatchArgs {
    /// Threads that run the cipher [default: auto, unless `--perf-...` options, table or header say otherwise]
    #[arg(long, value_name = "WHO", value_parser = choice::of(MODES))]
    pub dispatch: Option<DispatchMode>,

    /// The same for reads only
    #[arg(long, value_name = "WHO", value_parser = choice::of(MODES))]
    pub read_dispatch: Option<DispatchMode>,

    /// The same for writes only
    #[arg(long, value_name = "WHO", value_parser = choice::of(MODES))]
    pub write_dispatch: Option<DispatchMode>,

    /// Threads that help with large requests under `auto`, shared by all volumes, at most one for
    /// each core; with 0, `auto` is the same as `inline` [default: one less than there are cores]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,

    /// Decrypt reads inline (cryptsetup's option of this name)
    #[arg(long = "perf-no_read_workqueue")]
    pub no_read_workqueue: bool,

    /// Encrypt writes inline
    #[arg(long = "perf-no_write_workqueue")]
    pub no_write_workqueue: bool,

    /// Queue only to the worker of the core that has the request
    #[arg(long = "perf-same_cpu_crypt")]
    pub same_cpu_crypt: bool,

    /// Queue, but let the workers submit writes as they come, unsorted
    #[arg(long = "perf-submit_from_crypt_cpus")]
    pub submit_from_crypt_cpus: bool,

    /// Queue to workers of the highest priority
    #[arg(long = "perf-high_priority")]
    pub high_priority: bool,

    /// The helpers of all volumes that are opened by one command.
    #[arg(skip)]
    pool: OnceLock<HelperPool>,
}

impl DispatchArgs {
    /// Says so to the library.
    pub fn apply(&self, open: Open) -> Open {
        let new_pool = || self.helpers.map_or_else(HelperPool::default, HelperPool::new);
        open.helpers(self.pool.get_or_init(new_pool).clone()).dispatch(cryptline::DispatchOptions {
            both: self.dispatch,
            read: self.read_dispatch,
            write: self.write_dispatch,
            perf: PerfFlags {
                same_cpu_crypt: self.same_cpu_crypt,
                high_priority: self.high_priority,
                submit_from_crypt_cpus: self.submit_from_crypt_cpus,
                no_read_workqueue: self.no_read_workqueue,
                no_write_workqueue: self.no_write_workqueue,
            },
        })
    }
}
