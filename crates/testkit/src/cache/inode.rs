//! One file: what the page cache holds of it, what the medium holds, and what a crash may leave.
//!
//! ```text
//! cached ──writeback──► medium ──cache flush──► durable
//!    │ fails: clean, lost    └── loose: what a crash may leave of it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::chance::Chance;
use super::content::{FileContent, PAGE};
use super::errseq::{Errseq, Since};

type Block = Arc<[u8]>;

/// Which of what was not synced is there after a crash.
#[derive(Clone, Copy, Debug)]
pub enum Survivors {
    /// Nothing.
    None,
    /// Of each unit, any version at random.
    Some(u64),
    /// The latest of what lies at or behind this byte, and nothing else.
    From(usize),
    /// Everything.
    All,
}

/// A file.
pub(super) struct Inode {
    /// Durable contents, but for the units below.
    image: FileContent,
    units: BTreeMap<usize, Unit>,
    /// Bytes that the medium writes at once or not at all.
    unit: usize,
    size: usize,
    pub errors: Errseq,
    /// `AS_ENOSPC` and `AS_EIO`: told to the first direct transfer, whoever makes it.
    unclaimed: Option<Errno>,
    /// A write was lost.
    pub has_lost: bool,
    /// The cache has dropped what the medium does not have.
    pub has_dropped: bool,
}

/// A unit that was touched.
struct Unit {
    durable: Block,
    medium: Block,
    loose: Vec<Block>,
    cached: Option<Block>,
    dirty: bool,
}

impl Inode {
    pub fn new(image: FileContent, unit: usize) -> Self {
        assert!(image.len().is_multiple_of(unit), "a file is whole units");
        assert!(PAGE.is_multiple_of(unit), "a page is whole units");
        Self {
            size: image.len(),
            image,
            units: BTreeMap::new(),
            unit,
            errors: Errseq::default(),
            unclaimed: None,
            has_lost: false,
            has_dropped: false,
        }
    }

