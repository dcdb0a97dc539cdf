//! Requests under way in a split virtqueue.
//!
//! ```text
//! features u64, version u16, count u16, last u16, used u16
//! count x { is_inflight u8, pad 5, next u16, counter u64 }
//!
//! take      counter, then is_inflight
//! finish    next = last, last = head                 the batch is a list
//! publish   (the used index), is_inflight = 0 for each of the batch, used = the used index
//! ```
//!
//! `used` differs from the used index exactly where a batch was published and not yet noted, and the difference is its
//! length.

use cryptline_sys::{GuestFault, GuestRange};

use super::super::queue::RingError;
use super::super::shared::VhostShared;
use super::{COUNT_AT, VERSION, VERSION_AT};

const LAST_AT: usize = 12;
const USED_AT: usize = 14;
const HEADER: usize = 16;
const ENTRY: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

pub(in super::super) struct SplitInflight {
    range: VhostShared,
    size: u16,
    counter: u64,
    /// Requests in the batch that is not published yet, last first as a list in the shared memory; here as well, since
    /// others may change it there.
    batch: Vec<u16>,
}

impl SplitInflight {
    /// Goes on with what an earlier server has left, whose used index is `used`; the requests that were under way, the
    /// oldest last.
    pub fn open(range: GuestRange, size: u16, used: u16) -> Result<(Self, Vec<u16>), RingError> {
        let mut inflight =
            Self { range: VhostShared::new(range), size, counter: 0, batch: Vec::with_capacity(size.into()) };
        let is_ours = inflight.range.load16(VERSION_AT)? == VERSION && inflight.range.load16(COUNT_AT)? == size;
        if !is_ours {
            inflight.clear(used)?;
        }
        inflight.note_published(used)?;
        let left = inflight.left()?;
        Ok((inflight, left))
    }

    fn clear(&mut self, used: u16) -> Result<(), GuestFault> {
        for head in 0..self.size {
            self.range.write(entry(head), &[0; ENTRY])?;
        }
        self.range.store16(LAST_AT, 0)?;
        self.range.store16(USED_AT, used)?;
        self.range.store16(COUNT_AT, self.size)?;
        // Last: until then it counts as empty.
        self.range.store16(VERSION_AT, VERSION)
    }

    /// Notes a batch that was published when the earlier server ended.
    fn note_published(&mut self, used: u16) -> Result<(), GuestFault> {
        let noted = self.range.load16(USED_AT)?;
        let count = used.wrapping_sub(noted);
        let mut head = self.range.load16(LAST_AT)?;
        for _ in 0..count.min(self.size) {
            if head >= self.size {
                return Err(GuestFault::Outside);
            }
            self.range.write(entry(head), &[0])?;
            head = self.range.load16(entry(head) + NEXT_AT)?;
        }
        self.range.store16(USED_AT, used)
    }

    /// The requests that are under way, the oldest last.
    fn left(&mut self) -> Result<Vec<u16>, GuestFault> {
        let mut left = Vec::new();
        for head in 0..self.size {
            let mut flag = [0];
            self.range.read(entry(head), &mut flag)?;
            if flag[0] != 0 {
                let counter = self.range.load64(entry(head) + COUNTER_AT)?;
                self.counter = self.counter.max(counter.saturating_add(1));
                left.push((counter, head));
            }
        }
        left.sort_unstable_by(|one, other| other.cmp(one));
        Ok(left.into_iter().map(|(_, head)| head).collect())
    }

    pub fn take(&mut self, head: u16) -> Result<(), GuestFault> {
        self.range.store64(entry(head) + COUNTER_AT, self.counter)?;
        self.counter = self.counter.wrapping_add(1);
        self.mark(head, 1)
    }

    /// Puts a request into the batch.
    pub fn finish(&mut self, head: u16) -> Result<(), GuestFault> {
        let last = self.range.load16(LAST_AT)?;
        self.range.store16(entry(head) + NEXT_AT, last)?;
        self.range.store16(LAST_AT, head)?;
        if self.batch.len() < self.batch.capacity() {
            self.batch.push(head);
        }
        Ok(())
    }

    /// The driver knows of the whole batch: its used index is `used`.
    pub fn published(&mut self, used: u16) -> Result<(), GuestFault> {
        while let Some(head) = self.batch.pop() {
            self.mark(head, 0)?;
        }
        self.range.store16(USED_AT, used)
    }

    /// The flag shares its word with padding, which nobody uses.
    fn mark(&self, head: u16, flag: u16) -> Result<(), GuestFault> {
        self.range.store16(entry(head), flag.to_le())
    }
}

pub(super) fn entry(head: u16) -> usize {
    HEADER + ENTRY * usize::from(head)
}
