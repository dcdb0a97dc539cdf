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
use super::ways::{Walk, Way, copies, requests};
use crate::Error;
use crate::report::{Direction, word};
use crate::volume::check_memory;

/// Where Linux has a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// What a table takes beside its sectors, at most: its least size, and a 256th of it.
const TABLE_LEAST: u64 = 17 << 20;

/// One medium, and every way to it.
pub struct Place {
    /// For people.
    pub name: &'static str,
    /// The name of the medium that a bare copy can go to: this one's, or that below a table.
    pub plain: &'static str,
    ways: Vec<(Way, Walk)>,
}

impl Place {
    /// A copy into the middle of a table would destroy it: only other media have one.
    fn new(name: &'static str, plain: &'static str, gate: &Gate, copy: Option<Walk>) -> Result<Self, Error> {
        let mut ways = vec![(Way::OnStack, requests::<false>(gate)?), (Way::Heap, requests::<true>(gate)?)];
        if let Some(copy) = copy {
            ways.insert(0, (Way::Memcpy, copy));
        }
        Ok(Self { name, plain, ways })
    }

    /// The ways that there are.
    pub fn ways(&self) -> Vec<Way> {
        self.ways.iter().map(|(way, _)| *way).collect()
    }

    /// Moves the blocks at `offsets` by a way.
    pub fn walk(
        &mut self,
        way: Way,
        direction: Direction,
        offsets: &[u64],
        slot: &mut Option<Buffer>,
    ) -> Result<(), Error> {
        let mut ways = self.ways.iter_mut();
        let found = ways.find(|(found, _)| *found == way);
        let walked = found.map_or(Err(Fault::NotSupported), |(_, walk)| walk(direction, offsets, slot));
        walked.map_err(|fault| {
            let (name, direction, way) = (self.name, word(&direction), way.name());
            Error::device(format!("{name}: a {direction} by {way} failed: {fault}"))
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
    let table_bytes = bytes.saturating_add(bytes / 256).saturating_add(TABLE_LEAST);
    let needed = bytes.saturating_add(table_bytes).saturating_mul(2);
    check_memory(bytes, needed, " for all media together")?;
    let ram = Arc::new(memory(bytes)?);
    let pmem = Arc::new(mapped(bytes, folder)?);
    let how = pmem.how().to_owned();
    let over_ram = BttDevice::over(table(memory(table_bytes)?)?, false);
    let over_pmem = BttDevice::over(table(mapped(table_bytes, folder)?)?, false);
    let gate_of_ram = Gate::new(RamDevice::over(Arc::clone(&ram))?);
    let gate_of_pmem = Gate::new(PmemDevice::over(Arc::clone(&pmem), false));
    let places = vec![
        Place::new("ram", "ram", &gate_of_ram, Some(copies(ram)))?,
        Place::new("pmem", "pmem", &gate_of_pmem, Some(copies(pmem)))?,
        Place::new("BTT over ram", "ram", &Gate::new(over_ram), None)?,
        Place::new("BTT over pmem", "pmem", &Gate::new(over_pmem), None)?,
    ];
    Ok((places, how))
}

fn memory(bytes: u64) -> Result<SharedMemory, Error> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    SharedMemory::new(len)
        .map_err(|error| Error::memory(format!("no memory for a medium: {error}; give a smaller --size")))
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
    let file =
        tempfile::Builder::new().prefix(".cryptline-bench-").tempfile_in(folder).map_err(|error| failed(&error))?;
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
    let new = NewTable { sector_size: BLOCK, uuid: [1; 16], is_zero: true };
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
                    place.walk(way, Direction::Write, &last, &mut buffer).expect("room");
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
