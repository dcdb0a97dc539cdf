//! Writes of every verb to a large disk that is there already: where they go was looked at before, unless the volume
//! itself has that place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use cryptline_luks::format::{FormatOptions, LuksVersion};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::base::BaseSource;
use crate::create::Progress;
use crate::error::Problem;
use crate::testing::cheap;
use crate::{Copy, CopySource, Create, Header, Medium, ResizeError, ResizeOptions, Result};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
const PHRASE: &str = "pass phrase";
const PAGE_LEN: usize = 64 << 10;
const PAGE: u64 = PAGE_LEN as u64;
/// Bytes of what is copied, which end in the middle of a sector.
const CONTENTS: usize = (40 << 20) + 512;

/// A disk of which only what is not zero takes room, and which remembers what was read and written.
struct Recorder {
    size: u64,
    pages: Mutex<BTreeMap<u64, Vec<u8>>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The look is over: what is read from now on is read to be written back around what was asked for.
    is_over: bool,
    read: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

impl Recorder {
    fn of(size: u64) -> Arc<Self> {
        Arc::new(Self { size, pages: Mutex::default(), seen: Mutex::default() })
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let mut pages = self.pages.lock().unwrap();
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let inside = usize::try_from(at % PAGE).unwrap();
            let (now, later) = rest.split_at(rest.len().min(PAGE_LEN - inside));
            if now.iter().any(|&byte| byte != 0) || pages.contains_key(&(at / PAGE)) {
                let page = pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE_LEN]);
                page[inside..inside + now.len()].copy_from_slice(now);
            }
            (at, rest) = (at + now.len() as u64, later);
        }
    }

    fn forget(&self) {
        *self.seen.lock().unwrap() = Seen::default();
    }

    fn note(&self, progress: Progress<'_>) -> Result<()> {
        if let Progress::Looked = progress {
            self.seen.lock().unwrap().is_over = true;
        }
        Ok(())
    }

    fn written(&self) -> Vec<Range<u64>> {
        self.seen.lock().unwrap().written.clone()
    }

    /// Fails where a byte was written that is not `allowed`, whatever was looked at.
    fn check_all_in(&self, allowed: Range<u64>, verb: &str) {
        self.seen.lock().unwrap().read.clear();
        self.check(allowed, verb);
    }

    /// Fails where a byte was written that was neither looked at nor is `allowed`.
    fn check(&self, allowed: Range<u64>, verb: &str) {
        let seen = self.seen.lock().unwrap();
        assert!(!seen.written.is_empty(), "{verb} writes nothing");
        let known = joined(seen.read.iter().cloned().chain([allowed]).collect());
        for written in joined(seen.written.clone()) {
            let is_known = known.iter().any(|known| known.start <= written.start && written.end <= known.end);
            assert!(is_known, "{verb} writes {written:?}, of which not all was looked at");
        }
    }
}

/// The same bytes in as few ranges as there can be.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined = Vec::<Range<u64>>::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl Medium for Recorder {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap();
        if !seen.is_over {
            seen.read.push(offset..offset + target.len() as u64);
        }
        let pages = self.pages.lock().unwrap();
        let (mut at, mut rest) = (offset, target);
        while !rest.is_empty() {
            let inside = usize::try_from(at % PAGE).unwrap();
            let len = rest.len().min(PAGE_LEN - inside);
            let (now, later) = rest.split_at_mut(len);
            match pages.get(&(at / PAGE)) {
                Some(page) => now.copy_from_slice(&page[inside..inside + len]),
                None => now.fill(0),
            }
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.seen.lock().unwrap().written.push(offset..offset + source.len() as u64);
        self.put(offset, source);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn contents() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&[7; CONTENTS]).unwrap();
    file
}

type Run = dyn Fn(&Arc<Recorder>) -> Result<()>;

/// A verb that makes something of a disk on which nothing is yet.
struct Maker {
    name: &'static str,
    run: Box<Run>,
    /// Bytes from the start of the disk that it writes for certain.
    writes: u64,
}

fn create(disk: &Arc<Recorder>, format: FormatOptions) -> Create {
    let noted = Arc::clone(disk);
    let create = Create::medium(Arc::clone(disk)).format(format).passphrase(PHRASE);
    create.on_progress(move |progress| noted.note(progress))
}

