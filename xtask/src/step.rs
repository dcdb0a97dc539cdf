//! One step of a task: a heading, commands, the time it took. The first failure ends the task.

use std::process::{Command, Stdio};
use std::time::Instant;

use cryptline_peers as peer;

/// Why a task stopped, in one line.
#[derive(Debug)]
pub struct Failed(pub String);

/// Runs `work` under a heading and says how long it took.
pub fn step(name: &str, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    println!("== {name}");
    let started = Instant::now();
    let ended = work();
    let seconds = started.elapsed().as_secs_f64();
    match ended {
        Ok(()) => {
            println!("== {name}: ok in {seconds:.1} s\n");
            Ok(())
        }
        Err(Failed(why)) => Err(Failed(format!("{name} failed after {seconds:.1} s: {why}"))),
    }
}

/// Runs a program in the workspace's folder, its output shown as it comes.
pub fn command(program: &str, arguments: &[&str]) -> Result<(), Failed> {
    let mut command = Command::new(program);
    run(command.args(arguments))
}

/// Runs `cargo` as [`command`] does.
pub fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    run(cargo.args(arguments))
}

/// Whether a program runs and says yes; nothing is shown.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(crate::root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What a program prints, if it ends well.
pub fn output(command: &mut Command) -> Result<String, Failed> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.current_dir(crate::root()).stdin(Stdio::null());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failed(format!("cannot start `{program}`: {error}")))?;
    if !output.status.success() {
        let status = output.status;
        return Err(Failed(format!("`{program}` ended with {status}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The end of a step that cannot run on this machine: a failure in CI, a line elsewhere.
pub fn cannot_run(step: &str, why: &str) -> Result<(), Failed> {
    if peer::in_ci() {
        return Err(Failed(format!("{why}; with CI=true that is a failure")));
    }
    println!("SKIP {step}: {why}");
    Ok(())
}

/// The end of a step for which the Rust toolchain lacks a part that can not be had here. Not a failure
/// in CI either: what is missing is no peer, and a machine without a way to it says nothing about
/// the code.
pub fn toolchain_lacks(step: &str, why: &str) -> Result<(), Failed> {
    println!("SKIP {step}: {why}");
    Ok(())
}

/// Runs a command whose program is named in a failure.
pub fn run(command: &mut Command) -> Result<(), Failed> {
    let text = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    println!("$ {text}");
    let status = command.current_dir(crate::root()).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed(format!("`{text}` ended with {status}"))),
        Err(error) => Err(Failed(format!("cannot start `{text}`: {error}"))),
    }
}
