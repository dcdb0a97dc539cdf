//! Certificates and keys of either side, in PEM files.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use webpki::EndEntityCert;
use zeroize::Zeroizing;

use crate::key;

/// More bytes than such files have.
const ROOM: usize = 1 << 20;

/// Why certificates cannot be used: which file, what is wrong with it, and what to do where that can be told.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsConfigError(String);

impl TlsConfigError {
    /// A file that is not what it should be.
    pub fn unusable(path: &Path, why: impl Display) -> Self {
        Self(format!("{} cannot be used: {why}", path.display()))
    }

    fn empty(path: &Path, what: &str) -> Self {
        Self(format!("{} holds no usable {what} in PEM form", path.display()))
    }
}

/// Message about certificates that are older than the extensions that tell what they are for.
pub const OLD_VERSION: &str = "it is an X.509 version 1 certificate, which says too little to be trusted; make it version 3 (openssl x509 -req -extfile FILE, with basicConstraints=CA:FALSE in FILE)";

/// Tells if the certificate is older than version 3; `false` for what is no certificate at all.
#[must_use]
pub fn is_old_version(certificate: &CertificateDer<'_>) -> bool {
    matches!(EndEntityCert::try_from(certificate), Err(webpki::Error::UnsupportedCertVersion))
}

/// How files are read: as the system does it, or by somebody with more rights. One of them may be a private key.
pub type ReadPem<'a> = &'a dyn Fn(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

/// As the system does it.
///
/// # Errors
/// As `open` and `read`.
pub fn read_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // A vector that grows leaves copies behind.
    let mut contents = Zeroizing::new(Vec::with_capacity(ROOM));
    File::open(path)?.read_to_end(&mut contents)?;
    Ok(contents)
}

/// The files of a directory of certificates.
#[derive(Clone, Copy)]
pub struct PemFiles<'a> {
    /// How they are read.
    pub read: ReadPem<'a>,
    /// Advice where one cannot be read.
    pub needed: &'static str,
}

impl PemFiles<'_> {
    fn contents(self, path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsConfigError> {
        (self.read)(path)
            .map_err(|error| TlsConfigError(format!("cannot read {}: {error}; {}", path.display(), self.needed)))
    }

    /// The certificates in a file: at least one.
    fn certificates(self, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let pem = self.contents(path)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match chain {
            Ok(chain) if !chain.is_empty() => Ok(chain),
            _ => Err(TlsConfigError::empty(path, "certificate")),
        }
    }

    /// The certificates in a file, as those of authorities.
    ///
    /// # Errors
    /// There is none, the file is damaged, or one cannot be an authority's.
    pub fn authorities(self, path: &Path) -> Result<Arc<RootCertStore>, TlsConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(path)? {
            roots.add(certificate).map_err(|error| TlsConfigError::unusable(path, error))?;
        }
        Ok(Arc::new(roots))
    }

    /// A certificate, with those between it and its authority, and its key.
    ///
    /// # Errors
    /// One of the files has none that can be used, or they do not belong together. With the next step where that can be
    /// told.
    pub fn certified_key(
        self,
        path: &Path,
        key_path: &Path,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsConfigError> {
        let chain = self.certificates(path)?;
        if is_old_version(&chain[0]) {
            return Err(TlsConfigError::unusable(path, OLD_VERSION));
        }
        let key = self.key(key_path)?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let name = path.file_name().unwrap_or_default().display();
                TlsConfigError::unusable(key_path, format!("it is not the key of the certificate in {name}"))
            }
            Error::InvalidCertificate(why) => TlsConfigError::unusable(path, why),
            error => TlsConfigError::unusable(key_path, format!("{error}; {}", key::SUPPORTED)),
        })
    }

    fn key(self, path: &Path) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        let pem = self.contents(path)?;
        if let Some(why) = key::obstacle(&pem) {
            return Err(TlsConfigError::unusable(path, why));
        }
        PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsConfigError::empty(path, "private key"))
    }
}
