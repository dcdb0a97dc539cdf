//! A folder of files that programs use through rings and by calls of the system alike, make, rename and cut: their page
//! cache is the system's, as that of mapped files, and the model looks at it at each sync and crash.
//!
//! A program must [tell](Machine::synced) what it has synced without a ring. A name is durable once its folder is
//! synced, a length once its file is.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::content::PAGE;
use super::errseq::Since;
use super::inode::Inode;
use super::{FileContent, FileOf, Machine, State, Survivors, name_of};

/// Bytes of a file that are looked at while they are in the processor's cache.
const WINDOW: usize = 16 * PAGE;

/// Metadata of a folder that is there after a crash: names, and the lengths of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those that were synced.
    Durable,
    /// Those that were seen last, as where a file system writes them before what is in the files.
    Latest,
}

/// A crash, and what it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Of the folder's own.
    pub names: Names,
    /// Of what is in the files.
    pub content: Survivors,
}

/// Files that a crash has left in a folder.
pub type Left = BTreeMap<OsString, Vec<u8>>;

pub(super) struct Folder {
    path: PathBuf,
    identity: (u64, u64),
    /// More than this no file has.
    capacity: usize,
    /// The durable names.
    names: BTreeMap<OsString, FileOf>,
    files: HashMap<usize, Member>,
    /// Changes and syncs so far.
    events: u32,
    outage: Option<(u32, Vec<Cut>)>,
    left: Vec<Left>,
}

struct Member {
    /// The durable length.
    len: usize,
    /// Lost writes that were told of outside of rings.
    since: Since,
}

impl Machine {
    /// Puts a folder on this machine, whose files are durable as they are and never have more than `capacity` bytes.
    ///
    /// # Panics
    /// Where it cannot be read.
    pub fn watch(&self, path: &Path, capacity: usize) {
        let mut state = self.lock();
        let opened = File::open(path).expect("a folder can be opened");
        state.folder = Some(Folder {
            path: path.to_owned(),
            identity: name_of(&opened),
            capacity: capacity.next_multiple_of(PAGE),
            names: BTreeMap::new(),
            files: HashMap::new(),
            events: 0,
            outage: None,
            left: Vec::new(),
        });
        for (name, file) in files_in(path) {
            let bytes = fs::read(path.join(&name)).expect("a file can be read");
            let number = state.take_in(&file, bytes);
            state.watched().names.insert(name, number);
        }
    }

    /// Lets the power fail just before the `count`th change or sync from here on, in each of these ways. The program does
    /// not notice.
    ///
    /// # Panics
    /// Where no folder is watched.
    pub fn cut_at(&self, count: u32, cuts: &[Cut]) {
        let mut state = self.lock();
        let folder = state.watched();
        folder.outage = Some((folder.events + count, cuts.to_vec()));
    }

    /// Returns what the power cuts of [`cut_at`](Self::cut_at) have left, once there were any.
    ///
    /// # Panics
    /// Where no folder is watched.
    pub fn take_cuts(&self) -> Vec<Left> {
        std::mem::take(&mut self.lock().watched().left)
    }

    /// Returns what a power cut now leaves of the watched folder.
    pub fn folder_after(&self, cut: Cut) -> Left {
        self.folder_after_each(&[cut]).pop().expect("one cut leaves one folder")
    }

    /// The same for several power cuts at one moment.
    pub fn folder_after_each(&self, cuts: &[Cut]) -> Vec<Left> {
        self.lock().folder_after_each(cuts)
    }

    /// Tells if a file, or a folder, is of the watched folder.
    pub fn watches(&self, file: &File) -> bool {
        let mut state = self.lock();
        let of_folder = state.folder.as_ref().map(|folder| folder.identity);
        of_folder.is_some_and(|identity| identity == name_of(file)) || state.adopted(file).is_some()
    }

