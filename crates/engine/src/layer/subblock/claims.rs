//! Claims on sectors: shared unless in conflict.
//!
//! ```text
//! whole sectors        nobody rewrites ─► one load of `rewriters`, and on
//!                      somebody does   ─► a shared claim on each sector's slot
//! part of a sector     rewriters + 1, the exclusive claim on its slot, and then wait until no member has
//!                      requests under way that hold no claims
//! ```
//!
//! A rewrite (read, change, write back) excludes everything else from its sector. Whole sectors need
//! no such thing among themselves, and mostly nobody rewrites; so their requests do not enter
//! themselves anywhere. A queue only raises a flag of its own, as a *member*, while it has such
//! requests under way. Whoever begins to rewrite first says so in `rewriters`, from when on
//! nobody enters without claims, and then waits for the flags to fall. Those requests are on the medium
//! already and wait for nobody, so that ends. (The kernel's `percpu_rw_semaphore` is the same idea.)
//!
//! Slots are few and sectors many: those that share a slot share its claims, which is never wrong. A
//! table of one slot is one lock for the whole device.
//!
//! Nobody waits in here. Who does not get a claim is told so ([`NotGranted`]), raises its own
//! `waiting`, tries everything once more, and sleeps; who gives up a claim finds the members to be woken.
//! Requests of many sectors take slots in ascending order and keep them; a rewrite has one slot and
//! then waits only for what is on the medium. So there is no circle of waiting.
//!
//! All orderings that matter are between a store of one's own and a load of another's word, on two
//! threads at once: hence the fences. `tests/it/claims_loom.rs` plays the interleavings, up to a number of preemptions.
//!
//! Without any one of the four fences it finds a lost write or a lost wake-up.

use super::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// Somebody rewrites. The bits below count shared claims.
const EXCLUSIVE: u32 = 1 << 31;
/// Somebody wants to rewrite: no new shared claims, so that it comes to its turn.
const WANTED: u32 = 1 << 30;

/// The claims on a device's sectors.
pub struct Claims {
    slots: Box<[AtomicU32]>,
    /// Rewrites under way or waiting.
    rewriters: AtomicUsize,
    /// Members whose queue waits for a claim, or is about to say so: never fewer than there are flags.
    waiters: AtomicUsize,
    members: Box<[ClaimMember]>,
    /// Members that are or were in use: those below this one.
    opened: AtomicUsize,
}

/// State of one queue that the others see. On a pair of cache lines of its own: processors fetch pairs.
#[repr(align(128))]
struct ClaimMember {
    /// Set while the queue has requests under way that hold no claims.
    unclaimed: AtomicBool,
    waiting: AtomicBool,
}

/// Why a claim was not given. All that was known must be looked at again before the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGranted {
    /// Somebody else holds the sector, or wants it.
    Claimed,
    /// Requests without claims are still under way.
    Draining,
}

/// The sectors a request touches, and how many slots of them it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSpan {
    first: usize,
    count: usize,
    held: usize,
}

impl Claims {
    /// Claims in `slots` slots (a power of two), for at most `members` queues.
    pub fn new(slots: usize, members: usize) -> Self {
        assert!(slots.is_power_of_two(), "slots are found by masking");
        Self {
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            rewriters: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            members: (0..members)
                .map(|_| ClaimMember { unclaimed: AtomicBool::new(false), waiting: AtomicBool::new(false) })
                .collect(),
            opened: AtomicUsize::new(0),
        }
    }

    /// Counts a member in. To be called before its first use.
    pub fn open(&self, member: usize) {
        self.opened.fetch_max(member + 1, Ordering::AcqRel);
    }

