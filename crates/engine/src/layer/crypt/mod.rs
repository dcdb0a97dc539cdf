//! `crypt`: the clear disk over an encrypted one, as dm-crypt lays it out.
//!
//! A request goes straight through, on the thread that submitted it:
//!
//! ```text
//! read    shift ─► lower ─► decrypt in place, in the caller's buffer
//! write   encrypt in place, in the request's own buffer ─► shift ─► lower
//! flush, discard   shift ─► lower
//! ```
//!
//! There is one pass of the cipher over the data, no second buffer, no allocation, no lock and no
//! other thread (`queue.rs`). Where the dispatch says otherwise a request is cut into pieces, which
//! other threads may encrypt or decrypt (`exchange.rs`, `split.rs`). The cipher's state is read-only
//! and shared by all queues.

mod exchange;
mod policy;
mod queue;
mod shared;
mod split;

use std::sync::{Arc, Mutex, PoisonError};

use cryptline_cipher::SectorCipher;
use cryptline_sys::{Backend, BackendChoice, Ring};

use self::exchange::Exchange;
use self::queue::InlineQueue;
use self::shared::SharedQueue;
use crate::cipher_map::CipherMap;
pub use crate::cipher_map::Zeroes;
use crate::dispatch::{Dispatch, Helpers, Mode, Pace, Workers};
use crate::gate::Gate;
use crate::zone::{Zone, ZoneModel};
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue};

/// Where the encrypted data lies, what may pass, and who runs the cipher.
#[derive(Clone, Default)]
pub struct CryptOptions {
    /// First byte of the data on the lower device.
    pub start: u64,
    /// Size of the clear disk in bytes; `None` for all that is left.
    pub size: Option<u64>,
    /// Pass discards down, and with [`Zeroes::Detect`] zero by zeroing the lower device. Both show which
    /// sectors are unused.
    pub allow_discards: bool,
    /// The smallest I/O in bytes where that is less than a cipher sector; `None` for a cipher sector.
    ///
    /// It is what the device offers where the cipher can be cut that finely and the lower device has
    /// such blocks (XTS: a write of part of a cipher sector overwrites those bytes, and nothing is
    /// read). Elsewhere the device stays with the least that it can do; a
    /// [`SubBlockDevice`](crate::layer::SubBlockDevice) over it does the rest.
    pub logical_block: Option<u32>,
    /// What a hole shows.
    pub zeroes: Zeroes,
    /// Who runs the cipher.
    pub dispatch: Dispatch,
    /// Who helps under [`Mode::Auto`]; without any, it is [`Mode::Inline`].
    pub helpers: Option<Helpers>,
}

/// The clear disk.
pub struct CryptDevice {
    lower: Gate,
    cipher_map: Arc<CipherMap>,
    start: u64,
    geometry: Geometry,
    dispatch: Dispatch,
    helpers: Option<(Helpers, Pace)>,
    /// The threads of `queue`, started with the first queue.
    workers: Mutex<Option<Arc<Workers>>>,
}

