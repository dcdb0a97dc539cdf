//! QEMU's emulated PC: one processor or a few, the cases' disks, the console on one serial line and the
//! results on another.
//!
//! Emulation (`tcg`) and not KVM: it works on every machine, inside containers and other guests too.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::initramfs::disk_serial;
use super::{Disk, Oracle, distinct_disks};
use crate::peer::{BackgroundProgram, Run};

/// From power on to the first case, on a machine that is busy with other tests.
const BOOT_MAX: Duration = Duration::from_secs(180);
/// PCI slots left for disks (0 to 2 belong to the chipset and a display), and functions in each.
const SLOT_FIRST: usize = 3;
const SLOT_END: usize = 30;
/// The last slots are for vhost-user disks and persistent memory.
const VHOST_SLOT: usize = 30;
const MEMORY_SLOT: usize = 31;
const FUNCTIONS: usize = 8;
/// A kernel that stumbles stops at once, and with it QEMU: what it would say afterwards is worth nothing.
/// Nor does it look whether its timer works: on a busy machine an emulated one seems not to.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 oops=panic panic=-1 quiet mitigations=off no_timer_check";

/// A guest that is off again.
pub(super) struct Ended {
    /// Report of the guest, possibly cut short.
    pub(super) results: Vec<u8>,
    /// Everything on the console.
    pub(super) console: String,
    /// QEMU itself.
    pub(super) qemu: Run,
    /// Set if it had to be killed.
    pub(super) late: Option<Duration>,
}

/// Boots the archive and waits until the guest is off.
///
/// # Panics
/// When there are more disks than slots, or QEMU cannot be started.
pub(super) fn boot(oracle: &Oracle, archive: &[u8]) -> Ended {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [initrd, console, results] = ["initrd", "console", "results"].map(|name| folder.path().join(name));
    std::fs::write(&initrd, archive).expect("the guest's archive can be written");

    let mut command = oracle.qemu.command();
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    let processors = oracle.processors.to_string();
    command.args(["-accel", "tcg", "-cpu", "max", "-smp", &processors]);
    command.arg("-machine");
    if oracle.vhost_user.is_empty() {
        command.arg("pc");
    } else {
        share_memory(&mut command, oracle);
    }
    command.args(["-m", &memory(oracle), "-append", KERNEL_ARGUMENTS]);
    command.arg("-kernel").arg(oracle.kernel.image()).arg("-initrd").arg(&initrd);
    for serial in [&console, &results] {
        command.args(["-serial", &format!("file:{}", serial.display())]);
    }
    for (position, disk) in distinct_disks(&oracle.cases).into_iter().enumerate() {
        attach(&mut command, position, disk);
    }

    for (function, image) in oracle.persistent_memory.iter().enumerate() {
        attach_memory(&mut command, function, image);
    }

    let cases: Duration = oracle.cases.iter().map(|case| case.timeout).sum();
    let timeout = BOOT_MAX + cases;
    let mut qemu = BackgroundProgram::spawn(&mut command);
    let late = qemu.wait(timeout).is_none().then_some(timeout);
    let read = |path| std::fs::read(path).unwrap_or_default();
    Ended {
        qemu: qemu.collect(),
        late,
        results: read(&results),
        console: String::from_utf8_lossy(&read(&console)).into_owned(),
    }
}

/// Memory that a vhost-user server can map, and the disks that it serves.
fn share_memory(command: &mut Command, oracle: &Oracle) {
    let size = oracle.memory_mib;
    command.args([
        "pc,memory-backend=shared",
        "-object",
        &format!("memory-backend-memfd,id=shared,size={size}M,share=on"),
    ]);
    for (function, (socket, properties)) in oracle.vhost_user.iter().enumerate() {
        let path = option_text(socket);
        command.args([
            "-chardev",
            &format!("socket,id=vhost{function},path={path},reconnect=1"),
            "-device",
            &format!(
                "vhost-user-blk-pci,chardev=vhost{function},num-queues=2,{properties},\
                 addr={VHOST_SLOT:#x}.{function},multifunction=on"
            ),
        ]);
    }
}

/// QEMU's `-m`, with room in the address space for persistent memory.
fn memory(oracle: &Oracle) -> String {
    match oracle.persistent_memory.len() {
        0 => oracle.memory_mib.to_string(),
        _ => format!("{}M,slots=8,maxmem=16G", oracle.memory_mib),
    }
}

fn attach_memory(command: &mut Command, function: usize, image: &Path) {
    let size = std::fs::metadata(image).expect("the image exists").len();
    command.args([
        "-object",
        &format!("memory-backend-file,id=memory{function},share=on,size={size},mem-path={}", option_text(image)),
        "-device",
        &format!(
            "virtio-pmem-pci,memdev=memory{function},id=pmem{function},\
             addr={MEMORY_SLOT:#x}.{function},multifunction=on"
        ),
    ]);
}

/// A path inside a QEMU option: a comma would end the option; doubled it stands for itself.
fn option_text(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string().replace(',', ",,")
}

fn attach(command: &mut Command, position: usize, disk: &Disk) {
    let serial = disk_serial(position);
    let slot = SLOT_FIRST + position / FUNCTIONS;
    assert!(slot < SLOT_END, "the guest has no room for so many disks; use two oracles");
    let function = position % FUNCTIONS;
    let image = option_text(&disk.image);
    let read_only = if disk.read_only { "on" } else { "off" };
    // The guest's power-off ends QEMU, and then this host's page cache holds every byte.
    command.args([
        "-drive",
        &format!(
            "if=none,id={serial},format=raw,cache=unsafe,discard=unmap,\
             read-only={read_only},file={image}"
        ),
        "-device",
        &format!(
            "virtio-blk-pci,drive={serial},serial={serial},addr={slot:#x}.{function},\
             multifunction=on,logical_block_size={size},physical_block_size={size}",
            size = disk.block_size
        ),
    ]);
}
