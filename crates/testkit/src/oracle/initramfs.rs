//! The guest's root: an uncompressed cpio archive the kernel unpacks into memory.
//!
//! ```text
//! init                        guest.sh
//! bin/busybox  sbin/…         the host's own programs with the libraries they load
//! lib/modules/<release>/      modules, modules.dep and modules.alias for busybox's modprobe
//! modules.first               what to load before the disks are looked at
//! case/0000/                  script, timeout, variables, files/<variable>
//! ```
//!
//! Archive format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst ("newc").

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::kernel::{Kernel, Module, module_name};
use super::{Case, Disk, distinct_disks};
use crate::peer;

/// Loaded before the first case: what the guest itself needs, and ciphers and file systems that are
/// not asked for by name.
const MODULES_FIRST: &[&str] = &["virtio_pci", "virtio_blk", "dm_crypt", "ecb", "xts", "aesni_intel", "loop", "ext4"];
/// OpenSSL loads this for ripemd160 and whirlpool, without the linker's knowledge.
const OPENSSL_LEGACY: &str = "/usr/lib/x86_64-linux-gnu/ossl-modules/legacy.so";
/// The C library loads this when a thread ends, without the linker's knowledge.
const LIBGCC: &str = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
const LDD_TIMEOUT: Duration = Duration::from_secs(20);

/// The host's programs that go into the guest.
#[derive(Debug)]
pub(super) struct Programs {
    /// A static busybox.
    pub(super) busybox: PathBuf,
    /// Others, dynamically linked.
    pub(super) tools: Vec<PathBuf>,
}

/// Names a disk by its place in the list of all disks: the guest finds it by serial number.
pub(super) fn disk_serial(position: usize) -> String {
    format!("disk{position}")
}

/// The archive for these cases.
///
/// # Panics
/// When one of the host's programs or libraries cannot be read.
pub(super) fn build(kernel: &Kernel, programs: &Programs, cases: &[Case]) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file("init", 0o755, include_bytes!("guest.sh"));
    add_programs(&mut archive, programs);
    add_modules(&mut archive, kernel);
    let disks = distinct_disks(cases);
    for (index, case) in cases.iter().enumerate() {
        add_case(&mut archive, index, case, &disks);
    }
    archive.finish()
}

fn add_programs(archive: &mut Archive, programs: &Programs) {
    archive.file("bin/busybox", 0o755, &read(&programs.busybox));
    let mut libraries: BTreeSet<PathBuf> =
        [OPENSSL_LEGACY, LIBGCC].into_iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    for tool in &programs.tools {
        let name = tool.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("sbin/{name}"), 0o755, &read(tool));
        libraries.extend(libraries_of(tool));
    }
    for library in libraries {
        archive.file(&library.to_string_lossy(), 0o755, &read(&library));
    }
}

/// Returns what the dynamic linker would load for `program`.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let run = peer::run(Command::new("ldd").arg(program), LDD_TIMEOUT).success();
    let text = run.stdout_text();
    let words = text.split_whitespace();
    words.filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

fn add_modules(archive: &mut Archive, kernel: &Kernel) {
    let root = format!("lib/modules/{}", kernel.release());
    let modules = kernel.modules();
    let paths: BTreeMap<String, &str> = modules.keys().map(|path| (module_name(path), path.as_str())).collect();
    let mut dependencies = String::new();
    let mut aliases = String::new();
    for (path, module) in modules {
        archive.file(&format!("{root}/{path}"), 0o644, &module.bytes);
        let mut order = Vec::new();
        load_order(path, modules, &paths, &mut order);
        // modprobe loads the list from its end, and the module itself last.
        let needs: Vec<&str> = order.into_iter().rev().skip(1).collect();
        let _infallible = writeln!(dependencies, "{path}: {}", needs.join(" "));
        for alias in &module.aliases {
            let _infallible = writeln!(aliases, "alias {alias} {}", module_name(path));
        }
    }
    archive.file(&format!("{root}/modules.dep"), 0o644, dependencies.as_bytes());
    archive.file(&format!("{root}/modules.alias"), 0o644, aliases.as_bytes());
    // The others are a part of this kernel.
    let is_there = |name: &&&str| paths.contains_key(**name);
    let first: Vec<&str> = MODULES_FIRST.iter().filter(is_there).copied().collect();
    archive.file("modules.first", 0o644, first.join(" ").as_bytes());
}

