//! The media: memory, a mapped file, and a block translation table over each.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline::size;
use cryptline_engine::base::{PersistentMemory, PmemDevice, RamDevice};
use cryptline_engine::btt::{Btt, BttDevice, Medium, NewTable};
use cryptline_engine::{Buffer, Fault, Gate};
use cryptline_sys::SharedMemory;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::BLOCK;
use super::ways::{self, Requests, Way};
use crate::Error;
use crate::machine::available_memory;
use crate::report::Direction;

/// Where Linux has a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// What a table takes beside its sectors, at most: its least size, and a 256th of it.
const TABLE_LEAST: u64 = 17 << 20;

/// One medium, and every way to it.
pub struct Place {
    /// For people.
    pub name: &'static str,
    /// The name of the medium below, for a table.
    pub plain: Option<&'static str>,
    copy: Option<Memory>,
    requests: Requests,
}

enum Memory {
    Ram(Arc<SharedMemory>),
    Mapped(Arc<PersistentMemory>),
}

impl Place {
    /// The ways that there are: a copy into the middle of a table would destroy it.
    pub fn ways(&self) -> impl Iterator<Item = Way> + use<> {
        let has_copy = self.copy.is_some();
        let possible = move |way: &Way| *way != Way::Memcpy || has_copy;
        Way::ALL.into_iter().filter(possible)
    }

    /// Moves the blocks at `offsets` by a way, all from or into the buffer, which is lost with a request
    /// that fails.
    pub fn walk(
        &mut self,
        way: Way,
        direction: Direction,
        offsets: &[u64],
        slot: &mut Option<Buffer>,
    ) -> Result<(), Error> {
        let mut buffer = slot.take().ok_or_else(|| Error::device("no buffer"))?;
        let walked = match (way, &self.copy) {
            (Way::Memcpy, Some(Memory::Ram(memory))) => {
                ways::copy(&**memory, direction, offsets, &mut buffer).map(|()| buffer)
            }
            (Way::Memcpy, Some(Memory::Mapped(memory))) => {
                ways::copy(&**memory, direction, offsets, &mut buffer).map(|()| buffer)
            }
            (Way::Memcpy, None) => Err(Fault::NotSupported),
            (Way::OnStack, _) => self.requests.on_stack(direction, offsets, buffer),
            (Way::Heap, _) => self.requests.heap(direction, offsets, buffer),
        };
        let walked = walked.map(|buffer| *slot = Some(buffer));
        walked.map_err(|fault| {
            Error::device(format!(
                "{}: a {} by {} failed: {fault}",
                self.name,
                direction.name(),
                way.name()
            ))
        })
    }
}

/// The folder for mapped files.
pub fn folder(given: Option<&Path>) -> Result<PathBuf, Error> {
    match given {
        Some(folder) if folder.is_dir() => Ok(folder.to_owned()),
        Some(other) => Err(Error::parameters(format!(
            "--on {}: give a folder that exists; files for the bench are made in it and removed",
            other.display()
        ))),
        None if Path::new(SHARED_MEMORY).is_dir() => Ok(SHARED_MEMORY.into()),
        None => Ok(std::env::temp_dir()),
    }
}

/// All media, `bytes` bytes of data each, and what makes stores to the mapped file durable.
pub fn make(bytes: u64, folder: &Path) -> Result<(Vec<Place>, String), Error> {
    let table_bytes = bytes
        .saturating_add(bytes / 256)
        .saturating_add(TABLE_LEAST);
    let needed = bytes.saturating_add(table_bytes).saturating_mul(2);
    if let Some(available) = available_memory()
        && needed > available
    {
        return Err(Error::parameters(format!(
            "--size {}: all media together take {} of memory, and {} are free; give a smaller --size",
            size::human(bytes),
            size::human(needed),
            size::human(available)
        )));
    }
    let ram = Arc::new(memory(bytes)?);
    let pmem = Arc::new(mapped(bytes, folder)?);
    let place = |name, plain, gate: Gate, copy| {
        Ok::<_, Error>(Place {
            name,
            plain,
            copy,
            requests: Requests::new(&gate)?,
        })
    };
    let over_ram = BttDevice::over(table(memory(table_bytes)?)?, false);
    let over_pmem = BttDevice::over(table(mapped(table_bytes, folder)?)?, false);
    let gate_of_ram = Gate::new(RamDevice::over(Arc::clone(&ram))?);
    let gate_of_pmem = Gate::new(PmemDevice::over(Arc::clone(&pmem), false));
    let how = pmem.how().to_owned();
    let (ram, pmem) = (Some(Memory::Ram(ram)), Some(Memory::Mapped(pmem)));
    let places = vec![
        place("ram", None, gate_of_ram, ram)?,
        place("pmem", None, gate_of_pmem, pmem)?,
        place("BTT over ram", Some("ram"), Gate::new(over_ram), None)?,
        place("BTT over pmem", Some("pmem"), Gate::new(over_pmem), None)?,
    ];
    Ok((places, how))
}

fn memory(bytes: u64) -> Result<SharedMemory, Error> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    SharedMemory::new(len).map_err(|error| {
        Error::memory(format!(
            "no memory for a medium: {error}; give a smaller --size"
        ))
    })
}

/// A mapped file without a name: it is gone when this program ends, however it ends.
fn mapped(bytes: u64, folder: &Path) -> Result<PersistentMemory, Error> {
    let failed = |error: &std::io::Error| {
        Error::device(format!(
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
fn table<M: Medium>(medium: M) -> Result<Arc<Btt<M>>, Error> {
    let new = NewTable {
        sector_size: BLOCK,
        uuid: [1; 16],
        is_zero: true,
    };
    let written = new.write(&medium, |_| {});
    written.map_err(|fault| Error::device(format!("cannot make a table: {fault}")))?;
    let table = Btt::open(medium, false);
    let table = table.map_err(|error| Error::device(format!("the new table: {error}")))?;
    Ok(Arc::new(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_room_for_all_blocks_and_no_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [1 << 20, 100 << 20] {
            let (places, _) = make(bytes, folder.path()).expect("media");
            assert_eq!(places.len(), 4);
            let mut buffer = Some(crate::load::buffer(BLOCK).expect("a buffer"));
            for mut place in places {
                for way in place.ways() {
                    let last = [bytes - u64::from(BLOCK)];
                    place
                        .walk(way, Direction::Write, &last, &mut buffer)
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
        assert_eq!(error.kind(), cryptline::ErrorKind::Parameters);
        assert!(folder(None).is_ok());
    }
}