impl CryptDevice {
    /// Lays `cipher` over `lower`.
    ///
    /// Errors: the data does not fit on the lower device, is not aligned to its blocks, or is not
    /// a whole number of cipher sectors.
    pub fn new(
        lower: Gate,
        cipher: SectorCipher,
        options: CryptOptions,
    ) -> Result<Self, OpenError> {
        let below = *lower.geometry();
        let sector = cipher.sector_size();
        let left = below.size.checked_sub(options.start).ok_or_else(|| {
            OpenError::Geometry(format!(
                "the data starts at byte {}, past the end of the device ({} bytes); is the file cut short?",
                options.start, below.size
            ))
        })?;
        let size = match options.size {
            Some(size) if size > left => {
                return Err(OpenError::Geometry(format!(
                    "the volume needs {size} bytes at offset {}, the device has only {left} there; is the file cut short?",
                    options.start
                )));
            }
            Some(size) if !size.is_multiple_of(u64::from(sector)) => {
                return Err(OpenError::Geometry(format!(
                    "a volume of {size} bytes is not a whole number of {sector}-byte sectors"
                )));
            }
            Some(size) => size,
            None => left - left % u64::from(sector),
        };
        if size == 0 {
            return Err(OpenError::Geometry(format!(
                "there is no room for data after byte {}; is the file cut short?",
                options.start
            )));
        }
        let block = u64::from(below.logical_block);
        if !options.start.is_multiple_of(block) || !u64::from(sector).is_multiple_of(block) {
            return Err(OpenError::Blocks(format!(
                "data at byte {} in {sector}-byte sectors does not fit the device's {block}-byte blocks",
                options.start
            )));
        }
        let cipher_map = CipherMap::new(cipher, options.zeroes);
        let zones = zones_above(&below, options.start, options.size, sector)?;
        let geometry = Geometry {
            zones,
            size,
            logical_block: logical_block(
                &cipher_map.cipher,
                options.logical_block,
                below.logical_block,
            )?,
            preferred_block: below.preferred_block.max(sector),
            discard: below.discard && options.allow_discards,
            write_zeroes: below.write_zeroes && may_zero(&cipher_map, options.allow_discards),
            ..below
        };
        // Encrypting nothing is not worth anybody's help.
        let helpers = options
            .helpers
            .filter(|helpers| helpers.count() > 0 && !cipher_map.cipher.is_null());
        Ok(Self {
            lower,
            helpers: helpers.map(|helpers| (helpers, Pace::of(&cipher_map.cipher))),
            cipher_map: Arc::new(cipher_map),
            start: options.start,
            geometry,
            dispatch: Dispatch {
                // As dm-crypt has it: a zoned device gets its writes from their submitters.
                write: match options.dispatch.write {
                    Mode::Queue if zones.is_some() => Mode::Inline,
                    mode => mode,
                },
                ..options.dispatch
            },
            workers: Mutex::new(None),
        })
    }
}

impl Device for CryptDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        // First: it reserves places on the ring, which those that follow count with.
        let exchange = self.open_exchange(ring)?;
        let lower = self.lower.open_queue(ring)?;
        let (cipher_map, start) = (Arc::clone(&self.cipher_map), self.start);
        let inline = InlineQueue::new(lower, cipher_map, start, ring.depth());
        Ok(match exchange {
            Some(exchange) => Box::new(SharedQueue::new(inline, exchange)),
            None => Box::new(inline),
        })
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let mut extent = self.lower.extent(self.start + offset, len)?;
        // Elsewhere a hole below reads as the decryption of zeros, which is noise.
        extent.zero &= self.cipher_map.zeroes_are_zeroes();
        if let Some(place) = self.cipher_map.place() {
            extent = in_places(extent, len, place);
        }
        Ok(extent)
    }

    fn report_zones(&self, offset: u64, zones: &mut [Zone]) -> Result<usize, Fault> {
        let count = self.lower.report_zones(self.start + offset, zones)?;
        let mut mine = 0;
        for zone in zones.iter_mut().take(count) {
            zone.start = zone.start.saturating_sub(self.start);
            // That of an offline zone may be anything.
            zone.write_pointer = zone.write_pointer.wrapping_sub(self.start);
            mine += usize::from(zone.start < self.geometry.size);
        }
        Ok(mine)
    }
}

