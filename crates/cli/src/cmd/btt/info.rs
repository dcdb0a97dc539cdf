//! `btt info`: what the info blocks say.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cryptline_engine::btt::{BttMedium, Copies, Located, locate};
use serde_json::{Value, json};

use super::{failed, open, uuid};
use crate::error::on_one_line;
use crate::output::print_report;
use crate::verb::Verb;
use crate::{CliError, size};

pub const VERB: Verb = Verb {
    name: "btt info",
    examples: "\
cryptline btt info disk.btt
cryptline btt info --json disk.btt | jq '.arenas[].map_offset'",
    exit: "0 shown, 4 no table, or a damaged one, 5 in use",
    ..Verb::EMPTY
};

/// Which table.
#[derive(Args, Debug)]
pub struct BttInfoArgs {
    /// File, block device or DAX device with the table
    pub path: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the geometry.
///
/// # Errors
/// Exit code 4 where there is no table.
pub fn run(args: &BttInfoArgs) -> Result<(), CliError> {
    let (memory, name) = open(&args.path, true)?;
    let arenas = locate(&memory).map_err(|error| failed(&name, &error))?;
    let device_size = memory.size();
    let first = &arenas[0].info;
    let sectors: u64 = arenas.iter().map(|arena| u64::from(arena.info.layout.external_nlba)).sum();
    let sector_size = first.layout.external_lbasize;
    let data_size = sectors * u64::from(sector_size);
    let (version, medium) = (format!("{}.{}", first.version.0, first.version.1), memory.how());
    let parent = Some(first.parent_uuid).filter(|uuid| *uuid != [0; 16]).map(|uuid| uuid::format(&uuid));
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:<12}{}", format!("{key}:"), on_one_line(value));
    };
    line("target", &name);
    line("version", &version);
    line("UUID", &uuid::format(&first.uuid));
    if let Some(parent) = &parent {
        line("parent", parent);
    }
    line("data", &format!("{}, {sectors} sectors of {sector_size} bytes", size::human(data_size)));
    line("medium", medium);
    for (number, arena) in arenas.iter().enumerate() {
        of_arena(number, arena, &mut line);
    }
    // docs/btt.md promises that the members stay.
    let report = json!({
        "target": name,
        "version": version,
        "uuid": uuid::format(&first.uuid),
        "parent_uuid": parent,
        "sector_size": sector_size,
        "sectors": sectors,
        "data_size": data_size,
        "device_size": device_size,
        "medium": medium,
        "arenas": arenas.iter().map(json_of).collect::<Value>(),
    });
    print_report(args.json, &report, &text)
}

fn of_arena(number: usize, arena: &Located, line: &mut dyn FnMut(&str, &str)) {
    let (Located { start, info, .. }, layout) = (arena, &arena.info.layout);
    let (blocks, block_size, lanes) = (layout.internal_nlba, layout.internal_lbasize, layout.nfree);
    line(
        &format!("arena {number}"),
        &format!("bytes {start} to {}, {blocks} blocks of {block_size} bytes, {lanes} lanes", start + layout.size),
    );
    let (data, map, flog, copy) = (layout.data, layout.map, layout.flog, layout.info_copy);
    line("", &format!("data at {data}, map at {map}, flog at {flog}, copy at {copy}"));
    if arena.copies != Copies::Both {
        let good = name_of(arena.copies);
        line("", &format!("of its two info blocks only the {good} is good; see `btt check`"));
    }
    if info.has_failed() {
        line("", "marked as failed: it can only be read");
    }
}

/// Bytes; offsets are from the start of the arena.
fn json_of(arena: &Located) -> Value {
    let layout = &arena.info.layout;
    json!({
        "start": arena.start,
        "size": layout.size,
        "sectors": layout.external_nlba,
        "blocks": layout.internal_nlba,
        "block_size": layout.internal_lbasize,
        "lanes": layout.nfree,
        "data_offset": layout.data,
        "map_offset": layout.map,
        "flog_offset": layout.flog,
        "info_copy_offset": layout.info_copy,
        "failed": arena.info.has_failed(),
        "info_block": name_of(arena.copies),
    })
}

fn name_of(copies: Copies) -> &'static str {
    match copies {
        Copies::Both => "both",
        Copies::First => "first",
        Copies::Second => "second",
    }
}
