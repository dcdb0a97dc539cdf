//! The media: memory, a mapped file, and a block translation table over each.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline_engine::base::{PersistentMemory, PmemDevice, RamDevice};
use cryptline_engine::btt::{Btt, BttDevice, Medium, NewTable};
use cryptline_engine::{Buffer, Fault, Gate};
use cryptline_sys::SharedMemory;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::BLOCK;
use super::ways::{self, Paged, Requests, RwPage, Way};
use crate::bench::machine::available_memory;
use crate::bench::report::Direction;
use crate::{CliError, size};

/// Where Linux has a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// What a table takes beside its sectors, at most: its least size, and a 256th of it.
const TABLE_LEAST: u64 = 17 << 20;

/// One medium, and every way to it.
pub struct Place {
    /// For people.
    pub name: &'static str,
    /// What makes its stores durable, or that nothing does.
    pub how: String,
    /// The place below, for a table.
    pub plain: Option<usize>,
    copy: Option<Memory>,
    paged: Box<dyn RwPage>,
    requests: Requests,
}

enum Memory {
    Ram(Arc<SharedMemory>),
    Mapped(Arc<PersistentMemory>),
}

impl Place {
    /// The ways that there are: a copy into the middle of a table would destroy it.
    pub fn ways(&self) -> Vec<Way> {
        let possible = |way: &Way| *way != Way::Memcpy || self.copy.is_some();
        Way::ALL.into_iter().filter(possible).collect()
    }

    /// Moves the blocks at `offsets` by a way, all from or into the buffer.
    ///
    /// # Errors
    /// Exit code 4 where the medium fails.
    pub fn walk(
        &mut self,
        way: Way,
        direction: Direction,
        offsets: &[u64],
        mut buffer: Buffer,
    ) -> Result<Buffer, CliError> {
        let walked = match (way, &self.copy) {
            (Way::Memcpy, Some(Memory::Ram(memory))) => {
                ways::copy(&**memory, direction, offsets, &mut buffer).map(|()| buffer)
            }
            (Way::Memcpy, Some(Memory::Mapped(memory))) => {
                ways::copy(&**memory, direction, offsets, &mut buffer).map(|()| buffer)
            }
            (Way::Memcpy, None) => Err(Fault::NotSupported),
            (Way::Page, _) => {
                ways::pages(&*self.paged, direction, offsets, &mut buffer).map(|()| buffer)
            }
            (Way::OnStack, _) => self.requests.on_stack(direction, offsets, buffer),
            (Way::Heap, _) => self.requests.heap(direction, offsets, buffer),
        };
        walked.map_err(|fault| {
            CliError::device(format!(
                "{}: a {} by {} failed: {fault}",
                self.name,
                direction.name(),
                way.name()
            ))
        })
    }
}

/// The folder for mapped files.
///
/// # Errors
/// Exit code 1 for what is no folder.
pub fn folder(given: Option<&Path>) -> Result<PathBuf, CliError> {
    match given {
        Some(folder) if folder.is_dir() => Ok(folder.to_owned()),
        Some(other) => Err(CliError::parameters(format!(
            "--on {}: give a folder that exists; files for the bench are made in it and removed",
            other.display()
        ))),
        None if Path::new(SHARED_MEMORY).is_dir() => Ok(SHARED_MEMORY.into()),
        None => Ok(std::env::temp_dir()),
    }
}

/// All media, `bytes` bytes of data each.
///
/// # Errors
/// Exit code 1 for more than the memory that is free, 3 without memory, 4 for a file that cannot be
/// made or mapped.
pub fn make(bytes: u64, folder: &Path) -> Result<Vec<Place>, CliError> {
    let table_bytes = bytes
        .saturating_add(bytes / 256)
        .saturating_add(TABLE_LEAST);
    let needed = bytes.saturating_add(table_bytes).saturating_mul(2);
    if let Some(available) = available_memory()
        && needed > available
    {
        return Err(CliError::parameters(format!(
            "--size {}: all media together take {} of memory, and {} are free; give a smaller --size",
            size::human(bytes),
            size::human(needed),
            size::human(available)
        )));
    }
    let pages = bytes / u64::from(BLOCK);
    let table_in_ram = table(memory(table_bytes)?)?;
    let table_in_file = table(mapped(table_bytes, folder)?)?;
    Ok(vec![
        ram(Arc::new(memory(bytes)?), pages)?,
        pmem(Arc::new(mapped(bytes, folder)?), pages)?,
        over(table_in_ram, pages, ("BTT over ram", "memory", 0))?,
        over(table_in_file, pages, ("BTT over pmem", "the same", 1))?,
    ])
}

