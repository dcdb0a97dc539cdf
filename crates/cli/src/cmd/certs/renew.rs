//! More certificates by an authority that `certs` made: `add-client` and `renew`.
//!
//! ```text
//! add-client NAME   DIR/NAME/{ca-cert,client-cert,client-key}.pem     a folder to hand over; made aside, renamed once
//! renew             DIR/{ca-cert,server-cert,client-cert}.pem         the same keys, names and files, new dates
//!                   DIR/*/{ca-cert,client-cert}.pem                   what add-client made
//! ```
//!
//! A renewal keeps every key, that of the authority too, and the authority expires with what it signs, so its certificate is
//! renewed as well. So any mix of old and new files is good until the old ones expire: a crash between two renames, a
//! server that has not read them again, and a client with the old `ca-cert.pem` are no trouble. All files are written and
//! durable before the first is renamed.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{Issuer, KeyPair};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use super::found::{FOREIGN, FoundCertificate, Leaf};
use super::{
    AUTHORITY, AUTHORITY_KEY, CLIENT, CLIENT_KEY, DAY, Pem, SERVER, authority_params, client_params, in_days,
    server_params, write,
};
use crate::CliError;
use crate::output::{for_shell, report};
use crate::serve::certificates;

/// Longest common name, see RFC 5280, appendix A.1.
const NAME_MAX: usize = 64;

/// Makes `folder/name` with a key and a certificate for another client.
///
/// # Errors
/// Exit code 1 for a name that cannot be used and where the authority cannot sign, 5 where the folder exists.
pub fn add_client(folder: &Path, name: &str, lifetime: Duration) -> Result<(), CliError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_name) || name.starts_with(['-', '.']) {
        return Err(CliError::parameters(format!(
            "client {name:?}: use up to {NAME_MAX} letters, digits and -_.@, beginning with a letter or digit"
        )));
    }
    let authority = Authority::read(folder)?;
    let end = authority.end.min(SystemTime::now() + lifetime);
    if end <= SystemTime::now() {
        return Err(CliError::parameters(format!(
            "the certificate authority in {} has expired; renew it first: cryptline certs {} renew",
            folder.display(),
            for_shell(&folder.display().to_string())
        )));
    }
    let key = KeyPair::generate().map_err(cannot)?;
    let mut params = client_params(name, lifetime);
    params.not_after = end.into();
    let certificate = params.signed_by(&key, &authority.issuer(lifetime)).map_err(cannot)?;
    let files = [
        Pem { name: AUTHORITY, text: authority.text.clone(), is_secret: false },
        Pem { name: CLIENT, text: certificate.pem(), is_secret: false },
        Pem { name: CLIENT_KEY, text: key.serialize_pem(), is_secret: true },
    ];
    let place = folder.join(name);
    let failed = |error: io::Error| cannot_write(&place, &error);
    // It has a key.
    let mut aside = tempfile::Builder::new();
    let aside = aside.prefix(".cryptline-").permissions(Permissions::from_mode(0o700)).tempdir_in(folder);
    let aside = aside.map_err(failed)?;
    write(aside.path(), &files)?;
    sync(aside.path()).map_err(failed)?;
    match renameat_with(CWD, aside.path(), CWD, &place, RenameFlags::NOREPLACE).map_err(io::Error::from) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CliError::busy(format!("{} exists and is kept; choose another name", place.display())));
        }
        Err(error) => return Err(failed(error)),
    }
    // What has another name now is no longer its own.
    let _ = aside.keep();
    sync(folder).map_err(failed)?;
    let days = end.duration_since(SystemTime::now()).unwrap_or_default().as_secs().div_ceil(DAY.as_secs());
    report(&format!(
        "wrote {AUTHORITY}, {CLIENT}, {CLIENT_KEY} to {}; they expire in {}\nhand the folder to the client: it needs nothing else; `serve --tls-authz CN={name}` admits it by name\n",
        for_shell(&place.display().to_string()),
        in_days(days),
    ))
}

