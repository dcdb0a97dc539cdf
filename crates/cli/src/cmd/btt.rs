//! `btt`: block translation tables: make one, look at one, check one.

mod check;
mod create;
mod info;
mod uuid;

use std::path::Path;

use clap::Subcommand;
use cryptline_engine::base::PersistentMemory;
use cryptline_engine::btt::BttError;

use crate::CliError;
use crate::error::btt_advice;
use crate::verb::{Group, Verb};

/// `btt`.
const VERB: Verb = Verb {
    name: "btt",
    group: Some(Group::Tools),
    examples: "\
# a new table in a new file
cryptline btt create disk.btt --size 1G
# show its geometry
cryptline btt info disk.btt
# check that each block belongs to exactly one sector
cryptline btt check disk.btt
# serve the volume in it
cryptline serve btt:disk.btt",
    notes: "\
With a block translation table, each sector has either its old or its new contents after a crash,
never a mix, even on media that are written in smaller units, such as persistent memory. The tables
are those of Linux's nd_btt. docs/btt.md describes the format and the JSON of `info` and `check`.",
    keyless: true,
    ..Verb::EMPTY
};

/// Rows of it and of the verbs below it.
pub const VERBS: &[Verb] = &[VERB, create::VERB, info::VERB, check::VERB];

/// Operations on a table.
#[derive(Subcommand, Debug)]
pub enum BttCommand {
    /// Create a table in a new file, or over the contents of a file or device
    Create(create::BttCreateArgs),
    /// Check a table, and repair it where only one answer can be right
    Check(check::BttCheckArgs),
    /// Show the geometry of a table
    Info(info::BttInfoArgs),
}

impl BttCommand {
    /// Runs one of them.
    pub fn run(&self) -> Result<(), CliError> {
        match self {
            Self::Create(args) => create::run(args),
            Self::Check(args) => check::run(args),
            Self::Info(args) => info::run(args),
        }
    }
}

/// Opens and locks the medium; a path may be given as a target is.
fn open(path: &Path, read_only: bool) -> Result<(PersistentMemory, String), CliError> {
    let name = path.display().to_string();
    let path = name.strip_prefix("btt:").map_or(path, Path::new);
    Ok((PersistentMemory::open(path, read_only)?, name))
}

fn failed(name: &str, error: &BttError) -> CliError {
    CliError::device(format!("{name}: {error}{}", btt_advice(error)))
}
