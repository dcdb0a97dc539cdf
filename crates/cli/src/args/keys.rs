//! Where passphrases and keys come from: the terminal, a file, a descriptor. Never the command line.
//!
//! | source | what is taken |
//! |---|---|
//! | prompt on the terminal | the line, without its end |
//! | no terminal, no option | a line of standard input, without its end |
//! | `--key-file FILE` | every byte of the file, a newline at its end included |
//! | `--key-file SOCKET` | every byte that whoever listens there sends |
//! | `--key-file -` | every byte of standard input up to its end |
//! | `--passphrase-fd N` | everything up to the end, less one newline at the end |
//! | `--passphrase-command CMD` | everything that it prints, less one newline at the end |
//!
//! cryptsetup reads key files in the same way.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use cryptline::keys::{Descriptor, KeyFile, VolumeKeyFile};
use cryptline::luks::{Error as LuksError, PASSPHRASE_LEN_MAX, Seed, time_text};
use cryptline::{HeaderRules, KdfLimits, Key, KeyRequest, Keys, Problem, SecretBuf, Target};
use cryptline_sys::lock;

use super::choice::{self, ChoiceWords};
use super::key_command::{self, CommandSource};
use super::rules::RulesArgs;
use crate::output::complain;
use crate::{CliError, size, terminal};

/// How often a passphrase is asked for on the terminal.
const PROMPTS_MAX: u32 = 3;
/// cryptsetup takes no more of what is typed on a terminal, in bytes, and cuts off the rest.
const TYPED_MAX: usize = 512;
/// A passphrase was read from standard input. A command that runs beside must not read it again.
static FROM_INPUT: AtomicBool = AtomicBool::new(false);
/// Whoever waits longer than this is told so before.
const TIME_WORTH_A_WORD: Duration = Duration::from_secs(5);

pub(super) const NEWLINE: &ChoiceWords<FinalNewline> = &[
    ("keep", "Part of the passphrase, as with cryptsetup", FinalNewline::Keep),
    ("strip", "The end of a line of text", FinalNewline::Strip),
];

/// Meaning of a newline at the end of a key file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinalNewline {
    /// Part of the passphrase.
    #[default]
    Keep,
    /// None of it.
    Strip,
}

/// Where a passphrase comes from. Without an option it is asked for on the terminal, or read from standard input
/// where that is none.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct PassphraseSource {
    /// Take the passphrase from FILE: all its bytes as they are, a trailing newline included (as
    /// cryptsetup does); `-` reads standard input to its end, and of a socket whoever listens there is asked
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Skip this many bytes of the key file first
    #[arg(long, value_name = "BYTES", value_parser = size::parse, requires = "key_file")]
    pub keyfile_offset: Option<u64>,

    /// Take only this many bytes of the key file [default: all, at most 8M]
    #[arg(long, value_name = "BYTES", value_parser = size::parse, requires = "key_file")]
    pub keyfile_size: Option<u64>,

    /// Meaning of a newline at the end of the key file
    #[arg(long, value_name = "WHAT", default_value = "keep", value_parser = choice::of(NEWLINE))]
    pub key_file_newline: FinalNewline,

    /// Set if the key file had one that was kept.
    #[arg(skip)]
    kept_newline: Arc<AtomicBool>,
    /// Set if what it was taken from was empty.
    #[arg(skip)]
    was_empty: Arc<AtomicBool>,
    /// Part of what was typed that cryptsetup would have taken, to be tried next.
    #[arg(skip)]
    cut: TypedStart,

    /// Take the passphrase from the open file descriptor N (0 is standard input), less one newline
    /// at the end
    #[arg(long, value_name = "N", conflicts_with = "key_file")]
    pub passphrase_fd: Option<u32>,

    /// Or from a command.
    #[command(flatten)]
    pub command: CommandSource,

    /// A new passphrase for a volume that has one: its options begin with `--new-`.
    #[arg(skip)]
    is_beside: bool,
}

/// The beginning of a passphrase that was typed.
#[derive(Clone, Default)]
struct TypedStart(Arc<Mutex<Option<SecretBuf>>>);

impl fmt::Debug for TypedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cut")
    }
}

