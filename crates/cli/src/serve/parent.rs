//! `--exit-with-parent`: a server does not outlive whoever started it.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::CliError;

/// The process that started us.
#[derive(Clone, Copy, Debug)]
pub struct ParentProcess(Option<Pid>);

impl ParentProcess {
    /// Ours, now.
    pub fn current() -> Self {
        Self(getppid())
    }

    /// Has the kernel send us SIGTERM when it dies.
    pub fn follow(self) -> Result<(), CliError> {
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| CliError::parameters(format!("--exit-with-parent: {error}")))?;
        // A parent that died before the call above is not told of.
        if getppid() != self.0 {
            return Err(CliError::parameters("--exit-with-parent: the parent is gone already"));
        }
        Ok(())
    }
}
