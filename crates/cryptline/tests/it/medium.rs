//! Volumes on a medium that the caller brings along, and through keys that the caller is asked for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cryptline::luks::format::{FormatOptions, LuksVersion};
use cryptline::{
    BaseInfo, Copy, CopyRemains, CopySource, Create, Error, ErrorKind, Fault, Format, Key, KeyRequest, Medium, Open,
    Plain, Problem, Progress, RandomKey, SecretBuf, Target, VolumeKind,
};
use rustix::io::Errno;

use crate::common::{Event, Memory, PHRASE, cheap};

const SIZE: usize = 20 << 20;
fn luks_on(memory: &Arc<Memory>) {
    let create = Create::medium(Arc::clone(memory)).format(cheap());
    assert_eq!(create.passphrase(PHRASE).create().unwrap().data_size, SIZE as u64 - (16 << 20));
}

#[test]
fn volume_is_made_on_a_medium_and_opens_again_with_what_was_written() {
    for block in [512, 4096] {
        let memory = Memory::new(SIZE, block);
        luks_on(&memory);
        let open = || Open::medium(Arc::clone(&memory)).passphrase(PHRASE).open();
        let volume = open().unwrap();
        assert_eq!(volume.info().kind, VolumeKind::Luks2);
        assert_eq!(volume.info().base, BaseInfo::Medium);
        assert_eq!(volume.info().logical_block, block);
        let data: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
        let mut disk = volume.blocking().unwrap();
        disk.write_at(4096, &data, false).unwrap();
        memory.events.lock().unwrap().clear();
        disk.flush().unwrap();
        assert!(memory.events.lock().unwrap().contains(&Event::Flush));
        disk.write_at(8192, &[0; 4096], false).unwrap();
        drop((disk, volume));
        let encrypted = memory.bytes.lock().unwrap()[(16 << 20) + 4096..][..4096].to_vec();
        assert!(encrypted != data[..4096], "it is encrypted");
        let mut read = vec![0; data.len()];
        let volume = open().unwrap();
        volume.blocking().unwrap().read_at(4096, &mut read).unwrap();
        let mut expected = data;
        expected[4096..8192].fill(0);
        assert!(read == expected);
    }
}

#[test]
fn medium_that_holds_something_is_made_into_a_volume_only_when_that_may_be_lost() {
    let memory = Memory::new(SIZE, 512);
    memory.bytes.lock().unwrap()[SIZE - 1] = 1;
    let create = || Create::medium(Arc::clone(&memory)).format(cheap()).passphrase(PHRASE);
    let refused = create().create().unwrap_err();
    assert!(matches!(refused.problem(), Problem::Holds { what: "data" }));
    assert_eq!(refused.kind(), ErrorKind::Busy);
    create().replace(true).create().unwrap();
    let refused = create().create().unwrap_err();
    assert!(refused.to_string().contains("a LUKS header"), "{refused}");
}

/// Its second copy lies behind what is wiped of the first.
#[test]
fn header_with_large_copies_that_is_given_up_late_opens_nothing() {
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), [7; 4096]).unwrap();
    for (fills, metadata_size) in [(false, Some(32 << 10)), (true, Some(4 << 20)), (false, None)] {
        let memory = Memory::new(SIZE, 512);
        let format = FormatOptions { metadata_size, ..cheap() };
        let create =
            Create::medium(Arc::clone(&memory)).format(format).passphrase(PHRASE).on_progress(
                |progress| match progress {
                    Progress::Checking => Err(Problem::NoKey.into()),
                    _ => Ok(()),
                },
            );
        let create = if fills { create.fill(Copy::new(CopySource::raw(source.path()).unwrap())) } else { create };
        let error = create.create().unwrap_err();
        assert!(matches!(error.problem(), Problem::NoKey), "{error}");
        let opened = Open::medium(memory).passphrase(PHRASE).open();
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("not a LUKS volume"), "{metadata_size:?}: {error}");
    }
}

