//! Volumes with large cipher sectors, used in blocks of 512 bytes: the kernel, which knows them in whole
//! sectors only, finds the same bytes, and we find its own.

use std::path::{Path, PathBuf};

use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::base::{DirectMode, Image};
use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};
use cryptline_engine::{BackendChoice, Gate, Request};
use cryptline_testkit::oracle::{Oracle, Outcomes, pattern};
use cryptline_testkit::suite::{Driver, Setup, noise};

use super::Check;
use super::bench::{Bench, assert_same, hex, sha256};

/// Bytes of the clear disk.
const CLEAR: usize = 1 << 20;
/// First sector of the data, and what is added to the IV, in sectors of 512 bytes.
const OFFSET: u64 = 8;
const IV_OFFSET: u64 = 8 * 1001;
/// Bytes in a block.
const BLOCK: usize = 512;
/// Our clear disk, and what lay there before it was overwritten.
const SEED: u64 = 31;
const OLD_SEED: u64 = 32;

/// Ranges that the guest overwrites: first cipher sector and number of them.
const THEIRS: [(usize, usize); 3] = [(1, 2), (40, 100), (200, 1)];

struct Case {
    cipher: &'static str,
    key: Vec<u8>,
    sector: u32,
    large_iv: bool,
    exclusion: Exclusion,
    zeroes: Zeroes,
    image: PathBuf,
    name: String,
}

/// Overwrites and rewrites, with IVs that count sectors of either size.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let shared = (Exclusion::Shared, Zeroes::Decrypt);
    let cases = [
        ("aes-xts-plain64", 64, 4096, false, shared),
        ("aes-xts-plain64", 64, 4096, true, shared),
        ("aes-xts-plain64", 32, 2048, false, shared),
        ("aes-xts-plain64", 64, 4096, false, (Exclusion::Exclusive, Zeroes::Detect)),
        ("aes-cbc-essiv:sha256", 32, 4096, false, shared),
        ("aes-cbc-essiv:sha256", 32, 4096, true, shared),
        ("aes-cbc-essiv:sha256", 16, 1024, false, shared),
        ("aes-cbc-plain64", 32, 4096, false, (Exclusion::Exclusive, Zeroes::Detect)),
        ("xchacha12,aes-adiantum-plain64", 32, 4096, false, shared),
    ];
    let cases = (0..).zip(cases).map(|(index, case)| {
        let (cipher, key_bytes, sector, large_iv, (exclusion, zeroes)) = case;
        let name = format!(
            "small blocks {index}: {cipher}, sectors of {sector}, large IV {large_iv}, {exclusion:?}, {zeroes:?}"
        );
        let start = usize::try_from(OFFSET).expect("a small number") * 512;
        Case {
            cipher,
            key: pattern::bytes(9000 + index, key_bytes),
            sector,
            large_iv,
            exclusion,
            zeroes,
            image: bench.image(&format!("small blocks {index}"), start + CLEAR),
            name,
        }
    });
    cases.map(|case| case.ask(bench, oracle)).collect()
}

