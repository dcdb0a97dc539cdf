//! Knowledge that all actors of a history share: what was found, what has happened, and each export as the audit has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cryptline_testkit::cache::FileContent;

use crate::audit::{Export, Tick};
use crate::control::Attendance;
use crate::disks::Left;
use crate::points::{Point, sometimes};
use crate::sim;
use crate::workers;

/// Knowledge that all actors share.
pub struct World {
    inner: Mutex<Inner>,
}

/// Knowledge of an export.
pub struct Known {
    pub audit: Export,
    /// Silent before, or over an unreliable server: what is late is no wonder.
    pub is_unwell: bool,
    /// Removed: its last flush is told to whoever does that.
    pub is_gone: bool,
    /// Whoever has removed it knows that it is closed.
    pub is_closed: bool,
    /// Removals under way.
    pub removals: u32,
    /// About to be added again.
    pub is_coming: bool,
    /// A client was told that a write or a flush has failed, since it was opened.
    pub has_failed: bool,
    /// How often it was opened anew.
    pub life: u32,
    /// Removed with a last flush that has told of all that was lost by then.
    pub loss_is_told: bool,
    /// Bytes that it has at least: since it has grown, the end of that, and how many.
    pub size: (Tick, u64),
    /// Bytes that a client was told, and when.
    pub told: (Tick, u64),
    /// Nothing that can fail stands below.
    pub is_sound: bool,
    /// A flush asks the medium. Where it does not, each write was durable before it ended, and only its own client is
    /// told that it was lost.
    pub flushes_ask: bool,
    /// Writes were lost below, as far as is known now.
    pub has_lost: Box<dyn Fn() -> bool + Send>,
}

impl Known {
    pub fn new(audit: Export, has_lost: impl Fn() -> bool + Send + 'static) -> Self {
        let size = audit.cells.sizes()[0] as u64;
        Self {
            audit,
            is_unwell: false,
            is_gone: false,
            is_closed: false,
            removals: 0,
            is_coming: false,
            has_failed: false,
            life: 0,
            loss_is_told: false,
            size: (0, size),
            told: (0, 0),
            is_sound: true,
            flushes_ask: true,
            has_lost: Box::new(has_lost),
        }
    }

    /// Tells if nobody has removed it, or is about to.
    pub fn is_there(&self) -> bool {
        !self.is_gone && self.removals == 0
    }

    /// Now, and whether no flush may say yes any more: a write has been lost, or has failed.
    pub fn moment(&mut self) -> (Tick, bool) {
        (self.audit.tick(), self.has_failed || self.flushes_ask && (self.has_lost)() && !self.loss_is_told)
    }
}

pub struct Inner {
    pub exports: Vec<Known>,
    pub findings: Vec<String>,
    pub log: Vec<String>,
    pub is_stopping: bool,
    /// The mount was cut off, and nobody is to tell its server.
    pub is_cut_off: bool,
    /// Places of the control socket.
    pub attendance: Attendance,
    /// Leftovers of power cuts, had there been any.
    pub cuts: Vec<Left>,
    /// Leftovers of one in the middle of a sync of a mapping, once there was one.
    pub cut_in_a_sync: Box<dyn Fn() -> Option<FileContent> + Send>,
}

/// The world of the history under way.
static CURRENT: Mutex<Option<Arc<World>>> = Mutex::new(None);

/// Events so far of the history under way, as far as nobody is writing it down.
pub fn last_words() -> Vec<String> {
    let world = CURRENT.try_lock().ok().and_then(|world| world.clone());
    let inner = world.as_ref().and_then(|world| world.inner.try_lock().ok());
    inner.map_or_else(Vec::new, |inner| inner.log.clone())
}

impl World {
    pub fn new(exports: Vec<Known>, cut_in_a_sync: impl Fn() -> Option<FileContent> + Send + 'static) -> Arc<Self> {
        let inner = Inner {
            exports,
            findings: Vec::new(),
            log: Vec::new(),
            is_stopping: false,
            is_cut_off: false,
            attendance: Attendance::default(),
            cuts: Vec::new(),
            cut_in_a_sync: Box::new(cut_in_a_sync),
        };
        let world = Arc::new(Self { inner: Mutex::new(inner) });
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&world));
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, what: String) {
        self.lock().find(what);
    }

    /// Notes what happens, for whoever reads it.
    pub fn say(&self, what: impl FnOnce() -> String) {
        let mut inner = self.lock();
        if workers::tells_all() {
            inner.say(what());
        }
    }
}

impl Inner {
    pub fn say(&mut self, what: String) {
        if !workers::tells_all() {
            return;
        }
        self.log.push(format!("{:>12.3} ms  {what}", (sim::now() % 1_000_000_000_000) as f64 / 1e6));
    }

    /// Takes what a power cut in the middle of a sync has left. Before each promise is noted, so that none is that was made
    /// later.
    pub fn take_cut(&mut self) {
        if let Some(image) = (self.cut_in_a_sync)() {
            self.say("the power may have failed in the sync of a mapping".to_owned());
            sometimes(Point::CutInSync);
            self.cuts.push(Left::of_a_sync(image, &self.exports[0].audit));
        }
    }

    pub fn find(&mut self, what: String) {
        self.say(format!("FOUND: {what}"));
        self.findings.push(what);
    }
}
