//! The messages of `/dev/fuse`: bytes in, values out, and back. Protocol 7.31 (Linux 5.4) and later.
//!
//! ```text
//! request   header 40 │ arguments │ data        answer   header 16 │ values or data
//!           └─────── HEAD 80 ─────┘ page-aligned
//! ```
//!
//! The header and arguments of a write have [`HEAD`] bytes together, so its data begins right behind.
//! Numbers are in the machine's byte order.

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Bytes in front of the data of a write.
pub const HEAD: usize = 80;
/// Bytes of a request's header.
pub const IN_HEADER: usize = 40;
/// Bytes of an answer's header.
pub const OUT_HEADER: usize = 16;
/// A write with one of these flags is durable: past the page cache, nobody but the server can make it so.
const DURABLE: u32 = OFlags::DSYNC.bits() | OFlags::SYNC.bits();
/// The longest name that is looked at.
pub const NAME_MAX: usize = 255;

/// The number of each call.
mod code {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
}

/// Where an answer belongs, and what the call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader {
    pub unique: u64,
    pub node: u64,
}

/// A call with its arguments.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack; names are rare")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseCall {
    Init(Init),
    Lookup(EntryName),
    /// Wants no answer.
    Forget,
    GetAttributes,
    SetAttributes(AttributeChange),
    Open {
        flags: u32,
    },
    OpenFolder,
    Read {
        offset: u64,
        size: u32,
    },
    /// Its data is behind the head.
    Write {
        offset: u64,
        size: u32,
        /// On the medium before it is answered.
        durable: bool,
    },
    Sync,
    Release,
    ReadFolder {
        offset: u64,
        size: u32,
    },
    Statistics,
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    Ioctl {
        command: u32,
    },
    Destroy,
    /// Makes, removes or renames a file.
    Arrange,
    /// Whatever else there is.
    Other,
}

/// The attributes that are to change. Times are not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    pub size: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Offer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    pub major: u32,
    pub minor: u32,
    pub readahead: u32,
    pub flags: u64,
}

/// A name in a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryName {
    bytes: [u8; NAME_MAX],
    len: usize,
}

