//! Mapped files: what is stored is read, and a truncated file gives an error instead of a signal.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;

fn file(len: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len).unwrap();
    file
}

fn map(file: &File, len: usize) -> Mapping {
    Mapping::new(file.try_clone().unwrap(), len, true, false).unwrap()
}

#[test]
fn what_is_stored_is_read_and_is_in_the_file() {
    let page = crate::page_size();
    let file = file(4 * page as u64);
    let mapping = map(&file, 4 * page);
    mapping.store(100, &[7; 5000]).unwrap();
    mapping.store32(8, 0x0102_0304).unwrap();
    mapping.store64(16, 9).unwrap();
    assert_eq!(mapping.load32(8), Ok(0x0102_0304));
    mapping.sync_range(100, 5000).unwrap();
    mapping.sync().unwrap();
    let mut back = vec![0; 5000];
    mapping.read(100, &mut back).unwrap();
    assert_eq!(back, [7; 5000]);
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut back, 100).unwrap();
    assert_eq!(back, [7; 5000]);
}

#[test]
fn page_that_was_cut_off_is_an_error_for_good_and_no_death() {
    let page = crate::page_size();
    let file = file(8 * page as u64);
    let (mapping, other) = (map(&file, 8 * page), map(&file, 2 * page));
    mapping.store(0, &vec![1; 8 * page]).unwrap();
    file.set_len(3 * page as u64).unwrap();
    let mut back = vec![9; page];
    mapping.read(2 * page, &mut back).unwrap();
    assert_eq!(back, vec![1; page]);
    assert_eq!(mapping.read(3 * page, &mut back), Err(Lost));
    assert_eq!(back, vec![0; page]);
    // For everything from now on, inside the file too.
    assert_eq!(mapping.read(0, &mut back), Err(Lost));
    assert_eq!(mapping.store(0, &[1]), Err(Lost));
    assert_eq!(mapping.store32(4, 1), Err(Lost));
    assert_eq!(mapping.store64(7 * page, 1), Err(Lost));
    assert_eq!(mapping.load32(5 * page), Err(Lost));
    // Another mapping is not touched by that.
    other.read(0, &mut back).unwrap();
    other.store(0, &[3]).unwrap();
}

#[test]
fn mapping_that_lost_a_page_is_never_synced_again_though_the_file_grows_back() {
    let page = crate::page_size();
    let file = file(4 * page as u64);
    let mapping = map(&file, 4 * page);
    mapping.store(0, &[1; 64]).unwrap();
    mapping.sync().unwrap();
    file.set_len(page as u64).unwrap();
    let mut bytes = [0; 64];
    assert_eq!(mapping.read(3 * page, &mut bytes), Err(Lost));
    file.set_len(4 * page as u64).unwrap();
    for _ in 0..2 {
        assert!(mapping.sync().is_err());
        assert!(mapping.sync_range(0, 64).is_err());
        assert!(mapping.punch(0, page).is_err());
        assert_eq!(mapping.check_whole(), Err(Lost));
    }
    // Nor is one that was given up.
    let given_up = map(&file, page);
    given_up.sync().unwrap();
    given_up.lose();
    assert!(given_up.sync().is_err());
    assert_eq!(given_up.read(0, &mut bytes), Err(Lost));
}

#[test]
fn many_threads_may_meet_lost_pages_at_once() {
    let page = crate::page_size();
    let file = file(64 * page as u64);
    let mapping = &map(&file, 64 * page);
    file.set_len(0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for index in 0..64 {
                    let offset = (index * 7 + thread) % 64 * page;
                    assert_eq!(mapping.store(offset, &[1; 64]), Err(Lost));
                }
            });
        }
    });
}

#[test]
fn places_of_closed_mappings_are_used_again() {
    let file = file(4096);
    for _ in 0..3000 {
        map(&file, 4096).store(0, &[1]).unwrap();
    }
}

#[test]
fn nothing_can_not_be_mapped_and_a_file_is_no_persistent_memory() {
    assert!(Mapping::new(file(0), 0, true, false).is_err());
    assert!(Mapping::new(file(4096), 4096, true, true).is_err());
    assert_eq!(map(&file(4096), 4096).persistent_memory(), None);
}

#[test]
fn hole_that_is_punched_reads_as_zeros() {
    let file = file(16384);
    let mapping = map(&file, 16384);
    mapping.store(0, &[5; 16384]).unwrap();
    match mapping.punch(4096, 8192) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return crate::skip("this file system punches no holes");
        }
        Err(error) => panic!("{error}"),
    }
    let mut back = [1; 16384];
    mapping.read(0, &mut back).unwrap();
    assert!(back[4096..12288].iter().all(|&byte| byte == 0));
    assert!(back[..4096].iter().chain(&back[12288..]).all(|&byte| byte == 5));
}

#[test]
#[should_panic(expected = "range outside the mapping")]
fn range_past_the_end_is_refused() {
    let _ = map(&file(4096), 4096).read(4090, &mut [0; 7]);
}

#[test]
#[should_panic(expected = "read-only")]
fn read_only_mapping_is_not_stored_to() {
    let mapping = Mapping::new(file(4096), 4096, false, false).unwrap();
    let _ = mapping.store(0, &[1]);
}

/// A fault that is not ours ends the process as it would without us.
#[test]
fn fault_outside_our_mappings_is_not_swallowed() {
    if std::env::var_os("CRYPTLINE_TEST_FAULT").is_some() {
        let page = crate::page_size();
        let ours = file(page as u64);
        let _ours = map(&ours, page);
        let mut strange = tempfile::tempfile().unwrap();
        strange.write_all(&[1]).unwrap();
        // SAFETY: a new mapping; reading behind the end of its file faults, which is the point.
        unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            let null = std::ptr::null_mut();
            let address = rustix::mm::mmap(null, 2 * page, read, shared, &strange, 0).unwrap();
            address.cast::<u8>().add(page).read_volatile();
        }
        unreachable!("the fault was swallowed");
    }
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args(["--exact", "mapping::tests::fault_outside_our_mappings_is_not_swallowed"])
        .env("CRYPTLINE_TEST_FAULT", "1")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGBUS), "{child:?}");
}
