//! Reports of a device's allocation, which may be vague, but never wrong.

use cryptline_engine::{Fault, Gate, Op, Request};

use crate::suite::{Driver, Fresh, Setup};

/// Walked from any byte, extents advance, end at the end, call no written data a hole or zeros,
/// and what they call zeros reads as zeros; before and after discards.
pub fn extents_cover_the_device_and_hide_no_data(fresh: &Fresh, setup: Setup) {
    let (gate, mut driver) = (&fresh.gate, Driver::new(&fresh.gate, setup));
    let (block, size) = (driver.block(), driver.size());
    let mut model = crate::model::ModelDisk::new(size);
    let mut written = Vec::new();
    for (index, offset) in [0, 10 * block, 64 * block, 65 * block, size - block].into_iter().enumerate() {
        driver.write(&mut model, offset, block, index as u64);
        written.push((offset, block));
        walk(gate, &mut driver, &written);
    }
    if driver.channel.geometry().discard {
        let (offset, len) = written.remove(2);
        assert_eq!(driver.result(Request::new(Op::Discard, offset, len, 0)), Ok(()));
        model.discard(offset, len);
        walk(gate, &mut driver, &written);
    }
    driver.verify_all(&model);
    for (offset, len) in [(0, 0), (size, 1), (0, size + 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(gate.extent(offset, len), Err(Fault::OutOfRange));
    }
}

fn walk(gate: &Gate, driver: &mut Driver, written: &[(u64, u64)]) {
    let (block, size) = (driver.block(), driver.size());
    for (start, step) in [(0, size), (1, size), (7 * block + 3, 4099), (size - 1, 1)] {
        let mut at = start;
        while at < size {
            let asked = step.min(size - at);
            let extent = gate.extent(at, asked).expect("an extent in range");
            let end = at + extent.len;
            assert!((1..=asked).contains(&extent.len), "{extent:?} at {at}");
            let holds_data = written.iter().any(|&(offset, len)| at < offset + len && offset < end);
            assert!(!(holds_data && extent.zero), "data at {at} is called zeros");
            assert!(!(holds_data && extent.hole), "data at {at} is called a hole");
            if extent.zero {
                let from = at / block * block;
                let read = driver.read(from, end.next_multiple_of(block) - from);
                let read = read.expect("a read in range");
                let skip = usize::try_from(at - from).expect("less than a block");
                let len = usize::try_from(extent.len).expect("fits in memory");
                assert!(read[skip..skip + len].iter().all(|&byte| byte == 0));
            }
            at = end;
        }
        assert_eq!(at, size);
    }
}
