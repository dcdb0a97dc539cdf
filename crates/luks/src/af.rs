//! The anti-forensic splitter: a key spread over many stripes, so that losing any one of them
//! destroys the key (C. Fruhwirth, "New Methods in Hard Disk Encryption", 2005, section 4).
//!
//! ```text
//!   stripe 1     stripe 2           stripe n-1         stripe n
//!  +--------+   +--------+         +--------+         +--------+
//!  | random |   | random |   ...   | random |         | d ^ key|
//!  +---+----+   +---+----+         +---+----+         +---+----+
//!  0 --xor--> H ----xor--> H ... ------xor--> H --d-------+
//! ```

use cryptline_sys::SecretBuf;
use zeroize::Zeroize;

use crate::error::Error;
use crate::hash::Hash;

/// Every LUKS key slot is split into this many stripes.
pub const STRIPES: u32 = 4000;

/// Joins `split`, which holds [`STRIPES`] stripes of `key.len()` bytes each, into `key`.
///
/// # Panics
/// When `split` is shorter than that.
pub(crate) fn merge(hash: Hash, split: &[u8], key: &mut [u8]) {
    let len = key.len();
    let (last, diffused) = stripes(split, len);
    key.fill(0);
    for stripe in diffused {
        xor(key, stripe);
        diffuse(hash, key);
    }
    xor(key, last);
}

/// Splits `key` into `split`, which must be full of random bytes.
pub(crate) fn split(hash: Hash, key: &[u8], split: &mut [u8]) -> Result<(), Error> {
    let len = key.len();
    let mut last = SecretBuf::zeroed(len).map_err(Error::KeyMemory)?;
    let (_, diffused) = stripes(split, len);
    for stripe in diffused {
        xor(&mut last, stripe);
        diffuse(hash, &mut last);
    }
    xor(&mut last, key);
    let end = len * STRIPES as usize;
    split[end - len..end].copy_from_slice(&last);
    Ok(())
}

/// The last stripe, and all others in order.
fn stripes(split: &[u8], len: usize) -> (&[u8], std::slice::ChunksExact<'_, u8>) {
    let end = len * STRIPES as usize;
    (&split[end - len..end], split[..end - len].chunks_exact(len))
}

fn xor(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a ^= b);
}

/// Replaces each hash-sized piece i of `block` (the last may be shorter) by `H(be32(i) || piece)`.
fn diffuse(hash: Hash, block: &mut [u8]) {
    let mut out = [0; crate::hash::HASH_LEN_MAX];
    for (piece, index) in block.chunks_mut(hash.output_len()).zip(0_u32..) {
        let out = &mut out[..piece.len()];
        hash.digest(&[&index.to_be_bytes(), piece], out);
        piece.copy_from_slice(out);
    }
    out.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(key: &[u8]) -> SecretBuf {
        let mut buffer = SecretBuf::random(key.len() * STRIPES as usize).unwrap();
        split(Hash::Sha256, key, &mut buffer).unwrap();
        buffer
    }

    /// 33 bytes leave a last piece of one byte for a 32-byte hash.
    #[test]
    fn merge_undoes_split_for_keys_that_are_no_multiple_of_the_hash() {
        for len in [1, 16, 32, 33, 64] {
            let key: Vec<u8> = (1..=len).collect();
            let mut merged = vec![0; key.len()];
            merge(Hash::Sha256, &split_of(&key), &mut merged);
            assert_eq!(merged, key);
        }
    }

    #[test]
    fn one_flipped_bit_in_any_stripe_loses_the_key() {
        let key = [7; 32];
        for stripe in [0, 1, 1999, 3999] {
            let mut buffer = split_of(&key);
            buffer[stripe * 32 + 5] ^= 1;
            let mut merged = [0; 32];
            merge(Hash::Sha256, &buffer, &mut merged);
            assert_ne!(merged, key, "stripe {stripe}");
        }
    }
}
