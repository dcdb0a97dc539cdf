//! One thread's way into an emulated zoned device.

use std::sync::{Arc, Mutex};

use cryptline_sys::{Ring, lock};

use super::ZonedShared;
use crate::layered::{Descent, Layer, LayerNote, LayerOut, Layered};
use crate::zone::{Saved, ZoneAction, ZoneTable};
use crate::{Combined, Completion, Fault, Op, OpenError, Request};

pub(super) struct ZonedLayer {
    shared: Arc<ZonedShared>,
    left: Arc<LeftZones>,
    /// Wait for the next flush below: flushes, and durable writes that are written.
    waiting: Vec<Request>,
    /// Wait for the one that is under way.
    flushing: Vec<Request>,
    /// The zones whose state the flush under way will save.
    noted: Vec<(u32, Saved)>,
}

/// Kind of a request in the device below.
pub(super) enum ZonedKind {
    /// Nothing is to be done when it comes back.
    Plain,
    /// A read of a zone of which so many bytes of the buffer are behind the data.
    Read { zeros: u64 },
    /// A write to a sequential zone.
    Write {
        index: u32,
        /// The zone's start, where it was an append.
        append: Option<u64>,
        /// As it was submitted.
        op: Op,
    },
    /// A reset of this zone, whose data are being freed.
    Reset { index: u32 },
    /// The same, of all these zones, the last first.
    ResetAll { left: Vec<u32>, outcome: Combined },
    /// The flush that this queue itself makes.
    Flush,
}

/// Zones that were being written or reset when their queue was dropped. The medium may still be at it, so they stay busy
/// until the ring is gone (`Ring::keep`).
struct LeftZones {
    table: Arc<ZoneTable>,
    zones: Mutex<Vec<u32>>,
}

impl Drop for LeftZones {
    fn drop(&mut self) {
        for &index in &*lock(&self.zones) {
            // Nobody was told that any of it is there.
            self.table.end_write(index, 0);
        }
    }
}

/// A queue whose I/O goes over `ring`.
pub(super) fn open(shared: Arc<ZonedShared>, ring: &mut Ring) -> Result<Layered<ZonedLayer>, OpenError> {
    let left = Arc::new(LeftZones { table: Arc::clone(&shared.table), zones: Mutex::default() });
    // Before the queue below, which keeps it wherever it keeps a buffer.
    ring.keep(Arc::clone(&left) as _);
    let lower = shared.lower.open_queue(ring)?;
    let layer = ZonedLayer { waiting: Vec::new(), flushing: Vec::new(), noted: Vec::new(), shared, left };
    Ok(Layered::new(layer, vec![lower], ring.depth()))
}

impl LayerNote for ZonedKind {}

impl Layer for ZonedLayer {
    type Note = ZonedKind;

    fn down(&mut self, request: &mut Request) -> Descent<ZonedKind> {
        if request.op == Op::Flush {
            return Descent::Take;
        }
        match self.start(request) {
            Ok(Some(note)) => Descent::Through { device: 0, note },
            Ok(None) => Descent::End(Ok(())),
            Err(fault) => Descent::End(Err(fault)),
        }
    }

    fn up(
        &mut self,
        completion: &mut Completion,
        kind: ZonedKind,
        _out: &mut LayerOut<ZonedKind>,
    ) -> Option<ZonedKind> {
        let token = completion.request.token;
        match kind {
            ZonedKind::Plain => {}
            ZonedKind::Read { zeros } => clear_tail(&mut completion.request, zeros),
            ZonedKind::Write { index, append, op } => {
                let written = if completion.result.is_ok() { completion.request.len } else { 0 };
                self.shared.table.end_write(index, written);
                as_submitted(completion, append, op);
                // A durable one waits for the next flush.
                return (completion.result.is_ok() && op.is_sync()).then_some(kind);
            }
            ZonedKind::Reset { index } => {
                self.shared.table.end_reset(index);
                // Space that can not be freed is only not freed: it is behind the pointer.
                let start = self.shared.table.layout().start_of(index);
                *completion = Request::zone(start, ZoneAction::Reset, token).complete(Ok(()));
            }
            ZonedKind::ResetAll { mut left, outcome } => {
                if let Some(index) = left.pop() {
                    self.shared.table.end_reset(index);
                }
                if !left.is_empty() {
                    return Some(ZonedKind::ResetAll { left, outcome });
                }
                *completion = Request::zone(0, ZoneAction::ResetAll, token).complete(outcome.result());
            }
            ZonedKind::Flush => return Some(kind),
        }
        None
    }

