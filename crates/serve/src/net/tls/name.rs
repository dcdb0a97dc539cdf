//! Distinguished names, as certificates have them (X.501) and as people write them (RFC 4514).

use std::fmt::{self, Write as _};

use super::der;

/// Attributes by what people call them; the first of several names is the one that is shown.
const KINDS: [(&[&str], &str); 26] = [
    (&["CN", "commonName"], "2.5.4.3"),
    (&["SN", "surname"], "2.5.4.4"),
    (&["serialNumber"], "2.5.4.5"),
    (&["C", "countryName"], "2.5.4.6"),
    (&["L", "localityName"], "2.5.4.7"),
    (&["ST", "stateOrProvinceName"], "2.5.4.8"),
    (&["street", "streetAddress"], "2.5.4.9"),
    (&["O", "organizationName"], "2.5.4.10"),
    (&["OU", "organizationalUnitName"], "2.5.4.11"),
    (&["title"], "2.5.4.12"),
    (&["description"], "2.5.4.13"),
    (&["businessCategory"], "2.5.4.15"),
    (&["postalAddress"], "2.5.4.16"),
    (&["postalCode"], "2.5.4.17"),
    (&["postOfficeBox"], "2.5.4.18"),
    (&["telephoneNumber"], "2.5.4.20"),
    (&["name"], "2.5.4.41"),
    (&["GN", "givenName"], "2.5.4.42"),
    (&["initials"], "2.5.4.43"),
    (&["generationQualifier"], "2.5.4.44"),
    (&["dnQualifier"], "2.5.4.46"),
    (&["pseudonym"], "2.5.4.65"),
    (&["UID", "userId"], "0.9.2342.19200300.100.1.1"),
    (&["mail"], "0.9.2342.19200300.100.1.3"),
    (&["DC", "domainComponent"], "0.9.2342.19200300.100.1.25"),
    (&["emailAddress"], "1.2.840.113549.1.9.1"),
];

/// One thing that a name says, such as `CN=alice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The object identifier, with dots.
    pub kind: String,
    value: NameValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NameValue {
    Text(String),
    /// In no encoding that is read here.
    Der(Vec<u8>),
}

/// A distinguished name: attributes, several of which may stand on one level. The order is that of certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistinguishedName(Vec<Vec<Attribute>>);

impl DistinguishedName {
    /// From the contents of its sequence in a certificate.
    pub fn of_der(bytes: &[u8]) -> Option<Self> {
        let levels = der::each(bytes, |rest| {
            let mut level = der::each(der::expect(rest, der::SET)?, Attribute::take)?;
            level.sort_by(Attribute::in_a_set);
            (!level.is_empty()).then_some(level)
        });
        levels.map(Self)
    }

    /// From a text; the levels stand there the other way round.
    pub fn of_text(text: &str) -> Option<Self> {
        let mut levels = Vec::new();
        for level in split(text, ',') {
            let mut level = split(level, '+').map(Attribute::of_text).collect::<Option<Vec<_>>>()?;
            level.sort_by(Attribute::in_a_set);
            levels.push(level);
        }
        levels.reverse();
        Some(Self(levels))
    }

    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.0.iter().flatten()
    }
}

impl Attribute {
    fn take(rest: &mut &[u8]) -> Option<Self> {
        let mut fields = der::expect(rest, der::SEQUENCE)?;
        let kind = der::dotted(der::expect(&mut fields, der::OID)?)?;
        let value = der::take(&mut fields)?;
        fields.is_empty().then(|| Self { kind, value: NameValue::of(value) })
    }

    fn of_text(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once('=')?;
        let known = KINDS.iter().find(|(names, _)| names.iter().any(|name| name.eq_ignore_ascii_case(kind)));
        let kind = match known {
            Some((_, kind)) => (*kind).to_owned(),
            None => is_dotted(kind).then(|| kind.to_owned())?,
        };
        let value = match value.strip_prefix('#') {
            Some(digits) => {
                let bytes = hex(digits)?;
                let mut rest = &bytes[..];
                let value = der::take(&mut rest)?;
                rest.is_empty().then(|| NameValue::of(value))?
            }
            None => NameValue::Text(unescaped(value)?),
        };
        Some(Self { kind, value })
    }

    /// `None` where it is none that can be compared.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            NameValue::Text(text) => Some(text),
            NameValue::Der(_) => None,
        }
    }

    /// Those of one level have no order of their own.
    fn in_a_set(&self, other: &Self) -> std::cmp::Ordering {
        (&self.kind, self.text()).cmp(&(&other.kind, other.text()))
    }
}

impl NameValue {
    /// The same text is encoded in several ways.
    fn of(value: der::DerValue<'_>) -> Self {
        let text = str::from_utf8(value.bytes).ok();
        let text = text.filter(|text| match value.tag {
            der::UTF8_STRING => true,
            der::IA5_STRING => text.is_ascii(),
            der::PRINTABLE_STRING => {
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte))
            }
            _ => false,
        });
        text.map_or_else(|| Self::Der(value.whole.to_vec()), |text| Self::Text(text.to_owned()))
    }
}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, level) in self.0.iter().rev().enumerate() {
            for (place, attribute) in level.iter().enumerate() {
                let between = match (index, place) {
                    (0, 0) => "",
                    (_, 0) => ",",
                    _ => "+",
                };
                write!(f, "{between}{attribute}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        let text = match (known, &self.value) {
            (Some((names, _)), NameValue::Text(text)) => {
                write!(f, "{}=", names[0])?;
                text
            }
            (None, NameValue::Text(text)) => {
                write!(f, "{}=", self.kind)?;
                text
            }
            (_, NameValue::Der(bytes)) => {
                write!(f, "{}=#", self.kind)?;
                return bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
            }
        };
        for (at, letter) in text.char_indices() {
            let is_edge = at == 0 || at + 1 == text.len();
            match letter {
                '"' | '+' | ',' | ';' | '<' | '>' | '\\' => write!(f, "\\{letter}")?,
                '#' if at == 0 => f.write_str("\\#")?,
                ' ' if is_edge => f.write_str("\\ ")?,
                '\0'..=' ' | '\x7f' if letter != ' ' => write!(f, "\\{:02x}", u32::from(letter))?,
                _ => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// The parts between separators that no backslash stands before.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |letter| {
        let parts = letter == separator && !escaped;
        escaped = letter == '\\' && !escaped;
        parts
    })
}

/// Without the backslashes before special letters, and before two digits for any byte.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let [next, after @ ..] = rest else {
            return None;
        };
        if b" \"#=\\+,;<>".contains(next) {
            bytes.push(*next);
            rest = after;
        } else {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.extend(hex(str::from_utf8(digits).ok()?)?);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let (pairs, []) = digits.as_deref()?.as_chunks() else {
        return None;
    };
    pairs.iter().map(|[high, low]| u8::try_from(high << 4 | low).ok()).collect()
}

fn is_dotted(text: &str) -> bool {
    let is_number = |part: &str| {
        part.parse::<u64>().is_ok()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    text.contains('.') && text.split('.').all(is_number)
}
