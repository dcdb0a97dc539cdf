//! Split rings: what drivers may do, and what hostile ones try.

use cryptline_sys::GuestFault;
use rustix::fs::ftruncate;

use super::super::guest::{GUEST, Guest, MEMORY, USER};
use super::*;

const SIZE: u16 = 8;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const INFLIGHT: u64 = 0x3000;
/// An indirect table.
const TABLE: u64 = 0x4000;

impl Guest {
    /// Descriptor `index` of the table at `table`.
    fn link(&self, table: u64, index: u16, bytes: (u64, u32), flags: u16, next: u16) {
        self.describe(table + 16 * u64::from(index), bytes, [flags, next]);
    }

    /// Makes heads available from `base` on.
    fn offer(&self, base: u16, heads: &[u16]) {
        for (step, head) in (0..).zip(heads) {
            let index = base.wrapping_add(step);
            self.set16(AVAILABLE + 4 + 2 * u64::from(index % SIZE), *head);
        }
        let count = u16::try_from(heads.len()).unwrap();
        self.set16(AVAILABLE + 2, base.wrapping_add(count));
    }

    fn layout(&self) -> VirtqueueLayout {
        VirtqueueLayout {
            size: SIZE,
            descriptors: USER + DESCRIPTORS,
            available: USER + AVAILABLE,
            used: USER + USED,
            base: 0,
            is_packed: false,
            event_idx: true,
            indirect: true,
        }
    }

    fn ring(&self) -> SplitRing {
        SplitRing::open(self.layout(), &self.memory, None).unwrap()
    }

    fn inflight(&self) -> GuestRange {
        self.part(INFLIGHT, 512)
    }

    fn ring_with_inflight(&self) -> SplitRing {
        SplitRing::open(self.layout(), &self.memory, Some(self.inflight())).unwrap()
    }

    /// Returns what becomes of the one chain that is offered.
    fn walk(&self) -> Result<DescriptorChain, RingError> {
        self.walk_in(&mut self.ring())
    }

    fn walk_in(&self, ring: &mut SplitRing) -> Result<DescriptorChain, RingError> {
        let mut chain = DescriptorChain::new();
        assert!(ring.next(&self.memory, &mut chain)?);
        Ok(chain)
    }
}

/// A chain of a readable and a writable segment.
fn simple(guest: &Guest, head: u16) {
    let next = (head + 1) % SIZE;
    guest.link(DESCRIPTORS, head, (GUEST + 0x8000, 16), NEXT, next);
    guest.link(DESCRIPTORS, next, (GUEST + 0x9000, 513), WRITE, 0);
}

#[test]
fn chain_is_read_and_written_across_its_segments() {
    let guest = Guest::new();
    let table = GUEST + TABLE;
    guest.link(DESCRIPTORS, 3, (table, 5 * 16), INDIRECT, 0);
    guest.link(TABLE, 0, (GUEST + 0x8000, 3), NEXT, 2);
    guest.link(TABLE, 2, (GUEST + 0x9000, 0), NEXT, 1);
    guest.link(TABLE, 1, (GUEST + 0xa000, 5), NEXT, 4);
    guest.link(TABLE, 4, (GUEST + 0xb000, 2), NEXT | WRITE, 3);
    guest.link(TABLE, 3, (GUEST + 0xc000, 4), WRITE, 0);
    guest.put(0x8000, b"abc");
    guest.put(0xa000, b"defgh");
    guest.offer(0, &[3]);
    let chain = guest.walk().unwrap();
    assert_eq!((chain.head, chain.readable_len(), chain.writable_len()), (3, 8, 6));
    let mut bytes = [0; 6];
    chain.read(&guest.memory, 2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"cdefgh");
    chain.write(&guest.memory, 1, b"VWXYZ").unwrap();
    let mut written = [0; 2];
    guest.memory.read(GUEST + 0xb000, &mut written).unwrap();
    assert_eq!(&written, b"\0V");
    let mut written = [0; 4];
    guest.memory.read(GUEST + 0xc000, &mut written).unwrap();
    assert_eq!(&written, b"WXYZ");
    assert_eq!(chain.read(&guest.memory, 3, &mut bytes), Err(GuestFault::Outside));
    assert_eq!(chain.write(&guest.memory, 2, b"VWXYZ"), Err(GuestFault::Outside));
}

