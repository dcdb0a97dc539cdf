//! The key material of one slot: volume key ↔ anti-forensic stripes ↔ encrypted bytes on disk.
//! LUKS1 and LUKS2 differ only in where the parameters come from.

use std::io::{Read, Seek, Write};

use cryptline_cipher::{CipherError, CipherSpec, SectorCipher, SectorOptions, SpecError};
use cryptline_sys::SecretBuf;

use crate::af::{Diffuser, STRIPES};
use crate::device::{read_at, to_u64, write_at};
use crate::error::{Error, quote};
use crate::hash::Hash;
use crate::kdf::Kdf;
use crate::random::Random;

/// Longest volume key, in bytes (cryptsetup's bound as well).
pub const KEY_LEN_MAX: u32 = 512;

/// Bytes of the stripes that are in the clear at a time.
const PIECE: usize = 8192;

/// How one key slot keeps the volume key.
pub(crate) struct KeyArea {
    /// Start on the header device, in bytes.
    pub offset: u64,
    /// Cipher of the stripes, for example `aes-xts-plain64`.
    pub encryption: String,
    /// Length of that cipher's key, in bytes.
    pub encryption_key_len: u32,
    /// Hash of the anti-forensic splitter.
    pub af_hash: Hash,
    /// Passphrase to key of the area.
    pub kdf: Kdf,
    /// Length of the key kept in the slot, in bytes.
    pub key_len: u32,
}

/// Bytes on disk that the stripes of a key of `key_len` bytes take: whole sectors.
pub(crate) fn stripes_len(key_len: u32) -> u64 {
    (u64::from(key_len) * u64::from(STRIPES)).next_multiple_of(512)
}

/// Tells if `encryption` leaves data as it is.
pub(crate) fn is_null_cipher(encryption: &str) -> bool {
    encryption.contains("cipher_null") || encryption == "null" || encryption.starts_with("null-")
}

/// A cipher word from a header, with the error a header deserves.
pub(crate) fn parse_cipher(encryption: &str) -> Result<CipherSpec, Error> {
    let spec = CipherSpec::parse(encryption).map_err(spec_error)?;
    spec.check_supported().map_err(spec_error)?;
    Ok(spec)
}

impl KeyArea {
    /// Returns the content of the area if the passphrase is right, and noise if it is wrong.
    pub fn open(&self, device: &mut (impl Read + Seek), passphrase: &[u8]) -> Result<SecretBuf, Error> {
        let mut stripes = vec![0; self.stripes_len()];
        read_at(device, self.offset, &mut stripes, "a key slot")?;
        let cipher = self.cipher(passphrase)?;
        let mut key = SecretBuf::zeroed(self.key_len as usize).map_err(Error::KeyMemory)?;
        let mut clear = SecretBuf::zeroed(PIECE).map_err(Error::KeyMemory)?;
        let mut diffuser = Diffuser::new(self.af_hash, &mut key);
        for (piece, sector) in stripes.chunks(PIECE).zip((0..).step_by(PIECE / 512)) {
            let clear = &mut clear[..piece.len()];
            clear.copy_from_slice(piece);
            cipher.decrypt_in_place(sector, clear);
            diffuser.merge(clear);
        }
        Ok(key)
    }

    /// Writes `key` so that `passphrase` opens it.
    pub fn store(
        &self,
        device: &mut (impl Write + Seek),
        passphrase: &[u8],
        key: &[u8],
        random: &Random,
    ) -> Result<(), Error> {
        let mut stripes = vec![0; self.stripes_len()];
        let cipher = self.cipher(passphrase)?;
        let mut random = random.stream("stripes");
        let mut clear = SecretBuf::zeroed(PIECE).map_err(Error::KeyMemory)?;
        let mut hidden = SecretBuf::zeroed(self.key_len as usize).map_err(Error::KeyMemory)?;
        let mut diffuser = Diffuser::new(self.af_hash, &mut hidden);
        for (piece, sector) in stripes.chunks_mut(PIECE).zip((0..).step_by(PIECE / 512)) {
            let clear = &mut clear[..piece.len()];
            random.fill(clear)?;
            diffuser.split(key, clear);
            cipher.encrypt_in_place(sector, clear);
            piece.copy_from_slice(clear);
        }
        write_at(device, self.offset, &stripes)
    }

    fn stripes_len(&self) -> usize {
        (self.key_len as usize * STRIPES as usize).next_multiple_of(512)
    }

