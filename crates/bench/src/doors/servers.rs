//! Who serves what over which front, and by which command line.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::ValueEnum;

use crate::foreign::{self, Programs};
use crate::report::{Front, word};
use crate::setting::Setting;
use crate::volume::NULL_CIPHER;

/// A front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// Virtqueues in shared memory, as a virtual machine has them
    VhostUser,
    /// A Unix socket
    Nbd,
    /// The file of a mount
    Fuse,
    /// The same, whose requests come through io_uring
    FuseUring,
}

/// A server of one front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// cryptline, LUKS2.
    Ours(Door),
    /// cryptline, the null cipher over the plain image.
    Plain(Door),
    /// qemu-storage-daemon, LUKS1.
    Qsd(Door),
}

/// The other server.
pub const QSD: &str = "qemu-storage-daemon";
/// What every mount goes through.
const FUSE_DEVICE: &str = "/dev/fuse";
/// What mounts for a user who may not, and its package.
const FUSE_HELPER: &str = "fusermount3";

/// `Y` where the kernel passes requests of mounts through io_uring.
const FUSE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

impl Door {
    /// Before its disk in a row.
    pub fn front(self) -> Front {
        match self {
            Self::VhostUser => Front::VhostUser,
            Self::Nbd => Front::Nbd,
            Self::Fuse => Front::Fuse,
            Self::FuseUring => Front::FuseUring,
        }
    }

    /// Whether it is a mount.
    pub fn is_mount(self) -> bool {
        matches!(self, Self::Fuse | Self::FuseUring)
    }

    /// Why this machine has no such front.
    pub fn missing(self) -> Option<String> {
        if !self.is_mount() {
            return None;
        }
        let is_on = || std::fs::read_to_string(FUSE_URING).is_ok_and(|it| it.trim() == "Y");
        if self == Self::FuseUring && !is_on() {
            return Some(format!("{FUSE_URING} is not Y (echo 1 into it, as root)"));
        }
        let device = std::fs::File::options().read(true).write(true).open(FUSE_DEVICE);
        match device {
            Err(error) => Some(format!("{FUSE_DEVICE} cannot be used ({error})")),
            Ok(_) if rustix::process::geteuid().is_root() => None,
            Ok(_) => {
                foreign::find(FUSE_HELPER).is_none().then(|| format!("{FUSE_HELPER} (package fuse3) is not installed"))
            }
        }
    }
}

impl Server {
    /// The front.
    pub fn door(self) -> Door {
        match self {
            Self::Ours(door) | Self::Plain(door) | Self::Qsd(door) => door,
        }
    }

    /// The program and what it serves.
    pub fn program(self) -> &'static str {
        match self {
            Self::Ours(_) => "cryptline",
            Self::Plain(_) => "cryptline-plain",
            Self::Qsd(_) => "qsd",
        }
    }

    /// The cipher of its image.
    pub fn cipher(self) -> &'static str {
        match self {
            Self::Plain(_) => NULL_CIPHER,
            Self::Ours(_) | Self::Qsd(_) => "aes-xts-plain64",
        }
    }

    /// The command line, see [`foreign::words`].
    fn line(self) -> String {
        let door = self.door();
        match self {
            Self::Ours(_) => format!("{} --key-file={{key}} {{luks2}} {}", verb(door), point(door)),
            // Any key size: the null cipher has no key.
            Self::Plain(_) => {
                format!("{} --type=plain --cipher={NULL_CIPHER} --key-size=256 {{plain}} {}", verb(door), point(door))
            }
            Self::Qsd(_) => format!(
                "{QSD} --object secret,id=key,file={{key,}} \
                 --blockdev driver=file,node-name=file,filename={{luks1,}} \
                 --blockdev driver=luks,node-name=disk,key-secret=key,file=file {}",
                export(door)
            ),
        }
    }

    /// The command that serves at `place`.
    pub fn command(self, setting: &Setting<'_>, place: &Path) -> Vec<OsString> {
        setting.command(&self.line(), |name| match name {
            "place" => place.into(),
            other => other.into(),
        })
    }

    /// Why it cannot take part.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        let program = matches!(self, Self::Qsd(_)).then(|| programs.missing(QSD));
        let program = program.flatten().map(|it| format!("{it} is not installed"));
        program.or_else(|| self.door().missing())
    }
}

/// How cryptline serves over a front; the page cache is as qemu has it.
fn verb(door: Door) -> &'static str {
    match door {
        Door::VhostUser => "cryptline vhost-user --exit-with-parent --direct=off --socket-path={place}",
        Door::Nbd => "cryptline serve --exit-with-parent --direct=off --unix={place}",
        Door::Fuse => "cryptline mount --foreground --exit-with-parent --direct=off",
        Door::FuseUring => "cryptline mount --foreground --exit-with-parent --direct=off --fuse-uring",
    }
}

/// What comes last: where a mount goes.
fn point(door: Door) -> &'static str {
    if door.is_mount() { "{place}" } else { "" }
}

/// How qemu-storage-daemon serves the same.
fn export(door: Door) -> &'static str {
    match door {
        Door::VhostUser => {
            "--export type=vhost-user-blk,id=export,node-name=disk,\
             addr.type=unix,addr.path={place,},writable=on"
        }
        Door::Nbd => {
            "--nbd-server addr.type=unix,addr.path={place,} \
             --export type=nbd,id=export,node-name=disk,name=disk,writable=on"
        }
        Door::Fuse | Door::FuseUring => "--export type=fuse,id=export,node-name=disk,mountpoint={place,},writable=on",
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.program(), word(&self.door()))
    }
}
