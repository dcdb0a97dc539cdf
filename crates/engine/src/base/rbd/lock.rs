//! How an image becomes ours alone: without taking it from anybody who still uses it.
//!
//! ```text
//! nobody has its lock ─────────────► ours
//! a client has it, and answers ────► in use
//!                   └ no answer ───► wait until the cluster gives that client up ─► ours
//! ```
//!
//! The library alone would ask the client for the lock, and most give it up when they are asked: the disk of a machine that
//! runs. Clients of ours refuse, so of two that come at the same time one is told that the image is in use. A foreign one
//! that takes the lock between our look and our call is asked, and the library has no call that would not.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cryptline_sys::{RbdCall, RbdError, RbdImage, RbdOwner, RbdWatch};
use rustix::io::Errno;

use super::{RbdName, error};
use crate::OpenError;

/// How long a client may take to answer. One that is slower is waited for as if it were gone.
const ANSWER: Duration = Duration::from_secs(5);
/// Longer than the cluster waits for a client that is gone (`osd client watch timeout`, 30 seconds).
const GIVEN_UP: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(500);

/// Takes the lock. Whose it was, where that client is gone.
pub(super) fn take(image: &RbdImage, name: &RbdName) -> Result<Option<String>, OpenError> {
    let failed = |error: RbdError| match image.is_mirror() {
        Ok(true) => error::is_mirror(name),
        _ => error::open_error(name, error),
    };
    let deadline = Instant::now() + GIVEN_UP;
    let mut gone = None;
    loop {
        let owner = image.lock_owner();
        let Some(owner) = owner.map_err(|error| by_hand(name, &error).unwrap_or_else(|| failed(error)))? else {
            break;
        };
        let Some(watch) = owner.watch else {
            // The library takes it from a client that the cluster has given up.
            gone = Some(owner.address);
            break;
        };
        let answers = image.does_answer(watch, ANSWER).map_err(failed)?;
        if answers || Instant::now() > deadline {
            return Err(match image.is_mirror() {
                Ok(true) => error::is_mirror(name),
                _ => busy(name, holder(&owner, watch)),
            });
        }
        gone = Some(owner.address);
        std::thread::sleep(PAUSE);
    }
    image.acquire_lock().map_err(failed)?;
    Ok(gone)
}

fn holder(owner: &RbdOwner, watch: RbdWatch) -> String {
    format!("client.{} at {}", watch.client, owner.address)
}

fn busy(name: &RbdName, holder: String) -> OpenError {
    OpenError::Busy { path: PathBuf::from(name.to_string()), holder: Some(holder) }
}

/// A lock that no client needs to be there for.
fn by_hand(name: &RbdName, error: &RbdError) -> Option<OpenError> {
    let RbdError::Call { what: RbdCall::Lock, error } = error else {
        return None;
    };
    let is_it = Errno::from_io_error(error) == Some(Errno::BUSY);
    let spec = name.spec();
    is_it.then(|| busy(name, format!("the client that `rbd lock ls {spec}` lists")))
}