impl EntryName {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Debug for EntryName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// One message of `len` bytes: the first [`HEAD`] in `head`, more of it in `rest`. `None` where it is too short
/// to be answered; an error number where its arguments are not whole.
pub fn parse(head: &[u8], rest: &[u8], len: usize) -> Option<(CallHeader, Result<FuseCall, Errno>)> {
    let header = head.get(..len.min(head.len()))?;
    let header = ByteFields(header.get(..IN_HEADER)?);
    let (said, opcode) = (header.word(0)?, header.word(4)?);
    let of = CallHeader { unique: header.long(8)?, node: header.long(16)? };
    let arguments = &head[IN_HEADER..len.min(head.len())];
    let is_whole = usize::try_from(said) == Ok(len);
    let call = if is_whole { call(opcode, ByteFields(arguments), rest, len - IN_HEADER) } else { None };
    Some((of, call.ok_or(Errno::INVAL)))
}

/// `len` is that of the arguments and the data.
fn call(opcode: u32, arguments: ByteFields<'_>, rest: &[u8], len: usize) -> Option<FuseCall> {
    Some(match opcode {
        code::INIT => FuseCall::Init(init(arguments)?),
        code::LOOKUP => FuseCall::Lookup(name(arguments, rest, len)?),
        code::FORGET | code::BATCH_FORGET => FuseCall::Forget,
        code::GETATTR => FuseCall::GetAttributes,
        code::SETATTR => FuseCall::SetAttributes(change(arguments, rest, len)?),
        code::OPEN => FuseCall::Open { flags: arguments.word(0)? },
        code::OPENDIR => FuseCall::OpenFolder,
        code::READ => FuseCall::Read { offset: arguments.long(8)?, size: arguments.word(16)? },
        code::WRITE => {
            let size = arguments.word(16)?;
            let data = len.checked_sub(HEAD - IN_HEADER)?;
            (usize::try_from(size) == Ok(data)).then_some(())?;
            // The file's flags, and those of this write alone.
            let flags = arguments.word(32)?;
            FuseCall::Write { offset: arguments.long(8)?, size, durable: flags & DURABLE != 0 }
        }
        code::FSYNC => FuseCall::Sync,
        code::RELEASE | code::RELEASEDIR | code::FSYNCDIR => FuseCall::Release,
        code::READDIR => FuseCall::ReadFolder { offset: arguments.long(8)?, size: arguments.word(16)? },
        code::STATFS => FuseCall::Statistics,
        code::FALLOCATE => {
            FuseCall::Allocate { offset: arguments.long(8)?, length: arguments.long(16)?, mode: arguments.word(24)? }
        }
        code::LSEEK => FuseCall::Seek { offset: arguments.long(8)?, whence: arguments.word(16)? },
        code::IOCTL => FuseCall::Ioctl { command: arguments.word(12)? },
        code::DESTROY => FuseCall::Destroy,
        code::SYMLINK
        | code::MKNOD
        | code::MKDIR
        | code::UNLINK
        | code::RMDIR
        | code::RENAME
        | code::RENAME2
        | code::LINK
        | code::CREATE => FuseCall::Arrange,
        _ => FuseCall::Other,
    })
}

fn change(arguments: ByteFields<'_>, rest: &[u8], len: usize) -> Option<AttributeChange> {
    const HAS_SIZE: u32 = 1 << 3;
    let valid = arguments.word(0)?;
    let size = arguments.long(16)?;
    // Behind the head: `bit` says whether the word at `at` counts.
    let word = |bit: u32, at: usize| {
        if valid & bit == 0 {
            return Some(None);
        }
        (len >= at + 4).then_some(())?;
        ByteFields(rest).word(at - (HEAD - IN_HEADER)).map(Some)
    };
    Some(AttributeChange {
        size: (valid & HAS_SIZE != 0).then_some(size),
        mode: word(1 << 0, 68)?,
        uid: word(1 << 1, 76)?,
        gid: word(1 << 2, 80)?,
    })
}

fn init(arguments: ByteFields<'_>) -> Option<Init> {
    let low = arguments.word(12)?;
    // A kernel without the second word of flags may leave it out.
    let high = match low & u32::try_from(flag::INIT_EXT).unwrap_or(0) {
        0 => 0,
        _ => arguments.word(16)?,
    };
    Some(Init {
        major: arguments.word(0)?,
        minor: arguments.word(4)?,
        readahead: arguments.word(8)?,
        flags: u64::from(low) | u64::from(high) << 32,
    })
}

/// A name with the zero behind it, of which the first bytes are among the arguments.
fn name(arguments: ByteFields<'_>, rest: &[u8], len: usize) -> Option<EntryName> {
    let mut name = EntryName { bytes: [0; NAME_MAX], len: len.checked_sub(1)? };
    // A longer one is nobody's: cut, it would have been found too late.
    let target = name.bytes.get_mut(..name.len)?;
    let mut bytes = arguments.0.iter().chain(rest);
    for byte in target {
        *byte = *bytes.next()?;
    }
    (bytes.next() == Some(&0)).then_some(name)
}

/// Flags that kernel and server agree on at the start.
pub mod flag {
    /// Reads ahead side by side.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Writes of more than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// Asynchronous direct I/O side by side.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups in a folder side by side.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// `max_pages` counts.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// There is a second word of flags.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Files opened for direct I/O can be mapped.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Requests come through io_uring, once all queues are there. Until then nobody's does.
    pub const OVER_IO_URING: u64 = 1 << 41;

    /// All that this server makes use of.
    pub const ALL: u64 =
        ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES | INIT_EXT | DIRECT_IO_ALLOW_MMAP;
}

/// The protocol that is spoken; minor 31 came with Linux 5.4.
pub const MAJOR: u32 = 7;
/// The oldest minor version that will do.
pub const MINOR_MIN: u32 = 31;
/// The newest minor version that this server knows.
const MINOR: u32 = 38;
/// Asynchronous requests of all programs together that the kernel lets be under way.
const BACKGROUND_MAX: u16 = 256;

/// Which file an answer to an open describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedFile {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
    Folder,
}

/// Properties of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    pub node: u64,
    pub size: u64,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub time: u64,
    /// Preferred size of I/O in bytes.
    pub block: u32,
    /// For how many seconds the kernel need not ask again.
    pub kept: u64,
}

impl FileAttributes {
    /// Tells if a change leaves size, permissions and owner as they are. They are those of the server.
    pub fn is_kept_by(&self, change: AttributeChange) -> bool {
        const PERMISSIONS: u32 = 0o7777;
        let mode = |mode: u32| mode & PERMISSIONS == self.mode & PERMISSIONS;
        change.size.is_none_or(|size| size == self.size)
            && change.mode.is_none_or(mode)
            && change.uid.is_none_or(|uid| uid == self.uid)
            && change.gid.is_none_or(|gid| gid == self.gid)
    }
}

/// Nothing changes behind the kernel's back: it may keep what it was told for so many seconds.
pub const KEPT: u64 = 3600;
/// But for a disk, which may grow.
pub const KEPT_OF_DISK: u64 = 1;

/// The bytes of an answer behind its header. What does not fit is left out.
pub struct Body {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Body {
    /// Bytes that fit.
    pub const CAPACITY: usize = 2048;

