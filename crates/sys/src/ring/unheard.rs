//! The results of syncs that nobody takes any more, because their ring is dropped.
//!
//! The kernel reports some failures only to the caller of that sync: a disk that could not flush its
//! cache is asked again by the next one, and may succeed. So whoever cares registers beforehand, and a
//! failed sync whose result was never taken sets a mark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::{InKernel, Io, RequestSource, RingDone};

/// Sources that want to know, each with its mark.
#[derive(Default)]
pub(super) struct Unheard(Vec<(RequestSource, Arc<AtomicBool>)>);

impl Unheard {
    pub fn add(&mut self, source: RequestSource, lost: Arc<AtomicBool>) {
        self.0.push((source, lost));
    }

    /// Sets the marks: for failures among `inboxes`, and for syncs in `held`, which the kernel still
    /// has, so that nobody will ever know.
    pub fn tell(&self, inboxes: &[VecDeque<RingDone>], held: &[Option<InKernel>]) {
        for (source, lost) in &self.0 {
            let failed = inboxes[usize::from(source.0)].iter().any(|done| is_sync(&done.io) && is_failure(done.result));
            let unknown = held.iter().flatten().any(|entry| entry.source == *source && is_sync(&entry.io));
            if failed || unknown {
                lost.store(true, Ordering::Release);
            }
        }
    }
}

/// Tells if the operation makes something durable, and can so be the one that is told of a lost write.
pub(super) fn is_sync(io: &Io) -> bool {
    matches!(io, Io::Sync { .. } | Io::Write { durable: true, .. })
}

/// Tells if a sync has failed. What was cancelled did not run, and dropping the ring cancels all that is pending. A server's
/// file system could report a lost write by that number, but a device that failed whenever a client left during a flush would be
/// worse. An interruption can be the report of a lost write that has its number, but every open file is told of that one.
fn is_failure(result: Result<usize, Errno>) -> bool {
    const HARMLESS: [Errno; 3] = [Errno::CANCELED, Errno::INTR, Errno::AGAIN];
    result.is_err_and(|errno| !HARMLESS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::{BackendChoice, HandedOver, NextEvent, Ring, SimulatedKernel, Simulation};

    /// Each sync fails with this number; what a dropped ring has pending is carried out, or is not.
    struct Failing {
        errno: Errno,
        outlives: bool,
    }

    impl SimulatedKernel for Failing {
        fn run(&self, _: &OwnedFd, _: &mut Io) -> Result<usize, Errno> {
            Err(self.errno)
        }

        fn next(&self, _: &[HandedOver]) -> NextEvent {
            NextEvent::Rest
        }

        fn outlives_its_ring(&self) -> bool {
            self.outlives
        }
    }

    fn ring(errno: Errno, outlives: bool) -> (Ring, Io, RequestSource, Arc<AtomicBool>) {
        let kernel = Box::leak(Box::new(Failing { errno, outlives }));
        let mut ring = Ring::new(BackendChoice::Simulated(Simulation::new(kernel)), 4).unwrap();
        let file = ring.add_file(Arc::new(File::open("/dev/null").unwrap().into()));
        let (source, lost) = (ring.add_source(), Arc::new(AtomicBool::new(false)));
        ring.tell_of_lost(source, Arc::clone(&lost));
        (ring, Io::Sync { file }, source, lost)
    }

    #[test]
    fn failed_sync_of_a_dropped_ring_is_told_of_and_a_cancelled_one_is_not() {
        for (errno, outlives, told) in
            [(Errno::IO, true, true), (Errno::NOSPC, true, true), (Errno::IO, false, false), (Errno::INTR, true, false)]
        {
            let (mut ring, sync, source, lost) = ring(errno, outlives);
            assert!(ring.submit(source, 1, sync).is_ok());
            assert!(!lost.load(Ordering::Acquire));
            drop(ring);
            assert_eq!(lost.load(Ordering::Acquire), told, "{errno} {outlives}");
        }
    }

    #[test]
    fn failure_that_lies_in_an_inbox_is_told_of_and_one_that_was_taken_is_its_takers() {
        for (taken, told) in [(false, true), (true, false)] {
            let (mut ring, sync, source, lost) = ring(Errno::IO, true);
            ring.submit_at_once(source, 1, sync);
            if taken {
                assert_eq!(ring.next_done(source).unwrap().result, Err(Errno::IO));
            }
            drop(ring);
            assert_eq!(lost.load(Ordering::Acquire), told);
        }
    }

    #[test]
    fn interruption_of_a_sync_is_told_and_not_tried_over() {
        let (mut ring, sync, source, _) = ring(Errno::INTR, true);
        ring.submit_at_once(source, 1, sync);
        assert_eq!(ring.next_done(source).unwrap().result, Err(Errno::INTR));
    }
}
