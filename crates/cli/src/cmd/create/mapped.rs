//! A volume on a device that is there already: `pmem:PATH` or `btt:PATH`.
//!
//! There is no second name to prepare it under, so what is on the device is looked at first (`look.rs`):
//! where it holds anything, `--force` has to say that it may be lost. A header that was begun and does
//! not open again is wiped.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::process::ExitCode;

use cryptline_engine::base::DirectMode;
use cryptline_luks::format::{FormatOptions, format};

use super::{CreateArgs, look, opens, say_made, spinner};
use crate::volume::mapped::{Mapped, MappedBytes};
use crate::{CliError, size};

/// Whether a target is such a device.
pub fn is_mapped(target: &str) -> bool {
    path_of(target).is_some()
}

fn path_of(target: &str) -> Option<&str> {
    let prefixes = ["pmem:", "btt:"];
    prefixes
        .iter()
        .find_map(|prefix| target.strip_prefix(prefix))
}

/// Makes the volume.
///
/// # Errors
/// As for a file; exit code 5 where the device holds something.
pub fn run(
    target: &str,
    args: &CreateArgs,
    mut options: FormatOptions,
) -> Result<ExitCode, CliError> {
    let Some(mapped) = Mapped::open(target, false, DirectMode::Auto)? else {
        return Err(CliError::parameters(format!(
            "{target} is no mapped device"
        )));
    };
    let bytes = mapped.gate.geometry().size;
    if args.size.is_some() || args.preallocate {
        return Err(CliError::parameters(format!(
            "{target} has its size already, {}; leave out --size and --preallocate",
            size::human(bytes)
        )));
    }
    // What is larger than a table's sector can be torn; what is smaller can not be written.
    let sector = mapped.gate.geometry().logical_block;
    if target.starts_with("btt:") {
        mapped.check_sectors(*options.sector_size.get_or_insert(sector))?;
    }
    let mut device = mapped.reader()?;
    if !args.force {
        let spinner = spinner("Looking whether anything is there ...");
        let found = what_is_there(&mapped, &mut device, target);
        spinner.finish_and_clear();
        if let Some(what) = found.map_err(|error| unusable(target, &error))? {
            return Err(CliError::busy(format!(
                "{target} holds {what}; --force makes a volume there and loses what it holds"
            )));
        }
    }
    let passphrase = args.passphrase.read_new(target)?;
    let spinner = spinner("Making the key slot ...");
    let made = format(&mut device, bytes, &passphrase, &options).map_err(|error| {
        CliError::new(
            crate::error::kind_of(error.exit_code()),
            format!("{target}: {error}"),
        )
    });
    let opened = made.and_then(|key| {
        device.flush().map_err(|error| unusable(target, &error))?;
        opens(mapped.reader()?, bytes, &passphrase, &key, target)
    });
    spinner.finish_and_clear();
    let data_size = opened.inspect_err(|_| wipe(&mut device))?;
    crate::output::warn(&mapped.warnings);
    crate::output::warn(
        mapped
            .warn_of_torn_sectors(options.sector_size.unwrap_or(sector))
            .as_slice(),
    );
    say_made(target, args, &options, data_size)?;
    Ok(ExitCode::SUCCESS)
}

/// The name of what would be lost; `None` where there is nothing.
fn what_is_there(
    mapped: &Mapped,
    device: &mut MappedBytes,
    target: &str,
) -> io::Result<Option<&'static str>> {
    if let Some(name) = look::name(device)? {
        return Ok(Some(name));
    }
    let path = path_of(target).unwrap_or(target);
    let has_data = if fs::metadata(path)?.is_file() {
        // Of the file and not of the mapping: a page that is only looked at may become a page in use.
        look::file_has_data(&File::open(path)?, &mapped.data)?
    } else {
        look::device_has_data(device)?
    };
    device.rewind()?;
    Ok(has_data.then_some("data"))
}

/// Half a header helps nobody. The device may be failing, so nothing is said if this does too.
fn wipe(device: &mut MappedBytes) {
    if !device.is_written() {
        return;
    }
    let _ = device
        .seek(SeekFrom::Start(0))
        .and_then(|_| device.write_all(&[0; 32 * 1024]))
        .and_then(|()| device.flush());
}

fn unusable(target: &str, error: &std::io::Error) -> CliError {
    CliError::device(format!("{target}: {error}"))
}
