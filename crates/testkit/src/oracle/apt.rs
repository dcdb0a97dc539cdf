//! Packages from apt, which checks their signatures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::kernel::{Linux, UNPACK_TIMEOUT, at, files_below, tool};
use crate::peer;

const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Suite and component that the machine's own mirror has.
const THIS_RELEASE: &str = "bookworm/main";

/// apt with this machine's sources, or with others of its own.
#[derive(Default)]
pub(super) struct Apt {
    settings: Option<PathBuf>,
}

/// A kernel that apt can download.
pub(super) struct Package {
    /// Several, where its modules are apart.
    names: Vec<String>,
    pub(super) version: String,
}

impl Package {
    /// As apt takes it.
    pub(super) fn wanted(&self) -> Vec<String> {
        let names = self.names.iter();
        names.map(|name| format!("{name}={}", self.version)).collect()
    }
}

impl Apt {
    /// One that knows the packages of a later `release`, and keeps what it knows below `cache`. The machine's own
    /// sources stay as they are.
    pub(super) fn of_next_release(cache: &Path, release: &str) -> Result<Self, String> {
        let folder = cache.join("apt");
        for place in ["lists/partial", "cache/archives/partial"] {
            let place = folder.join(place);
            fs::create_dir_all(&place).map_err(at(&place))?;
        }
        let [list, settings] = ["list", "settings"].map(|name| folder.join(name));
        let mirror = mirror_of_this_machine()?;
        let source = format!("deb [signed-by={KEYRING}] {mirror} {release} main\n");
        fs::write(&list, source).map_err(at(&list))?;
        let place = folder.display();
        let text = format!(
            "Dir::Etc::sourcelist \"{place}/list\";\nDir::Etc::sourceparts \"-\";\n\
             Dir::State::lists \"{place}/lists\";\nDir::Cache \"{place}/cache\";\n"
        );
        fs::write(&settings, text).map_err(at(&settings))?;
        let settings = Some(settings);
        let apt = Self { settings };
        let mut update = apt.command("apt-get");
        tool(update.args(["--quiet", "update"]), DOWNLOAD_TIMEOUT)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        if let Some(settings) = &self.settings {
            command.env("APT_CONFIG", settings);
        }
        command
    }

    pub(super) fn newest_package(&self, linux: Linux) -> Result<Package, String> {
        let name = self.query(&["depends", linux.meta_package()], |line| {
            let name = dependency(line)?;
            name.starts_with("linux-image-").then(|| name.to_owned())
        })?;
        let version = self.version(&name)?;
        let part = |kind: &str| {
            self.query(&["depends", &name], |line| {
                let part = dependency(line)?;
                part.starts_with(kind).then(|| part.to_owned())
            })
        };
        let names = match (part("linux-binary-"), part("linux-modules-")) {
            (Ok(binary), Ok(modules)) => vec![binary, modules],
            _ => vec![name.clone()],
        };
        Ok(Package { names, version })
    }

    /// The newest version of a package.
    fn version(&self, name: &str) -> Result<String, String> {
        self.query(&["policy", name], |line| {
            let version = line.trim().strip_prefix("Candidate: ")?;
            let plain = |c: char| c.is_ascii_alphanumeric() || ".+~-:".contains(c);
            (version != "(none)" && version.chars().all(plain)).then(|| version.to_owned())
        })
    }

    /// Downloads packages, and puts their files into `unpacked` in `folder`.
    pub(super) fn unpack(&self, wanted: &[String], folder: &Path) -> Result<(), String> {
        let mut download = self.command("apt-get");
        let download = download.args(["--quiet", "download"]).args(wanted);
        tool(download.current_dir(folder), DOWNLOAD_TIMEOUT)?;
        let packages = files_below(folder).map_err(at(folder))?;
        for deb in packages.iter().filter(|name| name.ends_with(".deb")) {
            let mut unpack = Command::new("dpkg-deb");
            let unpack = unpack.args(["-x", deb, "unpacked"]).current_dir(folder);
            tool(unpack, UNPACK_TIMEOUT)?;
        }
        Ok(())
    }

    /// The first line of `apt-cache`'s answer that `pick` accepts.
    fn query(&self, arguments: &[&str; 2], pick: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        if peer::find_program("apt-cache").is_none() {
            return Err("Debian's packages come from apt, and there is no apt-cache here".to_owned());
        }
        let mut command = self.command("apt-cache");
        let run = peer::run(command.args(arguments), QUERY_TIMEOUT);
        let answer = run.stdout_text();
        answer
            .lines()
            .find_map(pick)
            .ok_or_else(|| format!("apt knows no package {} (run `apt-get update` as root)", arguments[1]))
    }
}

/// Where this machine's sources get Debian from.
fn mirror_of_this_machine() -> Result<String, String> {
    let mut policy = Apt::default().command("apt-cache");
    let run = peer::run(policy.arg("policy"), QUERY_TIMEOUT);
    let text = run.stdout_text();
    let mirror = text.lines().find_map(mirror_in);
    mirror
        .map(str::to_owned)
        .ok_or_else(|| format!("apt has no source of {THIS_RELEASE} (run `apt-get update` as root)"))
}

/// The mirror in one of `apt-cache policy`'s lines, if it has this release.
fn mirror_in(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip(1);
    let mirror = words.next()?;
    (words.next()? == THIS_RELEASE).then_some(mirror)
}

/// The package in a line about what another depends on.
fn dependency(line: &str) -> Option<&str> {
    line.trim().strip_prefix("Depends: ")?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_the_one_that_has_this_release() {
        let line = " 500 http://mirror.example/debian bookworm/main amd64 Packages";
        assert_eq!(mirror_in(line), Some("http://mirror.example/debian"));
        for other in [
            "Package files:",
            " 100 /var/lib/dpkg/status",
            " 500 http://mirror.example/debian-security bookworm-security/main amd64 Packages",
            "     release v=12.11,o=Debian,a=oldstable,n=bookworm,l=Debian,c=main,b=amd64",
        ] {
            assert_eq!(mirror_in(other), None, "{other}");
        }
    }
}
