//! The media, and the ways of a page to them and back.
//!
//! ```text
//! Memcpy    the medium's own copy, and nothing else
//! OnStack   a request as a value, through gate and queue: the ordinary path of everything else
//! Heap      the same, but each request has a heap allocation of its own, as a bio had
//! ```

use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline::size;
use cryptline_engine::base::{PersistentMemory, PmemDevice, RamDevice};
use cryptline_engine::btt::{Btt, BttDevice, BttMedium, NewTable};
use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Submitted};
use cryptline_sys::SharedMemory;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::BLOCK;
use crate::error::{Of as _, Result, fail};
use crate::load::request;
use crate::report::{DataDirection, word};
use crate::volume::check_memory;

/// Where Linux has a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// Space of a table beside its sectors, at most: its least size, and a 256th of it.
const TABLE_LEAST: u64 = 17 << 20;

/// How a page comes to a medium, in the order of the tables.
pub const MEMCPY: &str = "memcpy";
pub const ON_STACK: &str = "on-stack request";
pub const HEAP: &str = "heap request";

/// One way to one medium.
pub struct MediumPath {
    /// For people.
    pub medium: &'static str,
    pub name: &'static str,
    walk: Walk,
}

impl MediumPath {
    /// Moves the blocks at `offsets`.
    pub fn walk(&mut self, direction: DataDirection, offsets: &[u64], slot: &mut Option<Buffer>) -> Result<()> {
        // Only what failed is put in words: that allocates.
        (self.walk)(direction, offsets, slot).or_else(|fault| {
            Err(fault).of(format_args!("{}: a {} by {} failed", self.medium, word(&direction), self.name))
        })
    }
}

/// The folder for mapped files.
pub fn folder(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(folder) if folder.is_dir() => Ok(folder.to_owned()),
        Some(other) => {
            fail!("--on {}: use a folder that exists; files are made in it and removed", other.display())
        }
        None if Path::new(SHARED_MEMORY).is_dir() => Ok(SHARED_MEMORY.into()),
        None => Ok(std::env::temp_dir()),
    }
}

/// The ways to all media, `bytes` bytes of data each, and what makes stores to the mapped file durable.
pub fn make(bytes: u64, folder: &Path) -> Result<(Vec<MediumPath>, String)> {
    let table_bytes = bytes.saturating_add(bytes / 256).saturating_add(TABLE_LEAST);
    let needed = bytes.saturating_add(table_bytes).saturating_mul(2);
    check_memory(bytes, needed, " for all media together")?;
    let ram = Arc::new(memory(bytes)?);
    let pmem = Arc::new(mapped(bytes, folder)?);
    let how = pmem.how().to_owned();
    let over_ram = BttDevice::over(table(memory(table_bytes)?)?, false);
    let over_pmem = BttDevice::over(table(mapped(table_bytes, folder)?)?, false);
    let mut ways = Vec::new();
    for (medium, gate, copy) in [
        ("ram", Gate::new(RamDevice::over(Arc::clone(&ram))?), Some(copies(ram))),
        ("pmem", Gate::new(PmemDevice::over(Arc::clone(&pmem), false)), Some(copies(pmem))),
        // A copy into the middle of a table would destroy it.
        ("BTT over ram", Gate::new(over_ram), None),
        ("BTT over pmem", Gate::new(over_pmem), None),
    ] {
        let requests = [(ON_STACK, requests::<false>(&gate)?), (HEAP, requests::<true>(&gate)?)];
        let all = copy.map(|copy| (MEMCPY, copy)).into_iter().chain(requests);
        ways.extend(all.map(|(name, walk)| MediumPath { medium, name, walk }));
    }
    Ok((ways, how))
}

fn memory(bytes: u64) -> Result<SharedMemory> {
    SharedMemory::new(usize::try_from(bytes)?).of("no memory for a medium; use a smaller --size")
}

/// A mapped file without a name: it is gone when this program ends, however it ends.
fn mapped(bytes: u64, folder: &Path) -> Result<PersistentMemory> {
    let file = tempfile::Builder::new().prefix(".cryptline-bench-").tempfile_in(folder);
    let file = file.and_then(|file| reserve(file.as_file(), bytes).map(|()| file));
    let file = file.of(format_args!(
        "{}: no file of {}; name another folder with --on",
        folder.display(),
        size::human(bytes)
    ))?;
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
fn table<M: BttMedium>(medium: M) -> Result<Arc<Btt<M>>> {
    let new = NewTable { sector_size: BLOCK, uuid: [1; 16], is_zero: true };
    new.write(&medium, |_| {}).of("cannot make a table")?;
    Ok(Arc::new(Btt::open(medium, false).of("the new table")?))
}

/// Entries of a ring that nothing is ever put into.
const RING_ENTRIES: u32 = 8;

/// Moves the blocks at some offsets, all from or into the buffer, which is lost with a request that
/// fails.
type Walk = Box<dyn FnMut(DataDirection, &[u64], &mut Option<Buffer>) -> Result<(), Fault>>;

/// Copies blocks out of a medium or into it.
fn copies(memory: Arc<impl BttMedium + 'static>) -> Walk {
    Box::new(move |direction, offsets, slot| {
        let block = slot.as_deref_mut().ok_or(Fault::NotSupported)?;
        for &offset in offsets {
            match direction {
                DataDirection::Read => memory.read(offset, block)?,
                DataDirection::Write => memory.store(offset, block)?,
            }
            black_box(&mut *block);
        }
        Ok(())
    })
}

/// Moves blocks by requests through a gate, each in a box of its own until it has ended where they are
/// to come from the heap. All media here answer at once; one that does not is not what is measured.
fn requests<const HEAP: bool>(gate: &Gate) -> Result<Walk> {
    let mut channel = Channel::open(gate, BackendChoice::Auto, RING_ENTRIES)?;
    Ok(Box::new(move |direction, offsets, slot| {
        let mut buffer = slot.take().ok_or(Fault::NotSupported)?;
        for &offset in offsets {
            let request = request(direction, offset, buffer, 0);
            let submitted = if HEAP {
                let mut boxed = Box::new(Some(request));
                // The compiler must not see that the box is not needed.
                let request = black_box(&mut *boxed).take().ok_or(Fault::NotSupported)?;
                channel.submit(request)
            } else {
                channel.submit(request)
            };
            let Submitted::Done(Completion { request, result }) = submitted else {
                return Err(Fault::NotSupported);
            };
            result?;
            buffer = request.data.ok_or(Fault::NotSupported)?;
            black_box(&mut *buffer);
        }
        *slot = Some(buffer);
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_room_for_all_blocks_and_no_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [1 << 20, 100 << 20] {
            let (ways, _) = make(bytes, folder.path()).expect("media");
            assert_eq!(ways.len(), 2 * 3 + 2 * 2);
            let mut buffer = Some(crate::load::buffer(BLOCK).expect("a buffer"));
            for mut way in ways {
                let last = [bytes - u64::from(BLOCK)];
                way.walk(DataDirection::Write, &last, &mut buffer).expect("room");
            }
        }
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let error = folder(Some(Path::new("/no/such/folder"))).expect_err("none");
        assert!(error.to_string().starts_with("--on /no/such/folder"), "{error}");
        assert!(folder(None).is_ok());
    }
}
