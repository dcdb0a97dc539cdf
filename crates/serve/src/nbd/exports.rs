//! All that one server offers: exports that come and go while clients are served.
//!
//! ```text
//! add ─► offered ─► leaving: no new clients ─► closing: the last client has left, the last flush is made ─► gone
//! ```
//!
//! The thread that takes an export from one state to the next does what belongs to it: only one thread closes an
//! export.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use cryptline_nbd::{OfferError, ServerOffer, TlsMode};
use cryptline_sys::lock;

use super::export::Export;
use crate::facts::{Facts, PATIENCE};
use crate::flush::Flushed;

/// The exports of a server.
pub struct Exports {
    tls: TlsMode,
    inner: Mutex<ExportsInner>,
    on_closed: OnceLock<OnClosed>,
}

/// Told of an export that is gone, and of its last flush.
type OnClosed = Box<dyn Fn(&Export, &Flushed) + Send + Sync>;

pub(super) struct ExportsInner {
    next: ExportId,
    /// In the order in which they came.
    pub entries: Vec<ExportEntry>,
    offered: Arc<Offered>,
    /// The export that the empty name meant at first is gone.
    default_is_gone: bool,
}

/// Never used twice: a name may be.
pub(crate) type ExportId = u64;

pub(super) struct ExportEntry {
    id: ExportId,
    pub export: Arc<Export>,
    state: ExportState,
    /// In transmission.
    pub clients: usize,
    pub facts: Facts,
    /// Flushes that no client asks for; they may take long, and keep no size waiting.
    pub flushes: Facts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportState {
    Offered,
    Leaving,
    Closing,
}

/// Exports that one handshake offers.
pub(super) struct Offered {
    pub offer: Arc<ServerOffer>,
    /// In the order of the offer.
    ids: Vec<ExportId>,
}

impl Offered {
    /// Whose place in the offer this is.
    pub fn id(&self, place: usize) -> Option<ExportId> {
        self.ids.get(place).copied()
    }
}

/// An export and who uses it.
pub struct ExportStatus {
    /// The export.
    pub export: Arc<Export>,
    /// Clients in transmission.
    pub clients: usize,
    /// New clients do not get it any more.
    pub leaving: bool,
    pub(super) id: ExportId,
}

/// Why an export is not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// There is none of this name.
    #[error("there is no export {0:?}")]
    Unknown(String),
    /// Somebody else removes it, and makes its last flush.
    #[error("export {0:?} is being removed already")]
    Closing(String),
}

/// Outcome for an export that is to go.
pub(super) enum Retired {
    /// Goes with the last of so many clients.
    Leaving(usize),
    /// Whoever has this closes it.
    Closing(Closing),
}

/// An export that one thread closes.
pub(super) struct Closing {
    pub id: ExportId,
    pub export: Arc<Export>,
}

impl Exports {
    /// Checks the list that a server begins with.
    ///
    /// Errors: an export that NBD cannot describe, such as a zoned volume.
    pub fn new(exports: Vec<Export>, tls: TlsMode) -> Result<Arc<Self>, OfferError> {
        exports.iter().try_for_each(refuse_zones)?;
        let entries = (0..).zip(exports).map(|(id, export)| ExportEntry::new(id, export));
        let mut inner = ExportsInner {
            next: 0,
            entries: entries.collect(),
            offered: Arc::new(Offered { offer: Arc::new(ServerOffer::new(Vec::new(), tls)?), ids: Vec::new() }),
            default_is_gone: false,
        };
        inner.next = inner.entries.len() as ExportId;
        inner.offer_anew(tls)?;
        Ok(Arc::new(Self { tls, inner: Mutex::new(inner), on_closed: OnceLock::new() }))
    }

    /// Has `observer` told of each export that is gone. The first observer stays.
    pub fn on_closed(&self, observer: impl Fn(&Export, &Flushed) + Send + Sync + 'static) {
        let _ = self.on_closed.set(Box::new(observer));
    }

    /// Offers one more from the next handshake on.
    ///
    /// # Errors
    /// One that NBD cannot describe, or whose name is taken, also by one that is still leaving. The empty name is taken
    /// while it means another export.
    pub fn add(&self, export: Export) -> Result<(), OfferError> {
        refuse_zones(&export)?;
        let mut inner = self.inner();
        let mut others = inner.entries.iter();
        let is_default = export.name.is_empty() && inner.default().is_some();
        if is_default || others.any(|entry| entry.export.name == export.name) {
            return Err(OfferError::DuplicateName(export.name));
        }
        let id = inner.next;
        inner.next += 1;
        inner.entries.push(ExportEntry::new(id, export));
        let offered = inner.offer_anew(self.tls);
        if offered.is_err() {
            inner.entries.pop();
        }
        offered
    }

    /// The name of the export that the empty name means.
    #[must_use]
    pub fn default_name(&self) -> Option<String> {
        let inner = self.inner();
        inner.default().map(|entry| entry.export.name.clone())
    }