    fn take(&mut self, flush: Request, _out: &mut LayerOut<ZonedKind>) {
        self.waiting.push(flush);
    }

    fn back(&mut self, kind: ZonedKind, completion: Completion, out: &mut LayerOut<ZonedKind>) {
        match kind {
            ZonedKind::Flush => {
                // The data are durable: now the pointers that were noted before.
                let result = completion.result.and_then(|()| self.save(&self.noted));
                out.done.extend(self.flushing.drain(..).map(|request| request.complete(result)));
            }
            ZonedKind::ResetAll { ref left, .. } => {
                if let Some(&index) = left.last() {
                    let mut freeing = Request::zone(0, ZoneAction::ResetAll, completion.request.token);
                    self.free(&mut freeing, index);
                    out.send(0, freeing, kind);
                }
            }
            _ => self.waiting.push(completion.request),
        }
    }

    /// Starts a flush for all that wait, unless one is under way: the next covers them.
    fn turn(&mut self, out: &mut LayerOut<ZonedKind>) {
        if !self.flushing.is_empty() || self.waiting.is_empty() {
            return;
        }
        std::mem::swap(&mut self.waiting, &mut self.flushing);
        if self.shared.journal.is_some() {
            let noted = &mut self.noted;
            noted.clear();
            self.shared.table.each_unsaved(|index, saved| noted.push((index, saved)));
        }
        out.send(0, Request::flush(0), ZonedKind::Flush);
    }

    fn lost(&mut self, kind: &ZonedKind) {
        let zones: &[u32] = match kind {
            ZonedKind::Write { index, .. } | ZonedKind::Reset { index } => std::slice::from_ref(index),
            ZonedKind::ResetAll { left, .. } => left,
            ZonedKind::Plain | ZonedKind::Read { .. } | ZonedKind::Flush => return,
        };
        lock(&self.left.zones).extend(zones);
    }
}

impl ZonedLayer {
    /// Starts a request that is no flush: its kind, where it goes to the device below as it is now.
    fn start(&mut self, request: &mut Request) -> Result<Option<ZonedKind>, Fault> {
        let (index, in_zone) = self.shared.place_of(request.offset);
        let is_sequential = self.shared.table.layout().is_sequential(index);
        if let Some(action) = request.op.zone_action() {
            return self.act(request, action, index);
        }
        match request.op {
            Op::Read => {
                let readable = self.shared.table.readable(index)?;
                let zeros = beyond(readable, in_zone, request.len);
                if zeros == request.len {
                    clear_tail(request, zeros);
                    return Ok(None);
                }
                Ok(Some(ZonedKind::Read { zeros }))
            }
            Op::Discard if is_sequential => Err(Fault::NotSupported),
            op if is_sequential && op.changes() => self.write(request, index, in_zone).map(Some),
            op if op.is_append() => Err(Fault::ZoneCondition),
            _ => Ok(Some(ZonedKind::Plain)),
        }
    }

    /// A write, append or zeroing of a sequential zone.
    fn write(&mut self, request: &mut Request, index: u32, in_zone: u64) -> Result<ZonedKind, Fault> {
        let Request { op, len, .. } = *request;
        let granularity = u64::from(self.shared.table.layout().write_granularity);
        if !len.is_multiple_of(granularity) {
            return Err(Fault::Misaligned);
        }
        self.shared.may_write()?;
        let at = (!op.is_append()).then_some(in_zone);
        let at = self.shared.table.begin_write(index, at, len)?;
        let append = op.is_append().then_some(request.offset);
        request.offset = self.shared.table.layout().start_of(index) + at;
        // Durable is the pointer too: that takes a flush, when the data are written.
        request.op = if op.moves_data() { Op::Write } else { op };
        Ok(ZonedKind::Write { index, append, op })
    }

