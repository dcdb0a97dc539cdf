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

use zeroize::Zeroize;

use crate::hash::Hash;

/// Every LUKS key slot is split into this many stripes.
pub const STRIPES: u32 = 4000;

/// Merger of stripes, which are taken in pieces as they come: all of them at once are more than a user may lock on many
/// systems.
pub(crate) struct Diffuser<'a> {
    hash: Hash,
    /// As long as a stripe. In the end the key, or what hides it.
    state: &'a mut [u8],
    /// Bytes of the current stripe that are in.
    at: usize,
    /// Whole stripes that are in.
    stripes: u32,
}

impl<'a> Diffuser<'a> {
    /// `state` is as long as the key.
    pub fn new(hash: Hash, state: &'a mut [u8]) -> Self {
        state.fill(0);
        Self { hash, state, at: 0, stripes: 0 }
    }

    /// Takes the next bytes of a split key. After the last ones the state is the key.
    pub fn merge(&mut self, piece: &[u8]) {
        let last = self.diffuse(piece);
        let len = last.len().min(self.state.len() - self.at);
        xor(&mut self.state[self.at..][..len], &last[..len]);
        self.at += len;
    }

    /// Takes the next bytes of what shall hide `key`, and puts the key into the last stripe of it.
    pub fn split(&mut self, key: &[u8], piece: &mut [u8]) {
        let last = self.diffuse(piece).len();
        let len = last.min(self.state.len() - self.at);
        let start = piece.len() - last;
        let place = &mut piece[start..start + len];
        place.copy_from_slice(&self.state[self.at..][..len]);
        xor(place, &key[self.at..][..len]);
        self.at += len;
    }

    /// Takes all bytes but those of the last stripe and behind it, and returns these.
    fn diffuse<'b>(&mut self, mut piece: &'b [u8]) -> &'b [u8] {
        while self.stripes < STRIPES - 1 && !piece.is_empty() {
            let len = piece.len().min(self.state.len() - self.at);
            let (bytes, after) = piece.split_at(len);
            xor(&mut self.state[self.at..][..len], bytes);
            piece = after;
            self.at += len;
            if self.at == self.state.len() {
                diffuse(self.hash, self.state);
                self.at = 0;
                self.stripes += 1;
            }
        }
        piece
    }
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

    use cryptline_sys::SecretBuf;

    fn split_of(key: &[u8]) -> SecretBuf {
        let len = (key.len() * STRIPES as usize).next_multiple_of(512);
        let mut buffer = SecretBuf::random(len).unwrap();
        let mut hidden = vec![0; key.len()];
        let mut diffuser = Diffuser::new(Hash::Sha256, &mut hidden);
        // Pieces that end anywhere in a stripe.
        for piece in buffer.chunks_mut(1000) {
            diffuser.split(key, piece);
        }
        buffer
    }

    fn merge(split: &[u8], key: &mut [u8], piece: usize) {
        let mut diffuser = Diffuser::new(Hash::Sha256, key);
        split.chunks(piece).for_each(|piece| diffuser.merge(piece));
    }

    /// 33 bytes leave a last piece of one byte for a 32-byte hash.
    #[test]
    fn merge_undoes_split_for_keys_that_are_no_multiple_of_the_hash() {
        for len in [1, 16, 32, 33, 64] {
            let key: Vec<u8> = (1..=len).collect();
            let mut merged = vec![0; key.len()];
            for piece in [1, 512, 4096, usize::MAX] {
                merge(&split_of(&key), &mut merged, piece);
                assert_eq!(merged, key);
            }
        }
    }

    #[test]
    fn one_flipped_bit_in_any_stripe_loses_the_key() {
        let key = [7; 32];
        for stripe in [0, 1, 1999, 3999] {
            let mut buffer = split_of(&key);
            buffer[stripe * 32 + 5] ^= 1;
            let mut merged = [0; 32];
            merge(&buffer, &mut merged, 512);
            assert_ne!(merged, key, "stripe {stripe}");
        }
    }
}
