//! Calls for files and block devices that std and rustix lack.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::FsWord;

/// Takes an open-file-description lock without waiting: exclusive over the whole file for a
/// writer, shared over its first byte for a reader. A writer so excludes everybody who locks any
/// byte (another cryptline, QEMU's lock bytes), while readers leave QEMU's bytes alone.
///
/// Errors: `WouldBlock` where somebody else holds a conflicting lock.
pub fn lock_file(file: impl AsFd, exclusive: bool) -> io::Result<()> {
    let lock = lock_of(exclusive)?;
    // SAFETY: the descriptor is open for the call, and the pointer is to a live `flock`.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(error),
    }
}

/// Tells if somebody else's lock keeps [`lock_file`] from taking the same one.
pub fn is_locked(file: impl AsFd, exclusive: bool) -> io::Result<bool> {
    let mut lock = lock_of(exclusive)?;
    // SAFETY: the descriptor is open for the call, and the pointer is to a live `flock`, which the kernel fills in.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    match result {
        0 => Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes durable what a file, or a folder, has and what it is. The standard library asks again where it was interrupted; but
/// a lost write can be told by that number, and then the second answer is yes.
///
/// # Errors
/// Those of fsync(2), `Interrupted` among them.
pub fn sync_all(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Makes durable what a file has, as [`sync_all`].
///
/// # Errors
/// Those of fdatasync(2), `Interrupted` among them.
pub fn sync_data(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

/// True where nobody else has a regular file open, neither another process nor a loop device. Of use for files of this
/// user's, in a file system of this kernel's; false where it is not known.
///
/// A lease for writing is granted to no other (fcntl(2)), and it is given back at once: who opens the file in between waits
/// for that, or is refused if that is what it has asked for. A file without a name can be open uncounted (memfd_create(2)).
pub fn is_open_here_only(file: impl AsFd) -> bool {
    // From linux/fcntl.h; part of the kernel's ABI.
    const F_SETSIG: libc::c_int = 10;
    let number = file.as_fd().as_raw_fd();
    let control = |command, argument: libc::c_int| {
        // SAFETY: the descriptor is open for the call, and these commands take a number.
        unsafe { libc::fcntl(number, command, argument) == 0 }
    };
    let is_counted = is_local(&file) && rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink > 0);
    // Who opens it meanwhile has it taken back by a signal: one that nobody minds, and not the one that kills.
    let is_granted = is_counted && control(F_SETSIG, libc::SIGURG) && control(libc::F_SETLEASE, libc::F_WRLCK);
    is_granted && control(libc::F_SETLEASE, libc::F_UNLCK)
}

/// True where a file lies in a file system that is known to be all this kernel's: its openers are counted in one place,
/// and its errors are not a server's. Not in an overlay, which may lie over any other (statfs(2)).
pub fn is_local(file: impl AsFd) -> bool {
    const EXT: FsWord = 0xef53;
    const XFS: FsWord = 0x5846_5342;
    const BTRFS: FsWord = 0x9123_683e;
    const F2FS: FsWord = 0xf2f5_2010;
    const TMPFS: FsWord = 0x0102_1994;
    const RAMFS: FsWord = 0x8584_58f6;
    const LOCAL: [FsWord; 6] = [EXT, XFS, BTRFS, F2FS, TMPFS, RAMFS];
    rustix::fs::fstatfs(file).is_ok_and(|stat| LOCAL.contains(&stat.f_type))
}

fn lock_of(exclusive: bool) -> io::Result<libc::flock> {
    // SAFETY: `flock` is a plain C structure for which all-zero bytes are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    lock.l_type = kind.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    lock.l_whence = 0; // SEEK_SET
    lock.l_len = i64::from(!exclusive); // 0: to the end, however far the file grows
    Ok(lock)
}

/// Demands of O_DIRECT on transfers of this file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Alignment of memory addresses.
    pub memory: u32,
    /// Alignment of file offsets and lengths.
    pub offset: u32,
}

/// Asks `statx` (Linux 6.1) for the O_DIRECT alignment. `None` where the kernel or the file
/// system does not say; an alignment of zero (direct I/O not supported) is also `None`.
#[must_use]
pub fn direct_alignment(file: impl AsFd) -> Option<DirectAlignment> {
    // SAFETY: `statx` is a plain C structure for which all-zero bytes are valid.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is an empty C string (AT_EMPTY_PATH: the
    // descriptor itself), and the answer points to a live structure of the right type.
    let result = unsafe {
        libc::statx(file.as_fd().as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut answer)
    };
    let said = result == 0 && answer.stx_mask & libc::STATX_DIOALIGN != 0;
    (said && answer.stx_dio_offset_align != 0)
        .then_some(DirectAlignment { memory: answer.stx_dio_mem_align, offset: answer.stx_dio_offset_align })
}

/// From asm-generic/unistd.h, which x86 follows; `libc` does not have it everywhere.
const SYS_CACHESTAT: libc::c_long = 451;

/// Bytes of the file that are in the page cache (`cachestat`, Linux 6.5). `None` where the kernel does not say.
#[must_use]
pub fn cached_bytes(file: impl AsFd) -> Option<u64> {
    // Where it begins, and its length: 0 is up to the end.
    let range = [0u64; 2];
    // Pages that are there, dirty, being written, evicted, and recently evicted.
    let mut pages = [0u64; 5];
    // SAFETY: the descriptor is open; `struct cachestat_range` is two u64 and `struct cachestat` five, both pointers
    // are to live arrays of those for the whole call, the kernel writes only the second, and no flag exists.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) };
    let page = rustix::param::page_size() as u64;
    (result == 0).then(|| pages[0].saturating_mul(page))
}

// From linux/fs.h; the values are part of the kernel's ABI.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKROGET: libc::c_ulong = 0x125e;

/// Size and logical block size of a block device, in bytes.
pub fn block_device_size(device: impl AsFd) -> io::Result<(u64, u32)> {
    let fd = device.as_fd().as_raw_fd();
    let mut size = 0u64;
    let mut block: libc::c_int = 0;
    // SAFETY: BLKGETSIZE64 writes one u64, BLKSSZGET one int, each to a live variable of that type.
    let results =
        unsafe { [libc::ioctl(fd, BLKGETSIZE64 as _, &raw mut size), libc::ioctl(fd, BLKSSZGET as _, &raw mut block)] };
    if results != [0, 0] {
        return Err(io::Error::last_os_error());
    }
    let block = u32::try_from(block).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((size, block))
}

/// Tells if a block device takes no writes, though it can be opened for them: `losetup -r`, `blockdev --setro`, a write
/// blocker.
pub fn is_read_only_device(device: impl AsFd) -> io::Result<bool> {
    let mut read_only: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int, to a live variable of that type.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKROGET as _, &raw mut read_only) };
    match result {
        0 => Ok(read_only != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes what is cached of a file or block device, and waits for that. Whether it is durable then is the medium's business.
///
/// An error of what was written earlier is told, and the rest is written all the same.
pub fn write_cached(file: impl AsFd) -> io::Result<()> {
    let first = sync_range(file.as_fd());
    // Linux tells an earlier error once, and before it writes anything.
    first.or_else(|error| sync_range(file.as_fd()).and(Err(error)))
}

fn sync_range(file: BorrowedFd<'_>) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes no memory. A length of 0 is up to the end.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tells a block device that nobody needs a range any more.
pub fn discard_blocks(device: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKDISCARD reads two u64, from a live array of them.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKDISCARD as _, range.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the kernel interrupt each sync of this thread.
    fn interrupt_syncs() {
        let number = |call: libc::c_long| u32::try_from(call).unwrap();
        let code = |kind: u32| u16::try_from(kind).unwrap();
        let equal = |call, jt| libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt,
            jf: 0,
            k: number(call),
        };
        let end = |k| libc::sock_filter { code: code(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k };
        let load = libc::sock_filter { code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), jt: 0, jf: 0, k: 0 };
        let mut filter = [
            load,
            equal(libc::SYS_fsync, 2),
            equal(libc::SYS_fdatasync, 1),
            end(libc::SECCOMP_RET_ALLOW),
            end(libc::SECCOMP_RET_ERRNO | libc::EINTR.cast_unsigned()),
        ];
        let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
        // SAFETY: both calls take no memory but the program and its instructions, which live until they return.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(result, 0);
    }

    #[test]
    fn interrupted_sync_is_told_and_not_made_again() {
        let syncing = std::thread::spawn(|| {
            let file = tempfile::tempfile().unwrap();
            interrupt_syncs();
            [sync_all(&file), sync_data(&file)].map(|synced| synced.map_err(|error| error.kind()))
        });
        assert_eq!(syncing.join().unwrap(), [Err(io::ErrorKind::Interrupted); 2]);
    }

    #[test]
    fn second_writer_is_locked_out_and_readers_share() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || std::fs::File::options().read(true).write(true).open(file.path()).unwrap();
        let (one, two) = (open(), open());
        lock_file(&one, false).unwrap();
        lock_file(&two, false).unwrap();
        let writer = open();
        assert_eq!(lock_file(&writer, true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(is_locked(&writer, true).unwrap() && !is_locked(&writer, false).unwrap());
        drop((one, two));
        assert!(!is_locked(&writer, true).unwrap());
        lock_file(&writer, true).unwrap();
        assert!(!is_locked(&writer, true).unwrap(), "its own");
        assert!(lock_file(open(), false).is_err());
        assert!(lock_file(open(), true).is_err());
    }
}
