//! The client's end of a control socket.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use cryptline_sys::peer_of;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Uid, geteuid};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::CliError;
use crate::serve::control::wire::{ControlReply, ControlRequest, FILES_MAX, LINE_MAX, parse};

/// Longest reply that is read, in bytes.
const REPLY_MAX: u64 = 4 << 20;

/// A server that takes commands.
pub struct ControlConnection {
    stream: BufReader<UnixStream>,
    name: String,
}

impl ControlConnection {
    /// Connects to the server at `socket`.
    ///
    /// # Errors
    /// Exit code 4 where there is none.
    pub fn to(socket: &Path) -> Result<Self, CliError> {
        let name = socket.display().to_string();
        let stream = UnixStream::connect(socket).map_err(|error| {
            CliError::device(format!(
                "no server at {name}: {error}; use the socket of a running `cryptline serve --control SOCKET`"
            ))
        })?;
        let stream = BufReader::new(stream);
        Ok(Self { stream, name })
    }

    /// Refuses whoever listens there unless the kernel says that it is root, this user, or `expected`. It is who listened,
    /// so the name of the socket may lead anywhere.
    ///
    /// # Errors
    /// Exit code 4.
    // Guard: whoever listens would get the volume key.
    pub fn check_user(&self, expected: Option<Uid>) -> Result<(), CliError> {
        let refused = |who: &str, next: &str| CliError::device(format!("{}: {who} listens there{next}", self.name));
        let listens = peer_of(self.stream.get_ref()).map(|peer| peer.uid);
        let listens = listens.map_err(|error| CliError::device(format!("{}: {error}", self.name)))?;
        if listens.is_root() || listens == geteuid() || Some(listens) == expected {
            return Ok(());
        }
        let number = listens.as_raw();
        let next = if geteuid().is_root() {
            format!(", who would get the volume key; --server-user {number} says that this is right")
        } else {
            ", neither root nor you; use the socket of your own server".to_owned()
        };
        Err(refused(&format!("user {number}"), &next))
    }

    /// Sends a command, with open files where it takes some, and waits for what comes of it.
    ///
    /// # Errors
    /// Why nothing did.
    pub fn ask(
        &mut self,
        command: &str,
        arguments: &impl Serialize,
        files: &[BorrowedFd<'_>],
    ) -> Result<Value, CliError> {
        let Value::Object(arguments) = json!(arguments) else {
            return Err(self.nonsense());
        };
        let line = line(command, arguments)?;
        let sent = send(self.stream.get_ref(), line.as_bytes(), files);
        // A server that refuses us has said why before it closed.
        let mut reply = Vec::new();
        let mut limited = (&mut self.stream).take(REPLY_MAX);
        let read = limited.read_until(b'\n', &mut reply);
        let failed = |error| CliError::device(format!("{}: {error}", self.name));
        if reply.is_empty() {
            sent.map_err(failed)?;
            read.map_err(failed)?;
            return Err(CliError::device(format!(
                "{}: the server has ended, or others took all places; try again",
                self.name
            )));
        }
        let Ok(reply) = parse::<ControlReply>(&reply) else {
            return Err(self.nonsense());
        };
        match (reply.returned, reply.error) {
            (Some(returned), None) => Ok(returned),
            (None, Some(failure)) => Err(failure.into_error()),
            _ => Err(self.nonsense()),
        }
    }

    fn nonsense(&self) -> CliError {
        CliError::device(format!("{} is no control socket; use that of `cryptline serve --control SOCKET`", self.name))
    }
}

fn line(command: &str, arguments: Map<String, Value>) -> Result<String, CliError> {
    let request = ControlRequest { execute: command.to_owned(), arguments, id: None };
    let line = json!(request).to_string() + "\n";
    if line.len() > LINE_MAX {
        return Err(CliError::parameters("the command is too long; choose shorter names and paths"));
    }
    Ok(line)
}

fn send(mut stream: &UnixStream, line: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(line)];
    let sent = sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&line[sent..])
}
