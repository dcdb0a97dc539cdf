//! A volume in a part of a target is the volume that it would be alone, and leaves the rest of the target alone.

use std::fs;
use std::path::Path;

use cryptline::{Create, ErrorKind, Open, Plain, Volume};

use crate::common::cheap;

const SIZE: u64 = 1 << 20;
const BYTES: usize = 1 << 20;
const BEFORE: usize = 192 << 10;
const BEHIND: usize = 64 << 10;
const PATTERN: u8 = 0x5c;

/// Small, quick and the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn plain(target: &str, cipher: &str, sector_size: u32) -> Volume {
    let plain = Plain { sector_size, ..Plain::new(cipher, 32) };
    let open = Open::new(target).plain(plain).key([7; 32]).discards(true);
    open.open().expect("a volume")
}

/// Random operations on two volumes at once, which must always agree with each other and with what is known.
fn same_operations(volumes: [&Volume; 2], seed: u64) {
    let mut random = Random(seed);
    let mut disks = volumes.map(|volume| volume.blocking().expect("a queue"));
    let blocks = volumes.map(|volume| u64::from(volume.info().logical_block));
    let block = blocks[0].max(blocks[1]);
    let blocks = volumes[0].info().size / block;
    assert_eq!(volumes[0].info().size, volumes[1].info().size);
    for _ in 0..400 {
        let at = random.below(blocks);
        let count = 1 + random.below((blocks - at).min(64));
        let (at, len) = (at * block, count * block);
        let fill = u8::try_from(random.below(256)).unwrap();
        let data: Vec<u8> = (0..len).map(|byte| fill.wrapping_add(byte.to_le_bytes()[0])).collect();
        let kind = random.below(6);
        let [one, other] = &mut disks;
        let both = [one, other].map(|disk| match kind {
            0..3 => disk.write_at(at, &data, kind == 0).map(|()| Vec::new()),
            3 => disk.discard(at, len).map(|()| Vec::new()),
            4 => disk.flush().map(|()| Vec::new()),
            _ => {
                let mut found = vec![0; data.len()];
                disk.read_at(at, &mut found).map(|()| found)
            }
        });
        assert_eq!(both[0], both[1], "operation {kind} at {at}, {len} bytes");
    }
    for disk in &mut disks {
        disk.flush().expect("a flush");
    }
}

#[test]
fn volume_in_a_slice_has_the_bytes_that_it_would_have_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (alone, within) = (folder.path().join("alone"), folder.path().join("within"));
    let ciphers = [("aes-xts-plain64", 512), ("aes-xts-plain64", 4096), ("aes-cbc-essiv:sha256", 4096)];
    for (seed, (cipher, sector)) in ciphers.into_iter().enumerate() {
        // Aligned to pages, to sectors, and as far as it goes.
        for before in [BEFORE, BEFORE + 512] {
            let mut start = vec![PATTERN; before];
            start.resize(before + BYTES, 0);
            start.resize(before + BYTES + BEHIND, PATTERN);
            fs::write(&within, start).unwrap();
            fs::write(&alone, vec![0; BYTES]).unwrap();
            let slice = format!("{}?offset={before}&length={SIZE}", within.display());
            {
                let volumes = [&slice[..], alone.to_str().unwrap()];
                let volumes = volumes.map(|target| plain(target, cipher, sector));
                same_operations([&volumes[0], &volumes[1]], 1 + seed as u64);
            }
            let found = fs::read(&within).unwrap();
            let (front, rest) = found.split_at(before);
            let (middle, behind) = rest.split_at(BYTES);
            assert!(front.iter().chain(behind).all(|&byte| byte == PATTERN));
            assert!(middle == fs::read(&alone).unwrap());
            assert!(middle.iter().any(|&byte| byte != 0));
        }
    }
}

fn make_in(target: &str) -> cryptline::Result<cryptline::Created> {
    Create::new(target).format(cheap()).passphrase("secret").create()
}

