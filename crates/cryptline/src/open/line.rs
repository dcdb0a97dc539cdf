//! A volume as the line that `dmsetup table` would print for it. Nothing is locked or changed.

use cryptline_cipher::CipherSpec;
use cryptline_engine::table::{CryptTarget, LinearTarget, ParsedLine, TableKey, TableOptions, TableSpan};
use zeroize::Zeroizing;

use super::format::parse_cipher;
use super::luks::{Opened, check_version, data_sizes, read, unlock, usable_segments, warnings_of};
use super::plain::read_key;
use super::{Format, LuksVersion, Open, Plain, header_flags};
use crate::base::{BaseSource, Look};
use crate::dispatch::Stored;
use crate::error::Problem;
use crate::keys::with_keys;
use crate::target::Target;
use crate::{Result, Warning};

/// A table, and what was found on the way to it.
pub struct TableOf {
    /// The line, or lines where a table has several; wiped when dropped, since it may have the key in it.
    pub line: Zeroizing<String>,
    /// Facts that the user should know.
    pub warnings: Vec<Warning>,
}

impl Open {
    /// The volume's device-mapper line. Unlocks it only to show the key; zeros stand for it otherwise.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn table(mut self, show_keys: bool) -> Result<TableOf> {
        let source = self.given.take_source()?;
        self.refuse_useless(&source)?;
        if self.partition.is_some() {
            let (volume, given) = ("a table", "a partition of the clear disk");
            return Err(Problem::Useless { volume, given }.into());
        }
        let mut table = with_keys(|| self.table_of(&source, show_keys))?;
        table.warnings.extend(Warning::of_key_memory());
        Ok(table)
    }

    fn table_of(&mut self, source: &BaseSource, show_keys: bool) -> Result<TableOf> {
        let mut warnings = Vec::new();
        if let BaseSource::Target(Target::Table(line)) = source {
            let line = self.lines_of(line.parse()?, show_keys)?;
            return Ok(TableOf { line, warnings });
        }
        if source.is_memory() || matches!(self.format, Some(Format::RandomKey(_))) {
            return Err(Problem::RandomKey.on(source));
        }
        let device = source.look()?;
        let lines = if let Some(Format::Plain(plain)) = &self.format {
            vec![self.plain_line(&device, plain, show_keys)?]
        } else {
            let version = match self.format {
                Some(Format::Luks(version)) => version,
                _ => None,
            };
            self.luks_lines(&device, version, show_keys, &mut warnings)?
        };
        let line = text_of(&lines, show_keys);
        Ok(TableOf { line, warnings })
    }

    /// The lines of a table, as this volume would have them.
    fn lines_of(&self, mut lines: Vec<ParsedLine>, show_keys: bool) -> Result<Zeroizing<String>> {
        for line in &mut lines {
            if let ParsedLine::Crypt(target) = line {
                let decision = self.dispatch.decide(Stored::Table(target.options.perf))?;
                target.options.perf = decision.flags;
            }
        }
        Ok(text_of(&lines, show_keys))
    }

    /// A line for each segment.
    fn luks_lines(
        &mut self,
        device: &Look,
        version: Option<LuksVersion>,
        show_keys: bool,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<ParsedLine>> {
        let detached = self.header.as_deref().map(Look::file).transpose()?;
        let source = detached.as_ref().unwrap_or(device);
        let name = &source.name;
        let header = read(source.reader()?, source.size, name)?;
        check_version(&header, version, name)?;
        let mut demanded = self.given.rules().check(&header, name)?;
        warnings.extend(warnings_of(&header, self));
        let segments = usable_segments(&header, self, name)?;
        let sizes = data_sizes(&segments, device.size, &device.name)?;
        let (perf, notes) = header_flags(header.flags(), self.discards);
        warnings.extend(notes);
        let decision = self.dispatch.decide(Stored::Header(perf))?;
        let key = Zeroizing::new(match (show_keys || demanded.needs_key(), header.key_len()) {
            (true, _) => {
                let Opened { key, slot, .. } = unlock(&header, source.reader()?, name, self)?;
                demanded.prove(&header, &key, name)?;
                // Whoever makes a device of it may write to that: a line does not say that it is only read.
                let trust = self.trust(&header, &segments, device.size, slot);
                trust.to_write().map_err(|error| Problem::Luks(error).on(name))?;
                key.to_vec()
            }
            (false, Some(len)) => vec![0; len],
            (false, None) => return Err(Problem::KeyLengthUnknown.on(name)),
        });
        demanded.finish(name)?;
        let (mut start, word) = (0, device_word(device)?);
        let lines = segments.into_iter().zip(sizes).map(|(segment, size)| {
            let span = TableSpan { start, len: size / 512 };
            start += span.len;
            let offset = (device.start + segment.offset) / 512;
            let device = word.clone();
            let Some(cipher) = segment.cipher else {
                return ParsedLine::Linear(LinearTarget { span, device, offset });
            };
            // The feature words that cryptsetup would give the kernel.
            let options = TableOptions {
                allow_discards: self.discards,
                sector_size: segment.sector_size,
                perf: decision.flags,
                ..TableOptions::default()
            };
            ParsedLine::Crypt(Box::new(CryptTarget {
                start: span.start,
                len: span.len,
                key: table_key(&cipher, key.clone()),
                cipher,
                iv_offset: segment.iv_tweak,
                device,
                offset,
                options,
            }))
        });
        Ok(lines.collect())
    }

    fn plain_line(&self, device: &Look, plain: &Plain, show_keys: bool) -> Result<ParsedLine> {
        let cipher = parse_cipher(&plain.cipher)?;
        let key_len = if cipher.is_null() { 0 } else { plain.key_len };
        let decision = self.dispatch.decide(Stored::Nothing)?;
        let sector = u64::from(plain.sector_size.max(512));
        let left = device.size.saturating_sub(plain.start);
        let size = plain.size.unwrap_or(left - left % sector);
        if size == 0 || size > left {
            return Err(Problem::TooShort(left).on(&device.name));
        }
        let key = if show_keys { read_key(self, &device.name, plain, key_len)?.to_vec() } else { vec![0; key_len] };
        // The feature words that cryptsetup would give the kernel.
        let options = TableOptions {
            allow_discards: self.discards,
            sector_size: plain.sector_size,
            iv_large_sectors: plain.iv_large_sectors,
            perf: decision.flags,
            ..TableOptions::default()
        };
        Ok(ParsedLine::Crypt(Box::new(CryptTarget {
            start: 0,
            len: size / 512,
            key: table_key(&cipher, Zeroizing::new(key)),
            cipher,
            iv_offset: plain.iv_offset,
            device: device_word(device)?,
            offset: (device.start + plain.start) / 512,
            options,
        })))
    }
}