    /// The area's cipher under the key that the passphrase derives. Sectors count from the
    /// start of the area.
    fn cipher(&self, passphrase: &[u8]) -> Result<SectorCipher, Error> {
        let spec = parse_cipher(&self.encryption)?;
        // The null cipher takes no key, whatever the header says: nothing to derive.
        let null = spec.is_null();
        let key_len = if null { 0 } else { self.encryption_key_len as usize };
        let mut key = SecretBuf::zeroed(key_len).map_err(Error::KeyMemory)?;
        if !null {
            self.kdf.derive(passphrase, &mut key)?;
        }
        let options = SectorOptions { sector_size: 512, iv_offset: 0, iv_large_sectors: false };
        SectorCipher::new(&spec, &key, options).map_err(cipher_error)
    }
}

pub(crate) fn cipher_error(error: CipherError) -> Error {
    match error {
        CipherError::Spec(error) => spec_error(error),
        other => Error::invalid(other.to_string()),
    }
}

fn spec_error(error: SpecError) -> Error {
    match error {
        SpecError::NotSupportedYet(what) => Error::NotSupported(what),
        // A kernel with a driver of its own has made it.
        SpecError::UnknownCipher(name) => Error::NotSupported(format!("cipher {}", quote(&name))),
        SpecError::InvalidIvMode(name) => Error::NotSupported(format!("IV mode {}", quote(&name))),
        other => Error::invalid(other.to_string()),
    }
}

/// Where bytes lie: for checks that areas stay inside bounds and apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Area {
    /// One past the last byte; `None` beyond 2^64.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let ends_before = |a: Self, b: Self| a.end().is_some_and(|end| end <= b.offset);
        !ends_before(self, other) && !ends_before(other, self)
    }

    /// Cuts it into pieces of up to `size` bytes.
    pub(crate) fn pieces(self, size: u64) -> impl Iterator<Item = Self> {
        let starts = (0..self.size.div_ceil(size)).map(move |number| number * size);
        starts.map(move |start| Self { offset: self.offset + start, size: size.min(self.size - start) })
    }

    /// Stripes of a key of `key_len` bytes from this 512-byte sector on.
    pub(crate) fn of_stripes(sector: u32, key_len: u32) -> Self {
        Self { offset: u64::from(sector) * 512, size: stripes_len(key_len) }
    }
}

/// The first place of `size` bytes between `start` and `end` that is in none of `taken`, which are sorted here. It begins at
/// a multiple of 4096, as `start` does.
pub(crate) fn first_gap(taken: &mut [Area], start: u64, end: u64, size: u64) -> Option<Area> {
    taken.sort_by_key(|area| area.offset);
    let mut offset = start;
    for area in taken.iter() {
        if offset.saturating_add(size) <= area.offset {
            break;
        }
        let after = area.end()?.max(offset);
        offset = after.checked_next_multiple_of(4096)?;
    }
    let gap = Area { offset, size };
    gap.end().is_some_and(|last| last <= end).then_some(gap)
}

/// Returns the ranges between `start` and `end` that are in none of `taken`, which are sorted here.
pub(crate) fn gaps(taken: &mut [Area], start: u64, end: u64) -> Vec<Area> {
    taken.sort_by_key(|area| area.offset);
    let mut offset = start;
    let mut gaps = Vec::new();
    let last = Area { offset: end, size: 0 };
    for area in taken.iter().chain([&last]) {
        let size = area.offset.min(end).saturating_sub(offset);
        if size > 0 {
            gaps.push(Area { offset, size });
        }
        offset = area.end().unwrap_or(end).max(offset);
    }
    gaps
}

/// Fills `size` bytes from `offset` with random bytes, a piece at a time.
pub(crate) fn fill_random(device: &mut (impl Write + Seek), extent: Area, random: &Random) -> Result<(), Error> {
    const PIECE: u64 = 1 << 20;
    let mut random = random.filler(extent.offset)?;
    let mut noise = vec![0; usize::try_from(extent.size.min(PIECE)).unwrap_or(0)];
    let mut done = 0;
    while done < extent.size {
        let len = usize::try_from(extent.size - done).unwrap_or(usize::MAX);
        let len = len.min(noise.len());
        let noise = &mut noise[..len];
        random.fill(noise)?;
        write_at(device, extent.offset + done, noise)?;
        done += to_u64(len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_do_not_overlap() {
        let extent = |offset, size| Area { offset, size };
        assert!(!extent(0, 10).overlaps(extent(10, 5)));
        assert!(extent(0, 11).overlaps(extent(10, 5)));
        assert!(extent(10, 5).overlaps(extent(0, 11)));
        assert!(extent(u64::MAX, 2).overlaps(extent(u64::MAX, 1)));
    }

    #[test]
    fn null_ciphers_are_known_in_every_spelling() {
        for name in ["cipher_null-ecb", "null", "null-ecb", "capi:ecb(cipher_null)-plain"] {
            assert!(is_null_cipher(name), "{name}");
        }
        assert!(!is_null_cipher("aes-xts-plain64"));
    }
}
