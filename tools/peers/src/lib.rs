//! Programs we did not write, and how a test gets hold of one.
//!
//! ```text
//! let Some(nbdinfo) = peer::require("nbdinfo") else { return };
//! let run = nbdinfo.run(["--json", &uri]);      // bounded in time, whole process group killed when late
//! assert!(run.success().stdout_text().contains("base:allocation"));
//! ```
//!
//! A missing peer fails the test when `CI=true`; elsewhere the test says `SKIP <test>: ...` with the
//! command that installs it, and returns. The table below is also what `cargo xtask peers` installs from. Tests reach all
//! of it as `cryptline_testkit::peer`; `xtask` uses it without the engine that testkit brings. [`ceph`] is a whole cluster
//! for one test or comparison.

#![forbid(unsafe_code)]

pub mod ceph;
mod process;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use process::{BackgroundProgram, Run, listens, run, run_with_input};

/// How long a peer may take unless the test says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// One program the tests need, and the Debian package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerInfo {
    /// The name [`require`] takes: the program's name, or the package's for a library.
    pub name: &'static str,
    /// The Debian 12 package.
    pub package: &'static str,
    probe: PeerProbe,
}

/// How we know that a peer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerProbe {
    /// A program of this name on `PATH` or in the system folders.
    Program,
    /// There is this file.
    File(&'static str),
    /// Debian's own Python can import this module. Another Python may come first on `PATH`, and it
    /// would not see Debian's modules.
    PythonModule(&'static str),
}

const fn program(name: &'static str, package: &'static str) -> PeerInfo {
    PeerInfo { name, package, probe: PeerProbe::Program }
}

/// Every peer of every test.
pub const PEERS: &[PeerInfo] = &[
    // Links for 64-bit ARM.
    program("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    program("addpart", "util-linux"),
    program("blkdiscard", "util-linux"),
    program("blockdev", "util-linux"),
    program("blkzone", "util-linux"),
    program("btrfs", "btrfs-progs"),
    program("busybox", "busybox-static"),
    // Builds the fuzz targets.
    program("c++", "g++"),
    program("cc", "gcc"),
    program("ceph", "ceph-common"),
    program("ceph-authtool", "ceph-common"),
    program("ceph-mon", "ceph-mon"),
    program("ceph-osd", "ceph-osd"),
    program("chromium", "chromium"),
    program("clevis", "clevis-luks"),
    program("cmp", "diffutils"),
    program("cryptsetup", "cryptsetup-bin"),
    // Runs containers.
    program("crun", "crun"),
    program("curl", "curl"),
    program("dd", "coreutils"),
    program("debugfs", "e2fsprogs"),
    program("delpart", "util-linux"),
    program("dmsetup", "dmsetup"),
    program("e2fsck", "e2fsprogs"),
    // Makes images for pyewf.
    program("ewfacquire", "ewf-tools"),
    program("fdisk", "fdisk"),
    // Talks to security keys.
    program("fido2-token", "fido2-tools"),
    program("fio", "fio"),
    // Mounts the file system in a file.
    program("fuse2fs", "fuse2fs"),
    // Mounts for users who may not.
    program("fusermount3", "fuse3"),
    // Read and write what helpers of tokens say.
    program("jq", "jq"),
    program("losetup", "mount"),
    program("mkfs.btrfs", "btrfs-progs"),
    program("mkfs.ext4", "e2fsprogs"),
    program("mkfs.vfat", "dosfstools"),
    program("mkfs.xfs", "xfsprogs"),
    program("mkswap", "util-linux"),
    // Compiles what is linked statically.
    program("musl-gcc", "musl-tools"),
    program("nbd-server", "nbd-server"),
    program("nbdcopy", "libnbd-bin"),
    program("nbdinfo", "libnbd-bin"),
    program("nbdkit", "nbdkit"),
    program("nm", "binutils"),
    program("openssl", "openssl"),
    program("parted", "parted"),
    // Talks to a token in software.
    program("pkcs11-tool", "opensc"),
    program("pkg-config", "pkgconf"),
    program("pmempool", "pmdk-tools"),
    // Makes and runs container images.
    program("podman", "podman"),
    program("pvcreate", "lvm2"),
    // Runs programs for 64-bit ARM.
    program("qemu-aarch64", "qemu-user"),
    program("qemu-img", "qemu-utils"),
    program("qemu-io", "qemu-utils"),
    program("qemu-nbd", "qemu-utils"),
    program("qemu-storage-daemon", "qemu-system-common"),
    program("qemu-system-x86_64", "qemu-system-x86"),
    program("rbd", "ceph-common"),
    program("sfdisk", "fdisk"),
    program("sgdisk", "gdisk"),
    // The token in software.
    program("softhsm2-util", "softhsm2"),
    // Files of another machine, which is this one.
    program("ssh-keygen", "openssh-client"),
    program("sshd", "openssh-server"),
    PeerInfo {
        name: "libc6-dev-arm64-cross",
        package: "libc6-dev-arm64-cross",
        probe: PeerProbe::File("/usr/aarch64-linux-gnu/lib/libc.so"),
    },
    // Names the keys of a tang server, and says what it asks.
    program("jose", "jose"),
    // Passphrases for clevis.
    program("pwmake", "libpwquality-tools"),
    program("prlimit", "util-linux"),
    program("python3", "python3"),
    program("systemd-analyze", "systemd"),
    // Makes recovery keys.
    program("systemd-cryptenroll", "systemd"),
    program("setpriv", "util-linux"),
    program("systemd-socket-activate", "systemd"),
    PeerInfo { name: "tang", package: "tang-common", probe: PeerProbe::File("/usr/libexec/tangd") },
    // A TPM, and what systemd and other programs reach it by.
    program("swtpm", "swtpm"),
    PeerInfo {
        name: "libtss2-tcti-swtpm0",
        package: "libtss2-tcti-swtpm0",
        probe: PeerProbe::File("/usr/lib/x86_64-linux-gnu/libtss2-tcti-swtpm.so.0"),
    },
    program("tpm2_flushcontext", "tpm2-tools"),
    program("udevadm", "udev"),
    program("unshare", "util-linux"),
    // Counts instructions.
    program("valgrind", "valgrind"),
    // Runs a libvirt domain without a daemon.
    program("virt-qemu-run", "libvirt-daemon-driver-qemu"),
    program("virt-xml-validate", "libvirt-clients"),
    // What that validates by.
    program("xmllint", "libxml2-utils"),
    program("xfs_repair", "xfsprogs"),
    program("xz", "xz-utils"),
    PeerInfo { name: "python3-libnbd", package: "python3-libnbd", probe: PeerProbe::PythonModule("nbd") },
    PeerInfo { name: "python3-libewf", package: "python3-libewf", probe: PeerProbe::PythonModule("pyewf") },
    // What QEMU's programs reach a Ceph cluster by.
    PeerInfo {
        name: "qemu-block-extra",
        package: "qemu-block-extra",
        probe: PeerProbe::File("/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so"),
    },
    // Makes environments for Python's packages.
    PeerInfo { name: "python3-venv", package: "python3-venv", probe: PeerProbe::PythonModule("ensurepip") },
    // Reads what Prometheus is told.
    PeerInfo {
        name: "python3-prometheus-client",
        package: "python3-prometheus-client",
        probe: PeerProbe::PythonModule("prometheus_client"),
    },
    PeerInfo { name: "python3-rbd", package: "python3-rbd", probe: PeerProbe::PythonModule("rbd") },
    PeerInfo { name: "python3-yaml", package: "python3-yaml", probe: PeerProbe::PythonModule("yaml") },
];

/// A peer that is installed.
#[derive(Debug, Clone)]
pub struct Peer {
    path: PathBuf,
}

impl Peer {
    /// A program that is at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the program is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command of this program, with messages in English and nothing on standard input.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.env("LC_ALL", "C").env("TZ", "UTC");
        command
    }

    /// Runs the program with `arguments` for at most [`TIMEOUT_DEFAULT`].
    ///
    /// # Panics
    /// When the program cannot be started or does not end in time.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Run {
        run(self.command().args(arguments), TIMEOUT_DEFAULT)
    }
}

