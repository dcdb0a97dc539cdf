//! From a path to a connection in transmission: fixed newstyle, `NBD_OPT_GO`, simple replies.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cryptline_nbd::client::{self, Info, OptionReply};
use cryptline_nbd::request::RequestHeader;
use cryptline_nbd::wire::{GREETING_LEN, client_flag, cmd, handshake_flag, info, opt, rep};
use cryptline_nbd::{BlockSizes, TransmissionFlags};

use super::Export;
use crate::Error;
use crate::report::{Direction, Shape};

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
    /// Connects to an export. Each later send or receive may take as long as the patience lasts.
    pub fn open(export: &Export<'_>) -> Result<Self, Error> {
        let name = export.socket.display().to_string();
        let failed = |error: io::Error| Error::device(format!("{name}: {}", describe(&error)));
        let stream = UnixStream::connect(export.socket).map_err(failed)?;
        // Zero would be for ever.
        let patience = export.patience.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        let mut talk = Handshake { stream: &stream, received: Vec::new(), deadline: Instant::now() + patience };
        let agreed = talk.go(export.name);
        let (size, flags, blocks) = agreed.map_err(|why| Error::device(format!("{name}: {why}")))?;
        Ok(Self { stream, name, size, flags, blocks })
    }

    /// Whether this server can bear a load.
    pub fn check(&self, shape: Shape) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::device(format!("{}: {why}", self.name)));
        let Shape { direction, block, streams, .. } = shape;
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
}

impl Drop for Connection {
    /// Says goodbye; nobody is left to be told when that fails.
    fn drop(&mut self) {
        let goodbye = RequestHeader { flags: 0, command: cmd::DISC, cookie: 0, offset: 0, length: 0 };
        let _ = (&self.stream).write_all(&client::request(&goodbye));
    }
}

/// An I/O error in words; a timeout has the strangest of names otherwise.
pub(super) fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "the server did not answer in time".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            "the server closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

struct Handshake<'a> {
    stream: &'a UnixStream,
    /// Received and not yet taken.
    received: Vec<u8>,
    deadline: Instant,
}

impl Handshake<'_> {
    fn go(&mut self, export: &str) -> Result<(u64, TransmissionFlags, BlockSizes), String> {
        let greeting = loop {
            if let Some(greeting) = self.received.first_chunk::<GREETING_LEN>() {
                break client::parse_greeting(greeting).map_err(|error| error.to_string())?;
            }
            self.receive()?;
        };
        self.received.drain(..GREETING_LEN);
        if greeting & handshake_flag::FIXED_NEWSTYLE == 0 {
            return Err("the server does not speak fixed newstyle".into());
        }
        let mut flags = client_flag::FIXED_NEWSTYLE;
        if greeting & handshake_flag::NO_ZEROES != 0 {
            flags |= client_flag::NO_ZEROES;
        }
        let data = client::info_data(export.as_bytes(), &[info::BLOCK_SIZE]);
        let mut hello = flags.to_be_bytes().to_vec();
        hello.extend(client::option(opt::GO, &data));
        self.stream.write_all(&hello).map_err(|error| describe(&error))?;
        self.take_replies(export)
    }

    /// Takes the replies to `GO`, up to the last.
    fn take_replies(&mut self, export: &str) -> Result<(u64, TransmissionFlags, BlockSizes), String> {
        let (mut found, mut blocks) = (None, BlockSizes::default());
        loop {
            let parsed = client::parse_option_reply(&self.received);
            let Some((OptionReply { option, kind, data }, len)) = parsed.map_err(|error| error.to_string())? else {
                self.receive()?;
                continue;
            };
            match kind {
                _ if option != opt::GO => {
                    return Err("the server answered an option that was not sent".into());
                }
                rep::ACK if self.received.len() > len => {
                    return Err("the server answered before it was asked".into());
                }
                rep::ACK => {
                    let (size, flags) = found.ok_or("the server does not say how large the disk is")?;
                    return Ok((size, flags, blocks));
                }
                rep::INFO => match client::parse_info(data) {
                    Some(Info::Export { size, flags }) => found = Some((size, flags)),
                    Some(Info::BlockSize(sizes)) => blocks = sizes,
                    Some(_) => {}
                    None => return Err("the server describes its export wrongly".into()),
                },
                rep::ERR_UNKNOWN => return Err(format!("the server has no export {export:?}")),
                kind => {
                    return Err(format!("the server refuses the export {export:?} (reply {kind:#x})"));
                }
            }
            self.received.drain(..len);
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
