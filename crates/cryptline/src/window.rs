//! A part of a target: a range of bytes, or a partition.
//!
//! ```text
//! TARGET?offset=SIZE&length=SIZE      bytes from offset on; without a length, all that follow
//! TARGET?partition=N|LABEL|UUID       as the partition table has it
//! TARGET?partition=N@512|N@4096       the same, in sectors of this size
//! ```
//!
//! Bytes that would end a value are percent-encoded in it, as in any URI. In an NBD URI these parameters stand among
//! the URI's own.
//!
//! A slice is no layer. Opening adds its start to each part and bounds the part's size by it (`Part::move_into`), so
//! `crypt` adds one offset as ever and a slice costs a request nothing. Where nothing is laid over it (`create`, a
//! partition of the clear disk), `linear` with one segment is the device. The lock is the whole target's: two servers
//! cannot write to two partitions of one image.
//!
//! A slice that begins inside a block of the device is refused, except that a clear disk with blocks larger than 512
//! bytes gets `subblock` first. On a zoned device a volume takes whole zones only.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use cryptline_luks::ReadSeek;
use percent_encoding::percent_decode_str;

use crate::base::{Access, BaseSource};
use crate::bytes::GateBytes;
use crate::error::{Error, Problem};
use crate::medium::Medium;
use crate::partition::{PartitionError, PartitionName, PartitionTable};
use crate::size::{parse, parse_disk};
use crate::target::Target;
use crate::warning::Warning;

/// Which bytes of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// A range.
    Range {
        /// Its first byte.
        offset: u64,
        /// Bytes in it; `None` for all that follow.
        length: Option<u64>,
    },
    /// A partition.
    Partition(PartitionName),
}

/// A part of a target.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Target that it is a part of.
    pub of: Target,
    /// Which part.
    pub window: Window,
    /// All of it as it was written, for messages.
    pub(crate) text: String,
}

impl Window {
    /// Its bytes on a medium that the caller has, and what is wrong with the table that has it.
    ///
    /// # Errors
    /// The part ends beyond the medium's end; there is no such partition; the medium cannot be read.
    pub fn find_on(&self, medium: impl Medium) -> Result<(Range<u64>, Option<Warning>), Error> {
        let access = Access { read_only: true, ..Access::default() };
        let source = BaseSource::Medium(Arc::new(medium));
        let device = source.open_device(access)?;
        let bytes = Box::new(GateBytes::new(&device.gate)?);
        self.find(bytes, device.bytes, None, &source.to_string())
    }

    /// Its bytes on a device of `size` bytes, called `name` in messages; and what is wrong with the table that has it.
    /// `sector` is the size of the device's sectors, where it is known.
    pub(crate) fn find(
        &self,
        mut device: Box<dyn ReadSeek + '_>,
        size: u64,
        sector: Option<u32>,
        name: &str,
    ) -> Result<(Range<u64>, Option<Warning>), Error> {
        match self {
            Self::Range { offset, length } => {
                let end = match length {
                    Some(length) => offset.checked_add(*length),
                    None => Some(size),
                };
                let end = end.filter(|end| *end <= size && offset < end);
                end.map(|end| (*offset..end, None)).ok_or_else(|| {
                    let (offset, length) = (*offset, length.unwrap_or(1));
                    Problem::PastEnd { offset, length, size }.on(name)
                })
            }
            Self::Partition(partition) => {
                let failed = |error: PartitionError| Problem::Partition(error).on(name);
                let table = PartitionTable::read(&mut device, size, partition.sector().or(sector)).map_err(failed)?;
                let table = table.ok_or_else(|| failed(PartitionError::NoTable))?;
                let range = table.find(partition).map_err(failed)?.range();
                Ok((range, table.damage.map(Warning::PartitionTable)))
            }
        }
    }
}

/// As it stands behind the `?` of a target, and nothing else.
impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match split(&format!("?{text}"), false)? {
            Some((_, window)) => Ok(window),
            None => Err(format!("'{text}' names no part; use partition=N, or offset=SIZE and length=SIZE")),
        }
    }
}

