//! `--table`: a device-mapper crypt line as the description of a volume.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cryptline_cipher::SectorOptions;
use cryptline_engine::table::{CryptTarget, Table, TableError};
use zeroize::Zeroizing;

use super::dispatch::{PerfFlags, Stored};
use super::stack::{Base, Plan};
use super::{KeySource, TargetOptions, Volume, ram, ram_size};
use crate::CliError;

/// A table is a few hundred bytes; this is far beyond any.
const TEXT_MAX: usize = 64 * 1024;

/// Opens what `line` describes: the line itself, `-` or `@FILE`.
pub(super) fn open(
    line: &str,
    options: &TargetOptions,
    keys: &KeySource,
) -> Result<Volume, CliError> {
    if !keys.is_empty() {
        return Err(CliError::parameters(
            "the key is in the table; leave out --key-file and the other key options",
        ));
    }
    let target = parse(line)?;
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
        key: target.key.as_bytes(),
        sectors: SectorOptions {
            sector_size: target.options.sector_size,
            iv_offset: target.iv_offset,
            iv_large_sectors: target.options.iv_large_sectors,
        },
        start: target.offset.saturating_mul(512),
        size: Some(target.len.saturating_mul(512)),
        discards: target.options.allow_discards || options.allow_discards,
        dispatch: decision.dispatch,
    };
    plan.build(base, plan.sector_cipher()?, options, Vec::new())
}

/// The one target of the line, `-` or `@FILE`.
pub(super) fn parse(line: &str) -> Result<CryptTarget, CliError> {
    let text = read_text(line)?;
    let table = Table::parse(&text).map_err(|error| table_error(&error))?;
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

/// The text behind `-` and `@FILE`. It holds a key, so it is wiped.
fn read_text(line: &str) -> Result<Zeroizing<String>, CliError> {
    let (name, file) = match (line, line.strip_prefix('@')) {
        ("-", _) => (
            "standard input".to_owned(),
            rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
                .map(File::from)
                .map_err(io::Error::from),
        ),
        (_, Some(path)) => (path.to_owned(), File::open(Path::new(path))),
        _ => return Ok(Zeroizing::new(line.to_owned())),
    };
    let failed =
        |why: String| CliError::device(format!("cannot read the table from {name}: {why}"));
    let mut file = file.map_err(|error| failed(error.to_string()))?;
    // Room for all of it at once: a vector that grows leaves copies of the key behind.
    let mut bytes = Zeroizing::new(vec![0; TEXT_MAX + 1]);
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    if filled > TEXT_MAX {
        return Err(CliError::parameters(format!(
            "{name} is longer than 64 KiB, so it is no table; give one `START LEN crypt ...` line"
        )));
    }
    let text = std::str::from_utf8(&bytes[..filled]);
    let text = text.map_err(|_| {
        CliError::parameters(format!(
            "{name} is not text; give one `START LEN crypt ...` line"
        ))
    })?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn table_error(error: &TableError) -> CliError {
    CliError::parameters(match error {
        // It says all by itself.
        TableError::NotSupportedYet(_) => error.to_string(),
        _ => format!("--table: {error}"),
    })
}
