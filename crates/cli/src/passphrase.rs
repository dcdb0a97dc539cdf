//! Where passphrases and keys come from: the terminal, a file, a descriptor. Never the command line.
//!
//! | source | what is taken |
//! |---|---|
//! | prompt on the terminal | the line, without its end |
//! | `--key-file FILE` | every byte of the file, a newline at its end included |
//! | `--key-file -` | every byte of standard input up to its end |
//! | `--passphrase-fd N` | everything up to the end, less one newline at the end |
//!
//! Key files are so read as cryptsetup reads them. Bytes go straight into locked memory: nothing
//! here passes through a buffered reader, which would leave copies.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cryptline_luks::{KEY_LEN_MAX, KdfLimits, PASSPHRASE_LEN_MAX};
use cryptline_sys::SecretBuf;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::CliError;
use crate::size;

/// Where a passphrase comes from. Without an option it is asked for on the terminal.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct PassphraseSource {
    /// Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as
    /// cryptsetup does); `-` reads standard input to its end
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Skip this many bytes of the key file first
    #[arg(long, value_name = "BYTES", value_parser = size::parse, requires = "key_file")]
    pub keyfile_offset: Option<u64>,

    /// Take only this many bytes of the key file [default: all, at most 8M]
    #[arg(long, value_name = "BYTES", value_parser = size::parse, requires = "key_file")]
    pub keyfile_size: Option<u64>,

    /// Take the passphrase from the open file descriptor N (0 is standard input), less one newline
    /// at the end
    #[arg(long, value_name = "N", conflicts_with = "key_file")]
    pub passphrase_fd: Option<u32>,
}

/// How a volume is unlocked.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct KeySource {
    /// By a passphrase.
    #[command(flatten)]
    pub passphrase: PassphraseSource,

    /// Take the volume key itself from FILE, as bytes; it is checked against the header
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "passphrase_fd", "key_slot"])]
    pub volume_key_file: Option<PathBuf>,

    /// Try only this key slot, whatever its priority
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    /// Let all key slots together take SECONDS of this machine's time to try; a slot that would take
    /// longer is refused, since a header can ask for anything [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub kdf_time_limit: Option<u64>,
}

/// The name by which command lines flatten [`KeySource`].
pub type KeyArgs = KeySource;

impl KeySource {
    /// Whether the key comes from the terminal, so that asking again makes sense.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.passphrase.is_prompt() && self.volume_key_file.is_none()
    }

    /// Whether no key option was given at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_prompt() && self.key_slot.is_none() && self.kdf_time_limit.is_none()
    }

    /// How long key slots may take.
    #[must_use]
    pub fn kdf_limits(&self) -> KdfLimits {
        let time = self.kdf_time_limit.map(Duration::from_secs);
        time.map_or_else(KdfLimits::default, |time| KdfLimits { time })
    }

    /// The bytes of `--volume-key-file`, if that was given.
    ///
    /// # Errors
    /// Exit code 4 when it can not be read, 1 when it is longer than any key.
    pub fn volume_key(&self) -> Result<Option<SecretBuf>, CliError> {
        let Some(path) = &self.volume_key_file else {
            return Ok(None);
        };
        let limit = KEY_LEN_MAX as usize;
        let key = read_file(path, 0, limit + 1)?;
        if key.is_empty() || key.len() > limit {
            return Err(CliError::parameters(format!(
                "{}: a volume key has 1 to {limit} bytes; give the raw key",
                path.display()
            )));
        }
        Ok(Some(key))
    }
}

impl PassphraseSource {
    /// Whether the passphrase comes from the terminal.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.key_file.is_none() && self.passphrase_fd.is_none()
    }

    /// A key file that is not standard input: a plain volume takes it as its key.
    #[must_use]
    pub fn key_file_on_disk(&self) -> Option<&Path> {
        self.key_file
            .as_deref()
            .filter(|path| *path != Path::new("-"))
    }

    /// The passphrase for `what`, asked for once on the terminal if no option says otherwise.
    ///
    /// # Errors
    /// Exit code 1 without a terminal and for bad sizes, 4 for a file that can not be read.
    pub fn read(&self, what: &str) -> Result<SecretBuf, CliError> {
        let (secret, name) = self.read_any(what)?;
        if secret.is_empty() && !self.is_prompt() {
            return Err(CliError::parameters(format!(
                "{name} is empty; put the passphrase in it"
            )));
        }
        Ok(secret)
    }

    /// As [`PassphraseSource::read`], for a volume that may have an empty passphrase.
    ///
    /// # Errors
    /// As [`PassphraseSource::read`].
    pub fn read_or_empty(&self, what: &str) -> Result<SecretBuf, CliError> {
        Ok(self.read_any(what)?.0)
    }

    /// The passphrase, whatever its length, and where it is from.
    fn read_any(&self, what: &str) -> Result<(SecretBuf, String), CliError> {
        match (&self.key_file, self.passphrase_fd) {
            (Some(path), _) => Ok((self.read_key_file(path)?, shown(path))),
            (None, Some(descriptor)) => {
                let name = format!("file descriptor {descriptor}");
                Ok((read_descriptor(descriptor, &name)?, name))
            }
            (None, None) => {
                let answer = prompt(&format!("Enter passphrase for {what}: "))?;
                Ok((answer, String::new()))
            }
        }
    }

    /// As [`PassphraseSource::read`], for a new passphrase: asked for twice on the terminal.
    ///
    /// # Errors
    /// As [`PassphraseSource::read`], and exit code 2 when the two differ.
    pub fn read_new(&self, what: &str) -> Result<SecretBuf, CliError> {
        if !self.is_prompt() {
            return self.read(what);
        }
        let first = prompt(&format!("Enter a new passphrase for {what}: "))?;
        let second = prompt("Enter it again: ")?;
        if *first == *second {
            Ok(first)
        } else {
            Err(CliError::no_key(
                "the two passphrases differ, nothing was done; try again",
            ))
        }
    }

    fn read_key_file(&self, path: &Path) -> Result<SecretBuf, CliError> {
        let offset = self.keyfile_offset.unwrap_or(0);
        let name = shown(path);
        let wanted = self
            .keyfile_size
            .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if wanted.is_some_and(|wanted| wanted == 0 || wanted > PASSPHRASE_LEN_MAX) {
            return Err(CliError::parameters(
                "--keyfile-size must be 1 byte to 8M; leave it out to take the whole file",
            ));
        }
        let limit = wanted.unwrap_or(PASSPHRASE_LEN_MAX + 1);
        let secret = if path == Path::new("-") {
            read_from(stdin(), &name, offset, limit)?
        } else {
            read_file(path, offset, limit)?
        };
        if let Some(wanted) = wanted
            && secret.len() < wanted
        {
            return Err(CliError::parameters(format!(
                "{name} has only {} of the {wanted} bytes that are needed (--keyfile-size, or the key size of a plain volume)",
                secret.len()
            )));
        }
        checked_len(secret, &name)
    }
}

