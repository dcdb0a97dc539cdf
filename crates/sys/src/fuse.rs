//! Mounts of `/dev/fuse`: by mount(2), and by the program that may do it for users who may not. How their requests
//! come through a ring is in `entry`.

mod entry;

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

pub use entry::{FuseEntry, FuseQueues};

const DEVICE: &str = "/dev/fuse";
/// The program that mounts for users.
const HELPER: &str = "fusermount3";
/// Tells it which descriptor is the socket.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
/// From linux/fuse.h: `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// A request of our own to a file's server: `_IOR('C', 0x6d, char[16])`. The kernel passes it on.
pub const FUSE_ASK: u32 = 0x8010_436d;
/// Bytes of its answer.
pub const FUSE_ASK_LEN: usize = 16;

/// Parameters of a mount.
#[derive(Clone, Copy, Debug)]
pub struct FuseMount<'a> {
    /// Where.
    pub point: &'a Path,
    /// The file or folder that is there. Mounting by mount(2) takes no other, whatever the path leads to by then.
    pub place: BorrowedFd<'a>,
    /// The root of the file system is a file.
    pub is_file: bool,
    /// Name of the source in the table of mounts.
    pub source: &'a str,
    /// Behind `fuse.` in the type.
    pub subtype: &'a str,
    /// Nobody can write.
    pub read_only: bool,
    /// Other users, root among them, may use it.
    pub allow_other: bool,
    /// Bytes of the largest read.
    pub read_max: u32,
}

impl FuseMount<'_> {
    /// Mounts by mount(2); the descriptor to serve it with.
    ///
    /// Errors: `NotFound` for no `/dev/fuse`, `PermissionDenied` for who may not mount, and any other of
    /// mount(2).
    pub fn mount(&self) -> io::Result<OwnedFd> {
        let device = open_device()?;
        let kind = if self.is_file { "100000" } else { "40000" };
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let mut options = format!(
            "fd={},rootmode={kind},user_id={},group_id={},max_read={},default_permissions",
            device.as_raw_fd(),
            uid.as_raw(),
            gid.as_raw(),
            self.read_max,
        );
        if self.allow_other {
            options += ",allow_other";
        }
        let mut flags = libc::MS_NOSUID | libc::MS_NODEV;
        if self.read_only {
            flags |= libc::MS_RDONLY;
        }
        let source = CString::new(self.source)?;
        let point = CString::new(format!("/proc/self/fd/{}", self.place.as_raw_fd()))?;
        let kind = CString::new(format!("fuse.{}", self.subtype))?;
        let options = CString::new(options)?;
        // SAFETY: all four are live C strings, and a FUSE file system takes its options as one.
        let result =
            unsafe { libc::mount(source.as_ptr(), point.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
        if result == 0 { Ok(device) } else { Err(io::Error::last_os_error()) }
    }

    /// Mounts by the helper of the system's FUSE package, which has the rights that the caller lacks.
    ///
    /// Errors: `NotFound` where there is no such program; otherwise with what it says.
    pub fn mount_by_helper(&self) -> io::Result<OwnedFd> {
        // Commas separate options.
        let source = self.source.replace([',', '\\'], "_");
        let mut options = format!(
            "fsname={source},subtype={},nosuid,nodev,max_read={},default_permissions",
            self.subtype, self.read_max
        );
        for (is_wanted, option) in [(self.read_only, ",ro"), (self.allow_other, ",allow_other")] {
            if is_wanted {
                options += option;
            }
        }
        let (ours, theirs) = UnixStream::pair()?;
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut helper = Command::new(HELPER);
        helper.env(HELPER_SOCKET, theirs.as_raw_fd().to_string());
        helper.args(["-o", &options, "--"]).arg(self.point);
        let output = helper.output()?;
        drop(theirs);
        if !output.status.success() {
            return Err(said(&output.stderr));
        }
        receive_descriptor(&ours)
    }
}

/// One more descriptor of the mount that `device` belongs to: requests come to whichever is read.
pub fn clone_fuse(device: impl AsFd) -> io::Result<OwnedFd> {
    let clone = open_device()?;
    let original: u32 = device.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open, and the call reads one live `u32`.
    let result = unsafe { libc::ioctl(clone.as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &raw const original) };
    if result == 0 { Ok(clone) } else { Err(io::Error::last_os_error()) }
}

/// Asks the server of an open file what [`FUSE_ASK`] asks for.
pub fn ask_fuse(file: impl AsFd) -> io::Result<[u8; FUSE_ASK_LEN]> {
    let mut answer = [0; FUSE_ASK_LEN];
    // SAFETY: the descriptor is open, and whoever knows this request writes no more than the bytes that its number
    // says, which are those of the live array.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FUSE_ASK as _, answer.as_mut_ptr()) };
    if result == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Unless it is in use.
    Idle,
    /// Now for new users, and for those it has when they are done.
    Lazy,
    /// As lazily, and what they wait for fails.
    Force,
}

/// Unmounts by umount2(2).
///
/// Errors: `ResourceBusy` where it is in use, `InvalidInput` where nothing is mounted, `PermissionDenied`.
pub fn unmount(point: &Path, how: Unmount) -> io::Result<()> {
    let point = CString::new(point.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW
        | match how {
            Unmount::Idle => 0,
            Unmount::Lazy => libc::MNT_DETACH,
            Unmount::Force => libc::MNT_DETACH | libc::MNT_FORCE,
        };
    // SAFETY: a live C string; nothing else is passed.
    if unsafe { libc::umount2(point.as_ptr(), flags) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unmounts by the helper; `lazily` also while it is in use.
///
/// Errors: `NotFound` where there is no such program; otherwise with what it says.
pub fn unmount_by_helper(point: &Path, lazily: bool) -> io::Result<()> {
    let mut helper = Command::new(HELPER);
    // Not quietly: why it fails, it says only in words.
    helper.arg("-u").env("LC_ALL", "C");
    if lazily {
        helper.arg("-z");
    }
    let output = helper.arg("--").arg(point).output()?;
    if output.status.success() { Ok(()) } else { Err(said(&output.stderr)) }
}

fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(DEVICE, flags, Mode::empty())?)
}

/// The helper's last line as an error.
fn said(bytes: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().last().unwrap_or("it failed without a word");
    let line = line.trim();
    let line = line.strip_prefix(HELPER).and_then(|it| it.strip_prefix(": ")).unwrap_or(line);
    io::Error::other(line.to_owned())
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let none = || io::Error::other("it has passed no descriptor");
    descriptors.next().ok_or_else(none)
}

/// A mount of `/dev/fuse`, as the table of mounts has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its number and that of its device, which no other mount has at the same time; a later one may.
    pub numbers: String,
    /// Source of the mount.
    pub source: String,
    /// Behind `fuse.` in the type.
    pub subtype: String,
}

/// The last FUSE mount over `point`, an absolute path, in `table` (the text of `/proc/self/mountinfo`).
#[must_use]
pub fn find_fuse_mount(table: &[u8], point: &Path) -> Option<Mounted> {
    let wanted = point.as_os_str();
    let lines = table.split(|byte| *byte == b'\n');
    let top = lines.rev().find(|line| {
        let at = line.split(|byte| *byte == b' ').nth(4);
        at.is_some_and(|at| OsStr::from_bytes(&unescaped(at)) == wanted)
    })?;
    let mut fields = top.split(|byte| *byte == b' ');
    let (number, device) = (fields.next()?, fields.nth(1)?);
    // Behind a lone hyphen: type, source, options.
    let mut rest = top.split(|byte| *byte == b' ').skip_while(|it| *it != b"-");
    let kind = rest.nth(1)?;
    let source = unescaped(rest.next()?);
    let subtype = kind.strip_prefix(b"fuse.")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Mounted {
        numbers: format!("{} {}", text(number), text(device)),
        source: text(&source),
        subtype: text(subtype),
    })
}

