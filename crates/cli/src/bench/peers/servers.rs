//! Who serves what, and by which command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::image::Images;
use super::jobs::Generator;
use crate::CliError;
use crate::bench::machine::quoted;

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

/// A foreign program, and the Debian package that brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Foreign {
    name: &'static str,
    package: &'static str,
}

const QEMU_NBD: Foreign = Foreign {
    name: "qemu-nbd",
    package: "qemu-utils",
};
const QSD: Foreign = Foreign {
    name: "qemu-storage-daemon",
    package: "qemu-system-common",
};
const NBDKIT: Foreign = Foreign {
    name: "nbdkit",
    package: "nbdkit",
};
const FIO: Foreign = Foreign {
    name: "fio",
    package: "fio",
};
const TASKSET: Foreign = Foreign {
    name: "taskset",
    package: "util-linux",
};

/// Where the programs are.
#[derive(Debug)]
pub struct Programs {
    found: Vec<(&'static str, PathBuf)>,
    cryptline: PathBuf,
}

impl Server {
    /// All of them: the encrypted ones and their plain ones in turns, then the limits.
    pub const ALL: [Self; 10] = [
        Self::Cryptline,
        Self::CryptlinePlain,
        Self::QemuNbd,
        Self::QemuNbdPlain,
        Self::Qsd,
        Self::QsdPlain,
        Self::Nbdkit,
        Self::NbdkitPlain,
        Self::Null,
        Self::NbdkitNull,
    ];
    /// Encrypted servers that others wrote.
    pub const ENCRYPTED_PEERS: [Self; 3] = [Self::QemuNbd, Self::Qsd, Self::Nbdkit];

    /// Serves the LUKS1 image.
    pub fn is_encrypted(self) -> bool {
        self == Self::Cryptline || Self::ENCRYPTED_PEERS.contains(&self)
    }

    /// Has no image.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null | Self::NbdkitNull)
    }

    /// What it serves, for people.
    pub fn describe(self) -> &'static str {
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

    fn program(self) -> Option<Foreign> {
        match self {
            Self::Cryptline | Self::CryptlinePlain | Self::Null => None,
            Self::QemuNbd | Self::QemuNbdPlain => Some(QEMU_NBD),
            Self::Qsd | Self::QsdPlain => Some(QSD),
            Self::Nbdkit | Self::NbdkitPlain | Self::NbdkitNull => Some(NBDKIT),
        }
    }

    /// The command that serves, without pinning; `None` for the server in this process.
    pub fn command(
        self,
        programs: &Programs,
        images: &Images,
        socket: &Path,
        clients: u32,
        dispatch: Option<&str>,
    ) -> Option<Vec<OsString>> {
        let mut line = Line::new(match self.program() {
            Some(foreign) => programs.path(foreign.name),
            None => &programs.cryptline,
        });
        match self {
            Self::Null => return None,
            Self::Cryptline | Self::CryptlinePlain => {
                line.words(["serve", "--exit-with-parent", "--direct=off"]);
                line.words(dispatch.map(|who| format!("--dispatch={who}")));
                self.cryptline(line.path("--unix=", socket), images);
            }
            Self::QemuNbd | Self::QemuNbdPlain => {
                line.words(["--persistent".to_owned(), format!("--shared={clients}")]);
                self.qemu_nbd(line.path("--socket=", socket), images);
            }
            Self::Qsd | Self::QsdPlain => self.qsd(&mut line, images, socket, clients),
            Self::Nbdkit | Self::NbdkitPlain | Self::NbdkitNull => {
                line.words(["--foreground", "--exit-with-parent"]);
                self.nbdkit(line.path("--unix=", socket), images);
            }
        }
        Some(line.0)
    }

    fn cryptline(self, line: &mut Line, images: &Images) {
        if self == Self::Cryptline {
            line.path("--key-file=", &images.key).path("", &images.luks);
            return;
        }
        // Any key size: the null cipher has no key.
        line.words(["--type=plain", "--cipher=cipher_null-ecb", "--key-size=256"]);
        line.path("", &images.plain);
    }

    fn qemu_nbd(self, line: &mut Line, images: &Images) {
        if self == Self::QemuNbdPlain {
            line.word("--format=raw").path("", &images.plain);
            return;
        }
        line.word("--object")
            .option("secret,id=key,file=", &images.key);
        line.word("--image-opts").option(
            "driver=luks,key-secret=key,file.driver=file,file.filename=",
            &images.luks,
        );
    }

