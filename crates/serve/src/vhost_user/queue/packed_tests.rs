//! Packed rings: what drivers may do, and what hostile ones try.

use cryptline_sys::GuestFault;

use super::super::guest::{GUEST, Guest, MEMORY, USER};
use super::*;

/// No power of two.
const SIZE: u16 = 6;
const RING: u64 = 0;
const DRIVER: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
/// An indirect table.
const TABLE: u64 = 0x4000;
const BUFFERS: u64 = GUEST + 0x8000;

const START: RingPosition = RingPosition { index: 0, wrap: true };

/// Flags in the ring, for a driver whose counter is 1.
const MINE: u16 = AVAILABLE;

/// A descriptor of the driver's: bytes, id and flags.
type Described = ((u64, u32), u16, u16);

fn layout() -> VirtqueueLayout {
    VirtqueueLayout {
        size: SIZE,
        descriptors: USER + RING,
        available: USER + DRIVER,
        used: USER + DEVICE,
        base: 0x8000_8000,
        is_packed: true,
        event_idx: true,
        indirect: true,
    }
}

fn open(guest: &Guest, layout: VirtqueueLayout) -> PackedRing {
    PackedRing::open(layout, &guest.memory, None).unwrap()
}

/// The first descriptors of the ring.
fn describe(guest: &Guest, at: u64, descriptors: &[Described]) {
    for (index, (bytes, id, flags)) in (0..).zip(descriptors) {
        guest.describe(at + 16 * index, *bytes, [*id, *flags]);
    }
}

fn take(guest: &Guest, ring: &mut PackedRing) -> Result<DescriptorChain, RingError> {
    let mut chain = DescriptorChain::new();
    assert!(ring.next(&guest.memory, &mut chain)?, "none is available");
    Ok(chain)
}

/// Puts one descriptor at a place.
fn put(guest: &Guest, place: RingPosition, id: u16) {
    let flags = if place.wrap { AVAILABLE } else { USED };
    let at = RING + place.offset() as u64;
    guest.describe(at, (BUFFERS, 16), [id, flags | WRITE]);
}

/// The used element at a place: its id, length and flags.
fn used_at(guest: &Guest, place: RingPosition) -> Option<(u16, u16)> {
    let at = RING + place.offset() as u64;
    let flags = guest.get16(at + 14);
    let is_used = [AVAILABLE, USED].map(|mark| flags & mark != 0) == [place.wrap; 2];
    is_used.then(|| (guest.get16(at + 12), guest.get16(at + 8)))
}

#[test]
fn chain_in_the_ring_and_chain_in_a_table_are_the_same_request() {
    for is_table in [false, true] {
        let guest = Guest::new();
        let mark = if is_table { 0 } else { MINE };
        let next = if is_table { 0 } else { NEXT };
        let chain = [
            ((BUFFERS, 3), 0, mark | next),
            ((BUFFERS + 0x100, 0), 0, mark | next),
            ((BUFFERS + 0x200, 5), 0, mark | next),
            ((BUFFERS + 0x300, 2), 0, mark | next | WRITE),
            ((BUFFERS + 0x400, 4), 41, mark | WRITE),
        ];
        if is_table {
            describe(&guest, TABLE, &chain);
            let table = (GUEST + TABLE, 5 * 16);
            describe(&guest, RING, &[(table, 41, MINE | INDIRECT)]);
        } else {
            describe(&guest, RING, &chain);
        }
        guest.put(0x8000, b"abc");
        guest.put(0x8200, b"defgh");
        let mut ring = open(&guest, layout());
        let chain = take(&guest, &mut ring).unwrap();
        let lengths = (chain.readable_len(), chain.writable_len());
        assert_eq!((chain.head, lengths), (41, (8, 6)));
        let mut bytes = [0; 6];
        chain.read(&guest.memory, 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"cdefgh");
        chain.write(&guest.memory, 1, b"VWXYZ").unwrap();
        let mut written = [0; 4];
        guest.memory.read(BUFFERS + 0x400, &mut written).unwrap();
        assert_eq!(&written, b"WXYZ");
        ring.finish(&chain, 6).unwrap();
        assert_eq!(used_at(&guest, START), None);
        assert_eq!(ring.publish(), Ok(true));
        assert_eq!(used_at(&guest, START), Some((41, 6)));
        let next = if is_table { 1 } else { 5 };
        assert_eq!(ring.base(), (0x8000_8000 | next << 16 | next));
    }
}

