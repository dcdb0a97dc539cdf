//! One thread's way into a file.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cryptline_sys::{Buffer, Done, FileId, Io, Ring, Source};
use rustix::io::Errno;

use super::shared::Shared;
use super::transfer::{Kind, Transfer, buffer_of};
use crate::base::host_zones;
use crate::base::syncs::Syncs;
use crate::slab::Slab;
use crate::{Completion, Fault, Operation, Queue, Request, Submitted};

/// What the queue's own open file may not have been told, so that the keeper must be asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Of what was lost before the queue was opened: flushes are in doubt.
    OfFlushes,
    /// An interrupted sync may have used a report up: all syncs are in doubt.
    OfAll,
    /// The file is the keeper's own: it is only ever synced by asking.
    Shared,
}

pub(super) struct FileQueue {
    file: FileId,
    fd: Arc<OwnedFd>,
    source: Source,
    /// The keeper's file on this ring, and an inbox for its answers. A block device is claimed by this
    /// file, and drops cached pages that are still to be written only through it, as discarding and
    /// zeroing want it; to others it says EBUSY.
    keeper: (FileId, Source),
    doubt: Doubt,
    syncs: Syncs<Completion>,
    /// Begun and to be continued, when the ring has a place again.
    stalled: VecDeque<(usize, Option<Buffer>)>,
    in_flight: Slab<Transfer>,
    shared: Arc<Shared>,
}

impl Queue for FileQueue {
    fn submit(&mut self, ring: &mut Ring, request: Request) -> Submitted {
        if self.shared.truncated.load(Ordering::Relaxed) {
            return Submitted::Done(request.complete(Err(Fault::Truncated)));
        }
        if let (Operation::Zone(action), Some(model)) = (&request.operation, &self.shared.zones) {
            // There is no such thing in io_uring: this thread waits for it.
            let result =
                host_zones::act(&*self.fd, model, self.shared.size, request.offset, *action);
            return Submitted::Done(request.complete(result));
        }
        if self.shared.cannot_zero(&request) {
            return Submitted::Done(request.complete(Err(Fault::NotSupported)));
        }
        if request.is_sync() && self.shared.keeper.is_lost() {
            return Submitted::Done(request.complete(Err(Fault::Latched)));
        }
        if let (Operation::Flush, Doubt::Shared) = (&request.operation, self.doubt) {
            let flushed = self.ask_keeper(ring);
            let result = flushed.and_then(|()| self.shared.check_size(&self.fd));
            return Submitted::Done(request.complete(result));
        }
        if self.in_flight.is_full() {
            return Submitted::Done(request.complete(Err(Fault::Busy)));
        }
        let is_sync = request.is_sync() && self.doubt != Doubt::Shared;
        let Request {
            operation,
            offset,
            token,
        } = request;
        let (kind, buffer) = match operation {
            Operation::Read(buffer) => (Kind::Read, Some(buffer)),
            Operation::Write { data, durable } => (Kind::Write { durable }, Some(data)),
            other => (Kind::Other(other), None),
        };
        let entry = Transfer {
            kind,
            offset,
            token,
            done: 0,
            sync: is_sync.then(|| self.syncs.begin()),
        };
        let Ok(index) = self.in_flight.insert(entry) else {
            unreachable!("a place was free a moment ago")
        };
        match self.start(ring, index, buffer) {
            Ok(()) => Submitted::Pending,
            // More requests than the ring has places for: the front's bug.
            Err(buffer) => {
                let entry = self.in_flight.remove(index);
                let entry = entry.expect("the entry was made a moment ago");
                if let Some(number) = entry.sync {
                    self.syncs.end(number);
                }
                Submitted::Done(entry.into_request(buffer).complete(Err(Fault::Busy)))
            }
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        for _ in 0..self.stalled.len() {
            if let Some((index, buffer)) = self.stalled.pop_front() {
                self.go_on(ring, index, buffer);
            }
        }
        while let Some(finished) = ring.next_done(self.source) {
            if let Some(completion) = self.finish(ring, finished) {
                done.push(completion);
            }
        }
        while let Some(mut completion) = self.syncs.release() {
            if self.shared.keeper.is_lost() {
                completion.result = Err(Fault::Latched);
            }
            done.push(completion);
        }
    }

    fn measure(&mut self, _on: bool) {}

    fn crypto_time_ns(&self) -> u64 {
        0
    }
}

impl FileQueue {
    /// A queue over an open file of its own, or over the keeper's.
    pub fn new(shared: &Arc<Shared>, ring: &mut Ring, own: Option<Arc<OwnedFd>>) -> Self {
        let doubt = match own {
            Some(_) => Doubt::OfFlushes,
            None => Doubt::Shared,
        };
        let fd = own.unwrap_or_else(|| Arc::clone(shared.keeper.file()));
        let source = ring.add_source();
        ring.tell_of_lost(source, shared.keeper.mark());
        Self {
            file: ring.add_file(Arc::clone(&fd)),
            fd,
            source,
            keeper: (
                ring.add_file(Arc::clone(shared.keeper.file())),
                ring.add_source(),
            ),
            doubt,
            syncs: Syncs::new(ring.depth()),
            stalled: VecDeque::new(),
            in_flight: Slab::new(ring.depth()),
            shared: Arc::clone(shared),
        }
    }

