//! The buffer that a front-end keeps for the next server: a part for each queue, and what the driver has set.

use std::io;
use std::os::fd::OwnedFd;

use cryptline_sys::GuestRange;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;

use super::cache::{RECORD, untold};
use super::{MessageAnswer, VhostSession, unmappable};
use crate::vhost_user::connection::ConnectionEnd;
use crate::vhost_user::inflight::size_of_queue;
use crate::vhost_user::messages::{InflightPlace, MessageError, VhostMessage};

/// The buffer's parts for queues.
pub(super) struct Inflight {
    /// For all queues, mapped once.
    memory: GuestRange,
    place: InflightPlace,
}

impl VhostSession<'_> {
    pub(super) fn get_inflight(&self, message: &VhostMessage) -> Result<MessageAnswer, ConnectionEnd> {
        let asked = message.inflight()?;
        let queues = 1..=self.shape.queues;
        let sizes = 1..=self.shape.queue_size_max();
        if !queues.contains(&asked.queues) || !sizes.contains(&asked.queue_size) {
            return Err(ConnectionEnd::refused(format!(
                "it asks for a buffer for {} queues of {} places, and up to {} of {} are served",
                asked.queues,
                asked.queue_size,
                queues.end(),
                sizes.end()
            )));
        }
        let size = self.size_of_parts(&asked) + RECORD as u64;
        let made = memfd_create("inflight", MemfdFlags::CLOEXEC);
        // Its other pages come with the queues that use them: whoever asks again and again takes none of our memory.
        let made = made.and_then(|file| pwrite(&file, &[0], size - 1).map(|_| file));
        let file = made.map_err(io::Error::from)?;
        let place = InflightPlace { size, offset: 0, ..asked };
        let payload = place.encode(message.payload.len());
        Ok(Some((payload, Some(file))))
    }

    pub(super) fn set_inflight(&mut self, mut message: VhostMessage) -> Result<(), ConnectionEnd> {
        let place = message.inflight()?;
        let wrong = MessageError::Descriptors(message.header.request);
        let file = message.descriptors.pop().ok_or(wrong)?;
        let all = self.size_of_parts(&place);
        if place.size < all {
            return Err(ConnectionEnd::refused("its buffer for requests under way is too small"));
        }
        let queues = place.queues.min(self.shape.queues);
        let len = self.size_of_part(&place) * usize::from(queues);
        let memory = GuestRange::map(&file, place.offset, len).map_err(unmappable)?;
        let record = map_record(&file, &place, all).map_err(unmappable)?;
        self.inflight = Some(Inflight { memory, place });
        self.cache.keep_in(record);
        let settled = self.settle_cache();
        self.cache.note().map_err(untold)?;
        settled
    }

    /// The part of the inflight buffer that belongs to a queue.
    pub(super) fn inflight_of(&self, index: usize) -> io::Result<Option<GuestRange>> {
        let Some(Inflight { memory, place }) = &self.inflight else {
            return Ok(None);
        };
        let is_there = index < usize::from(place.queues);
        if !is_there || place.queue_size < self.vrings[index].size {
            let why = "its buffer for requests under way has no place for this queue";
            return Err(io::Error::other(why));
        }
        let len = self.size_of_part(place);
        let part = memory.part(len * index, len);
        part.map(Some).map_err(io::Error::other)
    }

    fn size_of_parts(&self, place: &InflightPlace) -> u64 {
        self.size_of_part(place) as u64 * u64::from(place.queues)
    }

    /// Bytes of one queue.
    fn size_of_part(&self, place: &InflightPlace) -> usize {
        size_of_queue(place.queue_size, self.is_packed())
    }
}

/// The record behind the parts of the queues. A buffer of another program's making may end with these; one that has
/// it counts with it only, since the next server would believe what is there.
fn map_record(file: &OwnedFd, place: &InflightPlace, parts: u64) -> io::Result<Option<GuestRange>> {
    if place.size - parts < RECORD as u64 {
        return Ok(None);
    }
    let at = place.offset.checked_add(parts);
    let at = at.ok_or(io::ErrorKind::InvalidInput)?;
    GuestRange::map(file, at, RECORD).map(Some)
}
