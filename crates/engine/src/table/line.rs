//! One line of a table: `start length target arguments`.

use zeroize::Zeroizing;

use super::text::{escape, parse_u64, split_words};
use super::{CryptTarget, MAX_SECTORS, OTHER_TARGETS, TableError, format_error, kernel, not_yet};

/// A range of the clear device, and what it is. No `Debug` and no `Clone`, because of keys.
pub enum ParsedLine {
    /// Encrypted.
    Crypt(Box<CryptTarget>),
    /// A range of another device, as it is.
    Linear(LinearTarget),
    /// Zeros, whatever is written.
    Zero(TableSpan),
    /// Every read and write fails.
    Error(TableSpan),
}

/// A range of the clear device, in 512-byte sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpan {
    /// Its first sector.
    pub start: u64,
    /// Its length.
    pub len: u64,
}

/// One `linear` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTarget {
    /// Where it is on the clear device.
    pub span: TableSpan,
    /// Path or `major:minor`, as written.
    pub device: String,
    /// Where it starts on the device, in 512-byte sectors.
    pub offset: u64,
}

/// Targets that are served here.
enum LineKind {
    Crypt,
    Linear,
    Zero,
    Error,
}

impl ParsedLine {
    /// Where it is on the clear device.
    #[must_use]
    pub fn span(&self) -> TableSpan {
        match self {
            Self::Crypt(target) => TableSpan { start: target.start, len: target.len },
            Self::Linear(LinearTarget { span, .. }) | Self::Zero(span) | Self::Error(span) => *span,
        }
    }

    /// The device below as it was written, if there is one.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Crypt(target) => Some(&target.device),
            Self::Linear(target) => Some(&target.device),
            Self::Zero(_) | Self::Error(_) => None,
        }
    }

    /// The line that `dmsetup table` prints, with `device` (`major:minor`) as the device and the key as
    /// [`CryptTarget::to_kernel_line`] has it.
    #[must_use]
    pub fn to_kernel_line(&self, show_keys: bool, device: &str) -> Zeroizing<String> {
        let TableSpan { start, len } = self.span();
        Zeroizing::new(match self {
            Self::Crypt(target) => return target.to_kernel_line(show_keys, device),
            Self::Linear(target) => format!("{start} {len} linear {device} {}", target.offset),
            Self::Zero(_) => format!("{start} {len} zero"),
            Self::Error(_) => format!("{start} {len} error"),
        })
    }

    /// Checks that it can be served.
    ///
    /// # Errors
    /// As [`CryptTarget::check_supported`].
    pub fn check_supported(&self) -> Result<(), TableError> {
        match self {
            Self::Crypt(target) => target.check_supported(),
            Self::Linear(_) | Self::Zero(_) | Self::Error(_) => Ok(()),
        }
    }

    /// Parses a line that must start at `next_start`.
    pub(super) fn parse(line: &str, next_start: u64) -> Result<Self, TableError> {
        let words = split_words(line);
        let [start, len, target, arguments @ ..] = words.as_slice() else {
            return Err(format_error("a line is: start length target arguments"));
        };
        let (start, len) = match (parse_u64(start), parse_u64(len)) {
            (Some(start), Some(len)) => (start, len),
            _ => {
                return Err(format_error("start and length are decimal numbers of sectors"));
            }
        };
        if len == 0 {
            return Err(kernel("zero-length target", "use the length in 512-byte sectors"));
        }
        let kind = LineKind::parse(target)?;
        if start != next_start {
            return Err(kernel("Gap in table", format!("this line must start at {next_start}")));
        }
        if start.checked_add(len).is_none_or(|end| end > MAX_SECTORS) {
            return Err(format_error("the target ends beyond 2^64 bytes"));
        }
        let span = TableSpan { start, len };
        Ok(match (kind, arguments) {
            (LineKind::Crypt, _) => {
                let target = CryptTarget::parse_arguments(start, len, arguments)?;
                Self::Crypt(Box::new(target))
            }
            (LineKind::Linear, _) => Self::Linear(LinearTarget::parse(span, arguments)?),
            (LineKind::Zero, []) => Self::Zero(span),
            (LineKind::Zero, _) => return Err(kernel("No arguments required", "zero takes none")),
            (LineKind::Error, []) => Self::Error(span),
            (LineKind::Error, _) => return Err(not_yet("error with a device")),
        })
    }
}

impl LineKind {
    fn parse(name: &str) -> Result<Self, TableError> {
        Ok(match name {
            "crypt" => Self::Crypt,
            "linear" => Self::Linear,
            "zero" => Self::Zero,
            "error" => Self::Error,
            name if OTHER_TARGETS.contains(&name) => return Err(not_yet(name)),
            name => {
                return Err(kernel(
                    "unknown target type",
                    format!("{name:?}; crypt, linear, zero and error are served here"),
                ));
            }
        })
    }
}

impl LinearTarget {
    /// `device offset`
    fn parse(span: TableSpan, arguments: &[Zeroizing<String>]) -> Result<Self, TableError> {
        let [device, offset] = arguments else {
            return Err(kernel("Invalid argument count", "linear takes: device offset"));
        };
        Ok(Self { span, device: String::clone(device), offset: parse_offset(offset, span.len)? })
    }
}

/// Where `len` sectors start on a device, all of them below 2^64 bytes.
pub(super) fn parse_offset(text: &str, len: u64) -> Result<u64, TableError> {
    let fits = |offset: &u64| {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= MAX_SECTORS)
    };
    parse_u64(text)
        .filter(fits)
        .ok_or_else(|| kernel("Invalid device sector", "the offset is a decimal number of sectors"))
}

/// The line as it was given, with the key hidden.
impl std::fmt::Display for ParsedLine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = escape(self.device().unwrap_or_default());
        formatter.write_str(&self.to_kernel_line(false, &device))
    }
}
