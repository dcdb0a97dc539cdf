//! State of the write cache: what the driver has set, or believes.
//!
//! A driver that has turned the write cache off flushes no more, so each of its writes is durable before it ends. It
//! says so once, and a front-end does not repeat it to the next server. So what it has set is noted in the buffer that
//! the front-end keeps. Where that does not say it, the cache is on only if this machine must have read here that it
//! is: its front-end has read it, and each queue begins in a ring that no server has had. A ring's base alone does not
//! tell that, since each lap returns to it, and a machine may move before its first request; so each server leaves a mark in
//! a ring that it opens. Otherwise nobody knows what the driver believes, and its writes are durable.
//!
//! A front-end keeps what it has read, and may tell it to drivers that agree on other features later. So once it has
//! read that the cache is off, it is off until a driver turns it on.
//!
//! "Off" is noted before the front-end is answered, "on" after.

use cryptline_sys::{GuestFault, GuestRange};

use super::{MessageAnswer, VhostSession, feature};
use crate::vhost_user::config::{CAPACITY, SPACE_MAX, WRITE_CACHE_AT, place_in_space};
use crate::vhost_user::connection::ConnectionEnd;
use crate::vhost_user::messages::VhostMessage;

/// Bytes of the record, behind the parts of the queues.
pub(super) const RECORD: usize = 64;
/// The first of them, where the cache is on, and where it is off. Anything else says nothing.
const ON: u64 = u64::from_le_bytes(*b"cache on");
const OFF: u64 = u64::from_le_bytes(*b"cacheoff");

#[derive(Default)]
pub(super) struct WriteCache {
    /// Setting of the driver, here or at an earlier server; off as well where the front-end has read that.
    set: Option<bool>,
    /// The front-end has read here that the cache is on, before it had a queue.
    was_read: bool,
    has_begun: bool,
    /// A queue went on where an earlier server had left it.
    is_resumed: bool,
    record: Option<GuestRange>,
    /// The front-end does not know yet that the cache was turned on.
    is_unanswered: bool,
}

impl WriteCache {
    /// Tells if the driver is known to flush what is to be durable.
    fn is_on(&self, features: u64) -> bool {
        let has = |bit| features & bit != 0;
        has(feature::FLUSH) && (!has(feature::WRITE_CACHE) || self.known() == Some(true))
    }

    fn known(&self) -> Option<bool> {
        let believes = self.was_read && self.has_begun && !self.is_resumed;
        self.set.or(believes.then_some(true))
    }

    /// Tells what the configuration space says.
    fn reported(&self, features: u64) -> bool {
        // Firmware agrees on neither, and would be told so for the driver that follows it.
        let has_no_flush = features & feature::WRITE_CACHE != 0 && features & feature::FLUSH == 0;
        self.set.unwrap_or(!self.is_resumed) && !has_no_flush
    }

    /// The front-end is about to read whether it is on.
    fn is_read(&mut self, is_on: bool) -> Result<(), GuestFault> {
        if is_on {
            self.was_read |= !self.has_begun;
            return Ok(());
        }
        self.set = Some(false);
        self.note()
    }

    /// A queue begins for the first time: in a ring that no server has had, or not.
    pub fn begin(&mut self, is_fresh: bool) {
        self.has_begun = true;
        self.is_resumed |= !is_fresh;
    }

    /// Another buffer is kept by the front-end. What it has from an earlier server counts where nothing was set here.
    pub fn keep_in(&mut self, record: Option<GuestRange>) {
        let noted = record.as_ref().map(|it| it.load64(0));
        self.record = record;
        self.set = self.set.or(match noted {
            Some(Ok(ON)) => Some(true),
            Some(Ok(OFF)) => Some(false),
            _ => None,
        });
    }

    fn set(&mut self, on: bool) -> Result<(), GuestFault> {
        self.set = Some(on);
        // "Off" is noted before the front-end is told, "on" after it: in between, the driver may believe either.
        self.is_unanswered = on;
        self.note()
    }

    /// The front-end has its answer.
    pub fn answered(&mut self) {
        if std::mem::take(&mut self.is_unanswered) {
            // What is there instead costs time and no data.
            let _ = self.note();
        }
    }

    /// Tells the next server, also that nothing is known any more.
    pub fn note(&self) -> Result<(), GuestFault> {
        let Some(record) = self.record.as_ref().filter(|_| !self.is_unanswered) else {
            return Ok(());
        };
        let value = match self.known() {
            Some(true) => ON,
            Some(false) => OFF,
            None => 0,
        };
        record.store64(0, value)
    }
}

impl VhostSession<'_> {
    pub(super) fn get_config(&mut self, message: &VhostMessage) -> Result<MessageAnswer, ConnectionEnd> {
        let (offset, asked) = message.config()?;
        self.look_for_growth();
        let is_on = self.cache.reported(self.features);
        let space = self.shape.space(is_on);
        let start = place_in_space(offset);
        let range = start..start.saturating_add(asked.len());
        let Some(bytes) = space.get(range.clone()) else {
            let count = asked.len();
            (self.host.log)(&format!(
                "it asks for {count} bytes of the configuration at {offset:#x}, which has {SPACE_MAX}, and gets none"
            ));
            // No bytes, which means that there are none.
            return Ok(Some((Vec::new(), None)));
        };
        if range.start == 0 && range.end >= CAPACITY {
            self.listener.knows(self.shape.geometry.size);
        }
        if range.contains(&WRITE_CACHE_AT) {
            self.cache.is_read(is_on).map_err(untold)?;
        }
        Ok(Some(([&message.payload[..12], bytes].concat(), None)))
    }

    /// Turns the write cache on or off, which is all that there is to set.
    pub(super) fn set_config(&mut self, message: &VhostMessage) -> Result<(), ConnectionEnd> {
        let (offset, bytes) = message.config()?;
        // A driver may turn it off before the front-end says which features were taken.
        let is_possible = self.shape.features() & feature::WRITE_CACHE != 0;
        let is_there = place_in_space(offset) == WRITE_CACHE_AT;
        let on = match bytes {
            [0] if is_possible && is_there => false,
            [1] if is_possible && is_there => true,
            _ => return Err(ConnectionEnd::refused("it sets what can not be set in the configuration")),
        };
        let noted = self.cache.set(on);
        let settled = self.settle_cache();
        if on && settled.is_err() {
            // The driver may believe either. Queues that did start again make each write durable once more.
            let _ = self.cache.set(false);
            let _ = self.settle_cache();
            return settled;
        }
        noted.map_err(untold)?;
        settled
    }

    /// All queues that run know whether writes are cached when it returns. One that does not start again stays down, and
    /// the first such is why it is refused.
    pub(super) fn settle_cache(&mut self) -> Result<(), ConnectionEnd> {
        let is_cached = self.cache.is_on(self.features);
        if std::mem::replace(&mut self.is_cached, is_cached) == is_cached {
            return Ok(());
        }
        let is_running = |index: &usize| self.vrings[*index].running.is_some();
        let running: Vec<_> = (0..self.vrings.len()).filter(is_running).collect();
        self.halt(0..self.vrings.len());
        let mut settled = Ok(());
        for index in running {
            settled = settled.and(self.start(index));
        }
        settled
    }
}

/// Why the buffer that the front-end keeps is of no use.
pub(super) fn untold(error: GuestFault) -> ConnectionEnd {
    ConnectionEnd::refused(format!("the next server could not be told of the write cache: {error}"))
}
