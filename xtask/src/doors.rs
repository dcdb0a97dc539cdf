//! The three doors: `check` for each commit, `test` for each landing, `nightly` for all there is.
//!
//! One build at a time, for two in one target folder only wait for each other. What fails soonest comes first, and the
//! tests last, so that the output ends with their summary.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use cryptline_peers::{self as peer, BackgroundProgram};

use crate::runner::{self, Ran};
use crate::step::{DoorSteps, Failed, cargo, cargo_command, end_after, output, skips};
use crate::{arm, counts, deny, miri, package, portable, python, simulate, tidy};

/// CI gives 90 minutes; what a hanging test said is shown in the rest of them.
const CI_LIMIT: Duration = Duration::from_secs(84 * 60);
/// No installation takes so long, on a slow network either.
const PEERS_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Bytes that are built from a clean clone.
const CHECK_BYTES: u64 = 5 << 30;
const TEST_BYTES: u64 = 12 << 30;
const NIGHTLY_BYTES: u64 = 30 << 30;
/// Free bytes with which no step gets far.
pub const FULL_BYTES: u64 = 1 << 30;
/// Where nightly says what it did.
const REPORT: &str = "target/nightly-report.md";
/// Histories of zones over the page-cache model, each time. A landing has a tenth as many, or fewer.
const HISTORIES: (&str, &str) = ("CRYPTLINE_CASES", "10000");
/// The fuzzers run for an hour beside all else, and what they find is shrunk and told.
const FUZZ_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// For each commit: checks that take minutes.
pub fn check() -> Result<(), Failed> {
    let mut steps = DoorSteps::default();
    room_for(CHECK_BYTES)?;
    let ended = lints(&mut steps).and_then(|()| {
        steps.run("build of the tests", runner::build)?;
        steps.run("tests", || runner::run("check", &[], &[]))
    });
    print!("{}", steps.table());
    ended
}

/// For each landing, and for CI.
pub fn test() -> Result<(), Failed> {
    room_for(TEST_BYTES)?;
    if peer::in_ci() {
        end_after(CI_LIMIT);
    }
    let mut steps = DoorSteps::default();
    let ended = landing(&mut steps).and_then(|()| steps.run("tests", || runner::run("default", &[], &[])));
    let ran = if steps.done.iter().any(|done| done.name == "tests") { runner::ran("default") } else { Ran::default() };
    print!("\n{}\n{}", steps.table(), ran.table());
    let skips = ran.check_skips();
    ended.and(skips)
}

/// Everything. A step that fails does not keep the others from being tried.
pub fn nightly() -> Result<(), Failed> {
    room_for(NIGHTLY_BYTES)?;
    let mut steps = DoorSteps { goes_on: true, ..DoorSteps::default() };
    landing(&mut steps)?;
    // Most tests wait for other programs most of their time; the fuzzers take the rest of it.
    let fuzzers = this_beside("fuzz")?;
    steps.run("tools", crate::tools::run)?;
    steps.run("cargo deny", deny::whole)?;
    steps.run("static program as distributed", || portable::run(portable::DIST))?;
    steps.run("Debian package as distributed", package::run)?;
    steps.run("Python wheel", python::check_wheel)?;
    steps.run("simulator, for an hour", simulate::night)?;
    let histories = ["-E", "test(/page_cache/)"];
    steps.run("many histories", || runner::run("nightly", &histories, &[HISTORIES]))?;
    let mut ran = runner::ran("nightly");
    steps.run("all tests", || runner::run("nightly", &[], &[]))?;
    let all = runner::ran("nightly");
    ran.tests = all.tests;
    ran.skips.extend(all.skips);
    // Should the rest be cut off, this much is in the report.
    write_report(&steps, &ran)?;
    steps.run("fuzzing, beside all since the landing's steps", || finish(fuzzers, FUZZ_LIMIT))?;
    print!("\n{}\n{}", steps.table(), ran.table());
    write_report(&steps, &ran)?;
    let failed: Vec<_> = steps.done.iter().filter(|done| done.failure.is_some()).map(|done| done.name).collect();
    if failed.is_empty() { ran.check_skips() } else { Err(Failed(format!("failed: {}", failed.join(", ")))) }
}

