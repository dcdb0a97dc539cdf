//! Whose certificate: a few attributes of its subject, such as `CN=alice,O=Example`.

use std::fmt;
use std::str::FromStr;

use super::name::{Attribute, DistinguishedName};

/// Attributes required of a certificate's subject.
///
/// Every attribute named here has exactly these values in the subject, in this order: no more and no
/// fewer of them, letter by letter. Attributes that are not named may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSubject {
    wanted: DistinguishedName,
}

/// A text that names no subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "use attributes of the certificate's subject as RFC 4514 has them, such as CN=alice or CN=alice,O=Example (as `openssl x509 -noout -subject -nameopt RFC2253` prints them)"
)]
pub struct SubjectError;

impl FromStr for CertificateSubject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let wanted = DistinguishedName::of_text(text).ok_or(SubjectError)?;
        let has_text = |attribute: &Attribute| attribute.text().is_some_and(|text| !text.is_empty());
        let is_one = wanted.attributes().all(has_text);
        is_one.then_some(Self { wanted }).ok_or(SubjectError)
    }
}

impl fmt::Display for CertificateSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.fmt(f)
    }
}

impl CertificateSubject {
    /// Tells if the subject of a certificate is this one.
    pub(super) fn fits(&self, name: &DistinguishedName) -> bool {
        self.wanted.attributes().all(|attribute| {
            let same_kind = |other: &&Attribute| other.kind == attribute.kind;
            let mut wanted = self.wanted.attributes().filter(same_kind);
            let mut found = name.attributes().filter(same_kind);
            loop {
                match (wanted.next(), found.next()) {
                    (None, None) => return true,
                    // A text that cannot be read is never the same.
                    (Some(wanted), Some(found)) if found.text().is_some() && wanted.text() == found.text() => {}
                    _ => return false,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(wanted: &str, subject: &str) -> bool {
        let wanted: CertificateSubject = wanted.parse().unwrap();
        let subject = match subject {
            "" => DistinguishedName::default(),
            subject => DistinguishedName::of_text(subject).unwrap(),
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
            ("UID=7,CN=alice", "CN=alice+UID=7"),
            ("CN=a\\2cb", "CN=a\\,b"),
            ("CN=a\\\\,O=b", "O=b,CN=a\\5C"),
            ("CN=#0c05616c696365", "CN=#1305616c696365"),
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
            "CN=alice\\",
            "CN=alice\\4",
            "CN=alice\\ff",
            "CN=#",
            "CN=#0c05616c6963",
            "CN=#0c05616c69636500",
            "2.5.04.3=alice",
            "+2.5=alice",
        ] {
            assert_eq!(text.parse::<CertificateSubject>(), Err(SubjectError), "{text:?}");
        }
    }
}
