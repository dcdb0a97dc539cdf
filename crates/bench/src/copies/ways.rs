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
    /// `cryptline copy`, LUKS2 to raw.
    CopyOut,
    /// `cryptline create --from`, of an image that is nearly all holes.
    Sparse,
}

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {key}";

impl Way {
    pub const ALL: [Self; 6] = [
        Self::Cp,
        Self::Create,
        Self::Served,
        Self::Qemu,
        Self::CopyOut,
        Self::Sparse,
    ];

    /// Its name in a row.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cp => "cp, raw to raw",
            Self::Create => "cryptline create --from, raw to LUKS2",
            Self::Served => "nbdcopy into cryptline serve, raw to LUKS2",
            Self::Qemu => "qemu-img convert, raw to LUKS1",
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
            // Of its options, the fastest.
            Self::Qemu => {
                "qemu-img convert -f raw -O luks -W -m 8 --object secret,id=key,file={key,} \
                           -o key-secret=key,iter-time=10 {plain} {out}"
                    .to_owned()
            }
        }
    }

    /// Why it cannot be gone.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        let missing = programs.missing(self.program());
        missing.map(|it| format!("{it} is not installed"))
    }

    /// What must be there before: the sparse image, or an empty volume and its server.
    pub fn prepare(self, bench: &Bench<'_>) -> Result<Option<Process>, Error> {
        match self {
            Self::Sparse => make_sparse(bench).map(|()| None),
            Self::Served => serve_empty(bench).map(Some),
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

/// An empty volume as large as the source, and its server.
fn serve_empty(bench: &Bench<'_>) -> Result<Process, Error> {
    let size = bench.setting.images.size + (16 << 20);
    execute(
        bench,
        &format!("cryptline create {{out}} --size {size} {CHEAP}"),
    )?;
    let command = words(
        bench,
        "cryptline serve --exit-with-parent {out} --key-file {key} --unix {socket}",
    );
    let left = Left::Socket(bench.setting.folder.join(SOCKET));
    let socket = left.path().to_owned();
    bench.setting.start("cryptline serve", command, left, || {
        let connected = std::os::unix::net::UnixStream::connect(&socket);
        let connected = connected.map(drop);
        connected.map_err(|error| Error::device(error.to_string()))
    })
}
