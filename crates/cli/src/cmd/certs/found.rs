//! Certificates that are there, as far as a renewal has to know them.

use std::time::SystemTime;

use cryptline_serve::nbd::CertificateParts;
use rcgen::{PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::AUTHORITY;

/// Why a certificate is not renewed.
pub const FOREIGN: &str = "it is not as `cryptline certs` makes them; renew it with the program that made it";

const COMMON_NAME: &str = "2.5.4.3";

/// Algorithms of public keys, encoded, and the same for whoever signs them.
const ALGORITHMS: [(&[u8], &SignatureAlgorithm); 4] = [
    (
        &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7],
        &rcgen::PKCS_ECDSA_P256_SHA256,
    ),
    (&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 0x22], &rcgen::PKCS_ECDSA_P384_SHA384),
    (&[6, 3, 0x2b, 0x65, 0x70], &rcgen::PKCS_ED25519),
    (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0], &rcgen::PKCS_RSA_SHA256),
];

/// The only certificate of a file.
pub struct FoundCertificate(CertificateDer<'static>);

impl FoundCertificate {
    pub fn of_pem(text: &str) -> Result<Self, String> {
        let mut all = CertificateDer::pem_slice_iter(text.as_bytes());
        let (Some(Ok(der)), None) = (all.next(), all.next()) else {
            return Err("it is not one certificate in PEM form".to_owned());
        };
        let is_one = CertificateParts::of(&der).is_some_and(|parts| parts.fields().is_some() && parts.key().is_some());
        if !is_one {
            return Err("it is not an X.509 certificate".to_owned());
        }
        if CertificateParts::are_all_of(&der) { Ok(Self(der)) } else { Err(FOREIGN.to_owned()) }
    }

    fn parts(&self) -> CertificateParts<'_> {
        CertificateParts::of(&self.0).expect("it was looked at")
    }

    pub fn is_self_issued(&self) -> bool {
        let parts = self.parts();
        parts.issuer == parts.subject
    }

    pub fn is_authority(&self) -> bool {
        self.parts().is_authority()
    }

    pub fn key_bits(&self) -> Option<&[u8]> {
        self.parts().key().map(|(_, bits)| bits)
    }

    pub fn end(&self) -> Result<SystemTime, String> {
        self.parts().fields().map(|fields| fields.not_after.moment()).ok_or_else(|| FOREIGN.to_owned())
    }

    /// Tells if both have one name and one mark in what they sign.
    pub fn names_as(&self, other: &Self) -> bool {
        let (one, other) = (self.parts(), other.parts());
        one.subject == other.subject && one.key_identifier() == other.key_identifier()
    }

    /// The only name of the subject; none where it has others, which a renewal would lose.
    pub fn common_name(&self) -> Result<String, String> {
        let fields = self.parts().fields();
        let name = fields.as_ref().and_then(|fields| {
            let mut all = fields.subject.attributes();
            let (Some(only), None) = (all.next(), all.next()) else { return None };
            only.text().filter(|_| only.kind == COMMON_NAME).map(str::to_owned)
        });
        name.ok_or_else(|| FOREIGN.to_owned())
    }
}

/// Name, hosts and key of a certificate: a renewal keeps them.
pub struct Leaf {
    pub name: String,
    pub hosts: Vec<String>,
    pub key: FoundKey,
}

impl Leaf {
    /// Takes a certificate that the authority has signed, for this use: to sign again what somebody else has put there would let
    /// that one in.
    pub fn of(found: &FoundCertificate, authority: &FoundCertificate, is_server: bool) -> Result<Self, String> {
        let parts = found.parts();
        if !parts.is_signed_by(&authority.0) {
            return Err(format!("{AUTHORITY} has not signed it"));
        }
        if !parts.is_for(is_server) || parts.is_authority() {
            return Err(FOREIGN.to_owned());
        }
        let hosts = parts.hosts().ok_or(FOREIGN)?;
        Ok(Self { name: found.common_name()?, hosts, key: FoundKey::of(found).ok_or(FOREIGN)? })
    }
}

/// The public key of a certificate.
pub struct FoundKey {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl FoundKey {
    fn of(found: &FoundCertificate) -> Option<Self> {
        let (encoded, bits) = found.parts().key()?;
        let (_, algorithm) = ALGORITHMS.iter().find(|(known, _)| *known == encoded)?;
        Some(Self { bits: bits.to_vec(), algorithm })
    }
}

impl PublicKeyData for FoundKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}
