//! Reading and writing at an offset, with errors that say where.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use crate::error::Error;

/// Bytes that can be read at any place, such as a device with a header.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Fills `out` from `offset`. A device that ends early is [`Error::Truncated`]; `what` names
/// what lies there.
pub(crate) fn read_at(
    device: &mut (impl Read + Seek + ?Sized),
    offset: u64,
    out: &mut [u8],
    what: &str,
) -> Result<(), Error> {
    let done = device.seek(SeekFrom::Start(offset)).and_then(|_| device.read_exact(out));
    match done {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            let size = device.seek(SeekFrom::End(0)).unwrap_or(0);
            let needed = offset.saturating_add(to_u64(out.len()));
            let what = what.to_owned();
            Err(Error::Truncated { what, needed, size })
        }
        done => done.map_err(|source| Error::Io { action: "read", offset, source }),
    }
}

/// Writes all of `data` at `offset`.
pub(crate) fn write_at(device: &mut (impl Write + Seek), offset: u64, data: &[u8]) -> Result<(), Error> {
    let done = device.seek(SeekFrom::Start(offset)).and_then(|_| device.write_all(data));
    done.map_err(|source| write_error(offset, source))
}

/// A barrier: what was written before is on the device before what is written after.
pub(crate) fn flush(device: &mut impl Write) -> Result<(), Error> {
    device.flush().map_err(|source| write_error(0, source))
}

/// Makes one write after the other, each durable before the next is begun.
pub(crate) fn write_in_order(device: &mut (impl Write + Seek), writes: &[(u64, Vec<u8>)]) -> Result<(), Error> {
    for (offset, bytes) in writes {
        write_at(device, *offset, bytes)?;
        flush(device)?;
    }
    Ok(())
}

/// Fails with [`Error::Truncated`] unless `end <= size`.
pub(crate) fn check_end(what: impl FnOnce() -> String, end: u64, size: u64) -> Result<(), Error> {
    if end <= size {
        return Ok(());
    }
    let (what, needed) = (what(), end);
    Err(Error::Truncated { what, needed, size })
}

/// A length in memory as a length on a device.
pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).expect("no supported machine has pointers of more than 64 bits")
}

fn write_error(offset: u64, source: std::io::Error) -> Error {
    let action = "write";
    Error::Io { action, offset, source }
}
