//! Means of opening a volume: a passphrase, the volume key itself, or somebody who is asked.
//!
//! ```text
//! Passphrase, VolumeKey     bytes that the caller has
//! KeyFile, Descriptor       read when they are needed, unbuffered, straight into key memory; the file may be a socket
//! a closure                 is called when a key is needed, and may ask somebody
//! ```
//!
//! Secrets are in [`SecretBuf`]s: locked, left out of core dumps, wiped when dropped. They are read, tried
//! and turned into a cipher on a stack that is wiped afterwards.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cryptline_engine::OpenError;
use cryptline_luks::{KEY_LEN_MAX, PASSPHRASE_LEN_MAX};
use cryptline_sys::{NotStarted, SecretBuf, on_secret_stack, on_secret_thread};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::error::{Error, Problem};
use crate::key_socket::KeySocket;

/// Where a key comes from.
///
/// Any `Fn(&KeyRequest) -> Result<Option<Key>, Error>` is one: it may ask somebody.
pub trait Keys: Send + Sync {
    /// A key for the volume of `request`; `None` for no more, which ends the attempts.
    ///
    /// A passphrase that opens nothing is followed by another call, with
    /// [`failed`](KeyRequest::failed) counted up. This runs on a thread of its own, whose stack is wiped.
    ///
    /// # Errors
    /// Why there is none: [`Error::from_keys`] makes an error of the caller's own.
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error>;
}

impl<F> Keys for F
where
    F: Fn(&KeyRequest<'_>) -> Result<Option<Key>, Error> + Send + Sync,
{
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        self(request)
    }
}

/// Purpose of a key.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KeyRequest<'a> {
    /// The volume, for a question.
    pub name: &'a str,
    /// The UUID in its header, where there is a header with a well-formed one.
    pub uuid: Option<&'a str>,
    /// The SHA-256 measurement of its header, where there is one that can be measured.
    pub measure: Option<&'a str>,
    /// How many passphrases have opened nothing so far.
    pub failed: u32,
    /// About how long trying a passphrase on every key slot takes.
    pub takes: Duration,
    /// Bytes of the volume key, where there is no header that keeps it: a key file is then the key itself.
    pub raw_len: Option<usize>,
    /// Bytes of the volume key, where that is known.
    pub key_len: Option<usize>,
    /// An empty passphrase may be right: it is proved by the header.
    pub may_be_empty: bool,
    /// Set if it is for a volume that is being made: better asked for twice.
    pub is_new: bool,
    /// A passphrase will do. Where it will not, only the volume key itself does: nobody said how a key is made
    /// of a passphrase.
    pub takes_passphrase: bool,
}

impl<'a> KeyRequest<'a> {
    /// Name of the volume for a server of keys: its UUID, else the last part of what it is called.
    #[must_use]
    pub fn short_name(&self) -> &'a str {
        let last = || self.name.rsplit('/').next().unwrap_or(self.name);
        self.uuid.unwrap_or_else(last)
    }

    /// For the passphrase of a new key slot.
    pub(crate) fn of_new(name: &'a str) -> Self {
        Self {
            name,
            uuid: None,
            measure: None,
            failed: 0,
            takes: Duration::ZERO,
            raw_len: None,
            key_len: None,
            may_be_empty: false,
            is_new: true,
            takes_passphrase: true,
        }
    }

    /// For a key of so many bytes, and no passphrase.
    pub(crate) fn of_volume_key(name: &'a str, len: usize) -> Self {
        Self { key_len: Some(len), is_new: false, takes_passphrase: false, ..Self::of_new(name) }
    }
}

/// A secret, and what it is.
pub enum Key {
    /// For a key slot, or to be hashed.
    Passphrase(SecretBuf),
    /// The volume key itself.
    Volume(SecretBuf),
}

/// A passphrase that the caller has.
#[derive(Clone)]
pub struct Passphrase(Arc<SecretBuf>);