/// Gives every certificate in `folder` new dates.
///
/// # Errors
/// Exit code 1 where the authority cannot sign or a certificate is not of the kind that `certs` makes; nothing is changed.
pub fn renew(folder: &Path, lifetime: Duration) -> Result<(), CliError> {
    let authority = Authority::read(folder)?;
    let issuer = authority.issuer(lifetime);
    let text = authority_params(&authority.name, lifetime).self_signed(&authority.key).map_err(cannot)?.pem();
    let mut files = vec![(folder.join(AUTHORITY), text.clone())];
    let mut leaf = |path: PathBuf, is_server: bool| {
        let Some(text) = read_if_there(&path)? else {
            return Ok(false);
        };
        let old = FoundCertificate::of_pem(&text)
            .and_then(|found| Leaf::of(&found, &authority.found, is_server))
            .map_err(|why| unusable(&path, why))?;
        let params = if is_server {
            server_params(&old.hosts, &old.name, lifetime)
        } else {
            Ok(client_params(&old.name, lifetime))
        };
        let new =
            params.and_then(|params| params.signed_by(&old.key, &issuer)).map_err(|error| unusable(&path, error))?;
        files.push((path, new.pem()));
        Ok::<_, CliError>(true)
    };
    leaf(folder.join(SERVER), true)?;
    leaf(folder.join(CLIENT), false)?;
    let mut authorities = Vec::new();
    for client in clients(folder).map_err(|error| cannot_read(folder, &error))? {
        if leaf(client.join(CLIENT), false)? {
            let path = client.join(AUTHORITY);
            // Guard: one that was put there by somebody else would be lost.
            if let Some(old) = read_if_there(&path)? {
                let found = FoundCertificate::of_pem(&old).and_then(|found| looked_at(&found, &authority.key));
                found.map_err(|why| unusable(&path, why))?;
            }
            authorities.push((path, text.clone()));
        }
    }
    files.extend(authorities);

    let mut aside = Vec::new();
    for (path, text) in &files {
        aside.push((path, written_aside(path, text).map_err(|error| cannot_write(path, &error))?));
    }
    for (path, file) in aside {
        file.persist(path).map_err(|failed| cannot_write(path, &failed.error))?;
    }
    for (path, _) in &files {
        path.parent().map_or(Ok(()), sync).map_err(|error| cannot_write(path, &error))?;
    }
    let names: Vec<String> =
        files.iter().map(|(path, _)| path.strip_prefix(folder).unwrap_or(path).display().to_string()).collect();
    report(&format!(
        "renewed {} in {}; they expire in {}; all keys are kept\nhave running servers read them: cryptline ctl SOCKET reload, systemctl reload, or SIGHUP\ngive clients the new {AUTHORITY}, and their {CLIENT}, before the old ones expire\n",
        names.join(", "),
        for_shell(&folder.display().to_string()),
        in_days(lifetime.as_secs() / DAY.as_secs()),
    ))
}

/// The authority of a folder: its certificate, and the key that goes with it.
struct Authority {
    text: String,
    found: FoundCertificate,
    name: String,
    end: SystemTime,
    key: KeyPair,
}

impl Authority {
    fn read(folder: &Path) -> Result<Self, CliError> {
        let (path, key_path) = (folder.join(AUTHORITY), folder.join(AUTHORITY_KEY));
        let missing = |path: &Path| {
            CliError::parameters(format!(
                "{} is missing; copy it back from where it is kept, or make a new authority: cryptline certs NEWDIR",
                path.display()
            ))
        };
        let text = read_if_there(&path)?.ok_or_else(|| missing(&path))?;
        let key = read_if_there(&key_path)?.ok_or_else(|| missing(&key_path))?;
        let key = KeyPair::from_pem(&key).map_err(|_| unusable(&key_path, "it has no private key that can be used"))?;
        let found = FoundCertificate::of_pem(&text).map_err(|why| unusable(&path, why))?;
        let (name, end) = looked_at(&found, &key).map_err(|why| unusable(&path, why))?;
        Ok(Self { text: text.to_string(), found, name, end, key })
    }

    fn issuer(&self, lifetime: Duration) -> Issuer<'static, &KeyPair> {
        Issuer::new(authority_params(&self.name, lifetime), &self.key)
    }
}

/// Name and end of an authority that `certs` made with this key.
fn looked_at(found: &FoundCertificate, key: &KeyPair) -> Result<(String, SystemTime), String> {
    if !found.is_self_issued() || !found.is_authority() {
        return Err("it is not an authority that signed itself".to_owned());
    }
    if found.key_bits() != Some(key.public_key_raw()) {
        return Err(format!("{AUTHORITY_KEY} is not its key"));
    }
    let name = found.common_name()?;
    let ours = authority_params(&name, DAY).self_signed(key).map_err(|error| error.to_string())?.pem();
    // Who has the old one must recognize the new one, and the reverse.
    if found.names_as(&FoundCertificate::of_pem(&ours)?) { Ok((name, found.end()?)) } else { Err(FOREIGN.to_owned()) }
}

/// The folders of clients, in order.
fn clients(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn read_if_there(path: &Path) -> Result<Option<Zeroizing<String>>, CliError> {
    match certificates::contents(path) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
            Err(_) => Err(unusable(path, "it is not text")),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(cannot_read(path, &error.into())),
    }
}

/// A file with the text of another, beside it and durable, for that one's name.
fn written_aside(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut new = tempfile::Builder::new();
    let new = new.prefix(".cryptline-").permissions(Permissions::from_mode(0o644));
    let mut file = new.tempfile_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    cryptline_sys::sync_all(file.as_file())?;
    Ok(file)
}

fn sync(folder: &Path) -> io::Result<()> {
    cryptline_sys::sync_all(&File::open(folder)?)
}

fn cannot(error: rcgen::Error) -> CliError {
    CliError::parameters(format!("cannot make the certificate: {error}"))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::parameters(format!("{} cannot be used: {why}; nothing was changed", path.display()))
}

fn cannot_read(path: &Path, error: &io::Error) -> CliError {
    CliError::device(format!("cannot read {}: {error}; nothing was changed", path.display()))
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::device(format!("cannot write {}: {error}; repeat the command once that is solved", path.display()))
}
