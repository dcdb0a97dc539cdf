//! What a server serves right now, for those who tell of it: volumes can come and go.

use std::sync::{Arc, Mutex};

use cryptline_engine::Fault;
use cryptline_serve::stats::ExportStats;
use cryptline_sys::lock;

use super::front::Served;

/// The volumes of one server. Clones share them.
#[derive(Clone)]
pub struct Volumes(Arc<Mutex<Arc<[Served]>>>);

impl Volumes {
    /// Those that it begins with.
    #[must_use]
    pub fn new(volumes: Arc<[Served]>) -> Self {
        Self(Arc::new(Mutex::new(volumes)))
    }

    /// Those of this moment. Whoever keeps them keeps them open.
    #[must_use]
    pub fn now(&self) -> Arc<[Served]> {
        Arc::clone(&lock(&self.0))
    }

    /// One more.
    pub fn add(&self, volume: Served) {
        let mut volumes = lock(&self.0);
        *volumes = volumes.iter().cloned().chain([volume]).collect();
    }

    /// Why a flush of the volume called `name` failed. A server below that was lost is named.
    #[must_use]
    pub fn told(&self, name: &str, fault: Fault) -> String {
        let volumes = self.now();
        match volumes.iter().find(|volume| volume.name == name) {
            Some(volume) if fault == Fault::Lost => {
                format!("the connection to {} was lost", volume.info.source)
            }
            _ => fault.to_string(),
        }
    }

    /// The same of its last flush; `noun` is what the front calls a volume.
    #[must_use]
    pub fn lost(&self, noun: &str, name: &str, fault: Fault) -> String {
        format!(
            "{noun} {name:?}: the last flush failed ({}); what was written since the flush before it may be lost",
            self.told(name, fault)
        )
    }

    /// All but the one that counts in `stats`.
    pub fn forget(&self, stats: &Arc<ExportStats>) {
        let mut volumes = lock(&self.0);
        let others = volumes.iter().filter(|volume| !volume.counts_in(stats));
        *volumes = others.cloned().collect();
    }
}
