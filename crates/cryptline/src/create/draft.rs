//! A file that gets its name only when it is whole.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cryptline_engine::OpenError;
use cryptline_engine::base::Image;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use super::Progress;
use crate::Result;
use crate::copy::ResumeError;
use crate::durable::{self, identity, is_at};
use crate::error::{Error, Problem};

/// How often a part is opened whose owner is just done with it.
const TRIES: usize = 16;

/// Suffix to the name of a header whose data has its name, or is written, before it.
const NEW: &str = ".cryptline-new";

/// A volume in the making: a file in the folder of its final place, readable by its owner only. Removed when dropped,
/// unless published or kept, or needed for data that is where it should be.
pub struct Draft {
    file: HeldDraft,
    /// Links resolved, so that a link is not replaced by the file it should lead to.
    place: PathBuf,
    name: String,
    /// Image that will be replaced, locked until then: nobody may begin to serve it meanwhile. No other file is.
    old: Option<Image>,
}

enum HeldDraft {
    Temporary(NamedTempFile),
    /// The same under a name by which it is found, and which it keeps where it cannot have its own.
    Found(NamedTempFile),
    /// Stays until it is whole, whatever happens to this process.
    Kept(File, PathBuf),
}

impl Draft {
    /// A draft of what will be `path`. Refuses a path that exists unless `force`d, one that is in
    /// use always.
    pub fn new(path: &Path, force: bool) -> Result<Self> {
        let name = path.display().to_string();
        let (place, old) = place_of(path, force, &name)?;
        let file = tempfile::Builder::new()
            .prefix(".cryptline-")
            .tempfile_in(folder_of(&place))
            .map_err(|error| not_made(&place, &name, error))?;
        Ok(Self { file: HeldDraft::Temporary(file), place, name, old })
    }