#[test]
fn table_of_as_many_segments_as_drivers_are_told_of_is_a_request() {
    let guest = Guest::new();
    let mut chain = vec![((BUFFERS, 512), 0, 0); SEGMENTS_MAX - 1];
    chain.push(((BUFFERS + 0x1000, 1), 0, WRITE));
    describe(&guest, TABLE, &chain);
    let bytes = u32::try_from(16 * SEGMENTS_MAX).unwrap();
    let table = (GUEST + TABLE, bytes);
    describe(&guest, RING, &[(table, 41, MINE | INDIRECT)]);
    let chain = take(&guest, &mut open(&guest, layout())).unwrap();
    let readable = (SEGMENTS_MAX as u64 - 1) * 512;
    assert_eq!((chain.readable_len(), chain.writable_len()), (readable, 1));
}

#[test]
fn hostile_descriptors_end_the_ring() {
    let good = (BUFFERS, 16);
    let table = (GUEST + TABLE, 32);
    let outside = RingError::Memory(GuestFault::Outside);
    let endless = vec![(good, 1, MINE | NEXT); SIZE.into()];
    let empty = vec![((BUFFERS, 0), 1, MINE | NEXT); SIZE.into()];
    let cases: Vec<(&str, Vec<Described>, RingError)> = vec![
        ("as long as the ring, and on", endless, RingError::Long),
        ("the same without bytes", empty, RingError::Long),
        ("readable behind writable", vec![(good, 1, MINE | NEXT | WRITE), (good, 1, MINE)], RingError::Order),
        ("a table that goes on", vec![(table, 1, MINE | INDIRECT | NEXT), (good, 1, MINE)], RingError::Indirect),
        ("a table in a chain", vec![(good, 1, MINE | NEXT), (table, 1, MINE | INDIRECT)], RingError::Indirect),
        ("an empty table", vec![((GUEST + TABLE, 0), 1, MINE | INDIRECT)], RingError::Indirect),
        ("a table with half a descriptor", vec![((GUEST + TABLE, 40), 1, MINE | INDIRECT)], RingError::Indirect),
        ("a table too long", vec![((GUEST + TABLE, 257 * 16), 1, MINE | INDIRECT)], RingError::Long),
        ("a table of 4 GiB", vec![((GUEST + TABLE, u32::MAX - 15), 1, MINE | INDIRECT)], RingError::Long),
        ("a table outside", vec![((u64::MAX - 8, 32), 1, MINE | INDIRECT)], outside),
        ("a table that ends outside", vec![((GUEST + MEMORY - 16, 32), 1, MINE | INDIRECT)], outside),
    ];
    for (name, descriptors, error) in cases {
        let guest = Guest::new();
        describe(&guest, RING, &descriptors);
        let mut ring = open(&guest, layout());
        assert_eq!(take(&guest, &mut ring).unwrap_err(), error, "{name}");
    }
}

#[test]
fn table_in_a_table_and_table_not_agreed_on_end_the_ring() {
    let guest = Guest::new();
    let table = (GUEST + TABLE, 32);
    describe(&guest, RING, &[(table, 1, MINE | INDIRECT)]);
    describe(&guest, TABLE, &[(table, 0, 0), (table, 0, INDIRECT)]);
    let mut ring = open(&guest, layout());
    assert_eq!(take(&guest, &mut ring).unwrap_err(), RingError::Indirect);
    describe(&guest, TABLE, &[(table, 0, 0), (table, 0, 0)]);
    take(&guest, &mut open(&guest, layout())).unwrap();
    let without = VirtqueueLayout { indirect: false, ..layout() };
    let mut ring = open(&guest, without);
    assert_eq!(take(&guest, &mut ring).unwrap_err(), RingError::Indirect);
}

#[test]
fn flags_of_the_other_lap_offer_nothing() {
    let guest = Guest::new();
    let mut ring = open(&guest, layout());
    for flags in [0, USED, AVAILABLE | USED] {
        describe(&guest, RING, &[((BUFFERS, 16), 1, flags | WRITE)]);
        assert_eq!(ring.next(&guest.memory, &mut DescriptorChain::new()), Ok(false), "{flags:#x}");
        assert_eq!(ring.ask_for_kick(), Ok(false));
    }
    put(&guest, START, 1);
    assert_eq!(ring.ask_for_kick(), Ok(true), "it came before the sleep");
}

