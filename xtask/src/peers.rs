//! Installs the Debian packages that the tests need, as root or through `sudo` without a password.
//! Otherwise it prints the command to run.

use std::process::Command;

use cryptline_peers as peer;

use crate::step::{Failed, run as run_command, succeeds};

/// Package that the kernel oracle downloads; apt must know it.
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// One round may push out a peer of another Debian release; the next brings back the one that fits.
const ROUNDS_MAX: usize = 2;

/// Installs what is missing. Outside CI a machine where that is impossible is no failure: the tests
/// that need a peer then say `SKIP`.
pub fn run() -> Result<(), Failed> {
    let missing = peer::missing_packages();
    if missing.is_empty() && apt_knows(KERNEL_PACKAGE) {
        println!("all test peers are installed");
        return Ok(());
    }
    let Some(privilege) = Privilege::find() else {
        return cannot_install(&missing);
    };
    if let Err(Failed(why)) = run_command(&mut privilege.apt(&["update", "--quiet"])) {
        println!("{why}");
        return cannot_install(&missing);
    }
    for _ in 0..ROUNDS_MAX {
        let missing = peer::missing_packages();
        if missing.is_empty() {
            return Ok(());
        }
        if let Err(failed) = install(&privilege, &missing) {
            println!("{}", failed.0);
            return cannot_install(&missing);
        }
    }
    match peer::missing_packages() {
        left if left.is_empty() => Ok(()),
        left => cannot_install(&left),
    }
}

/// Somebody's own machine keeps every package it has; a CI machine is there to be changed.
fn install(privilege: &Privilege, packages: &[&str]) -> Result<(), Failed> {
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    if !peer::in_ci() {
        arguments.push("--no-remove");
    }
    arguments.extend(packages);
    run_command(&mut privilege.apt(&arguments))
}

fn cannot_install(missing: &[&str]) -> Result<(), Failed> {
    let install = match missing {
        [] => String::new(),
        _ => format!(" && apt-get install --no-install-recommends {}", missing.join(" ")),
    };
    let advice = format!("run as root: apt-get update{install}");
    if peer::in_ci() {
        return Err(Failed(format!("test peers are missing and CI=true; {advice}")));
    }
    println!("some tests will be skipped; to run them all, {advice}");
    Ok(())
}

fn apt_knows(package: &str) -> bool {
    succeeds("apt-cache", &["show", "--quiet", package])
}

/// How to become root.
enum Privilege {
    Root,
    Sudo,
}

impl Privilege {
    fn find() -> Option<Self> {
        if !succeeds("apt-get", &["--version"]) {
            None
        } else if rustix::process::geteuid().is_root() {
            Some(Self::Root)
        } else if succeeds("sudo", &["-n", "true"]) {
            Some(Self::Sudo)
        } else {
            None
        }
    }

    fn apt(&self, arguments: &[&str]) -> Command {
        let (program, prefix): (&str, &[&str]) = match self {
            Self::Root => ("env", &[]),
            Self::Sudo => ("sudo", &["-n", "env"]),
        };
        let mut command = Command::new(program);
        command.args(prefix).args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
        command
    }
}
