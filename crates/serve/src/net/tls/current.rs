//! TLS material that new clients are greeted with, which can be exchanged while others are served.

use std::fmt;
use std::sync::{Arc, Mutex};

use cryptline_sys::lock;
use rustls::ServerConfig;

/// The TLS configuration of the next handshake. A connection keeps the one that it began with.
pub struct CurrentTls(Mutex<Arc<ServerConfig>>);

impl CurrentTls {
    /// For as long as it is not replaced.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(config)))
    }

    /// For handshakes from now on.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *lock(&self.0) = config;
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.0))
    }
}

impl fmt::Debug for CurrentTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentTls")
    }
}
