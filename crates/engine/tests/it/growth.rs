//! Files that grow while they are used: what is new is reached once somebody has looked, and never more than there is.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion};
use cryptline_engine::{BackendChoice, Fault, Gate};
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096, CBC_4096, Layout, SIZE};
use cryptline_testkit::suite::{Fresh, fill};
use tempfile::TempDir;

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Syscalls];
const MORE: u64 = 1 << 20;

/// A file of [`SIZE`] bytes, and a device that grows with it.
struct Growing {
    file: File,
    gate: Gate,
    folder: TempDir,
}

impl Growing {
    fn new(direct: DirectMode) -> Self {
        let (path, folder) = devices::image_file();
        // Not alone: it is opened once more at the end.
        let image = Image::open_shared(&path, false).expect("an image");
        let device = image.into_device(512, direct).expect("a device");
        Self {
            file: File::options().write(true).open(&path).expect("its file"),
            gate: Gate::new(device.growing()),
            folder,
        }
    }

    fn resize(&self, size: u64) {
        self.file.set_len(size).expect("another size");
    }

    /// The device below, to lay others over it.
    fn lower(&self) -> Fresh {
        Fresh::new(self.gate.clone())
    }

    /// The same file, as who opens it now has it.
    fn opened_anew(&self) -> Gate {
        let path = self.folder.path().join("image");
        let image = Image::open_shared(&path, true).expect("an image");
        let device = image.into_device(512, DirectMode::Off);
        Gate::new(device.expect("a device"))
    }
}

fn open(gate: &Gate, backend: BackendChoice) -> Blocking {
    Blocking::new(gate, backend).expect("a queue")
}

fn data(len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    fill(&mut data, 0, seed);
    data
}

#[test]
fn queue_that_was_open_before_reaches_what_is_new_once_somebody_looks() {
    for backend in BACKENDS {
        for direct in [DirectMode::Auto, DirectMode::Off] {
            let growing = Growing::new(direct);
            let mut queue = open(&growing.gate, backend);
            let (written, mut read) = (data(8192, 1), vec![0; 8192]);
            let across = SIZE - 4096;
            let refused = Err(Fault::OutOfRange);
            assert_eq!(queue.write_at(across, &written, false), refused);
            growing.resize(SIZE + MORE + 511);
            assert_eq!(queue.write_at(across, &written, false), refused);
            assert_eq!(queue.read_at(SIZE, &mut read), refused);
            assert_eq!(growing.gate.extent(SIZE, 512), Err(Fault::OutOfRange));
            assert_eq!(growing.gate.grow(), SIZE + MORE, "in whole blocks");
            assert_eq!(growing.gate.size(), SIZE + MORE);
            assert_eq!(queue.write_at(across, &written, true), Ok(()));
            assert_eq!(queue.read_at(across, &mut read), Ok(()));
            assert!(read == written);
            assert!(growing.gate.extent(SIZE, MORE).expect("inside").len > 0);
            assert_eq!(queue.write_at(SIZE + MORE - 4096, &written, false), refused);
            assert_eq!(queue.discard(SIZE, MORE), Ok(()));
            assert_eq!(queue.read_at(SIZE, &mut read), Ok(()));
            assert!(read.iter().all(|byte| *byte == 0));
            assert_eq!(queue.flush(), Ok(()));
        }
    }
}

#[test]
fn size_that_was_announced_is_never_taken_back() {
    let growing = Growing::new(DirectMode::Off);
    let mut queue = open(&growing.gate, BackendChoice::Auto);
    growing.resize(SIZE + MORE);
    growing.gate.grow();
    growing.resize(SIZE);
    assert_eq!(growing.gate.grow(), SIZE + MORE);
    let mut read = [0; 4096];
    assert_eq!(queue.read_at(0, &mut read), Ok(()), "that is still there");
    assert_eq!(queue.flush(), Err(Fault::Truncated));
    assert_eq!(queue.read_at(SIZE, &mut read), Err(Fault::Truncated));
}

#[test]
fn file_that_grew_and_shrank_unseen_is_as_it_was() {
    let growing = Growing::new(DirectMode::Off);
    let mut queue = open(&growing.gate, BackendChoice::Auto);
    growing.resize(SIZE + MORE);
    growing.resize(SIZE);
    assert_eq!(growing.gate.grow(), SIZE);
    assert_eq!(queue.flush(), Ok(()));
}

