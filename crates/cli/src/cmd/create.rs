//! `create`: a new LUKS volume in a file, or on `pmem:PATH` or `btt:PATH`.

mod signals;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind, Version};
use cryptline::{Create, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::CliError;
use crate::args::PassphraseSource;
use crate::size;

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
    let options = args.format.options()?;
    let cipher = options.cipher.clone();
    let mut create = Create::new(&args.file)
        .replace(args.force)
        .preallocate(args.preallocate)
        .format(options)
        .keys(args.passphrase.clone())
        .on_progress(show(args.format.pbkdf_force_iterations.is_none()));
    if let Some(size) = args.size {
        create = create.size(size);
    }
    let made = create
        .create()
        .map_err(|error| CliError::of_create(&error))?;
    crate::output::warn_of(&made.warnings);
    let name = args.file.display();
    crate::output::print(&format!(
        "{name}: {}, {} of clear disk, {cipher}\nKey slot 0 opens with the passphrase; it was tried. To use it: cryptline serve {name}\n",
        args.format.version_name(),
        size::human(made.data_size),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Turns on a terminal while something takes long, and removes the unfinished file when stopped by a signal.
fn show(measures: bool) -> impl Fn(Progress<'_>) -> Result<(), cryptline::Error> + Send + Sync {
    let spinner = Mutex::new(None);
    let guard = Mutex::new(None);
    let say = move |message: Option<&'static str>| {
        let mut shown = spinner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let _: Option<Spinner> = shown.take();
        *shown = message.map(Spinner::new);
    };
    move |progress| {
        match progress {
            Progress::Unfinished(path) => {
                let watch = signals::remove_when_stopped(path);
                let watch = watch.map_err(CliError::into_keys_error)?;
                let mut guard = guard
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                *guard = Some(watch);
            }
            Progress::Looking => say(Some("Looking whether anything is there ...")),
            Progress::Deriving if measures => {
                say(Some("Measuring this machine and making the key slot ..."));
            }
            Progress::Deriving => say(Some("Making the key slot ...")),
            Progress::Checking => say(Some("Opening the new volume again ...")),
            _ => say(None),
        }
        Ok(())
    }
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

/// Turns on a terminal while it lives; says nothing elsewhere.
struct Spinner(ProgressBar);

impl Spinner {
    fn new(message: &'static str) -> Self {
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            spinner.set_style(style);
        }
        spinner.set_message(message);
        spinner.enable_steady_tick(Duration::from_millis(100));
        Self(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
