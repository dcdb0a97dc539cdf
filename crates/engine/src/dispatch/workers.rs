//! Workers: the cipher's threads under `queue`, as dm-crypt's `kcryptd`.
//!
//! ```text
//! read    medium ─► worker decrypts ─► slots
//! write   worker encrypts ─► writer (sorted by sector) ─► slots
//!                         └► slots, which submits it: with submit_from_crypt_cpus
//! ```
//!
//! There is one worker for each core, and a request goes to any of them; with `same_cpu_crypt` each is
//! bound to its core and gets what was submitted there. A worker with nothing to do sleeps at once,
//! as the kernel's do.

use std::io;
use std::sync::Arc;

use cryptline_sys::BackendChoice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::Dispatch;
use super::job::{CipherJob, JobDirection, JobOrder, SharedSlots};
use super::pool::{PoolTask, THREADS_MAX, WorkerPool};
use super::priority::raise_priority;
use super::writer::WriterThread;
use crate::{Gate, OpenError};

/// The threads of one volume.
pub(crate) struct Workers {
    pools: Vec<WorkerPool<JobOrder>>,
    /// Pools by core, where each has its own.
    cores: Vec<usize>,
    kcryptd: Arc<Kcryptd>,
}

impl Workers {
    /// Starts what `dispatch` asks for; the writer writes to `lower`, `start` bytes further on than
    /// its jobs say, and does its I/O as `backend` says.
    pub fn start(dispatch: Dispatch, lower: &Gate, start: u64, backend: BackendChoice) -> Result<Self, OpenError> {
        let nice = dispatch.high_priority;
        let writer =
            if dispatch.has_writer() { Some(WriterThread::start(lower.clone(), start, backend, nice)?) } else { None };
        let cores = usable_cores();
        let pinned = dispatch.same_cpu_crypt;
        let kcryptd = |core| Arc::new(Kcryptd { writer: writer.clone(), core, high_priority: nice });
        let groups: Vec<(usize, Option<usize>)> =
            if pinned { cores.iter().map(|&core| (1, Some(core))).collect() } else { vec![(cores.len(), None)] };
        let pools = groups.into_iter().map(|(count, core)| {
            let (pool, _) = WorkerPool::start("kcryptd", count, &kcryptd(core))?;
            Ok(pool)
        });
        Ok(Self {
            pools: pools.collect::<io::Result<_>>().map_err(OpenError::Thread)?,
            cores: if pinned { cores } else { Vec::new() },
            kcryptd: kcryptd(None),
        })
    }

    /// Gives a job to a worker. Where they are too far behind, the caller does it.
    pub fn hand_out(&self, job: CipherJob, slots: &Arc<SharedSlots>) {
        let order = JobOrder { job, slots: Arc::clone(slots) };
        let here = if self.cores.is_empty() {
            0
        } else {
            let core = sched_getcpu();
            let place = self.cores.iter().position(|&known| known == core);
            place.unwrap_or(0)
        };
        if let Err(order) = self.pools[here].hand_out(order) {
            self.kcryptd.run(order);
        }
    }
}

/// Work of one worker.
struct Kcryptd {
    writer: Option<Arc<WriterThread>>,
    core: Option<usize>,
    high_priority: bool,
}

impl PoolTask<JobOrder> for Kcryptd {
    fn begin(&self, _thread: usize) -> io::Result<()> {
        if let Some(core) = self.core {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set)?;
        }
        if self.high_priority { raise_priority() } else { Ok(()) }
    }

    fn run(&self, mut order: JobOrder) {
        order.job.run();
        match (&self.writer, order.job.direction, order.job.result) {
            (Some(writer), JobDirection::Encrypt { .. }, None) => writer.hand_over(order),
            _ => order.slots.give_back(order.job),
        }
    }
}

/// The cores this process may use, at most as many as a pool has threads.
fn usable_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| {
        let mut first = CpuSet::new();
        first.set(0);
        first
    });
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
    cores.take(THREADS_MAX).collect()
}