#[test]
fn table_of_as_many_segments_as_drivers_are_told_of_is_a_request_and_one_of_more_ends_the_ring() {
    let guest = Guest::new();
    guest.offer(0, &[0]);
    let most = u16::try_from(SEGMENTS_MAX).unwrap();
    for (count, is_taken) in [(most, true), (most + 1, false)] {
        let bytes = 16 * u32::from(count);
        guest.link(DESCRIPTORS, 0, (GUEST + TABLE, bytes), INDIRECT, 0);
        // A header, data, and a status.
        for index in 0..count - 1 {
            guest.link(TABLE, index, (GUEST + 0x8000, 512), NEXT, index + 1);
        }
        guest.link(TABLE, count - 1, (GUEST + 0x9000, 1), WRITE, 0);
        match guest.walk() {
            Ok(chain) => {
                let readable = u64::from(count - 1) * 512;
                assert_eq!((chain.readable_len(), chain.writable_len()), (readable, 1));
                assert!(is_taken, "{count}");
            }
            Err(error) => assert_eq!((error, is_taken), (RingError::Long, false), "{count}"),
        }
    }
}

#[test]
fn available_index_that_runs_ahead_ends_the_ring() {
    let guest = Guest::new();
    guest.set16(AVAILABLE + 2, SIZE + 1);
    assert_eq!(guest.walk().unwrap_err(), RingError::Ahead(SIZE + 1));
    guest.set16(AVAILABLE + 2, 0xffff);
    assert_eq!(guest.walk().unwrap_err(), RingError::Ahead(0xffff));
}

#[test]
fn head_or_next_outside_the_table_ends_the_ring() {
    let guest = Guest::new();
    guest.offer(0, &[SIZE]);
    assert_eq!(guest.walk().unwrap_err(), RingError::Index(SIZE.into()));
    guest.offer(0, &[0]);
    guest.link(DESCRIPTORS, 0, (GUEST, 16), NEXT, 0xffff);
    assert_eq!(guest.walk().unwrap_err(), RingError::Index(0xffff));
    guest.link(DESCRIPTORS, 0, (GUEST + TABLE, 32), INDIRECT, 0);
    guest.link(TABLE, 0, (GUEST, 16), NEXT, 2);
    assert_eq!(guest.walk().unwrap_err(), RingError::Index(2));
}

#[test]
fn chain_that_loops_ends_the_ring_whatever_its_segments_hold() {
    for len in [16, 0] {
        let guest = Guest::new();
        guest.offer(0, &[0]);
        guest.link(DESCRIPTORS, 0, (GUEST, len), NEXT, 1);
        guest.link(DESCRIPTORS, 1, (GUEST, len), NEXT, 0);
        assert_eq!(guest.walk().unwrap_err(), RingError::Long, "{len}");
        guest.link(DESCRIPTORS, 0, (GUEST + TABLE, 16), INDIRECT, 0);
        guest.link(TABLE, 0, (GUEST, len), NEXT, 0);
        assert_eq!(guest.walk().unwrap_err(), RingError::Long, "{len}");
    }
}

#[test]
fn readable_segment_behind_a_writable_one_ends_the_ring() {
    let guest = Guest::new();
    guest.offer(0, &[0]);
    guest.link(DESCRIPTORS, 0, (GUEST, 16), NEXT | WRITE, 1);
    guest.link(DESCRIPTORS, 1, (GUEST, 16), 0, 0);
    assert_eq!(guest.walk().unwrap_err(), RingError::Order);
}

