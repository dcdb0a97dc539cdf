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
//! other threads may encrypt or decrypt (`exchange.rs`). The cipher's state is read-only
//! and shared by all queues.
//!
//! A disk of several ranges, each under a cipher of its own or in the clear, is one such device: what
//! differs from range to range is the cipher and nothing else (`cipher_map.rs`), so threads, queues and
//! open files are as many as under one cipher.
//!
//! Tags of authenticated volumes will travel in the same buffer, behind the data: a buffer can be longer than its data,
//! and be split and joined without copying. So neither [`Request`](crate::Request) nor a layer in between has to change
//! for them.

mod exchange;
mod policy;
mod queue;

use std::sync::{Arc, Mutex};

use cryptline_cipher::SectorCipher;
use cryptline_sys::{Backend, BackendChoice, Ring, Stopwatch};

use self::exchange::Exchange;
use self::policy::SharingPolicy;
use self::queue::PlacedCipher;
use crate::cipher_map::CipherMap;
pub use crate::cipher_map::{CipherRange, Zeroes};
use crate::dispatch::{CipherPace, Dispatch, DispatchMode, HelperThreads, Workers};
use crate::gate::Gate;
use crate::queue::AtOnce;
use crate::zone::{Zone, ZoneModel};
use crate::{Device, Extent, Fault, Geometry, OpenError, Queue, Traits};

/// Where the encrypted data lies, what may pass, and who runs the cipher.
#[derive(Clone, Default)]
pub struct CryptOptions {
    /// First byte of the data on the lower device.
    pub start: u64,
    /// Size of the clear disk in bytes; `None` for all that is left, and it grows with the device below.
    pub size: Option<u64>,
    /// Pass discards down, and with [`Zeroes::Detect`] zero by zeroing the lower device. Both show which
    /// sectors are unused.
    pub allow_discards: bool,
    /// The smallest I/O in bytes where that is less than a cipher sector; `None` for a cipher sector.
    ///
    /// Offered by the device where the cipher can be cut that finely and the lower device has such blocks (XTS: a write
    /// of part of a cipher sector overwrites those bytes, and nothing is read). Elsewhere the device stays with the
    /// least that it can do; a [`SubBlockDevice`](crate::layer::SubBlockDevice) over it does the rest.
    pub logical_block: Option<u32>,
    /// Content of a hole.
    pub zeroes: Zeroes,
    /// Threads that run the cipher.
    pub dispatch: Dispatch,
    /// Helpers under [`DispatchMode::Auto`]; without any, it is [`DispatchMode::Inline`].
    pub helpers: Option<HelperThreads>,
}

/// The clear disk.
pub struct CryptDevice {
    lower: Gate,
    cipher_map: Arc<CipherMap>,
    start: u64,
    geometry: Geometry,
    /// Bytes in a cipher sector, of a disk that grows in whole ones.
    grows_by: Option<u32>,
    dispatch: Dispatch,
    helpers: Option<(HelperThreads, CipherPace)>,
    /// The threads of `queue`, started with the first queue.
    workers: Mutex<Option<Arc<Workers>>>,
}

impl CryptDevice {
    /// Lays `cipher` over `lower`.
    ///
    /// Errors: the data does not fit on the lower device, is not aligned to its blocks, or is not
    /// a whole number of cipher sectors.
    pub fn new(lower: Gate, cipher: SectorCipher, options: CryptOptions) -> Result<Self, OpenError> {
        let sector = cipher.sector_size();
        let len = match options.size {
            Some(size) => size,
            None => {
                let left = bytes_from(options.start, lower.geometry())?;
                left - left % u64::from(sector)
            }
        };
        let grows = options.size.is_none() && lower.geometry().zones.is_none();
        let cipher = Some(cipher);
        let device = Self::of_ranges(lower, vec![CipherRange { len, cipher }], options)?;
        Ok(Self { grows_by: grows.then_some(sector), ..device })
    }

