//! Random bytes that are no secrets (salts, UUIDs, filler) from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::Error;

/// `len` random bytes.
pub(crate) fn bytes(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::KeyMemory(error.into())),
        }
    }
    Ok(bytes)
}

/// A random (version 4) UUID, RFC 9562.
pub(crate) fn uuid() -> Result<String, Error> {
    let mut bytes = bytes(16)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = base16ct::lower::encode_string(&bytes);
    let (a, b, c, d, e) = (
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    );
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

/// Whether `text` is a UUID in its usual form.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let digits = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths == [8, 4, 4, 4, 12] && groups.iter().all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_uuids_are_uuids_and_differ() {
        let one = uuid().unwrap();
        assert!(is_uuid(&one), "{one}");
        assert_eq!(&one[14..15], "4");
        assert_ne!(one, uuid().unwrap());
    }

    #[test]
    fn other_texts_are_no_uuids() {
        assert!(!is_uuid(""));
        assert!(!is_uuid("970e17de-0750-443f-b6ca-2a739c5ff99z"));
        assert!(!is_uuid("970e17de0750443fb6ca2a739c5ff999"));
    }
}
