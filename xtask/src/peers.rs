//! Installs the Debian packages the tests need: as root or through `sudo` without a password; otherwise
//! it prints the command to type.

use std::process::Command;

use cryptline_testkit::peer;

use crate::step::{Failed, run as run_command, succeeds};

/// What the kernel oracle downloads; apt must know it.
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// Installs what is missing. Outside CI a machine where that is impossible is no failure: the tests
/// that need a peer then say `SKIP`.
pub fn run() -> Result<(), Failed> {
    let missing = peer::missing_packages();
    let lists_missing = !apt_knows(KERNEL_PACKAGE);
    if missing.is_empty() && !lists_missing {
        println!("all test peers are installed");
        return Ok(());
    }
    let Some(privilege) = Privilege::find() else {
        return cannot_install(&missing);
    };
    run_command(&mut privilege.apt(&["update", "--quiet"]))?;
    if !missing.is_empty() {
        let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
        arguments.extend(&missing);
        run_command(&mut privilege.apt(&arguments))?;
    }
    match peer::missing_packages() {
        left if left.is_empty() => Ok(()),
        left => Err(Failed(format!(
            "still missing after the installation: {}",
            left.join(" ")
        ))),
    }
}

fn cannot_install(missing: &[&str]) -> Result<(), Failed> {
    let install = match missing {
        [] => String::new(),
        _ => format!(
            " && apt-get install --no-install-recommends {}",
            missing.join(" ")
        ),
    };
    let advice = format!("run as root: apt-get update{install}");
    if peer::in_ci() {
        return Err(Failed(format!(
            "test peers are missing and CI=true; {advice}"
        )));
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
        command
            .args(prefix)
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
            .args(arguments);
        command
    }
}
