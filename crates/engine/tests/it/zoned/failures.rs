//! Writes that are refused or fail, at every place in the row.

use cryptline_engine::base::ZonedDevice;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::{FaultDevice, FaultPlan};
use cryptline_engine::zone::ZoneLayout;
use cryptline_engine::{Fault, Gate, Request, Ring, Submitted, ZoneAction, ZoneCondition};
use cryptline_testkit::scripted::{Manner, Scripted};
use cryptline_testkit::suite::{Driver, Fresh, Setup, fill};
use rustix::io::Errno;

use crate::zoned::common::*;

const EIO: Fault = Fault::Io(Errno::IO);

fn faulty(lower: Fresh, rules: &[String]) -> Fresh {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Fresh { gate: Gate::new(FaultDevice::new(lower.gate, FaultPlan(rules))), keep: lower.keep }
}

/// Twelve writes to a zone, of which the `nth` fails: those before are there, those behind are
/// not, the zone takes nothing until it is reported, and then goes on behind what is there.
fn fails_at(make: fn() -> Fresh, mode: DispatchMode, nth: u64, late: bool) {
    let word = if late { ":late" } else { "" };
    let fresh = encrypted(faulty(make(), &[format!("write:nth={nth}{word}")]), mode);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    for count in 0..12 {
        let offset = start(3) + count * 8192;
        driver.submit(driver.write_request(offset, 8192, count, count));
    }
    for completion in driver.drain() {
        let token = completion.request.token;
        match token {
            _ if token + 1 < nth => assert_eq!(completion.result, Ok(()), "{token}"),
            _ if token + 1 == nth => assert_eq!(completion.result, Err(EIO)),
            _ => assert!(
                matches!(completion.result, Err(Fault::WritePointer | Fault::ZoneFrozen)),
                "{token}: {:?}",
                completion.result
            ),
        }
    }
    // A zone beside it takes no notice.
    let beside = driver.write_request(start(4), 4096, 50, 50);
    assert_eq!(driver.run(beside).result, Ok(()));
    let there = start(3) + (nth - 1) * 8192;
    let next = driver.write_request(there, 4096, 60, 60);
    assert_eq!(driver.run(next).result, Err(Fault::ZoneFrozen));
    let append = Request::zone_append(start(3), driver.buffer(4096), false, 61);
    assert_eq!(driver.run(append).result, Err(Fault::ZoneFrozen));
    assert_eq!(driver.run(Request::flush(62)).result, Ok(()));
    // A late failure is one of a write that is there all the same.
    let reported = there + if late { 8192 } else { 0 };
    assert_eq!(report(&fresh.gate)[3].write_pointer, reported);
    let next = driver.write_request(reported, 4096, 63, 63);
    assert_eq!(driver.run(next).result, Ok(()));
    for count in 0..nth - 1 {
        let offset = start(3) + count * 8192;
        let mut expected = vec![0; 8192];
        fill(&mut expected, offset, count);
        assert!(driver.read(offset, 8192).unwrap() == expected, "write {count}");
    }
}

#[test]
fn failed_write_freezes_its_zone_until_it_is_reported() {
    for make in [|| ram(layout()), || slow(layout()), || over_slow(layout()), file] {
        for nth in 1..=12 {
            fails_at(make, DispatchMode::Inline, nth, false);
        }
    }
    for nth in [1, 2, 7, 12] {
        fails_at(|| ram(layout()), DispatchMode::Auto, nth, false);
        fails_at(|| slow(layout()), DispatchMode::Auto, nth, false);
        fails_at(|| slow(layout()), DispatchMode::Queue, nth, false);
    }
}

#[test]
fn write_that_fails_though_it_arrived_is_found_by_the_report() {
    for nth in 1..=12 {
        fails_at(|| ram(layout()), DispatchMode::Inline, nth, true);
        fails_at(|| slow(layout()), DispatchMode::Inline, nth, true);
    }
}

#[test]
fn reset_thaws_a_frozen_zone() {
    let lower = faulty(slow(layout()), &["write:nth=1".to_owned()]);
    let fresh = encrypted(lower, DispatchMode::Inline);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    let lost = driver.write_request(start(3), 4096, 1, 1);
    assert_eq!(driver.run(lost).result, Err(EIO));
    let reset = Request::zone(start(3), ZoneAction::Reset, 2);
    assert_eq!(driver.run(reset).result, Ok(()));
    let next = driver.write_request(start(3), 4096, 3, 3);
    assert_eq!(driver.run(next).result, Ok(()));
}

