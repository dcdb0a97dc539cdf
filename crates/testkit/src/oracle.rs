//! A real kernel as the reference: Debian's, with its own dm-crypt, booted under QEMU's emulation.
//!
//! Nothing is needed from the machine's own kernel: no root, no device-mapper, no KVM. One boot serves
//! many cases, so a test gathers all its cases first and boots once (seven processor seconds, before the first case);
//! cases of the same kernel belong into the same test, and [`judge`] names each of them that fails.
//!
//! ```text
//! let Some(mut oracle) = Oracle::new() else { return };           // a named skip, or a failure in CI
//! oracle.case("the kernel reads what we wrote")
//!     .disk("volume", &image)                                     // $volume is a block device in the guest
//!     .file("key", b"secret")                                     // $key is a file in the guest
//!     .script(r#"
//!         cryptsetup open --key-file $key $volume v
//!         sha256sum < /dev/mapper/v
//!     "#);
//! let outcomes = oracle.run();
//! assert_eq!(outcomes.passed("the kernel reads what we wrote"), expected_sum);
//! ```
//!
//! A case is a name, some disk images, some small files and a script. The script runs in the guest
//! under `sh -eu` in a folder of its own. What it prints and its exit status come back; a disk
//! image it wrote to has the new bytes once [`Oracle::run`] returns. Cases that name the same image
//! share it, one after the other. After each case every mapping, mount and loop device is removed, so
//! `v` is free again for the next one.
//!
//! In the guest: busybox, `cryptsetup`, `dmsetup`, `mkfs.ext4`, all of the kernel's crypto and
//! device-mapper modules (loaded on demand), ext4, loop; brd, null_blk, nbd and xfs after `modprobe`.
//! Memory is scarce (see [`Oracle::memory_mib`]) and its processor slow: give Argon2 a small
//! forced cost there (`--pbkdf-force-iterations 4 --pbkdf-memory 32768`).
//!
//! A test that boots has `kernel_oracle` in its name or its file's: the test runner then lets only two of
//! them run at a time.
//!
//! ```text
//! Oracle ─ run ─┬─ kernel     Debian's kernel package by apt, unpacked once into the user's cache folder
//!               ├─ initramfs  guest.sh, modules, programs and the cases as a cpio archive
//!               ├─ machine    QEMU; the console on one serial line, results on another
//!               ├─ again      the same once more where QEMU itself has crashed
//!               ├─ report     results → Outcomes
//!               └─ check      looks at the outcomes, all of them
//! ```

mod again;
mod apt;
mod check;
pub mod golden;
mod initramfs;
mod kernel;
mod machine;
pub mod matrix;
mod next_release;
pub mod pattern;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::peer;

pub use check::{Check, judge};
pub use kernel::Linux;
pub use next_release::next_release;

/// How long one case may take in the guest unless it says otherwise.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// Guest memory unless the oracle is told otherwise.
const MEMORY_DEFAULT_MIB: u32 = 512;

/// A machine to be booted with a list of cases.
#[derive(Debug)]
pub struct Oracle {
    kernel: kernel::Kernel,
    programs: initramfs::Programs,
    qemu: peer::Peer,
    memory_mib: u32,
    processors: u32,
    persistent_memory: Vec<PathBuf>,
    vhost_user: Vec<(PathBuf, &'static str)>,
    cases: Vec<Case>,
}

impl Oracle {
    /// An oracle without cases; `None` after a `SKIP` line when QEMU, a guest program or the kernel
    /// package cannot be had here.
    ///
    /// # Panics
    /// Under `CI=true` when something is missing, and when a cached kernel is damaged.
    pub fn new() -> Option<Self> {
        Self::with(Linux::Stable)
    }

    /// The same with another kernel.
    ///
    /// # Panics
    /// As [`Oracle::new`].
    pub fn with(linux: Linux) -> Option<Self> {
        let [qemu, busybox, cryptsetup, dmsetup, mkfs] =
            peer::require_all(["qemu-system-x86_64", "busybox", "cryptsetup", "dmsetup", "mkfs.ext4"])?;
        let kernel = match kernel::Kernel::cached_or_fetched(linux) {
            Ok(kernel) => kernel,
            Err(why) => {
                peer::skip(&why);
                return None;
            }
        };
        let tools = [cryptsetup, dmsetup, mkfs].map(|tool| tool.path().to_owned()).to_vec();
        let programs = initramfs::Programs { busybox: busybox.path().to_owned(), tools };
        Some(Self {
            kernel,
            programs,
            qemu,
            memory_mib: MEMORY_DEFAULT_MIB,
            processors: 1,
            persistent_memory: Vec::new(),
            vhost_user: Vec::new(),
            cases: Vec::new(),
        })
    }

