//! Open files for queues: each queue has one of its own, and what a queue leaves another may have.
//!
//! The kernel tells each open file once of a lost write, so queues at the same time must not share
//! one. One after the other they may: an open file that was there before is told of more, not of
//! less. So nothing is closed before the device is, unless somebody asks for it, and as many queues as
//! there have been at a time, or were reserved, can always be opened again without opening a file. A server relies on
//! that where it can open none once it has given up its rights.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

/// The open files of one device beside its first.
#[derive(Default)]
pub(super) struct Descriptors(Mutex<Vec<Arc<OwnedFd>>>);

impl Descriptors {
    /// One that nobody uses: from the pool, or made by `open`.
    pub fn take(&self, open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Result<Arc<OwnedFd>, Errno> {
        let mut pool = cryptline_sys::lock(&self.0);
        // Whoever uses one holds it beside us; only here, under the lock, do users become more.
        let mut free = pool.iter().filter(|file| Arc::strong_count(file) == 1);
        if let Some(file) = free.next() {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(open()?);
        pool.push(Arc::clone(&file));
        Ok(file)
    }

    /// Has so many, used or not.
    pub fn reserve(&self, count: usize, open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<(), Errno> {
        let mut pool = cryptline_sys::lock(&self.0);
        while pool.len() < count {
            pool.push(Arc::new(open()?));
        }
        Ok(())
    }

    /// Closes those that nobody uses.
    pub fn close_spare(&self) {
        cryptline_sys::lock(&self.0).retain(|file| Arc::strong_count(file) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gate;
    use crate::base::{DirectMode, Image};
    use cryptline_sys::{BackendChoice, Ring};

    /// Descriptors of this process that refer to `path`.
    fn open_count(path: &std::path::Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link == path).count()
    }

    #[test]
    fn as_many_queues_as_were_there_before_are_opened_without_opening_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("image");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let image = Image::open(&path, false).unwrap();
        let gate = Gate::new(image.into_device(512, DirectMode::Off).unwrap());
        let queues = || {
            let mut ring = Ring::new(BackendChoice::Syscalls, 8).unwrap();
            let queues = (0..5).map(|_| gate.open_queue(&mut ring).unwrap());
            (queues.collect::<Vec<_>>(), ring)
        };
        assert_eq!(open_count(&path), 1);
        assert_eq!((gate.files().len(), gate.files_taken(5)), (1, 5));
        let first = queues();
        assert_eq!(open_count(&path), 6, "each queue has one of its own");
        drop(first);
        let second = queues();
        assert_eq!(open_count(&path), 6);
        gate.close_spare();
        assert_eq!(open_count(&path), 6, "those in use stay");
        drop(second);
        gate.close_spare();
        assert_eq!(open_count(&path), 1);
        drop(gate);
        assert_eq!(open_count(&path), 0);
    }

    fn open() -> Result<OwnedFd, Errno> {
        Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
    }

    fn refuse() -> Result<OwnedFd, Errno> {
        Err(Errno::PERM)
    }

    #[test]
    fn reserved_files_are_enough_and_no_more_are_opened() {
        let pool = Descriptors::default();
        assert_eq!(pool.reserve(1, refuse), Err(Errno::PERM));
        pool.reserve(2, open).unwrap();
        pool.reserve(2, refuse).unwrap();
        let taken = [pool.take(refuse).unwrap(), pool.take(refuse).unwrap()];
        assert!(!Arc::ptr_eq(&taken[0], &taken[1]) && pool.take(refuse).is_err());
    }

    #[test]
    fn users_at_the_same_time_have_different_files_and_later_ones_need_no_new_one() {
        let pool = Descriptors::default();
        let (one, two) = (pool.take(open).unwrap(), pool.take(open).unwrap());
        assert!(!Arc::ptr_eq(&one, &two));
        assert_eq!(pool.take(refuse).unwrap_err(), Errno::PERM);
        // As a ring does, which keeps a file for as long as something is in flight.
        let kept = Arc::clone(&one);
        drop(one);
        assert!(pool.take(refuse).is_err());
        drop(kept);
        let again = pool.take(refuse).unwrap();
        assert!(!Arc::ptr_eq(&again, &two));
        assert!(pool.take(refuse).is_err());
    }
}
