//! Certificates that are read again while the server runs.
//!
//! The sandbox forbids opening files, and the server's user may not be the one who may read the key. So another
//! process reads: a companion (`again.rs`), started before the server gives up its rights. It does nothing but answer
//! the number of a file with what is in it, and ends with the server.
//!
//! ```text
//! server   number of a name in FILES ─────────────────────► reader
//!          ◄── error number, length (4 bytes each), contents
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use cryptline_serve::nbd::{AllowedClients, Certificates, CurrentTls, FILES, read_file};
use cryptline_sys::lock;
use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::expiry;
use super::signals::Reload;
use crate::CliError;
use crate::again;
use crate::output::warn;

/// Longest file. A chain of certificates has some thousand bytes.
const FILE_MAX: usize = 1 << 20;
/// How long the reader may take. The server hears no signal meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// TLS material that new clients are greeted with, and what renews it.
pub struct Renewable {
    /// For the server.
    pub tls: Arc<CurrentTls>,
    /// A name that the server's certificate has.
    pub host: Option<String>,
    directory: PathBuf,
    clients: AllowedClients,
}

impl Renewable {
    /// Reads the certificates for the first time.
    ///
    /// # Errors
    /// Exit code 1 where they cannot be used.
    pub fn read(directory: &Path, clients: AllowedClients) -> Result<Self, CliError> {
        let found = Certificates::read(directory, &clients, &read_file);
        let found = found.map_err(|error| CliError::parameters(error.to_string()))?;
        let now = SystemTime::now();
        if let Err(error) = found.check(directory, now) {
            if found.has_expired(now) {
                return Err(CliError::parameters(format!(
                    "{error}, such as with `cryptline certs`: clients refuse it"
                )));
            }
            // The clock of a machine that starts may be wrong, and right by the time that clients come.
            warn(&[format!("{error}; until then clients refuse it")]);
        }
        expiry::set(found.valid_until());
        Ok(Self {
            host: found.host,
            tls: CurrentTls::new(found.config),
            directory: std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()),
            clients,
        })
    }

    /// Returns what reads them again. Call before rights are given up, and when no descriptor is left that others must
    /// not have.
    pub fn again(&self) -> Again {
        Again(Arc::new(Mutex::new(Reading {
            reader: CertificateReader::start(&self.directory),
            tls: Arc::clone(&self.tls),
            directory: self.directory.clone(),
            clients: self.clients.clone(),
        })))
    }
}

/// Reads the certificates again, for whoever asks.
#[derive(Clone)]
pub struct Again(Arc<Mutex<Reading>>);

struct Reading {
    reader: io::Result<CertificateReader>,
    tls: Arc<CurrentTls>,
    directory: PathBuf,
    clients: AllowedClients,
}

impl Again {
    /// Returns what SIGHUP asks for.
    pub fn on_signal(&self) -> Reload {
        let again = self.clone();
        // The log has it.
        Box::new(move || drop(again.read()))
    }

    /// Reads them, and takes them from now on if they can be used; until when that of the server is valid.
    ///
    /// # Errors
    /// Why they stay as they were.
    pub fn read(&self) -> Result<String, String> {
        let Reading { reader, tls, directory, clients } = &mut *lock(&self.0);
        match read_again(reader, directory, clients) {
            Ok(found) => {
                let (expiry, until) = (found.expiry().unwrap_or_default(), found.valid_until());
                tls.replace(found.config);
                tracing::info!(
                    event = "reloaded",
                    expiry,
                    "certificates read again; that of the server is valid until {expiry}"
                );
                expiry::set(until);
                Ok(expiry)
            }
            Err(why) => {
                tracing::error!(event = "reload_failed", why, "the certificates stay as they were: {why}");
                Err(format!("the certificates stay as they were: {why}"))
            }
        }
    }
}

/// SIGHUP of a server that has nothing to read again. For those under a service manager, whose `reload` must not end them.
pub fn nothing_to_reload() -> Reload {
    Box::new(|| crate::log::info("nothing to reload: TLS is off"))
}

fn read_again(
    reader: &mut io::Result<CertificateReader>,
    directory: &Path,
    clients: &AllowedClients,
) -> Result<Certificates, String> {
    let asked = reader.as_ref().map_err(|error| {
        format!("the process that reads them could not be started, or has failed ({error}); restart the server")
    })?;
    let broken = std::cell::Cell::new(None);
    let read = |path: &Path| {
        asked.read(path).map_err(|error| match error {
            CertificateTrouble::File(error) => error,
            CertificateTrouble::Reader(error) => {
                broken.set(Some(error.kind()));
                error
            }
        })
    };
    let found = Certificates::read(directory, clients, &read);
    let found = found.and_then(|found| found.check(directory, SystemTime::now()).map(|()| found));
    if let Some(kind) = broken.take() {
        // Its next answer could be the one that is missing.
        *reader = Err(kind.into());
    }
    found.map_err(|error| error.to_string())
}