fn maker(name: &'static str, writes: u64, run: impl Fn(&Arc<Recorder>) -> Result<()> + 'static) -> Maker {
    Maker { name, writes, run: Box::new(run) }
}

fn makers() -> Vec<Maker> {
    let contents = Arc::new(contents());
    let streamed = Arc::clone(&contents);
    let copy = move || CopySource::raw(contents.path()).map(Copy::new);
    let stream = move || Copy::new(CopySource::stream(File::open(streamed.path()).unwrap(), "a stream"));
    let large = || FormatOptions { metadata_size: Some(4 << 20), ..cheap(LuksVersion::Luks2) };
    let small = || FormatOptions { data_offset: Some(MIB), ..cheap(LuksVersion::Luks2) };
    let apart = || FormatOptions { detached: true, keyslots_size: Some(100 * MIB), ..cheap(LuksVersion::Luks2) };
    let far = || FormatOptions { data_offset: Some(64 * MIB), ..cheap(LuksVersion::Luks2) };
    let [one, two, three] = [copy.clone(), copy.clone(), copy.clone()];
    let len = (CONTENTS as u64).next_multiple_of(4096);
    vec![
        maker("create", 16 * MIB, |disk| create(disk, cheap(LuksVersion::Luks2)).create().map(drop)),
        maker("create of LUKS1", 2 * MIB, |disk| create(disk, cheap(LuksVersion::Luks1)).create().map(drop)),
        maker("create with large copies", 16 * MIB, move |disk| create(disk, large()).create().map(drop)),
        maker("create with a short header", MIB, move |disk| create(disk, small()).create().map(drop)),
        maker("create of a long detached header", 100 * MIB + (32 << 10), move |disk| {
            create(disk, apart()).create().map(drop)
        }),
        maker("create --from", 16 * MIB + len, move |disk| {
            create(disk, cheap(LuksVersion::Luks2)).fill(one()?).create().map(drop)
        }),
        maker("create --from with data far behind", 64 * MIB + len, move |disk| {
            create(disk, far()).fill(two()?).create().map(drop)
        }),
        maker("create --from -", 16 * MIB, move |disk| {
            create(disk, cheap(LuksVersion::Luks2)).fill(stream()).create().map(drop)
        }),
        maker("copy", CONTENTS as u64, move |disk| {
            let noted = Arc::clone(disk);
            let copy = three()?.on_progress(move |progress| noted.note(progress));
            copy.into_device(&BaseSource::Medium(Arc::clone(disk) as _)).map(drop)
        }),
    ]
}

#[test]
fn what_is_made_on_a_large_disk_is_written_only_where_it_was_looked_at() {
    for Maker { name, run, .. } in makers() {
        // Of a stream nobody knows the length, so all of the disk is read.
        let disk = Recorder::of(if name.ends_with('-') { 1 << 30 } else { TIB });
        run(&disk).unwrap();
        disk.check(0..0, name);
    }
}

#[test]
fn no_byte_that_would_be_written_is_overlooked_on_a_large_disk() {
    for Maker { name, run, writes } in makers() {
        let size = if name.ends_with('-') { 1 << 30 } else { TIB };
        let mut places = vec![0, MIB - 4097, 77 * 4096 + 5, writes / 2 + 3, writes - 1];
        if name.ends_with('-') {
            places.extend([writes + 5, size / 3 + 70_001, size - 1]);
        }
        for at in places {
            let disk = Recorder::of(size);
            disk.put(at, &[1]);
            let refused = run(&disk).expect_err(name);
            assert!(matches!(refused.problem(), Problem::Holds { .. }), "{name}: {at}: {refused}");
            assert_eq!(disk.written(), [], "{name}: {at}");
        }
    }
}

#[test]
fn header_that_is_longer_than_its_disk_is_refused_before_the_old_one_is_gone() {
    let disk = Recorder::of(8 * MIB);
    let detached = |keyslots_size| FormatOptions { detached: true, keyslots_size, ..cheap(LuksVersion::Luks2) };
    create(&disk, detached(Some(4 * MIB))).create().unwrap();
    disk.forget();
    let refused = create(&disk, detached(None)).replace(true).create().unwrap_err();
    let size = 8 * MIB;
    let too_small = |problem: &Problem| matches!(problem, Problem::Luks(cryptline_luks::Error::TooSmall { needed, size: has }) if *needed > size && *has == size);
    assert!(too_small(refused.problem()), "{refused}");
    assert_eq!(disk.written(), []);
}

