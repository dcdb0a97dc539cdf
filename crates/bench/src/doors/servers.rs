//! Who serves what over which front, and by which command line.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::images::Images;
use crate::report::{Front, word};
use crate::volume::NULL_CIPHER;
use crate::{Error, foreign};

/// A front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// Virtqueues in shared memory, as a virtual machine has them
    VhostUser,
    /// A Unix socket
    Nbd,
    /// The file of a mount
    Fuse,
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

/// The other server, and the Debian package that brings it.
pub const QSD: &str = "qemu-storage-daemon";
pub const QSD_PACKAGE: &str = "qemu-system-common";
const TASKSET: &str = "taskset";
/// What every mount goes through.
const FUSE_DEVICE: &str = "/dev/fuse";
/// What mounts for a user who may not, and its package.
const FUSE_HELPER: &str = "fusermount3";

/// Where programs are.
#[derive(Debug)]
pub struct Programs {
    cryptline: PathBuf,
    /// Not there where it is not installed.
    qsd: Option<PathBuf>,
    /// Not there where nothing is pinned.
    taskset: Option<PathBuf>,
}

impl Door {
    /// Before its disk in a row.
    pub fn front(self) -> Front {
        match self {
            Self::VhostUser => Front::VhostUser,
            Self::Nbd => Front::Nbd,
            Self::Fuse => Front::Fuse,
        }
    }

    /// Why this machine has no such front.
    pub fn missing(self) -> Option<String> {
        if self != Self::Fuse {
            return None;
        }
        let device = std::fs::File::options()
            .read(true)
            .write(true)
            .open(FUSE_DEVICE);
        match device {
            Err(error) => Some(format!("{FUSE_DEVICE} cannot be used ({error})")),
            Ok(_) if rustix::process::geteuid().is_root() => None,
            Ok(_) => foreign::find(FUSE_HELPER)
                .is_none()
                .then(|| format!("{FUSE_HELPER} (package fuse3) is not installed")),
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
            Self::Ours(_) => format!(
                "{} --key-file={{key}} {{luks2}} {}",
                verb(door),
                point(door)
            ),
            // Any key size: the null cipher has no key.
            Self::Plain(_) => format!(
                "{} --type=plain --cipher={NULL_CIPHER} --key-size=256 {{plain}} {}",
                verb(door),
                point(door)
            ),
            Self::Qsd(_) => format!(
                "{QSD} --object secret,id=key,file={{key,}} \
                 --blockdev driver=file,node-name=file,filename={{luks1,}} \
                 --blockdev driver=luks,node-name=disk,key-secret=key,file=file {}",
                export(door)
            ),
        }
    }

    /// The command that serves at `place`.
    pub fn command(self, programs: &Programs, images: &Images, place: &Path) -> Vec<OsString> {
        let mut command = foreign::words(&self.line(), |name| match name {
            "place" => place.into(),
            "luks1" => images.luks1.clone().into(),
            "luks2" => images.luks2.clone().into(),
            "plain" => images.plain.clone().into(),
            "key" => images.key.clone().into(),
            other => other.into(),
        });
        if let Some(program) = command.first_mut() {
            *program = match (self, &programs.qsd) {
                (Self::Qsd(_), Some(qsd)) => qsd.into(),
                _ => programs.cryptline.clone().into(),
            };
        }
        command
    }
}

/// How cryptline serves over a front; the page cache is as qemu has it.
fn verb(door: Door) -> &'static str {
    match door {
        Door::VhostUser => {
            "cryptline vhost-user --exit-with-parent --direct=off --socket-path={place}"
        }
        Door::Nbd => "cryptline serve --exit-with-parent --direct=off --unix={place}",
        Door::Fuse => "cryptline mount --foreground --exit-with-parent --direct=off",
    }
}

/// What comes last: where a mount goes.
fn point(door: Door) -> &'static str {
    if door == Door::Fuse { "{place}" } else { "" }
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
        Door::Fuse => "--export type=fuse,id=export,node-name=disk,mountpoint={place,},writable=on",
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.program(), word(&self.door()))
    }
}

impl Programs {
    /// Finds what is there; what pins processes must be.
    pub fn find(is_pinned: bool) -> Result<Self, Error> {
        let taskset = is_pinned.then(|| foreign::find(TASKSET));
        if let Some(None) = taskset {
            return Err(Error::parameters(format!(
                "not installed: {TASKSET} (package util-linux); install it, or give --no-pin"
            )));
        }
        let cryptline = std::env::current_exe()
            .map_err(|error| Error::device(format!("cannot find this program itself: {error}")))?;
        Ok(Self {
            cryptline,
            qsd: foreign::find(QSD),
            taskset: taskset.flatten(),
        })
    }

    /// Why a server cannot take part.
    pub fn missing(&self, server: Server) -> Option<String> {
        match server {
            Server::Qsd(_) if self.qsd.is_none() => {
                Some(format!("{QSD} (package {QSD_PACKAGE}) is not installed"))
            }
            server => server.door().missing(),
        }
    }

    /// What keeps a command on a processor.
    pub fn pinned(&self, cpu: usize, command: Vec<OsString>) -> Vec<OsString> {
        match &self.taskset {
            Some(taskset) => {
                let mut pinned = vec![taskset.into(), "-c".into(), cpu.to_string().into()];
                pinned.extend(command);
                pinned
            }
            None => command,
        }
    }

    /// What the other server says of its version.
    pub fn version(&self) -> Option<String> {
        let said = foreign::run(self.qsd.as_deref()?, &["--version"]).ok()??;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        Some(crate::error::on_one_line(said.lines().next()?.trim()))
    }
}
