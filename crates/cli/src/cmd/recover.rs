//! `recover`: a new server for a device whose old one was killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::CliError;
use crate::attached::background;
use crate::attached::state::{self, Driver};

/// Which device.
#[derive(Args, Debug)]
#[command(after_help = "\
What was asked of the device while nobody served it has waited, and is done now; programs that use it \
notice only a pause. The options are those that the device was attached with; a passphrase is asked \
for again, and a key that came from standard input or a descriptor must be given there again.

Only ublk devices without zones that root has made can be recovered, and only of volumes with a LUKS header: by \
that, the volume is known to be the same.

Examples:
  cryptline recover /dev/ublkb0")]
pub struct RecoverArgs {
    /// A device of `cryptline attach` whose server is gone
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
}

/// Starts a server for it.
///
/// # Errors
/// Exit code 5 where it has one, 4 where it cannot have another.
pub fn run(args: &RecoverArgs) -> Result<ExitCode, CliError> {
    let known = state::of(&args.device)?;
    let device = known.device.display();
    if known.driver != Driver::Ublk {
        return Err(CliError::device(format!(
            "{device} is no ublk device, so nothing has waited for a new server; \
             `cryptline detach` removes it"
        )));
    }
    if known.server().is_some() {
        return Err(CliError::busy(format!(
            "{device} is served, by process {}",
            known.pid
        )));
    }
    if known.zoned {
        return Err(CliError::device(format!(
            "{device} has zones, which are written in order: what its server had under way cannot be asked \
             again, so it was not kept; `cryptline detach` removes it, and `cryptline attach` makes another"
        )));
    }
    if known.unprivileged {
        return Err(CliError::device(format!(
            "{device} was made without privileges, and what is asked of such a device does not wait for another \
             server; `cryptline detach` removes it, and `cryptline attach` makes another"
        )));
    }
    known.accept(&known.identity)?;
    if known.arguments.is_empty() {
        return Err(CliError::device(format!(
            "{device} was attached with options that were not kept, such as a table line with its key; \
             `cryptline detach` removes it"
        )));
    }
    std::env::set_current_dir(&known.folder)
        .map_err(|error| CliError::device(format!("{}: {error}", known.folder.display())))?;
    // What a server before was started with by us comes off: it is added again.
    let mut arguments: Vec<OsString> = Vec::new();
    let mut given = known.arguments.iter();
    while let Some(argument) = given.next() {
        if argument == background::RECOVER {
            given.next();
        } else if argument != background::OPTION {
            arguments.push(argument.into());
        }
    }
    let more = [background::RECOVER.into(), known.device.clone().into()];
    arguments.splice(1.min(arguments.len())..1.min(arguments.len()), more);
    background::start(arguments)
}
