//! NBD servers of other people below ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cryptline_testkit::peer::{BackgroundProgram, Peer, Run, run};

use super::common::{self, CHEAP, Folder};
use super::server::{READY, Server};

pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A foreign server at a socket.
pub struct Below {
    pub process: BackgroundProgram,
    pub socket: PathBuf,
}

impl Below {
    /// nbdkit with these words behind its own.
    pub fn nbdkit(nbdkit: &Peer, folder: &Folder, words: &[&str]) -> Self {
        // A name of its own: one before it may still listen.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let socket = folder.path(&format!("below{number}"));
        Self::nbdkit_at(nbdkit, socket, words)
    }

    pub fn nbdkit_at(nbdkit: &Peer, socket: PathBuf, words: &[&str]) -> Self {
        let mut command = nbdkit.command();
        command.args(["--foreground", "--exit-with-parent", "--unix"]);
        Self::start(command.arg(&socket).args(words), socket.clone())
    }

    pub fn start(command: &mut Command, socket: PathBuf) -> Self {
        let process = BackgroundProgram::spawn(command).wait_for_socket(&socket, READY);
        Self { process, socket }
    }

    pub fn uri(&self) -> String {
        uri(&self.socket, "")
    }
}

pub fn uri(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

pub fn create(folder: &Folder, target: &str, options: &[&str]) -> Run {
    let mut command = common::command();
    command.args(["create", target, "--key-file"]).arg(folder.key());
    run(command.args(CHEAP).args(options), TIMEOUT)
}

pub fn serve<'a>(target: &'a str, key: &'a str, options: &[&'a str]) -> Server {
    let arguments = ["--key-file", key].into_iter().chain([target]);
    Server::start(arguments.chain(options.iter().copied()))
}
