//! TLS for NBD: X.509 certificates in a directory with the names that nbdkit, qemu and libnbd use.
//!
//! | file | what |
//! |---|---|
//! | `server-cert.pem` | the server's certificate, then any intermediate ones |
//! | `server-key.pem` | its private key (PKCS#8, PKCS#1 or SEC1) |
//! | `ca-cert.pem` | with `--tls-verify-peer`: who signs the clients' certificates |

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Why the certificates can not be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A file is missing or unreadable.
    #[error("cannot read {}: {source}; --tls-certificates wants a directory with server-cert.pem and server-key.pem", path.display())]
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
    /// The certificate and the key do not fit, or are of an unknown kind.
    #[error("the certificates in {} cannot be used: {message}", directory.display())]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// What rustls said.
        message: String,
    },
}

/// A server's TLS configuration (TLS 1.2 and 1.3) from a directory of certificates.
pub fn server_config(
    directory: &Path,
    verify_peer: bool,
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let unusable = |error: &dyn std::fmt::Display| TlsConfigError::Unusable {
        directory: directory.to_owned(),
        message: error.to_string(),
    };
    let chain = certificates(&directory.join("server-cert.pem"))?;
    let key_path = directory.join("server-key.pem");
    let key =
        PrivateKeyDer::from_pem_slice(&read(&key_path)?).map_err(|_| TlsConfigError::Empty {
            path: key_path,
            what: "private key",
        })?;
    let builder =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
    let builder = if verify_peer {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&directory.join("ca-cert.pem"))? {
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| unusable(&error))?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&error))?;
    Ok(Arc::new(config))
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
