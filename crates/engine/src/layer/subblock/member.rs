//! State common to the queues of one device, and what is left of a queue that is gone.
//!
//! A dropped queue's requests can still change the medium, so its claims live on until the ring is gone (`Ring::keep`).

use std::sync::{Arc, Mutex};

use cryptline_sys::{Ring, Waker, lock};

use super::claims::{ClaimSpan, Claims};
use crate::OpenError;

/// Queues that one device can have at a time.
pub(super) const MEMBERS: usize = 1024;

/// State common to all queues of a device.
pub(super) struct ClaimTable {
    pub claims: Claims,
    /// Bytes in a sector.
    pub sector: u64,
    /// The device below takes small blocks itself: a write of part of a sector needs a claim at
    /// most, and nothing is read.
    pub overwrites: bool,
    members: Mutex<MemberIndices>,
    /// Locked only to wake somebody who sleeps.
    wakers: Box<[Mutex<Option<Waker>>]>,
}

/// Which indices of members are free.
#[derive(Default)]
struct MemberIndices {
    free: Vec<usize>,
    opened: usize,
}

impl ClaimTable {
    pub fn new(claims: Claims, sector: u64, overwrites: bool) -> Self {
        Self {
            claims,
            sector,
            overwrites,
            members: Mutex::default(),
            wakers: (0..MEMBERS).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Wakes the members that wait, but for `own`, whose queue is awake.
    pub fn wake(&self, own: usize) {
        self.claims.wake(own, |member| {
            if let Some(waker) = &*lock(&self.wakers[member]) {
                waker.wake();
            }
        });
    }
}

/// A claim in somebody's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// None was needed.
    None,
    Shared(ClaimSpan),
    /// Announced; held where the span says so.
    Exclusive(ClaimSpan),
}

impl Claim {
    /// Gives it up, or the wish for it. Tells if there was one.
    pub fn give_up(self, claims: &Claims) -> bool {
        match self {
            Self::None => return false,
            Self::Shared(mut span) => claims.unshare(&mut span),
            Self::Exclusive(mut span) => claims.withdraw(&mut span),
        }
        true
    }
}

/// A queue's place among the others. Lives as long as the queue and the ring: a request that is still
/// under way when its queue is dropped keeps its claim until the ring has ended it.
pub(super) struct Member {
    pub index: usize,
    shared: Arc<ClaimTable>,
    left: Mutex<Vec<Claim>>,
}

impl Member {
    /// A place for a queue over `ring`.
    pub fn open(shared: &Arc<ClaimTable>, ring: &mut Ring) -> Result<Arc<Self>, OpenError> {
        let waker = ring.waker().map_err(OpenError::Ring)?;
        let mut members = lock(&shared.members);
        let index = match members.free.pop() {
            Some(index) => index,
            None if members.opened < MEMBERS => {
                members.opened += 1;
                members.opened - 1
            }
            None => {
                return Err(OpenError::Memory(format!(
                    "another queue: one device in small blocks has {MEMBERS} at most"
                )));
            }
        };
        drop(members);
        *lock(&shared.wakers[index]) = Some(waker);
        shared.claims.open(index);
        let member = Arc::new(Self { index, shared: Arc::clone(shared), left: Mutex::default() });
        ring.keep(Arc::clone(&member) as _);
        Ok(member)
    }

    /// Leaves a claim behind, to be given up when the ring is gone.
    pub fn leave(&self, claim: Claim) {
        lock(&self.left).push(claim);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let claims = &self.shared.claims;
        for claim in lock(&self.left).drain(..) {
            claim.give_up(claims);
        }
        claims.close(self.index);
        *lock(&self.shared.wakers[self.index]) = None;
        self.shared.wake(self.index);
        lock(&self.shared.members).free.push(self.index);
    }
}
