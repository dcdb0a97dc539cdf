//! The fields of a certificate (RFC 5280) that nobody else tells: whose it is, and how long it is valid.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::der;
use super::name::DistinguishedName;
use super::parts::CertificateParts;

/// Of a certificate, the fields that are read here.
#[derive(Clone, Debug)]
pub struct CertificateFields {
    /// First moment at which it is valid.
    pub not_before: Time,
    /// The last one.
    pub not_after: Time,
    /// Name of the one that it is for.
    pub subject: DistinguishedName,
}

impl CertificateFields {
    /// `None` where the certificate is damaged before the end of these fields. No signature is verified.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        CertificateParts::of(certificate)?.fields()
    }
}

/// The first host name that the certificate is for, of those that are no pattern for many.
pub fn host_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let is_host = |name: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        !name.is_empty() && name.bytes().all(is_part)
    };
    certificate.valid_dns_names().find(is_host).map(str::to_owned)
}

/// A second, in universal time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Time {
    pub fn take(rest: &mut &[u8]) -> Option<Self> {
        let value = der::take(rest)?;
        let digits = value.bytes.strip_suffix(b"Z")?;
        let (pairs, []) = digits.as_chunks::<2>() else {
            return None;
        };
        let pairs: Option<Vec<u64>> = pairs.iter().map(|pair| number(*pair)).collect();
        let (year, [month, day, hour, minute, second]) = match (value.tag, &pairs?[..]) {
            (der::UTC_TIME, [year, rest @ ..]) => {
                (if *year < 50 { 2000 + year } else { 1900 + year }, rest.try_into().ok()?)
            }
            (der::GENERALIZED_TIME, [century, year, rest @ ..]) => (100 * century + year, rest.try_into().ok()?),
            _ => return None,
        };
        let is_one = year >= 1970 && (1..=12).contains(&month) && (1..=days(year, month)).contains(&day);
        let is_one = is_one && hour < 24 && minute < 60 && second < 60;
        is_one.then_some(Self { year, month, day, hour, minute, second })
    }

    pub fn moment(self) -> SystemTime {
        let before = |year: u64| 365 * year + year / 4 - year / 100 + year / 400;
        let years = before(self.year - 1) - before(1969);
        let months: u64 = (1..self.month).map(|month| days(self.year, month)).sum();
        let hours = 24 * (years + months + self.day - 1) + self.hour;
        UNIX_EPOCH + Duration::from_secs(60 * (60 * hours + self.minute) + self.second)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

fn number([high, low]: [u8; 2]) -> Option<u64> {
    let digit = |byte: u8| char::from(byte).to_digit(10);
    Some(u64::from(10 * digit(high)? + digit(low)?))
}

fn days(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
