//! The Debian package: a folder that dpkg-deb packs. In CI it is installed, used, installed again under a running server,
//! and purged.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cryptline_peers::{self as peer, BackgroundProgram};
use rustix::process::Signal;

use crate::portable::{self, USUAL};
use crate::step::{Failed, cannot_run, cargo, output, run as run_command, succeeds};

const PACKAGE: &str = "target/debian/cryptline.deb";
const PROGRAM: &str = "/usr/bin/cryptline";
/// Some of everything that is in it.
const FILES: &[&str] = &[
    PROGRAM,
    "/usr/share/man/man1/cryptline-serve.1.gz",
    "/usr/share/bash-completion/completions/cryptline",
    "/usr/share/zsh/vendor-completions/_cryptline",
    "/usr/lib/systemd/system/cryptline@.service",
    "/usr/lib/cryptline/helpers/cryptline-key-vault",
    "/usr/share/doc/cryptline/examples/90-cryptline-ublk.rules",
    "/usr/share/doc/cryptline/copyright",
    "/usr/share/doc/cryptline/THIRD-PARTY.txt",
    "/usr/share/doc/cryptline/cryptline.cdx.json",
];
/// Files of this repository, or made before, by the folder they go to. A `*` is each file of a folder with that ending.
const CONTENTS: &[(&str, &[&str])] = &[
    ("usr/share/man/man1", &["target/pages/*.1"]),
    ("usr/share/fish/vendor_completions.d", &["target/pages/cryptline.fish"]),
    ("usr/share/zsh/vendor-completions", &["target/pages/_cryptline"]),
    ("usr/lib/systemd/system", &["systemd/*"]),
    (HELPERS, &["helpers/*"]),
    ("usr/share/doc/cryptline/examples", &["udev/*"]),
    (
        "usr/share/doc/cryptline",
        &[
            "docs/*.md",
            "docs/grafana.json",
            "README.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "LICENSE-APACHE",
            "LICENSE-MIT",
        ],
    ),
];
/// Folder of the helpers of tokens, which are programs.
const HELPERS: &str = "usr/lib/cryptline/helpers";
const DESCRIPTION: &str = "\
Opens encrypted disks (LUKS, dm-crypt) in user space and serves them
 cryptline opens encrypted disks in user space, byte-compatible with dm-crypt
 and cryptsetup, and gives the decrypted disk to whoever needs it: as an NBD
 export, as the disk of a virtual machine (vhost-user-blk), as a file (FUSE) or
 as a block device (ublk). No root, no device-mapper.
";
/// Size that a whole program may have on a disk.
const PROGRAM_BYTES_MAX: u64 = 24 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a package of the usual build.
pub fn usual() -> Result<(), Failed> {
    cargo(&["build", "--release", "--locked", "--package=cryptline-cli", "--package=cryptline-pages"])?;
    let notices = crate::notices::folder();
    crate::notices::write(&notices, &USUAL)?;
    let built = crate::root().join("target/release");
    make(&built.join("cryptline"), &notices, &built.join("cryptline-pages"))
}

/// Makes a package of the static program, with the pages that the tests have built. In CI, where the machine is there to
/// be changed, it is installed as well.
pub fn run() -> Result<(), Failed> {
    let made = portable::folder();
    if !made.join("cryptline").exists() {
        return cannot_run("package", "there is no static program");
    }
    make(&made.join("cryptline"), &made.join("notices"), &crate::root().join("target/debug/cryptline-pages"))?;
    if !peer::in_ci() {
        println!("its installation is tried in CI only");
        return Ok(());
    }
    dpkg(&["--install", PACKAGE])?;
    let used = use_it();
    let purged = dpkg(&["--purge", "cryptline"]);
    used.and(purged)?;
    match FILES.iter().find(|file| Path::new(file).exists()) {
        Some(left) => Err(Failed(format!("purging left {left} behind"))),
        None => Ok(()),
    }
}

/// Packs a program, its notices, and what `pages` writes.
fn make(program: &Path, notices: &Path, pages: &Path) -> Result<(), Failed> {
    if !succeeds("dpkg-deb", &["--version"]) {
        return cannot_run("package", "dpkg-deb is missing: only Debian and its relatives have it");
    }
    let folder = crate::root().join("target/debian/root");
    for old in [&folder, &crate::root().join("target/pages")] {
        let _none_yet = fs::remove_dir_all(old);
    }
    run_command(Command::new(pages).arg("target/pages").envs(date()?))?;
    for (to, files) in CONTENTS {
        for file in files.iter().map(|file| matching(file)) {
            let mode = if *to == HELPERS { "755" } else { "644" };
            install(&file?, mode, &folder.join(to))?;
        }
    }
    let doc = folder.join("usr/share/doc/cryptline");
    install(&files_in(notices, "")?, "644", &doc)?;
    install(&[program.to_owned()], "755", &folder.join("usr/bin"))?;
    install(&matching("crates/cli/debian/*")?, "755", &folder.join("DEBIAN"))?;
    link(&folder)?;
    let completions = folder.join("usr/share/bash-completion/completions");
    install(&matching("target/pages/cryptline.bash")?, "644", &completions)?;
    let failed = |error: io::Error| Failed(format!("{}: {error}", folder.display()));
    fs::rename(completions.join("cryptline.bash"), completions.join("cryptline")).map_err(failed)?;
    // As Debian wants it: the licence is there, not only its name.
    fs::rename(doc.join("LICENSE-MIT"), doc.join("copyright")).map_err(failed)?;
    run_command(Command::new("strip").arg(folder.join("usr/bin/cryptline")))?;
    run_command(Command::new("gzip").args(["-9n"]).args(files_in(&folder.join("usr/share/man/man1"), ".1")?))?;
    fs::write(folder.join("DEBIAN/control"), control(&folder)?).map_err(failed)?;
    run_command(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&folder).arg(PACKAGE))?;
    run_command(Command::new("dpkg-deb").args(["--info", PACKAGE]))?;
    let contents = output(Command::new("dpkg-deb").args(["--contents", PACKAGE]))?;
    let has = |file: &str| contents.lines().any(|line| line.ends_with(&format!(" .{file}")));
    match FILES.iter().find(|file| !has(file)) {
        Some(missing) => Err(Failed(format!("the package has no {missing}"))),
        None => Ok(()),
    }
}

