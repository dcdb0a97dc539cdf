//! A volume as the line that `dmsetup table` would print for it. Nothing is locked or changed.

use std::path::Path;

use cryptline_cipher::CipherSpec;
use cryptline_engine::table::{CryptOptions, CryptTarget, TableKey};
use zeroize::Zeroizing;

use super::dispatch::{PerfFlags, Stored};
use super::header::{HeaderFile, check_type, unlock};
use super::plain::{Layout, read_key};
use super::{KeySource, TargetOptions, VolumeType, luks, table, zoned};
use crate::CliError;
use crate::harden::with_keys;

/// The line of `target`, or of `--table` in the kernel's form. Unlocks only to `show_keys`.
///
/// # Errors
/// As [`super::open`].
pub fn table_line(
    target: &str,
    options: &TargetOptions,
    keys: &KeySource,
    show_keys: bool,
) -> Result<Zeroizing<String>, CliError> {
    with_keys(|| table_line_here(target, options, keys, show_keys))
}

fn table_line_here(
    target: &str,
    options: &TargetOptions,
    keys: &KeySource,
    show_keys: bool,
) -> Result<Zeroizing<String>, CliError> {
    options.check()?;
    if let Some(line) = &options.table {
        if !target.is_empty() {
            return Err(CliError::parameters("give either a TARGET or --table"));
        }
        let mut target = table::parse(line)?;
        let words = Stored::Table(PerfFlags::from(&target.options));
        let decision = options.dispatch.decide(words)?;
        decision.flags.put_into(&mut target.options);
        return Ok(target.to_kernel_line(show_keys, &escape(&target.device)));
    }
    if target.starts_with("ram:") || zoned::is_ram(target) {
        return Err(CliError::parameters(
            "a RAM volume has a new random key each time, so it has no table; give a file or device",
        ));
    }
    options.refuse_plain_options_unless_plain()?;
    let device = HeaderFile::open_target(Path::new(target))?;
    let line = match options.kind {
        Some(VolumeType::Plain) => plain_target(target, &device, options, keys, show_keys)?,
        _ => luks_target(&device, options, keys, show_keys)?,
    };
    Ok(line.to_kernel_line(show_keys, &line.device))
}

fn luks_target(
    device: &HeaderFile,
    options: &TargetOptions,
    keys: &KeySource,
    show_keys: bool,
) -> Result<CryptTarget, CliError> {
    let detached = options
        .header
        .as_deref()
        .map(HeaderFile::open)
        .transpose()?;
    let source = detached.as_ref().unwrap_or(device);
    let header = source.read()?;
    check_type(&header, options.kind, &source.name)?;
    crate::output::warn(header.warnings());
    let segment = luks::usable_segment(&header, options, &source.name)?;
    let size = segment
        .data_size(device.size)
        .map_err(|error| CliError::luks(&device.name, &error))?;
    let flags = header.flags();
    let wish = Stored::Header(PerfFlags::from(&flags));
    let decision = options.dispatch.decide(wish)?;
    let null = options.allow_null_cipher;
    let key = match (show_keys, segment.key_len) {
        (true, _) => Some(
            unlock(&header, source.reader()?, &source.name, keys, null)?
                .0
                .to_vec(),
        ),
        (false, len) => len.map(|len| vec![0; len]),
    };
    let key = key.ok_or_else(|| {
        CliError::device(format!(
            "{}: no key slot tells the length of the key; give --show-keys and --volume-key-file",
            source.name
        ))
    })?;
    // The feature words that cryptsetup would give the kernel.
    let mut words = CryptOptions {
        allow_discards: flags.allow_discards || options.allow_discards,
        sector_size: segment.sector_size,
        ..CryptOptions::default()
    };
    decision.flags.put_into(&mut words);
    Ok(CryptTarget {
        start: 0,
        len: size / 512,
        key: table_key(&segment.cipher, key),
        cipher: segment.cipher,
        iv_offset: segment.iv_tweak,
        device: device_word(device),
        offset: segment.offset / 512,
        options: words,
    })
}

fn plain_target(
    target: &str,
    device: &HeaderFile,
    options: &TargetOptions,
    keys: &KeySource,
    show_keys: bool,
) -> Result<CryptTarget, CliError> {
    let layout = Layout::of(options, keys)?;
    let decision = options.dispatch.decide(Stored::Nothing)?;
    let sector = u64::from(layout.sectors.sector_size.max(512));
    let left = device.size.saturating_sub(layout.start);
    let size = layout.size.unwrap_or(left - left % sector);
    if size == 0 || size > left {
        return Err(CliError::device(format!(
            "{target}: {left} bytes are left behind --offset, too few for the volume; is the file cut short?"
        )));
    }
    let key = if show_keys {
        read_key(target, layout.key_len, options, keys)?.to_vec()
    } else {
        vec![0; layout.key_len]
    };
    // The feature words that cryptsetup would give the kernel.
    let mut words = CryptOptions {
        allow_discards: options.allow_discards,
        sector_size: layout.sectors.sector_size,
        iv_large_sectors: layout.sectors.iv_large_sectors,
        ..CryptOptions::default()
    };
    decision.flags.put_into(&mut words);
    Ok(CryptTarget {
        start: 0,
        len: size / 512,
        key: table_key(&layout.cipher, key),
        cipher: layout.cipher,
        iv_offset: layout.sectors.iv_offset,
        device: device_word(device),
        offset: layout.start / 512,
        options: words,
    })
}

fn table_key(cipher: &CipherSpec, key: Vec<u8>) -> TableKey {
    let key = Zeroizing::new(key);
    if cipher.is_null() {
        TableKey::Empty
    } else {
        TableKey::Bytes(key)
    }
}

/// `MAJOR:MINOR`, or the path of a regular file as one word.
fn device_word(device: &HeaderFile) -> String {
    let number = device.device_number.clone();
    number.unwrap_or_else(|| escape(&device.name))
}

/// White space and backslashes protected, as the table grammar has it.
fn escape(path: &str) -> String {
    let mut word = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_ascii_whitespace() || character == '\\' {
            word.push('\\');
        }
        word.push(character);
    }
    word
}