    /// The same, of which whoever may end this process is told.
    pub fn told(path: &Path, force: bool, tell: impl FnOnce(Progress<'_>) -> Result<()>) -> Result<Self> {
        let draft = Self::new(path, force)?;
        tell(Progress::Unfinished(draft.path()))?;
        Ok(draft)
    }

    /// A new one under a name that is always the same, so that another process can go on with it.
    pub fn kept(path: &Path, force: bool) -> Result<Self> {
        let name = path.display().to_string();
        let (place, _) = place_of(path, force, &name)?;
        let part = part_of(&place);
        let file = locked_part(&part, &name, || open_part(&part))?;
        // Whoever had it until now may have made what was not there before.
        let old = place_of(path, force, &name).map(|(_, old)| old);
        let is_empty = || file.metadata().is_ok_and(|found| found.len() == 0);
        if old.is_err() && is_empty() {
            let _ = std::fs::remove_file(&part);
        }
        Ok(Self { old: old?, file: HeldDraft::Kept(file, part), place, name })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        match &self.file {
            HeldDraft::Temporary(file) | HeldDraft::Found(file) => file.as_file(),
            HeldDraft::Kept(file, _) => file,
        }
    }

    /// Opens it once more, as long as it is the file of its name.
    pub fn image(&self, read_only: bool) -> Result<Image> {
        let image = Image::open(self.path(), read_only)?;
        self.refuse_another(image.file())?;
        Ok(image)
    }

    /// Refuses a file that was opened by its name and is another.
    pub fn refuse_another(&self, opened: &File) -> Result<()> {
        let file = identity(self.file().metadata());
        if file.is_none() || file != identity(opened.metadata()) {
            return Err(Problem::Device(OpenError::busy(self.path())).into());
        }
        Ok(())
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        match &self.file {
            HeldDraft::Temporary(file) | HeldDraft::Found(file) => file.path(),
            HeldDraft::Kept(_, path) => path,
        }
    }

    /// Tells if it stays until it is whole.
    pub fn is_kept(&self) -> bool {
        matches!(self.file, HeldDraft::Kept(..))
    }

    /// Removes it, though it would be kept.
    pub fn remove(&self) {
        if let HeldDraft::Kept(file, path) = &self.file
            && is_at(file, path)
        {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Gives it its size, with or without space on disk.
    pub fn set_size(&self, size: u64, preallocate: bool) -> Result<()> {
        // Reserving makes a file longer, never shorter.
        let sized = self.file().set_len(size);
        sized.map_err(|error| failed("reserve the space of", &self.name, error))?;
        if preallocate {
            self.reserve(size)?;
        }
        Ok(())
    }

    /// Reserves the space of its first `size` bytes, which stay as they are.
    pub fn reserve(&self, size: u64) -> Result<()> {
        let flags = rustix::fs::FallocateFlags::empty();
        let reserved = rustix::fs::fallocate(self.file(), flags, 0, size);
        reserved.map_err(|error| failed("reserve the space of", &self.name, error.into()))
    }

    /// Where [`set_aside`](Self::set_aside) will put what is to be replaced, if there is any.
    pub fn aside(&self) -> Result<Option<PathBuf>> {
        if self.old.is_none() {
            return Ok(None);
        }
        let at = beside(&self.place, ".cryptline-old");
        // What an earlier one has left, which nobody should lose.
        match std::fs::symlink_metadata(&at) {
            Ok(_) => Err(exists(&at.display().to_string(), None)),
            Err(_) => Ok(Some(at)),
        }
    }

    /// Refuses to go on where [`found_if_cut_off`](Self::found_if_cut_off) has left a file.
    pub fn refuse_left(&self) -> Result<()> {
        let at = beside(&self.place, NEW);
        match std::fs::symlink_metadata(&at) {
            Ok(_) => Err(Problem::HeaderLeft.on(at.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("look at", &at.display().to_string(), error)),
        }
    }

    /// Gives it a name by which it is found where this is cut off before it has its own, and makes that durable.
    pub fn found_if_cut_off(self) -> Result<Self> {
        let (at, name) = (beside(&self.place, NEW), self.name.clone());
        let found = self.named_so(&at).and_then(|found| sync_folder_of(&at).map(|()| found));
        found.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Problem::HeaderLeft.on(at.display()),
            _ => failed("give a name to", &name, error),
        })
    }

    /// The same where its data is there already, which nothing else opens: what cannot have that name stays under the one
    /// it has. [`publish`](Self::publish) tells whether names there are durable.
    pub fn found_by_its_data(mut self) -> Result<Self> {
        let (at, path) = (beside(&self.place, NEW), self.path().to_owned());
        if let HeldDraft::Temporary(file) = &mut self.file {
            file.disable_cleanup(true);
        }
        let found = self.named_so(&at).map_err(|error| Problem::HeaderKept(path, error).on(at.display()))?;
        let _ = sync_folder_of(&at);
        Ok(found)
    }

    fn named_so(self, at: &Path) -> io::Result<Self> {
        let file = match self.file {
            HeldDraft::Temporary(file) => {
                let (file, path) = file.into_parts();
                path.persist_noclobber(at).map_err(|refused| refused.error)?;
                HeldDraft::Found(NamedTempFile::from_parts(file, TempPath::try_from_path(at)?))
            }
            other => other,
        };
        Ok(Self { file, ..self })
    }

    /// Gives what is to be replaced another name, and makes that durable.
    pub fn set_aside(&self) -> Result<Option<Aside>> {
        let Some((old, at)) = self.old.as_ref().zip(self.aside()?) else {
            return Ok(None);
        };
        let failed = |error: io::Error| match error.kind() {
            // Another one has the name by now.
            io::ErrorKind::NotFound if self.place.exists() => exists(&self.name, None),
            _ => failed("set aside what is now", &self.name, error),
        };
        let file = old.file().try_clone().map_err(failed)?;
        durable::rename(&file, &self.place, &at, None).map_err(failed)?;
        let aside = Aside { file, place: self.place.clone(), at };
        match sync_folder_of(&aside.place) {
            Ok(()) => Ok(Some(aside)),
            Err(error) => {
                aside.put_back();
                Err(failed(error))
            }
        }
    }

    /// Has `put` write to it, in the order of its flushes.
    pub fn write(&self, put: impl FnOnce(&mut Durable<'_>) -> io::Result<()>) -> Result<()> {
        put(&mut Durable(self.file())).map_err(|error| failed("write", &self.name, error))
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> Result<()> {
        durable::sync_all(self.file()).map_err(|error| failed("write", &self.name, error))
    }

    /// Gives it its name and makes that durable. Where only the latter fails, the file keeps its name. Where it is
    /// [found](Self::found_if_cut_off) by another, it keeps that one when it cannot have its own: its data has its name.
    pub fn publish(self) -> Result<()> {
        let Self { file, place, name, old } = self;
        let old = old.as_ref().map(Image::file);
        let published = match file {
            HeldDraft::Temporary(mut file) => durable::rename_temporary(&mut file, &place, old),
            HeldDraft::Found(mut file) => {
                file.disable_cleanup(true);
                let given = durable::rename(file.as_file(), file.path(), &place, old);
                given.map_err(|error| Problem::HeaderKept(file.path().to_owned(), error).on(&name))?;
                Ok(())
            }
            HeldDraft::Kept(file, path) => durable::rename(&file, &path, &place, old),
        };
        published.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&name, None),
            _ => failed("give its name to", &name, error),
        })?;
        sync_folder_of(&place).map_err(|error| Problem::NameNotDurable(error).on(&name))
    }
}

/// File that is to be replaced, under another name until that is done. It stays there unless one of these is called.
#[must_use]
pub struct Aside {
    file: File,
    place: PathBuf,
    at: PathBuf,
}

impl Aside {
    /// Nothing was replaced.
    pub fn put_back(self) {
        let back = durable::rename(&self.file, &self.at, &self.place, None);
        let _ = back.and_then(|()| sync_folder_of(&self.place));
    }