    /// Submits what is left of a request; gives its buffer back where the ring has no place.
    fn start(
        &mut self,
        ring: &mut Ring,
        index: usize,
        buffer: Option<Buffer>,
    ) -> Result<(), Option<Buffer>> {
        let Some(entry) = self.in_flight.get_mut(index) else {
            unreachable!("the caller has just found or made this entry")
        };
        let file = match &entry.kind {
            Kind::Other(Operation::Discard { .. } | Operation::WriteZeroes { .. }) => self.keeper.0,
            _ => self.file,
        };
        let io = entry.io(file, buffer);
        if self.shared.copies_at_once(&io) {
            ring.submit_at_once(self.source, index as u64, io);
            return Ok(());
        }
        ring.submit(self.source, index as u64, io)
            .map_err(buffer_of)
    }

    /// Continues a request that was begun, as soon as there is a place for it.
    fn go_on(&mut self, ring: &mut Ring, index: usize, buffer: Option<Buffer>) {
        if let Err(buffer) = self.start(ring, index, buffer) {
            self.stalled.push_back((index, buffer));
        }
    }

    /// What a finished operation means for its request: the end, or another round.
    fn finish(&mut self, ring: &mut Ring, finished: Done) -> Option<Completion> {
        let index = usize::try_from(finished.token).ok()?;
        let entry = self.in_flight.get_mut(index)?;
        let buffer = buffer_of(finished.io);
        let len = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let verdict = match (finished.result, &entry.kind) {
            (Err(Errno::INTR | Errno::AGAIN), _) => {
                if entry.sync.is_some() {
                    // It may have been the report of a lost write that has this number.
                    self.doubt = Doubt::OfAll;
                }
                None
            }
            // Somebody else has claimed the block device and pages wait to be written: nothing was done.
            (
                Err(Errno::BUSY),
                Kind::Other(Operation::Discard { .. } | Operation::WriteZeroes { .. }),
            ) if self.shared.block_device.is_some() => Some(Err(Fault::NotSupported)),
            (Err(errno), _) if self.shared.zones.is_some() => {
                Some(Err(host_zones::fault_of(errno)))
            }
            (Err(errno), _) if entry.sync.is_some() => Some(Err(self.shared.keeper.lose(errno))),
            (Err(errno), _) => Some(Err(Fault::from(errno))),
            (Ok(_), Kind::Other(_)) => Some(Ok(())),
            (Ok(moved), kind) => {
                entry.done += moved;
                match kind {
                    _ if entry.done >= len => Some(Ok(())),
                    Kind::Read if moved == 0 || self.shared.is_off_grid(entry.done) => {
                        Some(Err(self.shared.cut_short()))
                    }
                    _ if moved == 0 => Some(Err(Fault::NoSpace)),
                    _ => None,
                }
            }
        };
        let Some(result) = verdict else {
            self.go_on(ring, index, buffer);
            return None;
        };
        let entry = self.in_flight.remove(index)?;
        let number = entry.sync;
        let request = entry.into_request(buffer);
        if !request.is_sync() {
            return Some(request.complete(result));
        }
        let result = result.and_then(|()| self.confirm(ring, &request));
        if let Some(number) = number {
            self.syncs.end(number);
        }
        match result {
            Ok(()) => {
                self.syncs.hold(request.complete(Ok(())));
                None
            }
            Err(fault) => {
                self.shared.note_failed_sync(fault);
                Some(request.complete(Err(fault)))
            }
        }
    }

    /// What else a sync that succeeded on this queue's file must be good on.
    fn confirm(&mut self, ring: &mut Ring, request: &Request) -> Result<(), Fault> {
        let is_flush = matches!(request.operation, Operation::Flush);
        let must_ask = match self.doubt {
            Doubt::None => false,
            Doubt::OfFlushes => is_flush,
            Doubt::OfAll | Doubt::Shared => true,
        };
        if must_ask {
            self.ask_keeper(ring)?;
            if self.doubt != Doubt::Shared {
                self.doubt = Doubt::None;
            }
        }
        if is_flush {
            self.shared.check_size(&self.fd)?;
        }
        Ok(())
    }

    /// Syncs the keeper's file and waits for it: once for a queue, unless it has no file of its own.
    fn ask_keeper(&self, ring: &mut Ring) -> Result<(), Fault> {
        let (file, inbox) = self.keeper;
        self.shared.keeper.ask(|| {
            ring.submit_at_once(inbox, 0, Io::Sync { file });
            let answer = ring.next_done(inbox);
            answer.map_or(Err(Errno::IO), |done| done.result.map(drop))
        })
    }
}
