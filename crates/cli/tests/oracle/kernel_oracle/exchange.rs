//! One volume, two programs: each reads what the other wrote.

use std::path::{Path, PathBuf};

use cryptline_testkit::oracle::{Oracle, Outcomes, pattern};

use super::Check;
use super::bench::{Bench, Opening, Patch, assert_same, sha256};

/// Clear disk of a volume, unless its case needs another: 2048 sectors.
pub const CLEAR_BYTES: usize = 1 << 20;
const SECTOR: usize = 512;
/// First sector and number of sectors that the guest looks at apart from the whole.
const LOOKED_AT: (usize, usize) = (7, 33);

/// A volume that exists already, and how each side opens it.
pub struct Volume<'a> {
    /// The case's name, which must be new.
    pub name: String,
    /// `$disk` in the guest.
    pub image: PathBuf,
    /// Other disks there, by their variables.
    pub more: Vec<(&'a str, PathBuf)>,
    /// How cryptline opens it.
    pub ours: Opening,
    /// How the guest maps it to `v`; `$key` is the passphrase's file.
    pub theirs: String,
    /// Lines of its table.
    pub lines: usize,
    /// Bytes of the clear disk.
    pub length: usize,
    /// Set if cryptline writes first. Otherwise the volume does not exist before the guest made it.
    pub we_write: bool,
}

impl<'a> Volume<'a> {
    /// A volume of [`CLEAR_BYTES`] that cryptline writes first.
    pub fn new(name: impl Into<String>, image: &Path, ours: Opening, theirs: &str) -> Self {
        Self {
            name: name.into(),
            image: image.to_owned(),
            more: Vec::new(),
            ours,
            theirs: theirs.to_owned(),
            lines: 1,
            length: CLEAR_BYTES,
            we_write: true,
        }
    }

    /// Writes through cryptline now, asks the guest to read and to write, and compares afterwards.
    pub fn exchange(self, bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
        let mut model = vec![0; self.length];
        if self.we_write {
            let seed = seed(&self.name);
            model = pattern::bytes(seed, self.length);
            let patches = patches(self.length);
            bench.write(&self.ours, &model, &patches);
            for Patch { offset, length, byte } in patches {
                model[offset..][..length].fill(byte);
            }
        }
        self.ask_guest(bench, oracle);
        Check::new(self.name.clone(), move |outcomes| self.verify(bench, outcomes, model))
    }

    fn ask_guest(&self, bench: &Bench, oracle: &mut Oracle) {
        let case = oracle
            .case(&self.name)
            .disk("disk", &self.image)
            .read_only_disk("news", &bench.news)
            .file("key", std::fs::read(&bench.key).expect("the passphrase"));
        for (variable, image) in &self.more {
            case.disk(variable, image);
        }
        let (first, count) = LOOKED_AT;
        case.script(&self.theirs)
            .script("dmsetup table v")
            .script("dmsetup table --showkeys v")
            .script("blockdev --getsize64 /dev/mapper/v");
        if !self.we_write {
            case.script(&format!("dd if=/dev/zero of=/dev/mapper/v bs=512 count={} conv=fsync", self.length / SECTOR));
        }
        case.script("sha256sum < /dev/mapper/v")
            .script(&format!("dd if=/dev/mapper/v bs=512 skip={first} count={count} | sha256sum"));
        for (first, count) in guest_writes(self.length) {
            case.script(&format!(
                "dd if=$news of=/dev/mapper/v bs=512 skip={first} seek={first} count={count} conv=notrunc,fsync"
            ));
        }
    }

    fn verify(&self, bench: &Bench, outcomes: &Outcomes, mut model: Vec<u8>) {
        let said: Vec<&str> = outcomes.passed(&self.name).lines().collect();
        assert!(said.len() > 2 * self.lines, "too few lines: {said:?}");
        let (tables, said) = said.split_at(2 * self.lines);
        let (hidden, shown) = tables.split_at(self.lines);
        let [length, whole, part] = said[..] else {
            panic!("three lines after the tables, not {said:?}");
        };
        assert_eq!(length, self.length.to_string(), "size of the clear disk");
        let (first, count) = LOOKED_AT;
        let looked_at = &model[first * SECTOR..][..count * SECTOR];
        assert_eq!(sum(part), sha256(looked_at), "sectors that we wrote");
        assert_eq!(sum(whole), sha256(&model), "all that we wrote");

        let table = |more| anonymous(&bench.table(&self.ours, more));
        assert_eq!(table(&[]), anonymous(&hidden.join("\n")), "dmsetup table");
        assert_eq!(table(&["--show-keys"]), anonymous(&shown.join("\n")), "with the key");

        let news = std::fs::read(&bench.news).expect("what the guest wrote");
        for (first, count) in guest_writes(self.length) {
            let range = first * SECTOR..(first + count) * SECTOR;
            model[range.clone()].copy_from_slice(&news[range]);
        }
        assert_same(&bench.read(&self.ours), &model, "after the kernel's writes");
    }
}

/// Other bytes for every volume (FNV-1a of its name).
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Parts of cipher sectors, across their borders, and the last bytes of the disk.
fn patches(length: usize) -> [Patch; 4] {
    let patch = |offset, length, byte| Patch { offset, length, byte };
    [patch(300, 1000, 0xa1), patch(4095, 2, 0xb2), patch(65536 - 7, 5000, 0xc3), patch(length - 513, 513, 0xd4)]
}

/// First sectors and numbers of sectors that the guest overwrites.
fn guest_writes(length: usize) -> [(usize, usize); 3] {
    [(1, 3), (37, 1000), (length / SECTOR - 1, 1)]
}

/// The digits of `sha256sum`.
fn sum(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// Table lines without their devices, which are numbers in the guest and paths here.
pub fn anonymous(table: &str) -> String {
    let lines = table.lines().map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let device = if words.get(2) == Some(&"linear") { 3 } else { 6 };
        assert!(words.len() > device + 1, "a line without a device: {line:?}");
        words[device] = "DEVICE";
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}