    /// Lays ciphers over `lower`, each over its range: one behind the other, whatever size `options`
    /// has.
    ///
    /// Errors: as [`new`](Self::new), or a range ends inside a block.
    pub fn of_ranges(lower: Gate, ranges: Vec<CipherRange>, options: CryptOptions) -> Result<Self, OpenError> {
        let below = *lower.geometry();
        let ciphers = || ranges.iter().filter_map(|range| range.cipher.as_ref());
        let sectors = ciphers().map(SectorCipher::sector_size);
        let sector = sectors.max().unwrap_or(below.logical_block);
        let block = logical_block(ciphers(), options.logical_block, below.logical_block)?;
        let size = size_of(&ranges, options.start, block, &below)?;
        let zones = zones_above(&below, options.start, options.size, sector)?;
        let cipher_map = CipherMap::new(ranges, options.zeroes);
        let geometry = Geometry {
            zones,
            size,
            logical_block: block,
            preferred_block: below.preferred_block.max(sector),
            discard: below.discard && options.allow_discards,
            write_zeroes: below.write_zeroes && may_zero(&cipher_map, options.allow_discards),
            ..below
        };
        // Encrypting nothing is not worth anybody's help.
        let helpers = options.helpers.filter(|helpers| helpers.count() > 0);
        let helpers = helpers.and_then(|helpers| Some((helpers, CipherPace::of(cipher_map.first()?))));
        Ok(Self {
            lower,
            helpers,
            cipher_map: Arc::new(cipher_map),
            start: options.start,
            geometry,
            grows_by: None,
            dispatch: Dispatch {
                // As dm-crypt has it: a zoned device gets its writes from their submitters.
                write: match options.dispatch.write {
                    DispatchMode::Queue if zones.is_some() => DispatchMode::Inline,
                    mode => mode,
                },
                ..options.dispatch
            },
            workers: Mutex::new(None),
        })
    }
}

/// Bytes of a device from `start` on.
fn bytes_from(start: u64, below: &Geometry) -> Result<u64, OpenError> {
    below.size.checked_sub(start).ok_or_else(|| {
        OpenError::Geometry(format!(
            "the data starts at byte {start}, past the end of the device ({} bytes); is the file cut short?",
            below.size
        ))
    })
}

/// Bytes in all ranges, which are to lie on a device from `start` on, and on the clear disk in blocks of
/// `block` bytes.
fn size_of(ranges: &[CipherRange], start: u64, block: u32, below: &Geometry) -> Result<u64, OpenError> {
    let left = bytes_from(start, below)?;
    let size = ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.len));
    let size = size.unwrap_or(u64::MAX);
    if size == 0 {
        return Err(OpenError::Geometry(format!(
            "there is no room for data after byte {start}; is the file cut short?"
        )));
    }
    if size > left {
        return Err(OpenError::Geometry(format!(
            "the volume needs {size} bytes at offset {start}, the device has only {left} there; is the file cut short?"
        )));
    }
    let mut at = 0;
    for CipherRange { len, cipher } in ranges {
        let sector = cipher.as_ref().map_or(below.logical_block, SectorCipher::sector_size);
        if *len == 0 || !len.is_multiple_of(u64::from(sector)) {
            return Err(OpenError::Geometry(format!(
                "a volume of {len} bytes is not a whole number of {sector}-byte sectors"
            )));
        }
        if !start.is_multiple_of(u64::from(below.logical_block)) || sector % below.logical_block != 0 {
            return Err(OpenError::Blocks(format!(
                "data at byte {start} in {sector}-byte sectors does not fit the device's {}-byte blocks",
                below.logical_block
            )));
        }
        if !(at | len).is_multiple_of(u64::from(block)) {
            return Err(OpenError::Geometry(format!(
                "the range of {len} bytes at byte {at} is not aligned to the volume's logical block, {block} bytes"
            )));
        }
        at += len;
    }
    Ok(size)
}

impl Device for CryptDevice {
    fn traits(&self) -> Traits {
        let beside = usize::from(self.dispatch.has_writer());
        let at_once = if self.has_exchange() { AtOnce::None } else { self.lower.traits().at_once };
        Traits { geometry: self.geometry, at_once, ..Traits::over(self.below()).with_beside(beside) }
    }

    fn grow(&self) -> u64 {
        let Some(sector) = self.grows_by else {
            return self.geometry.size;
        };
        let left = self.lower.grow().saturating_sub(self.start);
        left - left % u64::from(sector)
    }