    /// All that are not gone, in the order in which they came.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let inner = self.inner();
        let status = |entry: &ExportEntry| ExportStatus {
            export: Arc::clone(&entry.export),
            clients: entry.clients,
            leaving: entry.state != ExportState::Offered,
            id: entry.id,
        };
        inner.entries.iter().map(status).collect()
    }

    /// Returns what the next handshake offers: volumes that have grown are as large as they are now, if their media say
    /// so in time.
    pub(super) fn offered(&self) -> Arc<Offered> {
        self.sizes(None, PATIENCE);
        let mut inner = self.inner();
        let told = inner.offered.offer.exports().iter().map(|info| info.size);
        let sizes = inner.offered().map(|entry| entry.export.gate.size());
        if !told.eq(sizes) {
            // Growth makes no name wrong. If it did, the old offer would stay.
            let _ = inner.offer_anew(self.tls);
        }
        Arc::clone(&inner.offered)
    }

    /// A client begins to use an export; `None` where that goes meanwhile.
    pub(super) fn enter(self: &Arc<Self>, id: ExportId) -> Option<ExportVisit> {
        let mut inner = self.inner();
        let entry = inner.entry(id)?;
        if entry.state != ExportState::Offered {
            return None;
        }
        entry.clients += 1;
        Some(ExportVisit { exports: Arc::clone(self), id, export: Arc::clone(&entry.export) })
    }

    /// Keeps new clients from the export called `name`. With `now`, or where nobody uses it, the caller closes it.
    pub(super) fn retire(&self, name: &str, now: bool) -> Result<Retired, RemoveError> {
        let mut inner = self.inner();
        let mut entries = inner.entries.iter();
        let Some(place) = entries.position(|entry| entry.export.name == name) else {
            return Err(RemoveError::Unknown(name.to_owned()));
        };
        if inner.entries[place].state == ExportState::Closing {
            return Err(RemoveError::Closing(name.to_owned()));
        }
        let entry = &mut inner.entries[place];
        let is_last = now || entry.clients == 0;
        entry.state = if is_last { ExportState::Closing } else { ExportState::Leaving };
        let retired = if is_last { Retired::Closing(entry.closing()) } else { Retired::Leaving(entry.clients) };
        inner.default_is_gone |= place == 0;
        // Fewer of what was right are right.
        let _ = inner.offer_anew(self.tls);
        Ok(retired)
    }

    /// Where its last client has left an export that is to go: the caller closes it.
    pub(super) fn left(&self, id: ExportId) -> Option<Closing> {
        let mut inner = self.inner();
        let entry = inner.entry(id)?;
        if entry.state != ExportState::Leaving || entry.clients > 0 {
            return None;
        }
        entry.state = ExportState::Closing;
        Some(entry.closing())
    }

    /// The export is gone; what keeps its volume open is dropped.
    pub(super) fn forget(&self, closing: Closing, flushed: &Flushed) {
        self.inner().entries.retain(|entry| entry.id != closing.id);
        if let Some(observer) = self.on_closed.get() {
            observer(&closing.export, flushed);
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, ExportsInner> {
        lock(&self.inner)
    }
}

impl ExportsInner {
    fn entry(&mut self, id: ExportId) -> Option<&mut ExportEntry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// Returns what the empty name means, unless another has it for a name.
    fn default(&self) -> Option<&ExportEntry> {
        let first = self.entries.first();
        first.filter(|_| !self.default_is_gone)
    }

    fn offered(&self) -> impl Iterator<Item = &ExportEntry> {
        let is_offered = |entry: &&ExportEntry| entry.state == ExportState::Offered;
        self.entries.iter().filter(is_offered)
    }

    fn offer_anew(&mut self, tls: TlsMode) -> Result<(), OfferError> {
        let infos = self.offered().map(|entry| entry.export.info()).collect();
        let mut offer = ServerOffer::new(infos, tls)?;
        if self.default_is_gone {
            offer = offer.without_default();
        }
        self.offered =
            Arc::new(Offered { offer: Arc::new(offer), ids: self.offered().map(|entry| entry.id).collect() });
        Ok(())
    }
}

impl ExportEntry {
    fn new(id: ExportId, export: Export) -> Self {
        Self {
            id,
            export: Arc::new(export),
            state: ExportState::Offered,
            clients: 0,
            facts: Facts::new(),
            flushes: Facts::new(),
        }
    }

    fn closing(&self) -> Closing {
        Closing { id: self.id, export: Arc::clone(&self.export) }
    }
}

/// One client's use of an export, until this is dropped.
pub(super) struct ExportVisit {
    exports: Arc<Exports>,
    id: ExportId,
    pub export: Arc<Export>,
}

impl Drop for ExportVisit {
    fn drop(&mut self) {
        if let Some(entry) = self.exports.inner().entry(self.id) {
            entry.clients -= 1;
        }
    }
}

fn refuse_zones(export: &Export) -> Result<(), OfferError> {
    match export.gate.geometry().zones {
        Some(_) => Err(OfferError::Zoned(export.name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "exports_tests.rs"]
mod tests;
