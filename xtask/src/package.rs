//! The Debian package: made from the release build, installed, used, installed again under a running server, and
//! purged.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cryptline_peers::{self as peer, Background};
use rustix::process::Signal;

use crate::portable::{self, Build};
use crate::step::{Failed, cannot_run, cargo, output, run as run_command, succeeds};
use crate::tools::CARGO_DEB;

const PROGRAM: &str = "/usr/bin/cryptline";
/// Some of everything that is in it.
const FILES: &[&str] = &[
    PROGRAM,
    "/usr/share/man/man1/cryptline-serve.1.gz",
    "/usr/share/bash-completion/completions/cryptline",
    "/usr/share/zsh/vendor-completions/_cryptline",
    "/usr/lib/systemd/system/cryptline@.service",
    "/usr/share/doc/cryptline/examples/90-cryptline-ublk.rules",
    "/usr/share/doc/cryptline/copyright",
    "/usr/share/doc/cryptline/THIRD-PARTY.txt",
    "/usr/share/doc/cryptline/cryptline.cdx.json",
];
/// There where the program has that verb.
const BENCH_PAGE: &str = "/usr/share/man/man1/cryptline-bench.1.gz";
/// What a whole program may weigh on a disk.
const PROGRAM_BYTES_MAX: u64 = 24 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes the package. In CI, where the machine is there to be changed, it is installed as well.
pub fn run() -> Result<(), Failed> {
    let Some(program) = CARGO_DEB.find() else {
        return cannot_run("package", "cargo-deb is missing: cargo xtask tools installs it");
    };
    let package = "target/debian/cryptline.deb";
    let mut deb = Command::new(program);
    deb.args(["deb", "--no-build", "--locked", "--strip"]).args(["--package=cryptline-cli", "--output", package]);
    let made = peer::in_ci().then(Build::made).flatten();
    let build = if let Some(build) = made {
        // The release build that is there already. Everything around it is the same.
        deb.args(["--target", build.target, "--profile", build.profile]);
        build
    } else {
        cargo(&["build", "--release", "--package=cryptline-cli", "--locked"])?;
        portable::USUAL
    };
    crate::notices::write(&crate::notices::folder(), &build)?;
    write_pages(&build)?;
    run_command(&mut deb)?;
    run_command(Command::new("dpkg-deb").args(["--info", package]))?;
    check_contents(package)?;
    if !peer::in_ci() {
        println!("SKIP its installation: only in CI");
        return Ok(());
    }
    dpkg(&["--install", package])?;
    let used = use_it(package);
    let purged = dpkg(&["--purge", "cryptline"]);
    used.and(purged)?;
    match FILES.iter().find(|file| Path::new(file).exists()) {
        Some(left) => Err(Failed(format!("purging left {left} behind"))),
        None => Ok(()),
    }
}

/// Man pages and completions, of this very program: they know no verb that it has not.
fn write_pages(build: &Build) -> Result<(), Failed> {
    let program = build.program();
    let folder = crate::root().join("target/pages");
    let failed = |error: io::Error| Failed(format!("{}: {error}", folder.display()));
    let man = folder.join("man");
    if man.exists() {
        fs::remove_dir_all(&man).map_err(failed)?;
    }
    fs::create_dir_all(&man).map_err(failed)?;
    run_command(Command::new(&program).arg("man").arg(&man))?;
    let completions = [("bash", "cryptline.bash"), ("fish", "cryptline.fish"), ("zsh", "_cryptline")];
    for (shell, name) in completions {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        fs::write(folder.join(name), script).map_err(failed)?;
    }
    Ok(())
}

fn check_contents(package: &str) -> Result<(), Failed> {
    let contents = output(Command::new("dpkg-deb").args(["--contents", package]))?;
    let has = |file: &str| contents.lines().any(|line| line.ends_with(&format!(" .{file}")));
    match FILES.iter().find(|file| !has(file)) {
        Some(missing) => Err(Failed(format!("the package has no {missing}"))),
        None => Ok(()),
    }
}

/// The program runs, and a server goes on while its package is installed again.
fn use_it(package: &str) -> Result<(), Failed> {
    let bytes = fs::metadata(PROGRAM).map_or(0, |program| program.len());
    if bytes > PROGRAM_BYTES_MAX {
        return Err(Failed(format!("{PROGRAM} has {bytes} bytes")));
    }
    print!("{}", output(Command::new(PROGRAM).arg("--version"))?);
    if Path::new(BENCH_PAGE).exists() != succeeds(PROGRAM, &["bench", "--help"]) {
        return Err(Failed(format!("{BENCH_PAGE} and the program differ")));
    }
    let folder = tempfile::tempdir().map_err(|error| Failed(error.to_string()))?;
    let socket = folder.path().join("nbd.sock");
    let mut serve = Command::new(PROGRAM);
    serve.args(["serve", "ram:16M", "--unix"]).arg(&socket);
    let mut server = Background::spawn(&mut serve).wait_for_socket(&socket, TIMEOUT);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let client = || output(Command::new("nbdinfo").args(["--size", &uri]));
    client()?;
    dpkg(&["--install", package])?;
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
