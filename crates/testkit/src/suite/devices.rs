//! Ready-made devices for the suite: each base, and the layers over any of them.

use std::path::PathBuf;
use std::sync::LazyLock;

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::base::{DirectMode, FileDevice, Image, PersistentMemory, PmemDevice, RamDevice};
use cryptline_engine::btt::{Btt, BttDevice, BttMedium, NewTable};
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::linear::{Segment, joined};
use cryptline_engine::layer::{
    CipherRange, CryptDevice, CryptOptions, DelayDevice, DelaySpec, Exclusion, FaultDevice, FaultPlan, SubBlockDevice,
    SubBlockOptions, Zeroes,
};
use cryptline_engine::{Gate, OpenError};
use cryptline_sys::SharedMemory;
use tempfile::TempDir;

use super::{Fresh, noise};

/// Size of each base in bytes: whole 4096-byte blocks, and no power of two.
pub const SIZE: u64 = 3 * 1024 * 1024 + 7 * 4096;

/// A medium so fast that whole suites run over it, and slow enough that much is in flight and
/// comes back out of order.
pub const QUICK: &str = "read=5us..50us,write=20us~10us,flush=100us,discard=10us,parallel=8,seed=3";
/// Size of what a block translation table is made on: the smallest that can hold one.
const BTT_SIZE: usize = (16 << 20) + 4096;

/// How a crypt layer lies over its lower device.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The dm-crypt cipher word.
    pub cipher: &'static str,
    /// Bytes of key.
    pub key_bytes: usize,
    /// Bytes in a cipher sector.
    pub sector_size: u32,
    /// First byte of the data on the lower device.
    pub start: u64,
    /// Added to the IV, in 512-byte sectors.
    pub iv_offset: u64,
}

/// AES-256-XTS in 512-byte sectors, from an offset, with an IV offset.
pub const AES_512: Layout =
    Layout { cipher: "aes-xts-plain64", key_bytes: 64, sector_size: 512, start: 9 * 4096, iv_offset: 77 };

/// AES-128-XTS in 4096-byte sectors, from an offset, with an IV offset.
pub const AES_4096: Layout =
    Layout { cipher: "aes-xts-plain64", key_bytes: 32, sector_size: 4096, start: 5 * 4096, iv_offset: 8 * 1001 };

/// AES-128-CBC in 4096-byte sectors: every byte of a sector depends on all before it.
pub const CBC_4096: Layout =
    Layout { cipher: "aes-cbc-essiv:sha256", key_bytes: 16, sector_size: 4096, start: 5 * 4096, iv_offset: 8 * 1001 };

/// The cipher that encrypts nothing.
pub const NULL: Layout =
    Layout { cipher: "cipher_null-ecb", key_bytes: 0, sector_size: 512, start: 3 * 4096, iv_offset: 0 };

/// The cipher on the thread that has the request.
pub const INLINE: Dispatch = Dispatch { read: DispatchMode::Inline, write: DispatchMode::Inline, ..QUEUE };

/// The cipher on worker threads, writes sorted.
pub const QUEUE: Dispatch = Dispatch {
    read: DispatchMode::Queue,
    write: DispatchMode::Queue,
    same_cpu_crypt: false,
    submit_from_crypt_cpus: false,
    high_priority: false,
};

/// The cipher on the worker of the submitter's core, writes as they come, priority as high as may be.
pub const QUEUE_FLAGS: Dispatch =
    Dispatch { same_cpu_crypt: true, submit_from_crypt_cpus: true, high_priority: true, ..QUEUE };

/// Helpers at everything.
pub const AUTO: Dispatch = Dispatch { read: DispatchMode::Auto, write: DispatchMode::Auto, ..QUEUE };

/// The second key of [`two_keys`]: another key size, other IVs.
pub const AES_512_SECOND: Layout =
    Layout { cipher: "aes-xts-plain64", key_bytes: 32, sector_size: 512, start: 0, iv_offset: 4321 };

