//! TLS for servers: X.509 certificates in a directory with the names that nbdkit, qemu and libnbd use.
//!
//! | file | what |
//! |---|---|
//! | `server-cert.pem` | the server's certificate, then any intermediate ones |
//! | `server-key.pem` | its private key (PKCS#8, PKCS#1 or SEC1) |
//! | `ca-cert.pem` | where clients are verified: who signs their certificates |

mod clients;
mod key;
mod subject;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};

pub use clients::Clients;
pub(super) use clients::why_refused;
pub use subject::{Subject, SubjectError};

const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
const AUTHORITY: &str = "ca-cert.pem";

/// Why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A file is missing or unreadable.
    #[error("cannot read {}: {source}; a directory with server-cert.pem and server-key.pem is needed", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has no PEM block of the right kind.
    #[error("{} holds no usable {what} in PEM form", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A file is not what it should be.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
}

impl TlsConfigError {
    fn unusable(path: &Path, why: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}

/// Where the server's private key lies in a directory of certificates.
#[must_use]
pub fn private_key_path(directory: &Path) -> PathBuf {
    directory.join(KEY)
}

/// A server's TLS configuration (TLS 1.2 and 1.3) from a directory of certificates, for these clients.
pub fn server_config(
    directory: &Path,
    clients: &Clients,
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let provider = Arc::new(cryptline_tls::provider());
    let certified = certified_key(directory, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::unusable(directory, error.to_string()))?;
    let authority = directory.join(AUTHORITY);
    let builder = match clients.verifier(&authority, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(TheOne(Arc::new(certified))));
    if clients.are_verified() {
        // A resumed session would not show its certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// The server's certificate with its key.
fn certified_key(
    directory: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsConfigError> {
    let path = directory.join(CERTIFICATE);
    let chain = certificates(&path)?;
    if clients::is_old_version(&chain[0]) {
        return Err(TlsConfigError::unusable(&path, clients::OLD_VERSION));
    }
    let key_path = private_key_path(directory);
    let key = key::read(&key_path)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsConfigError::unusable(
            &key_path,
            format!("it is not the key of the certificate in {CERTIFICATE}"),
        ),
        Error::InvalidCertificate(why) => TlsConfigError::unusable(&path, why.to_string()),
        error => TlsConfigError::unusable(&key_path, format!("{error}; {}", key::SUPPORTED)),
    })
}

/// One certificate for every name that a client may ask for.
#[derive(Debug)]
struct TheOne(Arc<CertifiedKey>);

impl ResolvesServerCert for TheOne {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let pem = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(TlsConfigError::Empty {
            path: path.to_owned(),
            what: "certificate",
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsConfigError> {
    std::fs::read(path).map_err(|source| TlsConfigError::Read {
        path: path.to_owned(),
        source,
    })
}
