//! `btt info`: what the info blocks say.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cryptline_engine::btt::{Copies, Located, Medium, locate};
use serde::Serialize;

use super::{failed, open, uuid};
use crate::output::print_report;
use crate::{CliError, size};

/// Which table.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline btt info disk.btt
  cryptline btt info --json disk.btt | jq '.arenas[].map_offset'

Exit codes: 0 shown, 4 no table, or a damaged one, 5 in use.")]
pub struct InfoArgs {
    /// File, block device or DAX device with the table
    pub path: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The members of the JSON, whose stability docs/btt.md promises.
#[derive(Serialize)]
struct Report {
    target: String,
    version: String,
    uuid: String,
    parent_uuid: Option<String>,
    sector_size: u32,
    sectors: u64,
    data_size: u64,
    device_size: u64,
    medium: String,
    arenas: Vec<Arena>,
}

/// Bytes; offsets are from the start of the arena.
#[derive(Serialize)]
struct Arena {
    start: u64,
    size: u64,
    sectors: u32,
    blocks: u32,
    block_size: u32,
    lanes: u32,
    data_offset: u64,
    map_offset: u64,
    flog_offset: u64,
    info_copy_offset: u64,
    failed: bool,
    info_block: &'static str,
}

/// Prints the geometry.
///
/// # Errors
/// Exit code 4 where there is no table.
pub fn run(args: &InfoArgs) -> Result<(), CliError> {
    let (memory, name) = open(&args.path, true)?;
    let arenas = locate(&memory).map_err(|error| failed(&name, &error))?;
    let report = Report::new(name, memory.how(), memory.size(), &arenas);
    print_report(&report, args.json, Report::text)
}

impl Report {
    fn new(target: String, how: &str, device_size: u64, arenas: &[Located]) -> Self {
        let first = &arenas[0].info;
        let sectors = |arena: &Located| u64::from(arena.info.layout.external_nlba);
        let sectors = arenas.iter().map(sectors).sum();
        let parent = first.parent_uuid;
        Self {
            target,
            version: format!("{}.{}", first.version.0, first.version.1),
            uuid: uuid::format(&first.uuid),
            parent_uuid: (parent != [0; 16]).then(|| uuid::format(&parent)),
            sector_size: first.layout.external_lbasize,
            sectors,
            data_size: sectors * u64::from(first.layout.external_lbasize),
            device_size,
            medium: how.to_owned(),
            arenas: arenas.iter().map(Arena::new).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: String| {
            let value = crate::error::on_one_line(&value);
            // Writing to a String does not fail.
            let _ = writeln!(text, "{:<12}{value}", format!("{key}:"));
        };
        line("target", self.target.clone());
        line("version", self.version.clone());
        line("UUID", self.uuid.clone());
        if let Some(parent) = &self.parent_uuid {
            line("parent", parent.clone());
        }
        let data = size::human(self.data_size);
        let (sectors, bytes) = (self.sectors, self.sector_size);
        line("data", format!("{data}, {sectors} sectors of {bytes} bytes"));
        line("medium", self.medium.clone());
        for (number, arena) in self.arenas.iter().enumerate() {
            let (start, end) = (arena.start, arena.start + arena.size);
            let (blocks, block_size, lanes) = (arena.blocks, arena.block_size, arena.lanes);
            line(
                &format!("arena {number}"),
                format!("bytes {start} to {end}, {blocks} blocks of {block_size} bytes, {lanes} lanes"),
            );
            let (map, flog, copy) = (arena.map_offset, arena.flog_offset, arena.info_copy_offset);
            let data = arena.data_offset;
            line("", format!("data at {data}, map at {map}, flog at {flog}, copy at {copy}"));
            if arena.info_block != "both" {
                line("", format!("of its two info blocks only the {} is good; see `btt check`", arena.info_block));
            }
            if arena.failed {
                line("", "marked as failed: it can only be read".into());
            }
        }
        text
    }
}

impl Arena {
    fn new(arena: &Located) -> Self {
        let layout = &arena.info.layout;
        Self {
            start: arena.start,
            size: layout.size,
            sectors: layout.external_nlba,
            blocks: layout.internal_nlba,
            block_size: layout.internal_lbasize,
            lanes: layout.nfree,
            data_offset: layout.data,
            map_offset: layout.map,
            flog_offset: layout.flog,
            info_copy_offset: layout.info_copy,
            failed: arena.info.has_failed(),
            info_block: match arena.copies {
                Copies::Both => "both",
                Copies::First => "first",
                Copies::Second => "second",
            },
        }
    }
}
