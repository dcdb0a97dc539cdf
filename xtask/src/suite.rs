//! `cargo xtask test`: the whole check, in the order that fails soonest. The tests run last, so that
//! the output ends with their summary.

use std::num::NonZero;
use std::process::Command;
use std::time::Duration;

use cryptline_peers::{self as peer, Background};

use crate::beside::Beside;
use crate::step::{Failed, cannot_run, cargo, command, run as run_command, step, succeeds};
use crate::tools::CARGO_DENY;

/// The advisory database comes over the network, which may swallow packets.
const ADVISORIES_TIMEOUT: Duration = Duration::from_secs(120);
/// Seconds for each fuzz target.
const FUZZ_SECONDS: &str = "10";

/// Runs every step; the first failure is the answer. What needs nothing of the others runs beside them, since compilers
/// and emulators often keep one processor busy; the tests have the machine to themselves.
pub fn run() -> Result<(), Failed> {
    let tools = peer::in_ci().then(|| Beside::start("tools")).transpose()?;
    let miri = Beside::start("miri")?;
    step("test peers", crate::peers::run)?;
    let portable = Beside::start("static")?;
    step("tidy", crate::tidy::run)?;
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    tools.map_or(Ok(()), |tools| step("tools", || tools.finish()))?;
    let others = Beside::start("others")?;
    step("licences and sources", deny)?;
    step("static release build", || portable.finish())?;
    step("Debian package", crate::package::run)?;
    step("documentation tests", || cargo(&["test", "--workspace", "--doc", "--locked"]))?;
    step("build of the tests", || tests(&["--no-run"]))?;
    step("Miri", || miri.finish())?;
    step("what ran beside", || others.finish())?;
    // No line of ours after the runner's summary.
    println!("== tests");
    let threads = format!("--test-threads={}", threads_at_a_time());
    tests(&[&threads]).map_err(|Failed(why)| Failed(format!("tests failed: {why}")))
}

/// The steps that neither need what the others make nor make what the tests need.
pub fn others() -> Result<(), Failed> {
    step("program without Ceph", without_ceph)?;
    step("instruction counts", crate::counts::run)?;
    step("ARM", crate::arm::run)?;
    step("C header", crate::header::check)?;
    step("Python", crate::python::run)?;
    step("Python wheel", crate::python::check_wheel)?;
    step("fuzz", fuzz)
}

/// What nobody builds here and others may: all that is optional left out.
fn without_ceph() -> Result<(), Failed> {
    let program = ["--package", "cryptline-cli", "--no-default-features"];
    let clippy = [&["clippy", "--locked"], &program[..], &["--", "-D", "warnings"]];
    cargo(&clippy.concat())
}

/// Most tests wait for other programs most of their time.
fn threads_at_a_time() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Licences, sources and duplicates need no network; advisories do, and are skipped without it.
fn deny() -> Result<(), Failed> {
    let Some(program) = CARGO_DENY.find() else {
        return cannot_run("cargo deny", "it is missing: cargo xtask tools installs it");
    };
    let mut check = Command::new(&program);
    check.args(["deny", "--locked", "check", "--hide-inclusion-graph"]);
    run_command(check.args(["licenses", "bans", "sources"]))?;
    advisories(&program)
}

/// Known vulnerabilities among the dependencies. The database is fetched first; where that is
/// impossible the check is skipped by name, in CI too: nothing about this tree has failed.
fn advisories(program: &str) -> Result<(), Failed> {
    let mut check = Command::new(program);
    check.args(["deny", "--locked", "check", "advisories"]).current_dir(crate::root());
    check.env("GIT_TERMINAL_PROMPT", "0");
    let mut running = Background::spawn(&mut check);
    let late = running.wait(ADVISORIES_TIMEOUT).is_none();
    let run = running.collect();
    if late || run.stderr_text().contains("failed to fetch advisory database") {
        println!("SKIP advisories: the advisory database cannot be reached");
    } else if run.status.success() {
        println!("no known vulnerability");
    } else {
        return Err(Failed(run.to_string()));
    }
    Ok(())
}

/// The short run of every fuzz target.
fn fuzz() -> Result<(), Failed> {
    if crate::root().join("fuzz/run.sh").is_file() {
        command("bash", &["fuzz/run.sh", FUZZ_SECONDS])
    } else {
        println!("SKIP fuzz: there is no fuzz/run.sh");
        Ok(())
    }
}

fn tests(arguments: &[&str]) -> Result<(), Failed> {
    let runner: &[&str] = if succeeds("cargo", &["nextest", "--version"]) {
        &["nextest", "run", "--workspace", "--locked"]
    } else {
        let arguments = arguments.iter().filter(|it| **it == "--no-run");
        let test = ["test", "--workspace", "--all-targets", "--locked"];
        return cargo(&test.iter().chain(arguments).copied().collect::<Vec<_>>());
    };
    cargo(&[runner, arguments].concat())
}
