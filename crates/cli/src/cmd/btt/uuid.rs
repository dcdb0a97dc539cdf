//! A UUID as text, in the byte order of RFC 9562, which is also the kernel's on a BTT.

/// The UUID that `text` stands for.
///
/// # Errors
/// A line that says what would be accepted.
pub fn parse(text: &str) -> Result<[u8; 16], String> {
    let uuid = u128::from_str_radix(&text.replace('-', ""), 16).map(u128::to_be_bytes);
    uuid.ok()
        .filter(|uuid| *uuid != [0; 16] && format(uuid) == text.to_ascii_lowercase())
        .ok_or_else(|| format!("{text:?} is no UUID such as 3fa3c1a2-9f0e-4c63-8f7c-0f1e2d3c4b5a"))
}

/// As text.
pub fn format(uuid: &[u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*uuid));
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    groups.join("-")
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
