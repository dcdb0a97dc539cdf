//! Ceph's block devices by Ceph's own library, which is loaded when it is first asked for.
//!
//! ```text
//! Cluster   a connection: configuration, monitors, time limits
//! RbdImage  one open image of it, with its lock and its watch
//! RbdQueue  one thread's requests: submitted here, ended by librbd's threads, taken here
//! ```
//!
//! librbd calls back on threads of its own. What such a call does is bounded: it puts a number on a list and wakes
//! the queue's thread. The memory of a request belongs to its place in the queue's table until then, whatever
//! becomes of the queue.
//!
//! A program that is linked statically cannot load a library.

mod changes;
mod cluster;
mod encryption;
mod ending;
mod image;
mod library;
mod lock;
mod own;
mod presence;
mod queue;
mod threads;

pub use changes::RbdChanges;
pub use cluster::{Cluster, RbdLimits};
pub use ending::{exit_without_destructors, visit_ceph};
pub use image::RbdImage;
pub use lock::{RbdOwner, RbdWatch};
pub use own::RbdOwnSetting;
pub use presence::RbdPresence;
pub use queue::{RbdDone, RbdIo, RbdQueue};

use std::io;

/// Why Ceph cannot be used.
#[derive(Debug)]
pub enum RbdError {
    /// The libraries are not there, or not these.
    Library(String),
    /// They start more threads than can be started.
    Threads {
        /// As many.
        needed: usize,
        /// Of them, as many could be started.
        started: usize,
        /// Why no more.
        error: io::Error,
    },
    /// A word has a byte that no name can have.
    Name,
    /// A call failed.
    Call {
        /// Call that was tried.
        what: RbdCall,
        /// Error that it returned.
        error: io::Error,
    },
}

/// Calls of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbdCall {
    /// To make a handle.
    Create,
    /// To read the configuration.
    Configure,
    /// To set what it must not say.
    Set,
    /// To reach the monitors.
    Connect,
    /// To find the pool.
    Pool,
    /// To open the image.
    Open,
    /// To open a snapshot of it.
    OpenSnapshot,
    /// To ask about it.
    Stat,
    /// To become its only writer.
    Lock,
    /// To be told of its changes.
    Watch,
    /// To learn what is allocated.
    Diff,
    /// To find out whether it is still there.
    Presence,
    /// To have it decrypted by the library.
    Decrypt,
}

impl RbdError {
    /// Of a call that gives a negative error number.
    fn of(what: RbdCall, code: libc::c_int) -> Self {
        Self::Call { what, error: io::Error::from_raw_os_error(code.saturating_neg()) }
    }

    fn check(what: RbdCall, code: libc::c_int) -> Result<libc::c_int, Self> {
        if code < 0 { Err(Self::of(what, code)) } else { Ok(code) }
    }
}
