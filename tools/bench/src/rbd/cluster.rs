//! A Ceph cluster: a given one, or one of this machine that ends with the bench.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use cryptline_engine::base::RbdName;
use cryptline_peers::ceph::{CephCluster, ClusterOptions, PROGRAMS};
use tempfile::TempDir;

use super::RbdArgs;
use crate::error::{Error, Of as _, Result, fail};
use crate::programs;

/// One daemon, so that each write is made once: what is compared is the client.
const OPTIONS: ClusterOptions = ClusterOptions { osds: 1, replicas: 1, needs_keys: false };
/// Packages that the programs are in.
const PACKAGES: &str = "ceph-mon, ceph-osd and ceph-common";

pub struct BenchCluster {
    conf: PathBuf,
    pool: String,
    // The daemons end before their folder goes.
    node: Option<CephCluster>,
    _folder: Option<TempDir>,
}

impl BenchCluster {
    /// Returns the cluster that the options describe.
    pub fn of(args: &RbdArgs) -> Result<Self> {
        if let Some(conf) = &args.conf {
            require(&["rbd"], "ceph-common")?;
            return Ok(Self { conf: conf.clone(), pool: args.pool.clone(), node: None, _folder: None });
        }
        require(&PROGRAMS, &format!("{PACKAGES}, or use --conf of a cluster"))?;
        if args.pool != cryptline_peers::ceph::POOL {
            let own = cryptline_peers::ceph::POOL;
            fail!("--pool {}: a cluster of this program's own has the pool {own}; use --conf too", args.pool);
        }
        let folder = tempfile::Builder::new().prefix("cryptline-rbd-").tempdir()?;
        let node = CephCluster::start(folder.path(), OPTIONS).of("cannot start a cluster")?;
        Ok(Self { conf: node.conf(), pool: args.pool.clone(), node: Some(node), _folder: Some(folder) })
    }

    /// Tells if the cluster goes away with all its images.
    pub fn is_own(&self) -> bool {
        self.node.is_some()
    }

    /// For people.
    pub fn describe(&self) -> String {
        match &self.node {
            Some(_) => "a Ceph cluster on this machine, one storage daemon, in memory".to_owned(),
            None => format!("pool {} of {}", self.pool, self.conf.display()),
        }
    }

    /// The configuration as a target names it.
    pub fn encoded_conf(&self) -> String {
        let encoded = |byte: &u8| match byte {
            b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
            byte => format!("%{byte:02x}"),
        };
        self.conf.as_os_str().as_bytes().iter().map(encoded).collect()
    }

    /// How the engine names an image.
    pub fn name(&self, image: &str) -> RbdName {
        RbdName {
            pool: self.pool.clone(),
            namespace: None,
            image: image.to_owned(),
            snapshot: None,
            conf: Some(self.conf.clone()),
            id: None,
        }
    }

    /// How Ceph's programs name it.
    pub fn spec(&self, image: &str) -> String {
        format!("{}/{image}", self.pool)
    }

    /// Runs `rbd`, which must succeed; what it says.
    pub fn rbd(&self, words: &[&str]) -> Result<String> {
        let program = programs::find("rbd").unwrap_or_else(|| "rbd".into());
        let conf = [OsStr::new("--conf"), self.conf.as_os_str()];
        let words: Vec<_> = conf.into_iter().chain(words.iter().map(OsStr::new)).collect();
        let output = programs::run(&program, &words)?;
        let output = output.ok_or_else(|| Error("rbd is gone".into()))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn require(programs: &[&str], packages: &str) -> Result<()> {
    if let Some(name) = programs.iter().find(|name| programs::find(name).is_none()) {
        fail!("{name} is not installed; install {packages}");
    }
    Ok(())
}