/// The peer called `name`, or `None` after a `SKIP` line when it is not installed.
///
/// # Panics
/// When the peer is missing and `CI=true`, and when `name` is not in [`PEERS`].
pub fn require(name: &str) -> Option<Peer> {
    let info = PEERS
        .iter()
        .find(|info| info.name == name)
        .unwrap_or_else(|| panic!("{name} is not in cryptline_peers::PEERS; add it there"));
    let found = find(info);
    if found.is_none() {
        skip(&format!("{name} is not installed (apt-get install {})", info.package));
    }
    found
}

/// A program that `cargo xtask tools` installs, or `None` after a `SKIP` line.
///
/// # Panics
/// When it is missing and `CI=true`.
pub fn tool(name: &str) -> Option<Peer> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = tools.join(name);
    if is_executable(&path) {
        return Some(Peer::at(path));
    }
    skip(&format!("{name} is not installed (cargo xtask tools)"));
    None
}

/// All of `names`, in order, or `None` after one `SKIP` line for each that is missing.
///
/// # Panics
/// As [`require`].
pub fn require_all<const N: usize>(names: [&str; N]) -> Option<[Peer; N]> {
    let found: Vec<Option<Peer>> = names.into_iter().map(require).collect();
    let found: Option<Vec<Peer>> = found.into_iter().collect();
    found?.try_into().ok()
}