impl TypedStart {
    /// Keeps what another program may have taken of `typed`.
    fn keep(&self, typed: &[u8]) -> Result<(), CliError> {
        let cut = typed.get(..TYPED_MAX).filter(|cut| cut.len() < typed.len());
        *lock(&self.0) = cut.map(SecretBuf::copy_of).transpose().map_err(|error| no_memory(&error))?;
        Ok(())
    }

    fn take(&self) -> Option<SecretBuf> {
        lock(&self.0).take()
    }
}

/// Where a new passphrase comes from. Without an option it is asked for on the terminal, twice.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "New key options")]
pub struct NewPassphraseSource {
    /// Take the new passphrase from FILE: all its bytes as they are; `-` reads standard input to its end
    #[arg(long, value_name = "FILE", alias = "new-keyfile")]
    pub new_key_file: Option<PathBuf>,

    /// Skip this many bytes of the new key file first
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub new_keyfile_offset: Option<u64>,

    /// Take only this many bytes of the new key file [default: all, at most 8M]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub new_keyfile_size: Option<u64>,

    /// Take the new passphrase from the open file descriptor N, less one newline at the end
    #[arg(long, value_name = "N", conflicts_with = "new_key_file")]
    pub new_passphrase_fd: Option<u32>,

    /// Take the new passphrase from the output of CMD, as --passphrase-command does
    #[arg(long, value_name = "CMD", conflicts_with_all = ["new_key_file", "new_passphrase_fd"], value_parser = key_command::command)]
    pub new_passphrase_command: Option<String>,
}

impl NewPassphraseSource {
    /// The same as the source of a passphrase; the file may have been given as an argument instead.
    pub fn or_file(&self, argument: Option<&Path>) -> PassphraseSource {
        let key_file = self.new_key_file.as_deref().or(argument);
        PassphraseSource {
            key_file: key_file.map(Path::to_owned),
            keyfile_offset: self.new_keyfile_offset,
            keyfile_size: self.new_keyfile_size,
            passphrase_fd: self.new_passphrase_fd,
            command: CommandSource::of(self.new_passphrase_command.clone()),
            is_beside: true,
            ..PassphraseSource::default()
        }
    }
}

/// How a volume is unlocked.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Key options")]
pub struct KeyArgs {
    /// By a passphrase.
    #[command(flatten)]
    pub passphrase: PassphraseSource,

    /// Take the volume key itself from FILE, as bytes; it is checked against the header
    #[arg(long, value_name = "FILE", alias = "master-key-file", conflicts_with_all = ["key_file", "passphrase_fd", "passphrase_command"])]
    pub volume_key_file: Option<PathBuf>,

    /// Try only this key slot, whatever its priority
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,

    /// Accept the cipher SPEC of a LUKS header, exactly as `cryptline info` shows it, though the key slot that is opened
    /// does not vouch for it: it may have been put there by whoever can write to the header. May be given several times
    #[arg(long, value_name = "SPEC", value_parser = accepted_cipher)]
    pub accept_cipher: Vec<String>,

    /// Demands on its header.
    #[command(flatten)]
    pub rules: RulesArgs,

    /// Spend at most SECONDS of this machine's time on trying all key slots together; a slot that would take
    /// longer is refused, since a header can ask for anything [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub kdf_time_limit: Option<u64>,
}

impl KeyArgs {
    /// Tells if no key option was given at all.
    pub fn is_empty(&self) -> bool {
        self.passphrase.is_prompt()
            && self.volume_key_file.is_none()
            && self.key_slot.is_none()
            && self.kdf_time_limit.is_none()
    }

    /// The same; where `target` names its key file, that one is what unlocks it.
    pub fn of_target(&self, target: impl AsRef<OsStr>) -> Self {
        let passphrase = self.passphrase.of_target(target);
        let named = passphrase.key_file != self.passphrase.key_file || passphrase.command != self.passphrase.command;
        Self { volume_key_file: self.volume_key_file.clone().filter(|_| !named), passphrase, ..self.clone() }
    }

