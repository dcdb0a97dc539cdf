//! Requests under way in a packed virtqueue. Used elements overwrite descriptors of requests that are not over, so what
//! was taken is copied here.
//!
//! ```text
//! features u64, version u16, count u16, free u16, old_free u16
//! used u16, old_used u16, used_wrap u8, old_used_wrap u8, pad
//! count x { is_inflight u8, pad, next u16, last u16, number u16, counter u64, id u16, flags u16, length u32, address u64 }
//!
//! take      entries of the free list = the descriptors, is_inflight, free = old_free = what is left of the list
//! publish   the batch's entries in front of the free list, free, used
//!           (the used elements, the first one last)
//!           is_inflight = 0 for each of the batch, old_free = free, old_used = used
//! ```
//!
//! Fields with `old_` in their names are what the driver knows. Where `used` differs from it, the ring tells whether
//! the batch was published: then the entries between `free` and `old_free` are over, otherwise `free` and `used` go
//! back.

use cryptline_sys::{GuestFault, GuestRange};

use super::super::queue::{RingError, RingPosition};
use super::super::shared::VhostShared;
use super::{COUNT_AT, VERSION, VERSION_AT};

const FREE_AT: usize = 12;
const OLD_FREE_AT: usize = 14;
const USED_AT: usize = 16;
const HEADER: usize = 32;
const ENTRY: usize = 32;
const NEXT_AT: usize = 2;
const COUNTER_AT: usize = 8;
const REST_AT: usize = 16;
const ADDRESS_AT: usize = 24;

pub(in super::super) struct PackedInflight {
    range: VhostShared,
    size: u16,
    counter: u64,
    /// The list that each entry is in, and the last entry of each request. The same is in the shared memory, where
    /// others may change it.
    next: Vec<u16>,
    last: Vec<u16>,
    /// The first free entry; `size` where there is none.
    free: u16,
    taking: Taking,
    /// Where the next used element goes, as far as the driver knows.
    used: RingPosition,
}

/// A request that is being taken.
#[derive(Clone, Copy, Default)]
struct Taking {
    /// The entry for its next descriptor.
    next: u16,
    last: u16,
    count: u16,
}

/// A request that an earlier server had.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct LeftRequest {
    pub entry: u16,
    pub count: u16,
}

impl PackedInflight {
    /// Goes on with what an earlier server has left; the requests that were under way, the oldest last. Where there
    /// was none, the ring begins at `used`. `is_used` tells whether the driver has been given the element at a place.
    pub fn open(
        range: GuestRange,
        size: u16,
        used: RingPosition,
        is_used: impl FnMut(RingPosition) -> Result<bool, RingError>,
    ) -> Result<(Self, Vec<LeftRequest>), RingError> {
        let mut inflight = Self {
            range: VhostShared::new(range),
            size,
            counter: 0,
            next: (1..=size).collect(),
            last: vec![0; size.into()],
            free: 0,
            taking: Taking::default(),
            used,
        };
        let is_ours = inflight.range.load16(VERSION_AT)? == VERSION && inflight.range.load16(COUNT_AT)? == size;
        if !is_ours {
            inflight.clear()?;
        }
        inflight.settle(is_used)?;
        let left = inflight.left()?;
        Ok((inflight, left))
    }

    /// Where the next used element goes.
    pub fn used(&self) -> RingPosition {
        self.used
    }

    fn clear(&self) -> Result<(), GuestFault> {
        for index in 0..self.size {
            self.range.store64(entry(index), 0)?;
        }
        self.note_used(self.used)?;
        // Last: until then it counts as empty.
        self.note_free(0, 0)
    }

    /// Ends what was in the middle of being published or taken.
    fn settle(&mut self, mut is_used: impl FnMut(RingPosition) -> Result<bool, RingError>) -> Result<(), RingError> {
        let [used, old] = self.noted_used()?;
        let free = self.range.load16(FREE_AT)?;
        let mut old_free = self.range.load16(OLD_FREE_AT)?;
        self.used = old;
        if used != old && is_used(old)? {
            self.end_batch(free, old_free)?;
            self.range.store16(OLD_FREE_AT, free)?;
            (self.used, old_free) = (used, free);
        } else {
            self.range.store16(FREE_AT, old_free)?;
        }
        self.note_used(self.used)?;
        if old_free < self.size {
            // A request that was not taken as a whole is still in the ring.
            self.range.store16(entry(old_free), 0)?;
        }
        Ok(())
    }

    /// The noted places of the next used element: this server's, and what the driver knows.
    fn noted_used(&self) -> Result<[RingPosition; 2], RingError> {
        let word = self.range.load64(USED_AT)?.to_ne_bytes();
        let place = |at: usize, wrap: usize| {
            let index = u16::from_ne_bytes([word[at], word[at + 1]]);
            let wrap = word[wrap] != 0;
            RingPosition { index, wrap }
        };
        let places = [place(0, 4), place(2, 5)];
        if places.iter().any(|place| place.index >= self.size) {
            return Err(RingError::Inflight);
        }
        Ok(places)
    }

    /// All requests of a batch are over: their entries are those between the two ends.
    fn end_batch(&self, free: u16, old_free: u16) -> Result<(), RingError> {
        let mut index = free;
        for _ in 0..=self.size {
            if index == old_free {
                return Ok(());
            }
            if index >= self.size {
                break;
            }
            self.range.store16(entry(index), 0)?;
            index = self.range.load16(entry(index) + NEXT_AT)?;
        }
        Err(RingError::Inflight)
    }

