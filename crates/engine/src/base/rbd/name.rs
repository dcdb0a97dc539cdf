//! Which image of which cluster.

use std::fmt;
use std::path::PathBuf;

/// An image of a Ceph cluster, or a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdName {
    /// The pool.
    pub pool: String,
    /// A namespace of the pool, where it is not its own.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// A snapshot of it, which is read-only.
    pub snapshot: Option<String>,
    /// The cluster's configuration; `None` for the system's.
    pub conf: Option<PathBuf>,
    /// Whom to connect as: `admin` stands for `client.admin`, and is whom `None` does.
    pub id: Option<String>,
}

impl RbdName {
    /// The pool with its namespace, as Ceph's programs take it.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.namespace {
            None => self.pool.clone(),
            Some(namespace) => format!("{}/{namespace}", self.pool),
        }
    }

    /// The image with its pool, as Ceph's programs take it.
    #[must_use]
    pub fn spec(&self) -> String {
        format!("{}/{}", self.place(), self.image)
    }
}

/// `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`.
impl fmt::Display for RbdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}", self.spec())?;
        match &self.snapshot {
            None => Ok(()),
            Some(snapshot) => write!(f, "@{snapshot}"),
        }
    }
}