/// The time of the commit, for the pages, where nobody has said another one.
fn date() -> Result<Option<(&'static str, String)>, Failed> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if std::env::var_os(VARIABLE).is_some() || !succeeds("git", &["rev-parse", "HEAD"]) {
        return Ok(None);
    }
    let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?;
    Ok(Some((VARIABLE, time.trim().to_owned())))
}

/// The name by which the program answers cryptsetup's callers, in nobody's `PATH`.
fn link(folder: &Path) -> Result<(), Failed> {
    let names = folder.join("usr/lib/cryptline/bin");
    let failed = |error: io::Error| Failed(format!("{}: {error}", names.display()));
    fs::create_dir_all(&names).map_err(failed)?;
    symlink("../../../bin/cryptline", names.join("cryptsetup")).map_err(failed)
}

/// The files that a line of [`CONTENTS`] means.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, Failed> {
    match pattern.split_once("/*") {
        Some((folder, ending)) => files_in(&crate::root().join(folder), ending),
        None => Ok(vec![crate::root().join(pattern)]),
    }
}

fn files_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Failed> {
    let failed = |error: io::Error| Failed(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn install(files: &[PathBuf], mode: &str, folder: &Path) -> Result<(), Failed> {
    let mut install = Command::new("install");
    install.args(["-D", "--mode", mode, "--target-directory"]).arg(folder);
    run_command(install.args(files))
}

fn control(folder: &Path) -> Result<String, Failed> {
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let size = output(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1K"]).arg(folder))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let needs =
        output(Command::new("readelf").args(["--version-info", "--wide"]).arg(folder.join("usr/bin/cryptline")))?;
    let depends = depends(&needs).map_or_else(String::new, |depends| format!("Depends: {depends}\n"));
    Ok(format!(
        "Package: cryptline\nVersion: {}-1\nArchitecture: {}\nMaintainer: cryptline developers <cryptline@localhost>\n\
         Section: admin\nPriority: optional\nInstalled-Size: {size}\n{depends}Recommends: fuse3\n\
         Suggests: librbd1, e2fsprogs, jq, curl\nDescription: {DESCRIPTION}",
        env!("CARGO_PKG_VERSION"),
        architecture.trim(),
    ))
}

/// The packages that a program linked against glibc needs, by the versions of symbols in it.
fn depends(readelf: &str) -> Option<String> {
    let versions = readelf.split("Name: GLIBC_").skip(1).filter_map(|rest| {
        let (major, minor) = rest.split_whitespace().next()?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
    });
    let (major, minor) = versions.max()?;
    Some(format!("libc6 (>= {major}.{minor}), libgcc-s1"))
}

/// The program runs, and a server goes on while its package is installed again.
fn use_it() -> Result<(), Failed> {
    let bytes = fs::metadata(PROGRAM).map_or(0, |program| program.len());
    if bytes > PROGRAM_BYTES_MAX {
        return Err(Failed(format!("{PROGRAM} has {bytes} bytes")));
    }
    print!("{}", output(Command::new(PROGRAM).arg("--version"))?);
    let folder = tempfile::tempdir().map_err(|error| Failed(error.to_string()))?;
    let socket = folder.path().join("nbd.sock");
    let mut serve = Command::new(PROGRAM);
    serve.args(["serve", "ram:16M", "--unix"]).arg(&socket);
    let mut server = BackgroundProgram::spawn(&mut serve).wait_for_socket(&socket, TIMEOUT);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let client = || output(Command::new("nbdinfo").args(["--size", &uri]));
    client()?;
    dpkg(&["--install", PACKAGE])?;
    client()?;
    server.signal(Signal::TERM);
    match server.wait(TIMEOUT) {
        Some(status) if status.success() => Ok(()),
        _ => Err(Failed(server.collect().to_string())),
    }
}

fn dpkg(arguments: &[&str]) -> Result<(), Failed> {
    run_command(Command::new("dpkg").args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_needs_the_newest_glibc_that_the_program_does() {
        let readelf = "  0x0020:   Name: GLIBC_2.9  Flags: none\n  0x0030:   Name: GLIBC_2.34  Flags: none\n\
                       \x20 0x0040:   Name: GLIBC_2.2.5  Flags: none\n  0x0050:   Name: GCC_3.0  Flags: none\n";
        assert_eq!(depends(readelf).as_deref(), Some("libc6 (>= 2.34), libgcc-s1"));
        assert_eq!(depends("No version information found in this file."), None);
    }
}
