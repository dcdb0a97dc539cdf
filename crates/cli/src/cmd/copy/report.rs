//! Result of a copy, for people and as JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use cryptline::{Copied, CopyHashed};
use serde_json::{Map, Value, json};

use super::pipe;
use crate::error::on_one_line;
use crate::output::{is_quiet, print_bytes, print_to_stderr};
use crate::{CliError, size};

/// A copy that was made.
pub struct CopyReport<'a> {
    pub source: &'a Path,
    pub destination: &'a Path,
    pub copied: &'a Copied,
    pub began: Instant,
    /// The bytes went to standard output, which has room for nothing else.
    pub is_piped: bool,
    /// The destination is a file with the bytes that were hashed.
    pub is_file: bool,
}

impl CopyReport<'_> {
    /// Says what was copied, and for people `more`.
    ///
    /// # Errors
    /// Exit code 4 where nothing more can be written.
    pub fn print(&self, as_json: bool, more: &str) -> Result<(), CliError> {
        let text = if as_json { format!("{:#}\n", self.json()).into_bytes() } else { self.text(more) };
        if self.is_piped { print_to_stderr(&text) } else { print_bytes(&text) }
    }

    fn text(&self, more: &str) -> Vec<u8> {
        let Copied { bytes, skipped, verified, hashed, .. } = self.copied;
        let (source, seconds) = (self.source.display(), self.began.elapsed().as_secs_f64());
        let destination = if self.is_piped { Path::new(pipe::NAME) } else { self.destination }.display();
        let holes = match skipped {
            0 => String::new(),
            skipped => format!(", including {} of holes", size::human(*skipped)),
        };
        let verified = if *verified { " and verified" } else { "" };
        let bytes = size::human(*bytes);
        let line = format!("{destination}: {bytes} copied from {source} in {seconds:.1} s{holes}{verified}");
        let mut text = if is_quiet() { Vec::new() } else { format!("{}\n{more}", on_one_line(&line)).into_bytes() };
        let name = if self.is_file { self.destination.as_os_str() } else { OsStr::new("-") };
        for hashed in hashed {
            text.extend(sum_line(hashed, name));
        }
        text
    }

    fn json(&self) -> Value {
        let hashes: Map<_, _> =
            self.copied.hashed.iter().map(|it| (it.function.to_string(), it.hex().into())).collect();
        json!({
            "source": self.source.display().to_string(),
            "destination": self.destination.display().to_string(),
            "bytes": self.copied.bytes,
            "skipped": self.copied.skipped,
            "seconds": self.began.elapsed().as_secs_f64(),
            "verified": self.copied.verified,
            "hashes": hashes,
        })
    }
}

/// A line as `sha256sum` prints it, which begins with a backslash where the name has characters that would end it.
fn sum_line(hashed: &CopyHashed, name: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in name.as_bytes() {
        match byte {
            b'\\' => escaped.extend(br"\\"),
            b'\n' => escaped.extend(br"\n"),
            b'\r' => escaped.extend(br"\r"),
            other => escaped.push(*other),
        }
    }
    let mark: &[u8] = if escaped.len() > name.len() { b"\\" } else { b"" };
    [mark, hashed.hex().as_bytes(), b"  ", &escaped, b"\n"].concat()
}
