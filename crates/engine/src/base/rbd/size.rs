//! The size of an image, which others can change.
//!
//! ```text
//! librbd: something has changed ─► thread of its own asks for the size ─► growth is seen, a smaller size latches
//! a flush has ended ─► is there news that the thread has not looked at? ─► it waits until the thread has
//!                   └► is the size what it was? ─► yes to the flush
//! ```
//!
//! After a change, the library reads the image's header before it says the size, however long that takes; so no thread
//! that serves requests asks while there is news. The news comes a moment after the size has changed, which is why a
//! flush asks all the same: without news the answer is in memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cryptline_sys::RbdError;
use rustix::io::Errno;

use super::{Shared, whole_blocks};

/// Pause before a question that the cluster has not answered is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at the size of the image whenever it may have changed, until the device goes.
pub(super) fn watch(shared: &Arc<Shared>) -> io::Result<()> {
    let changes = Arc::clone(shared.image.changes());
    let watched = Arc::downgrade(shared);
    let look = move || {
        let mut seen = 0;
        while let Some(told) = changes.wait(seen) {
            let Some(shared) = watched.upgrade() else {
                return;
            };
            if shared.look().is_ok() {
                seen = told;
                changes.looked_at(told);
            } else if shared.is_lost() {
                return;
            } else {
                drop(shared);
                std::thread::sleep(PAUSE);
            }
        }
    };
    let builder = std::thread::Builder::new().name("rbd-size".to_owned());
    builder.spawn(look).map(drop)
}

impl Shared {
    /// Whether there is news of the image that the thread has not looked at.
    pub(super) fn is_news(&self) -> bool {
        self.image.changes().is_news()
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

impl Drop for Shared {
    fn drop(&mut self) {
        self.image.changes().end();
        if let Some(presence) = &self.presence {
            presence.end();
        }
    }
}
