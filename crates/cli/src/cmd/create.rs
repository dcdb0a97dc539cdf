//! `create`: a new LUKS volume in a file, or on `pmem:PATH` or `btt:PATH` (`mapped.rs`).
//!
//! The volume is made in a temporary file beside its final place, made durable, opened again from
//! disk, and only then given its name. So there is a whole volume under that name or nothing new,
//! whatever happens in between: a full disk, Ctrl-C, a crash.

pub(super) mod finish;
mod look;
mod mapped;
mod signals;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cryptline_engine::base::Image;
use cryptline_luks::format::{FormatOptions, KdfCost, KdfKind, Version, format};
use cryptline_luks::{Header, KdfLimits, SegmentPolicy, UnlockOptions};
use cryptline_sys::SecretBuf;
use indicatif::{ProgressBar, ProgressStyle};

use crate::CliError;
use crate::harden::with_keys;
use crate::passphrase::PassphraseSource;
use crate::size;
use finish::{Draft, Durable};

/// Which header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HeaderType {
    /// LUKS1
    Luks1,
    /// LUKS2
    #[default]
    Luks2,
}

/// Key derivation functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pbkdf {
    /// PBKDF2, which GPUs attack cheaply
    Pbkdf2,
    /// Argon2i
    Argon2i,
    /// Argon2id
    Argon2id,
}

/// What to make.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline create disk.img --size 1G
  cryptline create disk.img --size 1G --key-file key.bin --label backup
  cryptline create old.img --size 1G --luks1
  cryptline btt create disk.btt --size 1G && cryptline create btt:disk.btt
  printf %s secret | cryptline create test.img --size 64M --key-file - \\
      --pbkdf pbkdf2 --pbkdf-force-iterations 1000        quick and weak, for tests

The size given with --size includes the header (16 MiB for LUKS2, 2 MiB for LUKS1). The file is
sparse unless you give --preallocate. The new volume is opened once to verify it; if anything fails,
nothing is left behind. pmem:PATH and btt:PATH must contain only zeros or holes, unless you give
--force.

Exit codes: 0 success, 1 invalid parameters, 2 the two passphrases differ, 3 out of memory, 4 the
disk is full or failed, 5 the file exists, the device holds data (see --force), or it is in use.")]
pub struct CreateArgs {
    /// New file, or an existing pmem:PATH or btt:PATH
    pub file: PathBuf,

    /// Size of the file, such as 512M or 1G (powers of 1024)
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    pub size: Option<u64>,

    /// Replace an existing file, or overwrite what the device holds
    #[arg(long)]
    pub force: bool,

    /// Allocate the disk space now
    #[arg(long)]
    pub preallocate: bool,

    /// What to make.
    #[command(flatten)]
    pub format: FormatArgs,

    /// The new passphrase.
    #[command(flatten)]
    pub passphrase: PassphraseSource,
}

/// What goes into the header.
#[derive(Args, Debug)]
#[command(next_help_heading = "Format options (defaults as `cryptsetup luksFormat`)")]
pub struct FormatArgs {
    /// Header version
    #[arg(long = "type", value_enum, default_value_t, value_name = "TYPE")]
    pub kind: HeaderType,

    /// Same as --type luks1
    #[arg(long, conflicts_with = "kind")]
    pub luks1: bool,

    /// Cipher for the data
    #[arg(long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,

    /// Size of the volume key in bits: 512 is AES-256 in XTS mode
    #[arg(long, value_name = "BITS", default_value_t = 512)]
    pub key_size: u32,

    /// Hash for the header digest and for PBKDF2
    #[arg(long, value_name = "NAME", default_value = "sha256")]
    pub hash: String,

    /// Cipher sector size: 512, 1024, 2048 or 4096 bytes [default: 4096 if the size allows it]
    #[arg(long, value_name = "BYTES")]
    pub sector_size: Option<u32>,

    /// Key derivation function [default: argon2id; LUKS1: pbkdf2]
    #[arg(long, value_enum, value_name = "NAME")]
    pub pbkdf: Option<Pbkdf>,

    /// Time that unlocking should take on this machine, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub iter_time: u64,

    /// Number of PBKDF2 iterations or Argon2 passes, instead of measuring
    #[arg(long, value_name = "N", conflicts_with = "iter_time")]
    pub pbkdf_force_iterations: Option<u32>,

    /// Memory for Argon2 in KiB: an upper limit, or the exact amount with --pbkdf-force-iterations
    #[arg(long, value_name = "KIB")]
    pub pbkdf_memory: Option<u32>,

    /// Argon2 lanes [default: one per processor, at most 4]
    #[arg(long, value_name = "N")]
    pub pbkdf_parallel: Option<u32>,

    /// Label of the volume (LUKS2)
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub label: String,

    /// UUID of the volume [default: random]
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,
}

/// Makes the volume.
///
/// # Errors
/// As the help says.
pub fn run(args: &CreateArgs) -> Result<ExitCode, CliError> {
    with_keys(|| run_here(args))
}

