//! Commands for many tags of a queue at once (`UBLK_F_BATCH_IO`, Linux 7.0).
//!
//! ```text
//! prepare   once: memory for every tag
//! fetch     once: each of its completions lists tags whose requests have come
//! commit    all answers since the last one, with memory for the tags' next requests
//! ```
//!
//! Whoever submits sees no difference: a command for each tag goes to the ring, and comes back with the tag's next request.
//! Only here they become entries of a list, which goes to the kernel when the ring does. So a busy queue hands over one
//! operation for any number of requests. Memory stays with the ring's slots while the kernel may write to it: it does
//! so as long as its fetch has not ended.
//!
//! A commit ends as soon as it has begun, so a wait is for its end and for one thing more: alone it would end each wait
//! at once ([`Batch::to_expect`]).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::{Submitter, cqueue, opcode, types};
use rustix::io::Errno;

use super::code;
use super::queue::UblkCommand;
use crate::Buffer;

pub(super) const PREPARE: u32 = code(0x25, 16);
pub(super) const COMMIT: u32 = code(0x26, 16);
const FETCH: u32 = code(0x27, 16);
/// Elements have the place of an append, or the address of a buffer.
const HAS_PLACE: u16 = 1 << 0;
const HAS_ADDRESS: u16 = 1 << 1;
/// The group of the memory for lists of tags. A ring has one such queue.
const GROUP: u16 = 0;
/// The most tags that the kernel lists at once.
const LIST_MAX: u16 = 128;

/// Operation of a batch that has a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Prepares or commits.
    List,
    Fetch,
}

/// `struct ublk_elem_header`, and the word behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Element {
    tag: u16,
    index: u16,
    result: i32,
    word: u64,
}

const _: () = assert!(size_of::<Element>() == 16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not every tag has memory yet.
    Gathering,
    Preparing,
    /// The fetch is to be queued.
    Prepared,
    Fetching,
    /// No request comes any more, for this reason.
    Ended(Errno),
}

/// The tags of one queue on a ring.
pub(crate) struct Batch {
    device: Arc<OwnedFd>,
    queue: u16,
    copies: bool,
    stage: Stage,
    /// The ring's slots of the tags that are with the kernel or on the way there.
    slots: Box<[Option<u32>]>,
    /// Elements to be sent next, and those that the kernel reads.
    next: Vec<Element>,
    sent: Vec<Element>,
    lists: BatchLists,
    /// Commands that have ended.
    ended: VecDeque<(u32, Result<usize, Errno>)>,
    /// A wait is to end with a commit.
    is_awaited: bool,
}

impl Batch {
    pub(super) fn new(device: Arc<OwnedFd>, queue: u16, depth: u16, copies: bool) -> io::Result<Self> {
        let tags = usize::from(depth);
        Ok(Self {
            device,
            queue,
            copies,
            stage: Stage::Gathering,
            slots: vec![None; tags].into(),
            next: Vec::with_capacity(tags),
            sent: Vec::with_capacity(tags),
            lists: BatchLists::new(depth)?,
            ended: VecDeque::with_capacity(tags),
            is_awaited: false,
        })
    }

