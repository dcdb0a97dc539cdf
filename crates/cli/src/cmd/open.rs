//! `open --check`: does this passphrase unlock the volume?

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cryptline_luks::SegmentPolicy;

use crate::CliError;
use crate::harden::with_keys;
use crate::passphrase::KeySource;
use crate::volume::VolumeType;
use crate::volume::header::{HeaderFile, check_type, unlock};

/// What to check, and how.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline open --check disk.img                        ask for the passphrase
  cryptline open --check disk.img --key-file key.bin     take the bytes of the file unchanged
  cryptline open --check disk.img --key-file - < key.bin
  cryptline open --check disk.img --key-slot 3 --passphrase-fd 3 3<passphrase.txt

Exit codes: 0 unlocked, 1 invalid parameters, 2 no key available with this passphrase, 3 out of
memory, 4 wrong device or damaged header.

cryptline makes no device under /dev/mapper. To use the decrypted disk, run `cryptline serve`.")]
pub struct OpenArgs {
    /// LUKS file or block device, pmem:PATH, btt:PATH or zoned:PATH
    pub target: PathBuf,

    /// Check the passphrase or key (the only thing `open` does)
    #[arg(long)]
    pub check: bool,

    /// Read the LUKS header from FILE instead of the target
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,

    /// Accept this version only
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub kind: Option<VolumeType>,

    /// Accept key slots with cipher_null, which protects nothing
    #[arg(long)]
    pub allow_null_cipher: bool,

    /// How to unlock it.
    #[command(flatten)]
    pub keys: KeySource,
}

/// Checks, and says which key slot it was.
///
/// # Errors
/// Exit code 2 for a wrong passphrase.
pub fn run(args: &OpenArgs) -> Result<ExitCode, CliError> {
    if !args.check {
        return Err(CliError::parameters(format!(
            "open makes no mapping under /dev/mapper; to use the clear disk: cryptline serve {0}; to try a passphrase: cryptline open --check {0}",
            args.target.display()
        )));
    }
    if args.kind == Some(VolumeType::Plain) {
        return Err(CliError::parameters(
            "a plain volume has nothing to check a passphrase against; serve it read-only and look at the data",
        ));
    }
    let path = args.header.as_deref().unwrap_or(&args.target);
    let source = HeaderFile::open_target(path)?;
    let header = source.read()?;
    check_type(&header, args.kind, &source.name)?;
    crate::output::warn(header.warnings());
    let null = args.allow_null_cipher;
    let slot = with_keys(|| {
        let reader = source.reader()?;
        unlock(&header, reader, &source.name, &args.keys, null).map(|(_, slot)| slot)
    })?;
    crate::output::print(&match slot {
        Some(slot) => format!("Key slot {slot} unlocked.\n"),
        None => "The volume key fits.\n".to_owned(),
    })?;
    let policy = SegmentPolicy {
        allow_null_cipher: null,
        detached: true,
    };
    if let Err(why) = header.segment(policy) {
        crate::output::warn(&[format!(
            "the key is right, but the volume can not be served: {why}"
        )]);
    }
    Ok(ExitCode::SUCCESS)
}
