//! Volumes that a server serves right now, for those who tell of it: they can come and go.

use std::sync::{Arc, Mutex};

use cryptline_engine::Fault;
use cryptline_serve::UNANSWERED;
use cryptline_serve::stats::ExportStats;
use cryptline_sys::lock;

use super::front::ServedVolume;

/// The volumes of one server. Clones share them.
#[derive(Clone)]
pub struct Volumes(Arc<Mutex<Arc<[ServedVolume]>>>);

impl Volumes {
    /// Those that it begins with.
    pub fn new(volumes: Arc<[ServedVolume]>) -> Self {
        Self(Arc::new(Mutex::new(volumes)))
    }

    /// Those of this moment. Whoever keeps them keeps them open.
    pub fn now(&self) -> Arc<[ServedVolume]> {
        Arc::clone(&lock(&self.0))
    }

    /// One more.
    pub fn add(&self, volume: ServedVolume) {
        let mut volumes = lock(&self.0);
        *volumes = volumes.iter().cloned().chain([volume]).collect();
    }

    /// Why a flush of the volume called `name` failed. A server below that was lost is named.
    pub fn told(&self, name: &str, fault: Fault) -> String {
        why_lost(self.source(name).as_deref(), fault)
    }

    /// Returns what the volume called `name` is read from.
    pub fn source(&self, name: &str) -> Option<String> {
        let volumes = self.now();
        let volume = volumes.iter().find(|volume| volume.name == name);
        volume.map(|volume| volume.info.source.clone())
    }

    /// The same of its last flush; `noun` is what the front calls a volume.
    pub fn lost(&self, noun: &str, name: &str, fault: Fault) -> String {
        if fault == UNANSWERED {
            return format!(
                "{noun} {name:?}: the last flush was not made, since its medium did not answer in time; what was written since the flush before it may be lost, so check the medium before you use it again"
            );
        }
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

/// Why a flush of a volume from `source` failed.
pub fn why_lost(source: Option<&str>, fault: Fault) -> String {
    match source {
        Some(source) if fault == Fault::Lost => format!("the connection to {source} was lost"),
        _ => fault.to_string(),
    }
}
