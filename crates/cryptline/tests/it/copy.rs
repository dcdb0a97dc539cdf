//! Copies between media that the test brings along: in which order they write, and what becomes of failures.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cryptline::{Copy, CopyHash, CopyRemains, CopySource, Create, Error, Fault, Open, Plain, Problem, Progress};

use sha2::{Digest, Sha256};

use crate::common::{Event, Memory as Disk, PHRASE, cheap, make};

const HEADER: usize = 16 << 20;
const KEY: [u8; 64] = [7; 64];

fn noise(size: usize) -> Arc<Disk> {
    let disk = Disk::of(size);
    let mut state = 1_u32;
    for byte in disk.bytes.lock().unwrap().iter_mut() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    disk
}

/// The clear bytes of a disk: under the null cipher.
fn clear(disk: &Arc<Disk>) -> Open {
    let plain = Plain { ..Plain::new("cipher_null-ecb", 0) };
    Open::medium(Arc::clone(disk)).plain(plain)
}

/// The same encrypted, so that there is a volume to copy from.
fn encrypted(disk: &Arc<Disk>) -> Open {
    let plain = Plain::new("aes-xts-plain64", 64);
    Open::medium(Arc::clone(disk)).plain(plain).key(KEY).overwrite(true)
}

fn source(disk: &Arc<Disk>) -> CopySource {
    CopySource::volume(&encrypted(disk).read_only(true).open().unwrap())
}

fn create(disk: &Arc<Disk>) -> Create {
    let create = Create::medium(Arc::clone(disk)).format(cheap());
    create.passphrase(PHRASE)
}

