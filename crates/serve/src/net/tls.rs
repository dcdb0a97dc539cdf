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
mod name;
mod parts;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cryptline_net::{PemFiles, ReadPem, TlsConfigError, read_file};
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;

use certificate::{CertificateFields, host_of};

pub use clients::AllowedClients;
pub(crate) use clients::why_refused;
pub use current::CurrentTls;
pub use parts::CertificateParts;
pub use subject::{CertificateSubject, SubjectError};

const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
const AUTHORITY: &str = "ca-cert.pem";
const NEEDED: &str = "a directory with server-cert.pem and server-key.pem is needed";

/// The names of the files that may be read in a directory of certificates.
pub const FILES: [&str; 3] = [CERTIFICATE, KEY, AUTHORITY];

/// Where the server's private key lies in a directory of certificates.
#[must_use]
pub fn private_key_path(directory: &Path) -> PathBuf {
    directory.join(KEY)
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
    pub fn read(directory: &Path, clients: &AllowedClients, read: ReadPem<'_>) -> Result<Self, TlsConfigError> {
        let provider = Arc::new(cryptline_net::provider());
        let files = PemFiles { read, needed: NEEDED };
        let (path, key) = (directory.join(CERTIFICATE), private_key_path(directory));
        let certified = files.certified_key(&path, &key, &provider)?;
        let certificate = certified.cert.first();
        let (host, own) = (certificate.and_then(host_of), certificate.and_then(CertificateFields::of));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::unusable(directory, error))?;
        let authority = directory.join(AUTHORITY);
        let builder = match clients.verifier(&authority, provider, files)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
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
