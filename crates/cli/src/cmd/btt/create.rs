//! `btt create`: a table in a new file, or over what a file or device holds.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::Args;
use cryptline::{CreateBtt, Progress};
use cryptline_sys::lock;

use super::uuid;
use crate::CliError;
use crate::cmd::create::show;
use crate::progress::ProgressMeter;
use crate::size;
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "btt create",
    examples: "\
cryptline btt create disk.btt --size 1G
cryptline btt create disk.btt --size 64M --sector-size 512
# over an existing file or device, in place
cryptline btt create --force /mnt/pmem/disk.btt",
    notes: "\
With --size a new file is made: whole under its name, or not at all. Without it the file or device
is there already and everything on it is lost. The table is opened again before success is reported.

Take the sector size of the volume that will lie in it: only then no cipher sector can be torn.",
    exit: "0 made, 1 wrong parameters, 4 the disk is full or failed or cannot be mapped, 5 the file exists (--force \
        replaces it) or is in use",
    ..Verb::EMPTY
};

/// Table to make.
#[derive(Args, Debug)]
pub struct BttCreateArgs {
    /// The file to make, or the file or device to use
    pub path: PathBuf,

    /// Size of the new file, table included, such as 512M or 1G; KB, MB and GB are powers of 1000
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    pub size: Option<u64>,

    /// Bytes in a sector: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = size::parse_block)]
    pub sector_size: u32,

    /// UUID of the table [default: random]
    #[arg(long, value_name = "UUID", value_parser = uuid::parse)]
    pub uuid: Option<[u8; 16]>,

    /// Replace the file if it exists; without --size, lose what the file or device holds
    #[arg(long)]
    pub force: bool,
}

/// Makes the table.
pub fn run(args: &BttCreateArgs) -> Result<(), CliError> {
    let (meter, show) = (Mutex::new(ProgressMeter::new("Cleared", size::human)), show(false));
    let create =
        CreateBtt::new(&args.path).sector_size(args.sector_size).replace(args.force).on_progress(move |progress| {
            if let Progress::Done { bytes, of } = progress {
                lock(&meter).show(bytes, Some(of));
                return Ok(());
            }
            show(progress)
        });
    // The line of the terminal goes with it.
    let made = create.with(args.size, CreateBtt::size).with(args.uuid, CreateBtt::uuid).create()?;
    let (name, data) = (args.path.display(), size::human(made.data_size));
    crate::output::report(&format!(
        "{name}: BTT with {data} in {}-byte sectors, UUID {}\nTo serve the volume in it: cryptline serve btt:{name}\n",
        args.sector_size,
        uuid::format(&made.uuid),
    ))
}
