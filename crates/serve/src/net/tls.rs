//! TLS for servers: X.509 certificates in a directory with the names that nbdkit, qemu and libnbd use.
//!
//! | file | what |
//! |---|---|
//! | `server-cert.pem` | the server's certificate, then any intermediate ones |
//! | `server-key.pem` | its private key (PKCS#8, PKCS#1 or SEC1) |
//! | `ca-cert.pem` | where clients are verified: who signs their certificates |

mod certificate;
mod clients;
mod current;
mod der;
mod key;
mod name;
mod parts;
mod subject;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, ServerConfig};
use zeroize::Zeroizing;

use certificate::{CertificateFields, host_of, is_old_version};

pub use clients::AllowedClients;
pub(crate) use clients::why_refused;
pub use current::CurrentTls;
pub use parts::CertificateParts;
pub use subject::{CertificateSubject, SubjectError};

const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
const AUTHORITY: &str = "ca-cert.pem";
/// More bytes than such files have.
const ROOM: usize = 1 << 20;

/// Why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A file is missing or unreadable.
    #[error("cannot read {}: {source}; a directory with server-cert.pem and server-key.pem is needed", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error that the system reported.
        source: io::Error,
    },
    /// A file has no PEM block of the right kind.
    #[error("{} holds no usable {what} in PEM form", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Item that was looked for.
        what: &'static str,
    },
    /// A file is not what it should be.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Description of what is wrong, and what to do.
        why: String,
    },
}

impl TlsConfigError {
    fn unusable(path: &Path, why: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_owned(), why: why.into() }
    }
}

/// The names of the files that may be read in a directory of certificates.
pub const FILES: [&str; 3] = [CERTIFICATE, KEY, AUTHORITY];

/// Where the server's private key lies in a directory of certificates.
#[must_use]
pub fn private_key_path(directory: &Path) -> PathBuf {
    directory.join(KEY)
}

/// How files are read: as the system does it, or by somebody with more rights. One of them is the private key.
pub type Read<'a> = &'a dyn Fn(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

/// As the system does it.
pub fn read_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // A vector that grows leaves copies behind.
    let mut contents = Zeroizing::new(Vec::with_capacity(ROOM));
    File::open(path)?.read_to_end(&mut contents)?;
    Ok(contents)
}

/// A server's TLS configuration (TLS 1.2 and 1.3) from a directory of certificates, for these clients.
pub fn server_config(directory: &Path, clients: &AllowedClients) -> Result<Arc<ServerConfig>, TlsConfigError> {
    Certificates::read(directory, clients, &read_file).map(|certificates| certificates.config)
}

/// Contents of a directory of certificates.
pub struct Certificates {
    /// The server's TLS configuration.
    pub config: Arc<ServerConfig>,
    /// The first host name that the server's certificate is for.
    pub host: Option<String>,
    own: Option<CertificateFields>,
}

impl Certificates {
    /// Reads them: the server's own, and for clients that are verified the authority's.
    pub fn read(directory: &Path, clients: &AllowedClients, read: Read<'_>) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(cryptline_net::provider());
        let certified = certified_key(directory, &provider, read)?;
        let certificate = certified.cert.first();
        let (host, own) = (certificate.and_then(host_of), certificate.and_then(CertificateFields::of));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::unusable(directory, error.to_string()))?;
        let authority = directory.join(AUTHORITY);
        let builder = match clients.verifier(&authority, provider, read)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(TheOne(Arc::new(certified))));
        if clients.are_verified() {
            // A resumed session would not show its certificate again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { config: Arc::new(config), host, own })
    }

    /// Until when the server's certificate is valid.
    #[must_use]
    pub fn expiry(&self) -> Option<String> {
        self.own.as_ref().map(|own| own.not_after.to_string())
    }

    /// The same as a moment.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.own.as_ref().map(|own| own.not_after.moment())
    }

    /// Tells if the server's certificate was valid once, and is no more.
    #[must_use]
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.own.as_ref().is_some_and(|own| own.not_after.moment() < now)
    }

    /// Why clients refuse the server's certificate at this time, if they do.
    pub fn check(&self, directory: &Path, now: SystemTime) -> Result<(), TlsConfigError> {
        let Some(CertificateFields { not_before, not_after, .. }) = &self.own else {
            return Ok(());
        };
        let why = if not_after.moment() < now {
            format!("it expired at {not_after}; renew it")
        } else if not_before.moment() > now {
            format!("it is not valid before {not_before}; is the clock right?")
        } else {
            return Ok(());
        };
        Err(TlsConfigError::unusable(&directory.join(CERTIFICATE), why))
    }
}

/// The server's certificate with its key.
fn certified_key(directory: &Path, provider: &CryptoProvider, read: Read<'_>) -> Result<CertifiedKey, TlsConfigError> {
    let path = directory.join(CERTIFICATE);
    let chain = certificates(&path, read)?;
    if is_old_version(&chain[0]) {
        return Err(TlsConfigError::unusable(&path, clients::OLD_VERSION));
    }
    let key_path = private_key_path(directory);
    let key = key::read(&key_path, read)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsConfigError::unusable(&key_path, format!("it is not the key of the certificate in {CERTIFICATE}"))
        }
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

fn certificates(path: &Path, read: Read<'_>) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let pem = contents(path, read)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(TlsConfigError::Empty { path: path.to_owned(), what: "certificate" }),
    }
}

fn contents(path: &Path, read: Read<'_>) -> Result<Zeroizing<Vec<u8>>, TlsConfigError> {
    read(path).map_err(|source| TlsConfigError::Read { path: path.to_owned(), source })
}