fn run_here(args: &CreateArgs) -> Result<ExitCode, CliError> {
    let options = args.format.options()?;
    if let Some(target) = args
        .file
        .to_str()
        .filter(|target| mapped::is_mapped(target))
    {
        return mapped::run(target, args, options);
    }
    refuse_other_targets(&args.file)?;
    let size = args.size.ok_or_else(|| {
        CliError::parameters("say how large the file shall be, such as --size 1G")
    })?;
    let draft = Draft::new(&args.file, args.force)?;
    let name = args.file.display().to_string();
    let passphrase = args.passphrase.read_new(&name)?;
    let failed = |error: cryptline_luks::Error| draft.describe(&error);
    let _guard = signals::remove_when_stopped(draft.path())?;
    draft.set_size(size, args.preallocate)?;

    let spinner = spinner(match args.format.pbkdf_force_iterations {
        Some(_) => "Making the key slot ...",
        None => "Measuring this machine and making the key slot ...",
    });
    let mut device = Durable(draft.file());
    let key = format(&mut device, size, &passphrase, &options).map_err(failed)?;
    draft.sync()?;
    spinner.set_message("Opening the new volume again ...");
    let data_size = check(draft.path(), &passphrase, &key, &name)?;
    draft.publish(args.force)?;
    spinner.finish_and_clear();
    say_made(&name, args, &options, data_size)?;
    Ok(ExitCode::SUCCESS)
}

/// What the other verbs take for something else than a file.
fn refuse_other_targets(path: &Path) -> Result<(), CliError> {
    let name = path.display().to_string();
    if !["zoned:", "ram:"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        return Ok(());
    }
    Err(CliError::parameters(format!(
        "create makes volumes in files and on pmem:PATH and btt:PATH; for a file of this name give ./{name}"
    )))
}

fn say_made(
    name: &str,
    args: &CreateArgs,
    options: &FormatOptions,
    data_size: u64,
) -> Result<(), CliError> {
    crate::output::print(&format!(
        "{name}: {}, {} of clear disk, {}\nKey slot 0 opens with the passphrase; it was tried. To use it: cryptline serve {name}\n",
        args.format.version_name(),
        size::human(data_size),
        options.cipher,
    ))
}

impl FormatArgs {
    fn version_name(&self) -> &'static str {
        if self.is_luks1() { "LUKS1" } else { "LUKS2" }
    }

    fn is_luks1(&self) -> bool {
        self.luks1 || self.kind == HeaderType::Luks1
    }

    fn options(&self) -> Result<FormatOptions, CliError> {
        if self.key_size == 0 || !self.key_size.is_multiple_of(8) {
            return Err(CliError::parameters(format!(
                "--key-size {}: give a multiple of 8 bits, such as 512",
                self.key_size
            )));
        }
        let kdf = self.pbkdf.map(|pbkdf| match pbkdf {
            Pbkdf::Pbkdf2 => KdfKind::Pbkdf2,
            Pbkdf::Argon2i => KdfKind::Argon2i,
            Pbkdf::Argon2id => KdfKind::Argon2id,
        });
        Ok(FormatOptions {
            version: if self.is_luks1() {
                Version::Luks1
            } else {
                Version::Luks2
            },
            cipher: self.cipher.clone(),
            key_len: self.key_size / 8,
            sector_size: self.sector_size,
            hash: self.hash.clone(),
            kdf,
            cost: KdfCost {
                target: Duration::from_millis(self.iter_time),
                iterations: self.pbkdf_force_iterations,
                memory_kib: self.pbkdf_memory,
                cpus: self.pbkdf_parallel,
            },
            uuid: self.uuid.clone(),
            label: self.label.clone(),
            ..FormatOptions::default()
        })
    }
}

/// Opens the volume as a user would: the header from disk, the passphrase, the digest. Returns
/// the size of the clear disk.
fn check(path: &Path, passphrase: &[u8], key: &SecretBuf, name: &str) -> Result<u64, CliError> {
    let image = Image::open(path, true)?;
    forget_cached(image.file());
    opens(image.file(), image.size(), passphrase, key, name)
}

/// The same of any device that can be read.
fn opens(
    mut device: impl Read + Seek,
    size: u64,
    passphrase: &[u8],
    key: &SecretBuf,
    name: &str,
) -> Result<u64, CliError> {
    let failed = |why: String| {
        CliError::device(format!(
            "{name}: the new volume does not open again ({why}); nothing was kept, is the disk failing?"
        ))
    };
    let luks = |error: cryptline_luks::Error| failed(error.to_string());
    let header: Header = cryptline_luks::read(&mut device, size).map_err(luks)?;
    // The costs are those that were asked for.
    let limits = KdfLimits::NONE;
    let options = UnlockOptions {
        limits,
        ..UnlockOptions::default()
    };
    let opened = header
        .unlock(&mut device, passphrase, &options)
        .map_err(luks)?;
    if *opened.key != **key {
        return Err(failed("it gives another key".into()));
    }
    header
        .verify_volume_key(&opened.key, limits)
        .map_err(luks)?;
    let segment = header.segment(SegmentPolicy::default()).map_err(luks)?;
    segment.data_size(size).map_err(luks)
}

/// Lets the next reads come from the disk and not from memory, where the system does so.
fn forget_cached(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Turns on a terminal; says nothing elsewhere.
fn spinner(message: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        spinner.set_style(style);
    }
    spinner.set_message(message);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
