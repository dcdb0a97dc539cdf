//! Where passphrases and keys come from: the terminal, a file, a descriptor. Never the command line.
//!
//! | source | what is taken |
//! |---|---|
//! | prompt on the terminal | the line, without its end |
//! | `--key-file FILE` | every byte of the file, a newline at its end included |
//! | `--key-file -` | every byte of standard input up to its end |
//! | `--passphrase-fd N` | everything up to the end, less one newline at the end |
//!
//! cryptsetup reads key files in the same way.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cryptline::keys::{Descriptor, KeyFile, VolumeKeyFile};
use cryptline::luks::{Error as LuksError, PASSPHRASE_LEN_MAX, time_text};
use cryptline::{KdfLimits, Key, KeyRequest, Keys, Problem, SecretBuf};

use crate::CliError;
use crate::output::complain;
use crate::size;

/// How often a passphrase is asked for on the terminal.
const PROMPTS_MAX: u32 = 3;
/// Whoever waits longer than this is told so before.
const TIME_WORTH_A_WORD: Duration = Duration::from_secs(5);

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
pub struct KeyArgs {
    /// By a passphrase.
    #[command(flatten)]
    pub passphrase: PassphraseSource,

    /// Take the volume key itself from FILE, as bytes; it is checked against the header
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key_file", "passphrase_fd", "key_slot"])]
    pub volume_key_file: Option<PathBuf>,

    /// Try only this key slot, whatever its priority
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    /// Spend at most SECONDS of this machine's time on trying all key slots together; a slot that would take
    /// longer is refused, since a header can ask for anything [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub kdf_time_limit: Option<u64>,
}

impl KeyArgs {
    /// Whether no key option was given at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passphrase.is_prompt()
            && self.volume_key_file.is_none()
            && self.key_slot.is_none()
            && self.kdf_time_limit.is_none()
    }

    /// How long key slots may take.
    #[must_use]
    pub fn kdf_limits(&self) -> KdfLimits {
        let time = self.kdf_time_limit.map(Duration::from_secs);
        time.map_or_else(KdfLimits::default, |time| KdfLimits { time })
    }
}

/// For a new volume.
impl Keys for PassphraseSource {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        let read = if request.is_new {
            self.read_new(request.name).map(Key::Passphrase)
        } else {
            self.read_key(request)
        };
        read.map(Some).map_err(CliError::into_keys_error)
    }
}

/// On the terminal up to three times; other sources once.
impl Keys for KeyArgs {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        if let Some(path) = &self.volume_key_file {
            warn_if_exposed(path);
            return VolumeKeyFile(path.clone()).key(request);
        }
        if request.takes > TIME_WORTH_A_WORD && request.failed == 0 {
            let (name, time) = (request.name, time_text(&request.takes));
            complain(&format!(
                "trying the key slots of {name} takes up to {time}"
            ));
        }
        let asks = self.passphrase.is_prompt();
        if request.failed >= if asks { PROMPTS_MAX } else { 1 } {
            return Ok(None);
        }
        if request.failed > 0 {
            complain(&LuksError::NoKey.to_string());
        }
        self.passphrase.key(request)
    }
}

impl PassphraseSource {
    /// Whether the passphrase comes from the terminal.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.key_file.is_none() && self.passphrase_fd.is_none()
    }

    /// A new passphrase for `what`: asked for twice on the terminal.
    fn read_new(&self, what: &str) -> Result<SecretBuf, CliError> {
        if !self.is_prompt() {
            return self.read(false);
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

    fn read_key(&self, request: &KeyRequest<'_>) -> Result<Key, CliError> {
        if let (Some(path), Some(len)) = (&self.key_file, request.raw_len)
            && path != Path::new("-")
        {
            // A file is the key of a plain volume; standard input is a passphrase, which is hashed.
            return self.read_key_file(path, Some(len)).map(Key::Volume);
        }
        if !request.takes_passphrase {
            return Err(cryptline::Error::from(Problem::NoHash).into());
        }
        if self.is_prompt() {
            let question = format!("Enter passphrase for {}: ", request.name);
            return prompt(&question).map(Key::Passphrase);
        }
        self.read(request.may_be_empty).map(Key::Passphrase)
    }

    fn read(&self, may_be_empty: bool) -> Result<SecretBuf, CliError> {
        match (&self.key_file, self.passphrase_fd) {
            (Some(path), _) => {
                let secret = self.read_key_file(path, self.checked_size()?)?;
                if secret.is_empty() && !may_be_empty {
                    let name = shown(path);
                    return Err(CliError::parameters(format!(
                        "{name} is empty; put the passphrase in it"
                    )));
                }
                Ok(secret)
            }
            (None, number) => Ok(Descriptor(number.unwrap_or(0)).read(may_be_empty)?),
        }
    }

    fn checked_size(&self) -> Result<Option<usize>, CliError> {
        let size = self
            .keyfile_size
            .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if size.is_some_and(|size| size == 0 || size > PASSPHRASE_LEN_MAX) {
            return Err(CliError::parameters(
                "--keyfile-size must be 1 byte to 8M; leave it out to take the whole file",
            ));
        }
        Ok(size)
    }

    fn read_key_file(&self, path: &Path, size: Option<usize>) -> Result<SecretBuf, CliError> {
        let file = KeyFile {
            path: path.to_owned(),
            offset: self.keyfile_offset.unwrap_or(0),
            size,
        };
        if path == Path::new("-") {
            let input = stdin().map_err(|error| {
                CliError::parameters(format!(
                    "cannot read standard input: {error}; is it closed?"
                ))
            })?;
            return Ok(file.read_from(input, &shown(path), size)?);
        }
        warn_if_exposed(path);
        Ok(file.read(true)?)
    }
}

/// A descriptor of standard input of its own.
pub(super) fn stdin() -> io::Result<File> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    Ok(File::from(duplicate))
}

fn warn_if_exposed(path: &Path) {
    crate::output::warn(crate::harden::exposed_key(path).as_slice());
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
        io::ErrorKind::OutOfMemory => {
            CliError::memory(format!("no memory for a key: {error}; free some"))
        }
        _ => CliError::parameters(format!(
            "cannot ask for the passphrase: {error}; give --key-file FILE instead"
        )),
    })
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}