#[test]
fn more_than_the_ring_has_places_for_ends_it() {
    let guest = Guest::new();
    let mut ring = open(&guest, layout());
    for step in 0..SIZE {
        put(&guest, START.plus(step, SIZE), step);
        take(&guest, &mut ring).unwrap();
    }
    assert_eq!(ring.next(&guest.memory, &mut DescriptorChain::new()), Ok(false));
    // All of them are under way, and the driver goes on as if the first were not.
    put(&guest, START.plus(SIZE, SIZE), 9);
    assert_eq!(take(&guest, &mut ring).unwrap_err(), RingError::Ahead(SIZE + 1));
    // So does a chain that reaches into what is under way.
    let guest = Guest::new();
    let mut ring = open(&guest, layout());
    put(&guest, START, 0);
    take(&guest, &mut ring).unwrap();
    let chain = [((BUFFERS, 1), 1, MINE | NEXT); 6];
    describe(&guest, RING, &chain);
    assert_eq!(take(&guest, &mut ring).unwrap_err(), RingError::Long);
}

#[test]
fn ids_are_given_back_as_they_came_whatever_they_are() {
    let guest = Guest::new();
    let mut ring = open(&guest, layout());
    let ids = [7, 7, 0xffff];
    let chains: Vec<_> = (0..)
        .zip(ids)
        .map(|(step, id)| {
            put(&guest, START.plus(step, SIZE), id);
            take(&guest, &mut ring).unwrap()
        })
        .collect();
    for chain in &chains {
        ring.finish(chain, 16).unwrap();
    }
    ring.publish().unwrap();
    for (step, id) in (0..).zip(ids) {
        let place = START.plus(step, SIZE);
        assert_eq!(used_at(&guest, place), Some((id, 16)));
    }
}

#[test]
fn addresses_outside_the_memory_and_sizes_that_cannot_be_are_errors() {
    let guest = Guest::new();
    let sound = layout();
    let shifted = |descriptors, available, used| VirtqueueLayout { descriptors, available, used, ..sound };
    for wrong in [
        shifted(USER + MEMORY, sound.available, sound.used),
        shifted(USER + MEMORY - 16, sound.available, sound.used),
        shifted(USER + 4, sound.available, sound.used),
        shifted(sound.descriptors, USER + MEMORY - 2, sound.used),
        shifted(sound.descriptors, sound.available, u64::MAX - 2),
        shifted(sound.descriptors, sound.available, USER + DEVICE + 1),
        VirtqueueLayout { size: 0, ..sound },
        VirtqueueLayout { size: 0x8001, ..sound },
        VirtqueueLayout { base: 6 << 16, ..sound },
        VirtqueueLayout { base: 6, ..sound },
    ] {
        let ring = PackedRing::open(wrong, &guest.memory, None);
        let asked = ring.and_then(|mut ring| ring.ask_for_kick());
        assert!(asked.is_err(), "{wrong:?}");
    }
}

#[test]
fn requests_end_out_of_order_for_many_laps() {
    let guest = Guest::new();
    let mut ring = open(&guest, layout());
    let (mut offered, mut heard) = (START, START);
    for lap in 0..40 {
        let chains: Vec<_> = (0..4)
            .map(|step| {
                put(&guest, offered, 10 * lap + step);
                offered = offered.plus(1, SIZE);
                take(&guest, &mut ring).unwrap()
            })
            .collect();
        for (index, is_published) in [(2, true), (0, false), (3, false), (1, true)] {
            ring.finish(&chains[index], 1).unwrap();
            if is_published {
                ring.publish().unwrap();
            }
        }
        for step in [2, 0, 3, 1] {
            assert_eq!(used_at(&guest, heard).map(|(id, _)| id), Some(10 * lap + step));
            heard = heard.plus(1, SIZE);
        }
        assert_eq!(used_at(&guest, heard), None);
        let bits = u32::from(heard.encode());
        assert_eq!(ring.base(), bits | bits << 16);
    }
}

