//! Contents that have no name of their own: nothing, zeros, and noise. Only so that they can be told: what may be written
//! is never decided by them.
//!
//! A disk that is encrypted without a header has noise, and zeros where nothing was written since the disk was new.
//! Compressed data is noise, too, but less even: each block that is read must have all bytes about as often.

use std::io::{self, Read, Seek, SeekFrom};

use cryptline_sys::is_zero;

use crate::contents::Contents;

/// Bytes that are read at the start; what encrypts a disk has its salt there.
const START: u64 = 64 << 10;
/// Places that are read besides, evenly over the rest, the last of them at the end.
const PLACES: u64 = 64;
/// Bytes that are judged together.
const BLOCK: usize = 4096;
/// The mean of the chi-square distribution of 255 degrees of freedom, and ten times its standard deviation: beyond that,
/// the bytes of a block are hardly drawn by chance.
const MEAN: f64 = 255.0;
const FAR: f64 = 226.0;

/// Returns what is on `device`, which has `size` bytes and nothing that is known by a mark.
pub(crate) fn find(device: &mut (impl Read + Seek), size: u64) -> io::Result<Option<Contents>> {
    if size == 0 {
        return Ok(Some(Contents::Empty));
    }
    let mut block = [0; BLOCK];
    let (mut noise, mut is_known, mut read) = (false, true, 0);
    for at in places(size) {
        let len = usize::try_from(size - at).map_or(BLOCK, |left| left.min(BLOCK));
        let block = &mut block[..len];
        device.seek(SeekFrom::Start(at))?;
        device.read_exact(block)?;
        read += len as u64;
        if is_zero(block) {
            continue;
        }
        if len < BLOCK {
            // Too few to be judged.
            is_known = false;
        } else if is_noise(block) {
            noise = true;
        } else {
            return Ok(None);
        }
    }
    Ok(if noise {
        // What encrypts disks has whole sectors.
        size.is_multiple_of(512).then_some(Contents::Noise)
    } else {
        is_known.then_some(Contents::Zeros { read, size })
    })
}

/// The first bytes of what is read: all of a small device, each once.
fn places(size: u64) -> impl Iterator<Item = u64> {
    let block = BLOCK as u64;
    let (start, last) = (size.min(START), size.saturating_sub(1) / block * block);
    let rest = last.saturating_sub(start);
    let beyond = (1..=PLACES).map(move |number| {
        let share = u128::from(rest) * u128::from(number) / u128::from(PLACES);
        start + u64::try_from(share).expect("no more than the rest") / block * block
    });
    let mut before = None;
    let beyond = beyond.filter(move |at| *at < size && *at >= start && before.replace(*at) != Some(*at));
    (0..start).step_by(BLOCK).chain(beyond)
}

/// Tells if the bytes of a block look as if each had been drawn by chance.
fn is_noise(bytes: &[u8]) -> bool {
    let mut often = [0_u32; 256];
    for byte in bytes {
        often[usize::from(*byte)] += 1;
    }
    let expected = BLOCK as f64 / 256.0;
    let square = often.iter().map(|&times| (f64::from(times) - expected).powi(2) / expected).sum::<f64>();
    (square - MEAN).abs() < FAR
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn found(bytes: Vec<u8>) -> Option<String> {
        let size = bytes.len() as u64;
        find(&mut Cursor::new(bytes), size).unwrap().map(|contents| contents.to_string())
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        rustix::rand::getrandom(&mut bytes[..256], rustix::rand::GetRandomFlags::empty()).unwrap();
        let mut state = u64::from_le_bytes(bytes[..8].try_into().unwrap()) | 1;
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_be_bytes()[0];
        }
        bytes
    }

    #[test]
    fn nothing_zeros_and_noise_are_told_apart() {
        let is = |bytes: Vec<u8>, part: &str| {
            let found = found(bytes).unwrap_or_else(|| panic!("not {part}"));
            assert!(found.contains(part), "{found}");
        };
        is(Vec::new(), "0 bytes");
        for len in [1, 512, 4096, 5000, 65536, 70000, 65536 + 64 * 4096] {
            is(vec![0; len], "nothing but zeros");
        }
        is(vec![0; 16 << 20], "zeros wherever it was read");
        for len in [4096, 65536, 131_584, 1 << 20, 16 << 20] {
            is(noise(len), "random data");
        }
        // Written in one place only, since it was new.
        let mut sparse = vec![0; 16 << 20];
        sparse[..65536].copy_from_slice(&noise(65536));
        is(sparse, "random data");
    }

    #[test]
    fn what_is_neither_zeros_nor_noise_is_not_named() {
        let text: Vec<u8> = b"The quick brown fox ".iter().copied().cycle().take(1 << 20).collect();
        assert_eq!(found(text.clone()), None);
        assert_eq!(found(b"short".to_vec()), None);
        let mut last = vec![0; 1 << 20];
        last.extend_from_slice(b"end");
        assert_eq!(found(last), None);
        let mut mixed = noise(1 << 20);
        mixed[..4096].copy_from_slice(&text[..4096]);
        assert_eq!(found(mixed), None);
        // No disk.
        assert_eq!(found(noise((1 << 20) + 1)), None);
    }

    #[test]
    fn reads_are_few_whatever_the_size() {
        for size in [0, 1, 4095, 4096, 65536, 65537, 1 << 20, 1 << 40, u64::MAX] {
            let places: Vec<_> = places(size).collect();
            assert!(places.len() <= 80, "{size}: {}", places.len());
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]) && places.iter().all(|at| *at < size), "{size}");
            assert!(size == 0 || size - places.last().unwrap() <= 4096, "{size}");
        }
    }
}
