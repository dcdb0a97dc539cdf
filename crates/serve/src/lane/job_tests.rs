//! A job between its chunks, without a lane.

use rustix::io::Errno;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const EIO: Fault = Fault::Io(Errno::IO);

const fn of(op: Op) -> WireRequest<()> {
    WireRequest::new(op, 0, 0)
}

const READ: WireRequest<()> = of(Op::Read);
const WHOLE: WireRequest<()> = WireRequest { whole: true, ..READ };
const CACHE: WireRequest<()> = of(Op::Cache);
const WRITE: WireRequest<()> = of(Op::Write);
const DURABLE_WRITE: WireRequest<()> = of(Op::WriteFua);
const APPEND: WireRequest<()> = of(Op::Append);
const DURABLE_APPEND: WireRequest<()> = of(Op::AppendFua);
const ZERO: WireRequest<()> = of(Op::Zero);
const DURABLE_ZERO: WireRequest<()> = WireRequest { durable: true, ..ZERO };
const FAST_ZERO: WireRequest<()> = WireRequest { fast: true, ..of(Op::ZeroUnmap) };
const DISCARD: WireRequest<()> = of(Op::Discard);
const DURABLE_DISCARD: WireRequest<()> = WireRequest { durable: true, ..DISCARD };
const FLUSH: WireRequest<()> = of(Op::Flush);
const RESET: WireRequest<()> = of(Op::ZoneReset);

fn job(asked: WireRequest<()>, offset: u64, length: u64) -> LaneJob<()> {
    LaneJob::new(WireRequest { offset, length, ..asked }, None)
}

/// A job that moves bytes where the device cannot do it by itself.
fn moving(asked: WireRequest<()>, offset: u64, length: u64) -> LaneJob<()> {
    LaneJob { transfers: true, ..job(asked, offset, length) }
}

/// The lengths of all its chunks.
fn chunks(mut job: LaneJob<()>) -> Vec<u64> {
    let next = || {
        let chunk = u64::from(job.next_chunk()?);
        job.begun += chunk;
        Some(chunk)
    };
    std::iter::from_fn(next).take(100).collect()
}

#[test]
fn transfer_goes_in_chunks_and_what_the_device_does_by_itself_in_steps_to_their_multiples() {
    let transfers = [READ, WHOLE, WRITE, DURABLE_WRITE, APPEND].map(|work| job(work, 4 * KIB, 600 * KIB));
    let moved = [ZERO, CACHE].map(|work| moving(work, 4 * KIB, 600 * KIB));
    for job in transfers.into_iter().chain(moved) {
        assert_eq!(chunks(job), [256 * KIB, 256 * KIB, 88 * KIB]);
    }
    for work in [ZERO, DISCARD, CACHE] {
        assert_eq!(chunks(job(work, 0, 600 * KIB)), [600 * KIB]);
        assert_eq!(chunks(job(work, 64 * MIB - 4 * KIB, 128 * MIB)), [4 * KIB, 64 * MIB, 64 * MIB - 4 * KIB]);
        assert_eq!(chunks(job(work, 128 * MIB, 64 * MIB)), [64 * MIB]);
        assert_eq!(job(work, 3 * MIB, 1 << 40).next_chunk(), Some(61 << 20));
    }
    assert_eq!(job(READ, 0, 1 << 40).next_chunk(), Some(CHUNK));
    for work in [FLUSH, RESET] {
        assert!(chunks(job(work, 0, 0)).is_empty());
    }
}

#[test]
fn chunk_is_begun_only_while_its_bytes_are_there_and_somebody_wants_them() {
    let started = |work| LaneJob { begun: 256 * KIB, ..job(work, 0, 600 * KIB) };
    for work in [READ, WRITE, DISCARD] {
        let awaited = LaneJob { is_awaited: true, ..started(work) };
        assert_eq!(awaited.next_chunk(), None);
        assert!(!awaited.is_done(), "the bytes come yet");
    }
    for (work, goes_on) in [(READ, false), (DISCARD, false), (ZERO, false), (WRITE, true), (APPEND, true)] {
        let mut failed = started(work);
        failed.fail(EIO);
        // A stream has the payload before the next request.
        assert_eq!(failed.next_chunk().is_some(), goes_on, "{work:?}");
        assert_eq!(failed.is_done(), !goes_on);
        let mut cut = started(work);
        cut.cut_short(EIO);
        assert_eq!((cut.next_chunk(), cut.outcome.result()), (None, Err(EIO)));
        assert!(cut.is_done());
    }
}

