//! `certs`: what `--tls` needs, for those who have no certificate authority.

mod found;
mod renew;

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use rustix::rand::GetRandomFlags;

use crate::CliError;
use crate::new_file::NewFile;
use crate::output::{for_shell, report};
use crate::serve::certificates;
use crate::verb::{Group, Verb};

const AUTHORITY: &str = "ca-cert.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";
const SERVER: &str = "server-cert.pem";
const CLIENT: &str = "client-cert.pem";
const CLIENT_KEY: &str = "client-key.pem";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks of other machines may be behind.
const BEFORE: Duration = DAY;
const DAYS_MAX: u64 = 36_500;

pub const VERB: Verb = Verb {
    name: "certs",
    group: Some(Group::Tools),
    examples: "\
cryptline certs pki --host disks.example.org
mv pki/ca-key.pem /media/safe/
cryptline serve disk.img -p 10809 -i :: --tls=require --tls-certificates pki --tls-verify-peer
nbdinfo 'nbds://disks.example.org/?tls-certificates=pki'
cryptline certs pki add-client alice
cryptline certs pki renew && cryptline ctl control.sock reload",
    notes: "\
The files have the names that libnbd, nbdkit and QEMU look for:

  ca-cert.pem                       the authority; every machine needs it
  server-cert.pem, server-key.pem   for `serve --tls-certificates`
  client-cert.pem, client-key.pem   for clients of `serve --tls-verify-peer`
  ca-key.pem                        signs certificates: move it to a safe place

Whoever has ca-key.pem can issue trusted certificates: delete it where no more are needed. A server needs neither client-key.pem nor ca-key.pem; a client needs ca-cert.pem and its own two files. `add-client`
and `renew` need ca-key.pem: copy it back for as long as they take.",
    see: "cryptline-serve(1), certtool(1)",
    keyless: true,
    ..Verb::EMPTY
};

/// For whom, and where to.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
pub struct CertsArgs {
    /// Folder that gets the files; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Name or address by which clients reach the server; may be repeated [default: localhost, 127.0.0.1, ::1]
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Name of the client, for `serve --tls-authz CN=NAME` [default: client]
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,

    /// Days until the certificates expire
    #[arg(long, value_name = "N", default_value_t = 825, global = true,
          value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub days: u64,

    /// We are the process that reads them for a server in a sandbox.
    #[arg(long, hide = true)]
    pub to_server: bool,

    /// Change to make in a folder that has them.
    #[command(subcommand)]
    pub change: Option<CertificateChange>,
}

/// Changes of certificates that were made before.
#[derive(Subcommand, Debug)]
pub enum CertificateChange {
    /// Make DIR/NAME with a key and a certificate for one more client
    AddClient {
        /// Name of the client, for `serve --tls-authz CN=NAME`, and of the folder
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Renew all certificates in DIR: new dates, the same authority, keys and names
    Renew,
}

/// Makes an authority, and a server and a client that it vouches for; or more by an authority that it made.
///
/// # Errors
/// Exit code 5 where one of the files exists, 1 for a name that no certificate can have.
pub fn run(args: &CertsArgs) -> Result<(), CliError> {
    if args.to_server {
        // However the server has gone.
        let _ = certificates::answer(&args.folder);
        return Ok(());
    }
    let days = DAY.saturating_mul(u32::try_from(args.days).unwrap_or(u32::MAX));
    if let Some(change) = &args.change {
        if !args.host.is_empty() || args.client.is_some() {
            return Err(CliError::parameters("--host and --client name new certificates; a change keeps the names"));
        }
        return match change {
            CertificateChange::AddClient { name } => renew::add_client(&args.folder, name, days),
            CertificateChange::Renew => renew::renew(&args.folder, days),
        };
    }
    let hosts = if args.host.is_empty() {
        ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into()
    } else {
        args.host.clone()
    };
    let name = |host: &String| host.parse::<IpAddr>().is_ok() || is_host_name(host);
    if let Some(wrong) = hosts.iter().find(|host| !name(host)) {
        return Err(CliError::parameters(format!("--host {wrong:?} is neither a host name nor an address")));
    }
    let files = make(&hosts, args.client.as_deref().unwrap_or("client"), days)
        .map_err(|error| CliError::parameters(format!("cannot make the certificates: {error}")))?;
    write(&args.folder, &files)?;
    let folder = for_shell(&args.folder.display().to_string());
    report(&format!(
        "wrote {} to {folder}; they expire in {}\nmove ca-key.pem to a safe place: the server and its clients do not need it\n\nTry:\n  cryptline serve --tls=require --tls-certificates {folder}\n",
        files.iter().map(|file| file.name).collect::<Vec<_>>().join(", "),
        in_days(args.days),
    ))
}

fn in_days(days: u64) -> String {
    if days == 1 { "1 day".to_owned() } else { format!("{days} days") }
}

/// Labels of letters, digits and hyphens; the first may be a star.
fn is_host_name(text: &str) -> bool {
    let label = |(index, label): (usize, &str)| {
        let fits = (1..=63).contains(&label.len());
        let is_word = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-');
        fits && (is_word || index == 0 && label == "*")
    };
    text.len() <= 253 && text.split('.').enumerate().all(label)
}

struct Pem {
    name: &'static str,
    text: String,
    is_secret: bool,
}

fn make(hosts: &[String], client: &str, lifetime: Duration) -> Result<Vec<Pem>, rcgen::Error> {
    let authority_key = KeyPair::generate()?;
    let authority = authority_params("cryptline CA", lifetime);
    let authority_text = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, &authority_key);

