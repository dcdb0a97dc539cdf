//! A queue whose guest's memory is replaced while it has requests.

use std::os::fd::OwnedFd;

use cryptline_sys::{BackendChoice, GuestRegion};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::super::queue::SplitRing;
use super::*;

const LEN: u64 = 1 << 20;
/// The ring; the data lie behind it, in a region of their own.
const RING: GuestRegion = GuestRegion { guest: 0, user: LEN, len: LEN, offset: 0 };
const DATA: GuestRegion = GuestRegion { guest: LEN, user: 2 * LEN, len: LEN, offset: 0 };
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

/// Memory full of `byte`.
fn filled(byte: u8) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, LEN).unwrap();
    if byte != 0 {
        let bytes = vec![byte; LEN.try_into().unwrap()];
        assert_eq!(rustix::io::pwrite(&file, &bytes, 0), Ok(bytes.len()));
    }
    file
}

fn memory(ring: &OwnedFd, data: Option<&OwnedFd>) -> Arc<GuestMemory> {
    let mut memory = GuestMemory::default();
    memory.add(RING, ring).unwrap();
    if let Some(data) = data {
        memory.add(DATA, data).unwrap();
    }
    Arc::new(memory)
}

/// Offers two writes of a sector, each in the data's region: descriptors for the data and for the status.
fn offer(memory: &GuestMemory) {
    for head in [0u16, 2] {
        let (next, writable) = (1u16, 2u16);
        let place = LEN + u64::from(head) * 4096;
        let data = [&place.to_le_bytes()[..], &528u32.to_le_bytes(), &next.to_le_bytes(), &(head + 1).to_le_bytes()];
        let end = place + 2048;
        let status = [&end.to_le_bytes()[..], &1u32.to_le_bytes(), &writable.to_le_bytes(), &[0; 2]];
        memory.write(16 * u64::from(head), &[data.concat(), status.concat()].concat()).unwrap();
    }
    memory.write(AVAILABLE, &[0u16, 2, 0, 2].map(u16::to_le_bytes).concat()).unwrap();
}

fn start(memory: Arc<GuestMemory>) -> VirtqueueStart {
    let layout = VirtqueueLayout {
        size: 8,
        descriptors: LEN,
        available: LEN + AVAILABLE,
        used: LEN + USED,
        base: 0,
        is_packed: false,
        event_idx: false,
        indirect: false,
    };
    let limits = SectorLimits {
        size: LEN,
        block: 512,
        read_only: false,
        discards: false,
        zeroes: false,
        zeroes_max: 1,
        flushes: true,
    };
    VirtqueueStart {
        layout,
        memory,
        lacks_memory: false,
        inflight: None,
        kick: None,
        call: None,
        error: None,
        is_enabled: true,
        limits,
        serial: [0; SERIAL],
        mailbox: Arc::default(),
        log: Box::new(|_| {}),
    }
}

/// Takes the next request, as for the lane.
fn take(wire: &mut VringWire<SplitRing>) -> usize {
    let tag = wire.free.pop().unwrap();
    assert!(wire.ring.next(&wire.start.memory, &mut wire.slots[tag].chain).unwrap());
    tag
}

#[test]
fn request_keeps_the_memory_that_it_was_taken_in_and_no_older_one() {
    let (ring, first, second) = (filled(0), filled(1), filled(2));
    let start = start(memory(&ring, Some(&first)));
    offer(&start.memory);
    let mut queue = Ring::new(BackendChoice::Syscalls, 8).unwrap();
    let mut wire = VringWire::<SplitRing>::new(&mut queue, start).unwrap();
    let slow = take(&mut wire);
    wire.change_memory(memory(&ring, None));
    wire.change_memory(memory(&ring, Some(&second)));
    let late = take(&mut wire);
    wire.change_memory(memory(&ring, None));
    let brought = |wire: &VringWire<SplitRing>, tag| {
        let mut bytes = [0; 512];
        wire.copy_out(tag, 0, &mut bytes).map(|()| bytes)
    };
    assert_eq!(brought(&wire, slow), Ok([1; 512]));
    assert_eq!(brought(&wire, late), Ok([2; 512]));
    // What a request was taken in goes with it.
    wire.end(late, Ok(()));
    wire.end(slow, Ok(()));
    assert!(wire.slots.iter().all(|slot| slot.older.is_none()));
    let ended = |file: &OwnedFd, at| {
        let mut status = [9];
        rustix::io::pread(file, &mut status, at).map(|_| status[0])
    };
    assert_eq!((ended(&first, 2048), ended(&second, 2 * 4096 + 2048)), (Ok(0), Ok(0)));
}
