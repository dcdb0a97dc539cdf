//! The `file` base on the block devices of a real kernel: virtio-blk, and null_blk in blocks of 512 and 4096.
//!
//! ```text
//! in the guest, this program:  acts ─┬─► the `file` base ─► device ─► pread, by the cache and past it ─┐
//!                                    └─► bytes in memory ──────────────────────────────────────────────┴─ equal
//!
//! back on the host:  the virtio disk's image ─ equal to what the last acts leave
//! ```
//!
//! null_blk can discard, but cannot write zeros by a command: a kernel drops the cached pages before it
//! finds that out.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Extent, Fault, Gate};
use cryptline_sys::Buffer;
use cryptline_testkit::oracle::{Oracle, Outcomes};
use rustix::fs::OFlags;

use super::Check;
use super::bench::Bench;

const KIB: u64 = 1024;
/// Bytes of each device, and of its front part that the acts change.
const SIZE: u64 = 1 << 20;
const PART: u64 = 576 * KIB;
const NULL_BLK: &str = "\
modprobe null_blk nr_devices=0
[ -d /sys/kernel/config/nullb ] || mount -t configfs none /sys/kernel/config
for block in 512 4096; do
    mkdir /sys/kernel/config/nullb/null$block
    cd /sys/kernel/config/nullb/null$block
    echo 1 >size; echo $block >blocksize; echo 1 >memory_backed; echo 1 >discard
    echo 1 >power
    [ -b /dev/null$block ]
done
cd /tmp
";
const REMOVE: &str = "rmdir /sys/kernel/config/nullb/null512 /sys/kernel/config/nullb/null4096";
/// Where the part that runs in the guest finds its devices.
const DEVICES: &str = "CRYPTLINE_BLOCK_DEVICES";

const NAME: &str = "block devices keep what the file base wrote";

pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let size = usize::try_from(SIZE).unwrap();
    let disks = [512, 4096].map(|block| (bench.image(&format!("blocks of {block}"), size), block));
    let script = format!(
        "{NULL_BLK}
        export {DEVICES}=\"$small $large /dev/null512 /dev/null4096\"
        in_the_guest --ignored --exact --nocapture kernel_oracle::block::guest_block_devices_keep_what_was_written
        {REMOVE}
        echo agreed"
    );
    oracle
        .case(NAME)
        .disk_with_block_size("small", &disks[0].0, disks[0].1)
        .disk_with_block_size("large", &disks[1].0, disks[1].1)
        .script(&script)
        .timeout(Duration::from_secs(300));
    vec![Check::new(NAME, move |outcomes| verify(outcomes, &disks))]
}

fn verify(outcomes: &Outcomes, disks: &[(PathBuf, u32)]) {
    let said = outcomes.passed(NAME);
    assert!(said.contains("test result: ok. 1 passed"), "{said}");
    assert!(said.ends_with("agreed"), "{said}");
    for (image, block) in disks {
        let expected = said.lines().find_map(|line| {
            let line = line.strip_prefix(&format!("blocks of {block}: "))?;
            line.parse::<u64>().ok()
        });
        let found = std::fs::read(image).unwrap();
        assert_eq!(Some(sum(&found)), expected, "blocks of {block}: {said}");
    }
}

/// Tells contents apart.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[test]
#[ignore = "runs in the guest only"]
fn guest_block_devices_keep_what_was_written() {
    let devices = std::env::var(DEVICES).expect("a guest with block devices");
    let mut round = 0;
    for path in devices.split_whitespace() {
        let path = std::fs::canonicalize(path).unwrap();
        let mut disk = Disk::new(&path);
        let mut ways = vec![(disk.block, DirectMode::On), (disk.block, DirectMode::Off)];
        if disk.block > 512 {
            // Sectors smaller than the device's blocks: the page cache makes blocks of them.
            ways.push((512, DirectMode::Auto));
        }
        for (unit, direct) in ways {
            for backend in [BackendChoice::IoUring, BackendChoice::Syscalls] {
                round += 1;
                println!("{} {unit} {direct:?} {backend:?}", path.display());
                disk.keeps_what_was_written(round, unit, direct, backend);
            }
        }
        disk.takes_no_zeroing_under_somebody_elses_claim(round + 100);
        if disk.punches {
            println!("blocks of {}: {}", disk.block, sum(&disk.bytes));
        }
        assert_eq!(disk.punches, path.to_str().unwrap().starts_with("/dev/vd"));
    }
}