/// The Debian packages of the peers that are not installed, sorted, each once.
pub fn missing_packages() -> Vec<&'static str> {
    let mut packages: Vec<_> = PEERS.iter().filter(|info| find(info).is_none()).map(|info| info.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Says that the running test does not apply here, and why.
///
/// # Panics
/// When `CI=true`: there a test that did not run is a failure.
pub fn skip(why: &str) {
    let test = running_test();
    assert!(!in_ci(), "{test} cannot run: {why}; with CI=true that is a failure");
    say_skipped(&test, why);
}

/// The same for what no package brings, such as another kernel: no failure with `CI=true` either.
pub fn skip_everywhere(why: &str) {
    say_skipped(&running_test(), why);
}

fn say_skipped(test: &str, why: &str) {
    // Not `eprintln!`, which the test harness hides when the test passes.
    let _closed = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}

/// Tells if `CI=true`, where nothing may be skipped.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

fn find(info: &PeerInfo) -> Option<Peer> {
    match info.probe {
        PeerProbe::Program => find_program(info.name).map(|path| Peer { path }),
        PeerProbe::File(path) => {
            let path = PathBuf::from(path);
            path.exists().then_some(Peer { path })
        }
        PeerProbe::PythonModule(module) => find_python(module),
    }
}

/// Looks through `PATH` and then the system folders, which are not on every user's `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn find_python(module: &str) -> Option<Peer> {
    let peer = Peer { path: PathBuf::from("/usr/bin/python3") };
    if !is_executable(&peer.path) {
        return None;
    }
    let imported = peer.run(["-c", &format!("import {module}")]);
    imported.status.success().then_some(peer)
}

/// The test's name: nextest tells it, libtest calls the thread so.
fn running_test() -> String {
    std::env::var("NEXTEST_TEST_NAME")
        .ok()
        .or_else(|| std::thread::current().name().map(str::to_owned))
        .unwrap_or_else(|| "test".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_package_and_one_entry() {
        for (index, info) in PEERS.iter().enumerate() {
            assert!(!info.package.is_empty());
            assert!(PEERS[index + 1..].iter().all(|other| other.name != info.name));
        }
    }

    #[test]
    fn a_program_outside_path_is_found_in_the_system_folders() {
        assert_eq!(find_program("no-such-program-here"), None);
        assert!(find_program("sh").is_some());
    }

    #[test]
    #[should_panic(expected = "is not in cryptline_peers::PEERS")]
    fn an_unlisted_peer_is_a_mistake_in_the_test() {
        let _ = require("made-up-peer");
    }

    #[test]
    #[ignore = "the next test runs it in a process of its own"]
    fn needs_what_is_not_there() {
        skip("there is no such thing (apt-get install thing)");
    }

    #[test]
    fn a_skip_is_named_on_a_desk_and_a_failure_in_ci() {
        let this = std::env::current_exe().expect("a test knows its program");
        let skipping = |ci: &str| {
            let mut test = Command::new(&this);
            test.args(["--exact", "--ignored", "tests::needs_what_is_not_there"]);
            run(test.env("CI", ci).env("NEXTEST_TEST_NAME", "some_test"), TIMEOUT_DEFAULT)
        };
        let named = skipping("false").success().stderr_text();
        assert_eq!(named, "SKIP some_test: there is no such thing (apt-get install thing)\n");
        let failed = skipping("true").exited_with(101).to_string();
        assert!(failed.contains("with CI=true that is a failure"), "{failed}");
    }
}
