//! Targets for fuzzing, and what they share: a disk in memory, and LUKS2 headers around fuzzed parts. `fuzz/run.sh` fuzzes
//! them; a test here tries every input that is committed.
//!
//! Without a valid checksum no LUKS2 input would get past the first check, so [`seal`] writes the
//! one that fits.

#![forbid(unsafe_code)]

pub mod liar;
pub mod targets;

use std::io::{self, Read, Seek, SeekFrom};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};

use cryptline_luks::SegmentPolicy;
use sha2::{Digest, Sha256};

/// A listening socket of an abstract name, which no other has.
///
/// # Panics
/// Where there is no socket to be had.
#[must_use]
pub fn listener() -> (SocketAddr, UnixListener) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("cryptline-fuzz-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("bound");
    (address, listener)
}

/// Gives `put` each patch that an input consists of: a place of `N` bytes, a length, and so many bytes.
pub fn each_patch<const N: usize>(mut input: &[u8], mut put: impl FnMut([u8; N], &[u8])) {
    while let Some((place, [len, rest @ ..])) = input.split_first_chunk::<N>() {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        put(*place, bytes);
        input = rest;
    }
}

/// A disk that starts with some bytes and goes on with zeroes.
pub struct SparseDisk {
    head: Vec<u8>,
    size: u64,
    position: u64,
}

impl SparseDisk {
    /// A disk of `size` bytes; cut or filled with zeroes.
    #[must_use]
    pub fn new(head: Vec<u8>, size: u64) -> Self {
        Self { head, size, position: 0 }
    }
}

impl Read for SparseDisk {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let start = usize::try_from(self.position).unwrap_or(usize::MAX);
        let known = self.head.get(start..).unwrap_or_default();
        let copied = len.min(known.len());
        buf[..copied].copy_from_slice(&known[..copied]);
        buf[copied..len].fill(0);
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for SparseDisk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Reads the header of `disk` and asks it everything that needs no passphrase.
pub fn use_header(mut disk: SparseDisk) {
    let size = disk.size;
    let Ok(header) = cryptline_luks::look(&mut disk, size) else {
        return;
    };
    let _ = (header.key_len(), header.info());
    for (allow_null_cipher, detached) in [(false, false), (true, true)] {
        let policy = SegmentPolicy { allow_null_cipher, detached };
        for segment in header.segments(policy).unwrap_or_default() {
            let _ = segment.data_size(size);
        }
    }
}

/// Bytes of the binary part of a LUKS2 header copy.
const BINARY_LEN: usize = 4096;
/// Smallest header copy, bytes.
const COPY_MIN: usize = 0x4000;
/// Largest header copy, bytes.
const COPY_MAX: usize = 0x40_0000;

/// Both copies of a LUKS2 header around `json`, with checksums that fit; `None` when it is too
/// long for the format.
#[must_use]
pub fn luks2_with_json(json: &[u8]) -> Option<Vec<u8>> {
    let copy_size = (BINARY_LEN + json.len()).next_power_of_two().max(COPY_MIN);
    if copy_size > COPY_MAX {
        return None;
    }
    let mut image = copy(b"LUKS\xba\xbe", copy_size, 0, json);
    image.extend(copy(b"SKUL\xba\xbe", copy_size, copy_size, json));
    Some(image)
}

fn copy(magic: &[u8; 6], copy_size: usize, offset: usize, json: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; copy_size];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, magic);
    put(6, &2_u16.to_be_bytes());
    put(8, &(copy_size as u64).to_be_bytes());
    put(16, &1_u64.to_be_bytes());
    put(72, b"sha256");
    put(168, b"5f9b8d1e-54d5-4b0a-9d2e-2f1c3a4b5c6d");
    put(256, &(offset as u64).to_be_bytes());
    put(BINARY_LEN, json);
    seal(&mut bytes);
    bytes
}

/// Writes the SHA-256 checksum of the copy that starts at `bytes` and states its own size.
/// Does nothing when the stated size is not one the format allows. `bytes` grows to that size.
pub fn seal_at(bytes: &mut Vec<u8>, start: usize) {
    let Some(field) = bytes.get(start + 8..start + 16) else {
        return;
    };
    let stated = u64::from_be_bytes(field.try_into().unwrap_or_default());
    let Ok(size) = usize::try_from(stated) else {
        return;
    };
    if !(COPY_MIN..=COPY_MAX).contains(&size) {
        return;
    }
    let end = start + size;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start + 72..start + 104].fill(0);
    bytes[start + 72..start + 78].copy_from_slice(b"sha256");
    seal(&mut bytes[start..end]);
}

fn seal(copy: &mut [u8]) {
    copy[448..512].fill(0);
    let sum = Sha256::digest(&*copy);
    copy[448..480].copy_from_slice(&sum);
}