    /// Deletes it, after it was replaced.
    pub fn remove(self) {
        if is_at(&self.file, &self.at) {
            let _ = std::fs::remove_file(&self.at);
        }
    }
}

/// The part of what will be `place`.
fn part_of(place: &Path) -> PathBuf {
    beside(place, ".cryptline-part")
}

/// A hidden name in the same folder.
fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(suffix);
    folder_of(place).join(name)
}

/// Why there is no new file beside `place`.
fn not_made(place: &Path, name: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Problem::NoFolder(folder_of(place).to_owned()).on(name),
        _ => failed("make a file for", name, error),
    }
}

fn sync_folder_of(place: &Path) -> io::Result<()> {
    durable::sync_folder(folder_of(place))
}

fn open_part(part: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(part)
}

/// Returns what `open` opens at `part`, locked, and still there once it is.
fn locked_part(part: &Path, name: &str, mut open: impl FnMut() -> io::Result<File>) -> Result<File> {
    let busy = || {
        let busy = OpenError::busy(part);
        Err(Problem::Device(busy).into())
    };
    for _ in 0..TRIES {
        let file = open().map_err(|error| not_made(part, name, error))?;
        // File systems without locks: as without us.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return busy();
        }
        // Whoever held the lock has given the file its name, or removed it: it is no part any more.
        if !is_at(&file, part) {
            continue;
        }
        let found = file.metadata().map_err(|error| failed("make a file for", name, error))?;
        // Somebody else who can open it would read what is written there.
        let is_ours = found.is_file()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.mode() & 0o077 == 0
            && found.nlink() == 1;
        if !is_ours {
            let part = part.to_owned();
            return Err(Problem::Resume(ResumeError::NotOurs { part }).on(name));
        }
        return Ok(file);
    }
    busy()
}

/// Where it will be, and what is there already: refused unless `force`d.
// Guard: what is there would be replaced without having been looked at, or locked.
fn place_of(path: &Path, force: bool, name: &str) -> Result<(PathBuf, Option<Image>)> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((path.to_owned(), None)),
        Err(error) => return Err(failed("look at", name, error)),
    };
    if !force {
        return Err(exists(name, named(path)));
    }
    if !std::fs::metadata(path).unwrap_or(metadata).is_file() {
        return Err(Problem::NotAFile.on(name));
    }
    // Takes the lock that a server would hold.
    let old = Image::open(path, false)?;
    let place = path.canonicalize().unwrap_or(path.to_owned());
    Ok((place, Some(old)))
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Writer for when the order of writes matters: a flush is a sync.
pub struct Durable<'a>(pub &'a File);

impl Read for Durable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Durable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        durable::sync_data(self.0)
    }
}

impl Seek for Durable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Names what a file holds, if that is known and can be read.
fn named(path: &Path) -> Option<&'static str> {
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut file = is_file.then(|| File::open(path).ok()).flatten()?;
    super::look::name(&mut file).ok().flatten()
}

fn exists(name: &str, holds: Option<&'static str>) -> Error {
    Problem::Exists { holds }.on(name)
}

fn failed(action: &'static str, name: &str, error: io::Error) -> Error {
    // Below a wrapper that names the temporary file, which is nobody's business.
    let kind = error.kind();
    let source = match error.get_ref().map(|inner| inner.source().map(ToString::to_string)) {
        Some(Some(cause)) => io::Error::new(kind, cause),
        Some(None) if kind != io::ErrorKind::Other => kind.into(),
        _ => error,
    };
    Problem::Draft { action, source }.on(name)
}

#[cfg(test)]
#[path = "draft_tests.rs"]
mod tests;
