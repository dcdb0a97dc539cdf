//! One front-end: its messages, one after another, and what they do to the queues.
//!
//! A queue runs from its first kick descriptor on, in a thread of its own, until the front-end asks for its base,
//! resets the device, or leaves. Whatever changes meanwhile it is told by its mailbox.

mod cache;
mod growth;
mod inflight;
mod memory;

use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cryptline_sys::{DirtyLog, GuestMemory};
use rustix::fs::{FileType, OFlags, fstat};

use self::cache::WriteCache;
use self::growth::GrowthListener;
use self::inflight::Inflight;
use super::config::{DiskShape, SectorLimits, feature};
use super::connection::ConnectionEnd;
use super::mailbox::Letter;
use super::messages::{Addresses, MessageError, REGIONS_MAX, VhostMessage, protocol, reply, request};
use super::queue::VirtqueueLayout;
use super::running::{Host, RunningQueue};

/// The answer to a message, with a descriptor perhaps; none where it was taken, and that is all there is to say.
type MessageAnswer = Option<(Vec<u8>, Option<OwnedFd>)>;

/// One virtqueue as the front-end has described it.
#[derive(Default)]
struct Vring {
    size: u16,
    addresses: Option<Addresses>,
    base: u32,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    error: Option<Arc<OwnedFd>>,
    is_enabled: bool,
    running: Option<RunningQueue>,
    has_run: bool,
}

/// One front-end's state.
pub(super) struct VhostSession<'a> {
    host: &'a Host,
    shape: DiskShape,
    features: u64,
    protocol: u64,
    memory: Arc<GuestMemory>,
    /// Regions that were taken back and for which no other has come.
    taken_back: usize,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<Inflight>,
    cache: WriteCache,
    listener: GrowthListener,
    /// As the queues know it.
    is_cached: bool,
    status: u8,
    vrings: Vec<Vring>,
}

impl<'a> VhostSession<'a> {
    pub fn new(host: &'a Host, shape: DiskShape) -> Self {
        Self {
            host,
            shape,
            features: 0,
            protocol: 0,
            memory: Arc::default(),
            taken_back: 0,
            log: None,
            inflight: None,
            cache: WriteCache::default(),
            listener: GrowthListener::default(),
            is_cached: false,
            status: 0,
            vrings: (0..shape.queues).map(|_| Vring::default()).collect(),
        }
    }

    /// Serves the front-end until it leaves. Its queues have ended when this returns.
    pub fn run(mut self) -> Result<(), ConnectionEnd> {
        let result = loop {
            if let Err(ended) = self.serve_one() {
                break ended;
            }
            self.cache.answered();
        };
        self.end_queues();
        match result {
            ConnectionEnd::Well => Ok(()),
            ended => Err(ended),
        }
    }

    fn serve_one(&mut self) -> Result<(), ConnectionEnd> {
        self.watch_growth()?;
        let message = self.host.connection.receive()?;
        let header = message.header;
        let acknowledges = header.needs_reply && self.protocol & protocol::REPLY_ACK != 0;
        let (payload, descriptor) = match self.handle(message) {
            Ok(Some(answer)) => answer,
            Ok(None) if acknowledges => (0u64.to_ne_bytes().into(), None),
            Ok(None) => return Ok(()),
            Err(ConnectionEnd::Refused(why)) if acknowledges => {
                (self.host.log)(&why);
                (1u64.to_ne_bytes().into(), None)
            }
            Err(ended) => return Err(ended),
        };
        let bytes = reply(header.request, &payload);
        self.host.connection.send(&bytes, descriptor.as_ref().map(AsFd::as_fd))
    }

