//! Values in DER (X.690), as far as certificates need them: whatever is not exactly so is `None`.

pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const IA5_STRING: u8 = 0x16;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
/// The first field that is marked by its number.
pub const FIELD_0: u8 = 0xa0;
pub const FIELD_3: u8 = 0xa3;

/// A value with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerValue<'a> {
    pub tag: u8,
    pub bytes: &'a [u8],
    /// All of it, tag and length included.
    pub whole: &'a [u8],
}

/// Takes the value that `rest` begins with.
pub fn take<'a>(rest: &mut &'a [u8]) -> Option<DerValue<'a>> {
    let whole = *rest;
    let (&[tag, first], mut after) = whole.split_first_chunk()?;
    // Tags of several bytes are in no certificate.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x83 => {
            let (digits, rest) = after.split_at_checked(usize::from(first & 0x7f))?;
            after = rest;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            // In as few bytes as there can be.
            (digits[0] != 0 && length >= 0x80).then_some(length)?
        }
        _ => return None,
    };
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(DerValue { tag, bytes, whole: &whole[..whole.len() - after.len()] })
}

/// Takes a value that must have this tag.
pub fn expect<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    take(rest).filter(|value| value.tag == tag).map(|value| value.bytes)
}

/// Takes an algorithm, and whole bytes of bits that are by it: keys and signatures.
pub fn marked_bits<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let algorithm = expect(rest, SEQUENCE)?;
    let (unused, bits) = expect(rest, BIT_STRING)?.split_first()?;
    (*unused == 0).then_some((algorithm, bits))
}

/// All values of a sequence or a set, each made something of.
pub fn each<'a, T>(mut rest: &'a [u8], make: impl Fn(&mut &'a [u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut made = Vec::new();
    while !rest.is_empty() {
        made.push(make(&mut rest)?);
    }
    Some(made)
}

/// An object identifier with dots between its numbers.
pub fn dotted(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut number = 0_u64;
    let mut begins = true;
    for byte in bytes {
        if number >> 57 != 0 || begins && *byte == 0x80 {
            return None;
        }
        number = number << 7 | u64::from(byte & 0x7f);
        begins = byte & 0x80 == 0;
        if begins && text.is_empty() {
            let first = (number / 40).min(2);
            text = format!("{first}.{}", number - 40 * first);
        } else if begins {
            text = format!("{text}.{number}");
        }
        if begins {
            number = 0;
        }
    }
    (begins && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_in_their_shortest_form_only() {
        for (length, header) in
            [(0, vec![4, 0]), (127, vec![4, 127]), (128, vec![4, 0x81, 128]), (256, vec![4, 0x82, 1, 0])]
        {
            let bytes = [header, vec![7; length], vec![5, 0]].concat();
            let mut rest = &bytes[..];
            let value = take(&mut rest).unwrap();
            assert_eq!((value.tag, value.bytes), (4, &vec![7; length][..]));
            assert_eq!((value.whole.len(), rest), (bytes.len() - 2, &[5, 0][..]));
        }
        for bytes in [
            &[][..],
            &[4],
            &[4, 1],
            &[4, 0x80, 0, 0],
            &[4, 0x81, 1, 0],
            &[4, 0x81],
            &[4, 0x82, 0, 128],
            &[4, 0x83, 0xff, 0xff, 0xff],
            &[4, 0x84, 0, 0, 0, 1, 0],
            &[4, 0xff],
            &[0x1f, 1, 0],
        ] {
            assert_eq!(take(&mut &bytes[..]), None, "{bytes:?}");
        }
    }

    #[test]
    fn object_identifiers_are_numbers_with_dots() {
        for (bytes, text) in [
            (&[0x55, 4, 3][..], Some("2.5.4.3")),
            (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], Some("0.9.2342.19200300.100.1.25")),
            (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], Some("1.2.840.113549.1.9.1")),
            (&[0x88, 0x37], Some("2.999")),
            (&[0x2a, 0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Some("1.2.18446744073709551615")),
            (&[], None),
            (&[0x55, 0x84], None),
            (&[0x55, 0x80, 4], None),
            (&[0x2a, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], None),
        ] {
            assert_eq!(dotted(bytes).as_deref(), text, "{bytes:x?}");
        }
    }
}
