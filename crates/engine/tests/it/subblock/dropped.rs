//! Queues that end in the middle of something: what they claimed stays claimed until nothing of
//! theirs can change the medium any more, and no longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};
use cryptline_engine::{Gate, GatedQueue, Ring, Submitted};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::devices::{self, CBC_4096, QUEUE};
use cryptline_testkit::suite::{Driver, Fresh, Setup, Watchdog};

use super::{BLOCK, SECTOR, SETUPS, in_small_blocks, settle, small, write};
use cryptline_testkit::scripted::Op::{Read, Write};
use cryptline_testkit::scripted::{Manner, Scripted};

/// A queue and its ring, each to be dropped when it is time.
struct Doomed {
    queue: GatedQueue,
    ring: Ring,
}

impl Doomed {
    fn new(gate: &Gate, setup: Setup) -> Self {
        let mut ring = Ring::new(setup.backend, 16).unwrap();
        let queue = gate.open_queue(&mut ring).unwrap();
        Self { queue, ring }
    }

    /// Begins a write that will not be waited for.
    fn begin(&mut self, driver: &Driver, (offset, len): (u64, u64)) {
        let request = driver.write_request(offset, len, 66, 1);
        assert!(matches!(self.queue.submit(&mut self.ring, request), Submitted::Pending));
        self.ring.poll().unwrap();
    }
}

struct Scene {
    stage: Scripted,
    gate: Gate,
    model: ModelDisk,
    other: Driver,
    doomed: Doomed,
}

fn scenes(play: impl Fn(Scene)) {
    for setup in SETUPS {
        for at_once in [true, false] {
            let stage = small(Manner { block: 512, at_once, start: CBC_4096.start });
            let gate = in_small_blocks(stage.gate(), &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
            let mut other = Driver::new(&gate, setup);
            let model = other.fill_device(1);
            stage.forget();
            play(Scene { doomed: Doomed::new(&gate, setup), stage, gate, model, other });
        }
    }
}

#[test]
fn sector_of_a_dropped_rewrite_is_claimed_until_its_ring_is_gone() {
    for held in [Read, Write] {
        scenes(|scene| {
            let Scene { stage, mut model, mut other, mut doomed, .. } = scene;
            stage.hold(held, 3 * SECTOR);
            doomed.begin(&other, (3 * SECTOR, BLOCK));
            doomed.queue.poll(&mut doomed.ring, &mut Vec::new());
            let Doomed { queue, ring } = doomed;
            drop(queue);
            stage.forget();
            let place = (3 * SECTOR + 4 * BLOCK, BLOCK);
            other.submit(write(&other, &mut model, place, 2, 1));
            other.submit(other.read_request(3 * SECTOR + 2 * BLOCK, BLOCK, 2));
            other.submit(write(&other, &mut model, (5 * SECTOR, BLOCK), 2, 3));
            assert_eq!(settle(&mut [&mut other]), [3]);
            let begun = stage.begun();
            let of_the_sector = begun.iter().find(|it| it.1 == 3 * SECTOR);
            assert_eq!(of_the_sector, None, "the claim is lost");
            drop(ring);
            stage.release();
            assert_eq!(settle(&mut [&mut other]), [1, 2]);
            // The stage forgets what a dropped queue has not done.
            other.verify_all(&model);
        });
    }
}

#[test]
fn rewrites_wait_for_the_ring_of_a_dropped_write_of_whole_sectors() {
    scenes(|scene| {
        let Scene { stage, mut model, mut other, mut doomed, .. } = scene;
        stage.hold(Write, 3 * SECTOR);
        doomed.begin(&other, (3 * SECTOR, SECTOR));
        drop(doomed.queue);
        stage.forget();
        other.submit(write(&other, &mut model, (3 * SECTOR, BLOCK), 2, 1));
        assert_eq!(settle(&mut [&mut other]), [0; 0]);
        assert_eq!(stage.begun(), [], "what it read could be torn");
        drop(doomed.ring);
        stage.release();
        assert_eq!(settle(&mut [&mut other]), [1]);
        other.verify_all(&model);
    });
}

#[test]
fn queue_dropped_while_it_waits_hinders_nobody() {
    for len in [BLOCK, SECTOR, 3 * SECTOR + BLOCK] {
        scenes(|scene| {
            let Scene { stage, gate, mut model, mut other, mut doomed } = scene;
            stage.hold(Read, 3 * SECTOR);
            other.submit(write(&other, &mut model, (3 * SECTOR, BLOCK), 2, 1));
            assert_eq!(settle(&mut [&mut other]), [0; 0]);
            // Waits for the sector, with what of it is free claimed already.
            doomed.begin(&other, (3 * SECTOR, len));
            if len > SECTOR {
                // Its tail is not in anybody's way, and may be under way.
                model.discard(4 * SECTOR, len - SECTOR);
            }
            let Doomed { queue, ring } = doomed;
            drop(queue);
            if len > SECTOR {
                drop(ring);
            }
            stage.release();
            assert_eq!(settle(&mut [&mut other]), [1]);
            let mut third = Driver::new(&gate, SETUPS[0]);
            third.submit(third.read_request(3 * SECTOR + BLOCK, BLOCK, 1));
            third.submit(third.read_request(3 * SECTOR, SECTOR, 4));
            assert_eq!(settle(&mut [&mut third]), [1, 4]);
            third.submit(write(&other, &mut model, (4 * SECTOR - BLOCK, 2 * BLOCK), 3, 2));
            third.submit(write(&other, &mut model, (5 * SECTOR, SECTOR), 3, 3));
            assert_eq!(settle(&mut [&mut third]), [2, 3]);
            other.verify_all(&model);
        });
    }
}

#[test]
fn places_of_dropped_queues_are_used_again() {
    scenes(|scene| {
        let Scene { gate, mut model, mut other, .. } = scene;
        // More than one device can have at a time.
        for round in 0..1100 {
            let mut ring = Ring::new(SETUPS[1].backend, 1).unwrap();
            let mut queue = gate.open_queue(&mut ring).unwrap();
            if round % 100 == 0 {
                let request = write(&other, &mut model, (BLOCK, BLOCK), round, 1);
                let _ = queue.submit(&mut ring, request);
                let mut done = Vec::new();
                while queue.in_flight() > 0 {
                    ring.wait().unwrap();
                    queue.poll(&mut ring, &mut done);
                }
            }
        }
        other.verify_all(&model);
    });
}

#[test]
fn dropping_a_rewrite_over_a_file_frees_its_sector_with_the_ring() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in Setup::ALL {
        for base in [devices::file_buffered, devices::file_direct] {
            let Some(base) = base() else { continue };
            let Fresh { gate, keep: _keep } = base;
            let gate = in_small_blocks(gate, &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
            let mut driver = Driver::new(&gate, setup);
            let mut model = driver.fill_device(1);
            for round in 0..8 {
                let sector = round * 3 * SECTOR;
                let mut doomed = Doomed::new(&gate, setup);
                doomed.begin(&driver, (sector, BLOCK));
                // With a bit of luck in one of the rounds the write back is under way.
                if round % 2 == 1 {
                    doomed.ring.wait().unwrap();
                    doomed.queue.poll(&mut doomed.ring, &mut Vec::new());
                }
                let is_over = doomed.queue.in_flight() == 0;
                let Doomed { queue, ring } = doomed;
                drop(queue);
                let ended = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let (gate, ended) = (&gate, &ended);
                    scope.spawn(move || {
                        let mut other = Driver::new(gate, setup);
                        let offset = sector + 3 * BLOCK;
                        let request = other.write_request(offset, BLOCK, 2, 1);
                        other.run(request).result.unwrap();
                        ended.store(true, Ordering::Release);
                    });
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(is_over || !ended.load(Ordering::Acquire), "a claim was lost");
                    drop(ring);
                });
                model.discard(sector, BLOCK);
                let bytes = super::pattern(sector + 3 * BLOCK, BLOCK, 2);
                model.write(sector + 3 * BLOCK, &bytes);
                driver.verify_all(&model);
            }
        }
    }
}

