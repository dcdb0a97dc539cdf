//! `--passphrase-list`: passphrases from a file, one a line, tried until one opens.
//!
//! The file is read twice, in pieces that lie in key memory: first to count its lines and to find one that is too long,
//! before hours are spent, then line by line as they are tried.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cryptline::luks::time_text;
use cryptline::{Key, KeyRequest, SecretBuf};
use cryptline_sys::lock;
use rustix::fs::OFlags;

use crate::CliError;
use crate::output::complain;
use crate::progress::ProgressMeter;

/// Bytes of the file that are in memory.
const PIECE: usize = 64 << 10;
/// The longest line, as a terminal takes one.
const LINE_MAX: usize = 4095;
/// The largest file: nobody has the time for more.
const FILE_MAX: u64 = 256 << 20;

/// A list of passphrases.
pub struct PassphraseList {
    path: PathBuf,
    /// Its lines that are not empty.
    count: u64,
    /// The number of the line that was tried last.
    line: AtomicU64,
    state: Mutex<TrialState>,
}

struct TrialState {
    lines: Lines,
    /// When the first try began.
    began: Option<Instant>,
    meter: ProgressMeter,
}

impl PassphraseList {
    /// Opens the file and looks through it.
    ///
    /// # Errors
    /// Exit code 1 for what is no such list.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let refused = |why: &dyn std::fmt::Display| CliError::parameters(format!("{}: {why}", path.display()));
        // A pipe that nobody writes to would be waited for.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(|error| refused(&error))?;
        let found = file.metadata().map_err(|error| refused(&error))?;
        if !found.is_file() || found.len() > FILE_MAX {
            return Err(refused(&"a list of passphrases is a regular file of at most 256 MiB, one passphrase a line"));
        }
        let mut lines = Lines::of(file).map_err(|error| refused(&error))?;
        let mut count = 0;
        while lines.next().map_err(|error| refused(&error))?.is_some() {
            count += 1;
        }
        if count == 0 {
            return Err(refused(&"it has no passphrase; put one on each line"));
        }
        let lines = lines.again().map_err(|error| refused(&error))?;
        let state = TrialState { lines, began: None, meter: ProgressMeter::new("Tried", |count| count.to_string()) };
        Ok(Self { path: path.to_owned(), count, line: AtomicU64::new(0), state: Mutex::new(state) })
    }

    /// Returns the number of the line that was tried last.
    pub fn line(&self) -> u64 {
        self.line.load(Ordering::Relaxed)
    }

    /// Returns what is said where none opens.
    pub fn none_opens(&self) -> String {
        let (count, path) = (self.count, self.path.display());
        format!("none of the {count} passphrases in {path} opens a key slot")
    }

    /// The next passphrase; `None` behind the last.
    ///
    /// # Errors
    /// A file that cannot be read any more.
    pub fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        let mut state = lock(&self.state);
        let began = *state.began.get_or_insert_with(Instant::now);
        let tried = u64::from(request.failed);
        if tried == 1 && self.count > 1 {
            let each = began.elapsed();
            let all = each.saturating_mul(u32::try_from(self.count - 1).unwrap_or(u32::MAX));
            let (count, each, all) = (self.count, seconds(each), seconds(all));
            complain(&format!("trying {count} passphrases of {}: {each} each, up to {all} more", self.path.display()));
        }
        state.meter.show(tried, Some(self.count));
        let next = state.lines.next().map_err(|error| {
            let refused = CliError::device(format!("{}: {error}", self.path.display()));
            refused.into_keys_error()
        })?;
        self.line.store(state.lines.number, Ordering::Relaxed);
        Ok(next.map(Key::Passphrase))
    }
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { time_text(&time) }
}

/// The lines of a file that are not empty.
struct Lines {
    file: File,
    piece: SecretBuf,
    /// Bytes of the piece that are still to come.
    start: usize,
    end: usize,
    /// The number of the last line.
    number: u64,
    is_over: bool,
}

impl Lines {
    fn of(file: File) -> io::Result<Self> {
        Ok(Self { file, piece: SecretBuf::zeroed(PIECE)?, start: 0, end: 0, number: 0, is_over: false })
    }

    fn again(mut self) -> io::Result<Self> {
        self.file.rewind()?;
        Self::of(self.file)
    }

    /// The next line without its newline.
    fn next(&mut self) -> io::Result<Option<SecretBuf>> {
        loop {
            let rest = &self.piece[self.start..self.end];
            let newline = rest.iter().position(|&byte| byte == b'\n');
            let (len, step) = match newline {
                Some(len) => (len, len + 1),
                None if self.is_over && rest.is_empty() => return Ok(None),
                None if self.is_over => (rest.len(), rest.len()),
                None if rest.len() <= LINE_MAX => {
                    self.fill()?;
                    continue;
                }
                None => (rest.len(), rest.len()),
            };
            self.number += 1;
            if len > LINE_MAX {
                return Err(io::Error::other(format!("line {} is longer than {LINE_MAX} bytes", self.number)));
            }
            let line = self.start..self.start + len;
            self.start += step;
            if len > 0 {
                return SecretBuf::copy_of(&self.piece[line]).map(Some);
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.piece.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match self.file.read(&mut self.piece[self.end..]) {
            Ok(0) => self.is_over = true,
            Ok(read) => self.end += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines_of(bytes: &[u8]) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        file.rewind()?;
        let (mut lines, mut all) = (Lines::of(file)?, Vec::new());
        while let Some(line) = lines.next()? {
            all.push((lines.number, line.to_vec()));
        }
        Ok(all)
    }

    #[test]
    fn lines_keep_their_numbers_and_bytes_across_pieces() {
        let found = lines_of(b"one\n\n two \r\nlast").unwrap();
        assert_eq!(found, [(1, b"one".to_vec()), (3, b" two \r".to_vec()), (4, b"last".to_vec())]);
        let many: Vec<Vec<u8>> = (0..5000_usize).map(|number| vec![b'a'; 1 + number % 97]).collect();
        let found: Vec<_> = lines_of(&many.join(&b'\n')).unwrap().into_iter().map(|(_, line)| line).collect();
        assert!(found == many);
        assert!(lines_of(b"\n\n").unwrap().is_empty());
    }

    #[test]
    fn line_of_any_length_is_refused_by_its_number_and_not_cut() {
        assert_eq!(lines_of(&[b'x'; LINE_MAX]).unwrap().len(), 1);
        for len in [LINE_MAX + 1, PIECE, 3 * PIECE] {
            let bytes = [b"first\n".to_vec(), vec![b'x'; len], b"\nmore".to_vec()].concat();
            assert!(lines_of(&bytes).unwrap_err().to_string().contains("line 2 is longer"), "{len}");
        }
    }
}