/// As a loop device over a partition of the disk makes one.
#[test]
fn file_system_on_a_partition_is_seen_on_the_whole_disk() {
    for Maker { name, run, .. } in makers() {
        for start in [63 * 512, MIB] {
            let disk = Recorder::of(if name.ends_with('-') { 1 << 30 } else { TIB });
            disk.put(start + 1024 + 56, b"\x53\xef");
            let refused = run(&disk).expect_err(name);
            let ext = "an ext2, ext3 or ext4 file system";
            assert!(matches!(refused.problem(), Problem::Holds { what } if *what == ext), "{name}: {refused}");
            assert_eq!(disk.written(), [], "{name}: {start}");
        }
    }
}

/// All that they may write is the place of the header.
#[test]
fn header_that_is_changed_is_written_in_its_place_only() {
    let made = |version| {
        let disk = Recorder::of(TIB);
        let format = FormatOptions { sector_size: Some(512), ..cheap(version) };
        create(&disk, format).create().unwrap();
        disk.forget();
        let header = Header::medium(Arc::clone(&disk)).passphrase(PHRASE);
        (disk, header)
    };
    let (disk, header) = made(LuksVersion::Luks1);
    header.convert(LuksVersion::Luks2).unwrap();
    disk.check_all_in(0..2 * MIB, "convert");
    for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
        let (disk, header) = made(version);
        let folder = tempfile::tempdir().unwrap();
        let backup = folder.path().join("backup");
        header.backup(&backup).unwrap();
        // Onto a volume, and onto what has lost its header.
        for lost in [false, true] {
            if lost {
                disk.put(0, &[0; 64 << 10]);
            }
            disk.forget();
            let noted = Arc::clone(&disk);
            let restored = Header::medium(Arc::clone(&disk)).restore(&backup, |_| noted.note(Progress::Looked));
            restored.unwrap();
            disk.check(0..0, "restore");
        }
    }
}

/// Has a LUKS2 header say how long its data is, by as many digits as "dynamic" has letters.
fn state_data_size(disk: &Recorder, size: &str) {
    const COPY: usize = 16 << 10;
    const SUM: Range<usize> = 448..512;
    for number in 0..2 {
        let (at, mut copy) = (number * COPY as u64, vec![0; COPY]);
        disk.read_at(at, &mut copy).unwrap();
        let word = b"\"dynamic\"";
        let found = copy.windows(word.len()).position(|bytes| bytes == word).unwrap();
        copy[found + 1..][..size.len()].copy_from_slice(size.as_bytes());
        copy[SUM].fill(0);
        let sum = Sha256::digest(&copy);
        copy[SUM][..sum.len()].copy_from_slice(&sum);
        disk.put(at, &copy);
    }
}

/// A volume whose header says how large it is grows on a disk, and what it grows into is looked at.
#[test]
fn volume_that_grows_takes_nothing_in_unnoticed_on_a_large_disk() {
    let disk = Recorder::of(TIB);
    create(&disk, cheap(LuksVersion::Luks2)).create().unwrap();
    state_data_size(&disk, "8388608");
    let end = 24 * MIB;
    for (at, magic) in
        [(end, &[1][..]), (end + 9 * MIB + 3, &[1]), (end + MIB + 1024 + 56, b"\x53\xef"), (TIB - 1, &[1])]
    {
        disk.put(at, magic);
        disk.forget();
        let refused = Header::medium(Arc::clone(&disk)).resize(&ResizeOptions::default()).unwrap_err();
        let taken = ResizeError::Taken { end };
        assert!(matches!(refused.problem(), Problem::Resize(error) if *error == taken), "{at}: {refused}");
        assert_eq!(disk.written(), [], "{at}");
        disk.put(at, &vec![0; magic.len()]);
    }
    Header::medium(Arc::clone(&disk)).resize(&ResizeOptions::default()).unwrap();
    disk.check_all_in(0..16 * MIB, "resize");
}