#[test]
fn full_medium_is_told_from_a_failing_one() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let volume = Open::medium(Arc::clone(&memory)).passphrase(PHRASE);
    let volume = volume.open().unwrap();
    let mut disk = volume.blocking().unwrap();
    memory.is_full.store(true, Ordering::Relaxed);
    assert_eq!(disk.write_at(0, &[1; 4096], false), Err(Fault::NoSpace));
    memory.is_full.store(false, Ordering::Relaxed);
    disk.flush().unwrap();
    assert_eq!(disk.discard(0, 4096), Err(Fault::NotSupported));
}

/// A disk in memory that takes the first block of what is written, and then says by this number that it does not.
struct Halfway(Arc<Memory>, Errno);

impl Medium for Halfway {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, target)
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, &source[..512])?;
        Err(self.1.into())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn write_of_a_medium_that_fails_was_not_refused_whatever_its_number() {
    for number in [Errno::PERM, Errno::INVAL, Errno::NOTSUP, Errno::ROFS, Errno::IO] {
        let medium = Halfway(Memory::of(1 << 20), number);
        let volume = Open::medium(medium).plain(Plain::new("aes-xts-plain64", 64)).key([1; 64]).open().unwrap();
        let mut disk = volume.blocking().unwrap();
        assert_eq!(disk.write_at(0, &[1; 4096], false), Err(Fault::Io(Errno::IO)), "{number}");
        assert_eq!(disk.flush(), Err(Fault::Latched));
    }
}

#[test]
fn medium_with_impossible_blocks_is_refused() {
    for block in [0, 256, 1000, 8192] {
        let open = Open::medium(Memory::new(SIZE, block)).passphrase(PHRASE);
        let refused = open.open().err().unwrap();
        assert!(refused.to_string().contains("power of two"), "{refused}");
    }
}

#[test]
fn whoever_is_asked_for_a_key_is_asked_again_until_there_is_no_more() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let asked = Arc::new(AtomicU32::new(0));
    let answers = |right: u32, most: u32| {
        let asked = Arc::clone(&asked);
        asked.store(0, Ordering::Relaxed);
        move |request: &KeyRequest<'_>| {
            assert_eq!(asked.fetch_add(1, Ordering::Relaxed), request.failed);
            assert!(request.raw_len.is_none() && !request.is_new);
            if request.failed == most {
                return Ok(None);
            }
            let phrase = if request.failed == right { PHRASE } else { "x" };
            let secret = SecretBuf::copy_of(phrase.as_bytes());
            let secret = secret.map_err(|error| Error::from_keys(ErrorKind::Memory, error))?;
            Ok(Some(Key::Passphrase(secret)))
        }
    };
    let open = |keys| Open::medium(Arc::clone(&memory)).keys(keys);
    assert_eq!(open(answers(2, 3)).unlock().unwrap().slot, Some(0));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    let refused = open(answers(9, 3)).unlock().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoKey);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let given_up = open(answers(9, 0)).unlock().err().unwrap();
    assert!(matches!(given_up.problem(), Problem::NoKey), "{given_up}");
    let nobody = Open::medium(Arc::clone(&memory)).open().err().unwrap();
    assert!(matches!(nobody.problem(), Problem::NoKey), "{nobody}");
}

#[test]
fn error_of_whoever_is_asked_comes_back_as_it_is() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let keys = |_: &KeyRequest<'_>| Err(Error::from_keys(ErrorKind::Busy, "come back later"));
    let error = Open::medium(memory).keys(keys).open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(error.to_string(), "come back later");
}

#[test]
fn volume_key_opens_luks_and_plain_alike() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let open = || Open::medium(Arc::clone(&memory));
    let table = open().passphrase(PHRASE).table(true).unwrap();
    let digits = table.line.split(' ').nth(4).unwrap();
    let pairs = digits.as_bytes().chunks(2);
    let key: Vec<u8> = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    let plain = Plain { start: 16 << 20, sector_size: 4096, ..Plain::new("aes-xts-plain64", 64) };
    let volume = open().key(&key).open().unwrap();
    let mut disk = volume.blocking().unwrap();
    disk.write_at(0, &[7; 8192], false).unwrap();
    drop((disk, volume));
    let volume = open().key(&key).plain(plain.clone()).open().unwrap();
    assert_eq!(volume.info().kind, VolumeKind::Plain);
    let mut read = [0; 8192];
    volume.blocking().unwrap().read_at(0, &mut read).unwrap();
    assert!(read == [7; 8192]);
    assert_eq!(open().key(vec![1; 64]).open().err().unwrap().kind(), ErrorKind::NoKey);
    let short = open().key(vec![1; 63]).plain(plain.clone()).open();
    assert!(matches!(short.err().unwrap().problem(), Problem::KeyTooShort { has: 63, needs: 64 }));
    let unhashed = open().passphrase(PHRASE).plain(plain).open().err().unwrap();
    assert!(matches!(unhashed.problem(), Problem::NoHash), "{unhashed}");
}