#[test]
fn failed_reset_leaves_the_zone_as_it_is_until_it_is_reported() {
    let lower = faulty(ram(layout()), &["zone:nth=1".to_owned()]);
    let fresh = encrypted(lower, DispatchMode::Inline);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    let write = driver.write_request(start(3), 4096, 1, 1);
    driver.run(write).result.unwrap();
    let reset = Request::zone(start(3), ZoneAction::Reset, 2);
    assert_eq!(driver.run(reset).result, Err(EIO));
    let next = driver.write_request(start(3) + 4096, 4096, 3, 3);
    assert_eq!(driver.run(next).result, Err(Fault::ZoneFrozen));
    assert_eq!(report(&fresh.gate)[3].write_pointer, start(3) + 4096);
    let next = driver.write_request(start(3) + 4096, 4096, 4, 4);
    assert_eq!(driver.run(next).result, Ok(()));
}

/// Three zones with something in them are reset by a reset of all, of which some fail by `rules`.
fn reset_all_over(rules: &[&str]) -> Result<(), Fault> {
    let rules: Vec<_> = rules.iter().map(|&rule| rule.to_owned()).collect();
    let fresh = encrypted(faulty(ram(layout()), &rules), DispatchMode::Inline);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    for index in 3..6 {
        let write = driver.write_request(start(index), 4096, 1, 1);
        driver.run(write).result.unwrap();
    }
    driver.run(Request::zone(0, ZoneAction::ResetAll, 2)).result
}

#[test]
fn reset_of_all_zones_ends_with_the_worst_of_its_faults_and_was_not_refused_where_one_was_made() {
    let refused = |nth| format!("zone:nth={nth}:error=EOPNOTSUPP");
    let [one, two, three] = [1, 2, 3].map(refused);
    assert_eq!(reset_all_over(&[&one, "zone:nth=2"]), Err(EIO));
    assert_eq!(reset_all_over(&["zone:nth=1", &two]), Err(EIO));
    assert_eq!(reset_all_over(&[&two]), Err(Fault::Partly));
    assert_eq!(reset_all_over(&[&one, &two, &three]), Err(Fault::NotSupported));
}

#[test]
fn reset_of_all_zones_beside_a_write_to_one_was_not_refused() {
    for (first, expected) in [(None, Fault::ZoneBusy), (Some(3), Fault::Partly), (Some(5), Fault::Partly)] {
        let fresh = over_slow(layout());
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        if let Some(index) = first {
            let write = driver.write_request(start(index), 4096, 1, 1);
            driver.run(write).result.unwrap();
        }
        driver.submit(driver.write_request(start(4), 4096, 1, 2));
        driver.submit(Request::zone(0, ZoneAction::ResetAll, 3));
        let ended = driver.drain();
        let reset = ended.iter().find(|ended| ended.request.token == 3).unwrap();
        assert_eq!(reset.result, Err(expected), "{first:?}");
        let zones = report(&fresh.gate);
        assert!(first.is_none_or(|index| zones[index as usize].condition == ZoneCondition::Empty));
        assert_eq!(zones[4].write_pointer, start(4) + 4096);
    }
}

/// A refusal changes nothing, so nothing is frozen: the zone goes on where it was.
#[test]
fn write_refused_for_want_of_an_open_zone_is_written_once_there_is_one() {
    for make in [ram, slow, over_slow] {
        for mode in [DispatchMode::Inline, DispatchMode::Auto] {
            let mut layout = layout();
            layout.max_open = 1;
            let fresh = encrypted(make(layout.check().unwrap()), mode);
            let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
            let open = Request::zone(start(2), ZoneAction::Open, 1);
            driver.run(open).result.unwrap();
            for count in 0..5 {
                let offset = start(3) + count * 4096;
                driver.submit(driver.write_request(offset, 4096, count, 10 + count));
            }
            let results = driver.drain();
            let first = results.iter().find(|it| it.request.token == 10).unwrap();
            assert_eq!(first.result, Err(Fault::TooManyOpen));
            assert!(results.iter().all(|it| it.result.is_err()));
            let close = Request::zone(start(2), ZoneAction::Close, 2);
            driver.run(close).result.unwrap();
            let again = driver.write_request(start(3), 4096, 1, 3);
            driver.run(again).result.unwrap();
            assert_eq!(report(&fresh.gate)[3].write_pointer, start(3) + 4096);
            assert_eq!(driver.run(Request::flush(4)).result, Ok(()));
        }
    }
}

#[test]
fn too_many_active_zones_are_refused_through_the_cipher() {
    let mut layout = layout();
    layout.max_active = 2;
    let fresh = encrypted(ram(layout.check().unwrap()), DispatchMode::Inline);
    let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
    let mut write = |index, token| {
        let request = driver.write_request(start(index), 4096, 1, token);
        driver.run(request).result
    };
    assert_eq!(write(2, 1), Ok(()));
    assert_eq!(write(3, 2), Ok(()));
    assert_eq!(write(4, 3), Err(Fault::TooManyActive));
    let finish = Request::zone(start(2), ZoneAction::Finish, 4);
    driver.run(finish).result.unwrap();
    assert_eq!(report(&fresh.gate)[2].condition, ZoneCondition::Full);
    let again = driver.write_request(start(4), 4096, 1, 5);
    assert_eq!(driver.run(again).result, Ok(()));
}

