//! Refusals of the gate: what it refuses, with which fault, and that a refusal has no effect.

use cryptline_engine::{Fault, Op, Request};

use crate::suite::{Ability, Driver, Fresh, Setup};

/// One of each operation with a range, of `len` bytes, that the device offers.
fn offered(driver: &Driver, len: u64) -> Vec<Request> {
    let geometry = *driver.channel.geometry();
    let mut requests: Vec<_> =
        [Op::Read, Op::Write, Op::WriteFua].map(|op| Request::transfer(op, 0, driver.buffer(len), 0)).into();
    let others = [
        (Op::Discard, geometry.discard),
        (Op::Cache, geometry.cache),
        (Op::Zero, geometry.write_zeroes),
        (Op::ZeroUnmap, geometry.write_zeroes),
    ];
    requests.extend(others.into_iter().filter(|(_, is)| *is).map(|(op, _)| Request::new(op, 0, len, 0)));
    requests
}

/// Every offered operation of this length at this offset ends with `fault`.
fn all_refused(driver: &mut Driver, offset: u64, len: u64, fault: Fault) {
    for request in offered(driver, len) {
        let text = format!("{:?} at {offset}", request.op);
        assert_eq!(driver.result(Request { offset, ..request }), Err(fault), "{text}");
    }
}

/// A range that is wholly or partly past the end.
pub fn range_past_the_end_is_refused(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, size) = (driver.block(), driver.size());
    for (offset, len) in [(size, block), (size - block, 2 * block), (size + 100 * block, block), (0, size + block)] {
        all_refused(&mut driver, offset, len, Fault::OutOfRange);
    }
}

/// An offset near 2^64 does not wrap round to the start.
pub fn offset_that_overflows_is_refused(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let block = driver.block();
    for offset in [u64::MAX, u64::MAX - block + 1, u64::MAX - 2 * block + 1, 1 << 63] {
        all_refused(&mut driver, offset, block, Fault::OutOfRange);
    }
    let block = driver.block();
    if driver.channel.geometry().discard {
        for len in [u64::MAX, u64::MAX - block + 1] {
            let result = driver.result(Request::new(Op::Discard, block, len, 0));
            assert_eq!(result, Err(Fault::OutOfRange));
        }
    }
}

/// Offsets and lengths inside a logical block.
pub fn misaligned_request_is_refused(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let block = driver.block();
    for (offset, len) in [
        (1, block),
        (block / 2, block),
        (block - 1, 2 * block),
        (0, 1),
        (0, block + 1),
        (block, block / 2),
        (1, block - 1),
    ] {
        all_refused(&mut driver, offset, len, Fault::Misaligned);
    }
}

/// A range of nothing.
pub fn empty_request_is_refused(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    all_refused(&mut driver, 0, 0, Fault::Misaligned);
    let size = driver.size();
    all_refused(&mut driver, size, 0, Fault::Misaligned);
}

/// The device has the abilities of the list and no others, and what it has not is not tried.
pub fn it_offers_what_is_listed_and_refuses_the_rest(fresh: &Fresh, setup: Setup, listed: &[Ability]) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (len, geometry) = (driver.block(), *driver.channel.geometry());
    let model = driver.fill_device(1);
    for ability in Ability::ALL {
        let is_offered = ability.is_of(&geometry);
        assert_eq!(is_offered, listed.contains(&ability), "{ability:?} of the device, and of the list");
        let operations = match ability {
            Ability::Discard => vec![Op::Discard],
            Ability::Zeroes => vec![Op::Zero, Op::ZeroUnmap],
            Ability::Hint => vec![Op::Cache],
        };
        for op in operations.into_iter().filter(|_| !is_offered) {
            assert_eq!(driver.result(Request::new(op, 0, len, 0)), Err(Fault::NotSupported));
        }
    }
    driver.verify_all(&model);
}

/// After any number of refusals the disk is the same, and a flush succeeds.
pub fn refused_request_changes_nothing_and_latches_nothing(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, size) = (driver.block(), driver.size());
    let model = driver.fill_device(1);
    all_refused(&mut driver, size - block, 2 * block, Fault::OutOfRange);
    all_refused(&mut driver, 1, block, Fault::Misaligned);
    driver.verify_all(&model);
    assert!(!fresh.gate.is_latched());
    assert_eq!(driver.flush(), Ok(()));
}

/// A read-only device reads and flushes, and refuses every change. Not part of the ordinary
/// suite: it wants a device that was opened so.
pub fn read_only_device_refuses_every_change(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, geometry) = (driver.block(), *driver.channel.geometry());
    assert!(geometry.read_only && !geometry.discard && !geometry.write_zeroes);
    let before = driver.read(0, geometry.size).expect("a read");
    let changes = [Op::Discard, Op::Zero, Op::ZeroUnmap].map(|op| Request::new(op, 0, block, 0));
    let writes = [Op::Write, Op::WriteFua].map(|op| Request::transfer(op, 0, driver.buffer(block), 0));
    for request in changes.into_iter().chain(writes) {
        let text = format!("{:?}", request.op);
        let result = driver.result(request);
        assert_eq!(result, Err(Fault::ReadOnly), "{text}");
    }
    assert_eq!(driver.flush(), Ok(()));
    assert!(driver.read(0, geometry.size).expect("a read") == before);
}
