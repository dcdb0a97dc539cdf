//! Joining segments: what fits together, and what is refused.

use super::*;
use cryptline_sys::BackendChoice;

use crate::base::{Blank, BlankDevice, RamDevice};
use crate::blocking::Blocking;

const MIB: u64 = 1 << 20;

fn ram(size: u64) -> Gate {
    Gate::new(RamDevice::new(size).unwrap())
}

fn segment(lower: &Gate, offset: u64, len: u64) -> Segment {
    Segment { lower: lower.clone(), offset, len }
}

#[test]
fn whole_device_alone_needs_no_layer() {
    let lower = ram(MIB);
    assert!(joined(vec![segment(&lower, 0, MIB)]).unwrap().is_same(&lower));
    let part = joined(vec![segment(&lower, 0, MIB - 512)]).unwrap();
    assert!(!part.is_same(&lower));
    assert_eq!(part.geometry().size, MIB - 512);
    assert!(!(joined(vec![segment(&lower, 512, MIB - 512)]).unwrap()).is_same(&lower));
}

#[test]
fn device_used_twice_has_one_queue_and_neighbours_below_are_one_range() {
    let (one, other) = (ram(MIB), ram(MIB));
    let segments =
        vec![segment(&one, 512, 512), segment(&other, 0, 512), segment(&one, 0, 512), segment(&one, 512, 512)];
    let device = LinearDevice::new(segments).unwrap();
    assert_eq!((device.devices.len(), device.ranges()), (2, 3));
    assert_eq!(device.traits().geometry.size, 4 * 512);
}

#[test]
fn what_does_not_fit_is_refused() {
    let lower = ram(MIB);
    for (segments, what) in [
        (vec![], "nothing to join"),
        (vec![segment(&lower, 0, 0)], "is empty"),
        (vec![segment(&lower, 512, MIB)], "cut short"),
        (vec![segment(&lower, u64::MAX - 511, 512)], "cut short"),
        (vec![segment(&lower, 0, 513)], "not aligned"),
        (vec![segment(&lower, 100, 512)], "512-byte blocks"),
    ] {
        let Err(error) = joined(segments) else { panic!("{what}: was joined") };
        assert!(error.to_string().contains(what), "{error}");
    }
    let many: Vec<_> = (0..=DEVICES_MAX).map(|_| ram(512)).collect();
    let segments = |count| many[..count].iter().map(|gate| segment(gate, 0, 512)).collect();
    assert!(joined(segments(DEVICES_MAX)).is_ok());
    assert!(joined(segments(DEVICES_MAX + 1)).is_err());
}

#[test]
fn change_to_a_range_that_stores_nothing_fails_alone() {
    let errors = Gate::new(BlankDevice::new(Blank::Errors, MIB, false).unwrap());
    let segments = vec![segment(&ram(MIB), 0, MIB), segment(&errors, 0, 4096)];
    let gate = joined(segments).unwrap();
    let mut disk = Blocking::new(&gate, BackendChoice::Syscalls).unwrap();
    assert_eq!(disk.discard(0, MIB + 4096), Err(Fault::Partly));
    assert_eq!(disk.discard(MIB, 4096), Err(Fault::NoStore));
    for is_durable in [false, true] {
        assert_eq!(disk.write_at(MIB - 512, &[1; 1024], is_durable), Err(Fault::Partly));
        assert_eq!(disk.write_at(MIB, &[1; 1024], is_durable), Err(Fault::NoStore));
    }
    assert_eq!(disk.write_at(0, &[1; 512], true), Ok(()));
    assert_eq!(disk.flush(), Ok(()));
}
