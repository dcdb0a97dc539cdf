//! Which clients may use the server, by the certificates they show.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cryptline_net::{OLD_VERSION, PemFiles, TlsConfigError, is_old_version, verify_signatures};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error, OtherError};

use super::CertificateSubject;
use super::certificate::CertificateFields;

/// Parties that may use the server.
#[derive(Clone, Debug, Default)]
pub enum AllowedClients {
    /// Whoever connects.
    #[default]
    Anybody,
    /// Whoever has a certificate that the authority signed.
    Verified,
    /// Of those, the ones whose subject is one of these.
    Named(Vec<CertificateSubject>),
}

impl AllowedClients {
    /// Tells if they must show a certificate.
    #[must_use]
    pub fn are_verified(&self) -> bool {
        !matches!(self, Self::Anybody)
    }

    /// `None` where nobody is verified.
    pub(super) fn verifier(
        &self,
        authority: &Path,
        provider: Arc<CryptoProvider>,
        files: PemFiles<'_>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsConfigError> {
        let named = match self {
            Self::Anybody => return Ok(None),
            Self::Verified => None,
            Self::Named(subjects) => Some(subjects.clone()),
        };
        let signed = WebPkiClientVerifier::builder_with_provider(files.authorities(authority)?, Arc::clone(&provider))
            .build()
            .map_err(|error| TlsConfigError::unusable(authority, error))?;
        Ok(Some(Arc::new(Verifier { signed, named, provider })))
    }
}

/// Asks whether the authority signed the certificate, and then whose it is.
#[derive(Debug)]
struct Verifier {
    signed: Arc<dyn ClientCertVerifier>,
    /// Any subject where there is no list.
    named: Option<Vec<CertificateSubject>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn check_subject(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(named) = &self.named else {
            return Ok(());
        };
        let fields = CertificateFields::of(certificate);
        let subject = fields.ok_or_else(|| refused("the client's certificate cannot be read".to_owned()))?.subject;
        if named.iter().any(|one| one.fits(&subject)) {
            Ok(())
        } else {
            Err(refused(format!("the client {subject} is not authorized")))
        }
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(certificate, intermediates, now).map_err(|error| {
            if is_old_version(certificate) {
                refused(format!("the client's certificate: {OLD_VERSION}"))
            } else {
                error
            }
        })?;
        self.check_subject(certificate)?;
        Ok(verified)
    }

    verify_signatures!();
}

/// Why a client was turned away, in our own words.
fn refused(why: String) -> Error {
    let why = OtherError(Arc::new(io::Error::other(why)));
    Error::InvalidCertificate(CertificateError::Other(why))
}

/// The error of a handshake, without what rustls writes around our words.
pub fn why_refused(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::Other(why))) => io::Error::new(error.kind(), why.to_string()),
        _ => error,
    }
}
