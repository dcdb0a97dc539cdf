//! Checks of a request, which is then counted and passed on.

use super::*;
use crate::ZoneAction;

#[test]
fn range_is_inside_the_device_in_whole_blocks_and_not_empty() {
    let last = SIZE - 512;
    let cases = [
        (0, 512, Ok(())),
        (last, 512, Ok(())),
        (0, 64 * 1024, Ok(())),
        (last, 1024, Err(Fault::OutOfRange)),
        (SIZE, 512, Err(Fault::OutOfRange)),
        (u64::MAX - 511, 512, Err(Fault::OutOfRange)),
        (u64::MAX - 511, 1024, Err(Fault::OutOfRange)),
        (1, 512, Err(Fault::Misaligned)),
        (256, 512, Err(Fault::Misaligned)),
        (0, 513, Err(Fault::Misaligned)),
        (0, 256, Err(Fault::Misaligned)),
        (256, 256, Err(Fault::Misaligned)),
        (0, 0, Err(Fault::Misaligned)),
        (512, 0, Err(Fault::Misaligned)),
    ];
    for way in WAYS {
        let mut bench = Bench::new(able(), way);
        for (offset, len, expected) in cases {
            let (bytes, is_ok) = (u64::try_from(len).unwrap(), expected.is_ok());
            let at = |request| Request { offset, ..request };
            let asks =
                [read(offset, len), write(offset, len, true), at(discard(bytes)), at(zeroes(bytes)), at(hint(bytes))];
            for request in asks {
                let what = format!("{request:?}");
                assert_eq!(bench.see(request), (expected, is_ok), "{what}");
            }
        }
        assert!(!bench.gate.is_latched());
    }
}

#[test]
fn what_the_geometry_does_not_offer_is_refused_and_the_device_is_not_asked() {
    let all = able();
    let without: [(Geometry, [Option<Fault>; 6]); 5] = [
        (all, [None; 6]),
        (Geometry { discard: false, ..all }, [None, None, None, Some(Fault::NotSupported), None, None]),
        (Geometry { write_zeroes: false, ..all }, [None, None, None, None, Some(Fault::NotSupported), None]),
        (Geometry { cache: false, ..all }, [None, None, None, None, None, Some(Fault::NotSupported)]),
        (
            Geometry { read_only: true, ..all },
            [None, Some(Fault::ReadOnly), Some(Fault::ReadOnly), Some(Fault::ReadOnly), Some(Fault::ReadOnly), None],
        ),
    ];
    for (geometry, expected) in without {
        let mut bench = Bench::new(geometry, Way::AtOnce);
        let asks = [read(0, 512), write(0, 512, false), write(0, 512, true), discard(512), zeroes(512), hint(512)];
        for (request, fault) in asks.into_iter().zip(expected) {
            let what = format!("{request:?} {geometry:?}");
            assert_eq!(bench.see(request), (fault.map_or(Ok(()), Err), fault.is_none()), "{what}");
        }
        assert_eq!(bench.see(Request::flush(0)), (Ok(()), true));
        // There are no zones.
        assert_eq!(bench.see(append(0, 512)), (Err(Fault::NotSupported), false));
        assert_eq!(bench.see(Request::zone(0, ZoneAction::Reset, 0)), (Err(Fault::NotSupported), false));
        assert_eq!(bench.gate.report_zones(0, &mut [Zone::default(); 2]), Err(Fault::NotSupported));
        assert_eq!(bench.queue.geometry(), &geometry);
    }
}

#[test]
fn gate_that_was_made_read_only_says_so_and_lets_nothing_change() {
    let bench = Bench::new(able(), Way::InSubmit);
    let gate = bench.gate.clone().read_only();
    let expected = Geometry { read_only: true, discard: false, write_zeroes: false, ..able() };
    assert_eq!(gate.geometry(), &expected);
    assert!(gate.is_same(&bench.gate));
    assert!(!gate.is_same(&Bench::new(able(), Way::InSubmit).gate));
    let mut reader = Bench::at(gate, Arc::clone(&bench.below));
    assert_eq!(reader.see(write(0, 512, false)), (Err(Fault::ReadOnly), false));
    assert_eq!(reader.see(zeroes(512)), (Err(Fault::ReadOnly), false));
    assert_eq!(reader.see(read(0, 512)), (Ok(()), true));
}

