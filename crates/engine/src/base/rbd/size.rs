//! The size of an image, which others can change.
//!
//! ```text
//! librbd: something has changed ─┬─► thread of its own asks for the size ─► growth is seen, a smaller size latches
//! a flush has ended ─────────────┘                                       └► is it what it was? yes to the flush
//! ```
//!
//! After a change, the library reads the image's header before it says the size, however long that takes, and the news
//! of the change comes a moment later; so no thread that serves requests asks. Else the answer is in memory.
//!
//! The thread has a share of the image and none of the device, and the device waits for it to leave: whoever lets go of an
//! image last closes it, and nobody waits for a thread that does so while the process ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cryptline_sys::{RbdError, RbdImage, visit_ceph};
use rustix::io::Errno;

use super::{RbdShared, whole_blocks};

/// Pause before a question that the cluster has not answered is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the end of the thread is waited for: a question to a cluster that does not answer has no end.
const END_MAX: Duration = Duration::from_secs(2);

/// An image whose size is looked at.
pub(super) struct WatchedImage {
    pub image: RbdImage,
    pub size: AtomicU64,
    /// The cluster has shut this client out, a change was given up, or the image was made smaller, and nobody knows what
    /// became of what was written.
    lost: AtomicBool,
}

/// Looks at the size of the image whenever it may have changed, until the device goes.
pub(super) fn watch(watched: &Arc<WatchedImage>) -> io::Result<()> {
    let changes = Arc::clone(watched.image.changes());
    let watched = Arc::clone(watched);
    changes.be_watched(true);
    let ended = Arc::clone(&changes);
    let look = move || {
        let mut seen = 0;
        while let Some(told) = changes.wait(seen) {
            if visit_ceph(|| watched.look()).is_ok() {
                seen = told;
                changes.looked_at(told);
            } else if watched.is_lost() || changes.is_waited_for() {
                // Nobody knows if what was flushed is still there.
                watched.lose();
                break;
            } else {
                changes.pause(PAUSE);
            }
        }
        visit_ceph(|| drop(watched));
        changes.be_watched(false);
    };
    let builder = std::thread::Builder::new().name("rbd-size".to_owned());
    builder.spawn(look).map(drop).inspect_err(|_| ended.be_watched(false))
}

impl WatchedImage {
    pub(super) fn new(image: RbdImage, size: u64) -> Self {
        Self { image, size: AtomicU64::new(size), lost: AtomicBool::new(false) }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.image.changes().give_up();
    }

    /// Asks for the size. A smaller image has lost what was acknowledged.
    pub(super) fn look(&self) -> Result<(), RbdError> {
        // Before the question: other threads may learn of a larger size meanwhile.
        let known = self.size.load(Ordering::Acquire);
        match self.image.size() {
            Ok(size) => {
                let size = whole_blocks(size);
                if size < known {
                    self.lose();
                }
                self.size.fetch_max(size, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                if let RbdError::Call { error, .. } = &error
                    && Errno::from_io_error(error) == Some(Errno::SHUTDOWN)
                {
                    self.lose();
                }
                Err(error)
            }
        }
    }
}

impl Drop for RbdShared {
    fn drop(&mut self) {
        self.watched.image.changes().end(END_MAX);
        if let Some(presence) = &self.presence {
            presence.end();
        }
    }
}
