//! Order of waiting, and what is put into one rewrite.

use cryptline_engine::Ring;
use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_testkit::suite::Driver;
use cryptline_testkit::suite::devices::{CBC_4096, SIZE};

use super::{BLOCK, NULL_4096, SECTOR, SETUPS, Scene, each_backend_and_medium};
use super::{data_of, discard, in_small_blocks, pattern, settle, settle_all, write};
use cryptline_testkit::scripted::Op::{Discard, Read, Write};
use cryptline_testkit::scripted::{Manner, Scripted};

/// Plays a scene over every backend, on a medium that answers at once and on one that does not. All is as the model
/// says in the end.
fn scenes(exclusion: Exclusion, play: impl Fn(&mut Scene)) {
    each_backend_and_medium(CBC_4096.start, 512, |setup, manner| {
        let mut scene = Scene::new(setup, Scripted::new(manner, SIZE), &CBC_4096, exclusion, Zeroes::Decrypt);
        play(&mut scene);
        scene.one.verify_all(&scene.model);
    });
}

#[test]
fn aligned_write_is_not_lost_between_read_and_write_back() {
    for same_queue in [false, true] {
        scenes(Exclusion::Shared, |scene| {
            let Scene { stage, model, one, other, .. } = scene;
            stage.hold(Read, 3 * SECTOR);
            let rewrite = write(one, model, (3 * SECTOR + BLOCK, BLOCK), 2, 1);
            one.submit(rewrite);
            settle(&mut [one, other]);
            assert_eq!(stage.begun(), [(Read, 3 * SECTOR, SECTOR)]);
            let aligned = write(one, model, (2 * SECTOR, 3 * SECTOR), 3, 2);
            if same_queue {
                one.submit(aligned)
            } else {
                other.submit(aligned)
            }
            assert_eq!(settle(&mut [one, other]), [0; 0], "nobody can have ended");
            assert_eq!(stage.count(Write), 0, "the aligned write did not wait");
            stage.release();
            assert_eq!(settle(&mut [one, other]), [1, 2]);
            let expected = [(Read, 3 * SECTOR, SECTOR), (Write, 3 * SECTOR, SECTOR), (Write, 2 * SECTOR, 3 * SECTOR)];
            assert_eq!(stage.begun(), expected);
        });
    }
}

#[test]
fn rewrite_waits_for_an_aligned_write_under_way() {
    for same_queue in [false, true] {
        scenes(Exclusion::Shared, |scene| {
            let Scene { stage, model, one, other, .. } = scene;
            stage.hold(Write, 3 * SECTOR);
            let aligned = write(one, model, (3 * SECTOR, 2 * SECTOR), 3, 1);
            one.submit(aligned);
            let rewrite = write(one, model, (4 * SECTOR - BLOCK, BLOCK), 2, 2);
            if same_queue {
                one.submit(rewrite)
            } else {
                other.submit(rewrite)
            }
            assert_eq!(settle(&mut [one, other]), [0; 0]);
            assert_eq!(stage.count(Read), 0, "what it read would be old");
            stage.release();
            assert_eq!(settle(&mut [one, other]), [1, 2]);
        });
    }
}

#[test]
fn rewrite_waits_for_a_claimed_aligned_write_too() {
    scenes(Exclusion::Shared, |scene| {
        let Scene { stage, model, one, other, .. } = scene;
        // While somebody rewrites elsewhere, aligned writes have claims.
        stage.hold(Read, 0);
        one.submit(write(one, model, (0, BLOCK), 2, 1));
        settle(&mut [one, other]);
        stage.hold(Write, 3 * SECTOR);
        other.submit(write(one, model, (3 * SECTOR, SECTOR), 3, 2));
        let place = (3 * SECTOR + 5 * BLOCK, BLOCK);
        one.submit(write(one, model, place, 4, 3));
        assert_eq!(settle(&mut [one, other]), [0; 0]);
        let begun = [(Read, 0, SECTOR), (Write, 3 * SECTOR, SECTOR)];
        assert_eq!(stage.begun(), begun);
        stage.release();
        assert_eq!(settle(&mut [one, other]), [1, 2, 3]);
    });
}

