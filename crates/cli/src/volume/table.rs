//! `--table`: a device-mapper crypt line as the description of a volume.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cryptline_cipher::{SectorCipher, SectorOptions};
use cryptline_engine::table::{CryptTarget, Table, TableError, TableKey};
use cryptline_sys::SecretBuf;

use super::dispatch::{PerfFlags, Stored};
use super::stack::{Base, Plan, cipher_error};
use super::table_argument::TableArgument;
use super::{KeySource, TargetOptions, Volume, ram, ram_size};
use crate::CliError;
use crate::harden::with_keys;
use crate::passphrase::read_from;

/// A table is a few hundred bytes; this is far beyond any.
const TEXT_MAX: usize = 64 * 1024;

/// Opens what `line` describes.
pub(super) fn open(
    line: &TableArgument,
    options: &TargetOptions,
    keys: &KeySource,
) -> Result<Volume, CliError> {
    if !keys.is_empty() {
        return Err(CliError::parameters(
            "the key is in the table; leave out --key-file and the other key options",
        ));
    }
    let (target, cipher, key_len) = with_keys(|| {
        let mut target = parse(line)?;
        let cipher = SectorCipher::new(&target.cipher, target.key.as_bytes(), sectors(&target));
        let key_len = target.key.as_bytes().len();
        target.key = TableKey::Empty;
        Ok((target, cipher, key_len))
    })?;
    let words = PerfFlags::from(&target.options);
    let decision = options.dispatch.decide(Stored::Table(words))?;
    let base = match target.device.strip_prefix("ram:") {
        Some(size) => {
            ram::refuse_read_only(&target.device, options)?;
            Base::Ram(ram_size(size)?)
        }
        None if is_number(&target.device) => {
            Base::image(Path::new(&format!("/dev/block/{}", target.device)), options)?
        }
        None => Base::open(&target.device, options)?,
    };
    // The parser has bounded both: offset and length end below 2^64 bytes.
    let plan = Plan {
        source: &target.device,
        kind: "table",
        cipher: &target.cipher,
        key_len,
        sectors: sectors(&target),
        start: target.offset.saturating_mul(512),
        size: Some(target.len.saturating_mul(512)),
        discards: target.options.allow_discards || options.allow_discards,
        dispatch: decision.dispatch,
    };
    let cipher = cipher.map_err(|error| cipher_error(&error))?;
    plan.build(base, cipher, options, Vec::new())
}

fn sectors(target: &CryptTarget) -> SectorOptions {
    SectorOptions {
        sector_size: target.options.sector_size,
        iv_offset: target.iv_offset,
        iv_large_sectors: target.options.iv_large_sectors,
    }
}

/// The one target of the line.
pub(super) fn parse(line: &TableArgument) -> Result<CryptTarget, CliError> {
    let text = read_text(line)?;
    let text = std::str::from_utf8(&text).map_err(|_| {
        CliError::parameters(format!(
            "{} is not text; give one `START LEN crypt ...` line",
            name(line)
        ))
    })?;
    let table = Table::parse(text).map_err(|error| table_error(&error))?;
    let mut targets = table.into_targets();
    match (targets.pop(), targets.is_empty()) {
        (Some(target), true) => Ok(target),
        _ => Err(CliError::parameters("give a table of one line")),
    }
}

/// Whether a device is named as `MAJOR:MINOR`.
fn is_number(device: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = device.split_once(':');
    parts.is_some_and(|(major, minor)| number(major) && number(minor))
}

/// The argument, for messages.
fn name(line: &TableArgument) -> String {
    match line {
        TableArgument::Input => "standard input".to_owned(),
        TableArgument::File(path) => path.display().to_string(),
        TableArgument::Line(_) => "--table".to_owned(),
    }
}

/// The text of a table. It holds a key, so it never leaves key memory.
fn read_text(line: &TableArgument) -> Result<Arc<SecretBuf>, CliError> {
    let file = match line {
        TableArgument::Line(line) => return Ok(Arc::clone(line)),
        TableArgument::Input => rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
            .map(File::from)
            .map_err(io::Error::from),
        TableArgument::File(path) => File::open(path),
    };
    let name = name(line);
    let failed =
        |why: String| CliError::device(format!("cannot read the table from {name}: {why}"));
    let file = file.map_err(|error| failed(error.to_string()));
    let text = read_from(file, &name, 0, TEXT_MAX + 1)?;
    if text.len() > TEXT_MAX {
        return Err(CliError::parameters(format!(
            "{name} is longer than 64 KiB, so it is no table; give one `START LEN crypt ...` line"
        )));
    }
    Ok(Arc::new(text))
}

fn table_error(error: &TableError) -> CliError {
    CliError::parameters(match error {
        // It says all by itself.
        TableError::NotSupportedYet(_) => error.to_string(),
        _ => format!("--table: {error}"),
    })
}