    /// Ends a member's use: nothing of its queue is under way, and it waits no more.
    pub fn close(&self, member: usize) {
        self.leave_quietly(member);
        if self.members[member].waiting.swap(false, Ordering::AcqRel) {
            self.waiters.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The slots of `count` sectors from `first` on.
    pub fn span(&self, first: u64, count: u64) -> ClaimSpan {
        let slots = self.slots.len();
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(slots);
        let first = usize::try_from(first & (slots as u64 - 1)).unwrap_or(0);
        // Around the end of the table it would not be ascending: take all of them, from the first on.
        let (first, count) = if first + count > slots { (0, slots) } else { (first, count) };
        ClaimSpan { first, count, held: 0 }
    }

    /// Tells if requests for whole sectors go without claims just now.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        // Acquire: what a rewrite wrote is there for who sees that it is over.
        self.rewriters.load(Ordering::Acquire) == 0
    }

    /// Raises this member's flag: requests without claims are under way. `false`, and no flag, where
    /// somebody rewrites; then [`wake`](Self::wake) must follow, as for any claim that is given up.
    pub fn enter_quietly(&self, member: usize) -> bool {
        self.members[member].unclaimed.store(true, Ordering::Relaxed);
        // The flag, then the look at `rewriters`: a rewriter does the two the other way round.
        fence(Ordering::SeqCst);
        let entered = self.is_quiet();
        if !entered {
            self.leave_quietly(member);
        }
        entered
    }

    /// Lowers this member's flag: the last request without claims is over.
    pub fn leave_quietly(&self, member: usize) {
        self.members[member].unclaimed.store(false, Ordering::Release);
    }

    /// Takes the shared claims of `span` that are still missing.
    pub fn share(&self, span: &mut ClaimSpan) -> Result<(), NotGranted> {
        while span.held < span.count {
            let slot = &self.slots[span.first + span.held];
            let taken = slot.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
                (word & (EXCLUSIVE | WANTED) == 0).then(|| word + 1)
            });
            if taken.is_err() {
                return Err(NotGranted::Claimed);
            }
            span.held += 1;
        }
        Ok(())
    }

    /// Gives up what is held of `span`.
    pub fn unshare(&self, span: &mut ClaimSpan) {
        for slot in &self.slots[span.first..span.first + span.held] {
            slot.fetch_sub(1, Ordering::Release);
        }
        span.held = 0;
    }

    /// Announces a rewrite; to be called once for each, before the first try.
    pub fn announce(&self) {
        self.rewriters.fetch_add(1, Ordering::AcqRel);
        // See `enter_quietly`.
        fence(Ordering::SeqCst);
    }

    /// Takes the exclusive claim on a sector, unless `span` holds it already, and then looks whether
    /// requests without claims are still under way.
    pub fn exclude(&self, span: &mut ClaimSpan) -> Result<(), NotGranted> {
        if span.held == 0 {
            self.take(&self.slots[span.first])?;
            span.held = 1;
        }
        let is_drained = |member: &ClaimMember| !member.unclaimed.load(Ordering::Acquire);
        if self.opened().iter().all(is_drained) { Ok(()) } else { Err(NotGranted::Draining) }
    }

    fn take(&self, slot: &AtomicU32) -> Result<(), NotGranted> {
        let taken =
            slot.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| (word & !WANTED == 0).then_some(EXCLUSIVE));
        if taken.is_err() {
            slot.fetch_or(WANTED, Ordering::Relaxed);
            return Err(NotGranted::Claimed);
        }
        Ok(())
    }

    /// Ends a rewrite, or the wish for one.
    pub fn withdraw(&self, span: &mut ClaimSpan) {
        let slot = &self.slots[span.first];
        match span.held {
            // Others that want it too say so again when they try again.
            0 => slot.fetch_and(!WANTED, Ordering::Relaxed),
            _ => slot.fetch_and(!EXCLUSIVE, Ordering::Release),
        };
        span.held = 0;
        self.rewriters.fetch_sub(1, Ordering::Release);
    }

    /// Says that this member's queue will sleep until it is woken. Where this is news (`true`), it must
    /// try everything once more before it sleeps.
    #[must_use]
    pub fn wait(&self, member: usize) -> bool {
        // Counted before the flag is up: who lowers it counts it out, and must not count out another one.
        self.waiters.fetch_add(1, Ordering::AcqRel);
        let is_news = !self.members[member].waiting.swap(true, Ordering::AcqRel);
        if is_news {
            // The wish, then the look at the claims: `wake` comes after the claims have changed.
            fence(Ordering::SeqCst);
        } else {
            self.waiters.fetch_sub(1, Ordering::AcqRel);
        }
        is_news
    }

    /// To be called after claims were given up: calls `wake` with each member that waits, but for `own`,
    /// whose queue is awake and tries again by itself.
    #[inline]
    pub fn wake(&self, own: usize, wake: impl FnMut(usize)) {
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.wake_all(own, wake);
        }
    }

    /// Tells if a queue other than this member's waits for a claim.
    pub fn others_wait(&self, member: usize) -> bool {
        let own = self.members[member].waiting.load(Ordering::Relaxed);
        self.waiters.load(Ordering::Relaxed) > usize::from(own)
    }

    fn opened(&self) -> &[ClaimMember] {
        &self.members[..self.opened.load(Ordering::Acquire)]
    }

    #[cold]
    fn wake_all(&self, own: usize, mut wake: impl FnMut(usize)) {
        for (member, state) in self.opened().iter().enumerate() {
            let waits = member != own && state.waiting.load(Ordering::Relaxed);
            if waits && state.waiting.swap(false, Ordering::AcqRel) {
                self.waiters.fetch_sub(1, Ordering::AcqRel);
                wake(member);
            }
        }
    }
}