    fn handle(&mut self, message: VhostMessage) -> Result<MessageAnswer, ConnectionEnd> {
        let number = |value: u64| Ok(Some((value.to_ne_bytes().into(), None)));
        match message.header.request {
            request::GET_FEATURES => return number(self.shape.features()),
            request::GET_PROTOCOL_FEATURES => return number(protocol::ALL),
            request::GET_QUEUE_NUM => return number(self.shape.queues.into()),
            request::GET_MAX_MEM_SLOTS => return number(REGIONS_MAX as u64),
            request::GET_STATUS => return number(self.status.into()),
            request::GET_CONFIG => return self.get_config(&message),
            request::GET_INFLIGHT_FD => return self.get_inflight(&message),
            request::GET_VRING_BASE => return self.get_base(&message),
            request::SET_LOG_BASE => {
                self.set_log(message)?;
                // An answer is due even where none is asked for.
                return number(0);
            }
            request::SET_OWNER => {}
            request::SET_FEATURES => self.set_features(message.number()?)?,
            request::SET_PROTOCOL_FEATURES => self.protocol = message.number()? & protocol::ALL,
            request::SET_MEM_TABLE => self.set_memory(message)?,
            request::ADD_MEM_REG => self.add_memory(message)?,
            request::REM_MEM_REG => self.remove_memory(message)?,
            request::SET_CONFIG => self.set_config(&message)?,
            request::SET_BACKEND_REQ_FD => self.set_listener(message)?,
            request::SET_LOG_FD => {
                let why = "it wants to be told of each page that is written; it has to look at its log";
                return Err(ConnectionEnd::refused(why));
            }
            request::SET_INFLIGHT_FD => self.set_inflight(message)?,
            request::RESET_OWNER | request::RESET_DEVICE => {
                // The rings that follow are new ones. A status of 0 may also be a pause.
                self.reset();
                self.inflight = None;
            }
            request::SET_STATUS => {
                self.status = u8::try_from(message.number()? & 0xff).unwrap_or(0);
                if self.status == 0 {
                    self.reset();
                }
            }
            request::SET_VRING_NUM | request::SET_VRING_BASE | request::SET_VRING_ENABLE => self.set_queue(&message)?,
            request::SET_VRING_ADDR => self.set_addresses(&message)?,
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_descriptor(message)?
            }
            unknown => return Err(MessageError::Unknown(unknown).into()),
        }
        Ok(None)
    }

    fn set_features(&mut self, features: u64) -> Result<(), ConnectionEnd> {
        let unknown = features & !self.shape.features();
        if unknown != 0 {
            return Err(ConnectionEnd::refused(format!("it takes features that were not offered ({unknown:#x})")));
        }
        let has_changed = (self.features ^ features) & feature::LOG != 0;
        self.features = features;
        if has_changed && self.log.is_some() {
            self.share_again();
        }
        if features & feature::PROTOCOL == 0 {
            for index in 0..self.vrings.len() {
                self.enable(index, true);
            }
        }
        self.settle_cache()
    }

    /// Stops everything; what the front-end has described stays.
    fn reset(&mut self) {
        self.status = 0;
        self.halt(0..self.vrings.len());
        for vring in &mut self.vrings {
            vring.is_enabled = false;
        }
    }

    fn index(&self, message: u32, number: u64) -> Result<usize, MessageError> {
        let index = usize::try_from(number).ok();
        let index = index.filter(|index| *index < self.vrings.len());
        index.ok_or(MessageError::Queue(message, number))
    }

    fn get_base(&mut self, message: &VhostMessage) -> Result<MessageAnswer, ConnectionEnd> {
        let (number, _) = message.queue_state()?;
        let index = self.index(message.header.request, number)?;
        self.halt(index..index + 1);
        let payload = [&message.payload[..4], &self.vrings[index].base.to_ne_bytes()].concat();
        Ok(Some((payload, None)))
    }

    fn set_queue(&mut self, message: &VhostMessage) -> Result<(), ConnectionEnd> {
        let (number, value) = message.queue_state()?;
        let request = message.header.request;
        let index = self.index(request, number)?;
        let small = u16::try_from(value).ok();
        match request {
            request::SET_VRING_ENABLE => self.enable(index, value != 0),
            request::SET_VRING_BASE if small.is_some() || self.is_packed() => self.vrings[index].base = value,
            request::SET_VRING_BASE => return Err(ConnectionEnd::refused(format!("queue {index} begins at {value}"))),
            _ => {
                let size = small.filter(|size| self.is_size(*size)).ok_or_else(|| {
                    let most = self.shape.queue_size_max();
                    ConnectionEnd::refused(format!("queue {index} has {value} places, and up to {most} are served"))
                })?;
                self.vrings[index].size = size;
            }
        }
        Ok(())
    }

    fn is_packed(&self) -> bool {
        self.features & feature::RING_PACKED != 0
    }

    fn is_size(&self, size: u16) -> bool {
        let is_possible = self.is_packed() || size.is_power_of_two();
        is_possible && (1..=self.shape.queue_size_max()).contains(&size)
    }

    fn set_addresses(&mut self, message: &VhostMessage) -> Result<(), ConnectionEnd> {
        let (number, addresses) = message.queue_addresses()?;
        let index = self.index(message.header.request, number)?;
        let vring = &mut self.vrings[index];
        let has_moved = vring.addresses.replace(addresses) != Some(addresses);
        if has_moved && vring.running.is_some() {
            self.halt(index..index + 1);
            self.start(index)?;
        }
        Ok(())
    }

    fn set_descriptor(&mut self, message: VhostMessage) -> Result<(), ConnectionEnd> {
        let request = message.header.request;
        let (number, file) = message.queue_descriptor()?;
        let index = self.index(request, number)?;
        let file = file.map(checked_event).transpose().map_err(|error| {
            ConnectionEnd::refused(format!("queue {index}: a descriptor that can not be used: {error}"))
        })?;
        let file = file.map(Arc::new);
        let vring = &mut self.vrings[index];
        match request {
            request::SET_VRING_CALL => {
                vring.call.clone_from(&file);
                vring.tell(Letter::Call(file), self.host);
            }
            request::SET_VRING_ERR => {
                vring.error.clone_from(&file);
                vring.tell(Letter::Error(file), self.host);
            }
            _ => {
                self.halt(index..index + 1);
                self.vrings[index].kick = file;
                self.start(index)?;
            }
        }
        Ok(())
    }

    fn enable(&mut self, index: usize, on: bool) {
        let vring = &mut self.vrings[index];
        vring.is_enabled = on;
        vring.tell(Letter::Enable(on), self.host);
    }

    fn start(&mut self, index: usize) -> Result<(), ConnectionEnd> {
        let refused = |why: &dyn Display| ConnectionEnd::refused(format!("queue {index}{why}"));
        if let Some(what) = self.lacks() {
            return Err(refused(&format_args!(" is started {what}")));
        }
        let without = || refused(&" is started without a size or without addresses");
        let layout = self.layout(index).ok_or_else(without)?;
        if !std::mem::replace(&mut self.vrings[index].has_run, true) {
            self.cache.begin(layout.is_fresh(&self.memory));
        }
        self.settle_cache()?;
        self.cache.note().map_err(|error| refused(&format_args!(": {error}")))?;
        let inflight = self.inflight_of(index).map_err(|error| refused(&format_args!(": {error}")))?;
        let vring = &self.vrings[index];
        let mut limits = SectorLimits::new(&self.shape.geometry, self.features);
        limits.flushes = self.is_cached;
        let start = super::wire::VirtqueueStart {
            layout,
            memory: Arc::clone(&self.memory),
            lacks_memory: self.taken_back > 0,
            inflight,
            kick: vring.kick.clone(),
            call: vring.call.clone(),
            error: vring.error.clone(),
            is_enabled: vring.is_enabled,
            limits,
            serial: self.host.serial,
            mailbox: Arc::default(),
            log: self.host.log_of(index),
        };
        let started = RunningQueue::start(self.host, index, start);
        self.vrings[index].running = Some(started.map_err(|error| refused(&format_args!(": {error}")))?);
        Ok(())
    }

    /// Returns what is missing that no queue can do without.
    fn lacks(&self) -> Option<&'static str> {
        if self.features & feature::VERSION_1 == 0 {
            return Some("by a driver of before virtio 1.0: VERSION_1 was not agreed on");
        }
        if self.protocol & protocol::CONFIG == 0 {
            return Some("without CONFIG among the protocol features: nobody could know the disk's size");
        }
        let is_empty = self.memory.is_empty();
        is_empty.then_some("without shared memory (QEMU shares its memory-backend with share=on)")
    }

    /// Where a queue lies, once the front-end has told all of it.
    fn layout(&self, index: usize) -> Option<VirtqueueLayout> {
        let vring = &self.vrings[index];
        let addresses = vring.addresses.filter(|_| vring.size > 0)?;
        let is_on = |bit| self.features & bit != 0;
        Some(VirtqueueLayout {
            size: vring.size,
            descriptors: addresses.descriptors,
            available: addresses.available,
            used: addresses.used,
            base: vring.base,
            is_packed: self.is_packed(),
            event_idx: is_on(feature::EVENT_IDX),
            indirect: is_on(feature::INDIRECT),
        })
    }

    /// Stops queues, all of whose requests have ended when this returns, and notes where they are to go on.
    fn halt(&mut self, queues: Range<usize>) {
        let vrings = self.vrings[queues].iter_mut();
        let mut halted: Vec<_> = vrings.filter(|it| it.running.is_some()).collect();
        let running = halted.iter_mut().filter_map(|it| it.running.take());
        let bases = RunningQueue::halt(running.collect(), self.host);
        for (vring, base) in halted.into_iter().zip(bases) {
            vring.base = base;
        }
    }

    /// Ends all queues of a front-end that is gone, or of a server that stops.
    fn end_queues(&mut self) {
        let running = self.vrings.iter_mut().filter_map(|it| it.running.take());
        let running: Vec<_> = running.collect();
        RunningQueue::end(running, self.host);
    }
}

impl Vring {
    fn tell(&self, letter: Letter, host: &Host) {
        if let Some(running) = &self.running {
            running.tell(letter, host);
        }
    }
}

fn unmappable(error: io::Error) -> ConnectionEnd {
    ConnectionEnd::refused(format!("the memory that it shares can not be used: {error}"))
}

/// A descriptor of the kernel's own kind, as eventfds are: reading and writing it never takes long, as it could with a
/// file or a pipe. Whatever the front-end has made of it: nobody waits for it but the ring, which knows how.
fn checked_event(file: OwnedFd) -> io::Result<OwnedFd> {
    let mode = fstat(&file)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Unknown {
        return Err(io::Error::other("it is no eventfd"));
    }
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
    Ok(file)
}
