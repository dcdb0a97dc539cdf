//! `--sandbox-probe`: tries what the sandbox should refuse, and says how that ended.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use cryptline_sys::{Attempt, attempts};

use crate::CliError;
use crate::output::complain;

/// A thread that was there before the sandbox, as the engine's are.
pub struct SandboxProbe {
    start: Sender<()>,
    thread: JoinHandle<Vec<Attempt>>,
}

impl SandboxProbe {
    /// Starts the thread, which waits.
    pub fn new() -> Result<Self, CliError> {
        let (start, started) = channel();
        let run = move || match started.recv() {
            Ok(()) => attempts(),
            Err(_) => Vec::new(),
        };
        let thread = spawn(run)?;
        Ok(Self { start, thread })
    }

    /// Tries everything on that thread and on a new one, as a connection's, and prints the results.
    pub fn run(self) -> Result<(), CliError> {
        // The thread waits for it, or has gone and is missed below.
        let _ = self.start.send(());
        for (age, thread) in [("old", self.thread), ("new", spawn(attempts)?)] {
            let tried = thread.join().unwrap_or_default();
            for attempt in tried {
                let how = match attempt.result {
                    Ok(()) => "allowed".to_owned(),
                    Err(errno) if attempt.is_refused() => format!("refused ({errno})"),
                    Err(errno) => format!("allowed ({errno})"),
                };
                complain(&format!("probe: {age} thread: {}: {how}", attempt.name));
            }
        }
        complain("probe: done");
        Ok(())
    }
}

fn spawn(run: impl FnOnce() -> Vec<Attempt> + Send + 'static) -> Result<JoinHandle<Vec<Attempt>>, CliError> {
    let builder = std::thread::Builder::new().name("probe".into());
    let thread = builder.spawn(run);
    thread.map_err(CliError::no_thread)
}