#[test]
fn wrong_words_are_kept_until_the_opening() {
    let open = Open::new("ram:x").passphrase("x").read_only(true);
    let error = open.open().err().unwrap();
    assert!(error.to_string().contains("not a size"), "{error}");
    let error = Create::new("zoned:x,y=1").create().unwrap_err();
    assert!(error.to_string().contains("the keys are"), "{error}");
    let error = Create::new("ram:1M").passphrase("x").create().unwrap_err();
    assert!(matches!(error.problem(), Problem::NoPlace(_)), "{error}");
    assert!(Open::new("ram:1M").inspect().is_err());
    assert!(Open::new("ram:1M").table(false).is_err());
}

#[test]
fn extents_of_memory_cover_it_all_and_end() {
    let volume = Open::new("ram:1M").open().unwrap();
    let mut disk = volume.blocking().unwrap();
    disk.write_at(65536, &[1; 4096], false).unwrap();
    let extents = volume.extents(0).collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 1 << 20);
    let holes: Vec<bool> = extents.iter().map(|extent| extent.hole).collect();
    assert_eq!(holes, [true, false, true]);
    assert_eq!(volume.extents(1 << 20).count(), 0);
    assert_eq!(volume.extents(u64::MAX).count(), 0);
}

#[test]
fn refused_flush_of_a_durable_write_fails_all_later_ones() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let volume = Open::medium(Arc::clone(&memory)).passphrase(PHRASE);
    let volume = volume.open().unwrap();
    let mut disk = volume.blocking().unwrap();
    memory.refused_flushes.store(1, Ordering::Relaxed);
    assert_eq!(disk.write_at(0, &[1; 4096], true), Err(Fault::Io(Errno::IO)));
    assert_eq!(disk.flush(), Err(Fault::Latched));
}

#[test]
fn only_memory_is_opened_under_a_random_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let random = || Format::RandomKey(RandomKey::default());
    for open in [Open::new(&path), Open::medium(Memory::new(SIZE, 512))] {
        let refused = open.format(random()).open().err().unwrap();
        assert!(matches!(refused.problem(), Problem::NotMemory), "{refused}");
    }
    assert!(std::fs::read(&path).unwrap() == vec![7; 1 << 20]);
    Open::new("ram:1M").format(random()).open().unwrap();
}

#[test]
fn detached_header_is_made_and_opens_again() {
    let options = FormatOptions { detached: true, ..cheap() };
    let memory = Memory::new(SIZE, 512);
    let create = Create::medium(Arc::clone(&memory)).format(options);
    assert_eq!(create.passphrase(PHRASE).create().unwrap().data_size, 0, "the data is elsewhere");
    let unlocked = Open::medium(memory).passphrase(PHRASE).unlock().unwrap();
    assert_eq!(unlocked.slot, Some(0));
}

