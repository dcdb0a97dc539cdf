//! The memory that a front-end shares, and the log of what is written there.

use std::sync::Arc;

use cryptline_sys::{DirtyLog, GuestMemory};

use super::{VhostSession, feature, protocol, unmappable};
use crate::vhost_user::connection::ConnectionEnd;
use crate::vhost_user::mailbox::Letter;
use crate::vhost_user::messages::{MessageError, REGIONS_MAX, VhostMessage};

impl VhostSession<'_> {
    pub(super) fn set_memory(&mut self, message: VhostMessage) -> Result<(), ConnectionEnd> {
        let mut memory = GuestMemory::default();
        for (region, file) in message.memory_table()? {
            memory.add(region, &file).map_err(unmappable)?;
        }
        self.taken_back = 0;
        self.share(memory);
        Ok(())
    }

    pub(super) fn add_memory(&mut self, message: VhostMessage) -> Result<(), ConnectionEnd> {
        let request = message.header.request;
        let (region, file) = message.memory_region()?;
        let file = file.ok_or(MessageError::Descriptors(request))?;
        let mut memory = GuestMemory::clone(&self.memory);
        if memory.len() == REGIONS_MAX {
            return Err(ConnectionEnd::refused(format!("it shares more than {REGIONS_MAX} regions of memory")));
        }
        memory.add(region, &file).map_err(unmappable)?;
        self.taken_back = self.taken_back.saturating_sub(1);
        self.share(memory);
        Ok(())
    }

    pub(super) fn remove_memory(&mut self, message: VhostMessage) -> Result<(), ConnectionEnd> {
        let (region, _file) = message.memory_region()?;
        let mut memory = GuestMemory::clone(&self.memory);
        if !memory.remove(&region) {
            return Err(ConnectionEnd::refused("it takes back memory that it has not shared"));
        }
        // Front-ends replace a region in two messages, while their machine runs.
        self.taken_back = self.taken_back.saturating_add(1);
        self.share(memory);
        Ok(())
    }

    /// A log for written pages. Where the ring lies in guest memory the table of memory says, so each write to it is
    /// noted, whatever the flags and the log address of the ring are.
    pub(super) fn set_log(&mut self, message: VhostMessage) -> Result<(), ConnectionEnd> {
        if self.protocol & protocol::SHARED_LOG == 0 {
            return Err(ConnectionEnd::refused("it wants a log of written pages in memory that it does not share"));
        }
        let (file, offset, len) = message.log()?;
        self.log = Some(Arc::new(DirtyLog::map(&file, offset, len).map_err(unmappable)?));
        self.share_again();
        Ok(())
    }

    /// Shares the same memory once more, as the wish to note written pages may have changed.
    pub(super) fn share_again(&mut self) {
        self.share(GuestMemory::clone(&self.memory));
    }

    /// All queues use this memory when it returns, and note what they write if that is wanted. A ring that does not lie
    /// in it as a whole stays where it was, with its requests' data and the log that it had, until the memory has it
    /// again. While a region is taken back and no other has come, a request that lies there waits in its ring for a while.
    fn share(&mut self, mut memory: GuestMemory) {
        let is_wanted = self.features & feature::LOG != 0;
        memory.set_log(self.log.clone().filter(|_| is_wanted));
        self.memory = Arc::new(memory);
        for vring in &self.vrings {
            vring.tell(Letter::Memory(Arc::clone(&self.memory), self.taken_back > 0), self.host);
        }
    }
}