/// Runs the steps that read the source only.
fn lints(steps: &mut DoorSteps) -> Result<(), Failed> {
    steps.run("format", || cargo(&["fmt", "--all", "--check"]))?;
    steps.run("tidy", tidy::run)?;
    steps.run("licences and sources", deny::run)?;
    let clippy = |more: &[&str]| {
        let rest = ["--locked", "--", "-D", "warnings"];
        cargo(&[&["clippy"], more, &rest].concat())
    };
    steps.run("clippy", || clippy(&["--workspace", "--all-targets"]))?;
    // What nobody builds here and others may: all that is optional left out.
    steps.run("clippy without Ceph", || clippy(&["--package", "cryptline-cli", "--no-default-features"]))
}

/// The steps of a landing that make what is shipped.
pub fn try_package() -> Result<(), Failed> {
    let mut steps = DoorSteps::default();
    let pages = || cargo(&["build", "--locked", "--package=cryptline-pages"]);
    let ended = steps.run("man pages and completions", pages).and_then(|()| shipped(&mut steps));
    print!("{}", steps.table());
    ended
}

fn shipped(steps: &mut DoorSteps) -> Result<(), Failed> {
    steps.run("static program", || portable::run(portable::TRIED))?;
    steps.run("Debian package", package::run)
}

/// Everything but the tests of the workspace.
fn landing(steps: &mut DoorSteps) -> Result<(), Failed> {
    // The packages come over the network meanwhile. An installation is never cut off.
    let peers = this_beside("peers")?;
    let linted = lints(steps);
    let installed = steps.run("test peers", || finish(peers, PEERS_LIMIT));
    linted.and(installed)?;
    // It makes the pages for the package, too.
    steps.run("build of the tests", runner::build)?;
    shipped(steps)?;
    steps.run("documentation tests", || cargo(&["test", "--workspace", "--doc", "--locked"]))?;
    steps.run("instruction counts", counts::run)?;
    steps.run("Python", python::run)?;
    steps.run("ARM", arm::run)?;
    steps.run("Miri", miri::run)?;
    steps.run("simulator", simulate::run)
}

/// A verb of this program in a process of its own, which ends with its owner.
fn this_beside(verb: &str) -> Result<BackgroundProgram, Failed> {
    let program = std::env::current_exe().map_err(|error| Failed(error.to_string()))?;
    Ok(BackgroundProgram::spawn(Command::new(program).arg(verb)))
}

fn finish(mut beside: BackgroundProgram, limit: Duration) -> Result<(), Failed> {
    let status = beside.wait(limit);
    let run = beside.collect();
    if status.is_some_and(|status| status.success()) {
        println!("{}", run.stdout_text().trim_end());
        return Ok(());
    }
    Err(Failed(run.to_string()))
}

/// Free bytes where Cargo builds.
pub fn free_bytes() -> u64 {
    let target = crate::target();
    let place = target.ancestors().find(|place| place.exists());
    let free = place.and_then(|place| rustix::fs::statvfs(place).ok());
    free.map_or(u64::MAX, |free| free.f_bavail * free.f_frsize)
}

/// Fails before anything is built where it cannot fit. Where the tests have been built before, a quarter of the room is enough.
fn room_for(needed: u64) -> Result<(), Failed> {
    let needed = if crate::target().join("debug/cryptline").exists() { needed / 4 } else { needed };
    let free = free_bytes();
    if free >= needed {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(Failed(format!("{} MiB are free for target, about {} are needed", mib(free), mib(needed))))
}

fn write_report(steps: &DoorSteps, ran: &Ran) -> Result<(), Failed> {
    let commit = output(Command::new("git").args(["log", "-1", "--format=%H %s"]));
    let compiler = output(cargo_command().arg("--version"))?;
    let commit = commit.unwrap_or_else(|Failed(why)| why);
    let mut text = format!("# cargo xtask nightly\n\n{}\n{}\n", commit.trim(), compiler.trim());
    let _infallible = write!(text, "\n## Steps\n\n```text\n{}```\n", steps.table());
    for done in &steps.done {
        if let Some(why) = &done.failure {
            let _infallible = writeln!(text, "\n{} failed: {why}", done.name);
        }
    }
    let _infallible = write!(text, "\n## {} tests\n\n```text\n{}```\n", ran.tests.len(), ran.table());
    text.push_str("\n## Skipped\n\n");
    for line in skips().iter().chain(&ran.skips) {
        let _infallible = writeln!(text, "* {line}");
    }
    std::fs::write(crate::root().join(REPORT), text).map_err(|error| Failed(format!("{REPORT}: {error}")))?;
    println!("wrote {REPORT}");
    Ok(())
}