fn bytes_of(open: Open, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let volume = open.read_only(true).open().unwrap();
    volume.blocking().unwrap().read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn header_is_written_when_all_data_is_durable_and_its_beginning_last() {
    let from = noise(5 << 20);
    let to = Disk::of(HEADER + (5 << 20));
    let created = create(&to).fill(Copy::new(source(&from)).verify(true));
    assert_eq!(created.create().unwrap().copied.unwrap().bytes, 5 << 20);
    let opened = Open::medium(Arc::clone(&to)).passphrase(PHRASE);
    assert!(bytes_of(opened, 5 << 20) == bytes_of(encrypted(&from), 5 << 20));

    let events = to.events.lock().unwrap();
    let is_data = |event: &Event| matches!(event, Event::Write { at, .. } if *at >= HEADER as u64);
    let is_header = |event: &Event| matches!(event, Event::Write { at, zeros: false, .. } if *at < HEADER as u64);
    let is_first = |event: &Event| matches!(event, Event::Write { at: 0, zeros: false, .. });
    let flush_between = |from: usize, to: usize| events[from..to].contains(&Event::Flush);
    let last_data = events.iter().rposition(is_data).unwrap();
    let first_header = events.iter().position(is_header).unwrap();
    assert!(last_data < first_header && flush_between(last_data, first_header));
    let first = events.iter().position(is_first).unwrap();
    let before = events[..first].iter().rposition(is_header).unwrap();
    assert!(flush_between(before, first), "the rest is durable before it");
    assert!(flush_between(first, events.len()));
}

#[test]
fn old_header_is_gone_before_the_first_data_and_stays_so_after_a_failure() {
    let to = Disk::of(HEADER + (5 << 20));
    create(&to).create().unwrap();
    assert!(to.starts_as_luks());
    let from = noise(5 << 20);
    let faulty = encrypted(&from).fault("read:nth=4".parse().unwrap());
    let source = CopySource::volume(&faulty.read_only(true).open().unwrap());
    let failed = create(&to).replace(true).fill(Copy::new(source)).create();
    let error = failed.unwrap_err();
    let problem = error.problem();
    assert!(matches!(problem, Problem::CopyFault { action: "read", left: CopyRemains::Part(_), .. }), "{error}");
    assert!(!to.starts_as_luks());
    assert!(Open::medium(to).passphrase(PHRASE).open().is_err(), "no copy of the header is left either");
}

#[test]
fn flush_that_fails_is_the_failure_of_the_copy() {
    let (from, to) = (noise(3 << 20), Disk::of(3 << 20));
    let refuse = Arc::clone(&to);
    let copy = Copy::new(source(&from)).replace(true).on_progress(move |progress| {
        if matches!(progress, Progress::Copied { bytes: 0, .. }) {
            refuse.refused_flushes.store(u64::MAX, Ordering::Relaxed);
        }
        Ok(())
    });
    let error = copy.into_volume(|| Ok(encrypted(&to))).unwrap_err();
    assert!(matches!(error.problem(), Problem::CopyFault { action: "flush", .. }), "{error}");
}

#[test]
fn verifying_finds_a_byte_that_is_another() {
    for rotten in [HEADER as u64, HEADER as u64 + (2 << 20) + 77, HEADER as u64 + (3 << 20) - 1] {
        let from = noise(3 << 20);
        let to = Disk::of(HEADER + (3 << 20));
        to.rotten.store(rotten, Ordering::Relaxed);
        let copy = Copy::new(source(&from));
        create(&to).replace(true).fill(copy).create().unwrap();
        let copy = Copy::new(source(&from)).verify(true);
        let error = create(&to).replace(true).fill(copy).create().unwrap_err();
        let chunk = (rotten - HEADER as u64) & !0xf_ffff;
        assert!(matches!(error.problem(), Problem::CopyDiffers { offset, .. } if *offset == chunk), "{error}");
        to.rotten.store(u64::MAX, Ordering::Relaxed);
        assert_opens_nothing(&to);
    }
}

/// Neither by its header nor by the second copy of that.
fn assert_opens_nothing(disk: &Arc<Disk>) {
    assert!(!disk.starts_as_luks());
    assert!(Open::medium(Arc::clone(disk)).passphrase(PHRASE).open().is_err(), "it opens");
}

#[test]
fn copy_that_is_stopped_while_it_is_compared_opens_nothing() {
    let (from, to) = (noise(8 << 20), Disk::of(HEADER + (8 << 20)));
    create(&to).create().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let copy = Copy::new(source(&from)).verify(true).stop(Arc::clone(&stop));
    // All bytes are there: what comes next is the comparison.
    let create = create(&to).replace(true).fill(copy);
    let create = create.on_progress(move |progress| {
        if matches!(progress, Progress::Copied { bytes, of: Some(of) } if bytes == of) {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
    let error = create.create().unwrap_err();
    assert!(matches!(error.problem(), Problem::CopyStopped(CopyRemains::Part(_))), "{error}");
    assert_opens_nothing(&to);
}

#[test]
fn write_that_fails_ends_all_threads_and_names_its_place() {
    let (from, to) = (noise(40 << 20), Disk::of(40 << 20));
    for rule in ["write:nth=1", "write:nth=17:error=ENOSPC", "write:after=3"] {
        let faulty = || Ok(encrypted(&to).fault(rule.parse().unwrap()));
        let error = Copy::new(source(&from)).replace(true).into_volume(faulty).unwrap_err();
        let Problem::CopyFault { action, offset, fault, left } = error.problem() else {
            panic!("{rule}: {error}");
        };
        assert_eq!((*action, offset.is_some()), ("write", true), "{rule}");
        assert_eq!(*fault == Fault::NoSpace, rule.contains("ENOSPC"), "{rule}");
        assert!(matches!(left, CopyRemains::Part(_)));
    }
}

#[test]
fn caller_stops_it_by_a_flag_or_by_an_error() {
    let (from, to) = (noise(8 << 20), Disk::of(8 << 20));
    let stop = Arc::new(AtomicBool::new(true));
    let copy = Copy::new(source(&from)).replace(true).stop(stop);
    let error = copy.into_volume(|| Ok(encrypted(&to))).unwrap_err();
    assert!(matches!(error.problem(), Problem::CopyStopped(_)), "{error}");
    let copy = Copy::new(source(&from)).replace(true);
    let copy = copy.on_progress(|_| Err(Error::from_keys(cryptline::ErrorKind::Busy, "enough")));
    let error = copy.into_volume(|| Ok(encrypted(&to))).unwrap_err();
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn sizes_that_no_chunk_divides_are_copied_to_the_end() {
    for size in [512, 4096, (1 << 20) - 512, (1 << 20) + 512, (3 << 20) + 4096 + 512] {
        let (from, to) = (noise(size), Disk::of(size + 4096));
        let copy = Copy::new(source(&from)).replace(true).verify(true);
        let copied = copy.into_volume(|| Ok(encrypted(&to))).unwrap();
        assert_eq!(copied.bytes, size as u64);
        assert!(bytes_of(encrypted(&to), size) == bytes_of(encrypted(&from), size));
        let rest = to.bytes.lock().unwrap()[size..].to_vec();
        assert!(rest.iter().all(|&byte| byte == 0), "nothing behind it is touched");
    }
}

#[test]
fn zeros_are_encrypted_in_a_volume() {
    let from = Disk::of(4 << 20);
    let source = CopySource::volume(&clear(&from).read_only(true).open().unwrap());
    let to = Disk::of(4 << 20);
    let copied = Copy::new(source).replace(true).into_volume(|| Ok(encrypted(&to)));
    assert_eq!(copied.unwrap().skipped, 0);
    assert!(bytes_of(encrypted(&to), 4 << 20).iter().all(|&byte| byte == 0));
    let written = to.bytes.lock().unwrap();
    assert!(written.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)));
}

#[test]
fn source_that_is_cut_short_on_the_way_is_no_whole_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![7; 9 << 20]).unwrap();
    let source = CopySource::raw(&from).unwrap();
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    let copy = Copy::new(source).on_progress(move |progress| {
        if matches!(progress, Progress::Copied { bytes: 0, .. }) {
            file.set_len(5 << 20).unwrap();
        }
        Ok(())
    });
    let error = copy.into_file(&to).unwrap_err();
    let Problem::CopyFault { action, fault, left, .. } = error.problem() else {
        panic!("{error}");
    };
    assert_eq!((*action, *fault), ("read", Fault::Truncated));
    assert_eq!(*left, CopyRemains::Nothing);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn volume_is_copied_as_its_owner_has_written_it_since_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::write(&from, vec![7; 2 << 20]).unwrap();
    let open = Open::new(&from).plain(Plain::new("aes-xts-plain64", 64));
    let volume = open.key(KEY).overwrite(true).open().unwrap();
    // Not in the same tick of the clock of file systems as its opening.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut disk = volume.blocking().unwrap();
    disk.write_at(1 << 20, &[42; 4096], false).unwrap();
    assert_eq!(Copy::new(CopySource::volume(&volume)).into_file(&to).unwrap().bytes, 2 << 20);
    assert!(std::fs::read(&to).unwrap()[1 << 20..][..4096] == [42; 4096]);
}

/// Change made to the source once the copy has begun.
type Change = fn(&File);

const CHANGES: [(&str, Change); 3] = [
    ("grows", |file| file.set_len(11 << 20).unwrap()),
    ("shrinks", |file| file.set_len((9 << 20) - 512).unwrap()),
    ("is rewritten", |file| file.write_all_at(&[1], 5 << 20).unwrap()),
];

/// A copy of `bytes`, which change once it has begun. They were written long ago: two changes within one tick of the
/// clock are one.
fn changing(change: Change, is_stream: bool) -> (Copy, impl Fn(Progress<'_>) -> Result<(), Error>) {
    let from = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&from, vec![7; 9 << 20]).unwrap();
    from.as_file().set_modified(std::time::UNIX_EPOCH).unwrap();
    let source = if is_stream {
        CopySource::stream(File::open(&from).unwrap(), "input")
    } else {
        CopySource::raw(from.path()).unwrap()
    };
    let changed = AtomicBool::new(false);
    let observer = move |progress: Progress<'_>| {
        let begins = matches!(progress, Progress::Copied { bytes: 0, .. });
        if begins && !changed.swap(true, Ordering::Relaxed) {
            change(from.as_file());
        }
        Ok(())
    };
    (Copy::new(source), observer)
}

