//! Places that were never written, or were given back, read as zeros.

use cryptline_engine::Gate;
use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::devices::{self, AES_4096, CBC_4096, Layout};
use cryptline_testkit::suite::{Driver, Fresh, Setup};

use super::{BLOCK, SECTOR, SETUPS, discard, in_small_blocks, small};
use cryptline_testkit::scripted::Op::{Read, Write};
use cryptline_testkit::scripted::{Manner, Scripted};

const LAYOUTS: [&Layout; 2] = [&AES_4096, &CBC_4096];

fn empty(layout: &Layout) -> (Scripted, Gate) {
    let stage = small(Manner { block: 512, at_once: true, start: layout.start });
    let gate = in_small_blocks(stage.gate(), layout, Exclusion::Shared, Zeroes::Detect);
    (stage, gate)
}

/// Every extent from every block on: those called zero read as zeros, none is longer than asked or
/// ends inside a block.
fn check_extents(gate: &Gate, driver: &mut Driver) -> u64 {
    let clear = driver.read(0, driver.size()).unwrap();
    let mut zero_bytes = 0;
    for offset in (0..driver.size()).step_by(512) {
        let extent = gate.extent(offset, driver.size() - offset).unwrap();
        assert!(extent.len.is_multiple_of(BLOCK), "{extent:?} at {offset}");
        if extent.zero {
            let from = usize::try_from(offset).unwrap();
            let run = &clear[from..][..usize::try_from(extent.len).unwrap()];
            assert!(run.iter().all(|&byte| byte == 0), "{extent:?} at {offset}");
            zero_bytes += BLOCK;
        }
    }
    zero_bytes
}

/// Lets something happen over each base.
fn over_bases(play: impl Fn(&Gate, &mut Driver)) {
    for layout in LAYOUTS {
        for base in [devices::ram, devices::file_buffered, devices::file_direct] {
            let Some(Fresh { gate, keep: _keep }) = base() else { continue };
            let gate = in_small_blocks(gate, layout, Exclusion::Shared, Zeroes::Detect);
            play(&gate, &mut Driver::new(&gate, Setup::ALL[0]));
        }
    }
}

#[test]
fn disk_never_written_reads_as_zeros_and_its_extents_say_so() {
    over_bases(|gate, driver| {
        let mut model = ModelDisk::new(driver.size());
        model.zero(0, driver.size());
        driver.verify_all(&model);
        driver.verify(&model, 3 * SECTOR + BLOCK, BLOCK);
        driver.verify(&model, 3 * SECTOR + BLOCK, 2 * SECTOR);
        let extent = gate.extent(BLOCK, driver.size() - BLOCK).unwrap();
        assert!(extent.zero && extent.len == driver.size() - BLOCK, "{extent:?}");
    });
}

#[test]
fn first_block_written_into_a_hole_of_xts_writes_512_bytes() {
    let (stage, gate) = empty(&AES_4096);
    let mut driver = Driver::new(&gate, SETUPS[0]);
    let mut model = ModelDisk::new(driver.size());
    model.zero(0, driver.size());
    driver.write(&mut model, 3 * SECTOR + 2 * BLOCK, BLOCK, 2);
    assert_eq!(stage.begun(), [(Write, 3 * SECTOR + 2 * BLOCK, BLOCK)]);
    driver.verify_all(&model);
    driver.verify(&model, 3 * SECTOR + BLOCK, 2 * BLOCK);
    assert_eq!(check_extents(&gate, &mut driver), driver.size() - BLOCK);
}

#[test]
fn first_block_written_into_a_hole_of_cbc_leaves_its_neighbours_zero() {
    let (stage, gate) = empty(&CBC_4096);
    let mut driver = Driver::new(&gate, SETUPS[0]);
    let mut model = ModelDisk::new(driver.size());
    model.zero(0, driver.size());
    driver.write(&mut model, 3 * SECTOR + 2 * BLOCK, BLOCK, 2);
    let sector = (3 * SECTOR, SECTOR);
    let begun = [(Read, sector.0, sector.1), (Write, sector.0, sector.1)];
    assert_eq!(stage.begun(), begun);
    driver.verify_all(&model);
    assert_eq!(check_extents(&gate, &mut driver), driver.size() - SECTOR);
}

#[test]
fn discards_make_zeros_again() {
    over_bases(|_, driver| {
        let mut model = driver.fill_device(1);
        let (offset, len) = (64 * SECTOR, 16 * SECTOR);
        assert_eq!(driver.run(discard(offset, len, 1)).result, Ok(()));
        model.zero(offset, len);
        driver.verify_all(&model);
        // And are written again.
        driver.write(&mut model, offset + 5 * BLOCK, BLOCK, 3);
        driver.write(&mut model, offset + SECTOR - BLOCK, 3 * SECTOR, 3);
        driver.verify_all(&model);
    });
}

#[test]
fn sector_with_a_hole_in_its_middle_is_not_called_zero_where_it_is_not() {
    for layout in LAYOUTS {
        let (stage, gate) = empty(layout);
        let mut driver = Driver::new(&gate, SETUPS[0]);
        let model = driver.fill_device(1);
        drop((driver, gate, model));
        // As a program leaves it that gives back the zeros of a file, or one that wrote over it.
        let mut bytes = stage.bytes();
        let at = |sector: u64, block: u64| usize::try_from(layout.start + sector * SECTOR + block * BLOCK).unwrap();
        for (from, to) in [(at(3, 2), at(3, 4)), (at(5, 0), at(5, 3)), (at(6, 5), at(8, 1))] {
            bytes[from..to].fill(0);
        }
        let manner = Manner { block: 512, at_once: true, start: layout.start };
        let stage = Scripted::with(manner, vec![bytes]);
        let gate = in_small_blocks(stage.gate(), layout, Exclusion::Shared, Zeroes::Detect);
        let mut driver = Driver::new(&gate, SETUPS[0]);
        let zero_bytes = check_extents(&gate, &mut driver);
        let expected = if layout.sector_size == 4096 && layout.key_bytes == 16 {
            // Only the one sector that is zero all over.
            SECTOR
        } else {
            2 * BLOCK + 3 * BLOCK + 12 * BLOCK
        };
        assert_eq!(zero_bytes, expected, "{layout:?}");
    }
}

#[test]
fn extents_of_whole_sectors_are_whole_sectors_where_a_hole_is_not() {
    let manner = Manner { block: 512, at_once: true, start: CBC_4096.start };
    let stage = small(manner);
    let mut bytes = stage.bytes();
    let start = usize::try_from(CBC_4096.start).unwrap();
    // Data in the second half of sector 3, and in the first of sector 5.
    let sector = |index: usize| start + index * 4096;
    bytes[sector(3) + 2048..sector(4)].fill(7);
    bytes[sector(5)..sector(5) + 1024].fill(7);
    let stage = Scripted::with(manner, vec![bytes]);
    let fresh = devices::sparse(Fresh::new(stage.gate()), &CBC_4096);
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < 16 * SECTOR {
        let extent = fresh.gate.extent(offset, 16 * SECTOR - offset).unwrap();
        found.push((extent.len / SECTOR, extent.zero));
        offset += extent.len;
    }
    let expected = [(3, true), (1, false), (1, true), (1, false), (10, true)];
    assert_eq!(found, expected);
}
