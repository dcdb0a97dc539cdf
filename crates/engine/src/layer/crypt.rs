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
//! other thread. The cipher's state is read-only and shared by all queues.
//!
//! Finished reads are first all taken from the layer below and then decrypted, small ones before
//! large ones: a long decryption must not hold up a short one.

use std::sync::Arc;
use std::time::Instant;

use cryptline_cipher::SectorCipher;
use cryptline_sys::Ring;

use crate::gate::{Gate, GatedQueue};
use crate::{
    Completion, Device, Extent, Fault, Geometry, OpenError, Operation, Queue, Request, Submitted,
};

/// A read of more bytes than this is decrypted after the smaller ones.
const LARGE: usize = 64 * 1024;

/// Where the encrypted data lies, and what may pass.
#[derive(Clone, Copy, Debug)]
pub struct CryptOptions {
    /// First byte of the data on the lower device.
    pub start: u64,
    /// Size of the clear disk in bytes; `None` for all that is left.
    pub size: Option<u64>,
    /// Pass discards down. They show which sectors are unused.
    pub allow_discards: bool,
}

/// The clear disk.
pub struct CryptDevice {
    lower: Gate,
    cipher: Arc<SectorCipher>,
    start: u64,
    geometry: Geometry,
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
            return Err(OpenError::Geometry(format!(
                "data at byte {} in {sector}-byte sectors does not fit the device's {block}-byte blocks; use --direct=off",
                options.start
            )));
        }
        let geometry = Geometry {
            size,
            logical_block: sector,
            preferred_block: below.preferred_block.max(sector),
            discard: below.discard && options.allow_discards,
            // Zeros on the medium are not zeros in the clear, except under the null cipher.
            write_zeroes: below.write_zeroes && cipher.is_null(),
            ..below
        };
        Ok(Self {
            lower,
            cipher: Arc::new(cipher),
            start: options.start,
            geometry,
        })
    }
}

impl Device for CryptDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn open_queue(&self, ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(CryptQueue {
            lower: self.lower.open_queue(ring)?,
            cipher: Arc::clone(&self.cipher),
            start: self.start,
            measuring: false,
            crypto_time_ns: 0,
        }))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        let mut extent = self.lower.extent(self.start + offset, len)?;
        // A hole below reads as the decryption of zeros, which is noise.
        extent.zero &= self.cipher.is_null();
        Ok(extent)
    }
}

struct CryptQueue {
    lower: GatedQueue,
    cipher: Arc<SectorCipher>,
    start: u64,
    measuring: bool,
    crypto_time_ns: u64,
}

impl Queue for CryptQueue {
    fn submit(&mut self, ring: &mut Ring, mut request: Request) -> Submitted {
        let sector = request.offset / 512;
        if let Operation::Write { data, .. } = &mut request.operation {
            let started = self.clock();
            self.cipher.encrypt_in_place(sector, data);
            self.note(started);
        }
        // The gate has checked the sum for all but a flush, which has no range and any offset.
        request.offset = request.offset.wrapping_add(self.start);
        match self.lower.submit(ring, request) {
            Submitted::Done(mut completion) => {
                self.finish(&mut completion);
                Submitted::Done(completion)
            }
            Submitted::Pending => Submitted::Pending,
        }
    }

    fn poll(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) {
        let before = done.len();
        self.lower.poll(ring, done);
        let finished = &mut done[before..];
        if finished.iter().any(is_large) {
            // Stable for our purpose, in place, and the number is small.
            finished.sort_unstable_by_key(is_large);
        }
        for completion in finished {
            self.finish(completion);
        }
    }

    fn measure(&mut self, on: bool) {
        self.measuring = on && !self.cipher.is_null();
        self.lower.measure(on);
    }

    fn crypto_time_ns(&self) -> u64 {
        self.crypto_time_ns + self.lower.crypto_time_ns()
    }
}

impl CryptQueue {
    /// Undoes on the way up what `submit` did on the way down.
    fn finish(&mut self, completion: &mut Completion) {
        let request = &mut completion.request;
        request.offset = request.offset.wrapping_sub(self.start);
        if let (Operation::Read(buffer), Ok(())) = (&mut request.operation, completion.result) {
            let started = self.clock();
            self.cipher.decrypt_in_place(request.offset / 512, buffer);
            self.note(started);
        }
    }

    fn clock(&self) -> Option<Instant> {
        self.measuring.then(Instant::now)
    }

    fn note(&mut self, started: Option<Instant>) {
        if let Some(started) = started {
            let elapsed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.crypto_time_ns = self.crypto_time_ns.saturating_add(elapsed);
        }
    }
}

fn is_large(completion: &Completion) -> bool {
    matches!(&completion.request.operation, Operation::Read(buffer) if buffer.len() > LARGE)
}
