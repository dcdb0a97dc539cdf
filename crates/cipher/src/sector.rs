//! A cipher with its key, ready to work on whole requests of cipher sectors.

use thiserror::Error;

use crate::cpu::{BackendError, XtsBackend};
use crate::iv::{IvLayout, IvSequence};
use crate::modes::{KeySizes, Modes};
use crate::spec::{CipherSpec, IvMode, SpecError};
use crate::xts::{XtsKernel, kernel};

/// Bytes in a sector, always (dm's unit; not the cipher sector).
const SECTOR_BYTES: u32 = 512;

/// Settings of a table or header for sectors and IVs, besides the cipher word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorOptions {
    /// Bytes in a cipher sector: 512, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// Added to the sector number, in 512-byte sectors. A multiple of the cipher sector.
    pub iv_offset: u64,
    /// Count IVs in cipher sectors instead of 512-byte sectors.
    pub iv_large_sectors: bool,
}

/// Why a cipher could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CipherError {
    /// The cipher is not one that can be served.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The key does not fit the cipher.
    #[error("Error decoding and setting key ({cipher} takes {expected} and this one has {actual} bytes)")]
    KeySize {
        /// The cipher word.
        cipher: String,
        /// Allowed sizes, as text.
        expected: String,
        /// Size of the key in bytes.
        actual: usize,
    },
    /// The cipher sector size is not 512, 1024, 2048 or 4096 bytes.
    #[error("Invalid feature value for sector_size (512, 1024, 2048 and 4096 are possible, not {0})")]
    SectorSize(u32),
    /// `iv_offset` is not a multiple of the cipher sector.
    #[error("Invalid iv_offset sector ({iv_offset} is not a multiple of {multiple})")]
    IvOffset {
        /// The offset in 512-byte sectors.
        iv_offset: u64,
        /// Required divisor of the offset, in 512-byte sectors.
        multiple: u64,
    },
    /// loop-AES and TrueCrypt know sectors of 512 bytes only.
    #[error("Error creating IV (lmk and tcw need sector_size:512)")]
    IvNeedsSmallSectors,
    /// The back end asked for cannot be had.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A cipher with its expanded key: immutable, shared between threads, wiped when dropped.
///
/// Everything secret about it is in key memory ([`cryptline_sys::SecretBox`]). Making one leaves copies on
/// the stack: do it on one that is wiped ([`cryptline_sys::on_secret_stack`]).
///
/// Has neither `Debug` nor `Clone`, so that no key is printed or multiplied.
pub struct SectorCipher {
    engine: SectorEngine,
    sector_size: u32,
    /// Those of the cipher sectors from place 0 on.
    ivs: IvSequence,
}

enum SectorEngine {
    Null,
    Xts(Box<dyn XtsKernel>),
    Modes(Modes),
}

impl SectorCipher {
    /// Expands `key` for `spec`. The caller wipes its own copy of the key.
    ///
    /// # Errors
    /// An unsupported cipher, a key of a wrong size, an impossible sector size, an `iv_offset`
    /// that is not a multiple of it, a back end in [`crate::CPU_VARIABLE`] that cannot be had.
    pub fn new(spec: &CipherSpec, key: &[u8], options: SectorOptions) -> Result<SectorCipher, CipherError> {
        SectorCipher::with_backend(spec, key, options, XtsBackend::selected()?)
    }