    /// The Debian version of the kernel package, such as `6.1.192-2`.
    pub fn kernel_version(&self) -> &str {
        self.kernel.version()
    }

    /// Gives the guest `mib` MiB of memory instead of 512.
    pub fn memory_mib(&mut self, mib: u32) -> &mut Self {
        self.memory_mib = mib;
        self
    }

    /// Gives the guest `count` processors instead of one, for what the kernel has one of for each.
    pub fn processors(&mut self, count: u32) -> &mut Self {
        self.processors = count;
        self
    }

    /// Puts another of this machine's programs into the guest, with its libraries.
    pub fn program(&mut self, program: &peer::Peer) -> &mut Self {
        self.program_at(program.path())
    }

    /// The same for a program that is no peer.
    pub fn program_at(&mut self, program: &Path) -> &mut Self {
        if !self.programs.tools.iter().any(|tool| tool == program) {
            self.programs.tools.push(program.to_owned());
        }
        self
    }

    /// Puts the running test program into the guest as `in_the_guest`, without what only a debugger
    /// needs: for tests of devices that only a guest has. `folder` keeps it until the oracle runs.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn this_program(&mut self, folder: &Path) -> &mut Self {
        let here = std::env::current_exe().expect("a program knows its path");
        self.stripped(&here, "in_the_guest", folder)
    }

    /// Puts one of our own programs into the guest under a name, as [`Oracle::this_program`] does.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn stripped(&mut self, program: &Path, name: &str, folder: &Path) -> &mut Self {
        let copy = folder.join(name);
        let mut strip = std::process::Command::new("strip");
        let stripped = strip.arg("-o").arg(&copy).arg(program).status();
        assert!(stripped.expect("strip comes with the compiler").success());
        self.program_at(&copy)
    }

    /// Puts the image into the guest's address space as persistent memory. After `modprobe
    /// virtio_pmem` and `nd_pmem` it is a region of the `nd` bus; give each image another size,
    /// to know it by `size` there. The image has what the guest stored once [`Oracle::run`] returns.
    ///
    /// # Panics
    /// When there are more than eight.
    pub fn persistent_memory(&mut self, image: &Path) -> &mut Self {
        assert!(self.persistent_memory.len() < 8, "one PCI slot of them");
        self.persistent_memory.push(image.to_owned());
        self
    }

    /// Gives the guest a disk that the vhost-user server at `socket` serves. QEMU connects again where the server is
    /// another one by then. The guest knows it by the serial number that the server tells.
    ///
    /// # Panics
    /// When there are more than eight.
    pub fn vhost_user(&mut self, socket: &Path) -> &mut Self {
        self.vhost_user_with(socket, "packed=off")
    }

    /// The same with properties of QEMU's device, such as `packed=on`.
    ///
    /// # Panics
    /// When there are more than eight.
    pub fn vhost_user_with(&mut self, socket: &Path, properties: &'static str) -> &mut Self {
        assert!(self.vhost_user.len() < 8, "one PCI slot of them");
        self.vhost_user.push((socket.to_owned(), properties));
        self
    }

    /// Adds a case; its name must be new.
    ///
    /// # Panics
    /// When a case of this name exists.
    #[track_caller]
    pub fn case(&mut self, name: impl Into<String>) -> &mut Case {
        let name = name.into();
        assert!(self.cases.iter().all(|case| case.name != name), "two cases are called {name:?}");
        self.cases.push(Case::new(name));
        self.cases.last_mut().expect("just pushed")
    }

    /// Boots the kernel, runs every case in order and returns what they said.
    ///
    /// # Panics
    /// With the console's log when the guest does not boot, does not finish or cannot be started.
    #[track_caller]
    pub fn run(self) -> Outcomes {
        assert!(!self.cases.is_empty(), "an oracle without cases proves nothing");
        let archive = initramfs::build(&self.kernel, &self.programs, &self.cases);
        let ended = again::boot(&self, &archive);
        report::read(&self.cases, &ended)
    }
}

/// One question to the kernel.
#[derive(Debug)]
pub struct Case {
    name: String,
    script: String,
    disks: Vec<(String, Disk)>,
    files: Vec<(String, Vec<u8>)>,
    timeout: Duration,
}

/// An image and how it is attached. Cases that name it alike share one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Disk {
    image: PathBuf,
    read_only: bool,
    block_size: u32,
}

impl Case {
    fn new(name: String) -> Self {
        let (script, disks, files) = (String::new(), Vec::new(), Vec::new());
        Self { name, script, disks, files, timeout: CASE_TIMEOUT }
    }

    /// Attaches the raw image as a disk of 512-byte blocks whose path in the guest is `$variable`.
    ///
    /// # Panics
    /// When the image is missing, empty or not made of whole sectors, and on a bad variable name.
    #[track_caller]
    pub fn disk(&mut self, variable: &str, image: &Path) -> &mut Self {
        self.attach(variable, image, false, 512)
    }