#[test]
fn reads_of_a_sector_wait_for_its_rewrite_and_see_no_half_of_it() {
    scenes(Exclusion::Shared, |scene| {
        let Scene { stage, model, one, other, .. } = scene;
        stage.hold(Write, 3 * SECTOR);
        let place = (3 * SECTOR + BLOCK, BLOCK);
        one.submit(write(one, model, place, 2, 1));
        settle(&mut [one, other]);
        stage.forget();
        other.submit(other.read_request(3 * SECTOR + 5 * BLOCK, BLOCK, 2));
        other.submit(other.read_request(3 * SECTOR, SECTOR, 3));
        one.submit(one.read_request(3 * SECTOR + BLOCK, 9 * BLOCK, 4));
        settle(&mut [one, other]);
        let of_the_sector = |begun: &(_, u64, u64)| begun.1 == 3 * SECTOR;
        assert!(!stage.begun().iter().any(of_the_sector), "it can be torn");
        stage.release();
        let ended = settle_all(&mut [one, other]);
        assert_eq!(ended.len(), 4);
        for completion in ended.iter().filter(|end| end.request.token != 1) {
            let read = &completion.request;
            let bytes = data_of(completion);
            model.check(read.offset, bytes).unwrap();
        }
    });
}

#[test]
fn rewrite_waits_for_reads_of_its_sector() {
    scenes(Exclusion::Shared, |scene| {
        let Scene { stage, model, one, other, .. } = scene;
        stage.hold(Read, 3 * SECTOR);
        other.submit(other.read_request(3 * SECTOR + 5 * BLOCK, BLOCK, 1));
        one.submit(write(one, model, (3 * SECTOR, BLOCK), 2, 2));
        assert_eq!(settle(&mut [one, other]), [0; 0]);
        assert_eq!(stage.count(Read), 1);
        stage.release();
        assert_eq!(settle(&mut [one, other]), [1, 2]);
    });
}

/// Rewrites sector 3 slowly, and meanwhile does everything elsewhere; who has ended by then.
fn meanwhile_elsewhere(scene: &mut Scene) -> Vec<u64> {
    let Scene { stage, model, one, other, .. } = scene;
    stage.hold(Read, 3 * SECTOR);
    one.submit(write(one, model, (3 * SECTOR, BLOCK), 2, 1));
    settle(&mut [one, other]);
    other.submit(write(other, model, (4 * SECTOR, BLOCK), 2, 2));
    other.submit(write(other, model, (5 * SECTOR, SECTOR), 2, 3));
    one.submit(one.read_request(2 * SECTOR + BLOCK, BLOCK, 4));
    one.submit(one.read_request(2 * SECTOR, SECTOR, 5));
    model.discard(6 * SECTOR, SECTOR);
    one.submit(discard(6 * SECTOR, SECTOR, 6));
    other.submit(write(other, model, (9 * SECTOR - BLOCK, SECTOR), 2, 7));
    let ended = settle(&mut [one, other]);
    stage.release();
    settle(&mut [one, other]);
    ended
}

#[test]
fn other_sectors_do_not_wait_for_a_rewrite() {
    scenes(Exclusion::Shared, |scene| {
        assert_eq!(meanwhile_elsewhere(scene), [2, 3, 4, 5, 6, 7]);
    });
}

#[test]
fn everything_waits_for_an_exclusive_rewrite() {
    scenes(Exclusion::Exclusive, |scene| {
        assert_eq!(meanwhile_elsewhere(scene), [0; 0]);
    });
}

