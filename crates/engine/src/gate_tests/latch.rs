//! The latch (I4).

use super::*;

/// Ways in which a gate comes to be latched.
const LATCHERS: [fn(&mut Bench); 5] = [
    |bench| {
        bench.below.fail(EIO);
        assert_eq!(bench.run(write(0, BLOCK, false)), Err(EIO));
    },
    |bench| {
        bench.below.fail(EIO);
        assert_eq!(bench.run(write(0, BLOCK, true)), Err(EIO));
    },
    |bench| {
        bench.below.fail(EIO);
        assert_eq!(bench.run(Request::flush(0)), Err(EIO));
    },
    |bench| {
        bench.below.fail(EIO);
        assert_eq!(bench.another().run(write(0, BLOCK, false)), Err(EIO));
    },
    |bench| bench.gate.clone().latch(),
];

#[test]
fn latched_gate_answers_every_later_flush_and_durable_write_with_the_fault_whichever_way_they_go() {
    for way in WAYS {
        for latch in LATCHERS {
            let mut bench = Bench::new(able(), way);
            assert_eq!(bench.run(Request::flush(0)), Ok(()));
            assert!(!bench.gate.is_latched());
            latch(&mut bench);
            let late = bench.another();
            for mut bench in [bench, late] {
                assert!(bench.gate.is_latched());
                for _ in 0..2 {
                    assert_eq!(bench.see(Request::flush(0)), (Err(Fault::Latched), false), "{way:?}");
                    let at_once = bench.queue.answer_at_once(&mut Request::flush(0));
                    assert_eq!(at_once, Some(Err(Fault::Latched)), "{way:?}");
                    assert_eq!(bench.run(write(0, BLOCK, true)), Err(Fault::Latched), "{way:?}");
                    let at_once = bench.queue.answer_at_once(&mut write(0, BLOCK, true));
                    assert_eq!(at_once, (way == Way::AtOnce).then_some(Err(Fault::Latched)));
                    assert_eq!(bench.run(write(0, BLOCK, false)), Ok(()), "what can be saved can be saved");
                    assert_eq!(bench.run(read(0, BLOCK)), Ok(()));
                }
            }
        }
    }
}

#[test]
fn flush_that_is_under_way_when_a_write_is_lost_fails() {
    let mut bench = Bench::new(able(), Way::InPoll);
    let flush = bench.queue.submit(&mut bench.ring, Request::flush(1));
    assert!(matches!(flush, Submitted::Pending));
    bench.gate.latch();
    let mut done = vec![Request::flush(9).complete(Ok(()))];
    bench.queue.poll(&mut bench.ring, &mut done);
    // What stood there before is somebody else's.
    assert_eq!(done.iter().map(|it| it.result).collect::<Vec<_>>(), [Ok(()), Err(Fault::Latched)]);
}

