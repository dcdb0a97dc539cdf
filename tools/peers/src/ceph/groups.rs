//! Placement groups: whether each has all its copies. `ceph pg` would need a manager, so their storage daemons are asked,
//! by the sockets that they have for administrators.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::Result;

/// Of the one pool that a cluster has.
pub(super) const COUNT: usize = 32;
/// A daemon that is there answers at once, on a busy machine too.
const ANSWER: Duration = Duration::from_secs(20);

/// The first group that one of `daemons` does not say to be whole since the map `epoch`.
pub(super) fn first_degraded(daemons: &[PathBuf], epoch: u64) -> Option<String> {
    let is_whole = |group: &str| {
        let state = |daemon: &PathBuf| ask(daemon, group).ok();
        daemons.iter().filter_map(state).any(|state| {
            // An older map is from before a daemon was lost.
            state["epoch"].as_u64() >= Some(epoch) && state["state"] == "active+clean"
        })
    };
    let mut groups = (0..COUNT).map(|group| format!("1.{group:x}"));
    groups.find(|group| !is_whole(group))
}

/// Queries a daemon about a group that it leads.
fn ask(daemon: &Path, group: &str) -> Result<Value> {
    let failed = |error: std::io::Error| format!("{}: {error}", daemon.display());
    let mut stream = UnixStream::connect(daemon).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    let question = json!({"prefix": "query", "pgid": group}).to_string() + "\0";
    stream.write_all(question.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    // Its length comes first.
    let text = answer.get(4..).unwrap_or_default();
    serde_json::from_slice(text).map_err(|error| format!("{}: {error}", daemon.display()))
}
