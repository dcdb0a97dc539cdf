//! Identity of a volume, by which it differs from another, also from one that has the same name, size and place.

use cryptline_cipher::CipherSpec;

use crate::hash::Hash;
use crate::{DataSegment, LuksHeader};

/// Bytes of an identity.
const LEN: usize = 32;

impl LuksHeader {
    /// An identity of the volume: the same as long as its bytes mean the same under the same key, whatever becomes of
    /// its key slots; another for every other volume. It is made of what the header shows to anybody, and does
    /// not help to guess a passphrase. `None` where the header does not tell one key from another.
    #[must_use]
    pub fn identity(&self, segments: &[DataSegment]) -> Option<String> {
        let key = self.inner().key_digest().ok()?.value;
        let mut parts = Vec::new();
        for (number, segment) in segments.iter().enumerate() {
            let cipher = segment.cipher.as_ref().map_or("", CipherSpec::as_str);
            let numbers = [segment.offset, segment.size.unwrap_or(0), segment.sector_size.into(), segment.iv_tweak];
            parts.extend_from_slice(numbers.map(u64::to_le_bytes).as_flattened());
            // What the whole volume has goes with its first segment.
            let words = match number {
                0 => &[self.uuid().as_bytes(), cipher.as_bytes(), &key][..],
                _ => &[cipher.as_bytes()],
            };
            // Of what may have any length, the length comes first: no two volumes have the same bytes.
            let lengths = words.iter().map(|word| (word.len() as u64).to_le_bytes());
            parts.extend(lengths.flatten());
            parts.extend(words.iter().copied().flatten());
        }
        let mut identity = [0; LEN];
        Hash::Sha256.digest(&[&parts], &mut identity);
        Some(base16ct::lower::encode_string(&identity))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::SegmentPolicy;
    use crate::format::{FormatOptions, KdfCost, KdfKind, LuksVersion, format};

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn made(version: LuksVersion) -> (LuksHeader, Vec<DataSegment>) {
        let options = FormatOptions {
            version,
            kdf: Some(KdfKind::Pbkdf2),
            cost: KdfCost { iterations: Some(1000), ..KdfCost::default() },
            uuid: Some(UUID.to_owned()),
            ..FormatOptions::default()
        };
        let mut device = Cursor::new(vec![0; 18 << 20]);
        format(&mut device, 18 << 20, b"a secret", &options).unwrap();
        let header = crate::read(&mut device, 18 << 20).unwrap();
        let segments = header.segments(SegmentPolicy::default()).unwrap();
        (header, segments)
    }

    #[test]
    fn volumes_of_one_name_and_passphrase_have_identities_of_their_own() {
        for version in [LuksVersion::Luks1, LuksVersion::Luks2] {
            let ((one, segment), (other, alike)) = (made(version), made(version));
            assert_eq!(one.uuid(), other.uuid());
            let identity = one.identity(&segment);
            assert_eq!(identity.as_ref().map(String::len), Some(2 * LEN));
            assert_eq!(identity, one.identity(&segment));
            assert_ne!(identity, other.identity(&alike));
            let mut moved = segment.clone();
            moved[0].offset += 4096;
            assert_ne!(identity, one.identity(&moved));
        }
    }

    #[test]
    fn key_slots_do_not_change_an_identity() {
        let (mut header, segment) = made(LuksVersion::Luks2);
        let identity = header.identity(&segment);
        let LuksHeader::V2(changed) = &mut header else {
            panic!("a LUKS2 header");
        };
        changed.metadata.keyslots.clear();
        assert_eq!(header.identity(&segment), identity);
    }
}