    fn below(&self) -> &[Gate] {
        std::slice::from_ref(&self.lower)
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        let (cipher_map, start, watch) = (Arc::clone(&self.cipher_map), self.start, self.watch(ring));
        let cipher = PlacedCipher { cipher_map, start, watch };
        // First: it reserves places on the ring, which the queue below counts with.
        let exchange = self.open_exchange(&cipher, ring)?;
        let lower = self.lower.open_queue(ring)?;
        Ok(Box::new(queue::over(lower, cipher, exchange, ring.depth())))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let range = self.cipher_map.find(offset);
        let len = len.min(range.end() - offset);
        let mut extent = self.lower.extent(self.start + offset, len)?;
        // Elsewhere a hole below reads as the decryption of zeros, which is noise.
        extent.zero &= range.zeroes_are_zeroes();
        if let Some(place) = range.place() {
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
fn zones_above(below: &Geometry, start: u64, size: Option<u64>, sector: u32) -> Result<Option<ZoneModel>, OpenError> {
    let Some(zones) = below.zones else {
        return Ok(None);
    };
    let ZoneModel { zone_size, write_granularity, .. } = zones;
    let fail = |what| Err(OpenError::Geometry(what));
    if !start.is_multiple_of(zone_size) {
        return fail(format!(
            "the data start at byte {start}, inside a zone of {zone_size} bytes; use a data offset of whole zones, or a detached header"
        ));
    }
    if size.is_some_and(|size| !size.is_multiple_of(zone_size) && start + size != below.size) {
        return fail(format!(
            "a volume of {} bytes is not whole zones of {zone_size} bytes; use a size that is",
            size.unwrap_or_default()
        ));
    }
    if !write_granularity.is_multiple_of(sector) {
        return fail(format!(
            "cipher sectors of {sector} bytes do not divide the zones' write granularity of {write_granularity} bytes, so a crash could leave half of one; use a sector size of {write_granularity}"
        ));
    }
    Ok(Some(ZoneModel { append_limit: 0, ..zones }))
}

impl CryptDevice {
    /// Tells if its queues share requests or hand them on.
    fn has_exchange(&self) -> bool {
        let Dispatch { read, write, .. } = self.dispatch;
        let uses_helpers = self.helpers.is_some() && (read == DispatchMode::Auto || write == DispatchMode::Auto);
        uses_helpers || self.dispatch.uses_workers()
    }

    /// Opens the exchange that a queue needs to let others work for it; `None` where it never does.
    fn open_exchange(&self, cipher: &PlacedCipher, ring: &mut Ring) -> Result<Option<Exchange>, OpenError> {
        if !self.has_exchange() {
            return Ok(None);
        }
        let workers = if self.dispatch.uses_workers() { Some(self.workers(ring)?) } else { None };
        let policy = SharingPolicy::over(self.lower.traits(), self.dispatch, self.helpers.clone());
        Exchange::open(policy, workers, cipher.clone(), self.lower.geometry(), ring).map(Some)
    }

    /// The ring's stopwatch; where there is no cipher, one that nobody switches on.
    fn watch(&self, ring: &Ring) -> Arc<Stopwatch> {
        if self.cipher_map.is_null() { Arc::default() } else { Arc::clone(ring.stopwatch()) }
    }

    fn workers(&self, ring: &Ring) -> Result<Arc<Workers>, OpenError> {
        let mut workers = cryptline_sys::lock(&self.workers);
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

/// Tells if zeroing may be left to the device below. Zeros on the medium are not always zeros in the clear; and where
/// they are, they show which blocks are zero, as discards show which are unused.
fn may_zero(cipher_map: &CipherMap, allow_discards: bool) -> bool {
    cipher_map.zeroes_are_zeroes() && (allow_discards || cipher_map.is_null())
}

/// A run that ends where a place does: one that is zero in a part of it only is not zero in the clear.
fn in_places(extent: Extent, len: u64, place: u64) -> Extent {
    let whole = extent.len - extent.len % place;
    match extent.zero {
        _ if whole == extent.len || extent.len == len => extent,
        true if whole > 0 => Extent { len: whole, ..extent },
        _ => Extent { len: (whole + place).min(len), hole: false, zero: false },
    }
}

/// The smallest I/O of the clear disk: as asked for, or the next above it that needs no more than
/// an overwrite under each of the ciphers.
fn logical_block<'a>(
    ciphers: impl Iterator<Item = &'a SectorCipher> + Clone,
    wanted: Option<u32>,
    below: u32,
) -> Result<u32, OpenError> {
    let largest = ciphers.clone().map(SectorCipher::sector_size).max();
    let largest = largest.unwrap_or(below);
    let wanted = wanted.unwrap_or(largest);
    if !wanted.is_power_of_two() || !(512..=largest).contains(&wanted) {
        return Err(OpenError::Geometry(format!(
            "a logical block of {wanted} bytes is not possible: use a power of two from 512 to the \
             cipher sector, {largest}"
        )));
    }
    let blocks = ciphers.map(|cipher| {
        let least = wanted.max(below).max(cipher.granularity());
        least.min(cipher.sector_size())
    });
    Ok(blocks.max().unwrap_or(below).max(below))
}

#[cfg(test)]
fn any_cipher() -> SectorCipher {
    let options = cryptline_cipher::SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
    let spec = cryptline_cipher::CipherSpec::parse("aes-xts-plain64").unwrap();
    let key: Vec<u8> = (0..64).collect();
    SectorCipher::new(&spec, &key, options).unwrap()
}
