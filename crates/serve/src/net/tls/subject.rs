//! Whose certificate: a few attributes of its subject, such as `CN=alice,O=Example`.

use std::fmt;
use std::str::FromStr;

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{Tag, Tagged};
use x509_cert::name::{Name, RdnSequence};

/// What a subject must say of itself.
///
/// Every attribute named here has exactly these values in the subject, in this order: no more and no
/// fewer of them, letter by letter. Attributes that are not named may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    wanted: RdnSequence,
}

/// A text that names no subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "give attributes of the certificate's subject as RFC 4514 has them, such as CN=alice or CN=alice,O=Example (as `openssl x509 -noout -subject -nameopt RFC2253` prints them)"
)]
pub struct SubjectError;

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let wanted: RdnSequence = text.parse().map_err(|_| SubjectError)?;
        let subject = Self { wanted };
        let has_text = |attribute| text_of(attribute).is_some_and(|text| !text.is_empty());
        let is_one = subject.attributes().next().is_some() && subject.attributes().all(has_text);
        is_one.then_some(subject).ok_or(SubjectError)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.fmt(f)
    }
}

impl Subject {
    fn attributes(&self) -> impl Iterator<Item = &AttributeTypeAndValue> {
        self.wanted.iter().flat_map(|relative| relative.iter())
    }

    /// Whether the subject of a certificate is this one.
    pub(super) fn fits(&self, name: &Name) -> bool {
        self.attributes().all(|attribute| {
            let same_kind = |other: &&AttributeTypeAndValue| other.oid == attribute.oid;
            let mut wanted = self.attributes().filter(same_kind);
            let mut found = name.iter().filter(same_kind);
            loop {
                match (wanted.next(), found.next()) {
                    (None, None) => return true,
                    (Some(wanted), Some(found)) if same_text(wanted, found) => {}
                    _ => return false,
                }
            }
        })
    }
}

/// What cannot be read is never the same.
fn same_text(one: &AttributeTypeAndValue, other: &AttributeTypeAndValue) -> bool {
    text_of(one).is_some() && text_of(one) == text_of(other)
}

/// The same name is encoded in several ways.
fn text_of(attribute: &AttributeTypeAndValue) -> Option<&str> {
    let value = &attribute.value;
    let bytes = value.value();
    match value.tag() {
        Tag::Utf8String => Utf8StringRef::new(bytes).ok()?.as_str().into(),
        Tag::PrintableString => PrintableStringRef::new(bytes).ok()?.as_str().into(),
        Tag::Ia5String => Ia5StringRef::new(bytes).ok()?.as_str().into(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(wanted: &str, subject: &str) -> bool {
        let wanted: Subject = wanted.parse().unwrap();
        let subject = match subject {
            "" => Name::default(),
            subject => Name::from_str(subject).unwrap(),
        };
        wanted.fits(&subject)
    }

    #[test]
    fn every_attribute_that_is_named_must_be_the_same() {
        for (wanted, subject) in [
            ("CN=alice", "CN=alice"),
            ("CN=alice", "CN=alice,O=Example,C=DE"),
            ("O=Example,CN=alice", "CN=alice,OU=x,O=Example"),
            ("cn=alice", "CN=alice"),
            ("2.5.4.3=alice", "CN=alice"),
            ("O=Example\\, Inc.", "CN=x,O=Example\\, Inc."),
            ("OU=a,OU=b", "CN=x,OU=a,OU=b"),
            ("C=DE", "C=DE"),
            ("CN=Zoë", "CN=Zoë"),
        ] {
            assert!(fits(wanted, subject), "{wanted} / {subject}");
        }
    }

    #[test]
    fn nothing_else_fits() {
        for (wanted, subject) in [
            ("CN=alice", "CN=mallory"),
            ("CN=alice", "CN=Alice"),
            ("CN=alice", "CN=alice "),
            ("CN=alice", "O=alice"),
            ("CN=alice", ""),
            ("CN=alice", "CN=alice,CN=mallory"),
            ("CN=alice", "CN=mallory,CN=alice"),
            ("CN=alice", "CN=alice+CN=mallory"),
            ("CN=alice,O=Example", "CN=alice"),
            ("CN=alice,O=Example", "CN=alice,O=Other"),
            ("OU=a,OU=b", "OU=b,OU=a"),
            ("OU=a,OU=b", "OU=a"),
            ("CN=alice", "CN=alice\\00.example"),
            ("CN=alice", "CN=#1e0a0061006c006900630065"),
        ] {
            assert!(!fits(wanted, subject), "{wanted} / {subject}");
        }
    }

    #[test]
    fn what_names_no_subject_is_refused() {
        for text in [
            "",
            "alice",
            "CN",
            "CN=",
            "=alice",
            "CN=alice,",
            "XX=alice",
            "CN=#zz",
            "CN=#0500",
            "CN=alice, O=Example",
            "CN=\\",
        ] {
            assert_eq!(text.parse::<Subject>(), Err(SubjectError), "{text:?}");
        }
    }
}