/// Returns what is named in front of a window, and the window; `None` where `text` has none.
///
/// `is_uri` says that others' parameters may stand among those of the window. They stay with what is named.
pub(crate) fn split(text: &str, is_uri: bool) -> Result<Option<(String, Window)>, String> {
    let parts = if is_uri { text.split_once('?') } else { text.rsplit_once('?') };
    let Some((named, query)) = parts else {
        return Ok(None);
    };
    let is_ours = |pair: &&str| {
        let key = pair.split_once('=').map_or(*pair, |(key, _)| key);
        ["partition", "offset", "length"].contains(&key)
    };
    let (ours, others): (Vec<_>, Vec<_>) = query.split('&').partition(is_ours);
    if ours.is_empty() {
        return Ok(None);
    }
    let window = window(&ours)?;
    match (others.as_slice(), is_uri) {
        ([], _) => Ok(Some((named.to_owned(), window))),
        (others, true) => Ok(Some((format!("{named}?{}", others.join("&")), window))),
        ([other, ..], false) => {
            Err(format!("unknown '{other}'; a part of it is named by ?partition=N or ?offset=SIZE&length=SIZE"))
        }
    }
}

fn window(pairs: &[&str]) -> Result<Window, String> {
    let (mut partition, mut offset, mut length) = (None, None, None);
    for pair in pairs {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8().map_err(|_| format!("{key} is no text"))?;
        let is_new = match key {
            "partition" => partition.replace(value.parse()?).is_none(),
            "offset" => offset.replace(whole_sectors(&value)?).is_none(),
            _ => length.replace(parse_disk(&value)?).is_none(),
        };
        if !is_new {
            return Err(format!("{key} is given twice; use it once"));
        }
    }
    match (partition, offset, length) {
        (Some(partition), None, None) => Ok(Window::Partition(partition)),
        (Some(_), ..) => Err("use either a partition, or an offset and a length".to_owned()),
        (None, offset, length) => Ok(Window::Range { offset: offset.unwrap_or(0), length }),
    }
}

fn whole_sectors(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Ok(0),
        _ => parse_disk(text),
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: Option<u64>) -> Window {
        Window::Range { offset, length }
    }

    fn partition(name: &str) -> Window {
        Window::Partition(name.parse().unwrap())
    }

    #[test]
    fn window_is_split_from_what_it_is_a_part_of() {
        for (text, is_uri, expected) in [
            ("a.img", false, None),
            ("a?b", false, None),
            ("a?x=1", false, None),
            ("a.img?partition=2", false, Some(("a.img", partition("2")))),
            ("a?b?partition=EFI", false, Some(("a?b", partition("EFI")))),
            ("a?partition=100%25%20%26", false, Some(("a", partition("100% &")))),
            ("a?offset=1M", false, Some(("a", range(1 << 20, None)))),
            ("a?length=1M", false, Some(("a", range(0, Some(1 << 20))))),
            ("a?length=512&offset=0", false, Some(("a", range(0, Some(512))))),
            ("nbd://h/e?partition=1", true, Some(("nbd://h/e", partition("1")))),
            ("nbd+unix:///e?partition=1&socket=/s", true, Some(("nbd+unix:///e?socket=/s", partition("1")))),
        ] {
            let expected = expected.map(|(named, window)| (named.to_owned(), window));
            assert_eq!(split(text, is_uri), Ok(expected), "{text}");
        }
    }

    #[test]
    fn windows_that_make_no_sense_are_refused() {
        for (query, what) in [
            ("partition=", "no partition is named"),
            ("partition", "no partition is named"),
            ("partition=1&partition=2", "given twice"),
            ("partition=1&offset=0", "either"),
            ("partition=%ff", "no text"),
            ("offset=x", "not a size"),
            ("offset=100", "512-byte sectors"),
            ("offset=0&length=0", "holds nothing"),
            ("offset=0&x=1", "unknown 'x=1'"),
        ] {
            let why = split(&format!("a?{query}"), false).unwrap_err();
            assert!(why.contains(what), "{query}: {why}");
        }
    }
}
