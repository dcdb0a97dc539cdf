//! LUKS headers on disk: opened to be looked at, without a lock, or read from a locked image.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use cryptline_luks::{Header, UnlockOptions, Unlocked, time_text};
use cryptline_sys::SecretBuf;
use rustix::fs::OFlags;

use super::mapped::Mapped;
use super::{KeySource, VolumeType};
use crate::CliError;
use crate::output::complain;
use cryptline_engine::base::DirectMode;

/// How often a passphrase is asked for on the terminal.
const PROMPTS_MAX: u32 = 3;

/// Who waits longer than this is told before.
const TIME_WORTH_A_WORD: Duration = Duration::from_secs(5);

/// Bytes with a header in them.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// A file, block device or other target with a LUKS header, opened for reading. A file takes no
/// lock: looking at a header is allowed while the volume is served.
pub struct HeaderFile {
    bytes: Bytes,
    /// Its size in bytes.
    pub size: u64,
    /// `MAJOR:MINOR` of a block device.
    pub device_number: Option<String>,
    /// Its path, for messages.
    pub name: String,
}

enum Bytes {
    File(File),
    Mapped(Mapped),
}

impl HeaderFile {
    /// Opens a path, `pmem:PATH`, `btt:PATH` or `zoned:PATH`. All but the first are locked: a table can not be
    /// looked through while somebody changes it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and exit code 5 for what is in use.
    pub fn open_target(target: &Path) -> Result<Self, CliError> {
        let mapped = target
            .to_str()
            .map(|text| Mapped::open(text, true, DirectMode::Auto));
        match mapped.transpose()?.flatten() {
            None => Self::open(target),
            Some(mapped) => Ok(Self {
                size: mapped.gate.geometry().size,
                bytes: Bytes::Mapped(mapped),
                device_number: None,
                name: target.display().to_string(),
            }),
        }
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// Exit code 4: missing, unreadable, or neither a regular file nor a block device.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let name = path.display().to_string();
        let failed = |error| CliError::device(format!("cannot open {name}: {error}"));
        let wrong = |what| {
            CliError::device(format!(
                "{name} is {what}; give a regular file or a block device"
            ))
        };
        let file = File::options()
            .read(true)
            // A FIFO must not make us wait for its writer.
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(wrong("a directory"));
        }
        let (size, device_number) = if kind.is_block_device() {
            let (size, _) = cryptline_sys::block_device_size(&file).map_err(failed)?;
            let number = std::os::unix::fs::MetadataExt::rdev(&metadata);
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            (size, Some(format!("{major}:{minor}")))
        } else if kind.is_file() {
            (metadata.len(), None)
        } else {
            return Err(wrong("neither a regular file nor a block device"));
        };
        Ok(Self {
            bytes: Bytes::File(file),
            size,
            device_number,
            name,
        })
    }

    /// Reads and checks the header.
    ///
    /// # Errors
    /// Exit code 4 for a damaged or missing header.
    pub fn read(&self) -> Result<Header, CliError> {
        read(self.reader()?, self.size, &self.name)
    }

    /// The bytes.
    ///
    /// # Errors
    /// Exit code 3 when memory runs out.
    pub fn reader(&self) -> Result<Box<dyn ReadSeek + '_>, CliError> {
        Ok(match &self.bytes {
            Bytes::File(file) => Box::new(file),
            Bytes::Mapped(mapped) => Box::new(mapped.reader()?),
        })
    }
}

/// Reads and checks the header of `file`, which has `size` bytes and is called `name`.
///
/// # Errors
/// Exit code 4 for a damaged or missing header.
pub fn read(mut file: impl Read + Seek, size: u64, name: &str) -> Result<Header, CliError> {
    cryptline_luks::read(&mut file, size).map_err(|error| CliError::luks(name, &error))
}

/// Refuses a header that is not of the version `--type` asks for.
///
/// # Errors
/// Exit code 4.
pub fn check_type(header: &Header, wanted: Option<VolumeType>, name: &str) -> Result<(), CliError> {
    let found = kind(header);
    match (wanted, header) {
        (Some(VolumeType::Luks1), Header::V2(_)) | (Some(VolumeType::Luks2), Header::V1(_)) => {
            Err(CliError::device(format!(
                "{name} is {found}; leave out --type, or give the one it has"
            )))
        }
        _ => Ok(()),
    }
}

/// "LUKS1" or "LUKS2".
#[must_use]
pub fn kind(header: &Header) -> &'static str {
    match header {
        Header::V1(_) => "LUKS1",
        Header::V2(_) => "LUKS2",
    }
}

/// The volume key, and the slot that gave it; no slot for `--volume-key-file`.
///
/// # Errors
/// Exit code 2 for a wrong passphrase or key; others as the header deserves.
pub fn unlock(
    header: &Header,
    mut file: impl Read + Seek,
    name: &str,
    keys: &KeySource,
    allow_null_cipher: bool,
) -> Result<(SecretBuf, Option<u32>), CliError> {
    let failed = |error: &cryptline_luks::Error| CliError::luks(name, error);
    if let Some(key) = keys.volume_key()? {
        header
            .verify_volume_key(&key, keys.kdf_limits())
            .map_err(|error| failed(&error))?;
        return Ok((key, None));
    }
    let options = UnlockOptions {
        slot: keys.key_slot,
        allow_null_cipher,
        limits: keys.kdf_limits(),
    };
    let time = header.unlock_time(&options);
    if time > TIME_WORTH_A_WORD {
        let time = time_text(&time);
        complain(&format!(
            "trying the key slots of {name} takes up to {time}"
        ));
    }
    let mut prompts_left = if keys.is_prompt() { PROMPTS_MAX } else { 1 };
    loop {
        // Where nothing is encrypted, cryptsetup takes no other passphrase than the empty one.
        let passphrase = if allow_null_cipher {
            keys.passphrase.read_or_empty(name)?
        } else {
            keys.passphrase.read(name)?
        };
        prompts_left -= 1;
        match header.unlock(&mut file, &passphrase, &options) {
            Ok(Unlocked { key, slot }) => return Ok((key, Some(slot))),
            Err(error @ cryptline_luks::Error::NoKey) if prompts_left > 0 => {
                complain(&error.to_string());
            }
            Err(error) => return Err(failed(&error)),
        }
    }
}