#[test]
fn exclusive_overwrite_of_part_of_a_sector_excludes_everything_too() {
    for setup in SETUPS {
        let stage = Scripted::new(Manner { block: 512, at_once: true, start: NULL_4096.start }, SIZE);
        let scene = Scene::new(setup, stage, &NULL_4096, Exclusion::Exclusive, Zeroes::Decrypt);
        let Scene { stage, mut model, mut one, mut other, .. } = scene;
        stage.hold(Write, BLOCK);
        one.submit(write(&one, &mut model, (BLOCK, BLOCK), 2, 1));
        other.submit(other.read_request(9 * SECTOR, SECTOR, 2));
        other.submit(write(&other, &mut model, (20 * SECTOR, BLOCK), 2, 3));
        assert_eq!(settle(&mut [&mut one, &mut other]), [0; 0]);
        // It needs no read: the device below takes small blocks itself.
        assert_eq!(stage.begun(), [(Write, BLOCK, BLOCK)]);
        stage.release();
        assert_eq!(settle(&mut [&mut one, &mut other]), [1, 2, 3]);
        one.verify_all(&model);
    }
}

/// The queue does not leave the field to another one before it has looked at all of its own.
#[test]
fn steps_that_wait_for_one_claim_go_in_one_call_where_the_medium_answers_at_once() {
    for setup in SETUPS {
        let stage = Scripted::new(Manner { block: 512, at_once: true, start: NULL_4096.start }, SIZE);
        let scene = Scene::new(setup, stage, &NULL_4096, Exclusion::Exclusive, Zeroes::Decrypt);
        let Scene { stage, mut model, mut one, mut other, .. } = scene;
        stage.hold(Write, BLOCK);
        for (token, offset) in (0..20).map(|token| (token, token * SECTOR + BLOCK)) {
            one.submit(write(&one, &mut model, (offset, BLOCK), 2, token));
        }
        other.submit(write(&other, &mut model, (20 * SECTOR, BLOCK), 2, 20));
        assert_eq!(settle(&mut [&mut one, &mut other]), [0; 0]);
        stage.release();
        assert_eq!(one.turn().len(), 20);
        assert_eq!(settle(&mut [&mut one, &mut other]), [20]);
        one.verify_all(&model);
    }
}

/// Queues writes of blocks `queued` of sector 3 while block 0 is being rewritten.
fn queue_behind_a_rewrite(scene: &mut Scene, queued: std::ops::Range<u64>) {
    let Scene { stage, one, .. } = scene;
    stage.hold(Read, 3 * SECTOR);
    one.submit(write(one, &mut scene.model, (3 * SECTOR, BLOCK), 2, 100));
    settle(&mut [one]);
    for block in queued {
        let place = (3 * SECTOR + block * BLOCK, BLOCK);
        one.submit(write(one, &mut scene.model, place, 3, block));
    }
    assert_eq!(settle(&mut [one]), [0; 0]);
    stage.release();
}

#[test]
fn queued_writes_to_a_sector_are_put_into_the_next_rewrite() {
    scenes(Exclusion::Shared, |scene| {
        queue_behind_a_rewrite(scene, 1..8);
        assert_eq!(settle(&mut [&mut scene.one]), [1, 2, 3, 4, 5, 6, 7, 100]);
        let begun: Vec<_> = scene.stage.begun().iter().map(|begun| begun.0).collect();
        assert_eq!(begun, [Read, Write, Read, Write]);
    });
}

#[test]
fn queued_writes_that_cover_a_sector_read_nothing() {
    scenes(Exclusion::Shared, |scene| {
        queue_behind_a_rewrite(scene, 0..8);
        assert_eq!(settle(&mut [&mut scene.one]), [0, 1, 2, 3, 4, 5, 6, 7, 100]);
        let begun: Vec<_> = scene.stage.begun().iter().map(|begun| begun.0).collect();
        assert_eq!(begun, [Read, Write, Write]);
    });
}

