//! A file that gets its name only when it is whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use cryptline_engine::base::Image;
use tempfile::NamedTempFile;

use crate::Result;
use crate::error::{Error, Problem};

/// A volume in the making: a temporary file in the folder of its final place, readable by its
/// owner only. Removed when dropped, unless published.
pub struct Draft {
    file: NamedTempFile,
    /// Links resolved, so that a link is not replaced by the file it should lead to.
    place: PathBuf,
    name: String,
    /// What will be replaced, locked until then: nobody may begin to serve it meanwhile.
    old: Option<Image>,
}

impl Draft {
    /// A draft of what will be `path`. Refuses a path that exists unless `force`d, one that is in
    /// use always.
    pub fn new(path: &Path, force: bool) -> Result<Self> {
        let name = path.display().to_string();
        let (mut place, mut old) = (path.to_owned(), None);
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !force {
                return Err(exists(&name, named(path)));
            }
            if !std::fs::metadata(path).unwrap_or(metadata).is_file() {
                return Err(Problem::NotAFile.on(name));
            }
            // Takes the lock that a server would hold.
            old = Some(Image::open(path, false)?);
            place = path.canonicalize().unwrap_or(place);
        }
        let folder = match place.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".cryptline-")
            .tempfile_in(folder)
            .map_err(|error| failed("make a file for", &name, error))?;
        Ok(Self {
            file,
            place,
            name,
            old,
        })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives it its size, with or without space on disk.
    pub fn set_size(&self, size: u64, preallocate: bool) -> Result<()> {
        let sized = if preallocate {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(self.file(), flags, 0, size).map_err(io::Error::from)
        } else {
            self.file().set_len(size)
        };
        sized.map_err(|error| failed("reserve the space of", &self.name, error))
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file().sync_all();
        synced.map_err(|error| failed("write", &self.name, error))
    }

    /// Gives it its name and makes that durable. Where only the latter fails, the file keeps its name.
    pub fn publish(self, force: bool) -> Result<()> {
        let Self {
            file,
            place,
            name,
            old: _old,
        } = self;
        let published = if force {
            file.persist(&place)
        } else {
            file.persist_noclobber(&place)
        };
        published.map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => exists(&name, None),
            _ => failed("give its name to", &name, error.error),
        })?;
        let folder = place.parent().filter(|folder| *folder != Path::new(""));
        let folder = File::open(folder.unwrap_or(Path::new(".")));
        let synced = folder.and_then(|folder| folder.sync_all());
        synced.map_err(|error| Problem::NameNotDurable(error).on(&name))
    }
}

/// What to write through when the order of writes matters: a flush is a sync.
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
        self.0.sync_data()
    }
}

impl Seek for Durable<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// What a file holds, if that is known and can be read.
fn named(path: &Path) -> Option<&'static str> {
    let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut file = is_file.then(|| File::open(path).ok()).flatten()?;
    super::look::name(&mut file).ok().flatten()
}

fn exists(name: &str, holds: Option<&'static str>) -> Error {
    Problem::Exists { holds }.on(name)
}

pub(super) fn failed(action: &'static str, name: &str, error: io::Error) -> Error {
    // Below a wrapper that names the temporary file, which is nobody's business.
    let kind = error.kind();
    let cause = error.get_ref().and_then(|inner| inner.source());
    let source = match cause.map(ToString::to_string) {
        Some(cause) => io::Error::new(kind, cause),
        None => error,
    };
    Problem::Draft { action, source }.on(name)
}
