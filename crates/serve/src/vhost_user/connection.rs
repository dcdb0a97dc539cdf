//! One front-end's socket: whole messages in, replies out, until it leaves or the server is to stop.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::messages::{DESCRIPTORS_MAX, HEADER, MessageError, MessageHeader, VhostMessage};
use crate::net::{StopHandle, has_hung_up};

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    /// Closed between two messages, or because the server is to stop.
    #[error("closed")]
    Well,
    #[error("{0}")]
    Message(#[from] MessageError),
    #[error("its socket failed: {0}")]
    Socket(#[from] io::Error),
    /// The request of a message is not in force; a queue that it was to start again may be down. Whoever has asked for
    /// an answer is told; nobody else goes on.
    #[error("{0}")]
    Refused(String),
}

impl ConnectionEnd {
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }
}

pub(super) struct FrontEndConnection {
    stream: UnixStream,
    stop: StopHandle,
}

impl FrontEndConnection {
    pub fn new(stream: UnixStream, stop: &StopHandle) -> Self {
        let stop = stop.clone();
        Self { stream, stop }
    }

    /// Tells if the other side has gone, so that nobody waits for an answer.
    pub fn is_gone(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// Tells if a message has begun to come, or the connection has ended, within `patience`.
    pub fn has_news(&self, patience: Duration) -> Result<bool, ConnectionEnd> {
        let timeout = Timespec::try_from(patience).ok();
        self.poll(PollFlags::IN, timeout.as_ref())
    }

    /// The next message, whole.
    pub fn receive(&self) -> Result<VhostMessage, ConnectionEnd> {
        let mut descriptors = Vec::new();
        let mut header = [0; HEADER];
        // Even a peer that never pauses is not listened to for longer than the server runs.
        self.wait_for(PollFlags::IN)?;
        if !self.fill(&mut header, &mut descriptors)? {
            return Err(ConnectionEnd::Well);
        }
        let header = MessageHeader::parse(header)?;
        let mut payload = vec![0; header.size];
        if !self.fill(&mut payload, &mut descriptors)? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(VhostMessage { header, payload, descriptors })
    }

    /// Receives all of `target`. `false` where the peer has closed before its first byte.
    fn fill(&self, target: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<bool, ConnectionEnd> {
        let mut filled = 0;
        while filled < target.len() {
            match self.receive_some(&mut target[filled..], descriptors) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(len) => filled += len,
                Err(Errno::AGAIN) => self.wait_for(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(ConnectionEnd::Well),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(true)
    }

    fn receive_some(&self, target: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let parts = &mut [IoSliceMut::new(target)];
        let received = recvmsg(&self.stream, parts, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                descriptors.extend(files);
            }
        }
        let is_flood = descriptors.len() > DESCRIPTORS_MAX;
        if received.flags.contains(ReturnFlags::CTRUNC) || is_flood {
            // Descriptors that there was no room for.
            return Err(Errno::TOOMANYREFS);
        }
        Ok(received.bytes)
    }

    /// Sends a reply, with a descriptor where there is one.
    pub fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), ConnectionEnd> {
        let (mut left, mut descriptor) = (bytes, descriptor);
        while !left.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = descriptor.as_slice();
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(files));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let parts = [io::IoSlice::new(left)];
            match sendmsg(&self.stream, &parts, &mut control, flags) {
                Ok(len) => {
                    left = &left[len..];
                    descriptor = None;
                }
                Err(Errno::AGAIN) => self.wait_for(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready.
    fn wait_for(&self, events: PollFlags) -> Result<(), ConnectionEnd> {
        self.poll(events, None).map(drop)
    }

    /// Tells if the socket is ready; not where the time was over before, or a signal came.
    fn poll(&self, events: PollFlags, timeout: Option<&Timespec>) -> Result<bool, ConnectionEnd> {
        let mut polled = [
            PollFd::from_borrowed_fd(self.stream.as_fd(), events),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, timeout) {
            Ok(_) if !polled[1].revents().is_empty() => Err(ConnectionEnd::Well),
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}