    /// `builder`, which accepts what was accepted, and demands what was demanded.
    pub fn trusting<T>(&self, builder: T, accept: impl Fn(T, String) -> T, demand: impl Fn(T, HeaderRules) -> T) -> T {
        demand(self.accept_cipher.iter().cloned().fold(builder, accept), self.rules.rules())
    }

    /// How long key slots may take.
    pub fn kdf_limits(&self) -> KdfLimits {
        let time = self.kdf_time_limit.map(Duration::from_secs);
        time.map_or_else(KdfLimits::default, |time| KdfLimits { time })
    }
}

/// Refuses a cipher that encrypts nothing, which has an option of its own.
pub fn accepted_cipher(spec: &str) -> Result<String, String> {
    if spec.is_empty() || spec.contains("cipher_null") {
        return Err("it encrypts nothing, which only --allow-null-cipher accepts".to_owned());
    }
    Ok(spec.to_owned())
}

/// For a new volume.
impl Keys for PassphraseSource {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        let read = if request.is_new { self.read_new(request).map(Key::Passphrase) } else { self.read_key(request) };
        read.map(Some).map_err(CliError::into_keys_error)
    }
}

/// On the terminal up to three times; other sources once.
impl Keys for KeyArgs {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, cryptline::Error> {
        if let Some(path) = &self.volume_key_file {
            if let Some(slot) = self.key_slot {
                let refused = CliError::parameters(format!(
                    "--key-slot {slot}: with --volume-key-file no key slot is used; leave one of them out"
                ));
                return Err(refused.into_keys_error());
            }
            warn_if_exposed(path);
            return VolumeKeyFile(path.clone()).key(request);
        }
        if request.takes > TIME_WORTH_A_WORD && request.failed == 0 {
            let (name, time) = (request.name, time_text(&request.takes));
            complain(&format!("trying the key slots of {name} takes up to {time}"));
        }
        if request.failed > 0
            && let Some(cut) = self.passphrase.cut.take()
        {
            return Ok(Some(Key::Passphrase(cut)));
        }
        let asks = self.passphrase.is_prompt() && io::stdin().is_terminal();
        if request.failed >= if asks { PROMPTS_MAX } else { 1 } {
            return match self.passphrase.why_it_may_be_wrong(request.name) {
                Some(hint) => Err(hint.into_keys_error()),
                None => Ok(None),
            };
        }
        if request.failed > 0 {
            complain(&LuksError::NoKey.to_string());
        }
        self.passphrase.key(request)
    }
}

impl PassphraseSource {
    /// A whole file, a descriptor, or the terminal.
    pub fn of(key_file: Option<PathBuf>, passphrase_fd: Option<u32>) -> Self {
        Self { key_file, passphrase_fd, ..Self::default() }
    }

    /// The same; where `target` names its key file, that one.
    pub fn of_target(&self, target: impl AsRef<OsStr>) -> Self {
        match Target::parse(target) {
            Ok(Target::Keyed(keyed)) if keyed.key_file.is_some() || keyed.passphrase_command.is_some() => {
                let command = CommandSource::of_target(keyed.passphrase_command, &keyed.of);
                Self { key_file: keyed.key_file, passphrase_fd: None, command, ..self.clone() }
            }
            _ => self.clone(),
        }
    }

    /// Tells if the passphrase comes from the terminal.
    pub fn is_prompt(&self) -> bool {
        self.key_file.is_none() && self.passphrase_fd.is_none() && self.command.passphrase_command.is_none()
    }

    /// A new passphrase for `what`: asked for twice on the terminal.
    fn read_new(&self, request: &KeyRequest<'_>) -> Result<SecretBuf, CliError> {
        let what = request.name;
        if let Some(line) = &self.command.passphrase_command {
            return self.command.read(line, request);
        }
        if !self.is_prompt() {
            return self.read(request.short_name(), false);
        }
        let options = if self.is_beside { NEW } else { USUAL };
        prompt_twice(&format!("Enter a new passphrase for {what}: "), options)
    }

    /// Everything in this file but a newline at its end.
    pub(super) fn line_in(path: &Path) -> Result<SecretBuf, CliError> {
        let source = Self { key_file: Some(path.to_owned()), key_file_newline: FinalNewline::Strip, ..Self::default() };
        source.read("", false)
    }

