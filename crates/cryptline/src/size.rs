//! Sizes on the command line, with the units that cryptsetup has: `4K` and `4KiB` are 4096 bytes, `4KB` are 4000.

use cryptline_engine::units::bytes_in;

/// Largest size: what a file offset can hold.
const MAX: u64 = i64::MAX as u64;

/// Bytes that `text` stands for.
///
/// # Errors
/// A line that says what would be accepted.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{:?} is not a size; write bytes, or a number with K, M, G or T (powers of 1024) or KB, MB, GB or TB (powers of 1000), such as 512M",
            text.chars().take(40).collect::<String>()
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = bytes_in(unit).filter(|_| digits > 0).ok_or_else(wrong)?;
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|&bytes| bytes <= MAX).ok_or_else(|| format!("{text} is too large; at most 8191P is possible"))
}

/// As [`parse`], for what must be a whole number of 512-byte sectors and not zero.
///
/// # Errors
/// As [`parse`].
pub fn parse_disk(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("a disk of 0 bytes holds nothing; use a size such as 1G".into()),
        bytes if !bytes.is_multiple_of(512) => Err(format!(
            "{bytes} bytes are not a whole number of 512-byte sectors; the next size is {}",
            bytes.next_multiple_of(512)
        )),
        bytes => Ok(bytes),
    }
}

/// As [`parse`], for a block or sector.
///
/// # Errors
/// As [`parse`].
pub fn parse_block(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?).map_err(|_| format!("{text} is too large for a block"))
}

/// `bytes` for people: `16 MiB` where that is exact enough, `1000 bytes` otherwise.
#[must_use]
pub fn human(bytes: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} bytes");
    };
    // In hundredths, rounded down, without floating point.
    let hundredths = u128::from(bytes) * 100 / u128::from(unit);
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    match rest {
        0 => format!("{whole} {name}"),
        rest => format!("{whole}.{rest:02} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024_and_of_1000() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("16M", 16 << 20),
            ("1G", 1 << 30),
            ("2T", 2 << 40),
            ("1GiB", 1 << 30),
            ("4KB", 4000),
            ("16MB", 16_000_000),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_block("4KiB"), Ok(4096));
        assert!(parse_block("4G").unwrap_err().contains("too large"));
    }

    #[test]
    fn nonsense_and_overflow_are_refused() {
        let nonsense = ["", "K", "-1", "+1", "1.5G", "1 G", "0x10", "1Gb", "1E", "١"];
        for text in nonsense {
            assert!(parse(text).unwrap_err().contains("is not a size"), "{text}");
        }
        for text in ["8192P", "18446744073709551616", "99999999999999999999T"] {
            assert!(parse(text).unwrap_err().contains("too large"), "{text}");
        }
        assert!(parse_disk("0").is_err());
        assert!(parse_disk("513").unwrap_err().contains("1024"));
    }

    #[test]
    fn sizes_for_people_do_not_lie() {
        assert_eq!(human(0), "0 bytes");
        assert_eq!(human(1023), "1023 bytes");
        assert_eq!(human(16 << 20), "16 MiB");
        assert_eq!(human((1 << 30) + (1 << 29)), "1.50 GiB");
        assert_eq!(human(u64::MAX), "16383.99 PiB");
    }
}