#[test]
fn interrupts_come_where_the_driver_wants_them() {
    let guest = Guest::new();
    // For a batch of two places that begins at this one: at which distance the driver wants to hear.
    for begin in 0..2 * SIZE {
        for ahead in 0..2 * SIZE {
            let mut ring = open(&guest, layout());
            let step = |count: u16| (0..count).fold(START, |place, _| place.plus(1, SIZE));
            (ring.next, ring.used) = (step(begin), step(begin));
            for id in 0..2 {
                put(&guest, ring.next, id);
                let chain = take(&guest, &mut ring).unwrap();
                ring.finish(&chain, 1).unwrap();
            }
            guest.set16(DRIVER, step(begin + ahead).encode());
            guest.set16(DRIVER + 2, AT_PLACE);
            assert_eq!(ring.publish(), Ok(ahead < 2), "{begin} {ahead}");
            assert_eq!(ring.publish(), Ok(false), "nothing is new");
        }
    }
    for (flags, event_idx, is_told) in
        [(ENABLE, true, true), (DISABLE, true, false), (AT_PLACE, false, true), (3, true, true), (0xffff, true, true)]
    {
        let layout = VirtqueueLayout { event_idx, ..layout() };
        let mut ring = open(&guest, layout);
        put(&guest, START, 1);
        let chain = take(&guest, &mut ring).unwrap();
        ring.finish(&chain, 1).unwrap();
        guest.set16(DRIVER, 0x7fff);
        guest.set16(DRIVER + 2, flags);
        assert_eq!(ring.publish(), Ok(is_told), "{flags} {event_idx}");
    }
}

#[test]
fn kick_is_asked_for_only_when_there_is_nothing_more() {
    for event_idx in [false, true] {
        let guest = Guest::new();
        let layout = VirtqueueLayout { event_idx, ..layout() };
        let mut ring = open(&guest, layout);
        put(&guest, START, 1);
        take(&guest, &mut ring).unwrap();
        assert_eq!(guest.get16(DEVICE + 2), DISABLE, "it is awake");
        assert_eq!(ring.ask_for_kick(), Ok(false));
        let wanted = (guest.get16(DEVICE), guest.get16(DEVICE + 2));
        // Where no place is looked at, it is the mark of who has opened the ring.
        let expected = if event_idx { (0x8001, AT_PLACE) } else { (START.encode(), ENABLE) };
        assert_eq!(wanted, expected);
    }
}

#[test]
fn base_without_the_place_of_used_elements_is_understood() {
    let guest = Guest::new();
    for base in [0x8000, 0x8003, 0x0005, 0x0000] {
        let mut ring = open(&guest, VirtqueueLayout { base, ..layout() });
        let place = RingPosition::decode(u16::try_from(base).unwrap());
        put(&guest, place, 5);
        let chain = take(&guest, &mut ring).unwrap();
        ring.finish(&chain, 1).unwrap();
        ring.publish().unwrap();
        assert_eq!(used_at(&guest, place), Some((5, 1)));
    }
}

#[test]
fn ring_is_fresh_until_a_server_has_had_it() {
    let guest = Guest::new();
    let is_fresh = |base| VirtqueueLayout { base, ..layout() }.is_fresh(&guest.memory);
    assert!([0x8000, 0x8000_8000].into_iter().all(is_fresh));
    let elsewhere = [0, 0x8001, 0x8000_0000, 0x8000_8001, 0x8001_8000];
    assert!(!elsewhere.into_iter().any(is_fresh));
    let mut place = START;
    put(&guest, place, 0);
    assert!(is_fresh(0x8000_8000), "the driver alone");
    let mut ring = open(&guest, layout());
    assert!(!is_fresh(0x8000_8000), "it was opened");
    for step in 0..4 * SIZE {
        put(&guest, place, step);
        let chain = take(&guest, &mut ring).unwrap();
        ring.finish(&chain, 1).unwrap();
        ring.publish().unwrap();
        place = place.plus(1, SIZE);
        assert!(!is_fresh(0x8000_8000), "{step}");
    }
}

/// Bytes from the front-end's buffer may be anything.
#[test]
fn nonsense_in_the_inflight_buffer_is_an_error_or_harmless() {
    let at = 0x3000;
    let len = 32 + 32 * u64::from(SIZE);
    for byte in [0u8, 1, 2, 0x7f, 0x80, 0xff] {
        for place in 8..len {
            let guest = Guest::new();
            let range = || Some(guest.part(at, len.try_into().unwrap()));
            let open = || PackedRing::open(layout(), &guest.memory, range());
            let mut ring = open().unwrap();
            for step in 0..3 {
                put(&guest, START.plus(step, SIZE), step);
                let chain = take(&guest, &mut ring).unwrap();
                if step == 1 {
                    ring.finish(&chain, 1).unwrap();
                }
            }
            ring.publish().unwrap();
            guest.put(at + place, &[byte]);
            let Ok(mut ring) = open() else { continue };
            let mut chain = DescriptorChain::new();
            for _ in 0..=SIZE {
                let Ok(true) = ring.next(&guest.memory, &mut chain) else { break };
                ring.finish(&chain, 1).unwrap();
            }
            let _ = ring.publish();
        }
    }
}