    /// [`SectorCipher::new`] on the given back end, whatever [`crate::CPU_VARIABLE`] says.
    ///
    /// # Errors
    /// As [`SectorCipher::new`], and a back end that this CPU cannot run.
    pub fn with_backend(
        spec: &CipherSpec,
        key: &[u8],
        options: SectorOptions,
        backend: XtsBackend,
    ) -> Result<SectorCipher, CipherError> {
        spec.check_supported()?;
        SectorCipher::check_key_size(spec, key.len())?;
        let size = options.sector_size;
        if !(512..=4096).contains(&size) || !size.is_power_of_two() {
            return Err(CipherError::SectorSize(size));
        }
        let multiple = u64::from(size / SECTOR_BYTES);
        if !options.iv_offset.is_multiple_of(multiple) {
            let iv_offset = options.iv_offset;
            return Err(CipherError::IvOffset { iv_offset, multiple });
        }
        if size != SECTOR_BYTES && matches!(spec.iv_mode(), IvMode::Lmk | IvMode::Tcw) {
            return Err(CipherError::IvNeedsSmallSectors);
        }
        let large = options.iv_large_sectors;
        Ok(SectorCipher {
            engine: SectorEngine::new(spec, key, size, backend)?,
            sector_size: size,
            ivs: IvSequence {
                layout: IvLayout::of(spec.iv_mode()),
                next: options.iv_offset,
                step: multiple,
                shift: if large { multiple.trailing_zeros() } else { 0 },
            },
        })
    }

    /// Checks that a key of `size` bytes fits `spec`: 32, 48 or 64 for `aes-xts`, 0 for the null cipher.
    /// Any size passes for a cipher that is not supported yet.
    ///
    /// # Errors
    /// [`CipherError::KeySize`].
    pub fn check_key_size(spec: &CipherSpec, size: usize) -> Result<(), CipherError> {
        let (fits, expected) = match KeySizes::of(spec) {
            _ if spec.check_supported().is_err() => return Ok(()),
            Some(sizes) => (sizes.contains(size), sizes.to_string()),
            None => (size == 0, "an empty key, -,".to_owned()),
        };
        if fits {
            return Ok(());
        }
        let cipher = spec.as_str().escape_debug().to_string();
        Err(CipherError::KeySize { cipher, expected, actual: size })
    }

    /// Encrypts `data` in place. `sector` is its place on the target in 512-byte sectors.
    ///
    /// # Panics
    /// If `data` is not a whole number of cipher sectors or `sector` not a multiple of one:
    /// both are errors of the caller that would write wrong bytes.
    pub fn encrypt_in_place(&self, sector: u64, data: &mut [u8]) {
        self.check_whole_sectors(sector, data.len());
        match &self.engine {
            SectorEngine::Null => {}
            SectorEngine::Xts(kernel) => kernel.encrypt(self.ivs(sector), self.sector_bytes(), data),
            SectorEngine::Modes(modes) => modes.encrypt(self.ivs(sector), self.sector_bytes(), data),
        }
    }

    /// Decrypts `data` in place. `sector` is its place on the target in 512-byte sectors.
    ///
    /// # Panics
    /// As [`SectorCipher::encrypt_in_place`].
    pub fn decrypt_in_place(&self, sector: u64, data: &mut [u8]) {
        self.check_whole_sectors(sector, data.len());
        match &self.engine {
            SectorEngine::Null => {}
            SectorEngine::Xts(kernel) => kernel.decrypt(self.ivs(sector), self.sector_bytes(), data),
            SectorEngine::Modes(modes) => modes.decrypt(self.ivs(sector), self.sector_bytes(), data),
        }
    }

    /// Encrypts a part of one cipher sector in place: to the bytes that encrypting the whole
    /// sector would put there. `sector` is the cipher sector's place on the target in 512-byte
    /// sectors and `offset` where `data` begins inside it, in bytes. Both come from
    /// [`SectorCipher::encrypt_range_in_place`].
    ///
    /// # Panics
    /// If `offset` or the length is not a multiple of [`SectorCipher::granularity`].
    pub(crate) fn encrypt_slice(&self, sector: u64, offset: usize, data: &mut [u8]) {
        let blocks_before = self.check_slice(offset, data.len());
        match &self.engine {
            SectorEngine::Null => {}
            SectorEngine::Xts(kernel) => kernel.encrypt_slice(self.ivs(sector), blocks_before, data),
            // The whole sector or nothing, by its granularity.
            SectorEngine::Modes(modes) => modes.encrypt(self.ivs(sector), self.sector_bytes(), data),
        }
    }

