//! LUKS2 headers as somebody else may have written them: both copies changed, their checksums right.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Bytes of one copy of the header as `create` makes it.
const COPY_SIZE: usize = 0x4000;
const BINARY_LEN: usize = 4096;
/// Where a copy's checksum is.
const CHECKSUM: std::ops::Range<usize> = 448..512;

/// The JSON of a LUKS2 image.
pub fn metadata(image: &Path) -> Value {
    let bytes = fs::read(image).expect("the image can be read");
    let area = &bytes[BINARY_LEN..COPY_SIZE];
    let end = area.iter().position(|&byte| byte == 0).expect("an end of the JSON");
    serde_json::from_slice(&area[..end]).expect("the image's JSON is JSON")
}

/// Replaces the JSON of both copies by `text` and zeros, and corrects their checksums.
pub fn set_metadata(image: &Path, text: &[u8]) {
    let mut area = vec![0; COPY_SIZE - BINARY_LEN];
    area[..text.len()].copy_from_slice(text);
    rewrite(image, |copy| copy[BINARY_LEN..].copy_from_slice(&area));
}

/// Changes both copies and corrects their checksums.
pub fn rewrite(image: &Path, change: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(image).expect("the image can be read");
    for start in [0, COPY_SIZE] {
        let copy = &mut bytes[start..start + COPY_SIZE];
        change(copy);
        copy[CHECKSUM].fill(0);
        let sum = Sha256::digest(&copy[..]);
        copy[CHECKSUM.start..CHECKSUM.start + sum.len()].copy_from_slice(&sum);
    }
    fs::write(image, bytes).expect("the image can be written");
}
