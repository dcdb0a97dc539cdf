//! When a successful `fdatasync` or `RWF_DSYNC` may be believed.
//!
//! Linux notes in the file's inode that a write out of the page cache failed, and counts
//! (`errseq_t`, lib/errseq.c). Each open file remembers up to where it has been told:
//!
//! ```text
//! opened before the failure      told by its next sync, whatever others were told
//! opened after it                told only if nobody was told before it was opened
//! told already                   not told again: the next sync succeeds, and the bytes are gone
//! ```
//!
//! A durable write is a sync too: it can be told of earlier writes, and uses the report up. So:
//!
//! 1. Every queue has an open file of its own. Only its own syncs can use up its reports.
//! 2. Of syncs that overlap on one open file one is told and the other succeeds, in any order
//!    ([`Syncs`]): a success is given out when all syncs that were under way at its end have ended,
//!    and only if none has ever failed.
//! 3. A queue is opened late. What was lost and reported to somebody before that is known to the
//!    [`Keeper`], an open file from before the first write that no queue uses: a queue's first flush
//!    must be good on it too, in turns, with the mark set before the next asks. From then on the
//!    queue's own file misses nothing, so one question is enough.
//! 4. A failed sync marks the device: nothing is called durable any more. So does one whose queue is gone
//!    before its result was taken.
//!
//! A durable write that finds no room has one number for two things: the write was refused, of which its sync was never
//! made, or the sync was told of earlier writes that found none. The keeper tells them apart: no queue's sync takes its
//! reports. If its sync succeeds now, nothing was lost, so the write was refused whole and nothing is marked.
//!
//! A durable write promises only itself, and that is written after its queue was opened, so it does
//! not need 3. Where a queue can have no file of its own (`/proc` is not there), it uses the
//! keeper's, and each of its syncs is a question to the keeper: one at a time, for all such queues. A write of such a
//! queue that finds no room marks the device, durable or not: some file systems (NFS) tell of earlier writes by it, and
//! then the keeper's report is used up. Those that are known to refuse it first mark nothing.
//!
//! The question of rule 3 is an `fdatasync`. `sync_file_range` would ask without writing, but examines the page cache
//! of the open file itself; a file in an overlay (a container's) has none, so the answer there is yes although data is
//! lost. After the queue's own sync little is left to write, and a client that never flushes pays nothing.
//! `tests/it/lost_writes.rs` has a real kernel lose writes in ext4, under an overlay and on a block device.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_sys::InTurn;
use rustix::io::Errno;

use crate::Fault;

/// The open file that was there before any write, and what all queues know together.
pub(super) struct Keeper {
    file: Arc<OwnedFd>,
    asking: InTurn<()>,
    lost: Arc<AtomicBool>,
}

impl Keeper {
    pub fn new(file: OwnedFd) -> Self {
        Self { file: Arc::new(file), asking: InTurn::new(()), lost: Arc::default() }
    }

    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Tells if a sync has failed since the device was opened.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The mark itself: for rings that end before a sync's result was taken.
    pub fn mark(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.lost)
    }

    /// Notes that a sync has failed.
    pub fn lose(&self, errno: Errno) -> Fault {
        self.lost.store(true, Ordering::Release);
        // Neither a refusal nor want of room for one write, whatever the number: it may be the report of earlier writes.
        Fault::Io(errno)
    }

    /// Syncs the keeper's file by `sync`, alone.
    pub fn ask(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Fault> {
        self.asking.with(|()| {
            if self.is_lost() {
                return Err(Fault::Latched);
            }
            sync().map_err(|errno| self.lose(errno))
        })
    }
}

/// The syncs of one open file: those under way, and successes that wait for them.
pub(super) struct Syncs<T> {
    /// The oldest one under way, or the next one where there is none.
    oldest: u64,
    /// From the oldest on, whether each has ended.
    ended: VecDeque<bool>,
    /// Successes, each with the first sync that it need not wait for.
    held: VecDeque<(u64, T)>,
}

impl<T> Syncs<T> {
    pub fn new() -> Self {
        Self { oldest: 0, ended: VecDeque::new(), held: VecDeque::new() }
    }

