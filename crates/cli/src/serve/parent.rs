//! `--exit-with-parent`: a server does not outlive whoever started it.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::CliError;

/// Has the kernel send us SIGTERM when our parent dies.
pub fn follow() -> Result<(), CliError> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| CliError::parameters(format!("--exit-with-parent: {error}")))?;
    // A parent that died before the call above is not told of.
    if getppid() != parent {
        return Err(CliError::parameters(
            "--exit-with-parent: the parent is gone already",
        ));
    }
    Ok(())
}