/// A queue that goes away with requests under way leaves its zones frozen, or free where the zones are emulated; others go on.
#[test]
fn queue_dropped_with_writes_in_flight_harms_no_other() {
    let modes = [DispatchMode::Inline, DispatchMode::Auto];
    let makes: [fn(ZoneLayout) -> Fresh; 2] = [slow, over_slow];
    for (mode, make) in modes.into_iter().flat_map(|mode| makes.map(|make| (mode, make))) {
        let fresh = encrypted(make(layout()), mode);
        let mut gone = Driver::new(&fresh.gate, Setup::ALL[0]);
        for count in 0..8 {
            let offset = start(3) + count * 4096;
            gone.submit(gone.write_request(offset, 4096, count, count));
        }
        gone.submit(Request::zone(start(3), ZoneAction::Reset, 90));
        gone.submit(Request::zone(0, ZoneAction::ResetAll, 91));
        drop(gone);
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        let beside = driver.write_request(start(5), 4096, 1, 1);
        assert_eq!(driver.run(beside).result, Ok(()));
        let reset = Request::zone(start(3), ZoneAction::Reset, 2);
        assert_eq!(driver.run(reset).result, Ok(()));
        let next = driver.write_request(start(3), 4096, 1, 3);
        assert_eq!(driver.run(next).result, Ok(()));
    }
}

/// A medium may go on for a queue that is gone. Until its ring is gone too, nobody else changes the zone.
#[test]
fn zone_of_a_queue_that_is_gone_is_free_once_the_ring_is_gone_too() {
    for action in [ZoneAction::Reset, ZoneAction::ResetAll] {
        let disk = Scripted::new(Manner { block: 512, at_once: true, start: 0 }, layout().size());
        let gate = Gate::new(ZonedDevice::in_memory(disk.gate(), layout()).unwrap());
        let mut driver = Driver::new(&gate, Setup::ALL[0]);
        let write = |driver: &mut Driver, index| {
            let write = driver.write_request(start(index), 4096, 1, 1);
            driver.run(write).result
        };
        assert_eq!([4, 5].map(|index| write(&mut driver, index)), [Ok(()); 2]);
        disk.hold_all();
        let mut ring = Ring::new(Setup::ALL[0].backend, 8).unwrap();
        let mut gone = gate.open_queue(&mut ring).unwrap();
        let reset = Request::zone(if action == ZoneAction::Reset { start(4) } else { 0 }, action, 2);
        for request in [reset, driver.write_request(start(3), 4096, 1, 1)] {
            assert!(matches!(gone.submit(&mut ring, request), Submitted::Pending));
        }
        drop(gone);
        disk.release();
        assert_eq!([3, 4].map(|index| write(&mut driver, index)), [Err(Fault::ZoneBusy); 2], "{action:?}");
        drop(ring);
        assert_eq!([3, 4].map(|index| write(&mut driver, index)), [Ok(()); 2], "{action:?}");
    }
}

/// A plain write that failed is told by the write pointer. What a durable one was told can be of
/// others, which were acknowledged.
#[test]
fn failed_durable_write_or_append_latches_and_a_refused_one_does_not() {
    let makes: [fn() -> Fresh; 3] = [|| ram(layout()), || slow(layout()), file];
    for make in makes {
        for error in ["EIO", "ENOSPC"] {
            for append in [false, true] {
                let rule = format!("write:nth=2:error={error}");
                let fresh = encrypted(faulty(make(), &[rule]), DispatchMode::Inline);
                let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
                let first = driver.write_request(start(3), 4096, 1, 1);
                assert_eq!(driver.run(first).result, Ok(()));
                let refused = Request::write(start(4) + 4096, driver.buffer(4096), true, 2);
                assert_eq!(driver.run(refused).result, Err(Fault::WritePointer));
                assert_eq!(driver.run(Request::flush(3)).result, Ok(()));
                let data = driver.buffer(4096);
                driver.submit(if append {
                    Request::zone_append(start(3), data, true, 4)
                } else {
                    Request::write(start(3) + 4096, data, true, 4)
                });
                let failed = driver.next_completion().unwrap().result;
                // Want of room that may be a loss is not told as want of room, on which a client would wait.
                assert!(matches!(failed, Err(EIO | Fault::Io(Errno::NOSPC))), "{failed:?}");
                assert_eq!(driver.run(Request::flush(5)).result, Err(Fault::Latched));
                let later = Request::write(start(5), driver.buffer(4096), true, 6);
                assert_eq!(driver.run(later).result, Err(Fault::Latched));
                // Nothing is wrong with a plain write to another zone.
                let beside = driver.write_request(start(6), 4096, 7, 7);
                assert_eq!(driver.run(beside).result, Ok(()));
            }
        }
    }
}
