//! Parts of a certificate (RFC 5280) that are needed to issue another in its place.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::certificate::{CertificateFields, Time};
use super::der;
use super::name::DistinguishedName;

/// Object identifiers, encoded.
const KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_USAGE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_USAGE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
/// Kinds of alternative names.
const HOST: u8 = 0x82;
const ADDRESS: u8 = 0x87;

/// Parts of a certificate, encoded as they are there.
#[derive(Clone, Copy, Debug)]
pub struct CertificateParts<'a> {
    /// Signed part, with its tag.
    signed: &'a [u8],
    /// Name of the one that has signed it.
    pub issuer: &'a [u8],
    /// Name of the one that it is for.
    pub subject: &'a [u8],
    validity: &'a [u8],
    /// The key and all that comes behind it.
    rest: &'a [u8],
    /// Algorithm of the signature, and that itself.
    signature: &'a [u8],
}

impl<'a> CertificateParts<'a> {
    /// `None` where the certificate is damaged before its key. Nothing is verified.
    #[must_use]
    pub fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let mut rest = certificate.as_ref();
        let mut signature = der::expect(&mut rest, der::SEQUENCE)?;
        let signed = der::take(&mut signature).filter(|value| value.tag == der::SEQUENCE)?;
        let mut rest = signed.bytes;
        if rest.first() == Some(&der::FIELD_0) {
            let _version = der::take(&mut rest)?;
        }
        let _serial = der::expect(&mut rest, der::INTEGER)?;
        let _algorithm = der::expect(&mut rest, der::SEQUENCE)?;
        let issuer = der::expect(&mut rest, der::SEQUENCE)?;
        let validity = der::expect(&mut rest, der::SEQUENCE)?;
        let subject = der::expect(&mut rest, der::SEQUENCE)?;
        Some(Self { signed: signed.whole, issuer, subject, validity, rest, signature })
    }

    /// Tells if `certificate` is of version 3, with nothing behind it, nothing twice and nothing critical that is not
    /// known. Its parts are those that whoever verifies it sees.
    #[must_use]
    pub fn are_all_of(certificate: &CertificateDer<'_>) -> bool {
        EndEntityCert::try_from(certificate).is_ok()
    }

    /// The same as values.
    #[must_use]
    pub fn fields(&self) -> Option<CertificateFields> {
        let mut validity = self.validity;
        let (not_before, not_after) = (Time::take(&mut validity)?, Time::take(&mut validity)?);
        let subject = DistinguishedName::of_der(self.subject)?;
        validity.is_empty().then_some(CertificateFields { not_before, not_after, subject })
    }

    /// Algorithm and bits of the public key.
    #[must_use]
    pub fn key(&self) -> Option<(&'a [u8], &'a [u8])> {
        let mut key = der::expect(&mut { self.rest }, der::SEQUENCE)?;
        der::marked_bits(&mut key)
    }

    /// Tells if the key of `authority` has signed it.
    #[must_use]
    pub fn is_signed_by(&self, authority: &CertificateDer<'_>) -> bool {
        let signature = der::marked_bits(&mut { self.signature });
        let (Some((algorithm, bits)), Ok(authority)) = (signature, EndEntityCert::try_from(authority)) else {
            return false;
        };
        let known = cryptline_net::provider().signature_verification_algorithms.all;
        let mut fitting = known.iter().filter(|known| known.signature_alg_id().as_ref() == algorithm);
        fitting.any(|known| authority.verify_signature(*known, self.signed, bits).is_ok())
    }

    /// Tells if it says that it may sign others.
    #[must_use]
    pub fn is_authority(&self) -> bool {
        let first =
            self.extension(CONSTRAINTS).and_then(|mut rest| der::take(&mut der::expect(&mut rest, der::SEQUENCE)?));
        first.is_some_and(|it| it.tag == der::BOOLEAN && it.bytes == [0xff])
    }

    /// Tells if it says that a server, or else a client, may use it.
    #[must_use]
    pub fn is_for(&self, is_server: bool) -> bool {
        let usages = self.extension(USAGE).and_then(|mut rest| {
            let all = der::expect(&mut rest, der::SEQUENCE)?;
            der::each(all, |rest| der::expect(rest, der::OID))
        });
        usages.is_some_and(|all| all.contains(&if is_server { SERVER_USAGE } else { CLIENT_USAGE }))
    }

    /// Mark of its key in the certificates that it signs.
    #[must_use]
    pub fn key_identifier(&self) -> Option<&'a [u8]> {
        self.extension(KEY_IDENTIFIER)
    }

    /// Names and addresses of the hosts that it is for; `None` where it is for others, too.
    #[must_use]
    pub fn hosts(&self) -> Option<Vec<String>> {
        let Some(mut names) = self.extension(ALTERNATIVE_NAMES) else {
            return Some(Vec::new());
        };
        der::each(der::expect(&mut names, der::SEQUENCE)?, |rest| {
            let name = der::take(rest)?;
            match (name.tag, name.bytes.len()) {
                (HOST, _) => str::from_utf8(name.bytes).ok().map(str::to_owned),
                (ADDRESS, 4) => <[u8; 4]>::try_from(name.bytes).ok().map(|it| IpAddr::from(it).to_string()),
                (ADDRESS, 16) => <[u8; 16]>::try_from(name.bytes).ok().map(|it| IpAddr::from(it).to_string()),
                _ => None,
            }
        })
    }

    /// Contents of an extension, by the bytes of its identifier.
    fn extension(&self, identifier: &[u8]) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        let _key = der::expect(&mut rest, der::SEQUENCE)?;
        let mut all = der::expect(&mut rest, der::FIELD_3)?;
        let all = der::each(der::expect(&mut all, der::SEQUENCE)?, |rest| {
            let mut one = der::expect(rest, der::SEQUENCE)?;
            let found = der::expect(&mut one, der::OID)?;
            if one.first() == Some(&der::BOOLEAN) {
                let _is_critical = der::take(&mut one)?;
            }
            Some((found, der::expect(&mut one, der::OCTET_STRING)?))
        });
        all?.into_iter().find(|(found, _)| *found == identifier).map(|(_, contents)| contents)
    }
}