/// Everything from the descriptor, less one newline.
fn read_descriptor(descriptor: u32, name: &str) -> Result<SecretBuf, CliError> {
    let source = match descriptor {
        0 => stdin(),
        _ => File::open(format!("/proc/self/fd/{descriptor}")).map_err(|error| {
            CliError::parameters(format!(
                "cannot read {name}: {error}; open it for this program, as with {descriptor}<FILE"
            ))
        }),
    }?;
    let secret = read_from(Ok(source), name, 0, PASSPHRASE_LEN_MAX + 1)?;
    let secret = match secret.split_last() {
        Some((b'\n', rest)) => SecretBuf::copy_of(rest).map_err(|error| no_memory(&error))?,
        _ => secret,
    };
    checked_len(secret, name)
}

fn checked_len(secret: SecretBuf, name: &str) -> Result<SecretBuf, CliError> {
    if secret.len() > PASSPHRASE_LEN_MAX {
        return Err(CliError::parameters(format!(
            "{name} is longer than 8M; give --keyfile-size, or the right file"
        )));
    }
    Ok(secret)
}

fn read_file(path: &Path, offset: u64, limit: usize) -> Result<SecretBuf, CliError> {
    let name = shown(path);
    crate::output::warn(crate::harden::exposed_key(path).as_slice());
    let file = File::options()
        .read(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(path)
        .map_err(|error| CliError::device(format!("cannot open key file {name}: {error}")));
    read_from(file, &name, offset, limit)
}

/// At most `limit` bytes from `offset` on.
pub(crate) fn read_from(
    file: Result<File, CliError>,
    name: &str,
    offset: u64,
    limit: usize,
) -> Result<SecretBuf, CliError> {
    let mut file = file?;
    let failed = |error: io::Error| CliError::device(format!("cannot read {name}: {error}"));
    skip(&mut file, offset).map_err(failed)?;
    let mut secret = SecretBuf::zeroed(limit.min(4096)).map_err(|error| no_memory(&error))?;
    let mut filled = 0;
    while filled < limit {
        if filled == secret.len() {
            secret = grown(&secret, limit)?;
        }
        match file.read(&mut secret[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    SecretBuf::copy_of(&secret[..filled]).map_err(|error| no_memory(&error))
}

/// The same bytes with twice the room, at most `limit`. The old memory is wiped when dropped.
fn grown(secret: &SecretBuf, limit: usize) -> Result<SecretBuf, CliError> {
    let len = secret.len().saturating_mul(2).min(limit);
    let mut larger = SecretBuf::zeroed(len).map_err(|error| no_memory(&error))?;
    larger[..secret.len()].copy_from_slice(secret);
    Ok(larger)
}

/// Passes over `offset` bytes, also of what can only be read, such as a pipe.
fn skip(file: &mut File, offset: u64) -> io::Result<()> {
    if offset == 0 || file.seek(SeekFrom::Current(offset.cast_signed())).is_ok() {
        return Ok(());
    }
    let mut left = offset;
    let mut passed = Zeroizing::new([0; 4096]);
    while left > 0 {
        let len = usize::try_from(left).map_or(passed.len(), |left| left.min(passed.len()));
        match file.read(&mut passed[..len])? {
            0 => break,
            count => left -= count as u64,
        }
    }
    Ok(())
}

fn stdin() -> Result<File, CliError> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
    let duplicate = duplicate.map_err(|error| {
        CliError::parameters(format!(
            "cannot read standard input: {error}; is it closed?"
        ))
    })?;
    Ok(File::from(duplicate))
}

/// Asks on the terminal, without echo.
fn prompt(question: &str) -> Result<SecretBuf, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::parameters(
            "no terminal to ask for the passphrase; give --key-file FILE, or --passphrase-fd 0 to read it from standard input",
        ));
    }
    let question = crate::error::on_one_line(question);
    crate::terminal::ask(&question).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => CliError::parameters("no passphrase: interrupted"),
        io::ErrorKind::UnexpectedEof => {
            CliError::parameters("no passphrase was typed; try again, or give --key-file FILE")
        }
        io::ErrorKind::OutOfMemory => no_memory(&error),
        _ => CliError::parameters(format!(
            "cannot ask for the passphrase: {error}; give --key-file FILE instead"
        )),
    })
}

fn no_memory(error: &io::Error) -> CliError {
    CliError::memory(format!("no memory for a key: {error}; free some"))
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}