#[test]
fn job_is_done_when_all_chunks_have_begun_and_ended() {
    let begun = |begun, in_flight, is_awaited| LaneJob { begun, in_flight, is_awaited, ..job(READ, 0, 4 * KIB) };
    assert!(!begun(0, 0, false).is_done());
    assert!(!begun(4 * KIB, 1, false).is_done());
    assert!(!begun(4 * KIB, 0, true).is_done());
    assert!(begun(4 * KIB, 0, false).is_done());
}

#[test]
fn turn_is_as_long_as_others_can_bear_it() {
    let over = |work, transfers, in_flight, begun| {
        LaneJob { transfers, in_flight, ..job(work, 0, 1 << 30) }.is_turn_over(begun)
    };
    // All buffers of it are reserved.
    assert!(!over(WHOLE, false, 100, 100));
    for (work, transfers) in [(READ, false), (ZERO, true), (CACHE, true)] {
        assert_eq!([0, 7, 8, 9].map(|in_flight| over(work, transfers, in_flight, 0)), [false, false, true, true]);
        assert_eq!([0, 7, 8, 9].map(|begun| over(work, transfers, 0, begun)), [false, false, true, true]);
    }
    for work in [WRITE, APPEND] {
        // The stream has nothing else to bring, whatever is in flight.
        assert_eq!([0, 8, 100].map(|in_flight| over(work, false, in_flight, 7)), [false; 3]);
        assert_eq!([0, 100].map(|in_flight| over(work, false, in_flight, 8)), [true; 2]);
    }
    for work in [DISCARD, ZERO, CACHE] {
        assert_eq!(
            [(0, 0), (1, 0), (0, 1)].map(|(flying, begun)| over(work, false, flying, begun)),
            [false, true, true]
        );
    }
}

#[test]
fn job_can_begin_as_many_chunks_as_fit_beside_each_other() {
    let ready = |work, transfers, in_flight| LaneJob { transfers, in_flight, ..job(work, 0, 1 << 30) }.is_ready();
    for (work, transfers) in [(READ, false), (WHOLE, false), (WRITE, false), (ZERO, true), (CACHE, true)] {
        assert_eq!([0, 1, 7, 8, 9].map(|flying| ready(work, transfers, flying)), [true, true, true, false, false]);
    }
    for (work, transfers) in [(DISCARD, false), (DISCARD, true), (ZERO, false), (CACHE, false)] {
        assert_eq!([0, 1, 2].map(|flying| ready(work, transfers, flying)), [true, false, false]);
    }
}

#[test]
fn only_a_long_read_that_is_wanted_whole_reserves_its_buffers_before_it_begins() {
    let reserved = |work, length, begun| LaneJob { begun, ..job(work, 0, length) }.reservation();
    assert_eq!(reserved(WHOLE, 4 * KIB, 0), None);
    assert_eq!(reserved(WHOLE, 256 * KIB, 0), None);
    assert_eq!(reserved(WHOLE, 256 * KIB + 512, 0), Some(2));
    assert_eq!(reserved(WHOLE, MIB, 0), Some(4));
    assert_eq!(reserved(WHOLE, MIB, 256 * KIB), None);
    assert_eq!(reserved(READ, MIB, 0), None);
    assert_eq!(reserved(WRITE, MIB, 0), None);
}

#[test]
fn cache_that_the_device_does_not_have_counts_as_a_read() {
    for (job, counted) in
        [(job(CACHE, 0, 0), Op::Cache), (moving(CACHE, 0, 0), Op::Read), (moving(ZERO, 0, 0), Op::Zero)]
    {
        assert_eq!(job.counted(), counted);
    }
    for asked in [READ, WHOLE, CACHE, WRITE, APPEND, ZERO, DISCARD, RESET, FLUSH] {
        assert_eq!(job(asked, 0, 0).only_reads(), [READ, WHOLE, CACHE].contains(&asked), "{asked:?}");
    }
}