    fn qsd(self, line: &mut Line, images: &Images, socket: &Path, clients: u32) {
        if self == Self::QsdPlain {
            line.word("--blockdev")
                .option("driver=file,node-name=disk,filename=", &images.plain);
        } else {
            line.word("--object")
                .option("secret,id=key,file=", &images.key);
            line.word("--blockdev")
                .option("driver=file,node-name=file,filename=", &images.luks);
            line.word("--blockdev")
                .word("driver=luks,node-name=disk,key-secret=key,file=file");
        }
        line.word("--nbd-server").option(
            &format!("max-connections={clients},addr.type=unix,addr.path="),
            socket,
        );
        line.word("--export")
            .word("type=nbd,id=nbd,node-name=disk,name=disk,writable=on");
    }

    fn nbdkit(self, line: &mut Line, images: &Images) {
        match self {
            Self::Nbdkit => {
                line.words(["--filter=luks", "file"]);
                line.path("file=", &images.luks)
                    .path("passphrase=+", &images.key);
            }
            Self::NbdkitPlain => {
                line.word("file").path("file=", &images.plain);
            }
            _ => line.words(["null".to_owned(), format!("size={}", images.size)]),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Programs {
    /// Finds all that is needed.
    ///
    /// # Errors
    /// Exit code 1, naming every missing program and its package.
    pub fn find(
        servers: &[Server],
        generators: &[Generator],
        pinned: bool,
    ) -> Result<Self, CliError> {
        let mut needed: Vec<Foreign> = servers
            .iter()
            .filter_map(|server| server.program())
            .collect();
        needed.extend(generators.contains(&Generator::Fio).then_some(FIO));
        needed.extend(pinned.then_some(TASKSET));
        let mut found: Vec<(&'static str, PathBuf)> = Vec::new();
        let mut missing: Vec<String> = Vec::new();
        for foreign in super::unique(&needed) {
            match in_path(foreign.name) {
                Some(path) => found.push((foreign.name, path)),
                None => missing.push(format!("{} (package {})", foreign.name, foreign.package)),
            }
        }
        if !missing.is_empty() {
            return Err(CliError::parameters(format!(
                "not installed: {}; install it, or leave it out by --servers, --generators or --no-pin",
                missing.join(", ")
            )));
        }
        let cryptline = std::env::current_exe().map_err(|error| {
            CliError::device(format!("cannot find this program itself: {error}"))
        })?;
        Ok(Self { found, cryptline })
    }

    /// Where a program is that was asked for.
    pub fn path(&self, name: &str) -> &Path {
        let found = self.found.iter().find(|(found, _)| *found == name);
        // What was not asked for is not used; the bare name then says which it is.
        found.map_or(Path::new("missing-program"), |(_, path)| path)
    }

    /// What each foreign program says of its version.
    pub fn versions(&self) -> Vec<String> {
        let version = |(name, path): &(&str, PathBuf)| {
            let said = std::process::Command::new(path)
                .arg("--version")
                .output()
                .ok()?;
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

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs = |file: &PathBuf| {
        std::fs::metadata(file)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| folder.join(name))
        .find(runs)
}

/// A command line being put together.
struct Line(Vec<OsString>);

impl Line {
    fn new(program: &Path) -> Self {
        Self(vec![program.into()])
    }

    fn word(&mut self, word: &str) -> &mut Self {
        self.0.push(word.into());
        self
    }

    fn words<W: Into<OsString>>(&mut self, words: impl IntoIterator<Item = W>) {
        self.0.extend(words.into_iter().map(Into::into));
    }

    fn path(&mut self, before: &str, path: &Path) -> &mut Self {
        let mut word = OsString::from(before);
        word.push(path);
        self.0.push(word);
        self
    }

    /// As [`path`](Self::path), for qemu's `name=value,...`, where a comma is written twice.
    fn option(&mut self, before: &str, path: &Path) -> &mut Self {
        let path = path.to_string_lossy().replace(',', ",,");
        self.path(before, Path::new(&path))
    }
}

/// A command as one would type it.
pub fn typed(command: &[OsString]) -> String {
    let words = command.iter().map(|word: &OsString| {
        let word: &OsStr = word;
        quoted(&word.to_string_lossy())
    });
    words.collect::<Vec<_>>().join(" ")
}
