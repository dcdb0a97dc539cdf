//! `--tls` and its certificates.

use std::path::{Path, PathBuf};

use clap::Args;
use cryptline_nbd::TlsMode;
use cryptline_nbd::uri::TlsOptions;
use cryptline_serve::nbd::{AllowedClients, CertificateSubject};

use super::certificates::Renewable;
use crate::CliError;
use crate::args::choice::{self, ChoiceWords};
use crate::harden::exposed_key;
use crate::output::warn;

const WHEN: &ChoiceWords<TlsMode> = &[
    ("off", "Never", TlsMode::Off),
    ("on", "If the client asks for it", TlsMode::On),
    ("require", "Always; refuse clients without TLS", TlsMode::Require),
];

/// The options that concern TLS.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS options")]
pub struct TlsArgs {
    /// Use TLS
    #[arg(long, value_name = "WHEN", default_value = "off", value_parser = choice::of(WHEN))]
    pub tls: TlsMode,

    /// Directory with server-cert.pem and server-key.pem, as for nbdkit and qemu-nbd; SIGHUP has them read again
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,

    /// Accept only clients with a certificate signed by ca-cert.pem in that directory; needs
    /// --tls=require
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,

    /// With --tls-verify-peer, accept only clients whose certificate has this subject, such as `CN=alice` or
    /// `CN=alice,O=Example`; may be repeated
    #[arg(long, value_name = "SUBJECT", requires = "tls_verify_peer")]
    pub tls_authz: Vec<CertificateSubject>,
}

impl TlsArgs {
    /// The word on the command line.
    pub fn word(&self) -> &'static str {
        match self.tls {
            TlsMode::Off => "off",
            TlsMode::On => "on",
            TlsMode::Require => "require",
        }
    }

    /// Reads the certificates, where TLS is on.
    pub fn load(&self) -> Result<Option<Renewable>, CliError> {
        if self.tls_verify_peer && self.tls == TlsMode::On {
            return Err(CliError::parameters(
                "--tls-verify-peer with --tls=on verifies nobody: clients without TLS are served too; use --tls=require",
            ));
        }
        match (self.tls, &self.tls_certificates) {
            (TlsMode::Off, None) => Ok(None),
            (TlsMode::Off, Some(_)) => {
                Err(CliError::parameters("--tls-certificates without TLS; use --tls=require, or --tls=on"))
            }
            (_, None) => {
                Err(CliError::parameters("--tls needs --tls-certificates DIR with server-cert.pem and server-key.pem"))
            }
            (_, Some(directory)) => {
                let found = Renewable::read(directory, self.clients())?;
                let key = cryptline_serve::nbd::private_key_path(directory);
                warn(exposed_key(&key).as_slice());
                Ok(Some(found))
            }
        }
    }

    fn clients(&self) -> AllowedClients {
        match (self.tls_verify_peer, self.tls_authz.is_empty()) {
            (false, _) => AllowedClients::Anybody,
            (true, true) => AllowedClients::Verified,
            (true, false) => AllowedClients::Named(self.tls_authz.clone()),
        }
    }

    /// Returns what URIs say: clients on this machine find the certificate authority in our directory.
    pub fn uri_options(&self) -> TlsOptions {
        let authority = |directory: &&PathBuf| directory.join("ca-cert.pem").is_file();
        let directory = self.tls_certificates.as_ref().filter(authority);
        TlsOptions {
            certificates: match self.tls {
                TlsMode::Require => directory.map(|directory| absolute(directory)),
                TlsMode::Off | TlsMode::On => None,
            },
            ..TlsOptions::default()
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