/// Appends the module at `path` to `order`, after everything it needs.
fn load_order<'a>(
    path: &'a str,
    modules: &BTreeMap<String, Module>,
    paths: &BTreeMap<String, &'a str>,
    order: &mut Vec<&'a str>,
) {
    let depends = modules.get(path).map_or(&[][..], |module| &module.depends);
    for needed in depends.iter().filter_map(|name| paths.get(name)) {
        if !order.contains(needed) {
            load_order(needed, modules, paths, order);
        }
    }
    order.push(path);
}

fn add_case(archive: &mut Archive, index: usize, case: &Case, disks: &[&Disk]) {
    let folder = format!("case/{index:04}");
    let mut variables = String::new();
    for (variable, disk) in &case.disks {
        if let Some(position) = disks.iter().position(|known| *known == disk) {
            let serial = disk_serial(position);
            let _infallible = writeln!(variables, "export {variable}=/disk/{serial}");
        }
    }
    for (variable, bytes) in &case.files {
        let path = format!("{folder}/files/{variable}");
        archive.file(&path, 0o600, bytes);
        let _infallible = writeln!(variables, "export {variable}=/{path}");
    }
    let seconds = case.timeout.as_secs().max(1).to_string();
    archive.file(&format!("{folder}/timeout"), 0o644, seconds.as_bytes());
    archive.file(&format!("{folder}/variables"), 0o644, variables.as_bytes());
    archive.file(&format!("{folder}/script"), 0o644, case.script.as_bytes());
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// A cpio archive in the making.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a file and the folders it lies in.
    fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.folders.insert(path[..end].to_owned()) {
                self.entry(&path[..end], 0o040_755, &[]);
            }
        }
        self.entry(path, 0o100_000 | mode, content);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let size = |length: usize| u32::try_from(length).expect("an archive member below 4 GiB");
        self.entries += 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, dev (2), rdev (2), namesize, check
        let fields = [self.entries, mode, 0, 0, 1, 0, size(content.len()), 0, 0, 0, 0, size(name.len() + 1), 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_what_its_needs_need() {
        let module = |depends: &[&str]| Module {
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
            ..Module::default()
        };
        let modules = BTreeMap::from([
            ("k/aesni-intel.ko".to_owned(), module(&["crypto_simd", "cryptd"])),
            ("k/crypto_simd.ko".to_owned(), module(&["cryptd"])),
            ("k/cryptd.ko".to_owned(), module(&[])),
        ]);
        let paths = modules.keys().map(|path| (module_name(path), path.as_str())).collect();
        let mut order = Vec::new();
        load_order("k/aesni-intel.ko", &modules, &paths, &mut order);
        assert_eq!(order, ["k/cryptd.ko", "k/crypto_simd.ko", "k/aesni-intel.ko"]);
    }

    #[test]
    fn busybox_unpacks_what_the_archive_packs() {
        let Some(busybox) = peer::require("busybox") else { return };
        let mut archive = Archive::default();
        archive.file("/a/b/odd", 0o640, b"12345");
        archive.file("a/empty", 0o600, b"");
        let bytes = archive.finish();

        let folder = tempfile::tempdir().expect("a folder");
        let mut cpio = busybox.command();
        cpio.args(["cpio", "-i"]).current_dir(&folder);
        peer::run_with_input(&mut cpio, LDD_TIMEOUT, &bytes).success();
        assert_eq!(read(&folder.path().join("a/b/odd")), b"12345");
        assert_eq!(read(&folder.path().join("a/empty")), b"");
    }
}
