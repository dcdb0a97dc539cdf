//! A Ceph cluster on this machine, for one test program: that of `cryptline-peers`, with panics for errors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cryptline_peers::ceph::{CephCluster, ClusterOptions, PROGRAMS};
use tempfile::TempDir;

use crate::peer::{self, Run};

pub use cryptline_peers::ceph::POOL;

/// How long a program may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with the pool [`POOL`], which keeps each object three times, and whose clients need a key.
pub struct Ceph {
    // Before the folder, which its daemons write to.
    node: CephCluster,
    folder: TempDir,
}

impl Ceph {
    /// Starts one; `None` where Ceph is not installed, which was said then.
    ///
    /// # Panics
    /// Where it does not get ready.
    #[must_use]
    pub fn start() -> Option<Self> {
        peer::require_all(PROGRAMS)?;
        let folder = tempfile::tempdir().expect("a folder");
        let options = ClusterOptions { osds: 3, replicas: 3, needs_keys: true };
        let node = CephCluster::start(folder.path(), options).unwrap_or_else(|why| panic!("{why}"));
        Some(Self { node, folder })
    }

    /// The configuration that clients want.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.node.conf()
    }

    /// Its own folder, for more configurations.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `ceph`.
    pub fn ceph<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        run(self.node.command("ceph"), arguments)
    }

    /// Runs `rbd`.
    pub fn rbd<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        run(self.node.command("rbd"), arguments)
    }

    /// Kills one of the storage daemons as a crash would, and lets the cluster know.
    ///
    /// # Panics
    /// Where the monitor does not take it.
    pub fn kill_osd(&mut self, osd: usize) {
        self.node.kill_osd(osd).expect("a monitor");
    }

    /// Kills all storage daemons, and nobody is told. What they have in memory is lost.
    pub fn kill_osds(&mut self) {
        self.node.kill_osds();
    }

    /// Kills the monitor, too. There is no way back.
    pub fn kill_all(&mut self) {
        self.node.kill_all();
    }

    /// Starts all storage daemons that do not run. What a killed one had in memory comes from the others.
    ///
    /// # Panics
    /// Where one does not get ready.
    pub fn start_osds(&mut self) {
        self.node.start_osds().expect("all daemons");
    }
}

fn run<'a>(mut command: Command, arguments: impl IntoIterator<Item = &'a str>) -> Run {
    peer::run(command.args(arguments), PATIENCE)
}