#[test]
fn transfers_stay_in_a_zone_and_appends_and_actions_name_one_by_its_start() {
    let zone = usize::try_from(ZONE).unwrap();
    let reset = |offset| Request::zone(offset, ZoneAction::Reset, 0);
    let cases = [
        (read(ZONE, zone), Ok(())),
        (read(ZONE - 512, 512), Ok(())),
        (read(ZONE - 512, 1024), Err(Fault::CrossesZone)),
        (write(ZONE - 512, 1024, false), Err(Fault::CrossesZone)),
        (append(ZONE, 4096), Ok(())),
        (append(3 * ZONE, 512), Ok(())),
        (append(SIZE, 512), Err(Fault::OutOfRange)),
        (append(ZONE + 512, 512), Err(Fault::Misaligned)),
        (append(ZONE, 4096 + 512), Err(Fault::OutOfRange)),
        (append(ZONE, 0), Err(Fault::Misaligned)),
        (append(ZONE, 700), Err(Fault::Misaligned)),
        (reset(ZONE), Ok(())),
        (reset(0), Ok(())),
        (reset(SIZE), Err(Fault::OutOfRange)),
        (reset(ZONE + 512), Err(Fault::Misaligned)),
    ];
    let mut bench = Bench::new(zoned(), Way::InPoll);
    for (request, expected) in cases {
        let what = format!("{request:?}");
        assert_eq!(bench.see(request), (expected, expected.is_ok()), "{what}");
    }
    let mut reader = Bench::new(Geometry { read_only: true, ..zoned() }, Way::InPoll);
    assert_eq!(reader.see(append(ZONE, 512)), (Err(Fault::ReadOnly), false));
    assert_eq!(reader.see(reset(ZONE)), (Err(Fault::ReadOnly), false));
    let zones = zoned().zones.map(|zones| ZoneModel { append_limit: 0, ..zones });
    let mut plain = Bench::new(Geometry { zones, ..zoned() }, Way::InPoll);
    assert_eq!(plain.see(append(ZONE, 512)), (Err(Fault::NotSupported), false));
    assert_eq!(plain.see(reset(ZONE)), (Ok(()), true));
    for (offset, expected) in [(0, Ok(2)), (SIZE - 1, Ok(2)), (SIZE, Err(Fault::OutOfRange))] {
        assert_eq!(bench.gate.report_zones(offset, &mut [Zone::default(); 2]), expected);
    }
}

/// One is checked and the other moved.
#[test]
fn data_that_are_not_what_the_request_says_are_refused() {
    let (data, all) = (|| Some(buffer(BLOCK)), BLOCK as u64);
    for op in Op::ALL {
        let wrong = match op {
            Op::Read | Op::Write | Op::WriteFua | Op::Append | Op::AppendFua => {
                [(None, all), (data(), all + 512), (data(), all - 512), (data(), 0)]
            }
            op if op == Op::Flush || op.zone_action().is_some() => {
                [(data(), all), (data(), 0), (None, all), (None, u64::MAX)]
            }
            _ => [(data(), all), (data(), 0), (data(), 2 * all), (data(), u64::MAX)],
        };
        for ((data, len), way) in wrong.into_iter().zip(WAYS.into_iter().cycle()) {
            let what = format!("{op:?} of {len} with {data:?}, {way:?}");
            let mut bench = Bench::new(if op.is_append() { zoned() } else { able() }, way);
            let request = Request { offset: 0, op, data, len, token: 0 };
            assert_eq!(bench.see(request), (Err(Fault::OutOfRange), false), "{what}");
            assert!(!bench.gate.is_latched());
        }
    }
}

#[test]
fn device_that_has_grown_is_reached_in_whole_blocks_and_never_shrinks() {
    let mut bench = Bench::new(able(), Way::InSubmit);
    let before = bench.another();
    assert_eq!((bench.gate.size(), bench.gate.grow()), (SIZE, SIZE));
    bench.below.size.store(SIZE + 700, Ordering::Relaxed);
    assert_eq!(bench.run(read(SIZE, 512)), Err(Fault::OutOfRange), "nobody has looked");
    assert_eq!(bench.gate.grow(), SIZE + 512);
    for mut bench in [bench.another(), before] {
        assert_eq!(bench.run(read(SIZE, 512)), Ok(()));
        assert_eq!(bench.run(read(SIZE, 1024)), Err(Fault::OutOfRange));
    }
    bench.below.size.store(1024, Ordering::Relaxed);
    assert_eq!((bench.gate.grow(), bench.gate.size()), (SIZE + 512, SIZE + 512));
    assert_eq!(bench.gate.geometry().size, SIZE, "as it was opened");
}

