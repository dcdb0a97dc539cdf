//! Busy processes: this program again, without end. They die with the one that started them, however it ends.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::group::LimitGroup;
use crate::error::{Of as _, Result, fail};
use crate::report::PlanReport;

/// The running program, even where its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Processes that use as much processor time as they get. When dropped they are killed and waited for.
#[derive(Debug)]
pub struct Hogs(Vec<Child>);

/// Whom such a process belongs to.
#[derive(Args, Clone, Debug)]
pub struct HogArgs {
    /// The process to end with
    parent: i32,

    /// File to join a control group by
    group: Option<PathBuf>,
}

impl Hogs {
    /// Starts some, in a group. Keep the thread that calls this: they end with it.
    pub fn start(count: u32, group: Option<&LimitGroup>) -> Result<Self> {
        let mut hogs = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(THIS_PROGRAM);
            command.args(["hog", &std::process::id().to_string()]).args(group.map(LimitGroup::entry));
            let nothing = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            hogs.0.push(nothing.spawn().of("cannot start a busy process")?);
        }
        Ok(hogs)
    }

    /// Verifies that all of them still run.
    pub fn check(&mut self) -> Result<()> {
        for hog in &mut self.0 {
            if let Some(status) = hog.try_wait()? {
                fail!("a busy process ended with {status} before the measurement; nothing was kept");
            }
        }
        Ok(())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // It fails only for a process that has ended and was waited for.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

impl HogArgs {
    /// Uses processor time until the parent ends.
    pub fn run(&self) -> Result<PlanReport> {
        let follows = set_parent_process_death_signal(Some(Signal::KILL));
        // A parent that died before that is not told of.
        if follows.is_err() || getppid().map(Pid::as_raw_pid) != Some(self.parent) {
            fail!("whoever started this busy process is gone");
        }
        if let Some(entry) = &self.group {
            std::fs::write(entry, "0").of(entry.display())?;
        }
        let mut number = 1u64;
        loop {
            number = black_box(number.wrapping_mul(0x5851_f42d_4c95_7f2d));
        }
    }
}