    /// Decrypts a part of one cipher sector in place; see [`SectorCipher::encrypt_slice`].
    ///
    /// # Panics
    /// As [`SectorCipher::encrypt_slice`].
    pub(crate) fn decrypt_slice(&self, sector: u64, offset: usize, data: &mut [u8]) {
        let blocks_before = self.check_slice(offset, data.len());
        match &self.engine {
            SectorEngine::Null => {}
            SectorEngine::Xts(kernel) => kernel.decrypt_slice(self.ivs(sector), blocks_before, data),
            // The whole sector or nothing, by its granularity.
            SectorEngine::Modes(modes) => modes.decrypt(self.ivs(sector), self.sector_bytes(), data),
        }
    }

    /// Bytes in a cipher sector.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.sector_size
    }

    /// Bytes that can be encrypted and decrypted alone: 16 for AES-XTS, 1 for the null cipher, the
    /// cipher sector for all else.
    #[must_use]
    pub fn granularity(&self) -> u32 {
        match self.engine {
            SectorEngine::Null => 1,
            SectorEngine::Xts(..) => 16,
            SectorEngine::Modes(_) => self.sector_size,
        }
    }

    /// Returns the name of the implementation used on this machine, for people.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        match &self.engine {
            SectorEngine::Null => "null",
            SectorEngine::Xts(kernel) => kernel.name(),
            SectorEngine::Modes(modes) => modes.name(),
        }
    }

    /// Tells if this is the cipher that encrypts nothing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.engine, SectorEngine::Null)
    }

    /// The cipher blocks before `offset`.
    fn check_slice(&self, offset: usize, len: usize) -> usize {
        let granularity = usize::try_from(self.granularity()).unwrap_or(usize::MAX);
        assert!(
            offset.is_multiple_of(granularity) && len.is_multiple_of(granularity),
            "{len} bytes at {offset} are not whole parts of {granularity} bytes"
        );
        offset / granularity
    }

    fn check_whole_sectors(&self, sector: u64, len: usize) {
        // Both are powers of two; a division would be some percent of a small request.
        assert!(
            len & (self.sector_bytes() - 1) == 0,
            "{len} bytes are not whole cipher sectors of {}",
            self.sector_size
        );
        assert!(
            sector & (self.ivs.step - 1) == 0,
            "sector {sector} is inside a cipher sector of {} bytes",
            self.sector_size
        );
    }

    /// From this sector on. Field by field: as one copy they would go through a vector register, and
    /// the first IV, for which everything waits, would come later.
    #[inline(always)]
    fn ivs(&self, sector: u64) -> IvSequence {
        IvSequence {
            layout: self.ivs.layout,
            next: sector.wrapping_add(self.ivs.next),
            step: self.ivs.step,
            shift: self.ivs.shift,
        }
    }

    fn sector_bytes(&self) -> usize {
        usize::try_from(self.sector_size).expect("at most 4096")
    }
}

impl SectorEngine {
    fn new(spec: &CipherSpec, key: &[u8], sector_size: u32, backend: XtsBackend) -> Result<SectorEngine, CipherError> {
        if spec.is_null() {
            return Ok(SectorEngine::Null);
        }
        if is_for_kernels(spec) {
            // Equal key halves are accepted: the kernel refuses them only in FIPS mode, and a
            // volume that it opens must open here.
            let kernel = kernel(backend, key).ok_or(BackendError::Unavailable { backend })?;
            return Ok(SectorEngine::Xts(kernel));
        }
        let modes = Modes::new(spec, key, sector_size, backend);
        Ok(SectorEngine::Modes(modes.expect("cipher, mode and key size were checked")))
    }
}

/// AES-XTS with one key, whose IV is nothing but the sector's number: what the `xts` module does.
fn is_for_kernels(spec: &CipherSpec) -> bool {
    use IvMode::{Null, Plain, Plain64, Plain64Be, Spdk};
    let (cipher, mode, keys) = (spec.cipher_name(), spec.chain_mode(), spec.key_count());
    (cipher, mode, keys) == ("aes", "xts", 1) && matches!(spec.iv_mode(), Plain | Plain64 | Plain64Be | Null | Spdk)
}

#[cfg(test)]
#[path = "sector_tests.rs"]
mod tests;
