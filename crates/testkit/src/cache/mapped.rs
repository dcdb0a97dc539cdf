//! Mapped files: their page cache is the system's, so that stores, and pages that are cut off under a
//! mapping, are what they are. The model looks at it whenever something happens that it decides:
//! `msync`, writeback, eviction, a crash.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::content::PAGE;
use super::{FileContent, FileOf, Machine, State, Survivors, name_of};

impl Machine {
    /// As [`attach`](Self::attach), of a file that will be mapped; its content becomes `image`.
    ///
    /// # Panics
    /// Where the file can not be written.
    pub fn attach_mapped(&self, file: &File, image: FileContent, unit: usize) -> FileOf {
        file.set_len(0).expect("a file can be cut");
        file.set_len(image.len() as u64).expect("and grown again");
        for (at, bytes) in image.written() {
            file.write_all_at(bytes, at as u64).expect("a file can be written");
        }
        let number = self.attach(file, image, unit);
        let real = file.try_clone().expect("a descriptor");
        self.lock().real.insert(number.0, real);
        number
    }

    /// Lets the power fail at the `count`th `msync` from here on. The program does not notice.
    pub fn fail_power_at(&self, count: u32, survivors: Survivors) {
        self.lock().outage = Some((count, survivors));
    }

    /// Returns what a power cut of [`fail_power_at`](Self::fail_power_at) has left, once there was one.
    pub fn take_left(&self) -> Option<FileContent> {
        self.lock().left.take()
    }
}

impl State {
    pub(super) fn map(&mut self, file: &File) {
        let number = self.names[&name_of(file)];
        let since = self.files[number.0].errors.sample();
        self.mapped.insert(file.as_raw_fd(), (number, since));
    }

    pub(super) fn msync(&mut self, fd: &File, offset: usize, len: usize) -> Result<(), Errno> {
        let (file, mut since) = self.mapped[&fd.as_raw_fd()];
        self.absorb(file);
        match &mut self.outage {
            Some((0, survivors)) => {
                self.left = Some(self.files[file.0].after_crash(*survivors));
                self.outage = None;
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        // In whole pages, as msync has it.
        let range = offset / PAGE * PAGE..(offset + len).next_multiple_of(PAGE);
        let synced = self.sync(file, Some(range), &mut since);
        self.mapped.insert(fd.as_raw_fd(), (file, since));
        self.reflect(file);
        synced
    }

    /// Takes over what was stored in the mappings of a file.
    pub(super) fn absorb(&mut self, file: FileOf) {
        let Some(real) = self.real.get(&file.0) else { return };
        let mut page = vec![0; PAGE];
        for range in pages_with_data(real, self.files[file.0].size()) {
            let page = &mut page[..range.len()];
            // Cut short meanwhile: nothing is stored there.
            if real.read_exact_at(page, range.start as u64).is_ok() {
                self.files[file.0].note_stores(range.start, page);
            }
        }
    }

    /// Shows programs what the cache has now.
    pub(super) fn reflect(&mut self, file: FileOf) {
        let Some(real) = self.real.get(&file.0) else { return };
        let (mut stored, mut shown) = (vec![0; PAGE], vec![0; PAGE]);
        for range in pages_with_data(real, self.files[file.0].size()) {
            let (stored, shown) = (&mut stored[..range.len()], &mut shown[..range.len()]);
            let at = range.start as u64;
            self.files[file.0].read(range.start, shown, false);
            if real.read_exact_at(stored, at).is_ok() && stored != shown {
                real.write_all_at(shown, at).expect("a file can be written");
            }
        }
    }
}

/// The pages of a file that are not holes, and what of each lies in the file.
fn pages_with_data(file: &File, size: usize) -> Vec<Range<usize>> {
    let mut pages = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at as u64)) else { break };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap_or(size as u64);
        let (from, to) = (to_usize(data), to_usize(hole).min(size));
        let first = from / PAGE * PAGE;
        pages.extend((first..to).step_by(PAGE).map(|page| page..(page + PAGE).min(size)));
        at = to.max(from + 1);
    }
    pages
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