    /// Makes the memory for lists known to a ring.
    pub fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        let (address, count) = (self.lists.ring.expose_provenance() as u64, self.lists.count);
        // SAFETY: page-aligned memory for so many entries, which stays until the ring is closed: see `drop`.
        unsafe { submitter.register_buf_ring_with_flags(address, count, GROUP, 0) }
    }

    /// Takes the command of a tag, which lives in the slot until [`next_ended`](Self::next_ended) names it.
    pub fn add(&mut self, slot: u32, command: &mut UblkCommand) {
        let place = self.slots.get_mut(usize::from(command.tag)).filter(|_| command.queue == self.queue);
        let place = place.expect("a tag of this queue");
        assert!(place.is_none(), "a tag that the kernel does not have");
        *place = Some(slot);
        self.next.push(Element { tag: command.tag, index: 0, result: command.result, word: command.word() });
    }

    /// The next operation for the kernel.
    ///
    /// The memory that it points to is not changed before [`complete`](Self::complete) has had its completion.
    pub fn next_operation(&mut self) -> Option<(Part, Entry)> {
        if self.stage == Stage::Prepared {
            self.stage = Stage::Fetching;
            return Some((Part::Fetch, self.fetch()));
        }
        let code = match self.stage {
            Stage::Gathering if self.next.len() < self.slots.len() => return None,
            Stage::Gathering => PREPARE,
            _ => COMMIT,
        };
        if !self.has_next() {
            return None;
        }
        if code == PREPARE {
            self.stage = Stage::Preparing;
        }
        std::mem::swap(&mut self.next, &mut self.sent);
        Some((Part::List, self.list(code)))
    }

    /// Tells if answers can go to the kernel.
    pub fn has_next(&self) -> bool {
        !self.next.is_empty() && self.sent.is_empty()
    }

    /// Completions beyond the one that a wait is for.
    pub fn to_expect(&self) -> usize {
        // Whatever is to be done then must not wait for anything else.
        let is_of_no_use = self.stage == Stage::Fetching && self.next.is_empty() && !self.is_awaited;
        usize::from(is_of_no_use && !self.sent.is_empty())
    }

    /// Tells if the kernel has every answer. If not, a wait ends when it has.
    pub fn confirm(&mut self) -> bool {
        self.is_awaited = true;
        self.next.is_empty() && self.sent.is_empty()
    }

    /// Takes the result and flags of a completion.
    pub fn complete(&mut self, part: Part, result: i32, flags: u32) {
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.saturating_neg()));
        match part {
            Part::Fetch => self.fetched(result, flags),
            Part::List => self.listed(result),
        }
    }

    /// The next command that has ended.
    pub fn next_ended(&mut self) -> Option<(u32, Result<usize, Errno>)> {
        self.ended.pop_front()
    }

    /// The kernel has taken a list: a prepared one whole, a committed one for so many bytes.
    fn listed(&mut self, result: Result<usize, Errno>) {
        let whole = if self.stage == Stage::Preparing { 0 } else { self.sent.len() * size_of::<Element>() };
        let refusal = match result {
            Ok(bytes) if bytes == whole => None,
            // Which of them it has, nobody asks: without all of them the queue is of no use.
            Ok(_) => Some(Errno::IO),
            Err(errno) => Some(errno),
        };
        let sent = std::mem::take(&mut self.sent);
        match (refusal, self.stage) {
            (None, Stage::Preparing) => self.stage = Stage::Prepared,
            (None, Stage::Ended(reason)) => self.end_all(&sent, reason),
            (None, _) => {}
            (Some(errno), _) => {
                self.end_all(&sent, errno);
                if matches!(self.stage, Stage::Preparing) {
                    self.stage = Stage::Ended(errno);
                }
            }
        }
        self.sent = sent;
        self.sent.clear();
    }

    /// Requests have come, or none will come any more.
    fn fetched(&mut self, result: Result<usize, Errno>, flags: u32) {
        if let Some(list) = cqueue::buffer_select(flags)
            && let Ok(bytes) = result
        {
            for at in 0..bytes / size_of::<u16>() {
                let tag = self.lists.tag(list, at);
                let slot = tag.and_then(|tag| self.slots.get_mut(usize::from(tag))?.take());
                match slot {
                    Some(slot) => self.ended.push_back((slot, Ok(0))),
                    None => return self.end(Errno::PROTO),
                }
            }
            self.lists.provide(list);
        }
        if !cqueue::more(flags) {
            // There is always memory for a list, and room for its completion: there are no more lists than tags.
            self.end(result.err().unwrap_or(Errno::NODEV));
        }
    }

    /// Ends what is with the kernel. Answers that are on the way there arrive first.
    fn end(&mut self, reason: Errno) {
        self.stage = Stage::Ended(reason);
        for (tag, slot) in self.slots.iter_mut().enumerate() {
            let is_underway = |it: &Element| usize::from(it.tag) == tag;
            if slot.is_some() && !self.next.iter().chain(&self.sent).any(is_underway) {
                self.ended.extend(slot.take().map(|slot| (slot, Err(reason))));
            }
        }
    }

    fn end_all(&mut self, elements: &[Element], reason: Errno) {
        for element in elements {
            let slot = self.slots[usize::from(element.tag)].take();
            self.ended.extend(slot.map(|slot| (slot, Err(reason))));
        }
    }

    fn list(&self, code: u32) -> Entry {
        let flags = if self.copies { HAS_PLACE } else { HAS_ADDRESS };
        let count = u16::try_from(self.sent.len()).unwrap_or(u16::MAX);
        let address = self.sent.as_ptr().expose_provenance() as u64;
        let command = self.header(flags, count, size_of::<Element>());
        let entry = opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), code);
        entry.cmd(command).addr(Some(address)).build()
    }

    fn fetch(&self) -> Entry {
        let command = self.header(0, 0, size_of::<u16>());
        let entry = opcode::UringCmd16::new(types::Fd(self.device.as_raw_fd()), FETCH);
        // The group is that of an entry which names none.
        const { assert!(GROUP == 0) };
        multishot(entry.cmd(command).build().flags(Flags::BUFFER_SELECT))
    }

    /// `struct ublk_batch_io`.
    fn header(&self, flags: u16, count: u16, element: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&flags.to_ne_bytes());
        bytes[4..6].copy_from_slice(&count.to_ne_bytes());
        bytes[6] = u8::try_from(element).unwrap_or(u8::MAX);
        bytes
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let is_at_rest = matches!(self.stage, Stage::Gathering | Stage::Ended(_)) && self.sent.is_empty();
        if !is_at_rest {
            // The kernel may be on its way to it, although the ring has been closed.
            std::mem::forget((std::mem::take(&mut self.sent), std::mem::take(&mut self.lists.memory)));
        }
    }
}

