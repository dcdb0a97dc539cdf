//! A volume as the line that `dmsetup table` would print for it. Nothing is locked or changed.

use cryptline_cipher::CipherSpec;
use cryptline_engine::table::{CryptOptions, CryptTarget, TableKey};
use zeroize::Zeroizing;

use super::format::parse_cipher;
use super::luks::{check_version, read, unlock, usable_segment, warnings_of};
use super::plain::read_key;
use super::{Format, LuksVersion, Open, Plain, header_flags};
use crate::base::{Look, Source};
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::keys::with_keys;
use crate::target::Target;
use crate::{Result, Warning};

/// A table line, and what was found on the way to it.
pub struct TableOf {
    /// The line; wiped when dropped, since it may have the key in it.
    pub line: Zeroizing<String>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl Open {
    /// The volume's device-mapper line. Unlocks it only to show the key; zeros stand for it otherwise.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn table(mut self, show_keys: bool) -> Result<TableOf> {
        let source = self.source()?;
        self.refuse_useless(&source)?;
        let mut table = with_keys(|| self.table_of(&source, show_keys))?;
        table.warnings.extend(Warning::of_key_memory());
        Ok(table)
    }

    fn table_of(&self, source: &Source, show_keys: bool) -> Result<TableOf> {
        let mut warnings = Vec::new();
        if let Source::Target(Target::Table(line)) = source {
            let mut target = line.parse()?;
            let decision = self.dispatch.decide(Stored::Table(target.options.perf))?;
            target.options.perf = decision.flags;
            let line = target.to_kernel_line(show_keys, &escape(&target.device));
            return Ok(TableOf { line, warnings });
        }
        if source.is_memory() || matches!(self.format, Some(Format::RandomKey(_))) {
            return Err(Problem::RandomKey.on(source));
        }
        let device = source.look()?;
        let target = if let Some(Format::Plain(plain)) = &self.format {
            self.plain_target(&device, plain, show_keys)?
        } else {
            let version = match self.format {
                Some(Format::Luks(version)) => version,
                _ => None,
            };
            self.luks_target(&device, version, show_keys, &mut warnings)?
        };
        let line = target.to_kernel_line(show_keys, &target.device);
        Ok(TableOf { line, warnings })
    }

    fn luks_target(
        &self,
        device: &Look,
        version: Option<LuksVersion>,
        show_keys: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<CryptTarget> {
        let detached = self.header.as_deref().map(Look::file).transpose()?;
        let source = detached.as_ref().unwrap_or(device);
        let name = &source.name;
        let header = read(source.reader()?, source.size, name)?;
        check_version(&header, version, name)?;
        warnings.extend(warnings_of(&header, self));
        let segment = usable_segment(&header, self, name)?;
        let size = segment
            .data_size(device.size)
            .map_err(|error| Problem::Luks(error).on(&device.name))?;
        let (discards, perf, _) = header_flags(header.flags());
        let decision = self.dispatch.decide(Stored::Header(perf))?;
        let key = match (show_keys, segment.key_len) {
            (true, _) => unlock(&header, source.reader()?, name, self)?.0.to_vec(),
            (false, Some(len)) => vec![0; len],
            (false, None) => return Err(Problem::KeyLengthUnknown.on(name)),
        };
        // The feature words that cryptsetup would give the kernel.
        let options = CryptOptions {
            allow_discards: discards || self.discards,
            sector_size: segment.sector_size,
            perf: decision.flags,
            ..CryptOptions::default()
        };
        Ok(CryptTarget {
            start: 0,
            len: size / 512,
            key: table_key(&segment.cipher, key),
            cipher: segment.cipher,
            iv_offset: segment.iv_tweak,
            device: device_word(device),
            offset: segment.offset / 512,
            options,
        })
    }

    fn plain_target(&self, device: &Look, plain: &Plain, show_keys: bool) -> Result<CryptTarget> {
        let cipher = parse_cipher(&plain.cipher)?;
        let key_len = if cipher.is_null() { 0 } else { plain.key_len };
        let decision = self.dispatch.decide(Stored::Nothing)?;
        let sector = u64::from(plain.sector_size.max(512));
        let left = device.size.saturating_sub(plain.start);
        let size = plain.size.unwrap_or(left - left % sector);
        if size == 0 || size > left {
            return Err(Problem::TooShort { left }.on(&device.name));
        }
        let key = if show_keys {
            read_key(self, &device.name, plain, key_len)?.to_vec()
        } else {
            vec![0; key_len]
        };
        // The feature words that cryptsetup would give the kernel.
        let options = CryptOptions {
            allow_discards: self.discards,
            sector_size: plain.sector_size,
            iv_large_sectors: plain.iv_large_sectors,
            perf: decision.flags,
            ..CryptOptions::default()
        };
        Ok(CryptTarget {
            start: 0,
            len: size / 512,
            key: table_key(&cipher, key),
            cipher,
            iv_offset: plain.iv_offset,
            device: device_word(device),
            offset: plain.start / 512,
            options,
        })
    }
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
fn device_word(device: &Look) -> String {
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