    pub fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends `bytes`; `false`, and nothing appended, where they do not fit.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let target = self.bytes.get_mut(self.len..self.len + bytes.len());
        let fits = target.is_some();
        if let Some(target) = target {
            target.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        fits
    }

    pub fn half(&mut self, value: u16) {
        self.push(&value.to_ne_bytes());
    }

    pub fn word(&mut self, value: u32) {
        self.push(&value.to_ne_bytes());
    }

    pub fn long(&mut self, value: u64) {
        self.push(&value.to_ne_bytes());
    }

    /// The answer to INIT.
    pub fn init(&mut self, offered: &Init, wanted: u64, write_max: u32, pages: u16) {
        let flags = offered.flags & wanted;
        // The low word, then the high one.
        let [low, high] = [flags & 0xffff_ffff, flags >> 32].map(|word| {
            let word: u32 = word.try_into().unwrap_or(0);
            word
        });
        self.word(MAJOR);
        self.word(MINOR.min(offered.minor));
        self.word(offered.readahead);
        self.word(low);
        self.half(BACKGROUND_MAX);
        self.half(BACKGROUND_MAX / 4 * 3);
        self.word(write_max);
        self.word(1); // nanoseconds of a time stamp's step
        self.half(pages);
        self.half(0);
        self.word(high);
        self.push(&[0; 28]);
    }

    pub fn entry(&mut self, attributes: &FileAttributes) {
        self.long(attributes.node);
        self.long(0);
        self.long(KEPT);
        self.long(attributes.kept);
        self.long(0);
        self.stat(attributes);
    }

    pub fn attributes(&mut self, attributes: &FileAttributes) {
        self.long(attributes.kept);
        self.long(0);
        self.stat(attributes);
    }

    fn stat(&mut self, attributes: &FileAttributes) {
        let FileAttributes { node, size, mode, links, uid, gid, time, block, kept: _ } = *attributes;
        for value in [node, size, size.div_ceil(512), time, time, time] {
            self.long(value);
        }
        for value in [0, 0, 0, mode, links, uid, gid, 0, block, 0] {
            self.word(value);
        }
    }

    pub fn open(&mut self, opened: OpenedFile) {
        const DIRECT_IO: u32 = 1 << 0;
        const KEEP_CACHE: u32 = 1 << 1;
        const NO_FLUSH: u32 = 1 << 5;
        const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
        self.long(0);
        self.word(match opened {
            OpenedFile::Direct => DIRECT_IO | NO_FLUSH | PARALLEL_DIRECT_WRITES,
            OpenedFile::Cached => KEEP_CACHE | NO_FLUSH,
            OpenedFile::Folder => 0,
        });
        self.word(0);
    }

    /// One entry of a folder; `next` is where the one behind it begins. `false` where it does not fit into `room`
    /// bytes.
    pub fn folder_entry(&mut self, room: usize, next: u64, file: &FileAttributes, name: &[u8]) -> bool {
        const FIXED: usize = 24;
        let whole = (FIXED + name.len()).next_multiple_of(8);
        if self.len + whole > room.min(Self::CAPACITY) {
            return false;
        }
        self.long(file.node);
        self.long(next);
        self.word(u32::try_from(name.len()).unwrap_or(0));
        self.word(file.mode >> 12);
        self.push(name);
        self.push(&[0; 8][..whole - FIXED - name.len()]);
        true
    }

    pub fn statistics(&mut self, size: u64, files: u64) {
        const BLOCK: u32 = 4096;
        for value in [size.div_ceil(BLOCK.into()), 0, 0, files, 0] {
            self.long(value);
        }
        let names = u32::try_from(NAME_MAX).unwrap_or(0);
        for value in [BLOCK, names, BLOCK, 0] {
            self.word(value);
        }
        self.push(&[0; 24]);
    }

    /// The answer to an ioctl that reads `bytes`.
    pub fn ioctl(&mut self, bytes: &[u8]) {
        // The result, flags, and buffers in and out.
        self.push(&[0; 16]);
        self.push(bytes);
    }

    pub fn written(&mut self, bytes: u32) {
        self.word(bytes);
        self.word(0);
    }
}

/// The header of an answer with `body` bytes behind it.
pub fn out_header(unique: u64, result: Result<(), Errno>, body: usize) -> [u8; OUT_HEADER] {
    let len = u32::try_from(OUT_HEADER + body).unwrap_or(u32::MAX);
    let error = result.err().map_or(0, |errno| -errno.raw_os_error());
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// Numbers at places in bytes.
#[derive(Clone, Copy)]
struct ByteFields<'a>(&'a [u8]);

impl ByteFields<'_> {
    fn word(self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn long(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
#[path = "abi_tests.rs"]
mod tests;
