//! Golden ciphertexts: what the kernel's dm-crypt makes of known plaintext, as a small text file.
//!
//! The file lets the cipher crate's tests run without a kernel; a test under the oracle makes it again and compares.
//! Its own head comment describes the format and names the command that writes it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base16ct::lower::encode_string as hex;
use sha2::{Digest, Sha256};

use super::matrix::{COMBINATIONS, Combination};
use super::{Oracle, Outcomes, pattern};

/// Bytes of plaintext for the longest vector: 32 sectors, four of the largest cipher sectors.
const LENGTH: usize = 16 * 1024;
const SECTORS: usize = 32;
/// Sectors of a vector of the matrix in cipher sectors of 512 bytes.
const SECTORS_OF_MATRIX: usize = 16;
const PLAINTEXT_SEED: u64 = 1;
/// Vector `n`'s key is the pattern of seed `KEY_SEED + n`.
const KEY_SEED: u64 = 1000;
/// Sixteen sectors below the point where a 32-bit sector number wraps.
const BELOW_32_BITS: u64 = (1 << 32) - 16;
/// The same within a vector of the matrix.
const AROUND_32_BITS: u64 = (1 << 32) - 8;
const CASE: &str = "golden";
/// Each vector loads modules and waits for udev's absence; processors here are emulated.
const TIMEOUT: Duration = Duration::from_secs(300);

const HEAD: &str = "\
# Written by Linux dm-crypt through this command; do not edit.
#   cargo test -p cryptline-cli --test oracle -- --ignored kernel_oracle_writes
#
# Every vector encrypts the first LENGTH sectors of the same plaintext: the SplitMix64 outputs for
# seed 1 as little-endian 64-bit words.
#
# table       the device-mapper table: START LENGTH crypt CIPHER KEY IV_OFFSET DEVICE OFFSET [OPTIONS]
# sha256      of all bytes of ciphertext
# sector N    the first 32 bytes of ciphertext at 512-byte sector N, for every N where a cipher sector starts

";

/// One table to be tried.
struct Vector {
    cipher: &'static str,
    key_bytes: usize,
    iv_offset: u64,
    sector_bytes: usize,
    large_iv: bool,
    /// Length in 512-byte sectors.
    sectors: usize,
}

/// The whole golden file, made by a real kernel in a boot of its own.
///
/// # Panics
/// When the kernel refuses a table, or as [`Oracle::run`].
pub fn generate(mut oracle: Oracle) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let asked = ask(&mut oracle, folder.path());
    asked.text(&oracle.run())
}

/// A question for the golden ciphertexts.
#[derive(Debug)]
pub struct Asked {
    ciphertexts: PathBuf,
}

/// Adds the case to the others of a machine, with its disks in `folder`.
///
/// # Panics
/// Where the disks cannot be made.
pub fn ask(oracle: &mut Oracle, folder: &Path) -> Asked {
    let vectors = vectors();
    let [plain, cipher] = ["golden-plain", "golden-cipher"].map(|name| folder.join(name));
    std::fs::write(&plain, pattern::bytes(PLAINTEXT_SEED, LENGTH)).expect("written");
    std::fs::write(&cipher, vec![0; LENGTH * vectors.len()]).expect("written");

    let case = oracle.case(CASE).read_only_disk("plain", &plain).disk("cipher", &cipher).timeout(TIMEOUT);
    // All at once: a program takes longer to start here than what it does.
    let mut tables = Vec::new();
    for (index, vector) in (0..).zip(&vectors) {
        let table = vector.table(index, "$cipher", index * LENGTH / 512).replace(',', r"\,");
        tables.push(format!("golden{index},,,rw,{table}"));
    }
    case.script(&format!("dmsetup create --concise \"{}\"", tables.join(";")));
    for (index, vector) in (0..).zip(&vectors) {
        let blocks = vector.sectors / 8;
        case.script(&format!("dd if=$plain of=/dev/mapper/golden{index} bs=4k count={blocks} conv=fsync"));
    }
    Asked { ciphertexts: cipher }
}

impl Asked {
    /// The whole file, once the machine has run.
    ///
    /// # Panics
    /// When the kernel has refused a table.
    #[must_use]
    pub fn text(&self, outcomes: &Outcomes) -> String {
        outcomes.passed(CASE);
        let ciphertexts = std::fs::read(&self.ciphertexts).expect("the guest's disk");
        let mut text = HEAD.to_owned();
        for (index, (vector, ciphertext)) in (0..).zip(vectors().iter().zip(ciphertexts.chunks(LENGTH))) {
            text.push_str(&vector.describe(index, &ciphertext[..vector.sectors * 512]));
        }
        text
    }
}

fn vectors() -> Vec<Vector> {
    let mut vectors = Vec::new();
    for key_bytes in [32, 64] {
        for sector_bytes in [512, 1024, 2048, 4096] {
            for (iv_offset, large_iv) in [(0, false), (BELOW_32_BITS, false), (0, true), (BELOW_32_BITS, true)] {
                if sector_bytes > 512 || !large_iv {
                    vectors.push(Vector {
                        cipher: "aes-xts-plain64",
                        key_bytes,
                        iv_offset,
                        sector_bytes,
                        large_iv,
                        sectors: SECTORS,
                    });
                }
            }
        }
    }
    for cipher in ["aes-xts-plain", "aes-xts-plain64be"] {
        for (iv_offset, sector_bytes) in [(0, 512), (BELOW_32_BITS, 512), (BELOW_32_BITS, 4096)] {
            vectors.push(Vector { cipher, key_bytes: 64, iv_offset, sector_bytes, large_iv: false, sectors: SECTORS });
        }
    }
    vectors.extend(COMBINATIONS.iter().map(Vector::of));
    vectors
}

impl Vector {
    fn of(combination: &Combination) -> Self {
        let &Combination { cipher, key_bytes, sector_bytes, large_iv } = combination;
        let sectors = if sector_bytes == 512 { SECTORS_OF_MATRIX } else { SECTORS };
        Self { cipher, key_bytes, iv_offset: AROUND_32_BITS, sector_bytes, large_iv, sectors }
    }

    fn table(&self, index: usize, device: &str, offset_sectors: usize) -> String {
        let seed = KEY_SEED + u64::try_from(index).unwrap_or(u64::MAX - KEY_SEED);
        let key = pattern::bytes(seed, self.key_bytes);
        let sector_size = (self.sector_bytes != 512).then(|| format!("sector_size:{}", self.sector_bytes));
        let large_iv = self.large_iv.then(|| "iv_large_sectors".to_owned());
        let options: Vec<String> = sector_size.into_iter().chain(large_iv).collect();
        let options = match options.len() {
            0 => String::new(),
            count => format!(" {count} {}", options.join(" ")),
        };
        format!(
            "0 {} crypt {} {} {} {device} {offset_sectors}{options}",
            self.sectors,
            self.cipher,
            hex(&key),
            self.iv_offset
        )
    }

    fn describe(&self, index: usize, ciphertext: &[u8]) -> String {
        let mut text = String::new();
        let _infallible = writeln!(text, "table {}", self.table(index, "DEVICE", 0));
        let _infallible = writeln!(text, "sha256 {}", hex(&Sha256::digest(ciphertext)));
        for (number, sector) in ciphertext.chunks(self.sector_bytes).enumerate() {
            let number = number * self.sector_bytes / 512;
            let _infallible = writeln!(text, "sector {number} {}", hex(&sector[..32]));
        }
        text.push('\n');
        text
    }
}