    fn act(&mut self, request: &mut Request, action: ZoneAction, index: u32) -> Result<Option<ZonedKind>, Fault> {
        let table = &self.shared.table;
        match action {
            ZoneAction::Open => table.open(index),
            ZoneAction::Close => table.close(index),
            ZoneAction::Finish => table.finish(index),
            ZoneAction::Reset => return self.reset(request, index),
            ZoneAction::ResetAll => return self.reset_all(request),
        }
        .map(|()| None)
    }

    fn reset(&mut self, request: &mut Request, index: u32) -> Result<Option<ZonedKind>, Fault> {
        if !self.shared.table.begin_reset(index)? {
            // Empty here; but not there, where the reset that made it so could not be saved.
            return self.shared.may_write().map(|()| None);
        }
        let saved = [(index, self.shared.table.saved(index))];
        if let Err(fault) = self.save(&saved) {
            self.shared.table.end_reset(index);
            return Err(fault);
        }
        self.free(request, index);
        Ok(Some(ZonedKind::Reset { index }))
    }

    fn reset_all(&mut self, request: &mut Request) -> Result<Option<ZonedKind>, Fault> {
        let layout = *self.shared.table.layout();
        let mut left = Vec::new();
        let mut outcome = Combined::new(true);
        if let Err(fault) = self.shared.may_write() {
            outcome.add(Err(fault));
        }
        for index in layout.conventional..layout.count {
            match self.shared.table.begin_reset(index) {
                Ok(true) => {
                    left.push(index);
                    outcome.add(Ok(()));
                }
                // Read-only and offline zones are passed over.
                Ok(false) | Err(Fault::ZoneCondition) => {}
                Err(fault) => outcome.add(Err(fault)),
            }
        }
        let saved: Vec<_> = (left.iter()).map(|&index| (index, self.shared.table.saved(index))).collect();
        if let Err(fault) = self.save(&saved) {
            left.iter().for_each(|&index| self.shared.table.end_reset(index));
            return Err(fault);
        }
        let Some(&index) = left.last() else { return outcome.result().map(|()| None) };
        self.free(request, index);
        Ok(Some(ZonedKind::ResetAll { left, outcome }))
    }

    fn save(&self, zones: &[(u32, Saved)]) -> Result<(), Fault> {
        match &self.shared.journal {
            Some(journal) => journal.commit(zones, &self.shared.table),
            None => Ok(()),
        }
    }

    /// Makes a reset of a zone what gives the space of it back.
    fn free(&self, reset: &mut Request, index: u32) {
        let layout = self.shared.table.layout();
        (reset.op, reset.offset, reset.len) = (Op::Discard, layout.start_of(index), layout.zone_size);
    }
}

/// How many bytes of a read of `len` at `in_zone` lie behind the first `readable` bytes of its zone.
fn beyond(readable: u64, in_zone: u64, len: u64) -> u64 {
    (in_zone + len).saturating_sub(readable.max(in_zone))
}

fn clear_tail(read: &mut Request, zeros: u64) {
    if let Some(buffer) = &mut read.data {
        let zeros = usize::try_from(zeros).unwrap_or(usize::MAX);
        let start = buffer.len().saturating_sub(zeros);
        buffer[start..].fill(0);
    }
}

/// Gives a write the shape again that it was submitted in. An append keeps the offset it was given,
/// unless it failed.
fn as_submitted(completion: &mut Completion, append: Option<u64>, op: Op) {
    let request = &mut completion.request;
    if let (Some(zone_start), Err(_)) = (append, &completion.result) {
        request.offset = zone_start;
    }
    request.op = op;
}
