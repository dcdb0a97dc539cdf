//! Standard error, which somebody reads or not. What a server says there keeps none of its threads for long: where nobody
//! reads, lines are dropped, and the next one that gets through says how many.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::wait::wait_for;

/// Bytes that a pipe takes without waiting once it takes anything (`PIPE_BUF` of pipe(7)).
const PIECE: usize = 4096;

/// The way out for all lines.
pub struct LogOutlet {
    /// Lines dropped since the last that got through.
    dropped: u64,
    /// Set if what was written last is not a whole line.
    is_torn: bool,
}

impl LogOutlet {
    /// Nothing said so far.
    pub const fn new() -> Self {
        Self { dropped: 0, is_torn: false }
    }

    /// Writes a line with its end. Waits for a reader for at most `patience`, but not again where that was in vain
    /// before; without a limit, for as long as it takes. `notice` is a line about so many that were dropped.
    pub fn write(
        &mut self,
        to: BorrowedFd<'_>,
        line: &str,
        patience: Option<Duration>,
        notice: impl FnOnce(u64) -> String,
    ) {
        let mut text = String::new();
        if self.is_torn {
            text.push('\n');
        }
        if self.dropped > 0 {
            text += &notice(self.dropped);
        }
        let before = text.len();
        text += line;
        let patience = patience.map(|limit| if self.dropped > 0 { Duration::ZERO } else { limit });
        let until = patience.map(|limit| Instant::now() + limit);
        let written = write_until(to, text.as_bytes(), until);
        if written >= before {
            self.dropped = 0;
        }
        if written < text.len() {
            self.dropped += 1;
        }
        if let Some(last) = text.as_bytes()[..written].last() {
            self.is_torn = *last != b'\n';
        }
    }
}

/// How much of it was written. In one piece, if it is one for a pipe: lines of other processes do not come in between.
fn write_until(to: BorrowedFd<'_>, bytes: &[u8], until: Option<Instant>) -> usize {
    let mut written = 0;
    while written < bytes.len() && is_writable(to, until) {
        let piece = &bytes[written..bytes.len().min(written + PIECE)];
        match rustix::io::write(to, piece) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(Errno::INTR) => {}
            // Somebody else was faster.
            Err(Errno::AGAIN) if until.is_none_or(|until| Instant::now() < until) => {}
            Err(_) => break,
        }
    }
    written
}

fn is_writable(to: BorrowedFd<'_>, until: Option<Instant>) -> bool {
    // Writing shows what is wrong.
    wait_for(to, PollFlags::OUT, until).map_or(true, |found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(3600);

    fn notice(count: u64) -> String {
        format!("{count} dropped\n")
    }

    /// A pipe that takes no more, and how much is in it.
    fn full_pipe() -> (File, File, usize) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (reader, mut writer) = (File::from(reader), File::from(writer));
        let mut inside = 0;
        while is_writable(writer.as_fd(), Some(Instant::now())) {
            writer.write_all(&[b'x'; PIECE]).unwrap();
            inside += PIECE;
        }
        (reader, writer, inside)
    }

    #[test]
    fn where_nobody_reads_lines_are_dropped_and_one_of_them_waits() {
        let (mut reader, writer, inside) = full_pipe();
        let mut outlet = LogOutlet::new();
        outlet.write(writer.as_fd(), "a\n", Some(Duration::ZERO), notice);
        // Waiting as long as that, it would not end.
        outlet.write(writer.as_fd(), "b\n", Some(LONG), notice);
        reader.read_exact(&mut vec![0; inside]).unwrap();
        outlet.write(writer.as_fd(), "c\n", Some(LONG), notice);
        outlet.write(writer.as_fd(), "d\n", Some(LONG), notice);
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "2 dropped\nc\nd\n");
    }

    #[test]
    fn a_torn_line_ends_before_the_next() {
        let (mut reader, writer, inside) = full_pipe();
        reader.read_exact(&mut [0; PIECE]).unwrap();
        let mut outlet = LogOutlet::new();
        let long = "y".repeat(2 * PIECE) + "\n";
        outlet.write(writer.as_fd(), &long, Some(Duration::ZERO), notice);
        reader.read_exact(&mut vec![0; inside]).unwrap();
        outlet.write(writer.as_fd(), "next\n", Some(LONG), notice);
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "\n1 dropped\nnext\n");
    }

    #[test]
    fn a_slow_reader_gets_lines_longer_than_its_pipe() {
        let (mut reader, writer, inside) = full_pipe();
        let long = "z".repeat(2 * inside) + "\n";
        let wanted = long.clone();
        let reading = std::thread::spawn(move || {
            reader.read_exact(&mut vec![0; inside]).unwrap();
            let mut said = String::new();
            reader.read_to_string(&mut said).unwrap();
            assert!(said == wanted);
        });
        LogOutlet::new().write(writer.as_fd(), &long, Some(LONG), notice);
        drop(writer);
        reading.join().unwrap();
    }
}