#[test]
fn indirect_table_that_must_not_be_ends_the_ring() {
    let guest = Guest::new();
    guest.offer(0, &[0]);
    let table = GUEST + TABLE;
    guest.link(TABLE, 0, (table, 16), INDIRECT, 0);
    for (len, flags) in [(16, INDIRECT), (0, INDIRECT), (17, INDIRECT), (16, INDIRECT | NEXT)] {
        guest.link(DESCRIPTORS, 0, (table, len), flags, 1);
        assert_eq!(guest.walk().unwrap_err(), RingError::Indirect, "{len} {flags}");
    }
    guest.link(TABLE, 0, (GUEST, 16), 0, 0);
    guest.link(DESCRIPTORS, 0, (table, 16), INDIRECT, 0);
    guest.walk().unwrap();
    let layout = VirtqueueLayout { indirect: false, ..guest.layout() };
    let mut ring = SplitRing::open(layout, &guest.memory, None).unwrap();
    assert_eq!(guest.walk_in(&mut ring).unwrap_err(), RingError::Indirect);
}

#[test]
fn addresses_outside_the_memory_are_errors() {
    let guest = Guest::new();
    guest.offer(0, &[0]);
    for address in [0, GUEST - 1, GUEST + MEMORY - 8, u64::MAX - 8, u64::MAX] {
        guest.link(DESCRIPTORS, 0, (address, 32), INDIRECT, 0);
        let outside = RingError::Memory(GuestFault::Outside);
        assert_eq!(guest.walk().unwrap_err(), outside, "{address:#x}");
        guest.link(DESCRIPTORS, 0, (address, u32::MAX), 0, 0);
        let chain = guest.walk().unwrap();
        let mut bytes = [0; 64];
        assert_eq!(chain.read(&guest.memory, 0, &mut bytes), Err(GuestFault::Outside));
    }
    for (descriptors, available, used) in [
        (USER + MEMORY, USER + AVAILABLE, USER + USED),
        (USER, USER + MEMORY - 8, USER + USED),
        (USER, USER + AVAILABLE, u64::MAX - 4),
        (USER, USER + AVAILABLE + 1, USER + USED),
        (USER, USER + AVAILABLE, USER + USED + 1),
    ] {
        let layout = VirtqueueLayout { descriptors, available, used, ..guest.layout() };
        let ring = SplitRing::open(layout, &guest.memory, None);
        let looked = ring.and_then(|mut ring| ring.next(&guest.memory, &mut DescriptorChain::new()));
        assert!(matches!(looked, Err(RingError::Memory(_))), "{available:#x} {used:#x}");
    }
}

#[test]
fn memory_that_is_cut_short_ends_the_ring() {
    let guest = Guest::new();
    let mut ring = guest.ring();
    guest.offer(0, &[0]);
    ftruncate(&guest.file, 0).unwrap();
    let lost = RingError::Memory(GuestFault::Lost);
    let mut chain = DescriptorChain::new();
    assert_eq!(ring.next(&guest.memory, &mut chain), Err(lost));
    assert_eq!(ring.finish(&over(0), 1), Err(lost));
    assert_eq!(ring.ask_for_kick(), Err(lost));
}

