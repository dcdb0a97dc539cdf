//! Process that takes an nbd device away when its server was killed.
//!
//! The kernel waits for the answer to a request for ever where nobody is left to give it: only without a disk do
//! requests that are under way get errors. It is this program again, as `detach`, whose standard input is a pipe that
//! only the server can end.
//!
//! A time limit in its stead would also hit a medium that is merely slow. A ublk device needs nobody: the kernel
//! notices.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden option of that process, with the server's number as the driver knows it.
pub const OPTION: &str = "--after-server";

/// Handle of that process, which ends after ours.
pub struct ProcessWatch {
    _process: Child,
}

impl ProcessWatch {
    /// Starts it for a device that this process serves, as `owner`.
    ///
    /// # Errors
    /// Where there can be no other process.
    pub fn start(device: &Path, owner: u32) -> io::Result<Self> {
        let mut process = Command::new("/proc/self/exe")
            .args(["detach", OPTION, &owner.to_string(), "--"])
            .arg(device)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // It speaks once no signal to all of a service ends it any more.
        if let Some(said) = &mut process.stdout {
            said.read_exact(&mut [0])?;
        }
        Ok(Self { _process: process })
    }
}
