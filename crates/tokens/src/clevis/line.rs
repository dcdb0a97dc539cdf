//! The connection to a server, with TLS or without: whatever it does, it is over at the deadline.
//!
//! Certificates are believed that the system believes (with `SSL_CERT_FILE` and `SSL_CERT_DIR`, as with curl, which
//! clevis uses).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::http::left;

/// Bytes both ways.
pub enum ByteStream {
    Clear(TimedConnection),
    Tls(Box<StreamOwned<ClientConnection, TimedConnection>>),
}

/// A connection that is over at the deadline.
pub struct TimedConnection {
    stream: TcpStream,
    deadline: Instant,
}

impl ByteStream {
    pub fn clear(stream: TcpStream, deadline: Instant) -> Self {
        Self::Clear(TimedConnection { stream, deadline })
    }

    /// With TLS, to a server that shows a certificate for `host`. The handshake comes with the first byte.
    pub fn tls(stream: TcpStream, host: &str, deadline: Instant) -> Result<Self, String> {
        let config = config(roots()?).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| "no certificate has such a name")?;
        let connection = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
        let stream = StreamOwned::new(connection, TimedConnection { stream, deadline });
        Ok(Self::Tls(Box::new(stream)))
    }
}

fn config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(cryptline_tls::provider());
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

impl Read for ByteStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl TimedConnection {
    fn left(&self) -> io::Result<std::time::Duration> {
        left(self.deadline).map_err(|_| io::ErrorKind::WouldBlock.into())
    }
}

impl Read for TimedConnection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(bytes) {
                // As a socket with a timeout says when the process was merely stopped and goes on (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Write for TimedConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