fn ram(memory: Arc<SharedMemory>, pages: u64) -> Result<Place, CliError> {
    Ok(Place {
        name: "ram",
        how: "memory".into(),
        plain: None,
        requests: Requests::new(&Gate::new(RamDevice::over(Arc::clone(&memory))?))?,
        paged: Box::new(Paged {
            medium: Arc::clone(&memory),
            pages,
            read_only: false,
        }),
        copy: Some(Memory::Ram(memory)),
    })
}

fn pmem(memory: Arc<PersistentMemory>, pages: u64) -> Result<Place, CliError> {
    Ok(Place {
        name: "pmem",
        how: memory.how().to_owned(),
        plain: None,
        requests: Requests::new(&Gate::new(PmemDevice::over(Arc::clone(&memory), false)))?,
        paged: Box::new(Paged {
            medium: Arc::clone(&memory),
            pages,
            read_only: false,
        }),
        copy: Some(Memory::Mapped(memory)),
    })
}

/// A table's place. Name, what is below for people, and where that is in the list.
fn over<M: Medium + 'static>(
    table: Arc<Btt<M>>,
    pages: u64,
    (name, how, plain): (&'static str, &str, usize),
) -> Result<Place, CliError> {
    Ok(Place {
        name,
        how: how.to_owned(),
        plain: Some(plain),
        requests: Requests::new(&Gate::new(BttDevice::over(Arc::clone(&table), false)))?,
        paged: Box::new(Paged {
            medium: table,
            pages,
            read_only: false,
        }),
        copy: None,
    })
}

fn memory(bytes: u64) -> Result<SharedMemory, CliError> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    SharedMemory::new(len).map_err(|error| {
        CliError::memory(format!(
            "no memory for a medium: {error}; give a smaller --size"
        ))
    })
}

/// A mapped file without a name: it is gone when this program ends, however it ends.
fn mapped(bytes: u64, folder: &Path) -> Result<PersistentMemory, CliError> {
    let failed = |error: &std::io::Error| {
        CliError::device(format!(
            "{}: cannot make a file of {}: {error}; name another folder with --on",
            folder.display(),
            size::human(bytes)
        ))
    };
    let file = tempfile::Builder::new()
        .prefix(".cryptline-bench-")
        .tempfile_in(folder)
        .map_err(|error| failed(&error))?;
    reserve(file.as_file(), bytes).map_err(|error| failed(&error))?;
    // Its name goes with `file`; what is mapped lives on without.
    Ok(PersistentMemory::open(file.path(), false)?)
}

/// Space for all of it now: a disk that is full would otherwise be met in the middle of a store.
fn reserve(file: &File, bytes: u64) -> std::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        other => Ok(other?),
    }
}

/// A new table of 4 KiB sectors.
fn table<M: Medium>(medium: M) -> Result<Arc<Btt<M>>, CliError> {
    let new = NewTable {
        sector_size: BLOCK,
        uuid: [1; 16],
        is_zero: true,
    };
    let written = new.write(&medium, |_| {});
    written.map_err(|fault| CliError::device(format!("cannot make a table: {fault}")))?;
    let table = Btt::open(medium, false);
    let table = table.map_err(|error| CliError::device(format!("the new table: {error}")))?;
    Ok(Arc::new(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_room_for_all_blocks_and_no_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [1 << 20, 100 << 20] {
            let places = make(bytes, folder.path()).expect("media");
            assert_eq!(places.len(), 4);
            let mut buffer = super::super::new_buffer().expect("a buffer");
            for mut place in places {
                for way in place.ways() {
                    let last = [bytes - u64::from(BLOCK)];
                    buffer = place
                        .walk(way, Direction::Write, &last, buffer)
                        .expect("room");
                }
            }
        }
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let error = folder(Some(Path::new("/no/such/folder"))).expect_err("none");
        assert_eq!(error.exit_code(), 1);
        assert!(folder(None).is_ok());
    }
}