#[test]
fn what_is_over_is_published_together_and_told_where_the_driver_wants_it() {
    let guest = Guest::new();
    let mut ring = guest.ring();
    let event = AVAILABLE + 4 + 2 * u64::from(SIZE);
    // For each round: the index whose passing the driver wants to hear of, and whether it does.
    let mut used = 0u16;
    for (behind, is_told) in [(0, true), (1, true), (2, false), (0u16.wrapping_sub(1), false)] {
        simple(&guest, 0);
        guest.offer(used, &[0, 0]);
        for _ in 0..2 {
            guest.walk_in(&mut ring).unwrap();
        }
        ring.finish(&over(0), 1).unwrap();
        ring.finish(&over(0), 513).unwrap();
        assert_eq!(guest.get16(USED + 2), used, "not published yet");
        assert!(ring.has_unpublished());
        guest.set16(event, used.wrapping_add(behind));
        assert_eq!(ring.publish(), Ok(is_told), "{behind}");
        assert_eq!(ring.publish(), Ok(false), "nothing is new");
        used += 2;
        assert_eq!(guest.get16(USED + 2), used);
        let place = u64::from((used - 1) % SIZE);
        assert_eq!(guest.get16(USED + 4 + 8 * place), 0);
        assert_eq!(guest.get16(USED + 4 + 8 * place + 4), 513);
    }
    let layout = VirtqueueLayout { event_idx: false, base: used.into(), ..guest.layout() };
    let mut ring = SplitRing::open(layout, &guest.memory, None).unwrap();
    for (flags, is_told) in [(0, true), (1, false)] {
        guest.set16(AVAILABLE, flags);
        ring.finish(&over(0), 1).unwrap();
        assert_eq!(ring.publish(), Ok(is_told));
    }
}

#[test]
fn kick_is_asked_for_only_when_there_is_nothing_more() {
    let guest = Guest::new();
    let mut ring = guest.ring();
    let event = USED + 4 + 8 * u64::from(SIZE);
    simple(&guest, 0);
    guest.set16(event, 77);
    guest.offer(0, &[0]);
    assert_eq!(ring.ask_for_kick(), Ok(true), "it came before the sleep");
    guest.walk_in(&mut ring).unwrap();
    assert_eq!(ring.ask_for_kick(), Ok(false));
    assert_eq!(guest.get16(event), 1, "the next one");
    assert_eq!(ring.base(), 1);
    let layout = VirtqueueLayout { event_idx: false, base: 1, ..guest.layout() };
    let mut ring = SplitRing::open(layout, &guest.memory, None).unwrap();
    guest.offer(1, &[0]);
    guest.walk_in(&mut ring).unwrap();
    assert_eq!(guest.get16(USED), NO_NOTIFY, "no kicks while it is awake");
    assert_eq!(ring.ask_for_kick(), Ok(false));
    assert_eq!(guest.get16(USED), 0);
}

#[test]
fn indices_wrap() {
    let guest = Guest::new();
    guest.set16(USED + 2, 0xfffe);
    let layout = VirtqueueLayout { base: 0xfffe, ..guest.layout() };
    let mut ring = SplitRing::open(layout, &guest.memory, None).unwrap();
    simple(&guest, 0);
    guest.offer(0xfffe, &[0, 0, 0]);
    for _ in 0..3 {
        guest.walk_in(&mut ring).unwrap();
        ring.finish(&over(0), 1).unwrap();
    }
    let event = AVAILABLE + 4 + 2 * u64::from(SIZE);
    guest.set16(event, 0);
    assert_eq!(ring.publish(), Ok(true));
    assert_eq!((guest.get16(USED + 2), ring.base()), (1, 1));
    assert_eq!(ring.next(&guest.memory, &mut DescriptorChain::new()), Ok(false));
}

/// The heads that a server takes which comes after another that was killed.
fn taken_again(guest: &Guest) -> Vec<u16> {
    let mut ring = guest.ring_with_inflight();
    let mut chain = DescriptorChain::new();
    let mut heads = Vec::new();
    while ring.next(&guest.memory, &mut chain).unwrap() {
        heads.push(chain.head);
    }
    heads
}