    fn read_key(&self, request: &KeyRequest<'_>) -> Result<Key, CliError> {
        if let (Some(path), Some(len)) = (&self.key_file, request.raw_len)
            && path != Path::new("-")
        {
            if self.key_file_newline == FinalNewline::Strip {
                return Err(CliError::parameters(
                    "the key file of a plain volume is the key itself; leave out --key-file-newline",
                ));
            }
            // A file is the key of a plain volume; standard input is a passphrase, which is hashed.
            return self.read_key_file(path, Some(len), request.short_name()).map(Key::Volume);
        }
        if !request.takes_passphrase {
            return Err(cryptline::Error::from(Problem::NoHash).into());
        }
        if let Some(line) = &self.command.passphrase_command {
            return self.command.read(line, request).map(Key::Passphrase);
        }
        if self.is_prompt() {
            let question = format!("Enter passphrase for {}: ", request.name);
            let typed = prompt(&question, USUAL)?;
            if io::stdin().is_terminal() {
                self.cut.keep(&typed)?;
            }
            return Ok(Key::Passphrase(typed));
        }
        self.read(request.short_name(), request.may_be_empty).map(Key::Passphrase)
    }

    /// `whose` it is to be, is told to whoever has it.
    fn read(&self, whose: &str, may_be_empty: bool) -> Result<SecretBuf, CliError> {
        let secret = match (&self.key_file, self.passphrase_fd) {
            (Some(path), _) => {
                let secret = self.read_key_file(path, self.checked_size()?, whose)?;
                let secret = self.final_newline(secret)?;
                if secret.is_empty() && !may_be_empty {
                    let name = shown(path);
                    return Err(CliError::parameters(format!("{name} is empty; put the passphrase in it")));
                }
                secret
            }
            (None, number) => Descriptor(number.unwrap_or(0)).read(may_be_empty)?,
        };
        self.was_empty.store(secret.is_empty(), Ordering::Relaxed);
        Ok(secret)
    }

    fn final_newline(&self, secret: SecretBuf) -> Result<SecretBuf, CliError> {
        match (secret.split_last(), self.key_file_newline) {
            (Some((b'\n', rest)), FinalNewline::Strip) => SecretBuf::copy_of(rest).map_err(|error| no_memory(&error)),
            (last, _) => {
                let has_one = matches!(last, Some((b'\n', _)));
                self.kept_newline.store(has_one, Ordering::Relaxed);
                Ok(secret)
            }
        }
    }

    /// Why what was given opened nothing, maybe.
    fn why_it_may_be_wrong(&self, name: &str) -> Option<CliError> {
        let error = LuksError::NoKey;
        if self.was_empty.load(Ordering::Relaxed) {
            let what = match (&self.key_file, self.passphrase_fd) {
                (Some(path), _) => shown(path),
                (None, Some(number)) => format!("file descriptor {number}"),
                (None, None) => return None,
            };
            return Some(CliError::no_key(format!("{name}: {error} {what} is empty; put the passphrase in it")));
        }
        let path = self.key_file.as_ref()?;
        self.kept_newline.load(Ordering::Relaxed).then(|| {
            CliError::no_key(format!(
                "{name}: {error} The key file {} ends with a newline, which is taken as part of the passphrase; if it is not, use --key-file-newline strip",
                shown(path)
            ))
        })
    }

    fn checked_size(&self) -> Result<Option<usize>, CliError> {
        let size = self.keyfile_size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if size.is_some_and(|size| size == 0 || size > PASSPHRASE_LEN_MAX) {
            return Err(CliError::parameters(
                "--keyfile-size must be 1 byte to 8M; leave it out to take the whole file",
            ));
        }
        Ok(size)
    }

    fn read_key_file(&self, path: &Path, size: Option<usize>, whose: &str) -> Result<SecretBuf, CliError> {
        let file = KeyFile { path: path.to_owned(), offset: self.keyfile_offset.unwrap_or(0), size };
        if path == Path::new("-") {
            let input = stdin()
                .map_err(|error| CliError::parameters(format!("cannot read standard input: {error}; is it closed?")))?;
            return Ok(file.read_from(input, &shown(path), size)?);
        }
        warn_if_exposed(path);
        let tell = |user| crate::log::info(&format!("the key socket {} belongs to user {user}", path.display()));
        Ok(file.read_for(whose, tell)?)
    }
}