impl Case {
    fn ask<'a>(self, bench: &'a Bench, oracle: &mut Oracle) -> Check<'a> {
        self.write_in_pieces();
        let case = oracle.case(&self.name).disk("disk", &self.image).read_only_disk("news", &bench.news);
        case.script(&format!("dmsetup create v --table \"{}\"", self.line("$disk")))
            .script("sha256sum < /dev/mapper/v");
        let sector = self.sector;
        for (first, count) in THEIRS {
            case.script(&format!(
                "dd if=$news of=/dev/mapper/v bs={sector} skip={first} seek={first} count={count} conv=notrunc,fsync"
            ));
        }
        Check::new(self.name.clone(), move |outcomes| {
            self.verify(&bench.news, outcomes);
        })
    }

    fn verify(&self, news: &Path, outcomes: &Outcomes) {
        let mut model = pattern::bytes(SEED, CLEAR);
        let said = outcomes.passed(&self.name);
        let sum = said.split(' ').next();
        assert_eq!(sum, Some(&*sha256(&model)), "what we wrote in pieces");
        let news = std::fs::read(news).expect("what the guest wrote");
        let sector = usize::try_from(self.sector).expect("a small number");
        for (first, count) in THEIRS {
            let range = first * sector..(first + count) * sector;
            model[range.clone()].copy_from_slice(&news[range]);
        }
        let read = self.read_in_pieces();
        assert_same(&read, &model, "what the kernel wrote, read in pieces");
    }

    /// A line of the kernel's for this volume on `device`.
    fn line(&self, device: &str) -> String {
        let options = match (self.sector, self.large_iv) {
            (sector, false) => format!("1 sector_size:{sector}"),
            (sector, true) => format!("2 sector_size:{sector} iv_large_sectors"),
        };
        format!("0 {} crypt {} {} {IV_OFFSET} {device} {OFFSET} {options}", CLEAR / 512, self.cipher, hex(&self.key))
    }

    /// The volume in blocks of 512 bytes.
    fn open(&self) -> Driver {
        let options = SectorOptions { sector_size: self.sector, iv_offset: IV_OFFSET, iv_large_sectors: self.large_iv };
        let spec = CipherSpec::parse(self.cipher).expect("a cipher");
        let cipher = SectorCipher::new(&spec, &self.key, options).expect("a cipher");
        let image = Image::open(&self.image, false).expect("an image");
        let file = image.into_device(512, DirectMode::Off).expect("a file");
        let options = CryptOptions {
            start: OFFSET * 512,
            logical_block: Some(512),
            zeroes: self.zeroes,
            ..CryptOptions::default()
        };
        let clear = CryptDevice::new(Gate::new(file), cipher, options).expect("it fits");
        let mut gate = Gate::new(clear);
        let is_fine = gate.geometry().logical_block == 512;
        assert_eq!(is_fine, self.cipher.contains("xts"), "what is overwritten alone");
        if !is_fine || self.exclusion == Exclusion::Exclusive {
            let options = SubBlockOptions { logical_block: 512, sector: self.sector, exclusion: self.exclusion };
            gate = Gate::new(SubBlockDevice::new(gate, options).expect("smaller blocks"));
        }
        let setup = Setup { backend: BackendChoice::Auto, registered: false };
        Driver::new(&gate, setup)
    }

    /// Writes every block in pieces of one to five, many at once and in any order: old bytes first, then
    /// those that are to stay.
    fn write_in_pieces(&self) {
        let mut driver = self.open();
        for seed in [OLD_SEED, SEED] {
            let bytes = pattern::bytes(seed, CLEAR);
            for (token, (from, len)) in (0..).zip(pieces(seed)) {
                while driver.channel.in_flight() >= 32 {
                    let done = driver.next_completion().expect("something in flight");
                    done.result.expect("a write");
                }
                let mut data = driver.buffer(len as u64);
                data.copy_from_slice(&bytes[from..from + len]);
                driver.submit(Request::write(from as u64, data, false, token));
            }
            for done in driver.drain() {
                done.result.expect("a write");
            }
        }
        driver.flush().expect("a flush");
    }

    fn read_in_pieces(&self) -> Vec<u8> {
        let mut driver = self.open();
        let mut bytes = vec![0; CLEAR];
        for (from, len) in pieces(SEED + 2) {
            let piece = driver.read(from as u64, len as u64).expect("a read");
            bytes[from..from + len].copy_from_slice(&piece);
        }
        bytes
    }
}

/// The disk in pieces, shuffled: where each begins and its length, in bytes.
fn pieces(seed: u64) -> Vec<(usize, usize)> {
    let dice = |index: usize, sides: usize| {
        let word = noise(seed ^ noise(index as u64));
        usize::try_from(word % sides as u64).expect("less than a usize")
    };
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < CLEAR {
        let len = ((1 + dice(from, 5)) * BLOCK).min(CLEAR - from);
        pieces.push((from, len));
        from += len;
    }
    // Fisher and Yates.
    for last in (1..pieces.len()).rev() {
        pieces.swap(last, dice(CLEAR + last, last + 1));
    }
    pieces
}