#[test]
fn source_that_changes_on_the_way_is_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let is_told = |error: Error, left: &dyn Fn(&CopyRemains) -> bool, how: &str| match error.problem() {
        Problem::CopyChanged(found) => assert!(left(found), "{how}: {error}"),
        // What is not there any more cannot be read.
        Problem::CopyFault { left: found, .. } if how == "shrinks" => {
            assert!(left(found), "{how}: {error}");
        }
        _ => panic!("{how}: {error}"),
    };
    let nothing = |left: &CopyRemains| *left == CopyRemains::Nothing;
    let part = |left: &CopyRemains| matches!(left, CopyRemains::Part(_));
    for (how, change) in CHANGES {
        for is_stream in [false, true] {
            // A stream has the length that it has when it ends.
            if is_stream && how == "shrinks" {
                continue;
            }
            let (copy, observer) = changing(change, is_stream);
            let error = copy.on_progress(observer).into_file(&out).unwrap_err();
            is_told(error, &nothing, how);
            let (copy, observer) = changing(change, is_stream);
            let create = Create::new(&out).passphrase(PHRASE).format(cheap());
            let error = create.fill(copy).on_progress(observer).create();
            is_told(error.unwrap_err(), &nothing, how);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{how}");
        }
        let to = Disk::of(HEADER + (12 << 20));
        let (copy, observer) = changing(change, false);
        let error = create(&to).fill(copy).on_progress(observer).create();
        is_told(error.unwrap_err(), &part, how);
        assert_opens_nothing(&to);
        let (copy, observer) = changing(change, false);
        let copy = copy.replace(true).on_progress(observer);
        let error = copy.into_volume(|| Ok(encrypted(&to))).unwrap_err();
        is_told(error, &part, how);
    }
}

