//! Steps of a door: a heading, commands, what they took. What was skipped is remembered, for it is looked at in the end.

use std::fmt::Write as _;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cryptline_peers as peer;
use rustix::process::{Pid, Signal, kill_process};

/// Why a task stopped, in one line.
#[derive(Debug)]
pub struct Failed(pub String);

/// `SKIP` lines of steps so far.
static SKIPS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The command that runs, for whoever must end it.
static RUNNING: Mutex<Option<Pid>> = Mutex::new(None);
static IS_LATE: AtomicBool = AtomicBool::new(false);
/// How long a command may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(90);

/// A step that has ended.
pub struct EndedStep {
    pub name: &'static str,
    pub wall: Duration,
    /// Of all its processes.
    pub processor: Duration,
    pub failure: Option<String>,
}

/// The steps of a door.
#[derive(Default)]
pub struct DoorSteps {
    pub done: Vec<EndedStep>,
    /// Set if the others are tried after one has failed.
    pub goes_on: bool,
}

impl DoorSteps {
    /// Does `work` under a heading and says what it took.
    pub fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
        println!("== {name}");
        let (started, processor) = (Instant::now(), processor_time());
        let ended = work();
        let done = EndedStep {
            name,
            wall: started.elapsed(),
            processor: processor_time().saturating_sub(processor),
            failure: ended.err().map(|Failed(why)| why),
        };
        let seconds = done.wall.as_secs_f64();
        let failure = done.failure.as_ref().map(|why| format!("{name} failed after {seconds:.1} s: {why}"));
        self.done.push(done);
        match failure {
            None => println!("== {name}: ok in {seconds:.1} s\n"),
            Some(why) if self.goes_on && !IS_LATE.load(Ordering::Relaxed) => println!("{why}\n"),
            Some(why) => return Err(Failed(why)),
        }
        Ok(())
    }

    /// Formats what each step took.
    pub fn table(&self) -> String {
        let mut table = format!("{:<34} {:>8} {:>12}\n", "step", "wall s", "processor s");
        let sum = |of: fn(&EndedStep) -> Duration| self.done.iter().map(of).sum::<Duration>();
        let lines = self.done.iter().map(|done| {
            let failed = if done.failure.is_some() { "  failed" } else { "" };
            (done.name, done.wall, done.processor, failed)
        });
        for (name, wall, processor, failed) in lines.chain([("sum", sum(|it| it.wall), sum(|it| it.processor), "")]) {
            let (wall, processor) = (wall.as_secs_f64(), processor.as_secs_f64());
            let _infallible = writeln!(table, "{name:<34} {wall:>8.1} {processor:>12.1}{failed}");
        }
        table
    }
}

/// The processor time of this program and of all descendants that have been waited for.
fn processor_time() -> Duration {
    // pid (name) state ... utime stime cutime cstime; the name may have anything in it.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Says that something is left out and why.
pub fn skip(what: &str, why: &str) {
    println!("SKIP {what}: {why}");
    lock(&SKIPS).push(format!("SKIP {what}: {why}"));
}

/// Returns what steps have left out so far.
pub fn skips() -> Vec<String> {
    lock(&SKIPS).clone()
}

/// The end of a step that cannot run on this machine: a failure in CI, a line elsewhere.
pub fn cannot_run(step: &str, why: &str) -> Result<(), Failed> {
    if peer::in_ci() {
        return Err(Failed(format!("{why}; with CI=true that is a failure")));
    }
    skip(step, why);
    Ok(())
}

/// From now on everything ends after `limit`, cleanly if it can.
pub fn end_after(limit: Duration) {
    thread::spawn(move || {
        thread::sleep(limit);
        IS_LATE.store(true, Ordering::Relaxed);
        for signal in [Signal::TERM, Signal::KILL] {
            eprintln!("xtask: the limit of {} minutes has passed", limit.as_secs() / 60);
            if let Some(pid) = *lock(&RUNNING) {
                let _gone = kill_process(pid, signal);
            }
            thread::sleep(GRACE);
        }
        process::exit(1);
    });
}

/// Runs a program in the workspace's folder, its output shown as it comes.
pub fn command(program: &str, arguments: &[&str]) -> Result<(), Failed> {
    let mut command = Command::new(program);
    run(command.args(arguments))
}

/// Runs `cargo` as [`command`] does.
pub fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    run(cargo_command().args(arguments))
}

/// The cargo that runs us, in the environment of somebody who types the command: build scripts are run again, and all
/// that needs them is compiled again, where the variables differ that cargo sets for a program that it runs.
pub fn cargo_command() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_ours = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_ours)) {
        cargo.env_remove(name);
    }
    cargo
}

/// Tells if a program runs and says yes; nothing is shown.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(crate::root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The standard output of a program that ends well.
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

/// Runs a command whose program is named in a failure.
pub fn run(command: &mut Command) -> Result<(), Failed> {
    watch(command, |_| ())
}

/// Runs a command, and has `watch` read its pipes until they are closed.
pub fn watch(command: &mut Command, watch: impl FnOnce(&mut process::Child)) -> Result<(), Failed> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("$ {text}");
    if IS_LATE.load(Ordering::Relaxed) {
        return Err(Failed("there is no time left".to_owned()));
    }
    let child = command.current_dir(crate::root()).stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|error| Failed(format!("cannot start `{text}`: {error}")))?;
    *lock(&RUNNING) = Some(Pid::from_child(&child));
    watch(&mut child);
    let status = child.wait();
    *lock(&RUNNING) = None;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) if IS_LATE.load(Ordering::Relaxed) => Err(Failed(format!("`{text}` took too long"))),
        Ok(status) => Err(Failed(format!("`{text}` ended with {status}"))),
        Err(error) => Err(Failed(format!("`{text}`: {error}"))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
