//! Volumes that cost next to nothing to open, what they hold, and disks in memory to put them on.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cryptline::luks::Hash;
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind};
use cryptline::{Create, Medium, Volume};
use rustix::io::Errno;

pub const PHRASE: &str = "pass phrase";

/// A LUKS2 header that costs next to nothing to open.
pub fn cheap() -> FormatOptions {
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    FormatOptions { kdf: Some(KdfKind::Pbkdf2), cost, ..FormatOptions::default() }
}

/// Makes a volume in a file of `size` bytes, which [`PHRASE`] opens.
pub fn make(path: &Path, size: u64) {
    let create = Create::new(path).size(size).format(cheap());
    create.passphrase(PHRASE).create().unwrap();
}

/// Changes the JSON of both copies of a LUKS2 header, under the right checksums: what anybody can do who can write to it.
pub fn edit(path: &Path, change: impl Fn(&str) -> String) {
    const COPY: usize = 0x4000;
    const BINARY: usize = 4096;
    const CHECKSUM: Range<usize> = 448..512;
    let mut bytes = fs::read(path).unwrap();
    for start in [0, COPY] {
        let copy = &mut bytes[start..start + COPY];
        let json = copy[BINARY..].split(|&byte| byte == 0).next().unwrap();
        let json = change(std::str::from_utf8(json).unwrap());
        copy[BINARY..].fill(0);
        copy[BINARY..BINARY + json.len()].copy_from_slice(json.as_bytes());
        copy[CHECKSUM].fill(0);
        let mut sum = [0; 32];
        Hash::Sha256.digest(&[copy], &mut sum);
        copy[CHECKSUM.start..][..sum.len()].copy_from_slice(&sum);
    }
    fs::write(path, bytes).unwrap();
}

/// All of a volume.
pub fn read(volume: &Volume) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(volume.info().size).unwrap()];
    volume.blocking().unwrap().read_at(0, &mut all).unwrap();
    all
}

pub fn write(volume: &Volume, data: &[u8]) {
    let mut disk = volume.blocking().unwrap();
    disk.write_at(0, data, false).unwrap();
    disk.flush().unwrap();
}

/// Operation on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Write { at: u64, len: usize, zeros: bool },
    Flush,
}

/// A disk in memory that remembers in which order it was written.
#[derive(Default)]
pub struct Memory {
    pub bytes: Mutex<Vec<u8>>,
    pub events: Mutex<Vec<Event>>,
    block: u32,
    /// Reads of the byte at this place give another.
    pub rotten: AtomicU64,
    pub is_full: AtomicBool,
    /// How many flushes are refused from now on.
    pub refused_flushes: AtomicU64,
}

impl Memory {
    /// A disk with this block.
    pub fn new(size: usize, block: u32) -> Arc<Self> {
        let (bytes, rotten) = (Mutex::new(vec![0; size]), AtomicU64::new(u64::MAX));
        Arc::new(Self { bytes, block, rotten, ..Self::default() })
    }

    /// A disk with blocks of 512 bytes.
    pub fn of(size: usize) -> Arc<Self> {
        Self::new(size, 512)
    }

    pub fn starts_as_luks(&self) -> bool {
        self.bytes.lock().unwrap().starts_with(b"LUKS")
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
        let rotten = self.rotten.load(Ordering::Relaxed);
        if (offset..offset + target.len() as u64).contains(&rotten) {
            target[usize::try_from(rotten - offset).unwrap()] ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.check(offset, source.len());
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(offset).unwrap();
        self.bytes.lock().unwrap()[at..at + source.len()].copy_from_slice(source);
        let zeros = source.iter().all(|&byte| byte == 0);
        self.events.lock().unwrap().push(Event::Write { at: offset, len: source.len(), zeros });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let left = &self.refused_flushes;
        let refuses = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if refuses.is_ok() {
            return Err(Errno::NOTSUP.into());
        }
        self.events.lock().unwrap().push(Event::Flush);
        Ok(())
    }

    fn block_size(&self) -> u32 {
        self.block
    }
}
