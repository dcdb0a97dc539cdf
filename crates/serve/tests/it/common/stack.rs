//! Stacks to serve.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cryptline_engine::base::{DirectMode, FileDevice, Image, RamDevice};
use cryptline_engine::dispatch::{Dispatch, DispatchMode};
use cryptline_engine::{Gate, Geometry, Op, Request};
use cryptline_testkit::scripted::{answering, geometry};
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{self, Layout};
use tempfile::TempDir;

/// AES-256-XTS in 512-byte sectors.
pub const AES_512: Layout = devices::AES_512;
/// AES-128-XTS in 4096-byte sectors.
pub const AES_4096: Layout = devices::AES_4096;
/// The cipher that encrypts nothing.
pub const NULL: Layout = devices::NULL;

/// Everybody who can run the cipher; helpers come to everything.
pub const DISPATCHES: [Dispatch; 4] = [INLINE, devices::QUEUE, devices::QUEUE_FLAGS, devices::AUTO];

const INLINE: Dispatch = Dispatch { read: DispatchMode::Inline, write: DispatchMode::Inline, ..devices::QUEUE };

/// A disk in memory.
pub fn ram(size: u64) -> Fresh {
    Fresh::new(Gate::new(RamDevice::new(size).expect("memory")))
}

/// A sparse file, through the page cache or past it.
pub fn file(size: u64, direct: DirectMode) -> Fresh {
    file_at(size, direct, false).0
}

/// The same, for reading only.
pub fn file_read_only(size: u64) -> Fresh {
    file_at(size, DirectMode::Off, true).0
}

/// The same, and its path.
pub fn file_at(size: u64, direct: DirectMode, read_only: bool) -> (Fresh, PathBuf) {
    made(size, read_only, direct, Gate::new)
}

/// A sparse file through the page cache that the device grows with, and its path.
pub fn growing_file(size: u64) -> (Fresh, PathBuf) {
    made(size, false, DirectMode::Off, |device| Gate::new(device.growing()))
}

/// A device over a sparse file of `size` bytes. Beside the test program: `/tmp` may be in memory.
fn made(size: u64, read_only: bool, direct: DirectMode, gate: fn(FileDevice) -> Gate) -> (Fresh, PathBuf) {
    let program = std::env::current_exe().expect("a test has a program");
    let folder = program.parent().unwrap_or(Path::new("."));
    let folder = TempDir::new_in(folder).expect("a temporary folder");
    let path = folder.path().join("image");
    let file = std::fs::File::create(&path).expect("a new file");
    file.set_len(size).expect("a sparse file");
    let image = Image::open(&path, read_only).expect("an image");
    let device = image.into_device(4096, direct).expect("a device");
    (Fresh { gate: gate(device), keep: vec![Box::new(folder)] }, path)
}

/// The clear disk over AES over memory, `size` bytes with what the layout leaves out.
pub fn crypt_over_ram(size: u64) -> Fresh {
    devices::crypt(ram(size), &AES_512)
}

/// The clear disk over AES over memory, with the cipher run as `dispatch` says.
pub fn dispatched_over_ram(size: u64, dispatch: Dispatch) -> Fresh {
    devices::dispatched(ram(size), &AES_512, dispatch)
}

/// The same over a file.
pub fn dispatched_over_file(size: u64, dispatch: Dispatch) -> Fresh {
    devices::dispatched(file(size, DirectMode::Auto), &AES_4096, dispatch)
}

/// The clear disk over AES over a file.
pub fn crypt_over_file(size: u64) -> Fresh {
    devices::crypt(file(size, DirectMode::Auto), &AES_4096)
}

/// AES over a faulty disk in memory, and over a faulty file: 3 MiB.
pub fn faulty(rules: &[&str], dispatch: Dispatch) -> [Fresh; 2] {
    [ram(3 << 20), file(3 << 20, DirectMode::Auto)]
        .map(|base| devices::dispatched(devices::faulty(base, rules), &AES_4096, dispatch))
}

/// A byte of the clear disk as a byte of the faulty disk below.
pub fn below(offset: u64) -> u64 {
    AES_4096.start + offset
}

/// A disk with a volatile cache: a write that is neither durable nor flushed is lost when the
/// power goes.
#[derive(Clone)]
pub struct VolatileDisk(Arc<Mutex<Contents>>);

struct Contents {
    cached: Vec<u8>,
    stable: Vec<u8>,
    flushes: u64,
}

impl VolatileDisk {
    /// A disk of `size` zeros.
    pub fn new(size: usize) -> Self {
        Self(Arc::new(Mutex::new(Contents { cached: vec![0; size], stable: vec![0; size], flushes: 0 })))
    }

    /// Returns the disk, ready to be served.
    pub fn stack(&self) -> Fresh {
        let (disk, size) = (self.clone(), self.stable().len() as u64);
        let geometry = Geometry { cache: false, answers_at_once: true, ..geometry(size) };
        Fresh::new(answering(geometry, move |request| {
            disk.carry_out(request);
            Some(Ok(()))
        }))
    }

    fn carry_out(&self, request: &mut Request) {
        let start = usize::try_from(request.offset).expect("inside");
        let len = usize::try_from(request.len).expect("inside");
        let range = start..start + len;
        let mut guard = self.0.lock().expect("no panic");
        let contents = &mut *guard;
        match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => buffer.copy_from_slice(&contents.cached[range]),
            (op, Some(data)) => {
                contents.cached[range.clone()].copy_from_slice(data);
                if op.is_sync() {
                    contents.stable[range].copy_from_slice(data);
                }
            }
            (Op::Flush, _) => {
                contents.flushes += 1;
                contents.stable.copy_from_slice(&contents.cached);
            }
            _ => contents.cached[range].fill(0),
        }
    }

    /// Returns what would be left without power.
    pub fn stable(&self) -> Vec<u8> {
        self.0.lock().expect("no panic").stable.clone()
    }

    /// How many flushes have reached it.
    pub fn flushes(&self) -> u64 {
        self.0.lock().expect("no panic").flushes
    }
}