/// The zones of the clear disk. It has whole zones, and no appends of its own: where one goes must
/// be known before it is encrypted (`layer/zoned` gives it its place).
fn zones_above(
    below: &Geometry,
    start: u64,
    size: Option<u64>,
    sector: u32,
) -> Result<Option<ZoneModel>, OpenError> {
    let Some(zones) = below.zones else {
        return Ok(None);
    };
    let ZoneModel {
        zone_size,
        write_granularity,
        ..
    } = zones;
    let fail = |what| Err(OpenError::Geometry(what));
    if !start.is_multiple_of(zone_size) {
        return fail(format!(
            "the data start at byte {start}, inside a zone of {zone_size} bytes; use a data offset of whole zones, or a detached header"
        ));
    }
    if size.is_some_and(|size| !size.is_multiple_of(zone_size) && start + size != below.size) {
        return fail(format!(
            "a volume of {} bytes is not whole zones of {zone_size} bytes; give a size that is",
            size.unwrap_or_default()
        ));
    }
    if !write_granularity.is_multiple_of(sector) {
        return fail(format!(
            "cipher sectors of {sector} bytes do not divide the zones' write granularity of {write_granularity} bytes, so a crash could leave half of one; use a sector size of {write_granularity}"
        ));
    }
    Ok(Some(ZoneModel {
        append_limit: 0,
        ..zones
    }))
}

impl CryptDevice {
    /// What a queue needs to let others work for it; `None` where it never does.
    fn open_exchange(&self, ring: &mut Ring) -> Result<Option<Exchange>, OpenError> {
        let Dispatch { read, write, .. } = self.dispatch;
        let uses_helpers = self.helpers.is_some() && (read == Mode::Auto || write == Mode::Auto);
        if !uses_helpers && !self.dispatch.uses_workers() {
            return Ok(None);
        }
        let workers = if self.dispatch.uses_workers() {
            Some(self.workers(ring)?)
        } else {
            None
        };
        let exchange = Exchange::open(exchange::Parts {
            dispatch: self.dispatch,
            helpers: self.helpers.clone(),
            workers,
            lower: &self.lower,
            cipher_map: &self.cipher_map,
            start: self.start,
            ring,
        })?;
        Ok(Some(exchange))
    }

    fn workers(&self, ring: &Ring) -> Result<Arc<Workers>, OpenError> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workers) = &*workers {
            return Ok(Arc::clone(workers));
        }
        let backend = match ring.backend() {
            Backend::IoUring { .. } => BackendChoice::Auto,
            Backend::Syscalls => BackendChoice::Syscalls,
            Backend::Simulated(kernel) => BackendChoice::Simulated(kernel),
        };
        let started = Workers::start(self.dispatch, &self.lower, self.start, backend)?;
        Ok(Arc::clone(workers.insert(Arc::new(started))))
    }
}

/// Whether zeroing may be left to the device below. Zeros on the medium are not always zeros in the
/// clear; and where they are, they show which blocks are zero, as discards show which are unused.
fn may_zero(cipher_map: &CipherMap, allow_discards: bool) -> bool {
    cipher_map.zeroes_are_zeroes() && (allow_discards || cipher_map.cipher.is_null())
}

/// A run that ends where a place does: one that is zero in a part of it only is not zero in the clear.
fn in_places(extent: Extent, len: u64, place: u64) -> Extent {
    let whole = extent.len - extent.len % place;
    match extent.zero {
        _ if whole == extent.len || extent.len == len => extent,
        true if whole > 0 => Extent {
            len: whole,
            ..extent
        },
        _ => Extent {
            len: (whole + place).min(len),
            hole: false,
            zero: false,
        },
    }
}

/// The smallest I/O of the clear disk: as asked for, or the next above it that needs no more than
/// an overwrite.
fn logical_block(cipher: &SectorCipher, wanted: Option<u32>, below: u32) -> Result<u32, OpenError> {
    let sector = cipher.sector_size();
    let wanted = wanted.unwrap_or(sector);
    if !wanted.is_power_of_two() || !(512..=sector).contains(&wanted) {
        return Err(OpenError::Geometry(format!(
            "a logical block of {wanted} bytes is not possible: give a power of two from 512 to the \
             cipher sector, {sector}"
        )));
    }
    Ok(wanted.max(below).max(cipher.granularity()).min(sector))
}
