//! Questions that a sync must be good on, which the medium may never answer: for a thread that serves other disks, too,
//! a thread of the file's own asks them.
//!
//! ```text
//! queue ─► Question ─► Asker: the keeper's sync, the file's size ─► Answer, and the queue's ring is woken
//! ```

use std::sync::{Arc, mpsc};

use cryptline_sys::{Backend, BackendChoice, Io, Ring, Waker};
use rustix::io::Errno;

use super::shared::FileShared;
use crate::{Fault, Op, Request};

/// Question about a sync that was made.
pub(super) struct SyncQuestion {
    pub request: Request,
    /// Its number among those of the queue's own file.
    pub sync: Option<u64>,
    /// The keeper is to be asked.
    pub keeper: bool,
    /// Its result, where the answer is good.
    pub then: Result<(), Fault>,
    /// How often the queue had come to be in doubt by then.
    pub doubts: u64,
}

pub(super) struct SyncAnswer {
    pub question: SyncQuestion,
    pub good: Result<(), Fault>,
}

impl SyncQuestion {
    /// Tells if the file must have its size.
    pub fn checks_size(&self) -> bool {
        self.request.op == Op::Flush
    }
}

/// The questions of one queue.
pub(super) struct Questions {
    shared: Arc<FileShared>,
    backend: BackendChoice,
    waker: Waker,
    tell: mpsc::Sender<SyncAnswer>,
    answers: mpsc::Receiver<SyncAnswer>,
}

impl Questions {
    /// Those of a queue on `ring`, or `None` where nothing could wake it.
    pub fn new(shared: &Arc<FileShared>, ring: &mut Ring) -> Option<Self> {
        let backend = match ring.backend() {
            Backend::Simulated(simulation) => BackendChoice::Simulated(simulation),
            _ => BackendChoice::Syscalls,
        };
        let (tell, answers) = mpsc::channel();
        Some(Self { shared: Arc::clone(shared), backend, waker: ring.waker().ok()?, tell, answers })
    }

    /// Has a question asked; it comes back where there is no thread to be had.
    pub fn ask(&self, question: SyncQuestion) -> Result<(), SyncQuestion> {
        let Self { shared, backend, waker, tell, .. } = self;
        let (shared, backend, waker, tell) = (Arc::clone(shared), *backend, waker.clone(), tell.clone());
        let find_out = move |question: SyncQuestion| {
            let good = find_out(&shared, backend, &question);
            // Whoever is told may close the file.
            drop(shared);
            // The queue may be gone: what the keeper has said is noted.
            if tell.send(SyncAnswer { question, good }).is_ok() {
                waker.wake();
            }
        };
        self.shared.asker.ask(question, find_out)
    }

    pub fn next_answer(&mut self) -> Option<SyncAnswer> {
        self.answers.try_recv().ok()
    }
}

fn find_out(shared: &FileShared, backend: BackendChoice, question: &SyncQuestion) -> Result<(), Fault> {
    let keeper = shared.keeper.file();
    if question.keeper {
        let mut ring = Ring::new(backend, 1).map_err(|_| Fault::Io(Errno::NOMEM))?;
        let (file, inbox) = (ring.add_file(Arc::clone(keeper)), ring.add_source());
        shared.keeper.ask(|| {
            ring.submit_at_once(inbox, 0, Io::Sync { file });
            ring.next_done(inbox).map_or(Err(Errno::IO), |done| done.result.map(drop))
        })?;
    }
    if question.checks_size() { shared.check_size(keeper) } else { Ok(()) }
}