/// A disk in memory.
#[must_use]
pub fn ram() -> Option<Fresh> {
    Some(Fresh::new(Gate::new(RamDevice::new(SIZE).expect("memory"))))
}

/// A sparse file through the page cache.
#[must_use]
pub fn file_buffered() -> Option<Fresh> {
    Some(file(512, DirectMode::Off).expect("a file"))
}

/// A file in a file system that is memory, where there is one: `/dev/shm`, as Linux mounts it.
///
/// # Panics
/// Where it can not be made.
#[must_use]
pub fn file_in_memory() -> Option<Fresh> {
    let folder = std::path::Path::new("/dev/shm");
    if !folder.is_dir() {
        crate::peer::skip("there is no /dev/shm");
        return None;
    }
    let image = image_file_in(folder);
    Some(file_at(image, 512, DirectMode::Off).expect("a file"))
}

/// A file by O_DIRECT, in the smallest units that it takes up to 512 bytes.
#[must_use]
pub fn file_direct() -> Option<Fresh> {
    direct_or_skip(512)
}

/// A file by O_DIRECT, used in units of 4096 bytes.
#[must_use]
pub fn file_direct_4096() -> Option<Fresh> {
    direct_or_skip(4096)
}

/// A mapped file.
///
/// # Panics
/// Where it can not be made.
#[must_use]
pub fn pmem() -> Option<Fresh> {
    let (path, folder) = image_file();
    let memory = PersistentMemory::open(&path, false).expect("a file can be mapped");
    let mut fresh = Fresh::new(Gate::new(PmemDevice::new(memory, false)));
    fresh.keep.push(Box::new(folder));
    Some(fresh)
}

/// A block translation table in memory, with sectors of `sector_size` bytes.
///
/// # Panics
/// Where it can not be made.
#[must_use]
pub fn btt_in_memory(sector_size: u32) -> Option<Fresh> {
    let memory = SharedMemory::new(BTT_SIZE).expect("memory");
    Some(btt(memory, sector_size))
}

/// A block translation table in a mapped file.
///
/// # Panics
/// Where it can not be made.
#[must_use]
pub fn btt_in_file(sector_size: u32) -> Option<Fresh> {
    let (path, folder) = image_file();
    let file = std::fs::File::options().write(true).open(&path);
    let sized = file.and_then(|file| file.set_len(BTT_SIZE as u64));
    sized.expect("a sparse file");
    let memory = PersistentMemory::open(&path, false).expect("a file can be mapped");
    let mut fresh = btt(memory, sector_size);
    fresh.keep.push(Box::new(folder));
    Some(fresh)
}

fn btt(medium: impl BttMedium + 'static, sector_size: u32) -> Fresh {
    let new = NewTable { sector_size, uuid: [1; 16], is_zero: true };
    assert!(new.write(&medium, |_| ()).expect("a table") > 0);
    let table = Btt::open(medium, false).expect("the table opens");
    Fresh::new(Gate::new(BttDevice::new(table, false)))
}

/// A lower device behind a fault layer that does nothing.
#[must_use]
pub fn faultless(lower: Fresh) -> Fresh {
    Fresh { gate: Gate::new(FaultDevice::new(lower.gate, FaultPlan::default())), keep: lower.keep }
}

/// A lower device behind a fault layer with these rules.
///
/// # Panics
/// On a rule that does not parse.
#[must_use]
pub fn faulty(lower: Fresh, rules: &[&str]) -> Fresh {
    let rules = rules.iter().map(|rule| rule.parse().expect("a fault rule"));
    let plan = FaultPlan(rules.collect());
    Fresh { gate: Gate::new(FaultDevice::new(lower.gate, plan)), keep: lower.keep }
}

/// A lower device as slow as `spec` says.
///
/// # Panics
/// On a text that does not parse.
#[must_use]
pub fn delayed(lower: Fresh, spec: &str) -> Fresh {
    let spec: DelaySpec = spec.parse().expect("a delay");
    Fresh { gate: Gate::new(DelayDevice::new(lower.gate, spec)), keep: lower.keep }
}

