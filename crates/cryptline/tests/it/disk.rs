//! Open volumes as bytes for any thread.

use std::sync::Arc;
use std::thread;

use cryptline::{Create, Disk, ErrorKind, Fault, Open};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{PHRASE, make};

/// A volume of 4 MiB in a file, whose key slot costs next to nothing.
fn image() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    make(&path, 20 << 20);
    (folder, path)
}

fn open(path: &std::path::Path) -> Disk {
    let volume = Open::new(path).passphrase(PHRASE).open().unwrap();
    volume.disk().unwrap()
}

#[test]
fn neighbouring_bytes_of_one_sector_are_written_by_many_threads_and_none_is_lost() {
    const THREADS: u8 = 24;
    const ROUNDS: u64 = 50;
    let (_folder, path) = image();
    let disk = Arc::new(open(&path));
    disk.write_zeroes(0, 64 << 10).unwrap();
    thread::scope(|scope| {
        for own in 1..=THREADS {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = round * u64::from(THREADS) + u64::from(own - 1);
                    disk.write_at(at, &[own], false).unwrap();
                    let mut back = [0];
                    disk.read_at(at, &mut back).unwrap();
                    assert_eq!(back, [own]);
                }
            });
        }
    });
    disk.flush().unwrap();
    let mut all = vec![0; usize::from(THREADS) * 50 + 100];
    disk.read_at(0, &mut all).unwrap();
    let expected: Vec<u8> = (1..=THREADS).cycle().take(usize::from(THREADS) * 50).collect();
    assert!(all.starts_with(&expected));
    assert!(all[expected.len()..].iter().all(|&byte| byte == 0));
}

#[test]
fn dropping_it_closes_the_volume_whichever_threads_have_used_it() {
    let (_folder, path) = image();
    let disk = Arc::new(open(&path));
    let (done, is_done) = std::sync::mpsc::channel();
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let other = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || {
            disk.write_at(1, b"from elsewhere", true).unwrap();
            drop(disk);
            done.send(()).unwrap();
            // This thread lives on.
            may_end.recv().unwrap();
        })
    };
    is_done.recv().unwrap();
    let busy = Open::new(&path).passphrase(PHRASE).open().err().unwrap();
    assert_eq!((busy.kind(), busy.errno()), (ErrorKind::Busy, Errno::BUSY));
    drop(disk);
    let mut read = [0; 14];
    open(&path).read_at(1, &mut read).unwrap();
    assert_eq!(&read, b"from elsewhere");
    end.send(()).unwrap();
    other.join().unwrap();
}

#[test]
fn what_leaves_the_disk_is_refused_and_the_disk_works_on() {
    let (_folder, path) = image();
    let disk = open(&path);
    let size = disk.size();
    for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1)] {
        let mut bytes = vec![0; len];
        assert_eq!(disk.read_at(offset, &mut bytes), Err(Fault::OutOfRange));
        assert_eq!(disk.write_at(offset, &bytes, false), Err(Fault::OutOfRange));
        assert_eq!(disk.write_zeroes(offset, len as u64), Err(Fault::OutOfRange));
    }
    assert_eq!(disk.discard(0, 4096), Err(Fault::NotSupported));
    disk.write_at(size - 1, &[7], false).unwrap();
    let mut last = [0];
    disk.read_at(size - 1, &mut last).unwrap();
    assert_eq!(last, [7]);
}

#[test]
fn json_says_what_was_opened_and_what_the_header_has() {
    let (_folder, path) = image();
    let disk = open(&path);
    let json = disk.volume().to_json();
    for part in ["\"kind\":\"LUKS2\"", "\"size\":4194304", "\"warnings\":["] {
        assert!(json.contains(part), "{json}");
    }
    drop(disk);
    let header = Open::new(&path).inspect().unwrap().to_json();
    for part in ["\"keyslots\":[{\"id\":0", "\"data_size\":4194304"] {
        assert!(header.contains(part), "{header}");
    }
}

#[test]
fn failures_have_the_error_number_that_says_most() {
    let (folder, path) = image();
    let errno = |open: Open| open.open().err().unwrap().errno();
    assert_eq!(errno(Open::new(&path)), Errno::NOKEY);
    assert_eq!(errno(Open::new(&path).passphrase("x")), Errno::KEYREJECTED);
    let missing = folder.path().join("missing");
    assert_eq!(errno(Open::new(missing).passphrase("x")), Errno::NOENT);
    assert_eq!(errno(Open::new("ram:nonsense")), Errno::INVAL);
    let again = Create::new(&path).size(20 << 20).passphrase("x").create();
    assert_eq!(again.unwrap_err().errno(), Errno::EXIST);
}
