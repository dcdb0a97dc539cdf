//! `btt check`: does every block belong to exactly one sector or lane?

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cryptline_engine::btt::{Findings, check, locate};
use serde::Serialize;

use super::{failed, open};
use crate::CliError;
use crate::output::print_report;
use crate::progress::Meter;

/// What to check.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline btt check disk.btt
  cryptline btt check --repair disk.btt
  cryptline btt check --json disk.btt | jq .problems

Nothing is written without --repair. It rewrites a bad info block from its copy, and completes
writes that were interrupted after their commit point. Blocks that two sectors share, or that no
entry should name, are reported but not changed: only a backup knows whose data they hold.

Exit codes: 0 sound, 1 wrong parameters, 4 damaged, or no table, 5 in use.")]
pub struct CheckArgs {
    /// File, block device or DAX device with the table
    pub path: PathBuf,

    /// Repair what has one right answer
    #[arg(long)]
    pub repair: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The members of the JSON, whose stability docs/btt.md promises.
#[derive(Serialize)]
struct Report {
    /// The path as given.
    target: String,
    /// No problem is left.
    sound: bool,
    /// Number of problems.
    problem_count: u64,
    /// The first hundred.
    problems: Vec<Problem>,
    /// What was repaired.
    repaired: Vec<String>,
    /// Writes that the next opening will complete.
    interrupted_writes: u64,
    /// Sectors written since the table was made.
    written_sectors: u64,
    /// Sectors that are zero by their flag.
    zero_sectors: u64,
    /// Sectors whose data is lost.
    error_sectors: u64,
}

#[derive(Serialize)]
struct Problem {
    arena: usize,
    what: String,
}

/// Checks.
///
/// # Errors
/// Exit code 4 where problems are left.
pub fn run(args: &CheckArgs) -> Result<(), CliError> {
    let (memory, name) = open(&args.path, !args.repair)?;
    let arenas = locate(&memory).map_err(|error| failed(&name, &error))?;
    let sectors = arenas.iter().map(|arena| u64::from(arena.info.layout.external_nlba));
    let (all, mut done) = (sectors.sum(), 0);
    let mut meter = Meter::new("Sectors checked:", |sectors| sectors.to_string());
    let checked = check(&memory, args.repair, |sectors| {
        done += sectors;
        meter.show(done, Some(all));
    });
    drop(meter);
    let (_, findings) = checked.map_err(|error| failed(&name, &error))?;
    let report = Report::new(name, &findings);
    print_report(&report, args.json, Report::text)?;
    match report.problem_count {
        0 => Ok(()),
        count => Err(CliError::device(format!(
            "{}: {count} problems; {}",
            report.target,
            if args.repair {
                "these have no one right answer, restore the image from a backup"
            } else {
                "--repair puts right what can be, a backup the rest"
            }
        ))),
    }
}

impl Report {
    fn new(target: String, findings: &Findings) -> Self {
        let problem =
            |problem: &cryptline_engine::btt::Problem| Problem { arena: problem.arena, what: problem.what.to_string() };
        Self {
            target,
            sound: findings.count == 0,
            problem_count: findings.count,
            problems: findings.problems.iter().map(problem).collect(),
            repaired: findings.repaired.iter().map(ToString::to_string).collect(),
            interrupted_writes: findings.interrupted_writes,
            written_sectors: findings.written_sectors,
            zero_sectors: findings.zero_sectors,
            error_sectors: findings.error_sectors,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        for problem in &self.problems {
            let _ = writeln!(text, "arena {}: {}", problem.arena, problem.what);
        }
        let told = self.problems.len() as u64;
        if self.problem_count > told {
            let _ = writeln!(text, "and {} more", self.problem_count - told);
        }
        for repair in &self.repaired {
            let _ = writeln!(text, "repaired: {repair}");
        }
        if self.interrupted_writes > 0 {
            let _ = writeln!(text, "{} interrupted writes, which the next opening completes", self.interrupted_writes);
        }
        if self.error_sectors > 0 {
            let _ = writeln!(text, "{} sectors are marked as lost", self.error_sectors);
        }
        if self.sound {
            let _ = writeln!(
                text,
                "{}: sound, {} sectors written",
                crate::error::on_one_line(&self.target),
                self.written_sectors
            );
        }
        text
    }
}
