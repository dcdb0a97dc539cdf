//! The connection to a server, with TLS or without: whatever it does, it is over at the deadline.
//!
//! Certificates are believed that the system believes (with `SSL_CERT_FILE` and `SSL_CERT_DIR`, as with curl, which
//! clevis uses).

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use cryptline_net::TimedStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Without TLS.
pub fn clear(stream: TcpStream, deadline: Instant) -> TimedStream {
    let mut stream = TimedStream::new(Arc::new(stream.into()));
    stream.until(deadline);
    stream
}

/// With TLS, to a server that shows a certificate for `host`. The handshake comes with the first byte.
pub fn tls(stream: TcpStream, host: &str, deadline: Instant) -> Result<TimedStream, String> {
    let config = config(roots()?).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| "no certificate has such a name")?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    let mut stream = clear(stream, deadline);
    stream.secure(connection, Vec::new());
    Ok(stream)
}

fn config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(cryptline_net::provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Those that the system believes. What it cannot read of them is left out.
fn roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(format!("no trusted certificates were found on this system, so https cannot be used{why}"));
    }
    Ok(roots)
}
