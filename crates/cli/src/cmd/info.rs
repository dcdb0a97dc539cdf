//! `info`: what a LUKS header says, or a partition table, as text and as JSON. Needs no passphrase.

mod partitions;
mod text;

use std::path::PathBuf;

use clap::Args;
use cryptline::luks::Info;
use cryptline::{Contents, Inspection, Open, Problem};
use serde::Serialize;

use crate::CliError;
use crate::error::luks_advice;
use crate::output::print_report;

/// Which header.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline info disk.img
  cryptline info --json disk.img | jq '.keyslots[].kdf'
  cryptline info --header header.img /dev/sdb
  cryptline info whole-disk.img                   list its partitions
  cryptline info 'whole-disk.img?partition=2'     the LUKS header in the second one

docs/info-json.md describes the JSON. A valid header that cannot be served, such as one with a
reencryption in progress, is shown with the reason. A damaged header gives exit code 4.")]
pub struct InfoArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or zoned:PATH; a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE
    pub target: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Read the LUKS header from FILE; the target holds only data
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
}

/// All that is shown. Its members are those of the JSON, whose stability docs/info-json.md promises.
#[derive(Serialize)]
struct Report {
    /// The target as given.
    target: String,
    /// "LUKS1" or "LUKS2".
    kind: String,
    /// The header is in a file of its own.
    detached: bool,
    /// Bytes of the target.
    device_size: u64,
    /// Bytes of the clear disk, where it can be served.
    data_size: Option<u64>,
    /// Why the volume can not be served, if so.
    refused: Option<String>,
    /// What the header says.
    #[serde(flatten)]
    header: Info,
}

/// Prints the header, or the partitions.
///
/// # Errors
/// Exit code 4 for a damaged or missing header.
pub fn run(args: &InfoArgs) -> Result<(), CliError> {
    let open = Open::new(&args.target);
    let open = match &args.header {
        Some(path) => open.header(path),
        None => open,
    };
    match open.inspect() {
        Ok(found) => print_report(&Report::from(found), args.json, text::of)?,
        Err(error) => match error.problem() {
            Problem::NotLuks(Contents::Partitioned(table)) => {
                let target = error.name().unwrap_or_default();
                let disk = partitions::Disk::new(&target, table);
                print_report(&disk, args.json, partitions::Disk::text)?;
            }
            _ => return Err(error.into()),
        },
    }
    Ok(())
}

impl From<Inspection> for Report {
    fn from(found: Inspection) -> Self {
        let (data_size, refused) = match found.data_size {
            Ok(size) => (Some(size), None),
            Err(why) => (None, Some(format!("{why}{}", luks_advice(&why)))),
        };
        Self {
            target: found.name,
            kind: found.kind.to_string(),
            detached: found.detached,
            device_size: found.device_size,
            data_size,
            refused,
            header: found.header.info(),
        }
    }
}
