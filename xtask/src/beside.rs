//! Checks that run beside the others, since they wait for the network or keep one processor busy at most.

use std::process::Command;
use std::time::Duration;

use cryptline_peers::Background;

use crate::step::Failed;

/// None takes so long even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// A verb of this program in a process of its own. It ends with its owner.
pub struct Beside {
    verb: &'static str,
    running: Background,
}

impl Beside {
    /// Starts `verb`.
    pub fn start(verb: &'static str) -> Result<Self, Failed> {
        let program = std::env::current_exe().map_err(|error| Failed(error.to_string()))?;
        let mut command = Command::new(program);
        Ok(Self { verb, running: Background::spawn(command.arg(verb)) })
    }

    /// Waits for its end and shows what it said.
    pub fn finish(mut self) -> Result<(), Failed> {
        let status = self.running.wait(TIMEOUT);
        let run = self.running.collect();
        match status {
            Some(status) if status.success() => {
                println!("{}", run.stdout_text().trim_end());
                Ok(())
            }
            Some(_) => Err(Failed(run.to_string())),
            None => Err(Failed(format!("`xtask {}` has not ended in {TIMEOUT:?}", self.verb))),
        }
    }
}