#[test]
fn old_header_is_out_of_the_way_before_its_data_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let [header, aside] = ["header", ".header.cryptline-old"].map(|it| folder.path().join(it));
    let to = Disk::of(5 << 20);
    let from = noise(5 << 20);
    let fill = |copy: Copy| create(&to).header(&header).replace(true).fill(copy);
    fill(Copy::new(source(&from))).create().unwrap();
    let old = std::fs::read(&header).unwrap();
    assert!(!aside.exists());
    let told = Arc::new(Mutex::new(None));
    let faulty = encrypted(&from).fault("read:nth=4".parse().unwrap());
    let faulty = CopySource::volume(&faulty.read_only(true).open().unwrap());
    let tell = Arc::clone(&told);
    let failed = fill(Copy::new(faulty)).on_progress(move |progress| {
        if let Progress::SetAside(path) = progress {
            *tell.lock().unwrap() = Some(path.to_owned());
        }
        Ok(())
    });
    failed.create().unwrap_err();
    // It would open onto what is half the one and half the other.
    assert!(!header.exists());
    assert!(std::fs::read(&aside).unwrap() == old, "it is lost");
    assert_eq!(told.lock().unwrap().as_ref(), Some(&aside), "nobody knows");
    // It is not lost by the next one either.
    fill(Copy::new(source(&from))).create().unwrap();
    let error = fill(Copy::new(source(&from))).create().unwrap_err();
    assert!(matches!(error.problem(), Problem::Exists { .. }), "{error}");
    assert!(std::fs::read(&aside).unwrap() == old && header.exists());
}

/// Its own name, which is no text, is shown as another's.
#[test]
fn volume_in_a_file_whose_name_is_no_text_is_not_copied_over_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"\xff"));
    make(&path, 20 << 20);
    let link = folder.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    let volume = Open::new(&path).passphrase(PHRASE).read_only(true).open().unwrap();
    let error = Copy::new(CopySource::volume(&volume)).replace(true).into_file(&link).unwrap_err();
    assert!(matches!(error.problem(), Problem::SameFile), "{error}");
}