fn open(target: &str) -> cryptline::Result<Volume> {
    Open::new(target).passphrase("secret").open()
}

fn filled(path: &Path, len: usize) {
    fs::write(path, vec![0; len]).unwrap();
}

#[test]
fn luks_volume_made_in_a_slice_is_one_when_it_is_cut_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    filled(&whole, 40 << 20);
    let slice = format!("{}?offset=1M&length=20M", whole.display());
    assert_eq!(make_in(&slice).expect("a volume in the slice").data_size, 4 << 20);
    // It is there now.
    let again = make_in(&slice).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Busy, "{again}");
    let data: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let data = &data[..98_304];
    {
        let volume = open(&slice).expect("the volume");
        assert_eq!(volume.info().size, 4 << 20);
        assert_eq!(volume.info().source, slice);
        volume.blocking().unwrap().write_at(4096, data, true).unwrap();
    }
    let all = fs::read(&whole).unwrap();
    fs::write(&cut, &all[1 << 20..21 << 20]).unwrap();
    assert!(all[..1 << 20].iter().chain(&all[21 << 20..]).all(|&byte| byte == 0));
    let volume = open(cut.to_str().unwrap()).expect("the volume, cut out");
    let mut found = vec![0; data.len()];
    volume.blocking().unwrap().read_at(4096, &mut found).unwrap();
    assert!(found == data);
    // Its line in a table leads to the place in the whole file.
    let line = |target: &str| {
        let table = Open::new(target).passphrase("secret").table(true);
        table.expect("a line").line.to_string()
    };
    let (here, there) = (line(cut.to_str().unwrap()), line(&slice));
    let expected = here.replace("/cut 32768", "/whole 34816");
    assert_ne!(expected, here);
    assert_eq!(there, expected);
}

#[test]
fn nothing_beyond_the_slice_is_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    filled(&file, BYTES);
    let path = file.display();
    for (query, what) in [
        ("offset=1M", "it has 1048576 in all"),
        ("offset=512K&length=513K", "it has 1048576 in all"),
        ("offset=8E&length=512", "not a size"),
        ("offset=4096P&length=4096P", "it has 1048576 in all"),
        ("partition=1", "it has no partition table"),
    ] {
        let Err(error) = open(&format!("{path}?{query}")) else { panic!("{query}: opened") };
        assert!(error.to_string().contains(what), "{error}");
    }
    // A plain volume that is longer than the slice.
    let longer = Plain { start: 4096, size: Some(64 << 10), ..Plain::new("aes-xts-plain64", 32) };
    let target = format!("{path}?offset=128K&length=64K");
    let opened = Open::new(&target).plain(longer.clone()).key([7; 32]).open();
    let error = opened.err().expect("it would leave the slice");
    assert!(error.to_string().contains("61440 bytes are left"), "{error}");
    let fits = Plain { size: Some(60 << 10), ..longer };
    assert_eq!(Open::new(&target).plain(fits).key([7; 32]).open().expect("it fits").info().size, 60 << 10);
}

#[test]
fn slice_of_memory_and_of_zones_is_what_its_base_allows() {
    let memory = Open::new("ram:8M?offset=1M&length=2M").open().expect("memory");
    assert_eq!(memory.info().size, 2 << 20);
    let mut disk = memory.blocking().unwrap();
    disk.write_at(0, &[3; 4096], false).unwrap();
    let mut found = [0; 4096];
    disk.read_at(0, &mut found).unwrap();
    assert_eq!(found, [3; 4096]);
    let zoned = |query: &str| {
        let target = format!("zoned:ram:16M,zone-size=4M,granularity=4096?{query}");
        Open::new(target).open()
    };
    assert_eq!(zoned("offset=4M&length=8M").expect("two zones").info().size, 8 << 20);
    for query in ["offset=1M", "offset=4M&length=5M"] {
        let error = zoned(query).err().expect("no whole zones");
        assert!(error.to_string().contains("zone"), "{error}");
    }
}
