//! `--tls` and its certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use cryptline_nbd::TlsMode;
use cryptline_nbd::uri::TlsOptions;
use cryptline_serve::nbd::{Clients, Subject};

use crate::CliError;
use crate::harden::exposed_key;
use crate::output::warn;

/// What `--tls` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// Never
    #[default]
    Off,
    /// If the client asks for it
    On,
    /// Always; refuse clients without TLS
    Require,
}

impl Tls {
    /// The word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Require => "require",
        }
    }
}

impl From<Tls> for TlsMode {
    fn from(tls: Tls) -> Self {
        match tls {
            Tls::Off => Self::Off,
            Tls::On => Self::On,
            Tls::Require => Self::Require,
        }
    }
}

/// The options that concern TLS.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS options")]
pub struct TlsArgs {
    /// Use TLS
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub tls: Tls,

    /// Directory with server-cert.pem and server-key.pem, as for nbdkit and qemu-nbd
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,

    /// Accept only clients with a certificate signed by ca-cert.pem in that directory; needs
    /// --tls=require
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,

    /// With --tls-verify-peer, accept only clients whose certificate has this subject, such as `CN=alice` or
    /// `CN=alice,O=Example`; may be repeated
    #[arg(long, value_name = "SUBJECT", requires = "tls_verify_peer")]
    pub tls_authz: Vec<Subject>,
}

impl TlsArgs {
    /// Reads the certificates, where TLS is on.
    pub fn load(&self) -> Result<Option<Arc<rustls::ServerConfig>>, CliError> {
        if self.tls_verify_peer && self.tls == Tls::On {
            return Err(CliError::parameters(
                "--tls-verify-peer with --tls=on verifies nobody: clients without TLS are served too; give --tls=require",
            ));
        }
        match (self.tls, &self.tls_certificates) {
            (Tls::Off, None) => Ok(None),
            (Tls::Off, Some(_)) => Err(CliError::parameters(
                "--tls-certificates without TLS; give --tls=require, or --tls=on",
            )),
            (_, None) => Err(CliError::parameters(
                "--tls needs --tls-certificates DIR with server-cert.pem and server-key.pem",
            )),
            (_, Some(directory)) => {
                let config = cryptline_serve::nbd::server_config(directory, &self.clients())
                    .map_err(|error| CliError::parameters(error.to_string()))?;
                let key = cryptline_serve::nbd::private_key_path(directory);
                warn(exposed_key(&key).as_slice());
                Ok(Some(config))
            }
        }
    }

    fn clients(&self) -> Clients {
        match (self.tls_verify_peer, self.tls_authz.is_empty()) {
            (false, _) => Clients::Anybody,
            (true, true) => Clients::Verified,
            (true, false) => Clients::Named(self.tls_authz.clone()),
        }
    }

    /// What URIs say: clients on this machine find the certificate authority in our directory.
    #[must_use]
    pub fn uri_options(&self) -> TlsOptions {
        let authority = |directory: &&PathBuf| directory.join("ca-cert.pem").is_file();
        let directory = self.tls_certificates.as_ref().filter(authority);
        TlsOptions {
            certificates: match self.tls {
                Tls::Require => directory.map(|directory| absolute(directory)),
                Tls::Off | Tls::On => None,
            },
            ..TlsOptions::default()
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