/// The clear disk over an encrypted one; discards pass.
///
/// # Panics
/// Where the layout does not fit the lower device.
#[must_use]
pub fn crypt(lower: Fresh, layout: &Layout) -> Fresh {
    dispatched(lower, layout, Dispatch::both(DispatchMode::Inline))
}

/// The same, with the cipher run as `dispatch` says. Helpers come to everything, however small and
/// however busy the machine is.
///
/// # Panics
/// Where the layout does not fit the lower device.
#[must_use]
pub fn dispatched(lower: Fresh, layout: &Layout, dispatch: Dispatch) -> Fresh {
    stacked(lower, layout, dispatch, |_| ())
}

/// The clear disk in blocks of `block` bytes, smaller than its cipher sectors.
///
/// # Panics
/// Where the layout does not fit the lower device.
#[must_use]
pub fn in_blocks(lower: Fresh, layout: &Layout, block: u32, exclusion: Exclusion, dispatch: Dispatch) -> Fresh {
    let clear = stacked(lower, layout, dispatch, |options| {
        options.logical_block = Some(block);
    });
    if exclusion == Exclusion::Shared && clear.gate.geometry().logical_block == block {
        return clear;
    }
    let options = SubBlockOptions { logical_block: block, sector: layout.sector_size, exclusion };
    let device = SubBlockDevice::new(clear.gate, options).expect("smaller blocks");
    Fresh { gate: Gate::new(device), keep: clear.keep }
}

/// The clear disk, where a hole reads as zeros.
///
/// # Panics
/// Where the layout does not fit the lower device.
#[must_use]
pub fn sparse(lower: Fresh, layout: &Layout) -> Fresh {
    stacked(lower, layout, Dispatch::both(DispatchMode::Inline), |options| {
        options.zeroes = Zeroes::Detect;
    })
}

/// Ranges of `each` bytes of several devices in turns, those of each from its end to its start; as much as
/// is whole in all.
///
/// # Panics
/// Where they cannot be joined.
#[must_use]
pub fn in_turns(lowers: Vec<Fresh>, each: u64) -> Fresh {
    let sizes = lowers.iter().map(|lower| lower.gate.geometry().size);
    let count = sizes.min().expect("a device") / each;
    let ranges = (0..count).rev().flat_map(|number| {
        lowers.iter().map(move |lower| Segment { lower: lower.gate.clone(), offset: number * each, len: each })
    });
    let gate = joined(ranges.collect()).expect("they fit");
    let keep = lowers.into_iter().flat_map(|lower| lower.keep);
    Fresh { gate, keep: keep.collect() }
}

/// A device that begins with the bytes from `at` on and ends with those before.
///
/// # Panics
/// Where it has no block that ends there.
#[must_use]
pub fn swapped(lower: Fresh, at: u64) -> Fresh {
    let segment = |offset, len| Segment { lower: lower.gate.clone(), offset, len };
    let left = lower.gate.geometry().size - at;
    Fresh { gate: joined(vec![segment(at, left), segment(0, at)]).expect("they fit"), keep: lower.keep }
}

/// All of a device but its first `before` and its last `behind` bytes.
///
/// # Panics
/// Where that is no whole number of blocks.
#[must_use]
pub fn sliced(lower: Fresh, before: u64, behind: u64) -> Fresh {
    let len = lower.gate.geometry().size - before - behind;
    let segment = Segment { lower: lower.gate, offset: before, len };
    Fresh { gate: joined(vec![segment]).expect("it fits"), keep: lower.keep }
}

/// Two encrypted ranges of one device, which meet at byte `at` of the clear disk, each under a key of its
/// own. On the device the second comes first.
///
/// # Panics
/// Where they do not fit.
#[must_use]
pub fn two_keys(lower: Fresh, at: u64, dispatch: Dispatch) -> Fresh {
    let layouts = [Some(&AES_512), Some(&AES_512_SECOND)];
    in_ranges(lower, &[at], &layouts, dispatch)
}