#[test]
fn volume_under_the_null_cipher_is_refused_before_anything_is_written() {
    for key_len in [0, 64] {
        let options =
            FormatOptions { cipher: "cipher_null-ecb".to_owned(), allow_null_cipher: true, key_len, ..cheap() };
        let memory = Memory::new(SIZE, 512);
        let create = Create::medium(Arc::clone(&memory)).format(options);
        let refused = create.passphrase(PHRASE).create().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Parameters, "{refused}");
        assert!(memory.bytes.lock().unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn volume_with_smaller_sectors_than_the_blocks_below_is_not_made() {
    let luks1 = FormatOptions { version: LuksVersion::Luks1, ..cheap() };
    let small = FormatOptions { sector_size: Some(512), ..cheap() };
    for options in [luks1, small] {
        let memory = Memory::new(SIZE, 4096);
        let create = Create::medium(Arc::clone(&memory)).format(options);
        let refused = create.passphrase(PHRASE).create().unwrap_err();
        assert!(matches!(refused.problem(), Problem::DeviceBlocks { unit: 512, block: 4096 }), "{refused}");
        assert!(memory.bytes.lock().unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn file_is_a_medium_and_read_only_where_it_cannot_be_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let file = |append: bool, write: bool| {
        let mut options = std::fs::File::options();
        options.read(true).write(write).append(append);
        options.open(&path).unwrap()
    };
    let create = Create::medium(file(false, true)).format(cheap());
    create.passphrase(PHRASE).create().unwrap();
    for (append, write, read_only) in [(false, true, false), (true, false, true), (false, false, true)] {
        let volume = Open::medium(file(append, write)).passphrase(PHRASE);
        assert_eq!(volume.open().unwrap().info().read_only, read_only);
    }
}

#[test]
fn what_a_volume_has_no_use_for_is_refused() {
    let plain = || Plain::new("aes-xts-plain64", 64);
    let table = "0 2048 crypt aes-xts-plain64 - 0 disk 0";
    let table = || Open::target(Target::Table(cryptline::TableLine::new(table).unwrap()));
    for open in [
        Open::new("disk").plain(plain()).header("header"),
        Open::new("ram:1M").passphrase(PHRASE),
        Open::new("ram:1M").header("header"),
        table().passphrase(PHRASE),
        table().header("header"),
        table().plain(plain()),
    ] {
        let refused = open.open().err().unwrap();
        assert!(matches!(refused.problem(), Problem::Useless { .. }), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::Parameters);
    }
    let refused = Open::new("disk").plain(plain()).passphrase(PHRASE).unlock();
    let refused = refused.err().unwrap();
    assert!(matches!(refused.problem(), Problem::NothingToTry), "{refused}");
}

#[test]
fn passphrase_is_not_asked_for_where_nobody_knows_its_hash() {
    let keys = |request: &KeyRequest<'_>| {
        assert!(!request.takes_passphrase);
        Ok(None)
    };
    let open = || Open::medium(Memory::new(SIZE, 512)).plain(Plain::new("aes-xts-plain64", 64));
    assert!(matches!(open().keys(keys).open().err().unwrap().problem(), Problem::NoKey));
    let refused = open().passphrase(PHRASE).open().err().unwrap();
    assert!(matches!(refused.problem(), Problem::NoHash), "{refused}");
}

#[test]
fn new_volume_takes_no_volume_key() {
    let key = cryptline::keys::VolumeKey::new([1; 64]).unwrap();
    let create = Create::medium(Memory::new(SIZE, 512)).format(cheap());
    let refused = create.keys(key).create().unwrap_err();
    assert!(matches!(refused.problem(), Problem::NotAPassphrase), "{refused}");
}

/// A disk of 64 TiB that forgets all of it, and asks whoever writes to it to stop.
struct Vast(Arc<AtomicBool>);

impl Medium for Vast {
    fn size(&self) -> u64 {
        64 << 40
    }

    fn read_at(&self, _: u64, target: &mut [u8]) -> io::Result<()> {
        target.fill(0);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_lies_before_data_far_behind_is_wiped_piece_by_piece_and_that_can_be_stopped() {
    let stop = Arc::new(AtomicBool::new(false));
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), [7; 4096]).unwrap();
    let source = CopySource::raw(source.path()).unwrap();
    let format = FormatOptions { data_offset: Some(32 << 40), ..cheap() };
    let create = Create::medium(Vast(Arc::clone(&stop))).format(format);
    let create = create.passphrase(PHRASE).replace(true);
    let copy = Copy::new(source).stop(stop);
    let error = create.fill(copy).create().unwrap_err();
    assert!(matches!(error.problem(), Problem::CopyStopped(CopyRemains::Part(_))), "{error}");
}