    /// A program syncs a file or a folder, not by a ring; `None` where it is none of this machine.
    pub fn synced(&self, file: &File) -> Option<io::Result<()>> {
        let mut state = self.lock();
        let (name, identity) = (name_of(file), state.folder.as_ref()?.identity);
        if name == identity {
            state.happens();
            let here = state.here();
            state.watched().names = here;
            return Some(Ok(()));
        }
        let number = state.adopted(file)?;
        state.happens();
        let mut since = state.watched().files[&number.0].since;
        let synced = state.sync_adopted(number, &mut since);
        state.watched().files.get_mut(&number.0).expect("it is known").since = since;
        Some(synced.map_err(Into::into))
    }

    /// The kernel writes back what is dirty of all files of the folder, and fails where there is a `fault`. How many
    /// units.
    pub fn write_back_folder(&self, fault: Option<Errno>) -> usize {
        let members = self.lock().members();
        let write_back = |number| {
            let mut state = self.lock();
            state.take_stores(number, None);
            let State { files, chance, .. } = &mut *state;
            let count = files[number.0].write_back(0..usize::MAX, fault, chance);
            state.show(number, None);
            count
        };
        members.into_iter().map(write_back).sum()
    }

    /// Drops what is clean of all files of the folder from the cache.
    pub fn evict_folder(&self) {
        let mut state = self.lock();
        for number in state.members() {
            state.take_stores(number, None);
            state.files[number.0].evict(0..usize::MAX);
            state.show(number, None);
        }
    }
}

impl State {
    fn watched(&mut self) -> &mut Folder {
        self.folder.as_mut().expect("a folder is watched")
    }

    /// In the order in which they were met.
    fn members(&self) -> Vec<FileOf> {
        let mut members: Vec<_> = self.folder.iter().flat_map(|folder| folder.files.keys().copied()).collect();
        members.sort_unstable();
        members.into_iter().map(FileOf).collect()
    }

    pub(super) fn is_member(&self, file: FileOf) -> bool {
        self.folder.as_ref().is_some_and(|folder| folder.files.contains_key(&file.0))
    }

    /// A file that is here, or comes here now: then nothing of it is durable.
    pub(super) fn adopted(&mut self, file: &File) -> Option<FileOf> {
        if let Some(&number) = self.names.get(&name_of(file)) {
            return self.is_member(number).then_some(number);
        }
        let folder = self.folder.as_ref()?;
        // Only those: sockets and what lies elsewhere are the system's.
        let is_here = files_in(&folder.path).any(|(_, here)| name_of(&here) == name_of(file));
        is_here.then(|| self.take_in(file, Vec::new()))
    }

    fn take_in(&mut self, file: &File, durable: Vec<u8>) -> FileOf {
        let len = durable.len();
        let capacity = self.watched().capacity;
        assert!(len <= capacity, "{len} bytes are more than {capacity}");
        let number = FileOf(self.files.len());
        self.files.push(Inode::new(FileContent::from(durable).longer(capacity - len), PAGE));
        self.names.insert(name_of(file), number);
        // By a descriptor of our own for both: what is given may be for writing only.
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        let real = File::options().read(true).write(true).open(own).expect("a file can be opened again");
        self.real_members.insert(number.0, real);
        let since = self.files[number.0].errors.sample();
        self.watched().files.insert(number.0, Member { len, since });
        number
    }

    /// A change or a sync is about to happen.
    pub(super) fn happens(&mut self) {
        let folder = self.watched();
        let now = folder.events;
        folder.events += 1;
        if let Some((_, cuts)) = folder.outage.take_if(|(at, _)| *at == now) {
            self.watched().left = self.folder_after_each(&cuts);
        }
    }

    fn folder_after_each(&mut self, cuts: &[Cut]) -> Vec<Left> {
        let here = self.here();
        for number in self.members() {
            self.take_stores(number, None);
        }
        cuts.iter().map(|cut| self.folder_after(*cut, &here)).collect()
    }

    fn folder_after(&mut self, cut: Cut, here: &BTreeMap<OsString, FileOf>) -> Left {
        let names = match cut.names {
            Names::Durable => self.watched().names.clone(),
            Names::Latest => here.clone(),
        };
        let after = |(name, number): (OsString, FileOf)| {
            let len = match cut.names {
                Names::Durable => self.watched().files[&number.0].len,
                Names::Latest => self.len_of(number),
            };
            (name, self.files[number.0].after_crash(cut.content).first(len))
        };
        names.into_iter().map(after).collect()
    }