#[test]
fn refusal_of_a_part_is_a_refusal_of_the_whole_only_where_nothing_was_changed() {
    let refused = Fault::NotSupported;
    for work in [READ, WHOLE, CACHE, FLUSH, WRITE, APPEND, ZERO, DISCARD, RESET] {
        let changes = ![READ, WHOLE, CACHE, FLUSH].contains(&work);
        let mut job = job(work, 0, MIB);
        job.outcome.add(Ok(()));
        job.fail(refused);
        let expected = if changes { Fault::Partly } else { refused };
        assert_eq!(job.outcome.result(), Err(expected), "{work:?}");
        // Nor does a server's "not permitted" say that nothing was changed.
        let mut of_server = self::job(work, 0, MIB);
        of_server.outcome.add(Ok(()));
        of_server.fail(Fault::Io(Errno::PERM));
        let expected = if changes { EIO } else { Fault::Io(Errno::PERM) };
        assert_eq!(of_server.outcome.result(), Err(expected), "{work:?}");
        job.fail(EIO);
        job.fail(Fault::NoSpace);
        assert_eq!(job.outcome.result(), Err(EIO), "the worst of all");
    }
}

/// Names what comes last: nothing, a flush, or an action on zones.
fn last_of(job: &LaneJob<()>) -> &'static str {
    match job.last() {
        None => "nothing",
        Some(Op::Flush) => "flush",
        Some(Op::ZoneReset) => "reset",
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn flush_comes_last_where_durability_was_asked_for_and_the_chunks_did_not_bring_it() {
    let cases = [
        (READ, "nothing", "nothing"),
        (WRITE, "nothing", "nothing"),
        (DURABLE_WRITE, "nothing", "nothing"),
        (DURABLE_APPEND, "nothing", "nothing"),
        (CACHE, "nothing", "nothing"),
        (ZERO, "nothing", "nothing"),
        (DURABLE_ZERO, "flush", "nothing"),
        (DISCARD, "nothing", "nothing"),
        (DURABLE_DISCARD, "flush", "flush"),
        (FLUSH, "flush", "flush"),
        (RESET, "reset", "reset"),
    ];
    for (work, by_the_device, by_transfers) in cases {
        for (transfers, last) in [(false, by_the_device), (true, by_transfers)] {
            let mut job = LaneJob { transfers, ..job(work, 0, 0) };
            assert_eq!(last_of(&job), last, "{work:?} {transfers}");
            job.is_last_begun = true;
            assert_eq!(last_of(&job), "nothing", "once is enough");
            job.is_last_begun = false;
            job.fail(EIO);
            assert_eq!(last_of(&job), "nothing", "it has failed already");
        }
    }
    let owing = |work| LaneJob { transfers: true, flush_owed: true, ..job(work, 0, 0) };
    assert_eq!((last_of(&owing(DURABLE_ZERO)), last_of(&owing(ZERO))), ("flush", "nothing"));
}

#[test]
fn zeros_are_written_durably_where_no_flush_follows() {
    assert_eq!([ZERO, DURABLE_ZERO].map(|asked| job(asked, 0, MIB).zeros_durably()), [false, true]);
    let owing = LaneJob { transfers: true, flush_owed: true, ..job(DURABLE_ZERO, 0, MIB) };
    assert!(!owing.zeros_durably());
}

#[test]
fn zeroing_that_the_device_cannot_do_is_written_unless_it_is_to_be_fast_and_nothing_was_done() {
    let (refused, partly) = (Fault::NotSupported, Fault::Partly);
    // Work, whether a step was done before, what the device says; whether it is written, and whether a flush is owed.
    let cases = [
        (ZERO, false, refused, true, false),
        (ZERO, true, refused, true, false),
        (DURABLE_ZERO, false, refused, true, false),
        (DURABLE_ZERO, true, refused, true, true),
        (DURABLE_ZERO, false, partly, true, true),
        (FAST_ZERO, false, refused, false, false),
        (FAST_ZERO, true, refused, true, false),
        (FAST_ZERO, false, partly, true, false),
        (CACHE, false, refused, true, false),
    ];
    for (work, was_begun, fault, is_written, flush_owed) in cases {
        let mut job = job(work, 0, MIB);
        if was_begun {
            job.outcome.add(Ok(()));
        }
        let what = format!("{work:?}, begun: {was_begun}, {fault:?}");
        assert_eq!(job.transfer_instead(fault), is_written, "{what}");
        assert_eq!((job.transfers, job.flush_owed), (is_written, flush_owed), "{what}");
        assert_eq!(job.outcome.result(), if is_written { Ok(()) } else { Err(fault) }, "{what}");
        job.fail(refused);
        let was_zeroed = was_begun || fault == partly;
        assert_eq!(job.outcome.result(), Err(if was_zeroed { partly } else { refused }), "{what}, nor written");
    }
}