/// The volume key itself.
#[derive(Clone)]
pub struct VolumeKey(Arc<SecretBuf>);

/// A file with a passphrase in it: all its bytes, a newline at the end included, as cryptsetup reads them.
/// For a volume without a header its first bytes are the key itself.
#[derive(Clone, Debug)]
pub struct KeyFile {
    /// The file.
    pub path: PathBuf,
    /// Bytes to pass over first.
    pub offset: u64,
    /// Bytes to take; `None` for all.
    pub size: Option<usize>,
}

/// A file that holds the volume key, and nothing else.
#[derive(Clone, Debug)]
pub struct VolumeKeyFile(pub PathBuf);

/// An open file descriptor with a passphrase in it: everything up to its end, less one newline there.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor(pub u32);

impl Passphrase {
    /// A copy of `bytes` in key memory. The original is the caller's to wipe, so give a reference to it: what is
    /// passed by value, such as a `String`, is freed as it is.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        Ok(Self(Arc::new(copy_of(bytes.as_ref())?)))
    }
}

impl VolumeKey {
    /// A copy of `bytes` in key memory. The original is the caller's to wipe, so give a reference to it: what is
    /// passed by value, such as a `String`, is freed as it is.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        Ok(Self(Arc::new(copy_of(bytes.as_ref())?)))
    }
}

impl Keys for Passphrase {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        passphrase_once(request, || copy_of(&self.0))
    }
}

impl Keys for VolumeKey {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        once(request, || copy_of(&self.0).map(Key::Volume))
    }
}

impl Keys for KeyFile {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        let read = |size| self.open_and_read(size, request.short_name(), |_| {});
        once(request, || match request.raw_len {
            // The size is the key's then; cryptsetup ignores another here as well.
            Some(len) => read(Some(len)).map(Key::Volume),
            None => {
                let secret = not_empty(read(self.size)?, request.may_be_empty);
                secret.map(Key::Passphrase).map_err(|error| named(error, &self.path))
            }
        })
    }
}

impl Keys for VolumeKeyFile {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        once(request, || {
            let (path, most) = (&self.0, KEY_LEN_MAX as usize);
            let file = open(path).map_err(|source| not_opened(source).on(path.display()))?;
            // Of what has no end, such as /dev/urandom, as much as is needed.
            let is_file = file.metadata().is_ok_and(|found| found.is_file());
            let limit = request.key_len.filter(|_| !is_file).unwrap_or(2 * most + 2);
            let key = read_up_to(file, 0, limit).map_err(|error| named(error, path))?;
            fit(key, request).map(Key::Volume).map_err(|problem| problem.on(path.display()))
        })
    }
}

/// The volume key at the beginning of what a file holds. As with cryptsetup more may follow, where a header proves the key.
fn fit(held: SecretBuf, request: &KeyRequest<'_>) -> Result<SecretBuf, Problem> {
    let most = KEY_LEN_MAX as usize;
    let has = held.len();
    let Some(needs) = request.key_len.filter(|_| has > 0) else {
        return if (1..=most).contains(&has) { Ok(held) } else { Err(Problem::VolumeKeyLength { most }) };
    };
    let digits = held.trim_ascii();
    if has != needs && digits.len() == 2 * needs && digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Problem::VolumeKeyInHex(digits.len()));
    }
    let is_proved = request.raw_len.is_none() && request.takes_passphrase && !request.is_new;
    if has < needs {
        let short = Problem::VolumeKeyTooShort(needs, has);
        return Err(if is_proved { short } else { Problem::KeyTooShort { has, needs } });
    }
    if is_proved && has > needs { SecretBuf::copy_of(&held[..needs]).map_err(Problem::KeyMemory) } else { Ok(held) }
}

impl Keys for Descriptor {
    fn key(&self, request: &KeyRequest<'_>) -> Result<Option<Key>, Error> {
        passphrase_once(request, || self.read(request.may_be_empty))
    }
}

