//! Volumes: open, read, write, flush and the like, from any thread.

use std::ffi::{c_char, c_int, c_void};

use cryptline::Disk;

use crate::call::{CallFailure, Out, Outcome, bytes, bytes_mut, call, give_text, text};
use crate::handle::{HandleTable, HandleUse};
use crate::options::{cryptline_open_options, options};

/// An open volume: the decrypted disk. Any thread may use it.
pub struct cryptline_volume {
    _opaque: [u8; 0],
}

/// The write is durable when it returns.
pub const CRYPTLINE_FUA: u32 = 1;
/// No space is allocated for the run.
pub const CRYPTLINE_HOLE: u32 = 1;
/// The run is known to read as zeros.
pub const CRYPTLINE_ZERO: u32 = 1 << 1;

/// A run of bytes in one state of allocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// CRYPTLINE_HOLE, CRYPTLINE_ZERO.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

static VOLUMES: HandleTable<Disk> = HandleTable::new("volume");

pub(crate) fn disk(volume: *const cryptline_volume) -> Outcome<HandleUse<Disk>> {
    VOLUMES.get(volume)
}

/// Opens what `target` names: a path, `ram:SIZE`, an NBD URI, `disk.img?partition=2` and so on. Without options it is a
/// LUKS volume that is read and written, and nothing opens it: give a key. `*volume` is null where it fails.
///
/// -EKEYREJECTED: no key slot opens with this key. -EBUSY: another program has it open.
///
/// # Safety
/// `volume` is a place for a handle, `target` a text; `given` is null or points to options whose pointers are null or
/// what their fields say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_open(
    volume: *mut *mut cryptline_volume,
    target: *const c_char,
    given: *const cryptline_open_options,
) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same of each.
        let (place, open) = unsafe {
            let place = Out::new(volume, "the place for the volume")?;
            place.set(std::ptr::null_mut());
            let target = text(target, "the target")?;
            (place, options(given)?.open(target)?)
        };
        place.set(VOLUMES.add(open.open()?.disk()?));
        Ok(())
    })
}

/// Closes a volume. It waits for calls under way in other threads; queues and servers over it go on until they are
/// closed, and the volume stays open until then. Nothing is flushed: what must be durable is to be flushed first.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_close(volume: *mut cryptline_volume) -> c_int {
    call(|| VOLUMES.take(volume).map(drop))
}

/// Bytes of the decrypted disk, in `*size`.
///
/// # Safety
/// `size` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_size(volume: *mut cryptline_volume, size: *mut u64) -> c_int {
    call(|| {
        // SAFETY: the caller promises the same.
        let place = unsafe { Out::new(size, "the place for the size") }?;
        place.set(disk(volume)?.size());
        Ok(())
    })
}

/// Reads `len` bytes from `offset` on; all of them, or it fails. Any offset and length will do.
///
/// # Safety
/// `len` bytes can be written at `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_read(
    volume: *mut cryptline_volume,
    target: *mut c_void,
    len: usize,
    offset: u64,
) -> c_int {
    call(|| {
        let disk = disk(volume)?;
        // SAFETY: the caller promises the same.
        let target = unsafe { bytes_mut(target, len, "the buffer") }?;
        Ok(disk.read_at(offset, target)?)
    })
}

/// Writes `len` bytes at `offset`; all of them, or it fails. `flags`: CRYPTLINE_FUA. Any offset and length will do, but
/// for volumes that others write to (CRYPTLINE_SHARED) and zoned ones: -EINVAL for what is not whole blocks.
///
/// # Safety
/// `len` bytes can be read at `source`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_write(
    volume: *mut cryptline_volume,
    source: *const c_void,
    len: usize,
    offset: u64,
    flags: u32,
) -> c_int {
    call(|| {
        let disk = disk(volume)?;
        let durable = is_durable(flags)?;
        // SAFETY: the caller promises the same.
        let source = unsafe { bytes(source, len, "the buffer") }?;
        Ok(disk.write_at(offset, source, durable)?)
    })
}

pub(crate) fn is_durable(flags: u32) -> Outcome<bool> {
    if flags & !CRYPTLINE_FUA != 0 {
        let text = format!("flags {flags:#x} of a write: only CRYPTLINE_FUA has a meaning");
        return Err(CallFailure::invalid(text));
    }
    Ok(flags & CRYPTLINE_FUA != 0)
}

/// Makes everything durable that was written, by whichever thread. Once it has failed it fails until the volume is
/// opened again: what was written may be lost.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_flush(volume: *mut cryptline_volume) -> c_int {
    call(|| Ok(disk(volume)?.flush()?))
}

/// Says that a range is no longer needed; what it holds is then unspecified. -EOPNOTSUPP without CRYPTLINE_DISCARDS.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_discard(volume: *mut cryptline_volume, offset: u64, len: u64) -> c_int {
    call(|| Ok(disk(volume)?.discard(offset, len)?))
}

/// Makes a range read as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn cryptline_zero(volume: *mut cryptline_volume, offset: u64, len: u64) -> c_int {
    call(|| Ok(disk(volume)?.write_zeroes(offset, len)?))
}

/// Allocation from `offset` on, as far as it is known: up to `room` runs, one behind the other; `*count` says how many.
/// Go on behind the last of them until the disk ends.
///
/// # Safety
/// `room` extents can be written at `extents`; `count` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_extents(
    volume: *mut cryptline_volume,
    offset: u64,
    extents: *mut cryptline_extent,
    room: usize,
    count: *mut usize,
) -> c_int {
    call(|| {
        let disk = disk(volume)?;
        // SAFETY: the caller promises the same.
        let place = unsafe { Out::new(count, "the place for the count") }?;
        place.set(0);
        if extents.is_null() || !extents.is_aligned() || room == 0 {
            return Err(CallFailure::invalid("there is no room for extents"));
        }
        let mut at = offset;
        for (index, extent) in disk.extents(offset).take(room).enumerate() {
            let extent = extent?;
            let hole = if extent.hole { CRYPTLINE_HOLE } else { 0 };
            let zero = if extent.zero { CRYPTLINE_ZERO } else { 0 };
            let run = cryptline_extent { offset: at, length: extent.len, flags: hole | zero, reserved: 0 };
            // SAFETY: `index` is less than `room`, of which the caller promises that they can be written; the place
            // is not null and aligned (checked above), and extents are plain values.
            unsafe { extents.add(index).write(run) };
            place.set(index + 1);
            at += extent.len;
        }
        Ok(())
    })
}

/// Description of the disk, as a JSON object in `text`, with a zero byte behind it: cipher, size, warnings and so on.
/// `*needed` (if not null) says how many bytes that takes; -ERANGE where `room` is less.
///
/// # Safety
/// `room` bytes can be written at `target`; `needed` is null or a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cryptline_info(
    volume: *mut cryptline_volume,
    target: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    call(|| {
        let json = disk(volume)?.volume().to_json();
        // SAFETY: the caller promises the same.
        unsafe { give_text(&json, target, room, needed) }
    })
}