/// Memory for lists of tags, which a fetch takes from a ring of its own and whoever has read them gives back there.
///
/// ```text
/// ring     16 bytes for each list: address, length, number; the tail lies in the first
/// lists    tags of 2 bytes
/// ```
struct BatchLists {
    /// The ring and the lists, which are touched by pointers alone.
    memory: Option<[Buffer; 2]>,
    ring: *mut u8,
    lists: *mut u8,
    /// A power of two, not less than the queue's tags: each list that is not read yet has one at least.
    count: u16,
    /// Tags of a list.
    len: u16,
    tail: u16,
}

// SAFETY: the pointers are into the memory, which it owns and takes along, and which only it and the kernel touch.
unsafe impl Send for BatchLists {}

impl BatchLists {
    const ENTRY: usize = 16;
    const TAIL: usize = 14;

    fn new(depth: u16) -> io::Result<Self> {
        let (count, len) = (depth.next_power_of_two(), depth.min(LIST_MAX));
        let mut ring = Buffer::alloc(usize::from(count) * Self::ENTRY)?;
        let mut lists = Buffer::alloc(usize::from(count) * usize::from(len) * size_of::<u16>())?;
        let [first, second] = [&mut ring, &mut lists].map(|it| it.as_mut_ptr());
        let memory = Some([ring, lists]);
        let mut lists = Self { memory, ring: first, lists: second, count, len, tail: 0 };
        for list in 0..count {
            lists.provide(list);
        }
        Ok(lists)
    }

    /// Where a list begins.
    fn at(&self, list: u16) -> *mut u8 {
        self.lists.wrapping_add(usize::from(list) * usize::from(self.len) * size_of::<u16>())
    }

    /// A tag of a list that the kernel has written; `None` where there is no such list, or it is shorter.
    fn tag(&self, list: u16, at: usize) -> Option<u16> {
        if list >= self.count || at >= usize::from(self.len) {
            return None;
        }
        let mut tag = [0; 2];
        // SAFETY: in the lists' memory, which nothing but the kernel writes to: not before the list is given back.
        unsafe { crate::racing::copy_out(self.at(list).add(at * size_of::<u16>()), &mut tag) };
        Some(u16::from_ne_bytes(tag))
    }

    /// Gives a list to the kernel.
    fn provide(&mut self, list: u16) {
        let place = usize::from(self.tail & (self.count - 1)) * Self::ENTRY;
        let len = u32::from(self.len) * 2;
        let address = self.at(list).expose_provenance() as u64;
        let mut entry = [0; Self::TAIL];
        entry[0..8].copy_from_slice(&address.to_ne_bytes());
        entry[8..12].copy_from_slice(&len.to_ne_bytes());
        entry[12..14].copy_from_slice(&list.to_ne_bytes());
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: in the ring's memory. The kernel reads the entry once the tail, which lies in the first entry and is
        // aligned for an atomic, is behind it; it writes to neither.
        unsafe {
            crate::racing::copy_in(&entry, self.ring.add(place));
            AtomicU16::from_ptr(self.ring.add(Self::TAIL).cast()).store(self.tail, Ordering::Release);
        }
    }
}

/// The same entry for a command with many completions.
fn multishot(mut entry: Entry) -> Entry {
    const FLAGS: usize = 28;
    const MULTISHOT: u32 = 1 << 1;
    const { assert!(size_of::<Entry>() == 64) };
    // SAFETY: an entry is the kernel's `struct io_uring_sqe`: 64 bytes of numbers, with a `u32` at this place.
    unsafe { (&raw mut entry).byte_add(FLAGS).cast::<u32>().write(MULTISHOT) };
    entry
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