/// Fault that is told of a request, and whether it latches: without zones, and with them.
#[test]
fn what_is_lost_latches_and_what_is_refused_does_not() {
    type Ask = fn() -> Request;
    type Told = (Fault, bool);
    let plain: Ask = || write(0, BLOCK, false);
    let durable: Ask = || write(0, BLOCK, true);
    let flush: Ask = || Request::flush(0);
    let append: Ask = || append(0, BLOCK);
    let same = |fault| (fault, false);
    let loss = |fault| (fault, true);
    let cases: [(Ask, Fault, Told, Told); 30] = [
        (|| read(0, BLOCK), EIO, same(EIO), same(EIO)),
        (|| read(0, BLOCK), Fault::NoSpace, same(Fault::NoSpace), same(Fault::NoSpace)),
        (|| hint(512), EIO, same(EIO), same(EIO)),
        (plain, EIO, loss(EIO), same(EIO)),
        (plain, Fault::Truncated, loss(Fault::Truncated), same(Fault::Truncated)),
        (plain, Fault::Lost, loss(Fault::Lost), same(Fault::Lost)),
        (plain, Fault::Latched, loss(Fault::Latched), same(Fault::Latched)),
        (plain, NO_ROOM, loss(NO_ROOM), same(NO_ROOM)),
        (plain, Fault::NoSpace, same(Fault::NoSpace), same(Fault::NoSpace)),
        (plain, Fault::Busy, same(Fault::Busy), same(Fault::Busy)),
        (plain, Fault::Partly, same(Fault::Partly), same(Fault::Partly)),
        (plain, Fault::NotSupported, same(Fault::NotSupported), same(Fault::NotSupported)),
        (|| discard(512), EIO, loss(EIO), same(EIO)),
        (|| zeroes(512), EIO, loss(EIO), same(EIO)),
        (|| zeroes(512), Fault::NotSupported, same(Fault::NotSupported), same(Fault::NotSupported)),
        (durable, EIO, loss(EIO), loss(EIO)),
        (durable, Fault::Lost, loss(Fault::Lost), loss(Fault::Lost)),
        (durable, NO_ROOM, loss(NO_ROOM), loss(NO_ROOM)),
        (durable, Fault::NoSpace, same(Fault::NoSpace), loss(NO_ROOM)),
        (durable, Fault::Busy, same(Fault::Busy), same(Fault::Busy)),
        (durable, Fault::Partly, same(Fault::Partly), same(Fault::Partly)),
        (durable, Fault::ReadOnly, same(Fault::ReadOnly), same(Fault::ReadOnly)),
        (flush, EIO, loss(EIO), loss(EIO)),
        (flush, Fault::NoSpace, loss(NO_ROOM), loss(NO_ROOM)),
        (flush, Fault::Partly, loss(Fault::Partly), loss(Fault::Partly)),
        (flush, Fault::Lost, loss(Fault::Lost), loss(Fault::Lost)),
        (flush, Fault::Busy, same(Fault::Busy), same(Fault::Busy)),
        (flush, Fault::Io(Errno::INTR), loss(Fault::Io(Errno::INTR)), loss(Fault::Io(Errno::INTR))),
        (append, EIO, (Fault::NotSupported, false), same(EIO)),
        (append, Fault::NoSpace, (Fault::NotSupported, false), same(Fault::NoSpace)),
    ];
    for way in WAYS {
        for (ask, fault, without, with) in cases {
            for (geometry, (told, latches)) in [(able(), without), (zoned(), with)] {
                let mut bench = Bench::new(geometry, way);
                let (tell, heard) = std::sync::mpsc::channel();
                bench.gate.when_latched(move |why| tell.send(why).unwrap());
                bench.below.fail(fault);
                let request = ask();
                let what = format!("{request:?} {fault:?} {way:?} {:?}", geometry.zones);
                assert_eq!(bench.run(request), Err(told), "{what}");
                assert_eq!(bench.gate.is_latched(), latches, "{what}");
                let why: Vec<_> = heard.try_iter().collect();
                assert_eq!(why, if latches { vec![Some(told)] } else { vec![] }, "{what}");
            }
        }
    }
}

/// Kernels and programs take a flush that is not supported for one that is not needed, and a write that is not for one
/// that changed nothing.
#[test]
fn refusal_of_a_sync_is_told_as_a_failure_and_its_number_to_whoever_logs_it() {
    let not_there = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS].map(Fault::Io);
    let not_done = [Errno::PERM, Errno::ACCESS, Errno::ROFS, Errno::SHUTDOWN].map(Fault::Io);
    let numbers: Vec<_> = not_there.into_iter().chain(not_done).collect();
    let refusals = [Fault::NotSupported, Fault::ReadOnly, Fault::OutOfRange, Fault::NoStore];
    let flushes = numbers.iter().chain(&refusals).map(|fault| (Request::flush(0), *fault));
    let durable = numbers.iter().map(|fault| (write(0, BLOCK, true), *fault));
    for (request, fault) in flushes.chain(durable) {
        let mut bench = Bench::new(able(), Way::InPoll);
        let (tell, heard) = std::sync::mpsc::channel();
        bench.gate.when_latched(move |why| tell.send(why).unwrap());
        bench.below.fail(fault);
        assert_eq!(bench.run(request), Err(EIO), "{fault:?}");
        assert!(bench.gate.is_latched());
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Some(fault)]);
    }
    for fault in numbers {
        let mut bench = Bench::new(able(), Way::InPoll);
        bench.below.fail(fault);
        assert_eq!(bench.run(read(0, BLOCK)), Err(fault), "a read has no such meaning");
    }
}

#[test]
fn latch_is_told_of_once_and_to_the_first_who_asked() {
    let bench = Bench::new(able(), Way::InPoll);
    let (tell, heard) = std::sync::mpsc::channel();
    let second = tell.clone();
    bench.gate.when_latched(move |why| tell.send((1, why)).unwrap());
    bench.gate.when_latched(move |why| second.send((2, why)).unwrap());
    bench.gate.latch();
    bench.gate.latch();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(1, None)]);
}