    /// The files that are in the folder now.
    fn here(&mut self) -> BTreeMap<OsString, FileOf> {
        let path = self.watched().path.clone();
        let found: Vec<_> = files_in(&path).collect();
        let known = |(name, file): (OsString, File)| self.adopted(&file).map(|number| (name, number));
        found.into_iter().filter_map(known).collect()
    }

    fn len_of(&self, file: FileOf) -> usize {
        let len = self.real_members[&file.0].metadata().expect("an open file has a length").len();
        usize::try_from(len).expect("it fits in memory")
    }

    /// All of a file made durable, as by a sync.
    pub(super) fn sync_adopted(&mut self, file: FileOf, since: &mut Since) -> Result<(), Errno> {
        self.take_stores(file, None);
        let synced = self.sync(file, None, since);
        self.show(file, None);
        if synced.is_ok() {
            let len = self.len_of(file);
            self.watched().files.get_mut(&file.0).expect("it is known").len = len;
        }
        synced
    }

    /// Takes over what was stored past the rings, in a range or anywhere: behind the end there are zeros.
    pub(super) fn take_stores(&mut self, file: FileOf, range: Option<Range<usize>>) {
        let (real, inode) = (&self.real_members[&file.0], &mut self.files[file.0]);
        let range = pages(range, inode.size());
        let end = for_each_page(real, range.clone(), |at, stored| inode.note_stores(at, stored));
        inode.note_zeros(end..range.end);
    }

    /// Shows programs what the cache has now: in a range, or wherever it has dropped what they have seen.
    pub(super) fn show(&mut self, file: FileOf, range: Option<Range<usize>>) {
        if range.is_none() && !std::mem::take(&mut self.files[file.0].has_dropped) {
            return;
        }
        let len = self.len_of(file);
        let (real, inode) = (&self.real_members[&file.0], &self.files[file.0]);
        let range = pages(range, len);
        // Pages that are not what they show, as long as one follows the other; holes stay holes.
        let mut run: (usize, Vec<u8>) = (0, Vec::new());
        let write = |(start, bytes): &mut (usize, Vec<u8>)| {
            real.write_all_at(bytes, *start as u64).expect("a file can be written");
            bytes.clear();
        };
        for_each_page(real, range.start..range.end.min(len.next_multiple_of(PAGE)), |at, stored| {
            let mut page = [0; PAGE];
            let shown = &mut page[..PAGE.min(len.saturating_sub(at))];
            inode.read(at, shown, false);
            if shown[..] == stored[..shown.len()] {
                return;
            }
            if run.0 + run.1.len() != at {
                write(&mut run);
                run.0 = at;
            }
            run.1.extend_from_slice(shown);
        });
        write(&mut run);
    }
}

/// Whole pages.
fn pages(range: Option<Range<usize>>, most: usize) -> Range<usize> {
    let range = range.unwrap_or(0..most);
    range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE)
}

/// Looks at pages of a file, and where they lie. Behind its end there are zeros: of the page that it lies in, and of those
/// from where this returns.
fn for_each_page(file: &File, pages: Range<usize>, mut each: impl FnMut(usize, &[u8])) -> usize {
    let mut window = vec![0; WINDOW.min(pages.len())];
    for start in pages.clone().step_by(WINDOW) {
        let window = &mut window[..WINDOW.min(pages.end - start)];
        let mut read = 0;
        while read < window.len() {
            match file.read_at(&mut window[read..], (start + read) as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) => panic!("a file can be read: {error}"),
            }
        }
        let whole = read.next_multiple_of(PAGE);
        window[read..whole].fill(0);
        window[..whole].chunks(PAGE).zip((start..).step_by(PAGE)).for_each(|(page, at)| each(at, page));
        if whole < window.len() {
            return start + whole;
        }
    }
    pages.end
}

fn files_in(path: &Path) -> impl Iterator<Item = (OsString, File)> {
    let entries = fs::read_dir(path).expect("a folder can be read").flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_file())).filter_map(|entry| {
        let file = File::open(entry.path()).ok()?;
        Some((entry.file_name(), file))
    })
}
