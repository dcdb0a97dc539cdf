//! The claims of `layer/subblock` under every interleaving that the memory model allows, up to a number of preemptions.
//!
//! The very source is taken in once more, over loom's atomics in the place of the standard ones. A
//! sector is a cell that tells when two threads are in it at once of which one writes; a sleep from which
//! nobody wakes is a deadlock that loom sees.

#[path = "../../src/layer/subblock/claims.rs"]
#[allow(dead_code)]
mod claims;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use claims::{ClaimSpan, Claims};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

/// Two sectors, two queues and what they share.
struct Device {
    claims: Claims,
    /// The claim of who rewrites the first sector from the beginning, if somebody does.
    held: ClaimSpan,
    sectors: [UnsafeCell<()>; 2],
    wakers: [Notify; 3],
}

impl Device {
    fn new(slots: usize, members: usize) -> Self {
        let claims = Claims::new(slots, members);
        (0..members).for_each(|member| claims.open(member));
        let held = claims.span(0, 1);
        Self { claims, held, sectors: [(); 2].map(UnsafeCell::new), wakers: [(); 3].map(|()| Notify::new()) }
    }

    /// Somebody rewrites the first sector, and a member has tried in vain to.
    fn held_and_wanted_by(mut self, member: usize) -> Self {
        self.claims.announce();
        assert!(self.claims.exclude(&mut self.held).is_ok());
        self.claims.announce();
        let mut span = self.claims.span(0, 1);
        assert!(self.claims.wait(member) && self.claims.exclude(&mut span).is_err());
        self
    }

    /// Sleeps as a queue does, with one more try after it has said so.
    fn until(&self, member: usize, mut attempt: impl FnMut() -> bool) {
        while !attempt() {
            if !self.claims.wait(member) {
                self.wakers[member].wait();
            }
        }
    }

    fn wake(&self, own: usize) {
        self.claims.wake(own, |member| self.wakers[member].notify());
    }

    /// Reads, changes and writes a sector.
    fn rewrite(&self, member: usize, sector: u64) {
        self.claims.announce();
        let mut span = self.claims.span(sector, 1);
        self.until(member, || self.claims.exclude(&mut span).is_ok());
        self.sectors[usize::try_from(sector).unwrap()].with_mut(|_| ());
        self.claims.withdraw(&mut span);
        self.wake(member);
    }

    /// Reads sectors from the first on.
    fn read(&self, member: usize, count: u64) {
        let sectors = &self.sectors[..usize::try_from(count).unwrap()];
        let visit = || sectors.iter().for_each(|sector| sector.with(|_| ()));
        if self.claims.is_quiet() {
            if self.claims.enter_quietly(member) {
                visit();
                self.claims.leave_quietly(member);
                self.wake(member);
                return;
            }
            self.wake(member);
        }
        let mut span = self.claims.span(0, count);
        self.until(member, || self.claims.share(&mut span).is_ok());
        visit();
        self.claims.unshare(&mut span);
        self.wake(member);
    }
}

/// Runs `work` once in each member, on a thread of its own, in every order.
fn in_every_order(slots: usize, work: &'static [fn(&Device, usize)]) {
    in_every_order_of(|it| it, slots, work);
}

/// The same on a device that is made otherwise.
fn in_every_order_of(made: fn(Device) -> Device, slots: usize, work: &'static [fn(&Device, usize)]) {
    // More threads make many more orders, so they get fewer preemptions.
    in_orders_of(if work.len() > 2 { 1 } else { 2 }, made, slots, work);
}

/// The same with at most `preemptions` in an order: switches to another thread while the first could go on.
fn in_orders_of(preemptions: usize, made: fn(Device) -> Device, slots: usize, work: &'static [fn(&Device, usize)]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let device = Arc::new(made(Device::new(slots, work.len())));
        let threads: Vec<_> = (work.iter().enumerate())
            .map(|(member, work)| {
                let device = Arc::clone(&device);
                thread::spawn(move || work(&device, member))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn two_rewrites_of_a_sector_take_turns() {
    in_every_order(2, &[|it, member| it.rewrite(member, 0), |it, member| it.rewrite(member, 0)]);
}

#[test]
fn rewrite_excludes_requests_that_came_without_claims() {
    in_every_order(2, &[|it, member| it.rewrite(member, 0), |it, member| it.read(member, 2)]);
}

#[test]
fn second_request_without_claims_is_waited_for_too() {
    in_every_order(
        2,
        &[
            |it, member| it.rewrite(member, 1),
            |it, member| {
                it.read(member, 2);
                it.read(member, 2);
            },
        ],
    );
}

#[test]
fn one_lock_for_the_device_excludes_across_sectors() {
    in_every_order(1, &[|it, member| it.rewrite(member, 1), |it, member| it.read(member, 1)]);
}

const REWRITES_AND_A_READER: &[fn(&Device, usize)] = &[
    |it, member| {
        it.rewrite(member, 1);
        it.rewrite(member, 0);
    },
    |it, member| it.read(member, 2),
];

#[test]
fn reader_of_two_sectors_gets_past_one_who_rewrites_both() {
    in_orders_of(1, |it| it, 2, REWRITES_AND_A_READER);
}

#[test]
fn nightly_reader_of_two_sectors_gets_past_one_who_rewrites_both() {
    in_every_order(2, REWRITES_AND_A_READER);
}

#[test]
fn two_rewrites_and_a_reader_of_both_sectors_all_come_to_their_end() {
    in_every_order(
        2,
        &[|it, member| it.rewrite(member, 0), |it, member| it.rewrite(member, 1), |it, member| it.read(member, 2)],
    );
}

/// A queue waits, and meanwhile tells the others of a claim that it has given up: one of them is just about to say that
/// it waits as well, and cannot have the sector before the first has had it.
#[test]
fn queue_that_wakes_another_one_is_not_forgotten_itself() {
    const GIVE_UP: fn(&Device, usize) = |it, member| {
        let mut held = it.held;
        it.claims.withdraw(&mut held);
        it.wake(member);
    };
    const SLEEP: fn(&Device, usize) = |it, member| {
        it.wake(member);
        it.wakers[member].wait();
    };
    const SHARE: fn(&Device, usize) = |it, member| {
        let mut span = it.claims.span(0, 1);
        if it.claims.wait(member) && it.claims.share(&mut span).is_ok() {
            it.claims.unshare(&mut span);
            it.wake(member);
        }
    };
    in_every_order_of(|it| it.held_and_wanted_by(1), 1, &[GIVE_UP, SLEEP, SHARE]);
}

#[test]
fn reader_without_any_claim_is_caught() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        in_orders_of(1, |it| it, 2, &[|it, member| it.rewrite(member, 0), |it, _| it.sectors[0].with(|_| ())]);
    }));
    assert!(found.is_err(), "loom saw nothing wrong");
}