/// A descriptor of standard input of its own.
pub(super) fn stdin() -> io::Result<File> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    Ok(File::from(duplicate))
}

/// The seed in all of this file.
///
/// # Errors
/// A file that cannot be read, or holds too little.
pub fn seed_in(path: &Path) -> Result<Seed, CliError> {
    warn_if_exposed(path);
    Seed::new(KeyFile::new(path).read(true)?).map_err(|error| CliError::parameters(format!("{}: {error}", shown(path))))
}

fn warn_if_exposed(path: &Path) {
    crate::output::warn(crate::harden::exposed_key(path).as_slice());
}

/// The options that answer a question in advance: by a file, and by a descriptor.
#[derive(Clone, Copy)]
pub(super) struct SecretOptions(&'static str, &'static str);

pub(super) const USUAL: SecretOptions = SecretOptions("--key-file", "--passphrase-fd");
const NEW: SecretOptions = SecretOptions("--new-key-file", "--new-passphrase-fd");

/// Asks on the terminal, without echo. Where there is none, as in a pipe, a line of standard input is taken.
pub(super) fn prompt(question: &str, instead: SecretOptions) -> Result<SecretBuf, CliError> {
    let SecretOptions(file, descriptor) = instead;
    answered(question, instead)?.ok_or_else(|| {
        let new = if file == NEW.0 { "new " } else { "" };
        CliError::parameters(format!(
            "no terminal to ask for the {new}passphrase, and none in standard input; use {file} FILE, or {descriptor} 0 to read it from standard input"
        ))
    })
}

/// The same; `None` where there is nobody to ask, and nothing in standard input.
pub(super) fn answered(question: &str, instead: SecretOptions) -> Result<Option<SecretBuf>, CliError> {
    let SecretOptions(file, _) = instead;
    let asked = if io::stdin().is_terminal() {
        terminal::ask(&crate::error::on_one_line(question))
    } else {
        match stdin().and_then(terminal::line_of) {
            Err(error) if is_no_input(&error) => return Ok(None),
            line => {
                FROM_INPUT.store(true, Ordering::Relaxed);
                line
            }
        }
    };
    asked.map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => CliError::parameters("no passphrase: interrupted"),
        io::ErrorKind::UnexpectedEof => {
            CliError::parameters(format!("no passphrase was typed; try again, or use {file} FILE"))
        }
        io::ErrorKind::OutOfMemory => no_memory(&error),
        _ => CliError::parameters(format!("cannot ask for the passphrase: {error}; use {file} FILE instead")),
    })
}

/// The same, twice on a terminal, for what is new.
pub(super) fn prompt_twice(question: &str, instead: SecretOptions) -> Result<SecretBuf, CliError> {
    let first = prompt(question, instead)?;
    if !io::stdin().is_terminal() {
        return Ok(first);
    }
    if first.len() > TYPED_MAX {
        let SecretOptions(file, _) = instead;
        return Err(CliError::parameters(format!(
            "{} bytes were typed, of which cryptsetup would take the first {TYPED_MAX} only; choose a shorter passphrase, or use {file} FILE",
            first.len()
        )));
    }
    let second = prompt("Enter it again: ", instead)?;
    if *first == *second {
        Ok(first)
    } else {
        Err(CliError::no_key("The passphrases do not match. Nothing was changed."))
    }
}

/// Tells if a passphrase has been asked for, and read from standard input since there is no terminal.
pub fn passphrase_from_input() -> bool {
    FROM_INPUT.load(Ordering::Relaxed)
}

/// Standard input is empty, or closed.
fn is_no_input(error: &io::Error) -> bool {
    let closed = rustix::io::Errno::BADF.raw_os_error();
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(closed)
}

pub(super) fn no_memory(error: &io::Error) -> CliError {
    CliError::memory(format!("no memory for a key: {error}; free some"))
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}
