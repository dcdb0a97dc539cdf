//! An emulator that crashes has answered nothing: the machine is booted again, with its disks as they were.
//!
//! QEMU runs the processors of an emulated machine on threads of their own, and has been seen to end in a segmentation
//! fault there, on a busy machine while the guest's kernel started. There, too, one processor has been seen to run into the
//! breakpoint that another had put into the kernel's code to change it, long after it was gone: the kernel stops before
//! anything of ours has run. One thread for all of them takes twice as long. A
//! machine whose disks are served by another program is only booted again while no case has begun: what that program
//! holds is not ours to put back.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::machine::{self, Ended};
use super::{Oracle, distinct_disks};

/// An emulator that crashes this often does so for a reason.
const BOOTS_MAX: u32 = 3;

/// Said by a kernel that stops.
const PANIC: &str = "Kernel panic";

/// Boots until a guest has begun, or has run into our limit.
///
/// # Panics
/// When QEMU cannot be started, or a disk cannot be copied.
pub(super) fn boot(oracle: &Oracle, archive: &[u8]) -> Ended {
    let images = may_begin_again(oracle).then(|| Images::keep(oracle));
    for _ in 1..BOOTS_MAX {
        let ended = machine::boot(oracle, archive);
        if !has_crashed(&ended) || (images.is_none() && !ended.results.is_empty()) {
            return ended;
        }
        eprintln!("the emulator crashed, and is started again:\n{}", ended.qemu);
        if let Some(images) = &images {
            images.put_back();
        }
    }
    machine::boot(oracle, archive)
}

fn has_crashed(ended: &Ended) -> bool {
    let has_faulted = ended.qemu.status.signal() == Some(Signal::SEGV.as_raw());
    let has_not_begun = ended.results.is_empty() && ended.console.contains(PANIC);
    ended.late.is_none() && (has_faulted || has_not_begun)
}

/// Tells if all that the guest changes is in files here. A single processor has not been seen to crash.
fn may_begin_again(oracle: &Oracle) -> bool {
    oracle.processors > 1 && oracle.vhost_user.is_empty()
}

/// Copies of the disks and the persistent memory that the guest can write to.
struct Images {
    /// The disk, and its copy.
    copies: Vec<(PathBuf, PathBuf)>,
    _folder: TempDir,
}

impl Images {
    fn keep(oracle: &Oracle) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let disks = distinct_disks(&oracle.cases).into_iter();
        let written = disks.filter(|disk| !disk.read_only).map(|disk| &disk.image);
        let written = written.chain(&oracle.persistent_memory);
        let copies = written.enumerate().map(|(position, image)| {
            let copy = folder.path().join(position.to_string());
            copy_sparse(image, &copy);
            (image.clone(), copy)
        });
        Self { copies: copies.collect(), _folder: folder }
    }

    fn put_back(&self) {
        for (image, copy) in &self.copies {
            copy_sparse(copy, image);
        }
    }
}

fn copy_sparse(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    let status = copy.arg("--sparse=always").arg(from).arg(to).status();
    let copied = status.is_ok_and(|status| status.success());
    assert!(copied, "cannot copy {}", from.display());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::peer::Peer;

    const DISK_BYTES: usize = 1 << 20;

    /// Text that a guest of one case would report after it has read the disk.
    const REPORT: &str = r"ready\nbegin 0000\nend 0000 0 1.00 2.00 7 0 0\n%sbye\n";

    /// The emulator's end by a fault.
    const FAULT: &str = "kill -SEGV $$";
    /// The kernel's end before it has begun.
    const STOP: &str = "echo 'Kernel panic - not syncing' >$console; exit 0";

    /// An oracle whose emulator ends so on its first `crashes` runs, each after a change of the disk, and then is a
    /// guest that reads the disk and writes to it.
    fn crashing(folder: &Path, crashes: u32, end: &str) -> Option<Oracle> {
        let mut oracle = Oracle::new()?;
        let disk = folder.join("disk");
        fs::write(&disk, vec![7; DISK_BYTES]).expect("a disk");
        let script = format!(
            "#!/bin/sh\n\
             cd {}\n\
             echo run >> runs\n\
             put() {{ printf $1 | dd of=disk conv=notrunc status=none; }}\n\
             for word; do case $word in file:*) console=$results results=${{word#file:}} ;; esac; done\n\
             if [ $(wc -l < runs) -le {crashes} ]; then put changed; {end}; fi\n\
             printf '{REPORT}' \"$(head -c 7 disk)\" > $results\n\
             put written\n",
            folder.display(),
        );
        let emulator = folder.join("emulator");
        fs::write(&emulator, script).expect("a script");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&emulator, mode).expect("a program");
        oracle.qemu = Peer::at(emulator);
        oracle.processors(2).case("disk is as it was").disk("disk", &disk);
        Some(oracle)
    }

    #[test]
    fn machine_is_booted_again_with_its_disks_as_they_were_when_the_emulator_crashes() {
        for end in [FAULT, STOP] {
            let folder = tempfile::tempdir().expect("a folder");
            let Some(oracle) = crashing(folder.path(), BOOTS_MAX - 1, end) else { return };
            assert_eq!(oracle.run().passed("disk is as it was"), "\u{7}".repeat(7));
            let disk = fs::read(folder.path().join("disk")).expect("a disk");
            assert!(disk.starts_with(b"written") && disk.len() == DISK_BYTES);
        }
    }

    #[test]
    fn oracle_reports_an_emulator_that_crashes_every_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(oracle) = crashing(folder.path(), BOOTS_MAX, FAULT) else { return };
        let run = std::panic::AssertUnwindSafe(|| oracle.run());
        let why = std::panic::catch_unwind(run).expect_err("it never booted");
        let why = why.downcast::<String>().expect("a message");
        assert!(why.contains("did not boot") && why.contains("signal 11"), "{why}");
        assert_eq!(fs::read_to_string(folder.path().join("runs")).expect("a count").lines().count(), 3);
    }
}
