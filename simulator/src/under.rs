//! The server or the cluster below export 1.

use std::path::Path;
use std::time::Duration;

use cryptline_engine::Gate;
use cryptline_engine::base::{NbdDevice, RbdDevice, RbdName};
use cryptline_nbd::NbdUri;

use crate::below::{Below, WhileQuiet};
use crate::history::History;
use crate::rbd::Cluster;

/// How long lost connections to a server are made again.
const RECONNECT: Duration = Duration::from_secs(2);

/// Whatever holds the bytes of export 1.
pub enum Under {
    Nbd(Below),
    Rbd(Cluster),
}

/// The end of it.
pub struct Last {
    /// Bytes that it holds.
    pub data: Vec<u8>,
    /// Bytes that it would hold, had it kept only what it had to; where that is another thing.
    pub least: Option<Vec<u8>>,
    pub findings: Vec<String>,
}

impl Under {
    /// One that holds `data`; a server, at `path`.
    pub fn start(history: &History, path: &Path, data: Vec<u8>, while_quiet: WhileQuiet) -> std::io::Result<Self> {
        Ok(match history.rbd {
            Some(habits) => Self::Rbd(Cluster::start(data, habits, history.seed)?),
            None => Self::Nbd(Below::start(path, data, history.faults.below, history.seed, while_quiet)?),
        })
    }

    /// Opens what lies there.
    pub fn open(history: &History, path: &Path) -> Result<Gate, String> {
        if history.rbd.is_none() {
            let uri = format!("nbd+unix:///?socket={}", path.display()).parse::<NbdUri>().expect("a URI");
            let remote = NbdDevice::open_again(&uri, false, Some(RECONNECT));
            return Ok(Gate::new(remote.map_err(|error| error.to_string())?));
        }
        let name = RbdName {
            pool: "pool".to_owned(),
            namespace: None,
            image: "image".to_owned(),
            snapshot: None,
            conf: None,
            id: None,
        };
        Ok(Gate::new(RbdDevice::open(&name, false).map_err(|error| error.to_string())?))
    }

    /// Tells if what was written may be lost, where that can be.
    pub fn has_lost(&self) -> Option<Box<dyn Fn() -> bool + Send>> {
        match self {
            Self::Nbd(_) => None,
            Self::Rbd(cluster) => Some(Box::new(cluster.lost())),
        }
    }

    /// Answers nothing from here on.
    pub fn silence(&self) {
        match self {
            Self::Nbd(below) => below.silence(),
            Self::Rbd(cluster) => cluster.silence(),
        }
    }

    /// Answers again.
    pub fn speak(&self) {
        match self {
            Self::Nbd(below) => below.speak(),
            Self::Rbd(cluster) => cluster.speak(),
        }
    }

    /// Ends, once all that was asked of it has taken effect.
    pub fn end(self, path: &Path) -> Last {
        match self {
            Self::Nbd(below) => Last { data: below.end(path), least: None, findings: Vec::new() },
            Self::Rbd(cluster) => {
                let (data, least, findings) = cluster.end();
                Last { data, least: Some(least), findings }
            }
        }
    }
}