/// A device and the bytes that should be on it.
struct Disk<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
    /// Bytes of its logical block.
    block: u32,
    /// Set if it zeroes by a command.
    punches: bool,
}

impl<'a> Disk<'a> {
    fn new(path: &'a Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap();
        let limit = |of: &str| -> u64 {
            let path = format!("/sys/block/{name}/queue/{of}");
            let text = std::fs::read_to_string(path).unwrap();
            text.trim().parse().unwrap()
        };
        assert!(limit("discard_max_bytes") > 0);
        Self {
            path,
            bytes: vec![0; usize::try_from(SIZE).unwrap()],
            block: u32::try_from(limit("logical_block_size")).unwrap(),
            punches: limit("write_zeroes_max_bytes") > 0,
        }
    }

    fn keeps_what_was_written(&mut self, round: u64, unit: u32, direct: DirectMode, backend: BackendChoice) {
        let image = Image::open(self.path, false).unwrap();
        let device = image.into_device(unit, direct).unwrap();
        assert_eq!(device.is_direct(), direct == DirectMode::On);
        let gate = Gate::new(device);
        let geometry = *gate.geometry();
        assert_eq!(geometry.size, SIZE);
        assert!(unit.is_multiple_of(geometry.logical_block));
        assert!(geometry.preferred_block >= self.block && !geometry.read_only);
        assert!(geometry.write_zeroes && geometry.zones.is_none());
        self.is_kept_from_others();
        let mut disk = Blocking::new(&gate, backend).unwrap();

        self.write(&mut disk, round, 0, PART, false);
        disk.flush().unwrap();
        // Through the page cache, what follows finds pages that are still to be written.
        self.write(&mut disk, round + 1, 64 * KIB, 128 * KIB, false);
        self.zeroed(disk.discard(96 * KIB, 64 * KIB), 96 * KIB, 64 * KIB, self.punches);
        self.write(&mut disk, round + 2, 256 * KIB, 128 * KIB, false);
        let filled = disk.write_zeroes(288 * KIB, 32 * KIB, false);
        self.zeroed(filled, 288 * KIB, 32 * KIB, true);
        let punched = disk.write_zeroes(336 * KIB, 32 * KIB, true);
        self.zeroed(punched, 336 * KIB, 32 * KIB, self.punches);
        self.is_read_back(&mut disk);

        // One unit inside a page, of which the rest is still to be written.
        let small = u64::from(unit);
        self.write(&mut disk, round + 3, 512 * KIB, 16 * KIB, false);
        self.write(&mut disk, round + 4, 512 * KIB + small, small, true);
        let whole = unit >= self.block;
        let at = 516 * KIB + small;
        self.zeroed(disk.discard(at, small), at, small, self.punches && whole);
        let at = 520 * KIB + small;
        self.zeroed(disk.write_zeroes(at, small, false), at, small, whole);
        self.write(&mut disk, round + 5, SIZE - small, small, true);

        let out = Err(Fault::OutOfRange);
        assert_eq!(disk.write_at(SIZE, &vec![1; unit as usize], false), out);
        assert_eq!(disk.read_at(SIZE - small, &mut vec![0; 2 * unit as usize]), out);
        assert_eq!(disk.write_zeroes(SIZE - small, 2 * small, true), out);
        let all = Extent { len: SIZE, hole: false, zero: false };
        assert_eq!(gate.extent(0, SIZE), Ok(all));
        assert!(!gate.is_latched(), "nothing was lost");
        self.is_read_back(&mut disk);
        disk.flush().unwrap();
        drop((disk, gate));
        self.is_on_the_device();
    }

