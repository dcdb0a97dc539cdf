//! Mapped files that lost something: nothing succeeds any more, whatever becomes of the file.

use std::fs::File;
use std::path::{Path, PathBuf};

use cryptline_engine::{Fault, Request};
use cryptline_testkit::suite::devices;
use cryptline_testkit::suite::{Driver, Fresh, Setup};
use tempfile::TempDir;

/// The file below a device that was made over one.
fn image_of(fresh: &Fresh) -> PathBuf {
    let mut folders = fresh.keep.iter().filter_map(|kept| kept.downcast_ref::<TempDir>());
    let folder = folders.next_back().expect("a device over a file");
    folder.path().join("image")
}

/// Reads of pages that are gone, while they are gone.
fn lose_a_page(driver: &mut Driver, path: &Path) {
    let whole = std::fs::metadata(path).unwrap().len();
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(4096).unwrap();
    let last = driver.size() - 4096;
    assert!(driver.read(last, 4096).is_err());
    file.set_len(whole).unwrap();
}

#[test]
fn mapped_file_that_lost_a_page_fails_everything_also_when_it_has_grown_back() {
    let tables = [devices::pmem, || devices::btt_in_file(512), || devices::btt_in_file(4096)];
    let setup = Setup::ALL[0];
    for make in tables {
        let fresh = make().unwrap();
        let path = image_of(&fresh);
        let mut driver = Driver::new(&fresh.gate, setup);
        let write = driver.write_request(0, 4096, 1, 1);
        assert_eq!(driver.run(write).result, Ok(()));
        assert_eq!(driver.flush(), Ok(()));
        let early = Driver::new(&fresh.gate, setup);
        lose_a_page(&mut driver, &path);
        for mut driver in [driver, early, Driver::new(&fresh.gate, setup)] {
            assert!(driver.flush().is_err());
            assert!(driver.read(0, 4096).is_err());
            let write = driver.write_request(4096, 4096, 1, 1);
            assert!(driver.run(write).result.is_err());
            let data = driver.buffer(4096);
            assert!(driver.result(Request::write(4096, data, true, 0)).is_err());
            for _ in 0..2 {
                assert!(driver.flush().is_err());
            }
        }
    }
}

/// The bytes behind the cut read as zeros up to the end of their page, without a signal.
#[test]
fn mapped_file_whose_flush_found_it_cut_short_stays_so_when_it_has_grown_back() {
    for make in [devices::pmem, || devices::btt_in_file(512)] {
        let fresh = make().unwrap();
        let path = image_of(&fresh);
        let mut driver = Driver::new(&fresh.gate, Setup::ALL[0]);
        let whole = std::fs::metadata(&path).unwrap().len();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(whole - 1).unwrap();
        assert_eq!(driver.flush(), Err(Fault::Truncated));
        file.set_len(whole).unwrap();
        assert!(driver.read(0, 4096).is_err());
        assert!(driver.flush().is_err());
    }
}