/// The lines one below the other.
fn text_of(lines: &[ParsedLine], show_keys: bool) -> Zeroizing<String> {
    let shown = lines.iter().map(|line| {
        let device = escape(line.device().unwrap_or_default());
        line.to_kernel_line(show_keys, &device)
    });
    let shown: Vec<_> = shown.collect();
    // Room for all of it, since a string that grows leaves copies of keys behind.
    let room = shown.iter().map(|line| line.len() + 1).sum();
    let mut text = Zeroizing::new(String::with_capacity(room));
    for line in &shown {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
    text
}

fn table_key(cipher: &CipherSpec, key: Zeroizing<Vec<u8>>) -> TableKey {
    if cipher.is_null() { TableKey::Empty } else { TableKey::Bytes(key) }
}

/// `MAJOR:MINOR`, or the path of a regular file.
fn device_word(device: &Look) -> Result<String> {
    match &device.device_number {
        Some(number) => Ok(number.clone()),
        // What is shown of it would be the name of another file.
        None if device.place.contains(char::REPLACEMENT_CHARACTER) => Err(Problem::Target(format!(
            "{}: the line is text, and this name is not UTF-8; use a symbolic link with another name, or a loop device",
            device.place
        ))
        .into()),
        None => Ok(device.place.clone()),
    }
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