#[test]
fn requests_that_a_killed_server_had_are_taken_again_in_their_order() {
    let guest = Guest::new();
    for head in [0, 2, 4, 6] {
        simple(&guest, head);
    }
    let mut ring = guest.ring_with_inflight();
    guest.offer(0, &[4, 2, 6, 0]);
    for _ in 0..3 {
        guest.walk_in(&mut ring).unwrap();
    }
    // Killed with all of them.
    assert_eq!(taken_again(&guest), [4, 2, 6, 0]);
    // The fourth has been taken by now; the second ends out of order, and is published.
    let mut ring = guest.ring_with_inflight();
    ring.finish(&over(2), 1).unwrap();
    ring.publish().unwrap();
    assert_eq!(taken_again(&guest), [4, 6, 0]);
    // Two more end without anybody being told.
    let mut ring = guest.ring_with_inflight();
    ring.finish(&over(6), 1).unwrap();
    ring.finish(&over(0), 1).unwrap();
    assert_eq!(taken_again(&guest), [4, 6, 0]);
    let mut ring = guest.ring_with_inflight();
    for head in [0, 4, 6] {
        ring.finish(&over(head), 1).unwrap();
    }
    ring.publish().unwrap();
    assert_eq!(taken_again(&guest), [0; 0]);
    guest.offer(4, &[2]);
    assert_eq!(taken_again(&guest), [2]);
}

#[test]
fn batch_that_was_published_and_not_noted_is_not_taken_again() {
    let guest = Guest::new();
    for head in [0, 2, 4] {
        simple(&guest, head);
    }
    let mut ring = guest.ring_with_inflight();
    guest.offer(0, &[0, 2, 4]);
    for _ in 0..3 {
        guest.walk_in(&mut ring).unwrap();
    }
    ring.finish(&over(4), 1).unwrap();
    ring.finish(&over(0), 1).unwrap();
    // Killed right behind the store of the used index.
    guest.set16(USED + 2, 2);
    assert_eq!(taken_again(&guest), [2]);
}

#[test]
fn empty_buffer_beside_a_ring_that_has_run_clears_nothing() {
    let guest = Guest::new();
    simple(&guest, 0);
    guest.set16(USED + 2, 5);
    let layout = VirtqueueLayout { base: 5, ..guest.layout() };
    guest.offer(5, &[0]);
    let range = Some(guest.inflight());
    let mut ring = SplitRing::open(layout, &guest.memory, range).unwrap();
    guest.walk_in(&mut ring).unwrap();
    assert_eq!(taken_again(&guest), [0]);
}

#[test]
fn nonsense_in_the_inflight_buffer_is_an_error_or_harmless() {
    let guest = Guest::new();
    simple(&guest, 0);
    drop(guest.ring_with_inflight());
    // The last batch has a head that there is not.
    guest.set16(INFLIGHT + 12, 0xffff);
    guest.set16(USED + 2, 3);
    let ring = SplitRing::open(guest.layout(), &guest.memory, Some(guest.inflight()));
    assert!(ring.is_err());
    // A batch longer than the ring, in a loop.
    guest.set16(INFLIGHT + 12, 0);
    guest.set16(USED + 2, 0x7fff);
    drop(guest.ring_with_inflight());
    // Everything is under way at once.
    for head in 0..u64::from(SIZE) {
        guest.put(INFLIGHT + 16 + 16 * head, &[0xff; 16]);
        simple(&guest, u16::try_from(head).unwrap());
    }
    guest.set16(USED + 2, 0);
    guest.set16(INFLIGHT + 14, 0);
    guest.offer(0, &[0; 8]);
    let mut ring = guest.ring_with_inflight();
    let mut chain = DescriptorChain::new();
    for _ in 0..SIZE {
        let _ = ring.next(&guest.memory, &mut chain);
    }
}

/// A request that is over.
fn over(head: u16) -> DescriptorChain {
    DescriptorChain { head, ..DescriptorChain::new() }
}

#[test]
fn ring_is_fresh_until_a_server_has_had_it() {
    let guest = Guest::new();
    let is_fresh = || guest.layout().is_fresh(&guest.memory);
    guest.offer(0, &[0, 1]);
    assert!(is_fresh(), "the driver alone");
    assert!(!VirtqueueLayout { base: 1, ..guest.layout() }.is_fresh(&guest.memory));
    guest.ring();
    assert!(!is_fresh(), "it was opened");
}
