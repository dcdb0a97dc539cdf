//! A UUID as text, in the byte order of RFC 9562, which is also the kernel's on a BTT.

/// Bytes before which a dash stands.
const DASHES: [usize; 4] = [4, 6, 8, 10];

/// The UUID that `text` stands for.
///
/// # Errors
/// A line that says what would be accepted.
pub fn parse(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("{text:?} is no UUID such as 3fa3c1a2-9f0e-4c63-8f7c-0f1e2d3c4b5a");
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return Err(wrong());
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    if uuid == [0; 16] || format(&uuid) != text.to_ascii_lowercase() {
        Err(wrong())
    } else {
        Ok(uuid)
    }
}

/// As text.
pub fn format(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if DASHES.contains(&index) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_in_the_same_order() {
        let text = "11223344-5566-7788-99aa-bbccddeeff00";
        let uuid = parse(text).unwrap();
        assert_eq!((uuid[0], uuid[15]), (0x11, 0));
        assert_eq!(format(&uuid), text);
        assert_eq!(parse(&text.to_uppercase()), Ok(uuid));
    }

    #[test]
    fn what_is_no_uuid_is_refused() {
        for text in [
            "",
            "1",
            "00000000-0000-0000-0000-000000000000",
            "112233445566778899aabbccddeeff00",
            "11223344-5566-7788-99aa-bbccddeeff0",
            "+1223344-5566-7788-99aa-bbccddeeff00",
            "11223344-5566-7788-99aa-bbccddeeff0\u{e4}",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