#[test]
fn file_is_not_copied_over_itself_by_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    std::fs::write(&one, vec![7; 1 << 20]).unwrap();
    std::fs::hard_link(&one, &other).unwrap();
    for place in [&one, &other] {
        let copy = Copy::new(CopySource::raw(&one).unwrap()).replace(true);
        let error = copy.into_target(place).unwrap_err();
        assert!(matches!(error.problem(), Problem::SameFile), "{error}");
    }
    assert!(std::fs::read(&one).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn holes_of_any_size_are_passed_over() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const SIZE: u64 = 256 << 30;
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(SIZE).unwrap();
    let places = [0, 100 << 30, (200 << 30) + 4096, SIZE - 512];
    for at in places {
        file.write_all_at(&[7; 512], at).unwrap();
    }
    let copied = Copy::new(CopySource::raw(&from).unwrap());
    let copied = copied.into_file(&to).unwrap();
    assert_eq!(copied.bytes, SIZE);
    assert!(copied.skipped > SIZE - (1 << 20));
    let copy = std::fs::File::open(&to).unwrap();
    assert!(copy.metadata().unwrap().blocks() * 512 < 1 << 20);
    for at in places {
        let mut found = [0; 512];
        copy.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [7; 512]);
    }
}

#[test]
fn copy_into_a_file_or_a_stream_is_hashed_in_the_order_of_its_bytes() {
    const SIZE: usize = (37 << 20) + 777;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let file = File::create(path("from")).unwrap();
    // Holes of whole chunks, which are not read, and of less.
    for mib in (0..37_u8).filter(|mib| mib % 5 != 3) {
        file.write_all_at(&vec![mib + 1; (1 << 20) - 4096], u64::from(mib) << 20).unwrap();
    }
    file.write_all_at(&[5; 777], (SIZE - 777) as u64).unwrap();
    let bytes = std::fs::read(path("from")).unwrap();
    let copy = || Copy::new(CopySource::raw(path("from")).unwrap()).hashes([CopyHash::Sha256]);
    let of_file = copy().into_file(path("to")).unwrap();
    let of_stream = copy().into_stream(File::create(path("stream")).unwrap(), "stream").unwrap();
    for (copied, name) in [(of_file, "to"), (of_stream, "stream")] {
        assert_eq!(copied.hashed[0].value, Sha256::digest(&bytes).to_vec(), "{name}");
        assert!(std::fs::read(path(name)).unwrap() == bytes, "{name}");
    }
}

/// Without it the data would be lost.
#[test]
fn header_of_the_source_is_no_destination() {
    let folder = tempfile::tempdir().unwrap();
    let [disk, header, soft, hard, new] =
        ["disk", "header", "soft", "hard", "new"].map(|name| folder.path().join(name));
    make(&disk, 20 << 20);
    let before = std::fs::read(&disk).unwrap()[..HEADER].to_vec();
    std::fs::write(&header, &before).unwrap();
    std::os::unix::fs::symlink(&header, &soft).unwrap();
    std::fs::hard_link(&header, &hard).unwrap();
    let open = Open::new(&disk).header(&header).passphrase(PHRASE).read_only(true);
    let volume = open.open().unwrap();
    let create =
        |to: &std::path::Path, copy| Create::new(to).format(cheap()).passphrase(PHRASE).replace(true).fill(copy);
    for is_named in [false, true] {
        let copy = || {
            let source = CopySource::volume(&volume);
            Copy::new(if is_named { source.named("it") } else { source }).replace(true)
        };
        for to in [&header, &soft, &hard] {
            let stream = File::options().write(true).open(to).unwrap();
            for (way, refused) in [
                ("target", copy().into_target(to).map(drop)),
                ("file", copy().into_file(to).map(drop)),
                ("stream", copy().into_stream(stream, "stream").map(drop)),
                ("volume", create(to, copy()).create().map(drop)),
                ("header", create(&new, copy()).header(to).create().map(drop)),
            ] {
                let refused = refused.err().unwrap_or_else(|| panic!("{way} {to:?}"));
                assert!(matches!(refused.problem(), Problem::SameFile), "{way} {to:?}: {refused}");
                assert!(std::fs::read(to).unwrap() == before, "{way} {to:?}");
            }
        }
        assert_eq!(copy().into_file(&new).unwrap().bytes, 4 << 20);
    }
}
