//! `btt create`: a table in a new file, or over what a file or device holds.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cryptline_engine::btt::layout::{ARENA_MIN, START_V1, arenas};
use cryptline_engine::btt::{Btt, Medium, NewTable};

use super::{open, progress, uuid};
use crate::CliError;
use crate::cmd::create::finish::Draft;
use crate::size;

/// What to make.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline btt create disk.btt --size 1G
  cryptline btt create disk.btt --size 64M --sector-size 512
  cryptline btt create --force /mnt/pmem/disk.btt     over an existing file or device, in place

With --size a new file is made: whole under its name, or not at all. Without it the file or device
is there already and everything on it is lost. The table is opened again before success is reported.

Take the sector size of the volume that will lie in it: only then no cipher sector can be torn.

Exit codes: 0 made, 1 wrong parameters, 4 the disk is full or failed or cannot be mapped, 5 the
file exists (--force replaces it) or is in use.")]
pub struct CreateArgs {
    /// The file to make, or the file or device to use
    pub path: PathBuf,

    /// Size of the new file, table included, such as 512M or 1G (powers of 1024)
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    pub size: Option<u64>,

    /// Bytes in a sector: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub sector_size: u32,

    /// UUID of the table [default: random]
    #[arg(long, value_name = "UUID", value_parser = uuid::parse)]
    pub uuid: Option<[u8; 16]>,

    /// Replace the file if it exists; without --size, lose what the file or device holds
    #[arg(long)]
    pub force: bool,
}

/// Makes the table.
///
/// # Errors
/// As the help says.
pub fn run(args: &CreateArgs) -> Result<ExitCode, CliError> {
    if !cryptline_engine::btt::layout::is_sector_size(args.sector_size) {
        return Err(CliError::parameters(format!(
            "--sector-size {}: give 512 or 4096; sectors with integrity metadata (520, 4104 and so on) are not supported",
            args.sector_size
        )));
    }
    let new = NewTable {
        sector_size: args.sector_size,
        uuid: args.uuid.map_or_else(uuid::random, Ok)?,
        is_zero: args.size.is_some(),
    };
    let name = args.path.display().to_string();
    let sectors = match args.size {
        Some(size) => in_new_file(args, &new, size, &name)?,
        None => in_place(args, &new, &name)?,
    };
    let data = size::human(sectors * u64::from(args.sector_size));
    crate::output::print(&format!(
        "{name}: BTT with {data} in {}-byte sectors, UUID {}\nTo serve the volume in it: cryptline serve btt:{name}\n",
        args.sector_size,
        uuid::format(&new.uuid),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn in_new_file(args: &CreateArgs, new: &NewTable, size: u64, name: &str) -> Result<u64, CliError> {
    refuse_too_small("--size", size, args.sector_size)?;
    let draft = Draft::new(&args.path, args.force)?;
    draft.set_size(size, false)?;
    let sectors = write(new, draft.path().to_owned(), name)?;
    draft.sync()?;
    draft.publish(args.force)?;
    Ok(sectors)
}

fn in_place(args: &CreateArgs, new: &NewTable, name: &str) -> Result<u64, CliError> {
    if !args.path.exists() {
        return Err(CliError::parameters(format!(
            "{name} does not exist; give --size to make it"
        )));
    }
    if !args.force {
        return Err(CliError::busy(format!(
            "{name} exists; give --force to lose what it holds and make a table in it"
        )));
    }
    write(new, args.path.clone(), name)
}

/// Makes the table and looks whether it is one.
fn write(new: &NewTable, path: PathBuf, name: &str) -> Result<u64, CliError> {
    let (memory, _) = open(&path, false)?;
    refuse_too_small(name, memory.size(), new.sector_size)?;
    let template = "{msg} {bar:30} {bytes}/{total_bytes} {eta}";
    let bar = progress(new.work(memory.size()), "Clearing ...", template);
    let failure = |fault: cryptline_engine::request::Fault| {
        CliError::device(format!(
            "cannot write the table to {name}: {fault}; there is none now"
        ))
    };
    let sectors = new.write(&memory, |done| bar.set_position(done));
    let sectors = sectors.map_err(failure)?;
    bar.finish_and_clear();
    memory.check().map_err(failure)?;
    drop(memory);
    // As whoever uses it next would.
    let (memory, _) = open(&path, true)?;
    match Btt::open(memory, true) {
        Ok(table) if table.warnings().is_empty() => Ok(sectors),
        Ok(table) => Err(damaged(name, &table.warnings()[0])),
        Err(error) => Err(damaged(name, &error.to_string())),
    }
}

fn damaged(name: &str, why: &str) -> CliError {
    CliError::device(format!(
        "{name}: the new table does not open again ({why}); is the medium failing?"
    ))
}

fn refuse_too_small(what: &str, size: u64, sector_size: u32) -> Result<(), CliError> {
    if arenas(size, sector_size).is_empty() {
        Err(CliError::parameters(format!(
            "{what}: {size} bytes are too few for a table; the least is {} (16 MiB and 4 KiB)",
            START_V1 + ARENA_MIN
        )))
    } else {
        Ok(())
    }
}
