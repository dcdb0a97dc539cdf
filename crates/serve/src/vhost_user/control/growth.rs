//! A disk that grows while it is served: its queues take requests for what is new, and the front-end is told.
//!
//! The control thread looks once a second, where the front-end listens (`BACKEND_REQ`), tells the queues by their
//! mailboxes, and then the front-end.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, sendmsg};

use super::{ConnectionEnd, VhostSession};
use crate::vhost_user::mailbox::Letter;
use crate::vhost_user::messages::{VhostMessage, config_change};

/// How often a front-end that wants to be told is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// Where the front-end listens to what it has not asked for.
#[derive(Default)]
pub(super) struct GrowthListener {
    channel: Option<OwnedFd>,
    /// Bytes of the disk as it knows them from here. One that comes back to another server does not ask.
    known: Option<u64>,
}

impl GrowthListener {
    /// The front-end has read the size, or has been told to.
    pub fn knows(&mut self, size: u64) {
        self.known = Some(size);
    }

    /// Says that the configuration has changed. Without waiting: who does not read is told at the next look.
    fn tell(&mut self, size: u64) {
        let is_news = self.known != Some(size);
        let Some(channel) = self.channel.as_ref().filter(|_| is_news) else {
            return;
        };
        let bytes = config_change();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let control = &mut SendAncillaryBuffer::default();
        match sendmsg(channel, &[IoSlice::new(&bytes)], control, flags) {
            Ok(len) if len == bytes.len() => self.knows(size),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Nobody listens, or no more of it could be understood.
            Ok(_) | Err(_) => self.channel = None,
        }
    }
}

impl VhostSession<'_> {
    /// Returns once there is a message. Looks for growth meanwhile, where somebody wants to know of it.
    pub(super) fn watch_growth(&mut self) -> Result<(), ConnectionEnd> {
        while self.listener.channel.is_some() && !self.host.connection.has_news(LOOK)? {
            self.look_for_growth();
            self.listener.tell(self.shape.geometry.size);
        }
        Ok(())
    }

    /// Queues that run take requests for all of the disk when it returns.
    pub(super) fn look_for_growth(&mut self) {
        let size = self.host.size();
        if size != self.shape.geometry.size {
            self.shape.geometry.size = size;
            for vring in &self.vrings {
                vring.tell(Letter::Size(size), self.host);
            }
            (self.host.log)(&format!("the disk has grown to {size} bytes"));
        }
    }

    pub(super) fn set_listener(&mut self, mut message: VhostMessage) -> Result<(), ConnectionEnd> {
        let channel = message.descriptor()?;
        // Others may do more with what is sent than to receive it.
        if socket_domain(&channel) != Ok(AddressFamily::UNIX) {
            return Err(ConnectionEnd::refused("what it wants to be told by is no Unix socket"));
        }
        self.listener.channel = Some(channel);
        Ok(())
    }
}
