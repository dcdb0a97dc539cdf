//! Refusals of the gate and the layers.

use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::{CryptOptions, zoned};
use cryptline_engine::{Fault, Request, ZoneAction, ZoneCondition};
use cryptline_testkit::suite::devices::{self, Layout};
use cryptline_testkit::suite::{Driver, Fresh, Setup};

use crate::zoned::common::*;

/// A plain zoned device and an encrypted one.
fn both() -> [Fresh; 2] {
    [ram(layout()), encrypted(ram(layout()), DispatchMode::Inline)]
}

#[test]
fn range_that_crosses_zones_is_refused() {
    for fresh in both() {
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        let end = start(1) - 4096;
        assert_eq!(driver.read(end, 8192), Err(Fault::CrossesZone));
        let write = driver.write_request(end, 8192, 1, 1);
        assert_eq!(driver.run(write).result, Err(Fault::CrossesZone));
        assert!(driver.read(end, 4096).is_ok());
    }
}

#[test]
fn append_and_action_name_a_zone_by_its_start() {
    for fresh in both() {
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        let size = driver.size();
        for (offset, fault) in
            [(start(3) + 4096, Fault::Misaligned), (size, Fault::OutOfRange), (u64::MAX, Fault::OutOfRange)]
        {
            let append = Request::zone_append(offset, driver.buffer(4096), false, 1);
            assert_eq!(driver.run(append).result, Err(fault));
            assert_eq!(driver.result(Request::zone(offset, ZoneAction::Reset, 0)), Err(fault));
        }
        for (len, fault) in [(0, Fault::Misaligned), (100, Fault::Misaligned), (2 * ZONE, Fault::OutOfRange)] {
            let append = Request::zone_append(start(3), driver.buffer(len), false, 1);
            assert_eq!(driver.run(append).result, Err(fault), "{len}");
        }
    }
}

#[test]
fn conventional_zone_takes_writes_anywhere_and_nothing_of_zones() {
    for fresh in both() {
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        let write = driver.write_request(start(1) + 8192, 4096, 1, 1);
        assert_eq!(driver.run(write).result, Ok(()));
        let refused = Err(Fault::ZoneCondition);
        let append = Request::zone_append(start(1), driver.buffer(4096), false, 2);
        assert_eq!(driver.run(append).result, refused);
        for action in [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset] {
            assert_eq!(driver.result(Request::zone(start(1), action, 0)), refused);
        }
        assert_eq!(driver.result(Request::zone(0, ZoneAction::ResetAll, 0)), Ok(()));
        assert_eq!(report(&fresh.gate)[1].condition, ZoneCondition::NotWritePointer);
    }
}

#[test]
fn device_without_zones_has_no_operations_of_theirs() {
    let fresh = devices::ram().unwrap();
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    let append = Request::zone_append(0, driver.buffer(4096), false, 1);
    assert_eq!(driver.run(append).result, Err(Fault::NotSupported));
    assert_eq!(driver.result(Request::zone(0, ZoneAction::ResetAll, 0)), Err(Fault::NotSupported));
    assert_eq!(fresh.gate.report_zones(0, &mut []), Err(Fault::NotSupported));
    assert_eq!(driver.flush(), Ok(()));
}

#[test]
fn report_begins_where_it_is_asked_to_and_ends_with_the_device() {
    for fresh in both() {
        let zones = report(&fresh.gate);
        assert_eq!(zones.len(), ZONES as usize);
        let mut two = [cryptline_engine::Zone::default(); 2];
        assert_eq!(fresh.gate.report_zones(start(6) + 4096, &mut two), Ok(2));
        assert_eq!(two, zones[6..]);
        assert_eq!(fresh.gate.report_zones(start(7), &mut two), Ok(1));
        assert_eq!(fresh.gate.report_zones(start(8), &mut two), Err(Fault::OutOfRange));
        assert_eq!(fresh.gate.report_zones(0, &mut []), Ok(0));
    }
}

#[test]
fn clear_disk_begins_with_a_zone_of_its_own_and_sees_no_other() {
    let lower = ram(layout());
    let below = lower.gate.clone();
    let options = CryptOptions { start: start(2), size: Some(3 * ZONE), ..CryptOptions::default() };
    let gate = zoned::encrypted(lower.gate, devices::cipher(&AES), options).unwrap();
    let mut beside = Driver::new(&below, Setup::ALL[0]);
    let write = beside.write_request(start(6), 4096, 1, 1);
    beside.run(write).result.unwrap();
    let mut driver = Driver::new(&gate, Setup::ALL[0]);
    let write = driver.write_request(start(1), 4096, 1, 1);
    driver.run(write).result.unwrap();
    assert_eq!(report(&gate).len(), 3);
    assert_eq!(report(&gate)[1].write_pointer, start(1) + 4096);
    assert_eq!(report(&below)[3].write_pointer, start(3) + 4096);
    assert_eq!(driver.result(Request::zone(0, ZoneAction::ResetAll, 0)), Ok(()));
    assert_eq!(report(&below)[3].condition, ZoneCondition::Empty);
    assert_eq!(report(&below)[6].write_pointer, start(6) + 4096);
}

#[test]
fn layouts_that_do_not_fit_the_zones_are_refused_with_what_to_do() {
    let refused = |start, size, sector_size, granularity| {
        let mut layout = layout();
        layout.write_granularity = granularity;
        let layer = Layout { sector_size, ..AES };
        let options = CryptOptions { start, size, ..CryptOptions::default() };
        let lower = ram(layout.check().unwrap()).gate;
        match zoned::encrypted(lower, devices::cipher(&layer), options) {
            Ok(_) => panic!("it fits"),
            Err(error) => error.to_string(),
        }
    };
    assert!(refused(16 * 4096, None, 4096, 4096).contains("detached header"));
    assert!(refused(0, Some(ZONE + 4096), 4096, 4096).contains("whole zones"));
    assert!(refused(0, None, 4096, 512).contains("sector size of 512"));
}
