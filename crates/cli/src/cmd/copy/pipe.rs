//! Standard output as the destination of a copy. Nothing else is printed there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cryptline::{Holes, Target};

use super::CopyArgs;
use crate::CliError;

/// Leads to what standard output is.
const OUTPUT: &str = "/proc/self/fd/1";
/// Its name in messages.
pub const NAME: &str = "standard output";

/// Tells if a destination is standard output.
pub fn is_meant(destination: &Path) -> bool {
    destination == Path::new("-")
}

/// Returns standard output as the refusals of destinations take it.
pub fn target() -> Result<Target, CliError> {
    Ok(Target::parse(OsStr::new(OUTPUT))?)
}

/// Returns it, if a disk can be written there.
///
/// # Errors
/// Exit code 1 for a terminal, for a block device, whose contents nobody would have looked for, and for options that
/// need more than one pass.
pub fn open(args: &CopyArgs) -> Result<File, CliError> {
    refuse_options(args)?;
    let source = args.source.display();
    if io::stdout().is_terminal() {
        return Err(CliError::parameters(format!(
            "standard output is a terminal, and a disk is not text; redirect it, as in `cryptline copy {source} - | sha256sum`, or name a file"
        )));
    }
    let failed = |error| CliError::parameters(format!("cannot use standard output: {error}; is it closed?"));
    let output: OwnedFd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map_err(failed)?;
    let output = File::from(output);
    let is_device = output.metadata().is_ok_and(|it| it.file_type().is_block_device());
    if is_device {
        return Err(CliError::parameters(
            "standard output is a block device; name it as DST, so that what it holds is looked for first",
        ));
    }
    Ok(output)
}

fn refuse_options(args: &CopyArgs) -> Result<(), CliError> {
    args.to.tokens().refuse("standard output has no LUKS header")?;
    let named = [
        (args.encrypt, "--encrypt"),
        (args.resume, "--resume"),
        (args.force, "--force"),
        (args.how.verify, "--verify"),
        (args.holes != Holes::default(), "--holes"),
        (args.to.header.is_some(), "--to-header"),
        (!args.to.keys().is_empty(), "the key of the destination"),
    ];
    match named.iter().find(|(is_named, _)| *is_named) {
        Some((_, "--verify")) => Err(CliError::parameters(
            "what is written to standard output cannot be read back; use --hash in place of --verify",
        )),
        Some((_, what)) => Err(CliError::parameters(format!(
            "standard output takes decrypted bytes as they come; leave out {what}, or name a file"
        ))),
        None => Ok(()),
    }
}