#[test]
fn extent_is_asked_for_inside_the_device_only() {
    let bench = Bench::new(able(), Way::InSubmit);
    let hole = |len| Ok(Extent { len, hole: true, zero: false });
    let out = Err(Fault::OutOfRange);
    let cases = [(0, SIZE, hole(SIZE)), (SIZE - 1, 1, hole(1)), (0, 0, out), (SIZE - 1, 2, out), (u64::MAX, 2, out)];
    for (offset, len, expected) in cases {
        assert_eq!(bench.gate.extent(offset, len), expected, "{len} at {offset}");
    }
}

#[test]
fn gate_tells_what_its_device_tells_and_closes_what_is_below_too() {
    let lower = Bench::new(able(), Way::InPoll);
    let below = Below { under: vec![lower.gate.clone()], times: 2, ..Below::new(able(), Way::InPoll) };
    let bench = Bench::over(below);
    assert_eq!((bench.gate.files_taken(3), bench.gate.files().len()), (0, 0));
    bench.gate.reserve_files(3).unwrap();
    bench.gate.close_spare();
    let closed = |bench: &Bench| bench.below.spare_closed.load(Ordering::Relaxed);
    assert_eq!((closed(&bench), closed(&lower)), (1, 1));
    let told = |gate: &Gate| (gate.traits().awaits_reads, gate.traits().sends_messages);
    assert_eq!((told(&bench.gate), told(&lower.gate)), ((true, true), (false, false)));
    assert_eq!(bench.gate.traits().queues, 7);
    assert!(bench.gate.traits().connects.tcp);
    for (way, at_once) in [(Way::AtOnce, AtOnce::All), (Way::InPoll, AtOnce::None)] {
        assert_eq!(Bench::new(able(), way).queue.at_once(), at_once);
    }
}

#[test]
fn first_thing_is_kept_as_long_as_there_is_a_gate_or_a_queue() {
    let Bench { gate, queue, .. } = Bench::new(able(), Way::InPoll);
    let (thing, second) = (Arc::new(()), Arc::new(()));
    let gate = gate.keeping(Arc::clone(&thing)).keeping(Arc::clone(&second));
    assert_eq!((Arc::strong_count(&thing), Arc::strong_count(&second)), (2, 1));
    drop(gate);
    assert_eq!(Arc::strong_count(&thing), 2);
    drop(queue);
    assert_eq!(Arc::strong_count(&thing), 1);
}

#[test]
fn requests_in_flight_are_counted() {
    let mut bench = Bench::new(able(), Way::InPoll);
    for count in 1..=3 {
        assert!(matches!(bench.queue.submit(&mut bench.ring, read(0, 512)), Submitted::Pending));
        assert_eq!(bench.queue.in_flight(), count);
    }
    let mut done = Vec::new();
    bench.queue.poll(&mut bench.ring, &mut done);
    assert_eq!((done.len(), bench.queue.in_flight()), (3, 0));
}

#[test]
#[should_panic(expected = "a request came back twice")]
fn request_that_comes_back_twice_is_our_own_bug() {
    let below = Below { times: 2, ..Below::new(able(), Way::InPoll) };
    let _ = Bench::over(below).run(read(0, 512));
}

#[test]
fn device_with_an_impossible_geometry_gets_no_gate() {
    let zones = |zone_size| zoned().zones.map(|zones| ZoneModel { zone_size, ..zones });
    let possible = [able(), zoned(), Geometry { zones: zones(512), ..able() }];
    let impossible = [
        Geometry { logical_block: 768, ..able() },
        Geometry { size: SIZE + 1, ..able() },
        Geometry { zones: zones(3 * 4096), ..able() },
        Geometry { zones: zones(256), ..able() },
    ];
    let is_made = |geometry| {
        let make = || Gate::new(Stub(Arc::new(Below::new(geometry, Way::InPoll))));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(make)).is_ok()
    };
    assert_eq!(possible.map(is_made), [true; 3]);
    assert_eq!(impossible.map(is_made), [false; 4]);
}