    /// Somebody else has claimed the device and lets us in: what is still to be written must not be dropped.
    fn takes_no_zeroing_under_somebody_elses_claim(&mut self, round: u64) {
        let claim = self.claim().unwrap();
        let refused = Image::open(self.path, false).unwrap_err();
        assert!(refused.is_busy(), "not alone on a claimed device");
        let image = Image::open_shared(self.path, false).unwrap();
        let gate = Gate::new(image.into_device(self.block, DirectMode::Off).unwrap());
        let mut disk = Blocking::new(&gate, BackendChoice::Auto).unwrap();
        self.write(&mut disk, round, 0, PART, false);
        disk.flush().unwrap();
        self.write(&mut disk, round + 1, 64 * KIB, 256 * KIB, false);
        // Refused, unless the kernel has written the pages meanwhile.
        for (at, result) in
            [(96 * KIB, disk.discard(96 * KIB, 32 * KIB)), (160 * KIB, disk.write_zeroes(160 * KIB, 32 * KIB, false))]
        {
            self.zeroed(result, at, 32 * KIB, result.is_ok());
        }
        assert!(!gate.is_latched(), "nothing was lost");
        self.is_read_back(&mut disk);
        disk.flush().unwrap();
        drop((disk, gate, claim));
        self.is_on_the_device();
    }

    fn write(&mut self, disk: &mut Blocking, round: u64, at: u64, len: u64, durable: bool) {
        let range = range(at, len);
        // All units are of 512 bytes or more.
        for (place, word) in (at / 8..).zip(self.bytes[range.clone()].chunks_exact_mut(8)) {
            // Every round has other bytes everywhere, and none of them is zero.
            let mixed = (place + (round << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word.copy_from_slice(&(mixed | 0x0101_0101_0101_0101).to_be_bytes());
        }
        disk.write_at(at, &self.bytes[range], durable).unwrap();
    }

    /// Notes zeros where that was done, and that nothing has changed where it was refused.
    #[track_caller]
    fn zeroed(&mut self, result: Result<(), Fault>, at: u64, len: u64, expected: bool) {
        if expected {
            assert_eq!(result, Ok(()));
            self.bytes[range(at, len)].fill(0);
        } else {
            assert_eq!(result, Err(Fault::NotSupported));
        }
    }

    #[track_caller]
    fn is_read_back(&self, disk: &mut Blocking) {
        let mut found = vec![0; self.bytes.len()];
        disk.read_at(0, &mut found).unwrap();
        self.compare(&found, "the base");
    }

    /// By the page cache and past it.
    #[track_caller]
    fn is_on_the_device(&self) {
        for direct in [OFlags::empty(), OFlags::DIRECT] {
            let file = self.open(direct).unwrap();
            let mut found = Buffer::alloc(self.bytes.len()).unwrap();
            assert_eq!(rustix::io::pread(&file, &mut found[..], 0), Ok(self.bytes.len()));
            self.compare(&found, "pread");
        }
    }

    #[track_caller]
    fn compare(&self, found: &[u8], reader: &str) {
        // Each byte by itself would take an emulated processor seconds.
        let differs = || self.bytes.iter().zip(found).position(|(a, b)| a != b);
        let differs = if self.bytes == found { None } else { differs() };
        assert_eq!(differs, None, "{reader} finds other bytes from here on");
    }

    /// While it is open: nobody else claims or locks it.
    fn is_kept_from_others(&self) {
        for read_only in [false, true] {
            let second = Image::open(self.path, read_only).unwrap_err();
            assert!(second.is_busy(), "{second}");
        }
        let shared = Image::open_shared(self.path, false).unwrap_err();
        assert!(shared.is_busy(), "{shared}");
        let refused = self.claim().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    }

    fn claim(&self) -> std::io::Result<File> {
        self.open(OFlags::EXCL)
    }

    fn open(&self, flags: OFlags) -> std::io::Result<File> {
        let mut options = File::options();
        options.custom_flags(flags.bits().cast_signed());
        options.read(true).open(self.path)
    }
}

fn range(at: u64, len: u64) -> std::ops::Range<usize> {
    let place = |at: u64| usize::try_from(at).unwrap();
    place(at)..place(at + len)
}