impl KeyFile {
    /// The passphrase in all of `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), offset: 0, size: None }
    }

    /// The passphrase.
    ///
    /// # Errors
    /// A file that cannot be read, or holds too little or too much.
    pub fn read(&self, may_be_empty: bool) -> Result<SecretBuf, Error> {
        let secret = self.open_and_read(self.size, "", |_| {})?;
        not_empty(secret, may_be_empty).map_err(|error| named(error, &self.path))
    }

    /// The passphrase, which may be empty. Where the file is a socket, whoever listens there is told `whose` it is to be,
    /// and `tell` which user that is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_for(&self, whose: &str, tell: impl FnOnce(u32)) -> Result<SecretBuf, Error> {
        self.open_and_read(self.size, whose, tell)
    }

    /// As [`read`](Self::read), from a file that is open already and is called `name`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_from(&self, file: File, name: &str, size: Option<usize>) -> Result<SecretBuf, Error> {
        let limit = size.unwrap_or(PASSPHRASE_LEN_MAX + 1);
        Self::checked(read_up_to(file, self.offset, limit), name, size)
    }

    fn checked(secret: Result<SecretBuf, Error>, name: &str, size: Option<usize>) -> Result<SecretBuf, Error> {
        let secret = secret.map_err(|error| error.on(name))?;
        match size {
            Some(needs) if secret.len() < needs => {
                let has = secret.len();
                Err(Problem::KeyFileTooShort { has, needs }.on(name))
            }
            _ => checked_len(secret).map_err(|error| error.on(name)),
        }
    }

    fn open_and_read(&self, size: Option<usize>, whose: &str, tell: impl FnOnce(u32)) -> Result<SecretBuf, Error> {
        let name = self.path.display().to_string();
        let source = match open(&self.path) {
            Ok(file) => return self.read_from(file, &name, size),
            Err(source) if source.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => source,
            Err(source) => return Err(not_opened(source).on(name)),
        };
        let is_socket = self.path.metadata().is_ok_and(|found| found.file_type().is_socket());
        if !is_socket {
            return Err(not_opened(source).on(name));
        }
        let action = "connect to the key socket";
        let socket = KeySocket::new(&self.path, whose).map_err(|source| Problem::Io { action, source }.on(&name))?;
        tell(socket.user);
        let limit = size.unwrap_or(PASSPHRASE_LEN_MAX + 1);
        Self::checked(read_stream(socket, self.offset, limit), &name, size)
    }
}

impl Descriptor {
    /// The passphrase.
    ///
    /// # Errors
    /// A descriptor that is not open or cannot be read, or that holds too little or too much.
    pub fn read(&self, may_be_empty: bool) -> Result<SecretBuf, Error> {
        let name = format!("file descriptor {}", self.0);
        let opened = cryptline_sys::duplicate_fd(self.0).map(File::from);
        // A file is read from its start, each time; what is no file only once.
        let opened = opened.and_then(|file| {
            if self.0 != 0 && file.metadata()?.is_file() {
                File::open(format!("/proc/self/fd/{}", self.0))
            } else {
                Ok(file)
            }
        });
        let opened = opened.map_err(|error| Problem::BadDescriptor(error).on(&name))?;
        let read = || {
            let secret = read_up_to(opened, 0, PASSPHRASE_LEN_MAX + 1)?;
            let secret = match secret.split_last() {
                Some((b'\n', rest)) => copy_of(rest)?,
                _ => secret,
            };
            let secret = checked_len(secret)?;
            not_empty(secret, may_be_empty)
        };
        read().map_err(|error| error.on(&name))
    }
}

/// Does what has keys in hand, on a stack of its own that is wiped afterwards. What it returns must hold
/// no secrets but in key memory.
pub(crate) fn with_keys<R: Send>(work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
    on_secret_thread(work).map_err(|why| match why {
        NotStarted::Memory(error) => Problem::KeyMemory(error),
        NotStarted::Thread(error) => Problem::Device(OpenError::Thread(error)),
    })?
}