    /// The requests that are under way, the oldest last; all other entries are free again.
    fn left(&mut self) -> Result<Vec<LeftRequest>, RingError> {
        let mut left = Vec::new();
        for index in 0..self.size {
            let [flag, _, _, _, _, _, low, high] = self.range.load64(entry(index))?.to_ne_bytes();
            if flag != 0 {
                let counter = self.range.load64(entry(index) + COUNTER_AT)?;
                self.counter = self.counter.max(counter.saturating_add(1));
                let count = u16::from_ne_bytes([low, high]);
                left.push((counter, LeftRequest { entry: index, count }));
            }
        }
        let mut is_free = vec![true; self.size.into()];
        for (_, request) in &left {
            self.claim(*request, &mut is_free)?;
        }
        self.link_free(&is_free)?;
        left.sort_unstable_by_key(|(counter, left)| std::cmp::Reverse((*counter, left.entry)));
        Ok(left.into_iter().map(|(_, left)| left).collect())
    }

    /// Each entry of a request is its own.
    fn claim(&mut self, request: LeftRequest, is_free: &mut [bool]) -> Result<(), RingError> {
        let mut index = request.entry;
        for step in 0..request.count {
            let is_ours = is_free.get_mut(usize::from(index));
            match is_ours {
                Some(is_free) if *is_free => *is_free = false,
                _ => return Err(RingError::Inflight),
            }
            self.last[usize::from(request.entry)] = index;
            if step + 1 < request.count {
                let next = self.range.load16(entry(index) + NEXT_AT)?;
                self.next[usize::from(index)] = next;
                index = next;
            }
        }
        if request.count == 0 {
            return Err(RingError::Inflight);
        }
        Ok(())
    }

    fn link_free(&mut self, is_free: &[bool]) -> Result<(), RingError> {
        let mut free = self.size;
        for index in (0..self.size).rev() {
            if is_free[usize::from(index)] {
                self.link(index, free)?;
                free = index;
            }
        }
        self.free = free;
        self.note_free(free, free)?;
        Ok(())
    }

    fn link(&mut self, index: u16, next: u16) -> Result<(), GuestFault> {
        self.next[usize::from(index)] = next;
        self.range.store16(entry(index) + NEXT_AT, next)
    }

    /// One word, with the number of entries.
    fn note_free(&self, free: u16, old_free: u16) -> Result<(), GuestFault> {
        let word = words([VERSION, self.size, free, old_free]);
        self.range.store64(VERSION_AT, word)
    }

    /// One word: the driver knows it as well.
    fn note_used(&self, used: RingPosition) -> Result<(), GuestFault> {
        self.note_both(used, used)
    }

    fn note_both(&self, used: RingPosition, old: RingPosition) -> Result<(), GuestFault> {
        let wraps = u16::from_ne_bytes([used.wrap.into(), old.wrap.into()]);
        let word = words([used.index, old.index, wraps, 0]);
        self.range.store64(USED_AT, word)
    }

    /// Begins to take a request.
    pub fn begin(&mut self) {
        self.taking = Taking { next: self.free, last: self.free, count: 0 };
    }

    /// One more descriptor of the request: its address, and its other half as it is in the ring.
    pub fn note(&mut self, address: u64, rest: u64) -> Result<(), RingError> {
        let index = self.taking.next;
        let next = self.next.get(usize::from(index)).copied();
        let next = next.ok_or(RingError::Inflight)?;
        // Length, id and flags in the ring; id, flags and length here.
        self.range.store64(entry(index) + REST_AT, rest.rotate_left(32))?;
        self.range.store64(entry(index) + ADDRESS_AT, address)?;
        self.taking = Taking { next, last: index, count: self.taking.count + 1 };
        Ok(())
    }

    /// The request is taken; its entry.
    pub fn take(&mut self) -> Result<u16, GuestFault> {
        let Taking { next, last, count } = self.taking;
        let head = self.free;
        self.range.store64(entry(head) + COUNTER_AT, self.counter)?;
        self.counter = self.counter.wrapping_add(1);
        let is_inflight = u16::from_ne_bytes([1, 0]);
        let first = words([is_inflight, self.next[usize::from(head)], last, count]);
        self.range.store64(entry(head), first)?;
        self.note_free(next, next)?;
        self.last[usize::from(head)] = last;
        self.free = next;
        Ok(head)
    }

    /// A descriptor of a request that an earlier server had: its address, its other half, and the next one's entry.
    pub fn descriptor(&self, index: u16) -> Result<(u64, u64, u16), GuestFault> {
        let rest = self.range.load64(entry(index) + REST_AT)?.rotate_left(32);
        let address = self.range.load64(entry(index) + ADDRESS_AT)?;
        Ok((address, rest, self.next[usize::from(index)]))
    }

    /// These requests are about to be published, after which the next used element goes to `used`.
    pub fn announce(&mut self, batch: impl Iterator<Item = u16>, used: RingPosition) -> Result<(), GuestFault> {
        for head in batch {
            self.link(self.last[usize::from(head)], self.free)?;
            self.free = head;
        }
        self.range.store16(FREE_AT, self.free)?;
        self.note_both(used, self.used)
    }

    /// They were.
    pub fn published(&mut self, batch: impl Iterator<Item = u16>, used: RingPosition) -> Result<(), GuestFault> {
        for head in batch {
            self.range.store16(entry(head), 0)?;
        }
        self.range.store16(OLD_FREE_AT, self.free)?;
        self.used = used;
        self.note_used(used)
    }
}

fn words(words: [u16; 4]) -> u64 {
    let [[a, b], [c, d], [e, f], [g, h]] = words.map(u16::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

pub(super) fn entry(index: u16) -> usize {
    HEADER + ENTRY * usize::from(index)
}
