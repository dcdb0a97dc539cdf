//! Device-mapper tables: text to typed values and back. Nothing is opened here.
//!
//! ```text
//!   start len crypt cipher key iv_offset device offset [#options option...]
//!   start len linear device offset
//!   start len zero
//!   start len error
//!
//!   0 2048 crypt aes-xts-plain64 00112233...eeff 0 disk.img 4096 1 sector_size:4096
//!   2048 16 linear disk.img 0
//! ```
//!
//! Grammar, order of checks and error texts are those of the kernel (`drivers/md/dm-table.c`,
//! `drivers/md/dm-crypt.c`, target 1.28, and `dm-linear.c`) and of dmsetup for comments and blank
//! lines. Numbers that the kernel would silently cut to fewer bits are refused.

mod line;
mod options;
mod text;

use std::fmt::Write as _;

use cryptline_cipher::{CipherError, CipherSpec, IvMode, SectorCipher, SpecError};
use thiserror::Error;
use zeroize::Zeroizing;

use line::parse_offset;
pub use line::{LinearTarget, ParsedLine, TableSpan};
pub use options::{Integrity, TableOptions};
use text::{decode_hex, encode_hex, escape, is_space, parse_u32, parse_u64};

/// Bytes in a sector, always.
const SECTOR_BYTES: u32 = 512;
/// Sectors that can be addressed in bytes with 64 bits.
const MAX_SECTORS: u64 = u64::MAX / 512;

/// Targets of the kernel that are not served.
const OTHER_TARGETS: &[&str] = &[
    "cache",
    "clone",
    "delay",
    "dust",
    "ebs",
    "era",
    "flakey",
    "inlinecrypt",
    "integrity",
    "log-writes",
    "mirror",
    "multipath",
    "raid",
    "snapshot",
    "snapshot-merge",
    "snapshot-origin",
    "striped",
    "switch",
    "thin",
    "thin-pool",
    "unstriped",
    "vdo",
    "verity",
    "writecache",
    "zoned",
];

/// Why a table was refused. Where the kernel has a text, the message starts with exactly that
/// text; what follows in parentheses says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// The kernel's own text, and what to do.
    #[error("{text} ({hint})")]
    Kernel {
        /// Text of the kernel.
        text: &'static str,
        /// Advice on what to write instead.
        hint: String,
    },
    /// The cipher word.
    #[error(transparent)]
    Cipher(#[from] SpecError),
    /// The key, sector size or `iv_offset` does not fit the cipher.
    #[error(transparent)]
    Parameters(#[from] CipherError),
    /// Valid for the kernel, not served here yet.
    #[error("not supported yet: {0}")]
    NotSupportedYet(String),
}

/// Lines in order and without gaps, at least one.
pub struct Table {
    lines: Vec<ParsedLine>,
}

/// One `crypt` line. No `Debug` and no `Clone`, because of the key.
pub struct CryptTarget {
    /// First 512-byte sector on the clear device.
    pub start: u64,
    /// Length in 512-byte sectors.
    pub len: u64,
    /// The cipher.
    pub cipher: CipherSpec,
    /// The key.
    pub key: TableKey,
    /// Added to sector numbers before they become IVs, in 512-byte sectors.
    pub iv_offset: u64,
    /// Path or `major:minor`, as written.
    pub device: String,
    /// Where the data starts on the device, in 512-byte sectors.
    pub offset: u64,
    /// The feature words.
    pub options: TableOptions,
}

/// The key argument.
pub enum TableKey {
    /// `-`, for the null cipher.
    Empty,
    /// Hexadecimal digits, decoded; wiped when dropped.
    Bytes(Zeroizing<Vec<u8>>),
    /// `:size:type:description`, a key in the kernel's keyring.
    Keyring {
        /// Size in bytes.
        size: u32,
        /// `logon`, `user`, `encrypted` or `trusted`.
        kind: String,
        /// The key's name.
        description: String,
    },
}

impl TableKey {
    /// The key's bytes; a keyring key has none here.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            TableKey::Bytes(bytes) => bytes,
            TableKey::Empty | TableKey::Keyring { .. } => &[],
        }
    }
}

impl Table {
    /// Parses a table that can be served: lines whose targets, ciphers, keys and options are supported.
    /// Blank lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// The error that the kernel would give; then what is not supported yet.
    pub fn parse(text: &str) -> Result<Table, TableError> {
        let table = Self::parse_grammar(text)?;
        table.lines.iter().try_for_each(ParsedLine::check_supported)?;
        Ok(table)
    }

    /// Parses any table of targets known here that the kernel's grammar allows, supported or not.
    ///
    /// # Errors
    /// The error that the kernel would give.
    pub fn parse_grammar(text: &str) -> Result<Table, TableError> {
        let mut lines = Vec::new();
        let mut next_start = 0;
        for line in text.lines().map(|line| line.trim_matches(is_space)) {
            if !line.is_empty() && !line.starts_with('#') {
                let line = ParsedLine::parse(line, next_start)?;
                let TableSpan { start, len } = line.span();
                next_start = start + len;
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return Err(format_error("the table is empty"));
        }
        Ok(Table { lines })
    }

    /// The lines, at least one.
    #[must_use]
    pub fn lines(&self) -> &[ParsedLine] {
        &self.lines
    }

    /// The lines, at least one.
    #[must_use]
    pub fn into_lines(self) -> Vec<ParsedLine> {
        self.lines
    }
}

impl CryptTarget {
    /// The line that `dmsetup table` prints, with `device` (`major:minor`) as the device and, as
    /// dmsetup does unless asked to `show_keys`, a `0` for every character of the key.
    #[must_use]
    pub fn to_kernel_line(&self, show_keys: bool, device: &str) -> Zeroizing<String> {
        // Room for all of it, since a string that grows leaves copies of the key behind.
        let room = self.cipher.as_str().len() + device.len() + self.options.to_words().len() + 128;
        let key = self.key.to_text(show_keys);
        let mut line = Zeroizing::new(String::with_capacity(room + key.len()));
        let CryptTarget { start, len, iv_offset, offset, .. } = self;
        let cipher = self.cipher.as_str();
        // Writing to a string does not fail.
        let _ = write!(*line, "{start} {len} crypt {cipher} ");
        line.push_str(&key);
        let _ = write!(*line, " {iv_offset} {device} {offset}{}", self.options.to_words());
        line
    }

