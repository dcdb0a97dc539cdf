//! `info`: what a LUKS header says, or a partition table, as text and as JSON. Needs no passphrase.

mod partitions;
mod text;
mod zones;

use std::path::PathBuf;

use clap::Args;
use cryptline::{Contents, Inspection, Open, Problem};
use serde_json::{Value, json};

use crate::CliError;
use crate::error::luks_advice;
use crate::output::print_report;
use crate::verb::{Group, Verb, Word};

pub const VERB: Verb = Verb {
    name: "info",
    words: &[Word::with("zones", "--zones")],
    group: Some(Group::Volumes),
    is_main: true,
    examples: "\
cryptline info disk.img
cryptline info --json disk.img | jq '.keyslots[].kdf'
cryptline info --header header.img /dev/sdb
# list its partitions
cryptline info whole-disk.img
# the LUKS header in the second one
cryptline info 'whole-disk.img?partition=2'
cryptline info --zones --json zoned:disk.img | jq '.zones[] | select(.condition == \"full\")'",
    notes: "\
docs/info-json.md describes the JSON. A valid header that cannot be served, such as one with a
reencryption in progress, is shown with the reason. A damaged header gives exit code 4.

With --zones, the zones are those of the device below the cipher, in 512-byte sectors. The table has the format of
`blkzone report`: its write pointers are relative to the start of the zone, those in the JSON to the start of the device.
docs/zoned.md describes both.",
    see: "blkzone(8)",
    keyless: true,
    ..Verb::EMPTY
};

/// Which header.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// LUKS file or block device, NBD URI, rbd:POOL/IMAGE, pmem:PATH, btt:PATH or zoned:PATH; a part of any is TARGET?partition=N or TARGET?offset=SIZE&length=SIZE
    pub target: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// List the zones of the target, a host-managed block device or zoned:PATH
    #[arg(long, conflicts_with = "header")]
    pub zones: bool,

    /// Read the LUKS header from FILE; the target holds only data
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
}

/// Prints the header, the partitions, or the zones.
///
/// # Errors
/// Exit code 4 for a damaged or missing header.
pub fn run(args: &InfoArgs) -> Result<(), CliError> {
    if args.zones {
        return zones::run(&args.target, args.json);
    }
    match Open::new(&args.target).with(args.header.as_ref(), Open::header).inspect() {
        Ok(found) => print_header(&found, args.json),
        Err(error) => match error.problem() {
            Problem::NotLuks(Contents::Partitioned(table)) => {
                let target = error.name().unwrap_or_default();
                print_report(args.json, &partitions::json_of(&target, table), &partitions::text_of(&target, table))
            }
            _ => Err(error.into()),
        },
    }
}

fn print_header(found: &Inspection, as_json: bool) -> Result<(), CliError> {
    let text = text::of(found, &found.header.info(), refused(found).as_deref());
    print_report(as_json, &json_of(found), &text)
}

fn refused(found: &Inspection) -> Option<String> {
    found.data_size.as_ref().err().map(|why| format!("{why}{}", luks_advice(why)))
}

/// Returns all that the header says.
pub fn json_of(found: &Inspection) -> Value {
    // docs/info-json.md promises that the members stay.
    let mut report = json!({
        "target": found.name,
        "kind": found.kind.to_string(),
        "detached": found.detached,
        "device_size": found.device_size,
        "data_size": found.data_size.as_ref().ok(),
        "refused": refused(found),
    });
    if let (Value::Object(report), Value::Object(header)) = (&mut report, json!(found.header.info())) {
        report.extend(header);
    }
    report
}