#[test]
fn device_of_a_fixed_size_does_not_grow() {
    let growing = Growing::new(DirectMode::Off);
    let fixed = CryptDevice::new(
        growing.gate.clone(),
        devices::cipher(&AES_512),
        CryptOptions { start: AES_512.start, size: Some(SIZE - AES_512.start), ..CryptOptions::default() },
    );
    let fixed = Gate::new(fixed.expect("it fits"));
    let of_file = devices::crypt(devices::file_buffered().expect("a file"), &AES_512);
    let several = devices::two_keys(growing.lower(), 4096, devices::INLINE);
    growing.resize(SIZE + MORE);
    for gate in [&fixed, &of_file.gate, &several.gate] {
        let size = gate.size();
        assert_eq!(gate.grow(), size);
        let mut queue = open(gate, BackendChoice::Auto);
        assert_eq!(queue.read_at(size, &mut [0; 4096]), Err(Fault::OutOfRange));
    }
    assert_eq!(growing.gate.size(), SIZE, "nobody has asked for more");
}

/// A stack over a file that grows, and what a new one over the larger file finds in it.
fn grows(layout: &Layout, stack: impl Fn(Fresh) -> Fresh) {
    for backend in BACKENDS {
        let growing = Growing::new(DirectMode::Auto);
        let clear = stack(growing.lower());
        let old = clear.gate.size();
        let mut queue = open(&clear.gate, backend);
        growing.resize(SIZE + MORE + 7 * 512);
        let left = SIZE + MORE + 7 * 512 - layout.start;
        let new = left - left % u64::from(layout.sector_size);
        assert_eq!(clear.gate.grow(), new, "in whole cipher sectors");
        // Across the old end, in small pieces and in one that is worth sharing; then up to the new end.
        let (mut at, mut seed) = (old - 64 * 1024, 0);
        let unit = clear.gate.geometry().logical_block as usize;
        for len in [unit, 4096, 16 * 1024, 512 * 1024, unit, 100 * 1024] {
            seed += 1;
            queue.write_at(at, &data(len, seed), false).expect("inside");
            at += len as u64;
        }
        let last = data(8192, 99);
        queue.write_at(new - 8192, &last, true).expect("inside");
        assert_eq!(queue.write_at(new - 4096, &last, false), Err(Fault::OutOfRange));
        let len = usize::try_from(new - old).expect("small");
        let mut found = vec![0; len];
        queue.read_at(old, &mut found).expect("inside");
        queue.flush().expect("flushed");
        let extent = clear.gate.extent(old, new - old).expect("inside");
        assert!(extent.len > 0 && extent.len <= new - old);
        let anew = devices::crypt(Fresh::new(growing.opened_anew()), layout);
        assert_eq!(anew.gate.size(), new);
        let mut expected = vec![0; len];
        let mut reader = open(&anew.gate, backend);
        reader.read_at(old, &mut expected).expect("inside");
        assert!(found == expected);
        assert!(expected.ends_with(&last));
    }
}

#[test]
fn encrypted_disk_without_a_size_grows_whoever_runs_its_cipher() {
    for dispatch in [devices::INLINE, devices::QUEUE, devices::AUTO] {
        for layout in [&AES_512, &AES_4096] {
            grows(layout, |lower| devices::dispatched(lower, layout, dispatch));
        }
    }
}

#[test]
fn disk_in_smaller_blocks_than_its_cipher_sectors_grows() {
    grows(&CBC_4096, |lower| {
        let exclusion = Exclusion::Shared;
        devices::in_blocks(lower, &CBC_4096, 512, exclusion, devices::INLINE)
    });
}

#[test]
fn requests_of_several_queues_meet_a_disk_that_grows_under_them() {
    const STEP: u64 = 64 * 1024;
    let growing = Growing::new(DirectMode::Off);
    let clear = devices::crypt(growing.lower(), &AES_512);
    let (gate, is_over) = (&clear.gate, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for lane in 0..3_u64 {
            scope.spawn(move || {
                let mut queue = open(gate, BackendChoice::Auto);
                let mut read = vec![0; 4096];
                let mut round = lane;
                loop {
                    let is_last = is_over.load(Ordering::Acquire);
                    let size = gate.size();
                    // A place of this lane's own, always the last of them.
                    let at = size - STEP + lane * 4096;
                    round += 3;
                    let written = data(4096, round);
                    queue.write_at(at, &written, false).expect("inside");
                    queue.read_at(at, &mut read).expect("inside");
                    assert!(read == written);
                    assert_eq!(queue.read_at(size + 100 * STEP, &mut read), Err(Fault::OutOfRange));
                    if is_last {
                        return queue.flush().expect("flushed");
                    }
                }
            });
        }
        for step in 1..=50 {
            growing.resize(SIZE + step * STEP);
            assert_eq!(gate.grow(), SIZE - AES_512.start + step * STEP);
        }
        is_over.store(true, Ordering::Release);
    });
}