/// A volume whose writes go to the medium by a thread of its own.
fn written_by_a_thread(stage: &Scripted) -> Gate {
    let options =
        CryptOptions { start: CBC_4096.start, allow_discards: true, dispatch: QUEUE, ..CryptOptions::default() };
    let clear = CryptDevice::new(stage.gate(), devices::cipher(&CBC_4096), options).unwrap();
    let options = SubBlockOptions { logical_block: 512, sector: CBC_4096.sector_size, exclusion: Exclusion::Shared };
    Gate::new(SubBlockDevice::new(Gate::new(clear), options).unwrap())
}

#[test]
fn sector_of_a_dropped_rewrite_is_claimed_while_another_thread_writes_it() {
    let _watchdog = Watchdog::start(Duration::from_secs(60));
    for setup in SETUPS {
        let stage = small(Manner { block: 512, at_once: false, start: CBC_4096.start });
        let gate = written_by_a_thread(&stage);
        let mut other = Driver::new(&gate, setup);
        let mut model = other.fill_device(1);
        stage.forget();
        stage.hold(Write, 3 * SECTOR);
        std::thread::scope(|scope| {
            let gate = &gate;
            scope.spawn(move || {
                let mut doomed = Doomed::new(gate, setup);
                let helper = Driver::new(gate, setup);
                doomed.begin(&helper, (3 * SECTOR, BLOCK));
                // Until the write back is with the writer.
                for _ in 0..200 {
                    doomed.ring.poll().unwrap();
                    doomed.queue.poll(&mut doomed.ring, &mut Vec::new());
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            while stage.count(Write) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // By now the queue and its ring are gone, or on their way.
            std::thread::sleep(Duration::from_millis(400));
            let place = (3 * SECTOR + 4 * BLOCK, BLOCK);
            other.submit(write(&other, &mut model, place, 2, 1));
            assert_eq!(settle(&mut [&mut other]), [0; 0]);
            let reads = stage.count(Read);
            stage.release();
            assert_eq!(reads, 1, "read while the old rewrite was still to be written");
        });
        while other.channel.in_flight() > 0 {
            settle(&mut [&mut other]);
        }
        model.discard(3 * SECTOR, BLOCK);
        other.verify_all(&model);
    }
}
