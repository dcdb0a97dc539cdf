//! One client of the control socket: a line in, a line out, until either side ends.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cryptline_sys::peer_of;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Uid;

use super::wire::{FILES_MAX, LINE_MAX};
use crate::CliError;
use crate::serve::doors::DoorClient;
use crate::serve::events;

/// How long a client may make no room for the next bytes of a reply.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// Bytes that it must make room for in that time.
const PIECE: usize = 32 * 1024;

/// Input of a client.
pub struct ControlSession<'a> {
    stream: BorrowedFd<'a>,
    input: Vec<u8>,
    /// Each with the place of the last byte that was received with it: the kernel lets a read end there.
    files: Vec<(usize, OwnedFd)>,
}

/// A line without its end, and the descriptors that came with it.
pub struct ControlLine {
    pub text: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Why there is no more line.
#[derive(Debug)]
pub enum InputEnd {
    /// The client has left.
    Gone,
    /// The client is told why it must.
    Refused(CliError),
}

impl<'a> ControlSession<'a> {
    /// Nothing came so far.
    pub fn new(stream: &'a impl AsFd) -> Self {
        Self { stream: stream.as_fd(), input: Vec::new(), files: Vec::new() }
    }

    /// Waits for the next line. What comes behind the last line end is none.
    ///
    /// # Errors
    /// Where there is none.
    pub fn next_line(&mut self) -> Result<ControlLine, InputEnd> {
        loop {
            if let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
                let mut text: Vec<u8> = self.input.drain(..=end).collect();
                text.truncate(end);
                let files = self.files_to(end);
                return Ok(ControlLine { text, files });
            }
            if self.input.len() >= LINE_MAX {
                return Err(InputEnd::Refused(CliError::parameters(format!(
                    "a line has at most {LINE_MAX} bytes; send one command in each"
                ))));
            }
            match self.receive() {
                Ok(true) => {}
                Ok(false) | Err(InputEnd::Gone) => return Err(InputEnd::Gone),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Those that came with the line that ends at `end`, which is drained.
    fn files_to(&mut self, end: usize) -> Vec<OwnedFd> {
        let ours = self.files.partition_point(|(place, _)| *place <= end);
        let ours = self.files.drain(..ours).map(|(_, file)| file).collect();
        for (place, _) in &mut self.files {
            *place -= end + 1;
        }
        ours
    }

    /// Some bytes, and the descriptors that come with them; `false` at the end.
    fn receive(&mut self) -> Result<bool, InputEnd> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(self.stream, &mut parts, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                Err(_) => return Err(InputEnd::Gone),
                Ok(received) => break received,
            }
        };
        let last = (self.input.len() + received.bytes).saturating_sub(1);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files.map(|file| (last, file)));
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.files.len() > FILES_MAX {
            return Err(InputEnd::Refused(CliError::parameters(format!(
                "a line comes with at most {FILES_MAX} descriptors, and this server could not take all of them; \
                 send fewer, or raise its `ulimit -n`"
            ))));
        }
        self.input.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes > 0)
    }
}

/// Sends a line.
///
/// # Errors
/// Where the client is gone, or does not read.
pub fn send(client: &DoorClient, line: &[u8]) -> io::Result<()> {
    line.chunks(PIECE).try_for_each(|piece| client.send(piece, Instant::now() + REPLY_MAX))
}

/// Verifies that the client may give commands: it is this user, or root. Returns which.
///
/// # Errors
/// Answer that it gets otherwise.
pub fn check_user(stream: impl AsFd) -> Result<Uid, CliError> {
    let ours = rustix::process::geteuid();
    let theirs = peer_of(stream).map(|peer| peer.uid);
    match theirs {
        Ok(user) if user == ours || user.is_root() => Ok(user),
        user => {
            events::of_stranger(user.ok().map(Uid::as_raw));
            Err(CliError::parameters(format!("only root and the user {} may control this server", ours.as_raw())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::os::unix::net::UnixStream;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_sent_and_their_rest_is_dropped() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            for byte in b"one\n" {
                theirs.write_all(&[*byte]).unwrap();
            }
            theirs.write_all(b"two\n\nfour").unwrap();
        });
        let mut session = ControlSession::new(&ours);
        for expected in [&b"one"[..], b"two", b""] {
            assert_eq!(session.next_line().unwrap_or_else(|_| panic!()).text, expected);
        }
        assert!(matches!(session.next_line(), Err(InputEnd::Gone)));
        sender.join().unwrap();
    }

    /// Sends a line with a descriptor of /dev/null.
    fn send_with_file(stream: &UnixStream, line: &[u8]) {
        let null = std::fs::File::open("/dev/null").unwrap();
        let files = [null.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        let parts = [IoSlice::new(line)];
        let sent = sendmsg(stream, &parts, &mut ancillary, SendFlags::empty());
        assert_eq!(sent, Ok(line.len()));
    }

    #[test]
    fn descriptors_belong_to_the_line_they_were_sent_with() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // All of it is there before the first read.
        theirs.write_all(b"list\n").unwrap();
        send_with_file(&theirs, b"add\n");
        theirs.write_all(b"list\nad").unwrap();
        send_with_file(&theirs, b"d\n");
        send_with_file(&theirs, b"add\n");
        drop(theirs);
        let mut session = ControlSession::new(&ours);
        for (text, files) in [("list", 0), ("add", 1), ("list", 0), ("add", 1), ("add", 1)] {
            let line = session.next_line().unwrap_or_else(|_| panic!());
            let text_read = String::from_utf8(line.text).unwrap();
            assert_eq!((text_read.as_str(), line.files.len()), (text, files));
        }
    }

    #[test]
    fn a_line_without_end_is_refused_when_it_is_too_long() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || theirs.write_all(&vec![b' '; 1 << 20]));
        let refused = ControlSession::new(&ours).next_line();
        assert!(matches!(refused, Err(InputEnd::Refused(_))));
        drop(ours);
        // The rest is read by nobody.
        assert!(sender.join().unwrap().is_err());
    }
}
