//! Many requests in flight, and many threads.

use std::collections::HashMap;
use std::sync::mpsc;

use cryptline_engine::{Gate, Op};

use crate::model::ModelDisk;
use crate::suite::driver::data_of;
use crate::suite::{Driver, Fresh, Setup, fill, noise};

/// Requests in flight.
const DEPTH: u64 = 32;
/// Bytes at most that one of them writes, and that are read at the place where they were: more proves no more.
const STRIPE: u64 = 128 * 1024;

/// 32 requests at a time, of random sizes in disjoint ranges: first a write, then the read of it.
/// Each token comes back once, whatever the order, and each read gives its own data.
pub fn deep_queue_completes_each_request_once(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, size) = (driver.block(), driver.size());
    let lane_bytes = size / DEPTH / block * block;
    let stripe = lane_bytes.min(STRIPE);
    let rounds = 12;
    let mut model = driver.fill_device(1);
    let mut expected = HashMap::new();
    let mut next_write = |driver: &mut Driver, round: u64, lane: u64| {
        let seed = noise(round * DEPTH + lane);
        let blocks = 1 + seed % (stripe / block);
        let offset = lane * lane_bytes + (noise(seed) % (stripe / block - blocks + 1)) * block;
        let token = round * DEPTH + lane;
        let request = driver.write_request(offset, blocks * block, seed, token);
        let data = request.data.as_ref().expect("a write was made");
        model.write(offset, data);
        expected.insert(token, (offset, blocks * block, seed));
        driver.submit(request);
    };
    for lane in 0..DEPTH {
        next_write(&mut driver, 0, lane);
    }
    let (mut writes, mut reads) = (0, 0);
    while let Some(completion) = driver.next_completion() {
        assert_eq!(completion.result, Ok(()));
        let token = completion.request.token;
        let is_read = completion.request.op == Op::Read;
        if is_read {
            reads += 1;
            let mut want = driver.buffer(completion.request.len);
            fill(&mut want, completion.request.offset, noise(token));
            assert!(data_of(&completion) == &want[..], "read of token {token}");
            if token / DEPTH + 1 < rounds {
                next_write(&mut driver, token / DEPTH + 1, token % DEPTH);
            }
        } else {
            writes += 1;
            let (offset, len) = (completion.request.offset, completion.request.len);
            driver.submit(driver.read_request(offset, len, token));
        }
    }
    assert_eq!((writes, reads), (rounds * DEPTH, rounds * DEPTH));
    for (offset, len, _) in expected.into_values() {
        driver.verify(&model, offset, len);
    }
    driver.verify_all(&model);
}

/// A write that has completed in one thread is there for any request that another thread then
/// makes, in both directions; a flush of either covers both.
pub fn queues_of_two_threads_see_each_others_completed_writes(fresh: &Fresh, setup: Setup) {
    let gate = &fresh.gate;
    let (to_second, from_first) = mpsc::channel();
    let (to_first, from_second) = mpsc::channel();
    std::thread::scope(|scope| {
        // Each owns its ends: where one panics, the other is not left waiting.
        scope.spawn(move || take_turns(gate, setup, 0, &to_second, &from_second));
        scope.spawn(move || take_turns(gate, setup, 1, &to_first, &from_first));
    });
}

/// Writes into the own half of the disk, says so, and reads what the other has just written.
fn take_turns(gate: &Gate, setup: Setup, half: u64, said: &mpsc::Sender<u64>, heard: &mpsc::Receiver<u64>) {
    let mut driver = Driver::new(gate, setup);
    let block = driver.block();
    let half_size = driver.size() / 2 / block * block;
    let (mine, others) = (half * half_size, (1 - half) * half_size);
    let mut model = ModelDisk::new(driver.size());
    for round in 0..50 {
        let at = |start: u64| start + noise(round) % (half_size / block - 9) * block;
        let len = (1 + round % 9) * block;
        driver.write(&mut model, at(mine), len, round * 2 + half);
        said.send(round).expect("the other thread goes on");
        assert_eq!(heard.recv(), Ok(round));
        let read = driver.read(at(others), len).expect("a read in range");
        let mut want = vec![0; read.len()];
        fill(&mut want, at(others), round * 2 + 1 - half);
        assert!(read == want, "round {round}: a completed write is not seen");
        if round % 10 == half {
            assert_eq!(driver.flush(), Ok(()));
        }
        // Nobody writes the next round while the other still reads this one.
        said.send(round).expect("the other thread goes on");
        assert_eq!(heard.recv(), Ok(round));
    }
}

/// Two threads write every other block of the same range at the same time. Nobody may write back
/// an old neighbour.
pub fn neighbouring_blocks_written_by_two_threads_at_once_all_arrive(fresh: &Fresh, setup: Setup) {
    let gate = &fresh.gate;
    let mut driver = Driver::new(gate, setup);
    let (block, blocks) = (driver.block(), 256);
    let mut model = driver.fill_device(1);
    std::thread::scope(|scope| {
        for parity in 0..2 {
            scope.spawn(move || {
                let mut driver = Driver::new(gate, setup);
                for first in (parity..blocks).step_by(32) {
                    for index in (first..(first + 32).min(blocks)).step_by(2) {
                        driver.submit(driver.write_request(index * block, block, 2, index));
                    }
                    for completion in driver.drain() {
                        assert_eq!(completion.result, Ok(()));
                    }
                }
            });
        }
    });
    let mut data = vec![0; usize::try_from(blocks * block).expect("small")];
    fill(&mut data, 0, 2);
    model.write(0, &data);
    driver.verify_all(&model);
}

/// A front that dies leaves requests behind: the memory stays safe, the device stays usable, and
/// what had completed before is there.
pub fn dropping_a_queue_with_requests_in_flight_harms_nobody(fresh: &Fresh, setup: Setup) {
    let mut survivor = Driver::new(&fresh.gate, setup);
    let block = survivor.block();
    let mut model = survivor.fill_device(1);
    for round in 0..8 {
        let mut doomed = Driver::new(&fresh.gate, setup);
        for index in 0..DEPTH {
            doomed.submit(doomed.read_request(index * block, 3 * block, index));
        }
        let offset = (100 + round) * block;
        // Where queues cannot be replaced, one that goes with a write under way takes the device along.
        if !fresh.gate.traits().awaits_reads {
            doomed.submit(doomed.write_request(offset, block, round, 1000));
            model.discard(offset, block);
        }
        drop(doomed);
        // Where it was busy; what it broke elsewhere is seen at the end, too.
        survivor.verify(&model, 0, STRIPE.max(200 * block).min(survivor.size()));
    }
    survivor.verify_all(&model);
    assert_eq!(survivor.flush(), Ok(()));
}
