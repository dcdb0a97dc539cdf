//! Blocks of a single byte, as a file has them.

use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::blocking::Blocking;
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions};
use cryptline_engine::{BackendChoice, Gate};
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096, CBC_4096, Layout};
use cryptline_testkit::suite::{Fresh, Watchdog, noise};
use std::time::Duration;

use super::pattern;

const SIZE: u64 = 1 << 20;
/// Bytes that belong to one writer, then to the next; no part of a sector.
const STRIPE: u64 = 7;
const WRITERS: u64 = 3;

fn in_bytes(lower: Fresh, layout: &Layout) -> Fresh {
    let clear = devices::crypt(lower, layout);
    let options =
        SubBlockOptions { logical_block: 1, sector: clear.gate.geometry().logical_block, exclusion: Exclusion::Shared };
    let gate = SubBlockDevice::new(clear.gate, options).expect("bytes");
    Fresh { gate: Gate::new(gate), keep: clear.keep }
}

/// Sectors of 512 and 4096 bytes, over memory and past the page cache.
fn stacks() -> Vec<Fresh> {
    let ram = || Fresh::new(Gate::new(cryptline_engine::base::RamDevice::new(2 * SIZE).unwrap()));
    let layouts = [&AES_512, &AES_4096, &CBC_4096];
    let over_ram = layouts.map(|layout| in_bytes(ram(), layout));
    let over_file = layouts.map(|layout| in_bytes(file(), layout));
    over_ram.into_iter().chain(over_file).collect()
}

/// A file past the page cache, where that can be.
fn file() -> Fresh {
    let beside = std::env::current_exe().expect("a program");
    let folder = tempfile::tempdir_in(beside.parent().expect("a folder")).expect("a folder");
    let path = folder.path().join("image");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(2 * SIZE).expect("a sparse file");
    let image = Image::open(&path, false).expect("an image");
    let device = image.into_device(4096, DirectMode::Auto).expect("a device");
    Fresh { gate: Gate::new(device), keep: vec![Box::new(folder)] }
}

fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut count = seed << 32;
    move || {
        count += 1;
        noise(count)
    }
}

#[test]
fn ranges_of_any_bytes_agree_with_the_model() {
    let _watchdog = Watchdog::start(Duration::from_secs(180));
    for stack in stacks() {
        for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
            let mut disk = Blocking::new(&stack.gate, backend).expect("a queue");
            let size = stack.gate.geometry().size;
            let whole = usize::try_from(size).expect("small");
            let mut model = vec![0; whole];
            disk.write_at(0, &model, false).expect("zeros");
            let mut random = numbers(3);
            for seed in 0..300 {
                let offset = random() % size;
                let most = [3, 600, 9000, 300_000][usize::try_from(seed % 4).expect("small")];
                let len = (1 + random() % most).min(size - offset);
                let data = pattern(offset, len, seed);
                let durable = seed % 16 == 0;
                disk.write_at(offset, &data, durable).expect("written");
                model[range(offset, len)].copy_from_slice(&data);
                let from = offset.saturating_sub(random() % 700);
                let len = (len + random() % 1500).min(size - from);
                let mut read = vec![0; range(0, len).len()];
                disk.read_at(from, &mut read).expect("read");
                assert!(read == model[range(from, len)], "{len} bytes at {from}");
            }
            let mut read = vec![0; whole];
            disk.read_at(0, &mut read).expect("read");
            assert!(read == model, "and nothing else");
        }
    }
}

fn range(offset: u64, len: u64) -> std::ops::Range<usize> {
    let fits = |at: u64| usize::try_from(at).expect("small");
    fits(offset)..fits(offset + len)
}

/// Whose stripe the byte is in.
fn owner(at: u64) -> u64 {
    at / STRIPE % WRITERS
}

#[test]
fn writers_side_by_side_in_one_sector_lose_no_byte() {
    const AREA: u64 = 3 * 4096;
    let zeros = vec![0; range(0, AREA).len()];
    let _watchdog = Watchdog::start(Duration::from_secs(180));
    for stack in stacks() {
        let gate = &stack.gate;
        let zeros = &zeros;
        let write_own = &|writer: u64| {
            let mut disk = Blocking::new(gate, BackendChoice::Auto).expect("a queue");
            let mut last = zeros.clone();
            let mut random = numbers(writer);
            let stripes: Vec<u64> =
                (0..AREA / STRIPE).map(|stripe| stripe * STRIPE).filter(|at| owner(*at) == writer).collect();
            for seed in 0..600 {
                let index = usize::try_from(random() % stripes.len() as u64).expect("small");
                let at = stripes[index];
                let skip = random() % STRIPE;
                let data = pattern(at + skip, STRIPE - skip, seed * WRITERS + writer);
                disk.write_at(at + skip, &data, false).expect("written");
                last[range(at + skip, STRIPE - skip)].copy_from_slice(&data);
                // What is written is there at once, whoever writes beside it.
                let mut read = vec![0; data.len()];
                disk.read_at(at + skip, &mut read).expect("read");
                assert!(read == data);
            }
            last
        };
        let mut disk = Blocking::new(gate, BackendChoice::Auto).expect("a queue");
        disk.write_at(0, zeros, false).expect("zeros");
        let last: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write_own(writer))).collect();
            let joined = threads.into_iter().map(|it| it.join().expect("no panic"));
            joined.collect()
        });
        let mut read = zeros.clone();
        disk.read_at(0, &mut read).expect("read");
        for at in 0..AREA {
            let writer = range(owner(at), 1).start;
            let place = range(at, 1);
            assert_eq!(read[place.clone()], last[writer][place], "byte {at}");
        }
    }
}
