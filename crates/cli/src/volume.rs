//! From a target to an open volume: `open` builds the stack that a front serves.
//!
//! ```text
//! Image (opened, locked) ─► header ─► key (KDF, once) ─► device ─► Gate ─► crypt ─► Gate
//!                                                          └─ delay, fault, when testing
//! ```
//!
//! The image is locked before its header is read, so that nobody changes it in between.

mod blocks;
mod dispatch;
pub mod header;
mod line;
mod luks;
pub mod mapped;
mod options;
mod plain;
mod ram;
mod stack;
mod table;
mod table_argument;
mod zoned;

use cryptline_engine::Gate;

pub use crate::passphrase::{KeyArgs, KeySource};
pub use blocks::BlockOptions;
pub use dispatch::{DispatchOptions, Who};
pub use line::table_line;
use stack::Base;
pub use table_argument::{TableArgument, arguments};

pub use options::{TargetArgs, TargetOptions, VolumeType};

use crate::CliError;

/// An open volume.
pub struct Volume {
    /// The way into the clear disk.
    pub gate: Gate,
    /// What was opened, for people.
    pub summary: Summary,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
}

/// What was opened.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The target as it was given.
    pub source: String,
    /// "LUKS2", "LUKS1", "plain", "table" or "random key".
    pub kind: String,
    /// The cipher word, such as `aes-xts-plain64`.
    pub cipher: String,
    /// Length of the volume key in bits.
    pub key_bits: usize,
    /// What runs the cipher on this machine.
    pub cipher_kernel: &'static str,
    /// Bytes in a cipher sector.
    pub sector_size: u32,
    /// The smallest I/O in bytes.
    pub logical_block: u32,
    /// How writes of part of a cipher sector are made; `None` where there are none.
    pub small_blocks: Option<String>,
    /// Size of the clear disk in bytes.
    pub size: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Whether the page cache is bypassed; `None` for RAM and what is mapped.
    pub direct: Option<bool>,
    /// What `pmem:`, `btt:` and `zoned:` found; `None` elsewhere.
    pub mapped: Option<String>,
    /// Discards are passed down.
    pub discards: bool,
    /// The simulated medium of `--delay`.
    pub delay: Option<String>,
    /// Who runs the cipher.
    pub dispatch: String,
}

/// Opens `target`: a LUKS or plain volume on a file or block device, `pmem:PATH`, `btt:PATH` or
/// `zoned:PATH,...`; or `ram:SIZE` or `zoned:ram:SIZE,...`. With
/// `--table` the target is in the table and `target` is empty.
///
/// # Errors
/// One line and cryptsetup's exit code: 1 parameters, 2 no key, 3 memory, 4 device, 5 busy.
pub fn open(target: &str, options: &TargetOptions, keys: &KeySource) -> Result<Volume, CliError> {
    options.check()?;
    if let Some(line) = &options.table {
        if !target.is_empty() {
            return Err(CliError::parameters(
                "give either a TARGET or --table, which names its device itself",
            ));
        }
        return table::open(line, options, keys);
    }
    if target.is_empty() {
        return Err(CliError::parameters(
            "no target; give a LUKS file or device, pmem:PATH, btt:PATH, zoned:PATH, ram:SIZE, or --table",
        ));
    }
    if let Some(size) = target.strip_prefix("ram:") {
        return ram::open(target, Base::Ram(ram_size(size)?), options, keys);
    }
    if zoned::is_ram(target) && options.kind.is_none() {
        return ram::open(target, Base::open(target, options)?, options, keys);
    }
    options.refuse_plain_options_unless_plain()?;
    match options.kind {
        Some(VolumeType::Plain) => plain::open(target, options, keys),
        _ => luks::open(target, options, keys),
    }
}

/// The volume of `cryptline serve` without a target: 1 GiB of RAM under a random key.
///
/// # Errors
/// Exit code 3 when memory runs out.
pub fn open_default_ram() -> Result<Volume, CliError> {
    let (options, keys) = (TargetOptions::default(), KeySource::default());
    ram::open("ram:1G", Base::Ram(1 << 30), &options, &keys)
}

/// The SIZE of `ram:SIZE`.
fn ram_size(text: &str) -> Result<u64, CliError> {
    crate::size::parse_disk(text).map_err(|why| CliError::parameters(format!("ram:{text}: {why}")))
}
