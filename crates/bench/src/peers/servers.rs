//! Who serves what, and by which command line.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::ValueEnum;

use super::generators::Generator;
use crate::Error;
use crate::foreign::Programs;
use crate::nbd::Export;
use crate::report::word;
use crate::setting::Setting;

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

/// Who serves the encrypted image to a server that lies over it: of the same file as everybody else, so that all can be
/// compared byte for byte. It is in the page cache; nbdkit's memory plugin would begin empty. `nbdkit-plain`, which a chain is
/// compared with, has the plain file in the same way.
const BELOW: &str = "nbdkit --foreground --exit-with-parent --unix={below} file file={luks1}";

/// What a server's command line is made for.
pub struct Place<'a> {
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
    /// The command line, see [`Setting::command`]; empty for the server in this process.
    line: &'static str,
}

impl Server {
    pub fn spec(self) -> Spec {
        let (serves, line) = match self {
            Self::Cryptline => (
                LUKS1,
                "cryptline serve --exit-with-parent --direct=off {dispatch} --unix={socket} \
                 --key-file={key} {luks1}",
            ),
            Self::CryptlineAsleep => (
                LUKS1,
                "cryptline serve --exit-with-parent --direct=off --poll-us=0 {dispatch} \
                 --unix={socket} --key-file={key} {luks1}",
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
                 --image-opts driver=luks,key-secret=key,file.driver=file,file.filename={luks1,}",
            ),
            Self::QemuNbdPlain => {
                ("raw", "qemu-nbd --persistent --shared={clients} --socket={socket} --format=raw {plain}")
            }
            Self::Qsd => (
                LUKS1,
                "qemu-storage-daemon --object secret,id=key,file={key,} \
                 --blockdev driver=file,node-name=file,filename={luks1,} \
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
                 --filter=luks file file={luks1} passphrase=+{key}",
            ),
            Self::NbdkitPlain => ("file", "nbdkit --foreground --exit-with-parent --unix={socket} file file={plain}"),
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
            Self::NbdkitNull => (NOTHING, "nbdkit --foreground --exit-with-parent --unix={socket} null size={size}"),
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
    pub fn command(self, setting: &Setting<'_>, place: &Place<'_>) -> Option<Vec<OsString>> {
        let line = self.spec().line;
        (!line.is_empty()).then(|| command(line, setting, place))
    }

    /// The same for the server that it lies over, if any.
    pub fn command_below(self, setting: &Setting<'_>, place: &Place<'_>) -> Option<Vec<OsString>> {
        self.lies_over_another().then(|| command(BELOW, setting, place))
    }

    /// Whether it has its image from another server.
    pub fn lies_over_another(self) -> bool {
        matches!(self, Self::CryptlineOverNbd | Self::NbdkitOverNbd)
    }

    fn program(self) -> Option<&'static str> {
        self.spec().line.split(' ').next()
    }
}

fn command(line: &str, setting: &Setting<'_>, place: &Place<'_>) -> Vec<OsString> {
    setting.command(line, |name| match name {
        "socket" => place.socket.into(),
        "below" => place.below.into(),
        "below-uri" => Export::new(place.below, "").uri().into(),
        "clients" => place.clients.to_string().into(),
        "dispatch" => {
            let word = |who| format!("--dispatch={who}");
            place.dispatch.map(word).unwrap_or_default().into()
        }
        other => other.into(),
    })
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&word(self))
    }
}

/// Whether some servers or generators need a program.
pub fn needs(servers: &[Server], generators: &[Generator], name: &str) -> bool {
    match name {
        "fio" => generators.contains(&Generator::Fio),
        "nbdkit" if servers.contains(&Server::CryptlineOverNbd) => true,
        name => servers.iter().any(|server| server.program() == Some(name)),
    }
}

/// Whether all that is needed is there.
pub fn check_programs(programs: &Programs, servers: &[Server], generators: &[Generator]) -> Result<(), Error> {
    let all = ["qemu-nbd", "qemu-storage-daemon", "nbdkit", "fio"];
    let needed = all.iter().filter(|name| needs(servers, generators, name));
    let missing: Vec<_> = needed.filter_map(|name| programs.missing(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::parameters(format!(
        "not installed: {}; install it, or leave it out by --servers or --generators",
        missing.join(", ")
    )))
}
