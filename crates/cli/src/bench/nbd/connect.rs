//! From a path to a connection in transmission: fixed newstyle, `NBD_OPT_GO`, simple replies.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_nbd::client::{self, Info, OptionReply};
use cryptline_nbd::request::RequestHeader;
use cryptline_nbd::wire::{GREETING_LEN, client_flag, cmd, handshake_flag, info, opt, rep};
use cryptline_nbd::{BlockSizes, TransmissionFlags};

use super::Job;
use crate::CliError;
use crate::bench::report::{Direction, Shape};

/// A server says a few lines about an export; more than this it means ill.
const HANDSHAKE_MAX: usize = 64 * 1024;

/// A connection over which requests can be sent.
#[derive(Debug)]
pub struct Connection {
    /// The socket, with timeouts.
    pub(super) stream: UnixStream,
    /// Who is at the other end, for messages.
    pub(super) name: String,
    /// Size of the disk in bytes.
    pub size: u64,
    flags: TransmissionFlags,
    blocks: BlockSizes,
}

impl Connection {
    /// Connects to `socket` and chooses `export`. Each later send or receive may take `patience`.
    ///
    /// # Errors
    /// Exit code 4 when nobody listens, or what listens is no NBD server, has no such export, or
    /// does not answer.
    pub fn open(socket: &Path, export: &str, patience: Duration) -> Result<Self, CliError> {
        let name = socket.display().to_string();
        let failed = |error: io::Error| CliError::device(format!("{name}: {}", describe(&error)));
        let stream = UnixStream::connect(socket).map_err(failed)?;
        // Zero would be for ever.
        let patience = patience.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        let mut talk = Handshake {
            stream,
            received: Vec::new(),
            deadline: Instant::now() + patience,
        };
        let (size, flags, blocks) = talk
            .go(export)
            .map_err(|why| CliError::device(format!("{name}: {why}")))?;
        if !talk.received.is_empty() {
            return Err(CliError::device(format!(
                "{name}: the server answered before it was asked"
            )));
        }
        Ok(Self {
            stream: talk.stream,
            name,
            size,
            flags,
            blocks,
        })
    }

    /// Whether this server can do `job`.
    pub(super) fn check(&self, job: &Job<'_>) -> Result<(), CliError> {
        let refuse = |why: String| Err(CliError::device(format!("{}: {why}", self.name)));
        let Shape {
            direction,
            block,
            streams,
            ..
        } = job.shape;
        let need = u64::from(block) * u64::from(streams);
        if self.size < need {
            return refuse(format!(
                "a disk of {} bytes is too small for {streams} connections with blocks of {block} bytes",
                self.size
            ));
        }
        if !block.is_multiple_of(self.blocks.minimum.max(1)) || block > self.blocks.maximum {
            return refuse(format!(
                "takes requests of {} to {} bytes, not {block}",
                self.blocks.minimum, self.blocks.maximum
            ));
        }
        if direction == Direction::Write && self.flags.contains(TransmissionFlags::READ_ONLY) {
            return refuse("cannot be written to".into());
        }
        Ok(())
    }

    /// Says goodbye; nobody is left to be told when that fails.
    pub fn disconnect(&self) {
        let goodbye = RequestHeader {
            flags: 0,
            command: cmd::DISC,
            cookie: 0,
            offset: 0,
            length: 0,
        };
        let _ = (&self.stream).write_all(&client::request(&goodbye));
    }
}

/// An I/O error in words; a timeout has the strangest of names otherwise.
pub(super) fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            "the server did not answer in time".to_owned()
        }
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            "the server closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

struct Handshake {
    stream: UnixStream,
    /// Received and not yet taken.
    received: Vec<u8>,
    deadline: Instant,
}

impl Handshake {
    fn go(&mut self, export: &str) -> Result<(u64, TransmissionFlags, BlockSizes), String> {
        let greeting = self.take_greeting()?;
        if greeting & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err("the server does not speak fixed newstyle".into());
        }
        let flags = client_flag::FIXED_NEWSTYLE
            | match greeting & handshake_flag::NO_ZEROES {
                0 => 0,
                _ => client_flag::NO_ZEROES,
            };
        let data = client::info_data(export.as_bytes(), &[info::BLOCK_SIZE]);
        let mut hello = flags.to_be_bytes().to_vec();
        hello.extend(client::option(opt::GO, &data));
        self.stream
            .write_all(&hello)
            .map_err(|error| describe(&error))?;
        self.take_answers(export)
    }

    fn take_greeting(&mut self) -> Result<u16, String> {
        while self.received.len() < GREETING_LEN {
            self.receive()?;
        }
        let mut greeting = [0; GREETING_LEN];
        greeting.copy_from_slice(&self.received[..GREETING_LEN]);
        self.received.drain(..GREETING_LEN);
        client::parse_greeting(&greeting).map_err(|error| error.to_string())
    }

    fn take_answers(
        &mut self,
        export: &str,
    ) -> Result<(u64, TransmissionFlags, BlockSizes), String> {
        let (mut found, mut blocks) = (None, BlockSizes::default());
        loop {
            let parsed = client::parse_option_reply(&self.received);
            let Some((reply, len)) = parsed.map_err(|error| error.to_string())? else {
                self.receive()?;
                continue;
            };
            let is_last = answer(&reply, export, &mut found, &mut blocks)?;
            self.received.drain(..len);
            if is_last {
                let (size, flags) = found.ok_or("the server does not say how large the disk is")?;
                return Ok((size, flags, blocks));
            }
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        if self.received.len() > HANDSHAKE_MAX {
            return Err("the server talks too much in its handshake".into());
        }
        if Instant::now() > self.deadline {
            return Err("the server did not end its handshake in time".into());
        }
        let mut some = [0; 4096];
        match self.stream.read(&mut some) {
            Ok(0) => Err("the server closed the connection in the handshake".into()),
            Ok(len) => {
                self.received.extend_from_slice(&some[..len]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(describe(&error)),
        }
    }
}

/// Takes in one reply to `GO`; whether it was the last.
fn answer(
    reply: &OptionReply<'_>,
    export: &str,
    found: &mut Option<(u64, TransmissionFlags)>,
    blocks: &mut BlockSizes,
) -> Result<bool, String> {
    if reply.option != opt::GO {
        return Err("the server answered an option that was not sent".into());
    }
    match reply.kind {
        rep::ACK => return Ok(true),
        rep::INFO => match client::parse_info(reply.data) {
            Some(Info::Export { size, flags }) => *found = Some((size, flags)),
            Some(Info::BlockSize(sizes)) => *blocks = sizes,
            Some(_) => {}
            None => return Err("the server describes its export wrongly".into()),
        },
        rep::ERR_UNKNOWN => return Err(format!("the server has no export {export:?}")),
        kind => {
            return Err(format!(
                "the server refuses the export {export:?} (reply {kind:#x})"
            ));
        }
    }
    Ok(false)
}