/// The same on the caller's thread, for what calls no code of others.
pub(crate) fn with_keys_here<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    on_secret_stack(work).map_err(Problem::KeyMemory)?
}

/// An empty key, which is what the null cipher takes.
pub(crate) fn no_key() -> Result<SecretBuf, Error> {
    copy_of(&[])
}

pub(crate) fn copy_of(bytes: &[u8]) -> Result<SecretBuf, Error> {
    Ok(SecretBuf::copy_of(bytes).map_err(Problem::KeyMemory)?)
}

/// Groups of hexadecimal digits, and nothing that could mean something to a shell.
pub(crate) fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Returns what can be had once: a second attempt would be with the same.
fn once(request: &KeyRequest<'_>, key: impl FnOnce() -> Result<Key, Error>) -> Result<Option<Key>, Error> {
    if request.failed == 0 { key().map(Some) } else { Ok(None) }
}

/// The same of a passphrase, which is not even read where it is of no use.
fn passphrase_once(
    request: &KeyRequest<'_>,
    passphrase: impl FnOnce() -> Result<SecretBuf, Error>,
) -> Result<Option<Key>, Error> {
    if !request.takes_passphrase {
        return Err(Problem::NoHash.into());
    }
    once(request, || passphrase().map(Key::Passphrase))
}

fn named(error: Error, path: &Path) -> Error {
    error.on(path.display())
}

fn not_empty(secret: SecretBuf, may_be_empty: bool) -> Result<SecretBuf, Error> {
    if secret.is_empty() && !may_be_empty {
        return Err(Problem::EmptyKey.into());
    }
    Ok(secret)
}

fn checked_len(secret: SecretBuf) -> Result<SecretBuf, Error> {
    if secret.len() > PASSPHRASE_LEN_MAX {
        return Err(Problem::PassphraseTooLong.into());
    }
    Ok(secret)
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NOCTTY.bits().cast_signed()).open(path)
}

fn not_opened(source: io::Error) -> Problem {
    Problem::Io { action: "open key file", source }
}

/// At most `limit` bytes of `file` from `offset` on, in key memory from the first moment.
///
/// # Errors
/// Where it cannot be read, or there is no memory.
pub fn read_up_to(mut file: File, offset: u64, limit: usize) -> Result<SecretBuf, Error> {
    let is_there = offset == 0 || file.seek(SeekFrom::Current(offset.cast_signed())).is_ok();
    read_stream(file, if is_there { 0 } else { offset }, limit)
}

/// The same of what can only be read, such as a pipe.
fn read_stream(mut stream: impl Read, offset: u64, limit: usize) -> Result<SecretBuf, Error> {
    let action = "read";
    let failed = |source| Problem::Io { action, source };
    pass_over(&mut stream, offset).map_err(failed)?;
    let mut secret = SecretBuf::zeroed(limit.min(4096)).map_err(Problem::KeyMemory)?;
    let mut filled = 0;
    while filled < limit {
        if filled == secret.len() {
            secret = grown(&secret, limit)?;
        }
        match stream.read(&mut secret[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error).into()),
        }
    }
    copy_of(&secret[..filled])
}

/// The same bytes with twice the room, at most `limit`. The old memory is wiped when dropped.
fn grown(secret: &SecretBuf, limit: usize) -> Result<SecretBuf, Error> {
    let len = secret.len().saturating_mul(2).min(limit);
    let mut larger = SecretBuf::zeroed(len).map_err(Problem::KeyMemory)?;
    larger[..secret.len()].copy_from_slice(secret);
    Ok(larger)
}

fn pass_over(stream: &mut impl Read, offset: u64) -> io::Result<()> {
    let mut left = offset;
    let mut passed = Zeroizing::new([0; 4096]);
    while left > 0 {
        let len = usize::try_from(left).map_or(passed.len(), |left| left.min(passed.len()));
        match stream.read(&mut passed[..len])? {
            0 => break,
            count => left -= count as u64,
        }
    }
    Ok(())
}