/// Ranges of one device, each under a key of its own or in the clear; on the device the last comes first.
/// They meet at `borders` of the clear disk.
///
/// # Panics
/// Where they do not fit.
#[must_use]
pub fn in_ranges(lower: Fresh, borders: &[u64], layouts: &[Option<&Layout>], dispatch: Dispatch) -> Fresh {
    let first = AES_512.start;
    let size = lower.gate.geometry().size - first;
    let starts = std::iter::once(0).chain(borders.iter().copied());
    let ends = borders.iter().copied().chain([size]);
    let (mut segments, mut ranges) = (Vec::new(), Vec::new());
    for ((start, end), layout) in starts.zip(ends).zip(layouts) {
        let len = end - start;
        segments.push(Segment { lower: lower.gate.clone(), offset: first + size - end, len });
        let cipher = layout.map(cipher);
        ranges.push(CipherRange { len, cipher });
    }
    let joined = joined(segments).expect("they fit");
    let device = CryptDevice::of_ranges(joined, ranges, crypt_options(0, dispatch));
    Fresh { gate: Gate::new(device.expect("they fit")), keep: lower.keep }
}

fn stacked(lower: Fresh, layout: &Layout, dispatch: Dispatch, change: impl FnOnce(&mut CryptOptions)) -> Fresh {
    let mut options = crypt_options(layout.start, dispatch);
    change(&mut options);
    let device = CryptDevice::new(lower.gate, cipher(layout), options);
    Fresh { gate: Gate::new(device.expect("the layout fits")), keep: lower.keep }
}

fn crypt_options(start: u64, dispatch: Dispatch) -> CryptOptions {
    static HELPERS: LazyLock<HelperThreads> = LazyLock::new(|| HelperThreads::always(2).expect("two threads"));
    CryptOptions {
        start,
        size: None,
        allow_discards: true,
        dispatch,
        helpers: (dispatch.read == DispatchMode::Auto).then(|| HELPERS.clone()),
        ..CryptOptions::default()
    }
}

/// The cipher of a layout, with a fixed key.
///
/// # Panics
/// Where there is no such cipher.
#[must_use]
pub fn cipher(layout: &Layout) -> SectorCipher {
    let key: Vec<u8> = (0..layout.key_bytes as u64).map(|index| noise(index).to_le_bytes()[0]).collect();
    let options =
        SectorOptions { sector_size: layout.sector_size, iv_offset: layout.iv_offset, iv_large_sectors: false };
    let spec = CipherSpec::parse(layout.cipher).expect("a cipher word");
    SectorCipher::new(&spec, &key, options).expect("a cipher")
}

/// A sparse file of [`SIZE`] bytes in a folder of its own. Not in `/tmp`, which may be in memory
/// and refuse direct I/O, but beside the test program.
///
/// # Panics
/// Where it can not be made.
#[must_use]
pub fn image_file() -> (PathBuf, TempDir) {
    let program = std::env::current_exe().expect("a test has a program");
    image_file_in(program.parent().expect("a program is in a folder"))
}

fn image_file_in(folder: &std::path::Path) -> (PathBuf, TempDir) {
    let folder = TempDir::new_in(folder).expect("a temporary folder");
    let path = folder.path().join("image");
    let file = std::fs::File::create(&path).expect("a new file");
    file.set_len(SIZE).expect("a sparse file");
    (path, folder)
}

fn file(granularity: u32, direct: DirectMode) -> Result<Fresh, OpenError> {
    file_at(image_file(), granularity, direct)
}

fn file_at((path, folder): (PathBuf, TempDir), granularity: u32, direct: DirectMode) -> Result<Fresh, OpenError> {
    let device: FileDevice = Image::open(&path, false)?.into_device(granularity, direct)?;
    assert_eq!(device.is_direct(), direct == DirectMode::On);
    Ok(Fresh { gate: Gate::new(device), keep: vec![Box::new(folder)] })
}

fn direct_or_skip(granularity: u32) -> Option<Fresh> {
    match file(granularity, DirectMode::On) {
        Ok(fresh) => Some(fresh),
        Err(OpenError::Geometry(why)) => {
            crate::peer::skip_everywhere(&why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}
