//! Who serves what, and by which command line.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::generators::{Generator, value_name};
use super::image::Images;
use crate::Error;
use crate::foreign;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// cryptline, LUKS1
    Cryptline,
    /// cryptline, the null cipher over the plain image
    CryptlinePlain,
    /// qemu-nbd, LUKS1
    QemuNbd,
    /// qemu-nbd, raw
    QemuNbdPlain,
    /// qemu-storage-daemon, LUKS1
    Qsd,
    /// qemu-storage-daemon, raw
    QsdPlain,
    /// nbdkit, luks filter over the file plugin
    Nbdkit,
    /// nbdkit, file plugin
    NbdkitPlain,
    /// Answers at once, in this process: the limit of the generators
    Null,
    /// nbdkit, null plugin
    NbdkitNull,
}

/// Foreign programs, and the Debian packages that bring them.
const PACKAGES: [(&str, &str); 5] = [
    ("qemu-nbd", "qemu-utils"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("nbdkit", "nbdkit"),
    ("fio", "fio"),
    ("taskset", "util-linux"),
];

/// Where the programs are that were asked for.
#[derive(Debug)]
pub struct Programs {
    found: Vec<(&'static str, PathBuf)>,
    cryptline: PathBuf,
}

/// What a server's command line is made for.
pub struct Place<'a> {
    /// The images to serve.
    pub images: &'a Images,
    /// Where to serve them.
    pub socket: &'a Path,
    /// Clients that it must take at once.
    pub clients: u32,
    /// Who runs the cipher in cryptline.
    pub dispatch: Option<&'a str>,
}

impl Server {
    /// Serves the LUKS1 image.
    pub fn is_encrypted(self) -> bool {
        self.serves() == "LUKS1"
    }

    /// Has no image.
    pub fn is_null(self) -> bool {
        self.serves() == "nothing"
    }

    /// Is cryptline.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Cryptline | Self::CryptlinePlain)
    }

    /// What it serves, for people.
    pub fn serves(self) -> &'static str {
        match self {
            Self::Cryptline | Self::QemuNbd | Self::Qsd | Self::Nbdkit => "LUKS1",
            Self::CryptlinePlain => "null cipher",
            Self::QemuNbdPlain | Self::QsdPlain => "raw",
            Self::NbdkitPlain => "file",
            Self::Null | Self::NbdkitNull => "nothing",
        }
    }

    /// The name of its export: qemu-storage-daemon has none without a name.
    pub fn export(self) -> &'static str {
        match self {
            Self::Qsd | Self::QsdPlain => "disk",
            _ => "",
        }
    }

    /// The command line, see [`foreign::words`]; empty for the server in this process.
    fn line(self) -> &'static str {
        match self {
            Self::Cryptline => {
                "cryptline serve --exit-with-parent --direct=off {dispatch} --unix={socket} \
                 --key-file={key} {luks}"
            }
            // Any key size: the null cipher has no key.
            Self::CryptlinePlain => {
                "cryptline serve --exit-with-parent --direct=off {dispatch} --unix={socket} \
                 --type=plain --cipher=cipher_null-ecb --key-size=256 {plain}"
            }
            Self::QemuNbd => {
                "qemu-nbd --persistent --shared={clients} --socket={socket} \
                 --object secret,id=key,file={key,} \
                 --image-opts driver=luks,key-secret=key,file.driver=file,file.filename={luks,}"
            }
            Self::QemuNbdPlain => {
                "qemu-nbd --persistent --shared={clients} --socket={socket} --format=raw {plain}"
            }
            Self::Qsd => {
                "qemu-storage-daemon --object secret,id=key,file={key,} \
                 --blockdev driver=file,node-name=file,filename={luks,} \
                 --blockdev driver=luks,node-name=disk,key-secret=key,file=file \
                 --nbd-server max-connections={clients},addr.type=unix,addr.path={socket,} \
                 --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on"
            }
            Self::QsdPlain => {
                "qemu-storage-daemon --blockdev driver=file,node-name=disk,filename={plain,} \
                 --nbd-server max-connections={clients},addr.type=unix,addr.path={socket,} \
                 --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on"
            }
            Self::Nbdkit => {
                "nbdkit --foreground --exit-with-parent --unix={socket} \
                 --filter=luks file file={luks} passphrase=+{key}"
            }
            Self::NbdkitPlain => {
                "nbdkit --foreground --exit-with-parent --unix={socket} file file={plain}"
            }
            Self::NbdkitNull => {
                "nbdkit --foreground --exit-with-parent --unix={socket} null size={size}"
            }
            Self::Null => "",
        }
    }

    /// The command that serves, without pinning; `None` for the server in this process.
    pub fn command(self, programs: &Programs, place: &Place<'_>) -> Option<Vec<OsString>> {
        let Place { images, socket, .. } = place;
        let mut command = foreign::words(self.line(), |name| match name {
            "socket" => (*socket).into(),
            "luks" => images.luks.clone().into(),
            "plain" => images.plain.clone().into(),
            "key" => images.key.clone().into(),
            "size" => images.size.to_string().into(),
            "clients" => place.clients.to_string().into(),
            "dispatch" => {
                let word = |who| format!("--dispatch={who}");
                place.dispatch.map(word).unwrap_or_default().into()
            }
            other => other.into(),
        });
        let program = command.first_mut()?;
        *program = programs.path(&program.to_string_lossy()).into();
        Some(command)
    }

    fn program(self) -> Option<&'static str> {
        self.line().split(' ').next()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&value_name(self))
    }
}

impl Programs {
    /// Finds all that is needed.
    pub fn find(servers: &[Server], generators: &[Generator], pinned: bool) -> Result<Self, Error> {
        let is_needed = |name: &str| match name {
            "fio" => generators.contains(&Generator::Fio),
            "taskset" => pinned,
            name => servers.iter().any(|server| server.program() == Some(name)),
        };
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for (name, package) in PACKAGES.into_iter().filter(|(name, _)| is_needed(name)) {
            match foreign::find(name) {
                Some(path) => found.push((name, path)),
                None => missing.push(format!("{name} (package {package})")),
            }
        }
        if !missing.is_empty() {
            return Err(Error::parameters(format!(
                "not installed: {}; install it, or leave it out by --servers, --generators or --no-pin",
                missing.join(", ")
            )));
        }
        let cryptline = std::env::current_exe()
            .map_err(|error| Error::device(format!("cannot find this program itself: {error}")))?;
        Ok(Self { found, cryptline })
    }

    /// Where a program is: one of those that were asked for, or this one.
    pub fn path(&self, name: &str) -> &Path {
        let found = self.found.iter().find(|(found, _)| *found == name);
        found.map_or(&self.cryptline, |(_, path)| path)
    }

    /// What each foreign program says of its version.
    pub fn versions(&self) -> Vec<String> {
        let version = |(name, path): &(&str, PathBuf)| {
            let said = foreign::run(path, &["--version"]).ok()??;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let line = crate::error::on_one_line(said.lines().next()?.trim());
            Some(if line.contains(name) {
                line
            } else {
                format!("{name}: {line}")
            })
        };
        self.found.iter().filter_map(version).collect()
    }
}