    let (server, client) = (server_params(hosts, &hosts[0], lifetime)?, client_params(client, lifetime));
    let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
    let public = |name, text| Pem { name, text, is_secret: false };
    let secret = |name, key: &KeyPair| Pem { name, text: key.serialize_pem(), is_secret: true };
    Ok(vec![
        secret(AUTHORITY_KEY, &authority_key),
        public(AUTHORITY, authority_text),
        secret("server-key.pem", &server_key),
        public(SERVER, server.signed_by(&server_key, &issuer)?.pem()),
        secret(CLIENT_KEY, &client_key),
        public(CLIENT, client.signed_by(&client_key, &issuer)?.pem()),
    ])
}

fn authority_params(name: &str, lifetime: Duration) -> CertificateParams {
    let mut authority = params(name, lifetime);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority
}

fn server_params(hosts: &[String], name: &str, lifetime: Duration) -> Result<CertificateParams, rcgen::Error> {
    let mut server = leaf(name, lifetime, ExtendedKeyUsagePurpose::ServerAuth);
    server.subject_alt_names = CertificateParams::new(hosts)?.subject_alt_names;
    Ok(server)
}

fn client_params(name: &str, lifetime: Duration) -> CertificateParams {
    leaf(name, lifetime, ExtendedKeyUsagePurpose::ClientAuth)
}

fn params(name: &str, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + lifetime).into();
    // By default it comes from the key, and a renewal, which keeps that, would have the same.
    params.serial_number = Some(serial());
    params
}

/// A number that no other certificate has: positive, of 16 bytes.
fn serial() -> SerialNumber {
    let mut bytes = [0; 16];
    // Fails for no buffer this small once the system has started.
    let _ = rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty());
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes.to_vec().into()
}

fn leaf(name: &str, lifetime: Duration, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = params(name, lifetime);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params
}

/// All or none, and nothing that exists is touched.
fn write(folder: &Path, files: &[Pem]) -> Result<(), CliError> {
    let failed = |path: &Path, error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CliError::busy(format!("{} exists and is kept; choose another folder, or remove it", path.display()))
        }
        _ => CliError::device(format!("cannot write {}: {error}", path.display())),
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let mut written: Vec<PathBuf> = Vec::new();
    for file in files {
        let path = folder.join(file.name);
        let mode = if file.is_secret { 0o600 } else { 0o644 };
        if let Err(error) = NewFile::aside(&path, mode).and_then(|new| new.put(file.text.as_bytes())) {
            for path in &written {
                // What was made here and is of no use alone.
                let _ = fs::remove_file(path);
            }
            return Err(failed(&path, error));
        }
        written.push(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_told_from_others() {
        for name in ["localhost", "a.example.org", "*.example.org", "xn--a-b"] {
            assert!(is_host_name(name), "{name}");
        }
        for name in ["", "a..b", "-a", "a b", "ä.org", "a.*", "http://a", "a\n"] {
            assert!(!is_host_name(name), "{name:?}");
        }
    }

    #[test]
    fn nothing_that_exists_is_touched_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("server-cert.pem");
        fs::write(&kept, "mine").unwrap();
        let files = make(&["localhost".into()], "me", DAY).unwrap();
        let error = write(folder.path(), &files).unwrap_err();
        assert_eq!(error.exit_code(), 5);
        assert_eq!(fs::read(&kept).unwrap(), b"mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
