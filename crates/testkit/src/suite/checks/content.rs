//! Checks that reads return what was written.

use cryptline_engine::{Op, Request};

use crate::suite::{Driver, Fresh, Setup, fill};

/// Every start within the first blocks and before the end, at sizes from one block over odd
/// multiples to more than any internal buffer; neighbours are compared too.
pub fn what_is_written_is_read_back_at_every_alignment_and_size(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, size) = (driver.block(), driver.size());
    let mut model = driver.fill_device(1);
    let mut seed = 2;
    for blocks in [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 129, 255] {
        let len = blocks * block;
        for start in (0..=8).map(|start| start * block) {
            for offset in [start, size - len - start, (size - len) / 2 / block * block] {
                driver.write(&mut model, offset, len, seed);
                let from = offset.saturating_sub(block);
                let to = (offset + len + block).min(size);
                driver.verify(&model, from, to - from);
                seed += 1;
            }
        }
    }
    let large = (2 * 1024 * 1024 / block + 1) * block;
    driver.write(&mut model, block, large, seed);
    driver.verify_all(&model);
}

/// The last block is as good as any.
pub fn last_block_is_written_and_nothing_after_it(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let (block, size) = (driver.block(), driver.size());
    let mut model = driver.fill_device(1);
    driver.write(&mut model, size - block, block, 2);
    driver.write(&mut model, 0, block, 3);
    driver.verify_all(&model);
    assert_eq!(driver.size(), size, "a write changed the size");
}

/// Forced unit access changes when a write completes, not what it writes.
pub fn durable_write_is_read_back(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let block = driver.block();
    let mut model = driver.fill_device(1);
    for (offset, len) in [(0, block), (3 * block, 5 * block), (block, 65 * block)] {
        let mut data = driver.buffer(len);
        fill(&mut data, offset, 9);
        model.write(offset, &data);
        assert_eq!(driver.result(Request::write(offset, data, true, 0)), Ok(()));
    }
    driver.verify_all(&model);
}

/// A flush needs no writes, may be repeated, and has no range to check.
pub fn flush_succeeds_with_and_without_writes(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    assert_eq!(driver.flush(), Ok(()));
    let model = driver.fill_device(1);
    for offset in [0, 1, driver.size(), u64::MAX] {
        assert_eq!(driver.result(Request { offset, ..Request::flush(0) }), Ok(()));
    }
    driver.verify_all(&model);
}

/// A discard may do anything inside its range and nothing outside.
pub fn discarded_range_leaves_its_neighbours_alone(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let mut model = driver.fill_device(1);
    for (offset, len) in ranges(&driver) {
        model.discard(offset, len);
        assert_eq!(driver.result(Request::new(Op::Discard, offset, len, 0)), Ok(()));
        driver.verify_all(&model);
        // And the range is as good as new.
        driver.write(&mut model, offset, len, offset + 2);
        driver.verify_all(&model);
    }
}

/// Zeros where asked, data everywhere else, whether or not space may be given back.
pub fn zeroed_range_reads_as_zeros_and_leaves_its_neighbours_alone(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    for may_unmap in [false, true] {
        let mut model = driver.fill_device(1);
        for (offset, len) in ranges(&driver) {
            model.zero(offset, len);
            assert_eq!(driver.result(Request::new(Op::zero(may_unmap), offset, len, 0)), Ok(()));
            driver.verify_all(&model);
        }
    }
}

/// A hint that a range will be read soon is taken whatever the range holds.
pub fn hint_ends_well_and_changes_nothing(fresh: &Fresh, setup: Setup) {
    let mut driver = Driver::new(&fresh.gate, setup);
    let size = driver.size();
    assert_eq!(driver.result(Request::new(Op::Cache, 0, size, 0)), Ok(()), "of nothing");
    let model = driver.fill_device(1);
    for (offset, len) in ranges(&driver) {
        assert_eq!(driver.result(Request::new(Op::Cache, offset, len, 0)), Ok(()));
    }
    driver.verify_all(&model);
    assert_eq!(driver.flush(), Ok(()));
}

/// Ranges that begin and end inside, and on the borders of, the pages and blocks below.
fn ranges(driver: &Driver) -> Vec<(u64, u64)> {
    let (block, size) = (driver.block(), driver.size());
    vec![
        (0, block),
        (3 * block, 2 * block),
        (size - block, block),
        (size / 3 / block * block, 40 * block),
        (4096, 65536),
        (4096 * 20 + block, 65536),
        (size / 2 / block * block, size - size / 2 / block * block),
    ]
}
