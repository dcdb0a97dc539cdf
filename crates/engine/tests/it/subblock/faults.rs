//! A part that fails fails its request, once; nobody else; and leaves no claim behind.

use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_engine::{Completion, Fault};
use cryptline_testkit::suite::devices::CBC_4096;
use rustix::io::Errno;

use super::{BLOCK, SECTOR, SETUPS, Scene, durably, settle, settle_all, small, write, zero};
use cryptline_testkit::scripted::Manner;
use cryptline_testkit::scripted::Op::{self, Flush, Read, Write, WriteFua};

const EIO: Fault = Fault::Io(Errno::IO);

/// Two blocks of sector 2, sectors 3 and 4, three blocks of sector 5.
const CUT: (u64, u64) = (3 * SECTOR - 2 * BLOCK, 2 * SECTOR + 5 * BLOCK);
/// Where its parts lie.
const HEAD: u64 = 2 * SECTOR;
const BODY: u64 = 3 * SECTOR;
const TAIL: u64 = 5 * SECTOR;

/// Plays a scene with this fault: over every backend, on media that answer at once and later, the
/// fault on submission and on return.
fn with_fault(op: Op, at: u64, play: impl Fn(Scene)) {
    for setup in SETUPS {
        for (at_once, late) in [(true, false), (true, true), (false, false), (false, true)] {
            println!("{op:?} of sector {} over {setup:?}, at once: {at_once}, late: {late}", at / SECTOR);
            let stage = small(Manner { block: 512, at_once, start: CBC_4096.start });
            let scene = Scene::new(setup, stage, &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
            scene.stage.fail(op, at, EIO, late);
            play(scene);
        }
    }
}

/// Requests that failed, and how; each comes back once, which the driver watches.
fn failures(ended: &[Completion]) -> Vec<(u64, Fault)> {
    let fault = |end: &Completion| Some((end.request.token, end.result.err()?));
    let mut failed: Vec<_> = ended.iter().filter_map(fault).collect();
    failed.sort_by_key(|failure| failure.0);
    failed
}

impl Scene {
    /// Nothing is claimed any more, and nobody is counted as a rewriter: then whole sectors go without
    /// claims, and a rewrite waits for any such request.
    fn assert_nothing_is_claimed(&mut self) {
        let Self { stage, model, one, other, .. } = self;
        stage.hold(Write, 9 * SECTOR);
        one.submit(write(one, model, (9 * SECTOR, SECTOR), 8, 800));
        other.submit(write(other, model, (7 * SECTOR, BLOCK), 8, 801));
        assert_eq!(settle(&mut [one, other]), [0; 0], "a rewriter is left");
        stage.release();
        assert_eq!(settle(&mut [one, other]), [800, 801]);
        for (token, driver) in (802..).zip([&mut *other, one]) {
            driver.submit(write(driver, model, CUT, token, token));
            assert_eq!(settle(&mut [driver]), [token], "a claim is left");
        }
        one.verify_all(model);
    }
}

#[test]
fn failing_part_of_a_write_fails_it_once_and_nobody_else() {
    for (op, at) in [(Read, HEAD), (Read, TAIL), (Write, HEAD), (Write, BODY), (Write, TAIL)] {
        with_fault(op, at, |mut scene| {
            let Scene { stage, model, one, other, .. } = &mut scene;
            let (offset, len) = CUT;
            one.submit(one.write_request(offset, len, 2, 1));
            // Its neighbours: blocks of the same sectors and of others, by both queues.
            one.submit(write(one, model, (HEAD, BLOCK), 3, 2));
            one.submit(write(one, model, (TAIL + 5 * BLOCK, 2 * BLOCK), 3, 3));
            one.submit(write(one, model, (6 * SECTOR, SECTOR), 3, 4));
            other.submit(write(other, model, (HEAD + 2 * BLOCK, BLOCK), 3, 5));
            other.submit(write(other, model, (TAIL + 3 * BLOCK, BLOCK), 3, 6));
            other.submit(write(other, model, (7 * SECTOR, BLOCK), 3, 7));
            let ended = settle_all(&mut [one, other]);
            assert_eq!(ended.len(), 7, "somebody hangs");
            assert_eq!(failures(&ended), [(1, EIO)]);
            assert_eq!(stage.faults_left(), 0);
            // What it may have written is anybody's guess; all else is not.
            model.discard(offset, len);
            one.verify_all(model);
            scene.assert_nothing_is_claimed();
        });
    }
}

#[test]
fn failing_part_of_a_read_fails_it_once_and_nobody_else() {
    for at in [HEAD, BODY, TAIL] {
        with_fault(Read, at, |mut scene| {
            let Scene { stage, model, one, other, .. } = &mut scene;
            let (offset, len) = CUT;
            one.submit(one.read_request(offset, len, 1));
            one.submit(one.read_request(HEAD, BLOCK, 2));
            other.submit(other.read_request(TAIL, SECTOR, 3));
            let ended = settle_all(&mut [one, other]);
            assert_eq!(ended.len(), 3, "somebody hangs");
            assert_eq!(failures(&ended), [(1, EIO)]);
            for end in &ended {
                let (back, bytes) = (&end.request, super::data_of(end));
                match end.result {
                    Ok(()) => model.check(back.offset, bytes).unwrap(),
                    Err(_) => assert_eq!((back.offset, back.len), CUT),
                }
            }
            assert_eq!(stage.faults_left(), 0);
            // A failed read is no lost write.
            assert_eq!(one.flush(), Ok(()));
            scene.assert_nothing_is_claimed();
        });
    }
}

#[test]
fn failing_part_of_a_zeroing_fails_it_once() {
    use super::NULL_4096;
    for (op, at) in [(Read, HEAD), (Write, HEAD), (Op::Zero, BODY), (Write, TAIL)] {
        for late in [false, true] {
            let stage = small(Manner { block: 4096, at_once: false, start: NULL_4096.start });
            let scene = Scene::new(SETUPS[0], stage, &NULL_4096, Exclusion::Shared, Zeroes::Decrypt);
            let Scene { stage, mut model, mut one, .. } = scene;
            stage.fail(op, at, EIO, late);
            let (offset, len) = CUT;
            one.submit(zero(offset, len, 1));
            assert_eq!(failures(&settle_all(&mut [&mut one])), [(1, EIO)]);
            assert_eq!(stage.faults_left(), 0);
            model.discard(offset, len);
            one.verify_all(&model);
            model.zero(offset, len);
            one.submit(zero(offset, len, 2));
            assert_eq!(settle(&mut [&mut one]), [2]);
            one.verify_all(&model);
        }
    }
}

#[test]
fn refused_zeroing_has_changed_nothing() {
    use super::NULL_4096;
    for (at_once, late) in [(true, false), (true, true), (false, false), (false, true)] {
        for range in [CUT, (HEAD + BLOCK, 2 * SECTOR), (BODY, SECTOR + BLOCK)] {
            let stage = small(Manner { block: 4096, at_once, start: NULL_4096.start });
            let scene = Scene::new(SETUPS[0], stage, &NULL_4096, Exclusion::Shared, Zeroes::Decrypt);
            let Scene { stage, mut model, mut one, .. } = scene;
            stage.fail(Op::Zero, BODY, Fault::NotSupported, late);
            one.submit(zero(range.0, range.1, 1));
            assert_eq!(failures(&settle_all(&mut [&mut one])), [(1, Fault::NotSupported)]);
            assert_eq!((stage.faults_left(), stage.count(Write), stage.count(Read)), (0, 0, 0));
            one.verify_all(&model);
            // Nothing is held back of the next one, which is carried out.
            model.zero(range.0, range.1);
            one.submit(zero(range.0, range.1, 2));
            assert_eq!(settle(&mut [&mut one]), [2]);
            one.verify_all(&model);
        }
    }
}

#[test]
fn zeroings_as_deep_as_the_queue_find_places_for_all_their_parts() {
    use super::NULL_4096;
    let stage = small(Manner { block: 4096, at_once: false, start: NULL_4096.start });
    let scene = Scene::new(SETUPS[0], stage, &NULL_4096, Exclusion::Shared, Zeroes::Decrypt);
    let Scene { stage, mut model, mut one, .. } = scene;
    stage.hold(Op::Zero, None);
    model.zero(CUT.0, CUT.1);
    (1..=24).for_each(|token| one.submit(zero(CUT.0, CUT.1, token)));
    assert_eq!(settle(&mut [&mut one]), [0; 0]);
    stage.release();
    assert_eq!(settle(&mut [&mut one]), (1..=24).collect::<Vec<u64>>());
    one.verify_all(&model);
}

#[test]
fn writes_put_into_one_rewrite_fail_together_each_once() {
    for (op, strikes) in [(Read, 1), (Write, 1)] {
        for late in [false, true] {
            let stage = small(Manner { block: 512, at_once: false, start: CBC_4096.start });
            let scene = Scene::new(SETUPS[0], stage, &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
            let Scene { stage, mut model, mut one, .. } = scene;
            stage.hold(Write, TAIL);
            one.submit(write(&one, &mut model, (TAIL, BLOCK), 2, 1));
            settle(&mut [&mut one]);
            for block in 1..6 {
                let offset = TAIL + block * BLOCK;
                one.submit(one.write_request(offset, BLOCK, 3, 1 + block));
            }
            // One of the five is a part of a longer write, whose other part is done all the same.
            one.submit(one.write_request(TAIL + 7 * BLOCK, 2 * BLOCK, 3, 9));
            settle(&mut [&mut one]);
            stage.forget();
            if op == Read {
                stage.fail(op, TAIL, EIO, late);
                stage.release();
            } else {
                // The write under way may not be the one that fails.
                stage.hold(Read, TAIL);
                stage.unhold(Write);
                assert_eq!(settle(&mut [&mut one]), [1]);
                stage.fail(op, TAIL, EIO, late);
                stage.release();
            }
            let ended = settle_all(&mut [&mut one]);
            let failed: Vec<u64> = failures(&ended).iter().map(|failure| failure.0).collect();
            assert_eq!(failed, [2, 3, 4, 5, 6, 9]);
            assert_eq!(stage.faults_left() + strikes, 1);
            model.discard(TAIL + BLOCK, 8 * BLOCK);
            one.verify_all(&model);
            one.submit(write(&one, &mut model, (TAIL + BLOCK, 3 * BLOCK), 4, 11));
            assert_eq!(settle(&mut [&mut one]), [11]);
            one.verify_all(&model);
        }
    }
}

#[test]
fn durable_write_with_a_failing_part_is_not_flushed() {
    for (op, at) in [(Read, HEAD), (Write, BODY), (Write, TAIL)] {
        with_fault(op, at, |mut scene| {
            let Scene { stage, one, .. } = &mut scene;
            let (offset, len) = CUT;
            one.submit(durably(one.write_request(offset, len, 2, 1)));
            assert_eq!(failures(&settle_all(&mut [one])), [(1, EIO)]);
            assert_eq!((stage.count(Flush), stage.count(WriteFua)), (0, 0));
            scene.model.discard(offset, len);
            scene.assert_nothing_is_claimed();
        });
    }
}

#[test]
fn failing_flush_fails_the_durable_write_it_ends() {
    with_fault(Flush, 0, |mut scene| {
        let Scene { stage, one, .. } = &mut scene;
        let (offset, len) = CUT;
        one.submit(durably(one.write_request(offset, len, 2, 1)));
        assert_eq!(failures(&settle_all(&mut [one])), [(1, EIO)]);
        assert_eq!(stage.count(Flush), 1);
        // Nor is a later flush believed.
        assert_eq!(one.flush(), Err(Fault::Latched));
        scene.model.discard(offset, len);
        scene.assert_nothing_is_claimed();
    });
}