/// Bytes that the table writes as a backslash and three octal digits.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        let code = digits.and_then(|it| u8::from_str_radix(it, 8).ok());
        if let (b'\\', Some(code)) = (first, code) {
            bytes.push(code);
            rest = &behind[3..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 0:20 / /proc rw - proc proc rw
40 1 0:36 / /mnt/a\\040b rw,nosuid - fuse.cryptline /disks/x\\040y.img rw,user_id=0
41 1 0:37 / /mnt/c rw shared:7 - fuse.other other rw
42 41 0:38 / /mnt/c rw - ext4 /dev/vda rw
";

    #[test]
    fn mount_on_top_of_a_folder_is_found_by_its_path() {
        let find = |path: &str| find_fuse_mount(TABLE, Path::new(path));
        let found = find("/mnt/a b").expect("a mount");
        assert_eq!(found.source, "/disks/x y.img");
        assert_eq!(found.subtype, "cryptline");
        assert_eq!(found.numbers, "40 0:36");
        assert_eq!(find("/mnt/a"), None);
        assert_eq!(find("/mnt/c"), None, "covered by another");
        assert_eq!(find("/proc"), None, "no FUSE");
        assert_eq!(find_fuse_mount(b"1 2 3\n\n- -", Path::new("3")), None);
    }

    #[test]
    fn nothing_is_unmounted_where_nothing_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        assert!(unmount(folder.path(), Unmount::Idle).is_err());
        assert!(folder.path().exists());
    }
}
