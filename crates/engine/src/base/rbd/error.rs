//! Why an image could not be opened, with the next step.

use std::io;

use cryptline_sys::{RbdCall, RbdError, RbdOwnSetting};
use rustix::io::Errno;

use super::RbdName;
use crate::OpenError;

/// Error to report for `error`.
pub(super) fn open_error(name: &RbdName, error: RbdError) -> OpenError {
    let (what, error) = match error {
        RbdError::Library(why) => return OpenError::remote(name, why),
        RbdError::Threads { needed, started, error } => {
            return OpenError::remote(
                name,
                format!(
                    "Ceph's library starts {needed} threads and ends the program where it cannot, and only {started} can be started ({error}); raise `ulimit -u` (or `ulimit -v`), the container's limit of processes, or TasksMax= of the unit"
                ),
            );
        }
        RbdError::Name => return OpenError::remote(name, "a name with a zero byte in it is none"),
        RbdError::Call { what, error } => (what, error),
    };
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let is_taken = [Errno::ROFS, Errno::BUSY, Errno::AGAIN].contains(&errno);
    if what == RbdCall::Lock && is_taken {
        return OpenError::busy(name.to_string());
    }
    OpenError::remote(name, why(name, what, &error, errno))
}

/// Two clients could write to it at the same time.
pub(super) fn no_lock(name: &RbdName) -> OpenError {
    let spec = name.spec();
    OpenError::remote(
        name,
        format!(
            "the image has no exclusive lock, so nothing would keep another client from writing to it; give it one with `rbd feature enable {spec} exclusive-lock`, or open it read-only"
        ),
    )
}

/// A flush would not be the cluster's word.
pub(super) fn is_cached(name: &RbdName, setting: RbdOwnSetting) -> OpenError {
    let option = setting.name;
    let (whose, of) = if setting.is_of_pool { ("pool", name.pool.clone()) } else { ("image", name.spec()) };
    OpenError::remote(
        name,
        format!(
            "the {whose} itself switches on {option}, so what is written could be lost after it was acknowledged; take that back with `rbd config {whose} rm {of} {option}`, or open it read-only"
        ),
    )
}

/// Its lock is not to be had.
pub(super) fn is_mirror(name: &RbdName) -> OpenError {
    let spec = name.spec();
    OpenError::remote(
        name,
        format!(
            "it is a mirror's copy, which nobody else writes to (see `rbd mirror image status {spec}`); open it read-only, or make it the primary one with `rbd mirror image promote {spec}`"
        ),
    )
}

fn why(name: &RbdName, what: RbdCall, error: &io::Error, errno: Errno) -> String {
    let (spec, place) = (name.spec(), name.place());
    let id = name.id.as_deref().unwrap_or("admin");
    match (what, errno) {
        (RbdCall::Configure, _) => match &name.conf {
            Some(conf) => format!(
                "cannot read {} ({error}); use ?conf=PATH of the cluster's configuration",
                conf.display()
            ),
            None => format!("cannot read the cluster's configuration ({error}); use ?conf=PATH"),
        },
        (RbdCall::Connect, Errno::TIMEDOUT) => "the cluster's monitors do not answer in time; look for them with `ceph -s`, or use ?conf=PATH of the right cluster".to_owned(),
        (RbdCall::Connect, Errno::NOENT | Errno::NXIO) => format!(
            "no monitor or no keyring of client.{id} is known ({error}); use ?conf=PATH with `mon host` and `keyring`, and ?id=NAME of another client"
        ),
        (RbdCall::Connect, Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => format!(
            "the cluster does not let in client.{id} ({error}); use ?id=NAME and a keyring that `ceph auth get` shows"
        ),
        (_, Errno::SHUTDOWN) => {
            "the cluster has shut this client out; see `ceph osd blocklist ls`".to_owned()
        }
        (_, Errno::TIMEDOUT) => "the cluster's storage daemons do not answer in time; see `ceph osd tree`".to_owned(),
        (RbdCall::Pool, Errno::NOENT) => {
            format!(
                "there is no pool {}; `ceph osd pool ls` lists them",
                name.pool
            )
        }
        (RbdCall::Open, Errno::NOENT) => {
            format!(
                "there is no image {} in {place}; `rbd ls {place}` lists them",
                name.image
            )
        }
        (RbdCall::OpenSnapshot, Errno::NOENT) => {
            format!("there is no such snapshot of the image; `rbd snap ls {spec}` lists them")
        }
        (RbdCall::Open | RbdCall::Lock | RbdCall::Watch, Errno::PERM | Errno::ACCESS) => format!(
            "client.{id} may not write to it ({error}); open it read-only, or use ?id=NAME of one that may"
        ),
        (what, _) => format!("cannot {}: {error}", step(what)),
    }
}

fn step(what: RbdCall) -> &'static str {
    match what {
        RbdCall::Create => "begin with Ceph",
        RbdCall::Configure => "read the cluster's configuration",
        RbdCall::Set => "set an option of Ceph's library",
        RbdCall::Connect => "reach the cluster",
        RbdCall::Pool => "find the pool",
        RbdCall::Open => "open the image",
        RbdCall::OpenSnapshot => "open the snapshot",
        RbdCall::Stat => "ask about the image",
        RbdCall::Lock => "lock the image",
        RbdCall::Watch => "watch the image",
        RbdCall::Diff => "ask what is allocated",
        RbdCall::Presence => "look for the image",
        RbdCall::Decrypt => "have Ceph's library decrypt it",
    }
}
