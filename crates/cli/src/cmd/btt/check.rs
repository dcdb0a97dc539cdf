//! `btt check`: does every block belong to exactly one sector or lane?

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cryptline_engine::btt::{BttProblem, Findings, check, locate};
use serde_json::{Value, json};

use super::{failed, open};
use crate::CliError;
use crate::output::print_report;
use crate::progress::ProgressMeter;
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "btt check",
    examples: "\
cryptline btt check disk.btt
cryptline btt check --repair disk.btt
cryptline btt check --json disk.btt | jq .problems",
    notes: "\
Nothing is written without --repair. It rewrites a bad info block from its copy, and completes
writes that were interrupted after their commit point. Blocks that two sectors share, or that no
entry should name, are reported but not changed: only a backup knows whose data they hold.",
    exit: "0 sound, 1 wrong parameters, 4 damaged, or no table, 5 in use",
    ..Verb::EMPTY
};

/// Options of the check.
#[derive(Args, Debug)]
pub struct BttCheckArgs {
    /// File, block device or DAX device with the table
    pub path: PathBuf,

    /// Repair what has one right answer
    #[arg(long)]
    pub repair: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Checks.
///
/// # Errors
/// Exit code 4 where problems are left.
pub fn run(args: &BttCheckArgs) -> Result<(), CliError> {
    let (memory, name) = open(&args.path, !args.repair)?;
    let arenas = locate(&memory).map_err(|error| failed(&name, &error))?;
    let sectors = arenas.iter().map(|arena| u64::from(arena.info.layout.external_nlba));
    let (all, mut done) = (sectors.sum(), 0);
    let mut meter = ProgressMeter::new("Sectors checked:", |sectors| sectors.to_string());
    let checked = check(&memory, args.repair, |sectors| {
        done += sectors;
        meter.show(done, Some(all));
    });
    drop(meter);
    let (_, findings) = checked.map_err(|error| failed(&name, &error))?;
    // docs/btt.md promises that the members stay.
    let problem = |it: &BttProblem| json!({ "arena": it.arena, "what": it.what.to_string() });
    let report = json!({
        "target": name,
        "sound": findings.count == 0,
        "problem_count": findings.count,
        "problems": findings.problems.iter().map(problem).collect::<Value>(),
        "repaired": findings.repaired.iter().map(ToString::to_string).collect::<Value>(),
        "interrupted_writes": findings.interrupted_writes,
        "written_sectors": findings.written_sectors,
        "zero_sectors": findings.zero_sectors,
        "error_sectors": findings.error_sectors,
    });
    print_report(args.json, &report, &text(&name, &findings))?;
    match findings.count {
        0 => Ok(()),
        count => Err(CliError::device(format!(
            "{}: {count} problems; {}",
            name,
            if args.repair {
                "these have no one right answer, restore the image from a backup"
            } else {
                "--repair puts right what can be, a backup the rest"
            }
        ))),
    }
}

fn text(name: &str, findings: &Findings) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    for problem in &findings.problems {
        let _ = writeln!(text, "arena {}: {}", problem.arena, problem.what);
    }
    let told = findings.problems.len() as u64;
    if findings.count > told {
        let _ = writeln!(text, "and {} more", findings.count - told);
    }
    for repair in &findings.repaired {
        let _ = writeln!(text, "repaired: {repair}");
    }
    if findings.interrupted_writes > 0 {
        let _ = writeln!(text, "{} interrupted writes, which the next opening completes", findings.interrupted_writes);
    }
    if findings.error_sectors > 0 {
        let _ = writeln!(text, "{} sectors are marked as lost", findings.error_sectors);
    }
    if findings.count == 0 {
        let _ =
            writeln!(text, "{}: sound, {} sectors written", crate::error::on_one_line(name), findings.written_sectors);
    }
    text
}
