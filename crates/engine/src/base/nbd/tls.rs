//! TLS to a server: whom we believe, and what we show.
//!
//! A directory of certificates has the names that libnbd uses:
//!
//! | file | what |
//! |---|---|
//! | `ca-cert.pem` | who signs the server's certificate |
//! | `client-cert.pem`, `client-key.pem` | our own, where the server wants one |

use std::path::Path;
use std::sync::Arc;

use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::Address;
use cryptline_net::{PemFiles, TlsConfigError, read_file, verify_signatures};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error};

const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";
const NEEDED: &str = "a directory with ca-cert.pem is needed; client-cert.pem and client-key.pem belong together";
const FILES: PemFiles<'_> = PemFiles { read: &read_file, needed: NEEDED };

/// TLS settings that every connection to a server begins with.
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: VerifiedName,
}

/// Name that the server's certificate must be for.
#[derive(Clone)]
enum VerifiedName {
    This(ServerName<'static>),
    /// A socket of this machine has no name: any certificate that the authority signed.
    Any,
}

impl Secure {
    /// Takes the settings from the URI. Certificates are read here, once.
    pub fn new(uri: &NbdUri) -> Result<Self, String> {
        let options = &uri.tls_options;
        let name = name(uri)?;
        let provider = Arc::new(cryptline_net::provider());
        let roots = match (options.verify_peer, &options.certificates) {
            (Some(false), _) => None,
            (_, Some(folder)) => Some(authority(folder, &provider).map_err(|error| error.to_string())?),
            (_, None) => {
                return Err(format!(
                    "no CA certificate: add tls-certificates=DIR (a folder with {AUTHORITY}) to the URI"
                ));
            }
        };
        let own = options.certificates.as_deref().map(|folder| own(folder, &provider)).transpose();
        let own = own.map_err(|error| error.to_string())?.flatten();
        let judge = Judge { roots, asks_name: matches!(name, VerifiedName::This(_)), provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge));
        let mut config = match own {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_sni = matches!(name, VerifiedName::This(ServerName::DnsName(_)));
        Ok(Self { config: Arc::new(config), name })
    }

    /// For one connection.
    pub fn connection(&self) -> Result<ClientConnection, String> {
        let name = match &self.name {
            VerifiedName::This(name) => name.clone(),
            // It is neither sent nor looked at.
            VerifiedName::Any => ServerName::try_from("localhost").map_err(|error| error.to_string())?,
        };
        ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| error.to_string())
    }
}

/// A name of a certificate as people write it: `DnsName("host")` is host, `IpAddress(::1)` is ::1.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, name)| name.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// Why there is no TLS with a server, and what to do.
pub(super) fn explained(error: &Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    match error {
        Error::InvalidCertificate(why) => match why {
            // Another authority of the same name shows as a bad signature.
            Certificate::UnknownIssuer | Certificate::BadSignature => format!(
                "the server's certificate is not signed by the authority in {AUTHORITY}"
            ),
            Certificate::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                "the server's certificate is for no name (a common name does not count); make one with subjectAltName=DNS:NAME"
                    .to_owned()
            }
            Certificate::NotValidForNameContext { presented, .. } => format!(
                "the server's certificate is for {}; use the right one as tls-hostname=NAME in the URI",
                presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
            ),
            Certificate::Other(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
                "the server's certificate is that of an authority; make one of its own for the server, with basicConstraints=CA:FALSE"
                    .to_owned()
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the server's certificate has expired".to_owned()
            }
            why => format!("the server's certificate cannot be accepted: {why}"),
        },
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => format!(
            "the server does not accept our certificate ({error}); it must be signed by the server's authority, and lie in {CERTIFICATE} and {KEY}"
        ),
        Error::AlertReceived(Alert::HandshakeFailure | Alert::InsufficientSecurity) => format!(
            "the server and we have no cipher suite in common ({error}); it must use certificates, pre-shared keys (PSK) are not supported"
        ),
        error => format!("TLS failed: {error}"),
    }
}

/// The same where the server hung up instead of saying why.
pub(super) fn cut() -> String {
    format!(
        "the server ended the connection without a word on why; perhaps it wants a certificate of ours that its authority signed, {CERTIFICATE} with {KEY} beside {AUTHORITY}"
    )
}

fn name(uri: &NbdUri) -> Result<VerifiedName, String> {
    let given = uri.tls_options.hostname.as_deref();
    let host = match &uri.address {
        // A zone belongs to the address on this machine.
        Address::Tcp { host, .. } => Some(host.split('%').next().unwrap_or(host)),
        Address::Unix(_) => None,
    };
    let Some(name) = given.or(host) else {
        return Ok(VerifiedName::Any);
    };
    let name = ServerName::try_from(name.to_owned());
    name.map(VerifiedName::This).map_err(|_| "the server's name is none that a certificate can have".to_owned())
}

fn authority(folder: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, TlsConfigError> {
    let path = folder.join(AUTHORITY);
    WebPkiServerVerifier::builder_with_provider(FILES.authorities(&path)?, Arc::clone(provider))
        .build()
        .map_err(|error| TlsConfigError::unusable(&path, error))
}

/// Our own certificate, where there is one.
fn own(folder: &Path, provider: &CryptoProvider) -> Result<Option<CertifiedKey>, TlsConfigError> {
    let [certificate, key] = [CERTIFICATE, KEY].map(|name| folder.join(name));
    let is_there = certificate.exists() || key.exists();
    is_there.then(|| FILES.certified_key(&certificate, &key, provider)).transpose()
}

/// Decides whom to believe.
#[derive(Debug)]
struct Judge {
    /// Nobody is asked where there is none.
    roots: Option<Arc<WebPkiServerVerifier>>,
    asks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else {
            return Ok(ServerCertVerified::assertion());
        };
        match roots.verify_server_cert(certificate, others, name, ocsp, now) {
            // The name is looked at last, when all else is well.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.asks_name => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    verify_signatures!();
}