/// The process that reads, from the server's side.
struct CertificateReader(UnixStream);

enum CertificateTrouble {
    File(io::Error),
    Reader(io::Error),
}

impl CertificateReader {
    fn start(directory: &Path) -> io::Result<Self> {
        let mut companion = again::this_program();
        companion.args(["certs", "--to-server", "--"]).arg(directory).env_clear();
        // What is sent to all processes of a terminal is not meant for it.
        companion.process_group(0);
        let socket = again::start_companion(companion)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(socket))
    }

    fn read(&self, path: &Path) -> Result<Zeroizing<Vec<u8>>, CertificateTrouble> {
        let name = path.file_name();
        let number = FILES.iter().position(|known| name == Some(known.as_ref()));
        let number = number.and_then(|number| u8::try_from(number).ok());
        let number = number.ok_or_else(|| CertificateTrouble::File(io::ErrorKind::NotFound.into()))?;
        self.ask(number).map_err(CertificateTrouble::Reader)?.map_err(|errno| CertificateTrouble::File(errno.into()))
    }

    fn ask(&self, number: u8) -> io::Result<Result<Zeroizing<Vec<u8>>, Errno>> {
        let mut socket = &self.0;
        socket.write_all(&[number])?;
        let (error, len) = (word(socket)?, word(socket)?);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > FILE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut contents = Zeroizing::new(vec![0; len]);
        socket.read_exact(&mut contents)?;
        match i32::try_from(error) {
            Ok(0) => Ok(Ok(contents)),
            error => Ok(Err(Errno::from_raw_os_error(error.unwrap_or(libc::EIO)))),
        }
    }
}

fn word(mut socket: &UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    socket.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

/// In that process: answers whoever has the other end of standard input, until nobody has.
pub fn answer(directory: &Path) -> io::Result<()> {
    crate::harden::protect_process();
    let socket = again::server_of_companion()?;
    loop {
        let mut number = [0];
        if (&socket).read(&mut number)? == 0 {
            return Ok(());
        }
        let name = FILES.get(usize::from(number[0]));
        let contents = name.map_or(Err(Errno::NOENT), |name| contents(&directory.join(name)));
        let (error, contents) = match contents {
            Ok(contents) => (0, contents),
            Err(error) => (error.raw_os_error().cast_unsigned(), Zeroizing::default()),
        };
        let len = u32::try_from(contents.len()).unwrap_or(0);
        let mut reply = Zeroizing::new(Vec::with_capacity(8 + contents.len()));
        reply.extend_from_slice(&error.to_be_bytes());
        reply.extend_from_slice(&len.to_be_bytes());
        reply.extend_from_slice(&contents);
        (&socket).write_all(&reply)?;
    }
}

/// Contents of a regular file: others could have no end, or none yet.
pub fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, Errno> {
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(nonblock).open(path);
    let file: File = opened.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(Errno::INVAL);
    }
    let mut contents = Zeroizing::new(Vec::with_capacity(FILE_MAX));
    let most = FILE_MAX as u64 + 1;
    file.take(most).read_to_end(&mut contents).map_err(failed)?;
    if contents.len() > FILE_MAX {
        return Err(Errno::FBIG);
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is asked of a process that answers so, and keeps the socket open where it `stays`.
    fn asked(answer: &[u8], stays: bool) -> io::Result<Result<Zeroizing<Vec<u8>>, Errno>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        (&theirs).write_all(answer).unwrap();
        let reader = CertificateReader(ours);
        let theirs = stays.then_some(theirs);
        let answer = reader.ask(0);
        drop(theirs);
        answer
    }

    #[test]
    fn process_that_is_gone_silent_or_lies_ends_the_reading_and_nothing_is_believed() {
        let words = |error: u32, len: u32| [error.to_be_bytes(), len.to_be_bytes()].concat();
        let told = asked(&[&words(0, 2)[..], b"ab"].concat(), true).unwrap().unwrap();
        assert_eq!(told[..], *b"ab");
        assert_eq!(asked(&words(2, 0), true).unwrap().unwrap_err(), Errno::NOENT);
        let kind = |answer: &[u8], stays| asked(answer, stays).unwrap_err().kind();
        assert_eq!(kind(&words(0, 2), true), io::ErrorKind::WouldBlock);
        assert_eq!(kind(&words(0, u32::MAX), true), io::ErrorKind::InvalidData);
        assert!(asked(&words(0, 2), false).is_err() && asked(&[], false).is_err());
    }
}
