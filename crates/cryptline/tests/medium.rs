//! Volumes on a medium that the caller brings along, and through keys that the caller is asked for.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
use cryptline::{
    BaseInfo, Create, Error, ErrorKind, Fault, Key, KeyRequest, Medium, Open, Plain, Problem,
    SecretBuf, VolumeKind,
};

const SIZE: usize = 20 << 20;
const PHRASE: &str = "pass phrase";

/// A disk in memory that counts its flushes.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    flushes: AtomicU64,
    block: u32,
    is_full: Mutex<bool>,
}

impl Memory {
    fn new(size: usize, block: u32) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; size]),
            block,
            ..Self::default()
        })
    }

    fn check(&self, offset: u64, len: usize) {
        let block = u64::from(self.block);
        assert!(offset.is_multiple_of(block) && (len as u64).is_multiple_of(block));
    }
}

impl Medium for Memory {
    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.check(offset, target.len());
        let at = usize::try_from(offset).unwrap();
        target.copy_from_slice(&self.bytes.lock().unwrap()[at..at + target.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.check(offset, source.len());
        if *self.is_full.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(offset).unwrap();
        self.bytes.lock().unwrap()[at..at + source.len()].copy_from_slice(source);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn block_size(&self) -> u32 {
        self.block
    }
}

/// A LUKS2 header that costs next to nothing to open.
fn cheap() -> FormatOptions {
    FormatOptions {
        kdf: Some(KdfKind::Pbkdf2),
        cost: KdfCost {
            iterations: Some(1000),
            ..KdfCost::default()
        },
        ..FormatOptions::default()
    }
}

fn luks_on(memory: &Arc<Memory>) {
    let create = Create::medium(Arc::clone(memory)).format(cheap());
    let made = create.passphrase(PHRASE).create().unwrap();
    assert_eq!(made.data_size, SIZE as u64 - (16 << 20));
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
        let before = memory.flushes.load(Ordering::Relaxed);
        disk.flush().unwrap();
        assert!(memory.flushes.load(Ordering::Relaxed) > before);
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
    let create = || {
        Create::medium(Arc::clone(&memory))
            .format(cheap())
            .passphrase(PHRASE)
    };
    let refused = create().create().unwrap_err();
    assert!(matches!(refused.problem(), Problem::Holds { what: "data" }));
    assert_eq!(refused.kind(), ErrorKind::Busy);
    create().replace(true).create().unwrap();
    let refused = create().create().unwrap_err();
    assert!(refused.to_string().contains("a LUKS header"), "{refused}");
}

#[test]
fn full_medium_is_told_from_a_failing_one() {
    let memory = Memory::new(SIZE, 512);
    luks_on(&memory);
    let volume = Open::medium(Arc::clone(&memory)).passphrase(PHRASE);
    let volume = volume.open().unwrap();
    let mut disk = volume.blocking().unwrap();
    *memory.is_full.lock().unwrap() = true;
    assert_eq!(disk.write_at(0, &[1; 4096], false), Err(Fault::NoSpace));
    *memory.is_full.lock().unwrap() = false;
    disk.flush().unwrap();
    assert_eq!(disk.discard(0, 4096), Err(Fault::NotSupported));
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
    let key: Vec<u8> = pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let plain = Plain {
        start: 16 << 20,
        sector_size: 4096,
        ..Plain::new("aes-xts-plain64", 64)
    };
    let volume = open().key(&key).open().unwrap();
    let mut disk = volume.blocking().unwrap();
    disk.write_at(0, &[7; 8192], false).unwrap();
    drop((disk, volume));
    let volume = open().key(&key).plain(plain.clone()).open().unwrap();
    assert_eq!(volume.info().kind, VolumeKind::Plain);
    let mut read = [0; 8192];
    volume.blocking().unwrap().read_at(0, &mut read).unwrap();
    assert!(read == [7; 8192]);
    let wrong = open().key(vec![1; 64]).open().err().unwrap();
    assert_eq!(wrong.kind(), ErrorKind::NoKey);
    let short = open().key(vec![1; 63]).plain(plain.clone()).open();
    let short = short.err().unwrap();
    assert!(matches!(
        short.problem(),
        Problem::KeyTooShort { has: 63, needs: 64 }
    ));
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
    assert_eq!(
        extents.iter().map(|extent| extent.len).sum::<u64>(),
        1 << 20
    );
    let holes: Vec<bool> = extents.iter().map(|extent| extent.hole).collect();
    assert_eq!(holes, [true, false, true]);
    assert_eq!(volume.extents(1 << 20).count(), 0);
    assert_eq!(volume.extents(u64::MAX).count(), 0);
}
