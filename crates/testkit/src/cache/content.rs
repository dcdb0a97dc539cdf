//! The content of a file: pages, of which those that are zeros are not kept. Copies share their pages until one is changed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub(super) const PAGE: usize = 4096;

type Page = [u8; PAGE];

static ZEROS: Page = [0; PAGE];

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContent {
    len: usize,
    pages: BTreeMap<usize, Arc<Page>>,
}

impl FileContent {
    /// So many bytes, all zeros.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        Self { len, pages: BTreeMap::new() }
    }

    /// The same with so many zeros behind it.
    #[must_use]
    pub fn longer(&self, more: usize) -> Self {
        Self { len: self.len + more, pages: self.pages.clone() }
    }

    /// Bytes of the file.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no file is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// A range that lies in one page.
    pub(super) fn within_page(&self, range: Range<usize>) -> &[u8] {
        let at = range.start % PAGE;
        let page = self.pages.get(&(range.start / PAGE)).map_or(&ZEROS, |page| &**page);
        &page[at..at + range.len()]
    }

    /// Overwrites what lies in one page.
    pub(super) fn write_within_page(&mut self, at: usize, bytes: &[u8]) {
        if let Ok(whole) = bytes.try_into() {
            self.pages.insert(at / PAGE, Arc::new(whole));
            return;
        }
        let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new(ZEROS));
        Arc::make_mut(page)[at % PAGE..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Runs that are not zeros, and where they lie: of a page at most.
    pub fn written(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pages.iter().map(|(number, page)| (number * PAGE, &page[..PAGE.min(self.len - number * PAGE)]))
    }

    /// All of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.first(self.len)
    }

    /// The first `len` bytes.
    #[must_use]
    pub fn first(&self, len: usize) -> Vec<u8> {
        let len = len.min(self.len);
        let mut bytes = Vec::with_capacity(len);
        for (at, page) in self.written().take_while(|(at, _)| *at < len) {
            bytes.resize(at, 0);
            bytes.extend_from_slice(&page[..page.len().min(len - at)]);
        }
        bytes.resize(len, 0);
        bytes
    }

    /// Pages of a range that are kept, by number.
    pub(super) fn pages_within(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        self.pages.range(range.start / PAGE..range.end.div_ceil(PAGE)).map(|(number, _)| *number)
    }
}

impl From<Vec<u8>> for FileContent {
    fn from(bytes: Vec<u8>) -> Self {
        let mut content = Self::zeros(bytes.len());
        for (number, page) in bytes.chunks(PAGE).enumerate() {
            if *page != ZEROS[..page.len()] {
                content.write_within_page(number * PAGE, page);
            }
        }
        content
    }
}
