//! Who serves what, and by which command line.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};

use super::generators::Generator;
use crate::images::Images;
use crate::report::word;
use crate::{Error, foreign};

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// cryptline, LUKS1
    Cryptline,
    /// cryptline, LUKS1, without looking for requests before it waits
    CryptlineAsleep,
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
    /// cryptline, LUKS1, over nbdkit's file plugin
    CryptlineOverNbd,
    /// nbdkit, luks filter over the nbd plugin, over nbdkit's file plugin
    NbdkitOverNbd,
    /// Answers at once, in this process: the limit of the generators
    Null,
    /// nbdkit, null plugin
    NbdkitNull,
}

/// What a server can serve.
const LUKS1: &str = "LUKS1";
const NOTHING: &str = "nothing";

/// Who serves the encrypted image to a server that lies over it.
const BELOW: &str = "nbdkit --foreground --exit-with-parent --unix={below} file file={luks}";

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
    pub images: &'a Images,
    pub socket: &'a Path,
    /// That of the server below, where there is one.
    pub below: &'a Path,
    /// Clients that it must take at once.
    pub clients: u32,
    /// Who runs the cipher in cryptline.
    pub dispatch: Option<&'a str>,
}

/// What there is to know of a server.
pub struct Spec {
    /// What it serves, for people.
    pub serves: &'static str,
    /// The command line, see [`foreign::words`]; empty for the server in this process.
    line: &'static str,
}

impl Server {
    pub fn spec(self) -> Spec {
        let (serves, line) = match self {
            Self::Cryptline => (
                LUKS1,
                "cryptline serve --exit-with-parent --direct=off {dispatch} --unix={socket} \
                 --key-file={key} {luks}",
            ),
            Self::CryptlineAsleep => (
                LUKS1,
                "cryptline serve --exit-with-parent --direct=off --poll-us=0 {dispatch} \
                 --unix={socket} --key-file={key} {luks}",
            ),
            // Any key size: the null cipher has no key.
            Self::CryptlinePlain => (
                "null cipher",
                "cryptline serve --exit-with-parent --direct=off {dispatch} --unix={socket} \
                 --type=plain --cipher=cipher_null-ecb --key-size=256 {plain}",
            ),
            Self::QemuNbd => (
                LUKS1,
                "qemu-nbd --persistent --shared={clients} --socket={socket} \
                 --object secret,id=key,file={key,} \
                 --image-opts driver=luks,key-secret=key,file.driver=file,file.filename={luks,}",
            ),
            Self::QemuNbdPlain => (
                "raw",
                "qemu-nbd --persistent --shared={clients} --socket={socket} --format=raw {plain}",
            ),
            Self::Qsd => (
                LUKS1,
                "qemu-storage-daemon --object secret,id=key,file={key,} \
                 --blockdev driver=file,node-name=file,filename={luks,} \
                 --blockdev driver=luks,node-name=disk,key-secret=key,file=file \
                 --nbd-server max-connections={clients},addr.type=unix,addr.path={socket,} \
                 --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on",
            ),
            Self::QsdPlain => (
                "raw",
                "qemu-storage-daemon --blockdev driver=file,node-name=disk,filename={plain,} \
                 --nbd-server max-connections={clients},addr.type=unix,addr.path={socket,} \
                 --export type=nbd,id=nbd,node-name=disk,name=disk,writable=on",
            ),
            Self::Nbdkit => (
                LUKS1,
                "nbdkit --foreground --exit-with-parent --unix={socket} \
                 --filter=luks file file={luks} passphrase=+{key}",
            ),
            Self::NbdkitPlain => (
                "file",
                "nbdkit --foreground --exit-with-parent --unix={socket} file file={plain}",
            ),
            Self::CryptlineOverNbd => (
                LUKS1,
                "cryptline serve --exit-with-parent {dispatch} --unix={socket} --key-file={key} \
                 {below-uri}",
            ),
            Self::NbdkitOverNbd => (
                LUKS1,
                "nbdkit --foreground --exit-with-parent --unix={socket} \
                 --filter=luks nbd socket={below} passphrase=+{key}",
            ),
            Self::NbdkitNull => (
                NOTHING,
                "nbdkit --foreground --exit-with-parent --unix={socket} null size={size}",
            ),
            Self::Null => (NOTHING, ""),
        };
        Spec { serves, line }
    }

    /// The program, for plots: the same whether it serves the encrypted disk or the plain one.
    pub fn label(self) -> String {
        word(&self).trim_end_matches("-plain").to_owned()
    }

    /// Serves the LUKS1 image.
    pub fn is_encrypted(self) -> bool {
        self.spec().serves == LUKS1
    }

    /// Has no image.
    pub fn is_null(self) -> bool {
        self.spec().serves == NOTHING
    }

    /// Is cryptline.
    pub fn is_ours(self) -> bool {
        self.label().starts_with("cryptline")
    }

    /// The name of its export: qemu-storage-daemon has none without a name.
    pub fn export(self) -> &'static str {
        if self.label() == "qsd" { "disk" } else { "" }
    }

    /// The command that serves, without pinning; `None` for the server in this process.
    pub fn command(self, programs: &Programs, place: &Place<'_>) -> Option<Vec<OsString>> {
        command(self.spec().line, programs, place)
    }

    /// The same for the server that it lies over, if any.
    pub fn command_below(self, programs: &Programs, place: &Place<'_>) -> Option<Vec<OsString>> {
        let is_over = matches!(self, Self::CryptlineOverNbd | Self::NbdkitOverNbd);
        is_over.then(|| command(BELOW, programs, place)).flatten()
    }

    fn program(self) -> Option<&'static str> {
        self.spec().line.split(' ').next()
    }
}

/// The default export at a socket.
fn uri_of(socket: &Path) -> String {
    NbdUri {
        tls: false,
        address: Address::Unix(socket.to_owned()),
        export: String::new(),
        tls_options: TlsOptions::default(),
    }
    .to_string()
}

fn command(line: &str, programs: &Programs, place: &Place<'_>) -> Option<Vec<OsString>> {
    let Place { images, socket, .. } = place;
    let mut command = foreign::words(line, |name| match name {
        "socket" => (*socket).into(),
        "below" => place.below.into(),
        "below-uri" => uri_of(place.below).into(),
        "luks" => images.luks1.clone().into(),
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

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&word(self))
    }
}

impl Programs {
    /// Finds all that is needed.
    pub fn find(servers: &[Server], generators: &[Generator], pinned: bool) -> Result<Self, Error> {
        let is_needed = |name: &str| match name {
            "fio" => generators.contains(&Generator::Fio),
            "taskset" => pinned,
            "nbdkit" if servers.contains(&Server::CryptlineOverNbd) => true,
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
