//! Who makes which file of which, and by which command line.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use super::Bench;
use crate::Error;
use crate::foreign::{self, Programs};
use crate::images::SOCKET;
use crate::process::{Left, Process};

/// Bytes of the image that is nearly all holes, and of its data.
pub const SPARSE: u64 = 100 << 30;
const SPARSE_DATA: usize = 100 << 20;

/// A way from one image to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `cp`, raw to raw.
    Cp,
    /// `cryptline create --from`, raw to LUKS2.
    Create,
    /// `nbdcopy` into an empty LUKS2 volume that cryptline serves.
    Served,
    /// `qemu-img convert`, raw to LUKS1.
    Qemu,
    /// `cryptsetup reencrypt --encrypt`, raw to LUKS2 in the same file.
    Reencrypt,
    /// `cryptline copy`, LUKS2 to raw.
    CopyOut,
    /// `cryptline create --from`, of an image that is nearly all holes.
    Sparse,
}

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {key}";

impl Way {
    pub const ALL: [Self; 7] =
        [Self::Cp, Self::Create, Self::Served, Self::Qemu, Self::Reencrypt, Self::CopyOut, Self::Sparse];

    /// Its name in a row.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cp => "cp, raw to raw",
            Self::Create => "cryptline create --from, raw to LUKS2",
            Self::Served => "nbdcopy into cryptline serve, raw to LUKS2",
            Self::Qemu => "qemu-img convert, raw to LUKS1",
            Self::Reencrypt => "cryptsetup reencrypt --encrypt, raw to LUKS2 in place",
            Self::CopyOut => "cryptline copy, LUKS2 to raw",
            Self::Sparse => "cryptline create --from --holes keep, 100 GiB with 100 MiB of data",
        }
    }

    pub fn program(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Create | Self::CopyOut | Self::Sparse => "cryptline",
            Self::Served => "nbdcopy",
            Self::Qemu => "qemu-img",
            Self::Reencrypt => "cryptsetup",
        }
    }

    pub fn cipher(self) -> Option<&'static str> {
        (self != Self::Cp).then_some("aes-xts-plain64")
    }

    /// The command line, see [`foreign::words`].
    fn line(self) -> String {
        match self {
            Self::Cp => "cp --sparse=never --reflink=never {plain} {out}".to_owned(),
            Self::Create => format!("cryptline create {{out}} --from {{plain}} {CHEAP}"),
            Self::Sparse => {
                format!("cryptline create {{out}} --from {{sparse}} --holes keep {CHEAP}")
            }
            Self::CopyOut => "cryptline copy {luks2} {out} --key-file {key}".to_owned(),
            Self::Served => "nbdcopy --flush {plain} nbd+unix:///?socket={socket}".to_owned(),
            // A regular file is never in use by device-mapper here, which it cannot know.
            Self::Reencrypt => format!(
                "cryptsetup reencrypt --encrypt --type luks2 --reduce-device-size 32M --sector-size 4096 \
                 --force-offline-reencrypt --batch-mode {CHEAP} {{out}}"
            ),
            // Of its options, the fastest.
            Self::Qemu => "qemu-img convert -f raw -O luks -W -m 8 --object secret,id=key,file={key,} \
                           -o key-secret=key,iter-time=10 {plain} {out}"
                .to_owned(),
        }
    }

    /// Why it cannot be gone.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        let missing = programs.missing(self.program());
        let missing = missing.map(|it| format!("{it} is not installed"));
        // Its locks are in a folder of root.
        let is_root = || rustix::process::geteuid().is_root();
        missing.or_else(|| {
            let lacks = self == Self::Reencrypt && !is_root();
            lacks.then(|| "cryptsetup reencrypts as root only".to_owned())
        })
    }

    /// What must be there before: the sparse image, an empty volume and its server, or the file that is changed.
    pub fn prepare(self, bench: &Bench<'_>) -> Result<Option<Process>, Error> {
        match self {
            Self::Sparse => make_sparse(bench).map(|()| None),
            Self::Served => serve_empty(bench).map(Some),
            Self::Reencrypt => copy_with_room(bench).map(|()| None),
            _ => Ok(None),
        }
    }

    /// Makes the file.
    pub fn run(self, bench: &Bench<'_>) -> Result<(), Error> {
        execute(bench, &self.line())
    }
}

/// Whether qemu-img could not tell how fast this machine makes keys, which happens while it is busy.
pub fn is_busy(error: &Error) -> bool {
    error.to_string().contains("accurate CPU usage")
}

fn words(bench: &Bench<'_>, line: &str) -> Vec<OsString> {
    let folder = bench.setting.folder;
    bench.setting.command(line, |name| match name {
        "out" => bench.out().into(),
        "sparse" => folder.join("sparse.img").into(),
        "socket" => folder.join(SOCKET).into(),
        other => other.into(),
    })
}

fn execute(bench: &Bench<'_>, line: &str) -> Result<(), Error> {
    let words = words(bench, line);
    bench.setting.note(foreign::typed(&words));
    let gone = || Error::device(format!("{} is gone", words[0].display()));
    let ran = foreign::run(Path::new(&words[0]), &words[1..])?;
    ran.map(drop).ok_or_else(gone)
}

fn make_sparse(bench: &Bench<'_>) -> Result<(), Error> {
    use std::os::unix::fs::FileExt;
    let path = bench.setting.folder.join("sparse.img");
    let mut data = vec![0; SPARSE_DATA];
    bench.setting.images.contents.fill(0, &mut data);
    let made = File::create(&path).and_then(|file| {
        file.set_len(SPARSE)?;
        // In pieces, as file systems leave them.
        for (number, piece) in data.chunks(1 << 20).enumerate() {
            file.write_all_at(piece, number as u64 * (1 << 30))?;
        }
        file.sync_all()
    });
    made.map_err(|error| Error::device(format!("{}: {error}", path.display())))
}

/// A copy of the source, with the room behind it that a header and the first steps take.
fn copy_with_room(bench: &Bench<'_>) -> Result<(), Error> {
    execute(bench, &Way::Cp.line())?;
    let room = File::options().write(true).open(bench.out());
    let made = room.and_then(|file| {
        file.set_len(bench.setting.images.size + (32 << 20))?;
        file.sync_all()
    });
    made.map_err(|error| Error::device(format!("{}: {error}", bench.out().display())))
}

/// An empty volume as large as the source, and its server.
fn serve_empty(bench: &Bench<'_>) -> Result<Process, Error> {
    let size = bench.setting.images.size + (16 << 20);
    execute(bench, &format!("cryptline create {{out}} --size {size} {CHEAP}"))?;
    let command = words(bench, "cryptline serve --exit-with-parent {out} --key-file {key} --unix {socket}");
    let left = Left::Socket(bench.setting.folder.join(SOCKET));
    let socket = left.path().to_owned();
    bench.setting.start("cryptline serve", command, left, || {
        let connected = std::os::unix::net::UnixStream::connect(&socket);
        let connected = connected.map(drop);
        connected.map_err(|error| Error::device(error.to_string()))
    })
}