    /// Begins a sync; its number.
    pub fn begin(&mut self) -> u64 {
        self.ended.push_back(false);
        self.next_number() - 1
    }

    /// Ends the sync of this number.
    pub fn end(&mut self, number: u64) {
        let place = usize::try_from(number - self.oldest).ok();
        if let Some(ended) = place.and_then(|place| self.ended.get_mut(place)) {
            *ended = true;
        }
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.oldest += 1;
        }
    }

    /// Keeps the success of a sync that has just ended until those under way now have ended.
    pub fn hold(&mut self, success: T) {
        self.held.push_back((self.next_number(), success));
    }

    /// The next success that has nothing to wait for.
    pub fn release(&mut self) -> Option<T> {
        let (until, _) = self.held.front()?;
        if *until > self.oldest {
            return None;
        }
        self.held.pop_front().map(|(_, success)| success)
    }

    fn next_number(&self) -> u64 {
        self.oldest + self.ended.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_waits_for_what_was_under_way_at_its_end_and_for_nothing_later() {
        let mut syncs = Syncs::new();
        let [a, b, c] = [(); 3].map(|()| syncs.begin());
        syncs.end(b);
        syncs.hold('b');
        let d = syncs.begin();
        assert_eq!(syncs.release(), None);
        syncs.end(a);
        syncs.hold('a');
        assert_eq!(syncs.release(), None);
        // The last that was under way when `b` ended. `d` began later: it delays `a` only.
        syncs.end(c);
        assert_eq!(syncs.release(), Some('b'));
        assert_eq!(syncs.release(), None);
        syncs.end(d);
        assert_eq!(syncs.release(), Some('a'));
        assert_eq!(syncs.release(), None);
    }

    #[test]
    fn success_that_overlaps_nothing_does_not_wait() {
        let mut syncs = Syncs::new();
        for round in 0..3 {
            let number = syncs.begin();
            syncs.end(number);
            syncs.hold(round);
            assert_eq!(syncs.release(), Some(round));
        }
    }

    #[test]
    fn keeper_that_was_told_once_never_vouches_again() {
        let file = tempfile::tempfile().unwrap();
        let keeper = Keeper::new(file.into());
        assert_eq!(keeper.ask(|| Ok(())), Ok(()));
        assert_eq!(keeper.ask(|| Err(Errno::NOSPC)), Err(Fault::Io(Errno::NOSPC)));
        let unasked = keeper.ask(|| unreachable!("the answer is known"));
        assert_eq!(unasked, Err(Fault::Latched));
        assert!(keeper.is_lost());
    }

    #[test]
    fn mark_and_file_are_the_keepers_own() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let keeper = Keeper::new(file);
        assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&**keeper.file()), number);
        assert!(!keeper.is_lost());
        // As a ring does that ends before a result was taken.
        keeper.mark().store(true, Ordering::Relaxed);
        assert!(keeper.is_lost());
        assert_eq!(keeper.ask(|| unreachable!("the answer is known")), Err(Fault::Latched));
    }

    #[test]
    fn sync_that_ends_twice_or_was_never_begun_moves_nothing() {
        let mut syncs = Syncs::new();
        let [a, b] = [(); 2].map(|()| syncs.begin());
        syncs.end(b + 1);
        syncs.end(b);
        syncs.hold('b');
        syncs.end(b);
        assert_eq!(syncs.release(), None, "the first is under way");
        syncs.end(a);
        assert_eq!(syncs.release(), Some('b'));
        assert_eq!(syncs.begin(), 2);
    }

    #[test]
    fn error_of_a_sync_is_never_a_refusal() {
        let file = tempfile::tempfile().unwrap();
        let keeper = Keeper::new(file.into());
        for errno in [Errno::NOTSUP, Errno::NOSYS, Errno::NOSPC, Errno::INVAL] {
            let fault = keeper.lose(errno);
            assert!(!fault.is_refusal() && fault != Fault::NoSpace, "{errno}");
            assert_ne!(fault.errno(), Errno::NOSPC, "a client would wait for room");
        }
    }
}
