//! Raw device-mapper lines: the same line gives the same bytes, and comes back as the same line.

use std::path::Path;

use cryptline_testkit::oracle::matrix::{COMBINATIONS, Combination};
use cryptline_testkit::oracle::{Oracle, pattern};

use super::Check;
use super::bench::{Bench, Opening, hex, text};
use super::exchange::{CLEAR_BYTES, Volume};

/// Parameters after `0 LENGTH crypt`, with the key by its length.
#[derive(Clone, Copy)]
struct Line {
    cipher: &'static str,
    key_bytes: usize,
    iv_offset: u64,
    /// In sectors.
    offset: usize,
    options: &'static str,
    /// In sectors.
    length: usize,
}

/// Sixteen sectors below the point where a 32-bit sector number wraps.
const BELOW_32_BITS: u64 = (1 << 32) - 16;
const LENGTH: usize = CLEAR_BYTES / 512;
/// Clear sectors of a volume of the matrix: enough for all that is written to it.
const LENGTH_OF_MATRIX: usize = 1072;

const fn line(cipher: &'static str, key_bytes: usize, options: &'static str) -> Line {
    Line { cipher, key_bytes, iv_offset: 0, offset: 0, options, length: LENGTH }
}

impl Line {
    const fn at(self, iv_offset: u64, offset: usize) -> Self {
        Self { iv_offset, offset, ..self }
    }

    const fn sectors(self, length: usize) -> Self {
        Self { length, ..self }
    }
}

const LINES: &[Line] = &[
    // IV modes, around the end of 32 bits and of 64.
    line("aes-xts-plain64", 64, "").at(24, 8).sectors(2001),
    line("aes-xts-plain64", 32, "").at(BELOW_32_BITS, 0),
    line("aes-xts-plain64", 48, "").at(u64::MAX - 1000, 3),
    line("aes-xts-plain", 64, "").at(BELOW_32_BITS, 0),
    line("aes-xts-plain64be", 64, "").at(BELOW_32_BITS, 0),
    line("aes-xts-null", 32, "").at(5, 0),
    line("capi:xts(aes)-plain64", 64, "").at(9, 1),
    line("cipher_null-ecb", 0, "").at(0, 16),
    // Sector sizes. The kernel wants the device's offset to be a multiple of them.
    line("aes-xts-plain64", 64, "1 sector_size:1024").at(BELOW_32_BITS, 2),
    line("aes-xts-plain64", 64, "1 sector_size:2048").at(BELOW_32_BITS, 12),
    line("aes-xts-plain64", 64, "1 sector_size:4096").at(BELOW_32_BITS, 24),
    line("aes-xts-plain64", 32, "2 sector_size:4096 iv_large_sectors").at(BELOW_32_BITS, 8),
    line("aes-xts-plain64", 64, "2 iv_large_sectors sector_size:1024").at(6, 6),
    line("aes-xts-plain", 64, "2 sector_size:4096 iv_large_sectors").at((1 << 35) - 64, 0),
    line("aes-xts-plain64", 64, "1 iv_large_sectors").at(1, 0),
    line("cipher_null-ecb", 0, "1 sector_size:4096").at(8, 8),
    // Options one by one, all together in another order, and spelt as nobody does.
    line("aes-xts-plain64", 64, "1 allow_discards"),
    line("aes-xts-plain64", 64, "1 same_cpu_crypt"),
    line("aes-xts-plain64", 64, "1 submit_from_crypt_cpus"),
    line("aes-xts-plain64", 64, "1 no_read_workqueue"),
    line("aes-xts-plain64", 64, "1 no_write_workqueue"),
    line(
        "aes-xts-plain64",
        64,
        "7 iv_large_sectors sector_size:4096 no_write_workqueue no_read_workqueue submit_from_crypt_cpus same_cpu_crypt allow_discards",
    ),
    line("aes-xts-plain64", 64, "3 Allow_Discards allow_discards SAME_CPU_CRYPT"),
    line("aes-xts-plain64", 64, "0"),
    line("aes-xts-plain64", 64, "0 nonsense that is not counted"),
];

/// Every line, over an image that it fills.
pub fn ask<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let volumes = (0..).zip(LINES).map(|(index, line)| {
        let name = format!("table {index}");
        let image = bench.image(&name, (line.offset + line.length) * 512);
        line.volume(bench, &name, &image, index)
    });
    volumes.map(|volume| volume.exchange(bench, oracle)).collect()
}

/// The same of ciphers, modes and IVs that are not plain AES-XTS, one behind the other in one image: a machine has no room
/// for so many disks.
pub fn ask_matrix<'a>(bench: &'a Bench, oracle: &mut Oracle) -> Vec<Check<'a>> {
    let image = bench.image("ciphers", COMBINATIONS.len() * LENGTH_OF_MATRIX * 512);
    let volumes = (0..).zip(COMBINATIONS).zip((0..).step_by(LENGTH_OF_MATRIX));
    let volumes = volumes.map(|((index, combination), offset)| {
        let line = Line::of(combination).at(BELOW_32_BITS, offset);
        line.volume(bench, &format!("cipher {index}"), &image, 1000 + index)
    });
    volumes.map(|volume| volume.exchange(bench, oracle)).collect()
}

impl Line {
    /// A combination, at the start of its disk.
    fn of(combination: &Combination) -> Self {
        let options = match (combination.sector_bytes, combination.large_iv) {
            (512, false) => "",
            (1024, false) => "1 sector_size:1024",
            (2048, false) => "1 sector_size:2048",
            (4096, false) => "1 sector_size:4096",
            (2048, true) => "2 sector_size:2048 iv_large_sectors",
            (4096, true) => "2 sector_size:4096 iv_large_sectors",
            other => panic!("no words for {other:?}"),
        };
        line(combination.cipher, combination.key_bytes, options).sectors(LENGTH_OF_MATRIX)
    }

    /// The volume of this line over `image`, with the key of this number.
    fn volume<'a>(&self, bench: &'a Bench, name: &str, image: &Path, number: u64) -> Volume<'a> {
        let key = match self.key_bytes {
            0 => "-".to_owned(),
            bytes => hex(&pattern::bytes(4000 + number, bytes)),
        };
        let table = |device: &str| {
            let line = format!(
                "0 {} crypt {} {key} {} {device} {} {}",
                self.length, self.cipher, self.iv_offset, self.offset, self.options
            );
            line.trim_end().to_owned()
        };
        let file = bench.file(&format!("line of {name}"), table(text(image)).as_bytes());
        let ours = Opening::new(["--table", &format!("@{}", text(&file))]);
        let theirs = format!("dmsetup create v --table \"{}\"", table("$disk"));
        let mut volume = Volume::new(self.name(name), image, ours, &theirs);
        volume.length = self.length * 512;
        volume
    }

    fn name(&self, name: &str) -> String {
        let (cipher, key, options) = (self.cipher, self.key_bytes, self.options);
        let (iv_offset, offset) = (self.iv_offset, self.offset);
        format!("{name}: {cipher}, {key} bytes, iv {iv_offset}, offset {offset}, {options:?}")
    }
}
