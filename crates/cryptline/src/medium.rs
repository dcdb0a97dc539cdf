//! Anything with a size that can be read, written and flushed, as a place for a volume.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::Arc;

use cryptline_engine::queue::Immediate;
use cryptline_engine::{Device, Fault, Geometry, Op, OpenError, Queue, Request, Ring, Traits, ZEROS};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// A place for encrypted bytes that the caller brings along.
///
/// Its calls block, and so does the thread that submits a request: each is carried out before `submit`
/// returns, on that thread. Several threads may call at the same time. What it writes need not be durable
/// before [`flush`](Self::flush) returns; what was written before a flush must be durable then, whichever
/// thread wrote it.
pub trait Medium: Send + Sync + 'static {
    /// Its size in bytes. Never changes.
    fn size(&self) -> u64;

    /// Fills `target` from `offset`.
    ///
    /// # Errors
    /// Where not all of it can be read.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()>;

    /// Writes all of `source` at `offset`.
    ///
    /// # Errors
    /// Where not all of it could be written. `StorageFull` is told from other failures.
    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()>;

    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// Where that is not known to be so. Later flushes of the volume fail then, too.
    fn flush(&self) -> io::Result<()>;

    /// Offsets and lengths of all calls are multiples of this: a power of two from 512 to 4096.
    fn block_size(&self) -> u32 {
        512
    }

    /// Tells if it cannot be written.
    fn is_read_only(&self) -> bool {
        false
    }
}

impl<M: Medium + Sync + ?Sized> Medium for Arc<M> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, target)
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, source)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn block_size(&self) -> u32 {
        (**self).block_size()
    }

    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
}

/// A file or block device as it is, for programs that have one open: nothing is locked.
///
/// Read-only where the file was not opened for writing. One that was opened for appending is so, too: the system would
/// put everything at its end, wherever it belongs.
impl Medium for File {
    fn size(&self) -> u64 {
        match self.metadata() {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                cryptline_sys::block_device_size(self).map_or(0, |(size, _)| size)
            }
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        }
    }

    fn is_read_only(&self) -> bool {
        let takes_writes = |flags: OFlags| flags & OFlags::RWMODE != OFlags::RDONLY && !flags.contains(OFlags::APPEND);
        // A block device that takes none can be opened for them.
        let is_device = self.metadata().is_ok_and(|it| it.file_type().is_block_device());
        let refuses = || is_device && !matches!(cryptline_sys::is_read_only_device(self), Ok(false));
        !rustix::fs::fcntl_getfl(self).is_ok_and(takes_writes) || refuses()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(target, offset)
    }

    fn write_at(&self, offset: u64, source: &[u8]) -> io::Result<()> {
        self.write_all_at(source, offset)
    }

    fn flush(&self) -> io::Result<()> {
        cryptline_sys::sync_data(self)
    }
}

/// A medium as a device. It answers at once: a request is done when `submit` returns.
pub(crate) struct MediumDevice {
    medium: Arc<dyn Medium>,
    geometry: Geometry,
}

impl MediumDevice {
    pub fn new(medium: Arc<dyn Medium>, read_only: bool) -> Result<Self, OpenError> {
        let block = medium.block_size();
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return Err(OpenError::Geometry(format!(
                "a medium with blocks of {block} bytes cannot be used; they must be a power of two from 512 to 4096"
            )));
        }
        let (size, read_only) = (medium.size(), read_only || medium.is_read_only());
        let geometry = Geometry {
            preferred_block: block.max(4096),
            read_only,
            write_zeroes: !read_only,
            ..Geometry::plain(size - size % u64::from(block), block)
        };
        Ok(Self { medium, geometry })
    }
}

impl Device for MediumDevice {
    fn traits(&self) -> Traits {
        Traits::immediate(self.geometry)
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Ok(Box::new(MediumQueue(Arc::clone(&self.medium))))
    }
}

struct MediumQueue(Arc<dyn Medium>);

impl Immediate for MediumQueue {
    fn answer(&mut self, request: &mut Request) -> Result<(), Fault> {
        let (medium, offset) = (&self.0, request.offset);
        let done = match (request.op, &mut request.data) {
            (Op::Read, Some(buffer)) => medium.read_at(offset, buffer),
            (op @ (Op::Write | Op::WriteFua), Some(data)) => match medium.write_at(offset, data) {
                Ok(()) if op.is_sync() => return medium.flush().map_err(|error| fault_of_flush(&error)),
                written => written,
            },
            (Op::Zero | Op::ZeroUnmap, _) => zero(&**medium, offset, request.len),
            (Op::Flush, _) => return medium.flush().map_err(|error| fault_of_flush(&error)),
            _ => return Err(Fault::NotSupported),
        };
        let fault = |error| if request.op.changes() { fault_of(&error).unrefused() } else { fault_of(&error) };
        done.map_err(fault)
    }
}

fn zero(medium: &dyn Medium, offset: u64, len: u64) -> io::Result<()> {
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let piece = usize::try_from(end - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        medium.write_at(at, &ZEROS[..piece])?;
        at += piece as u64;
    }
    Ok(())
}

/// Returns the fault of a flush: data that finds no room then was acknowledged before.
fn fault_of_flush(error: &io::Error) -> Fault {
    match fault_of(error) {
        Fault::NoSpace => Fault::Io(Errno::NOSPC),
        fault => fault,
    }
}

fn fault_of(error: &io::Error) -> Fault {
    match (Errno::from_io_error(error), error.kind()) {
        (Some(errno), _) => match Fault::from(errno) {
            // A refusal would say that nothing was done, which nobody knows of a medium that was called.
            fault if fault.is_refusal() => Fault::Io(Errno::IO),
            fault => fault,
        },
        (None, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Fault::NoSpace,
        (None, io::ErrorKind::UnexpectedEof) => Fault::Truncated,
        _ => Fault::Io(Errno::IO),
    }
}
