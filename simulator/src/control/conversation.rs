//! One connection to the control socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Time after which a client looks whether it waits for good reason.
pub const LOOKS_AFTER: Duration = Duration::from_millis(1_500);
/// Pause between two pieces of a line.
const BETWEEN_PIECES: Duration = Duration::from_micros(300);

/// One connection.
pub struct Conversation {
    stream: UnixStream,
    /// Bytes that have come, of a line without its end.
    inbox: Vec<u8>,
}

impl Conversation {
    pub fn open(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LOOKS_AFTER))?;
        stream.set_write_timeout(Some(LOOKS_AFTER))?;
        Ok(Self { stream, inbox: Vec::new() })
    }

    /// Says some bytes, in so many pieces.
    pub fn say(&mut self, text: &[u8], pieces: usize) -> io::Result<()> {
        for (number, piece) in text.chunks(text.len().div_ceil(pieces)).enumerate() {
            if number > 0 {
                std::thread::sleep(BETWEEN_PIECES);
            }
            self.stream.write_all(piece)?;
        }
        Ok(())
    }

    /// Says that nothing more comes.
    pub fn ask_no_more(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Waits for a line. `WouldBlock` where it takes its time, `UnexpectedEof` behind the last.
    pub fn hear(&mut self) -> io::Result<Value> {
        loop {
            if let Some(end) = self.inbox.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.inbox.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece)? {
                0 if self.inbox.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => return Err(io::Error::new(io::ErrorKind::InvalidData, "the last line has no end")),
                len => self.inbox.extend_from_slice(&piece[..len]),
            }
        }
    }

    /// Waits for the end, however long that takes; a line that comes instead.
    pub fn stay(&mut self) -> Option<Value> {
        // Failing means that it has ended.
        let _ = self.stream.set_read_timeout(None);
        self.hear().ok()
    }
}