    pub fn unit(&self) -> usize {
        self.unit
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies out what the page cache shows, or the medium where `direct`.
    pub fn read(&self, offset: usize, target: &mut [u8], direct: bool) {
        for (number, within, place) in pieces(offset, target.len(), self.unit) {
            target[place].copy_from_slice(&self.block(number, direct)[within]);
        }
    }

    /// Contents of a unit in the page cache, or on the medium where `direct`.
    fn block(&self, number: usize, direct: bool) -> &[u8] {
        match self.units.get(&number) {
            None => self.image.within_page(number * self.unit..(number + 1) * self.unit),
            Some(Unit { cached: Some(cached), .. }) if !direct => cached,
            Some(touched) => &touched.medium,
        }
    }

    /// Writes into the page cache.
    pub fn write_cached(&mut self, offset: usize, source: &[u8]) {
        for (number, within, place) in pieces(offset, source.len(), self.unit) {
            let touched = self.touch(number);
            let before = touched.cached.as_ref().unwrap_or(&touched.medium);
            let block = overwritten(before, within, &source[place]);
            if let Some(superseded) = touched.cached.replace(block)
                && touched.dirty
            {
                // The kernel may have begun to write it back.
                touched.loose.push(superseded);
            }
            touched.dirty = true;
        }
    }

    /// Writes to the medium, past the page cache.
    pub fn write_direct(&mut self, offset: usize, source: &[u8]) {
        for (number, within, place) in pieces(offset, source.len(), self.unit) {
            let touched = self.touch(number);
            let block = overwritten(&touched.medium, within, &source[place]);
            touched.cached = None;
            touched.dirty = false;
            touched.reach(block);
        }
    }

    /// Notes what a program has stored in the mapped page that begins at `offset`.
    pub fn note_stores(&mut self, offset: usize, page: &[u8]) {
        for (stored, at) in page.chunks_exact(self.unit).zip((offset..).step_by(self.unit)) {
            if self.block(at / self.unit, false) != stored {
                self.write_cached(at, stored);
            }
        }
    }

    /// The same where all pages of a range are zeros: a file ends before them.
    pub fn note_zeros(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let units = self.units.range(range.start / self.unit..range.end.div_ceil(self.unit));
        let touched = units.map(|(number, _)| number * self.unit / PAGE);
        let pages: BTreeSet<_> = self.image.pages_within(range.clone()).chain(touched).collect();
        for page in pages {
            let at = page * PAGE;
            self.note_stores(at, &[0; PAGE][..PAGE.min(range.end - at)]);
        }
    }

    /// Before a direct transfer or a change of the allocation: what is dirty there is written back,
    /// and an error that nobody was told of in this way ends here (`filemap_write_and_wait_range`).
    pub fn settle(&mut self, offset: usize, len: usize) -> Result<(), Errno> {
        self.write_back(offset..offset + len, None, &mut Chance::default());
        self.unclaimed.take().map_or(Ok(()), Err)
    }

    /// Writes back what is dirty in a range. With a `fault`, some units (all when calm) are lost
    /// instead: they are clean then, and the cache shows what the medium does not have. How many
    /// units were written or lost.
    pub fn write_back(&mut self, range: Range<usize>, fault: Option<Errno>, chance: &mut Chance) -> usize {
        let units = range.start / self.unit..range.end.div_ceil(self.unit);
        let (mut count, mut lost) = (0, false);
        for touched in self.units.range_mut(units).map(|(_, touched)| touched) {
            let Some(cached) = touched.cached.clone().filter(|_| touched.dirty) else { continue };
            count += 1;
            touched.dirty = false;
            if fault.is_some() && (chance.is_calm() || !chance.one_in(3)) {
                lost = true;
                touched.loose.push(cached);
                if chance.one_in(2) {
                    // Some file systems show at once what the medium has.
                    touched.cached = None;
                    self.has_dropped = true;
                }
            } else {
                touched.reach(cached)
            }
        }
        if let Some(error) = fault.filter(|_| lost) {
            self.errors.set(error);
            self.unclaimed = Some(if error == Errno::NOSPC { error } else { Errno::IO });
            self.has_lost = true;
        }
        count
    }

    /// Drops clean units of a range from the cache.
    pub fn evict(&mut self, range: Range<usize>) {
        let units = range.start / self.unit..range.end.div_ceil(self.unit);
        for (_, touched) in self.units.range_mut(units) {
            if !touched.dirty {
                self.has_dropped |= touched.cached.take().is_some_and(|cached| cached != touched.medium);
            }
        }
    }

    /// Reads a range into the cache, as another program does.
    pub fn populate(&mut self, range: Range<usize>) {
        let units = range.start / self.unit..range.end.div_ceil(self.unit);
        for (_, touched) in self.units.range_mut(units) {
            let medium = &touched.medium;
            touched.cached.get_or_insert_with(|| Arc::clone(medium));
        }
    }

    /// `fsync` of a range: writes back, tells of lost writes, and only then makes durable.
    pub fn sync(&mut self, range: Range<usize>, since: &mut Since, chance: &mut Chance) -> Result<(), Errno> {
        let (writeback, flush) = (chance.temper.writeback, chance.temper.flush);
        let fault = chance.one_in(writeback).then(|| an_error(chance));
        self.write_back(range.clone(), fault, chance);
        self.errors.check_and_advance(since)?;
        if chance.one_in(flush) {
            return Err(Errno::IO);
        }
        let units = range.start / self.unit..range.end.div_ceil(self.unit);
        for (_, touched) in self.units.range_mut(units) {
            touched.durable = Arc::clone(&touched.medium);
            touched.loose.clear();
        }
        Ok(())
    }

    /// Returns what a crash leaves.
    pub fn after_crash(&self, survivors: Survivors) -> FileContent {
        let mut left = self.image.clone();
        let mut chance = Chance::default();
        chance.restart(match survivors {
            Survivors::Some(seed) => Some(seed),
            Survivors::None | Survivors::From(_) | Survivors::All => None,
        });
        for (number, touched) in &self.units {
            let dirty = touched.cached.as_ref().filter(|_| touched.dirty);
            let mut versions = touched.loose.iter().chain(dirty);
            let count = touched.loose.len() + usize::from(dirty.is_some());
            let pick = match survivors {
                Survivors::None => 0,
                Survivors::Some(_) => chance.below(1 + count),
                Survivors::From(byte) if number * self.unit < byte => 0,
                Survivors::From(_) | Survivors::All => count,
            };
            let block = match pick {
                0 => &touched.durable,
                later => versions.nth(later - 1).unwrap_or(&touched.durable),
            };
            left.write_within_page(number * self.unit, block);
        }
        left
    }

    fn touch(&mut self, number: usize) -> &mut Unit {
        let (image, unit) = (&self.image, self.unit);
        self.units.entry(number).or_insert_with(|| {
            let block: Block = image.within_page(number * unit..(number + 1) * unit).into();
            Unit { durable: Arc::clone(&block), medium: block, loose: Vec::new(), cached: None, dirty: false }
        })
    }
}

impl Unit {
    /// The medium takes a block into its volatile cache.
    fn reach(&mut self, block: Block) {
        self.loose.push(Arc::clone(&block));
        self.medium = block;
    }
}

/// Why a writeback fails; `EINTR`, where the server of a network file system or of FUSE has said so.
pub(super) fn an_error(chance: &mut Chance) -> Errno {
    const ERRORS: [Errno; 5] = [Errno::IO, Errno::NOSPC, Errno::IO, Errno::NOSPC, Errno::INTR];
    ERRORS[chance.below(ERRORS.len())]
}

fn overwritten(before: &Block, within: Range<usize>, source: &[u8]) -> Block {
    if source.len() == before.len() {
        return source.into();
    }
    let mut block = before.to_vec();
    block[within].copy_from_slice(source);
    block.into()
}

/// The units of a range: which, what of each, and where that is in the range.
fn pieces(offset: usize, len: usize, unit: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let end = offset + len;
    (offset / unit..end.div_ceil(unit)).map(move |number| {
        let (from, to) = (offset.max(number * unit), end.min((number + 1) * unit));
        let start = number * unit;
        (number, from - start..to - start, from - offset..to - offset)
    })
}
