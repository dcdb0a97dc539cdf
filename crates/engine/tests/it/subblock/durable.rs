//! A durable write is one durable point, in however many parts it reaches the medium.

use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_testkit::suite::Driver;
use cryptline_testkit::suite::devices::CBC_4096;

use super::{BLOCK, SECTOR, Scene, durably, each_backend_and_medium, settle, small, write};
use cryptline_testkit::scripted::Op::{Flush, Read, Write, WriteFua};
use cryptline_testkit::scripted::{Entry, Scripted};

/// Plays over every backend, on media that answer at once and later.
fn scenes(play: impl Fn(&Scripted, &mut Driver)) {
    each_backend_and_medium(CBC_4096.start, 512, |setup, manner| {
        let mut scene = Scene::new(setup, small(manner), &CBC_4096, Exclusion::Shared, Zeroes::Decrypt);
        play(&scene.stage, &mut scene.one);
    });
}

#[test]
fn durable_write_in_parts_is_flushed_once_after_all_of_them() {
    let (offset, len) = (3 * SECTOR - BLOCK, 2 * SECTOR + 2 * BLOCK);
    scenes(|stage, driver| {
        stage.hold(Flush, None);
        driver.submit(durably(driver.write_request(offset, len, 2, 1)));
        assert_eq!(settle(&mut [driver]), [0; 0], "not before its flush has ended");
        let record = stage.record();
        let (last, parts) = record.split_last().unwrap();
        assert_eq!(last, &Entry::Begun(Flush, 0, 0));
        let ended = |entry: &&Entry| matches!(entry, Entry::Ended(..));
        // Two sectors read, and three parts written, all of them before the flush.
        assert_eq!(parts.iter().filter(ended).count(), 5);
        for part in [(2 * SECTOR, SECTOR), (3 * SECTOR, 2 * SECTOR), (5 * SECTOR, SECTOR)] {
            assert!(parts.contains(&Entry::Ended(Write, part.0, part.1)));
        }
        stage.release();
        assert_eq!(settle(&mut [driver]), [1]);
        assert_eq!(stage.count(Flush), 1);
        assert!(driver.read(offset, len).unwrap() == super::pattern(offset, len, 2));
    });
}

#[test]
fn durable_write_over_two_sectors_edges_is_flushed_once() {
    scenes(|stage, driver| {
        driver.submit(durably(driver.write_request(3 * SECTOR - BLOCK, 2 * BLOCK, 2, 1)));
        assert_eq!(settle(&mut [driver]), [1]);
        assert_eq!((stage.count(Write), stage.count(Flush)), (2, 1));
        assert_eq!(stage.record().pop(), Some(Entry::Ended(Flush, 0, 0)));
    });
}

#[test]
fn durable_write_in_one_sector_is_one_durable_write() {
    scenes(|stage, driver| {
        driver.submit(durably(driver.write_request(3 * SECTOR + BLOCK, BLOCK, 2, 1)));
        assert_eq!(settle(&mut [driver]), [1]);
        let place = (3 * SECTOR, SECTOR);
        let begun = [(Read, place.0, place.1), (WriteFua, place.0, place.1)];
        assert_eq!(stage.begun(), begun);
    });
}

#[test]
fn durable_write_of_whole_sectors_passes_as_it_is() {
    scenes(|stage, driver| {
        driver.submit(durably(driver.write_request(3 * SECTOR, SECTOR, 2, 1)));
        assert_eq!(settle(&mut [driver]), [1]);
        assert_eq!(stage.begun(), [(WriteFua, 3 * SECTOR, SECTOR)]);
    });
}

#[test]
fn rewrite_for_several_writes_is_durable_where_one_of_them_is() {
    scenes(|stage, driver| {
        let mut model = cryptline_testkit::model::ModelDisk::new(driver.size());
        let at = |block| (3 * SECTOR + block * BLOCK, BLOCK);
        stage.hold(Read, 3 * SECTOR);
        driver.submit(write(driver, &mut model, at(0), 2, 1));
        driver.submit(write(driver, &mut model, at(1), 2, 2));
        driver.submit(durably(write(driver, &mut model, at(2), 2, 3)));
        driver.submit(write(driver, &mut model, at(3), 2, 4));
        stage.release();
        assert_eq!(settle(&mut [driver]), [1, 2, 3, 4]);
        let begun: Vec<_> = stage.begun().iter().map(|begun| begun.0).collect();
        assert_eq!(begun, [Read, Write, Read, WriteFua]);
        driver.verify_all(&model);
    });
}

#[test]
fn part_of_a_durable_write_put_into_anothers_rewrite_is_flushed_too() {
    scenes(|stage, driver| {
        stage.hold(Read, 3 * SECTOR);
        driver.submit(driver.write_request(3 * SECTOR, BLOCK, 2, 1));
        driver.submit(driver.write_request(3 * SECTOR + BLOCK, BLOCK, 2, 2));
        let edge = durably(driver.write_request(4 * SECTOR - BLOCK, 2 * BLOCK, 2, 3));
        driver.submit(edge);
        stage.release();
        assert_eq!(settle(&mut [driver]), [1, 2, 3]);
        assert_eq!((stage.count(WriteFua), stage.count(Flush)), (0, 1));
        let last_write = stage.record().iter().rposition(|entry| matches!(entry, Entry::Ended(Write, ..)));
        let flush = stage.record().iter().position(|entry| entry == &Entry::Begun(Flush, 0, 0));
        assert!(last_write < flush);
    });
}