    /// Checks that the target can be served.
    ///
    /// # Errors
    /// [`TableError::NotSupportedYet`] or the cipher's equivalent, naming what is missing.
    pub fn check_supported(&self) -> Result<(), TableError> {
        self.cipher.check_supported()?;
        if matches!(self.key, TableKey::Keyring { .. }) {
            return Err(not_yet("keyring key"));
        }
        if self.options.integrity.is_some() {
            return Err(not_yet("integrity"));
        }
        Ok(())
    }

    /// `cipher key iv_offset device offset [#options option...]`, checked in the kernel's order.
    fn parse_arguments(start: u64, len: u64, arguments: &[Zeroizing<String>]) -> Result<CryptTarget, TableError> {
        let [cipher, key, iv_offset, device, offset, options @ ..] = arguments else {
            return Err(kernel("Not enough arguments", "crypt takes: cipher key iv_offset device offset"));
        };
        let keyring = key.strip_prefix(':').map(parse_keyring_size).transpose()?;
        let options = TableOptions::parse(options, len)?;
        let aead = options.integrity.as_ref().is_some_and(Integrity::is_aead);
        let cipher = CipherSpec::parse_with_aead(cipher, aead)?;
        let key = TableKey::parse(key, keyring, &cipher)?;
        let multiple = u64::from(options.sector_size / SECTOR_BYTES);
        if matches!(cipher.iv_mode(), IvMode::Lmk | IvMode::Tcw) && multiple != 1 {
            return Err(kernel("Error creating IV", "lmk and tcw need sector_size:512"));
        }
        let iv_offset = match parse_u64(iv_offset) {
            Some(value) if value.is_multiple_of(multiple) => value,
            _ => {
                let hint = format!("a decimal number of sectors, a multiple of {multiple}");
                return Err(kernel("Invalid iv_offset sector", hint));
            }
        };
        let offset = parse_offset(offset, len)?;
        let device = String::clone(device);
        Ok(CryptTarget { start, len, cipher, key, iv_offset, device, offset, options })
    }
}

/// The line as it was given, with the key hidden.
impl std::fmt::Display for CryptTarget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.to_kernel_line(false, &escape(&self.device)))
    }
}

impl TableKey {
    fn parse(text: &str, keyring: Option<(u32, &str)>, cipher: &CipherSpec) -> Result<TableKey, TableError> {
        let refused = |hint: &str| kernel("Error decoding and setting key", hint);
        if let Some((size, rest)) = keyring {
            if text.contains(is_space) {
                return Err(refused("whitespace chars not allowed in key string"));
            }
            let (kind, description) = match rest.split_once(':') {
                Some((kind @ ("logon" | "user" | "encrypted" | "trusted"), description)) if !description.is_empty() => {
                    (kind.to_owned(), description.to_owned())
                }
                _ => {
                    return Err(refused("write :size:logon|user|encrypted|trusted:description"));
                }
            };
            SectorCipher::check_key_size(cipher, usize::try_from(size).unwrap_or(usize::MAX))?;
            return Ok(TableKey::Keyring { size, kind, description });
        }
        if text == "-" {
            SectorCipher::check_key_size(cipher, 0)?;
            return Ok(TableKey::Empty);
        }
        let bytes = decode_hex(text)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| refused("the key is hexadecimal digits, or - for none"))?;
        SectorCipher::check_key_size(cipher, bytes.len())?;
        Ok(TableKey::Bytes(bytes))
    }

    fn to_text(&self, show: bool) -> Zeroizing<String> {
        let mut text = match self {
            TableKey::Empty => Zeroizing::new("-".to_owned()),
            TableKey::Bytes(bytes) => encode_hex(bytes),
            // A name is no secret: dmsetup shows it always.
            TableKey::Keyring { size, kind, description } => {
                return Zeroizing::new(format!(":{size}:{kind}:{description}"));
            }
        };
        if !show {
            text = Zeroizing::new("0".repeat(text.len()));
        }
        text
    }
}

/// `size:type:description` → size and the rest.
fn parse_keyring_size(text: &str) -> Result<(u32, &str), TableError> {
    text.split_once(':')
        .and_then(|(size, rest)| Some((parse_u32(size)?, rest)))
        .ok_or_else(|| kernel("Cannot parse key size", "a keyring key is :size:type:description"))
}

fn kernel(text: &'static str, hint: impl Into<String>) -> TableError {
    TableError::Kernel { text, hint: hint.into() }
}

/// dmsetup's own text, for what never reaches the kernel.
fn format_error(hint: &str) -> TableError {
    kernel("Invalid format of table", hint)
}

fn not_yet(what: &str) -> TableError {
    TableError::NotSupportedYet(what.to_owned())
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