    /// As [`Case::disk`], but the guest cannot write to it.
    #[track_caller]
    pub fn read_only_disk(&mut self, variable: &str, image: &Path) -> &mut Self {
        self.attach(variable, image, true, 512)
    }

    /// As [`Case::disk`], with logical and physical blocks of `block_size` bytes.
    #[track_caller]
    pub fn disk_with_block_size(&mut self, variable: &str, image: &Path, block_size: u32) -> &mut Self {
        self.attach(variable, image, false, block_size)
    }

    /// Puts a small file into the guest; its path there is `$variable`.
    ///
    /// # Panics
    /// On a bad variable name.
    #[track_caller]
    pub fn file(&mut self, variable: &str, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.claim(variable);
        self.files.push((variable.to_owned(), bytes.as_ref().to_vec()));
        self
    }

    /// Adds lines to the script, run by `sh -eu` in the guest.
    pub fn script(&mut self, lines: &str) -> &mut Self {
        self.script.push_str(lines);
        self.script.push('\n');
        self
    }

    /// Allows the case this long (whole seconds) instead of a minute.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    #[track_caller]
    fn attach(&mut self, variable: &str, image: &Path, read_only: bool, block_size: u32) -> &mut Self {
        self.claim(variable);
        let length = match std::fs::metadata(image) {
            Ok(metadata) => metadata.len(),
            Err(error) => panic!("cannot attach {}: {error}", image.display()),
        };
        assert!(
            length > 0 && length.is_multiple_of(u64::from(block_size)),
            "{} has {length} bytes, which is not a whole number of {block_size}-byte blocks",
            image.display()
        );
        let disk = Disk { image: image.to_owned(), read_only, block_size };
        self.disks.push((variable.to_owned(), disk));
        self
    }

    /// Checks that `variable` is a shell variable's name, new in this case.
    #[track_caller]
    fn claim(&self, variable: &str) {
        let lower = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(
            variable.starts_with(lower) && variable.chars().all(|c| lower(c) || c.is_ascii_digit()),
            "{variable:?} is not a lower-case shell variable"
        );
        let mut taken = self.disks.iter().map(|(name, _)| name);
        let twice = taken.any(|name| name == variable) || self.files.iter().any(|(name, _)| name == variable);
        assert!(!twice, "${variable} is given twice in case {:?}", self.name);
    }
}

/// The disks of all cases, each once: the guest finds them by their place in this list.
fn distinct_disks(cases: &[Case]) -> Vec<&Disk> {
    let mut distinct = Vec::new();
    for (_, disk) in cases.iter().flat_map(|case| &case.disks) {
        if !distinct.contains(&disk) {
            distinct.push(disk);
        }
    }
    distinct
}

/// Results of the cases, by name.
#[derive(Debug)]
pub struct Outcomes {
    outcomes: Vec<Outcome>,
}

impl Outcomes {
    /// The outcome of the case called `name`.
    ///
    /// # Panics
    /// When there is no such case.
    #[track_caller]
    pub fn of(&self, name: &str) -> &Outcome {
        let found = self.outcomes.iter().find(|outcome| outcome.name == name);
        found.unwrap_or_else(|| panic!("no case is called {name:?}"))
    }

    /// Returns what the case called `name` printed, without the last line's end. It must have exited with 0.
    ///
    /// # Panics
    /// With its script and everything it said, when it did not.
    #[track_caller]
    pub fn passed(&self, name: &str) -> &str {
        let outcome = self.of(name);
        assert!(outcome.status == 0, "{outcome}");
        outcome.stdout.trim_end()
    }

    /// All outcomes in the order of their cases.
    pub fn iter(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter()
    }
}

/// Result of one case.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The case's name.
    pub name: String,
    /// The script's exit status; 137 when it was killed for being late.
    pub status: i32,
    /// Seconds by the guest's clock, what was cleaned up after it included.
    pub seconds: f64,
    /// Text written to standard output.
    pub stdout: String,
    /// Text written to standard error.
    pub stderr: String,
    /// Messages of the kernel meanwhile, such as dm-crypt's reason to refuse a table.
    pub kernel_log: String,
    script: String,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(out, "kernel oracle case {:?} ended with status {}", self.name, self.status)?;
        writeln!(out, "-- script:\n{}", self.script.trim_end())?;
        writeln!(out, "-- stdout:\n{}", self.stdout.trim_end())?;
        writeln!(out, "-- stderr:\n{}", self.stderr.trim_end())?;
        write!(out, "-- kernel messages:\n{}", self.kernel_log.trim_end())
    }
}
