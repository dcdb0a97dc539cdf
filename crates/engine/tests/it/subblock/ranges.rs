//! Discards and zeroes of parts of sectors.

use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_testkit::model::ModelDisk;
use cryptline_testkit::suite::Driver;
use cryptline_testkit::suite::devices::{AES_4096, CBC_4096, Layout};

use super::{BLOCK, NULL_4096, SECTOR, Scene, cache, discard, each_backend_and_medium, settle, small, write, zero};
use cryptline_testkit::scripted::Op::{Cache, Discard, Read, Zero};
use cryptline_testkit::scripted::Scripted;

fn scenes(layout: &Layout, block: u32, zeroes: Zeroes, play: impl Fn(&Scripted, &mut Driver, &mut ModelDisk)) {
    each_backend_and_medium(layout.start, block, |setup, manner| {
        let scene = Scene::new(setup, small(manner), layout, Exclusion::Shared, zeroes);
        let Scene { stage, mut model, one: mut driver, .. } = scene;
        play(&stage, &mut driver, &mut model);
        driver.verify_all(&model);
    });
}

#[test]
fn discard_of_part_of_a_sector_succeeds_and_leaves_it_alone() {
    scenes(&CBC_4096, 512, Zeroes::Decrypt, |stage, driver, _| {
        for (offset, len) in [
            (3 * SECTOR, BLOCK),
            (3 * SECTOR + BLOCK, 7 * BLOCK),
            (4 * SECTOR - BLOCK, 2 * BLOCK),
            (4 * SECTOR - BLOCK, SECTOR),
        ] {
            assert_eq!(driver.run(discard(offset, len, 1)).result, Ok(()));
        }
        assert_eq!(stage.begun(), [], "nothing can be given back");
    });
}

#[test]
fn discard_is_cut_to_whole_sectors_and_comes_back_as_it_was() {
    scenes(&CBC_4096, 512, Zeroes::Decrypt, |stage, driver, model| {
        // `run` checks that the same offset and length come back.
        assert_eq!((driver.run(discard(3 * SECTOR - BLOCK, 2 * SECTOR + 3 * BLOCK, 1))).result, Ok(()));
        assert_eq!(stage.begun(), [(Discard, 3 * SECTOR, 2 * SECTOR)]);
        model.discard(3 * SECTOR, 2 * SECTOR);
    });
}

#[test]
fn hint_is_of_whole_sectors_and_waits_for_no_rewrite() {
    scenes(&CBC_4096, 512, Zeroes::Decrypt, |stage, driver, model| {
        stage.hold(Read, None);
        let rewrite = write(driver, model, (3 * SECTOR + BLOCK, BLOCK), 2, 1);
        driver.submit(rewrite);
        for (offset, len) in [(3 * SECTOR - BLOCK, 3 * BLOCK), (3 * SECTOR, SECTOR)] {
            driver.submit(cache(offset, len, 2));
            let done = driver.next_completion().expect("its end");
            assert_eq!((done.request.token, done.result), (2, Ok(())));
            assert_eq!((done.request.offset, done.request.len), (offset, len));
        }
        let hints = stage.begun();
        let hints = hints.iter().filter(|(op, ..)| *op == Cache);
        assert_eq!(hints.copied().collect::<Vec<_>>(), [(Cache, 2 * SECTOR, 2 * SECTOR), (Cache, 3 * SECTOR, SECTOR)]);
        stage.release();
        assert_eq!(settle(&mut [driver]), [1]);
    });
}

#[test]
fn discarded_part_that_reads_as_zeros_is_whole_sectors_of_it() {
    scenes(&CBC_4096, 512, Zeroes::Detect, |_, driver, model| {
        assert_eq!((driver.run(discard(3 * SECTOR - BLOCK, SECTOR + 3 * BLOCK, 1))).result, Ok(()));
        model.zero(3 * SECTOR, SECTOR);
    });
    // XTS needs not be cut coarser than its blocks.
    scenes(&AES_4096, 512, Zeroes::Detect, |_, driver, model| {
        let (offset, len) = (3 * SECTOR - BLOCK, SECTOR + 3 * BLOCK);
        assert_eq!(driver.run(discard(offset, len, 1)).result, Ok(()));
        model.zero(offset, len);
    });
}

#[test]
fn zeroed_part_of_a_sector_is_zero_and_its_neighbours_are_not() {
    for (layout, block, zeroes) in [
        (&NULL_4096, 4096, Zeroes::Decrypt),
        (&NULL_4096, 512, Zeroes::Decrypt),
        (&CBC_4096, 512, Zeroes::Detect),
        (&AES_4096, 512, Zeroes::Detect),
        (&AES_4096, 4096, Zeroes::Detect),
    ] {
        scenes(layout, block, zeroes, |_, driver, model| {
            for (token, (offset, len)) in (0..).zip([
                (3 * SECTOR, BLOCK),
                (5 * SECTOR + 3 * BLOCK, 2 * BLOCK),
                (7 * SECTOR - BLOCK, 2 * BLOCK),
                (8 * SECTOR + BLOCK, 2 * SECTOR),
                (12 * SECTOR, SECTOR),
            ]) {
                assert_eq!(driver.run(zero(offset, len, token)).result, Ok(()));
                model.zero(offset, len);
                driver.verify_all(model);
            }
        });
    }
}

#[test]
fn zeroes_of_whole_sectors_are_not_written() {
    scenes(&CBC_4096, 512, Zeroes::Detect, |stage, driver, model| {
        let (offset, len) = (3 * SECTOR - BLOCK, 2 * SECTOR + 2 * BLOCK);
        driver.submit(zero(offset, len, 1));
        assert_eq!(settle(&mut [driver]), [1]);
        model.zero(offset, len);
        let zeroed: Vec<_> = stage.begun().into_iter().filter(|it| it.0 == Zero).collect();
        assert_eq!(zeroed, [(Zero, 3 * SECTOR, 2 * SECTOR)]);
    });
}