#[test]
fn rewrites_by_many_queues_of_one_sector_all_arrive() {
    scenes(Exclusion::Shared, |scene| {
        let setup = SETUPS[0];
        let mut others: Vec<_> = (0..6).map(|_| Driver::new(&scene.gate, setup)).collect();
        scene.stage.hold(Read, 3 * SECTOR);
        for (block, driver) in (0..).zip(&mut others) {
            let place = (3 * SECTOR + block * BLOCK, BLOCK);
            driver.submit(write(driver, &mut scene.model, place, 4, block));
        }
        let mut all: Vec<_> = others.iter_mut().collect();
        assert_eq!(settle(&mut all), [0; 0]);
        assert_eq!(scene.stage.count(Read), 1, "one at a time");
        scene.stage.release();
        assert_eq!(settle(&mut all), [0, 1, 2, 3, 4, 5]);
        assert_eq!(scene.stage.count(Write), 6);
    });
}

#[test]
fn two_queues_on_one_ring_wake_each_other() {
    each_backend_and_medium(CBC_4096.start, 512, |setup, manner| {
        let stage = Scripted::new(manner, SIZE);
        let gate = in_small_blocks(stage.gate(), &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
        let helper = Driver::new(&gate, setup);
        let mut ring = Ring::new(setup.backend, 16).unwrap();
        let mut queues = [0, 1].map(|_| gate.open_queue(&mut ring).unwrap());
        let mut done = Vec::new();
        for round in 0..50 {
            for (of, queue) in (0..).zip(&mut queues) {
                for block in 0..4 {
                    let offset = 3 * SECTOR + (2 * block + of) * BLOCK;
                    let request = helper.write_request(offset, BLOCK, round, block);
                    if let cryptline_engine::Submitted::Done(end) = queue.submit(&mut ring, request) {
                        done.push(end);
                    }
                }
            }
            // Waits for real: one that is never woken hangs here.
            while queues.iter().any(|queue| queue.in_flight() > 0) {
                ring.wait().unwrap();
                for queue in &mut queues {
                    queue.poll(&mut ring, &mut done);
                }
            }
            assert_eq!(done.drain(..).filter(|end| end.result.is_ok()).count(), 8);
        }
        let mut reader = Driver::new(&gate, setup);
        assert!(reader.read(3 * SECTOR, SECTOR).unwrap() == pattern(3 * SECTOR, SECTOR, 49));
    });
}

#[test]
fn discard_of_a_sector_waits_for_its_rewrite() {
    scenes(Exclusion::Shared, |scene| {
        let Scene { stage, model, one, other, .. } = scene;
        stage.hold(Read, 3 * SECTOR);
        one.submit(write(one, model, (3 * SECTOR, BLOCK), 2, 1));
        settle(&mut [one, other]);
        model.discard(3 * SECTOR, SECTOR);
        // Of the sectors beside it only whole ones are discarded.
        other.submit(discard(3 * SECTOR - BLOCK, SECTOR + 2 * BLOCK, 2));
        assert_eq!(settle(&mut [one, other]), [0; 0]);
        assert_eq!(stage.count(Discard), 0);
        stage.release();
        assert_eq!(settle(&mut [one, other]), [1, 2]);
        assert_eq!(stage.begun().pop(), Some((Discard, 3 * SECTOR, SECTOR)));
    });
}

#[test]
fn request_over_more_sectors_than_there_are_slots_excludes_rewrites_too() {
    // 12 sectors of the device share no slot; the whole device is still fewer sectors than slots, so
    // what is asked here is that a long request holds every sector of it.
    scenes(Exclusion::Shared, |scene| {
        let Scene { stage, model, one, other, .. } = scene;
        stage.hold(Read, 0);
        one.submit(write(one, model, (0, BLOCK), 2, 1));
        settle(&mut [one, other]);
        let len = (SIZE - CBC_4096.start - 2 * SECTOR).min(512 * 1024);
        stage.hold(Write, SECTOR);
        other.submit(write(other, model, (SECTOR, len), 3, 2));
        let last = SECTOR + len - BLOCK;
        one.submit(write(one, model, (last, BLOCK), 4, 3));
        assert_eq!(settle(&mut [one, other]), [0; 0]);
        assert_eq!(stage.count(Read), 1);
        stage.release();
        assert_eq!(settle(&mut [one, other]), [1, 2, 3]);
    });
}
