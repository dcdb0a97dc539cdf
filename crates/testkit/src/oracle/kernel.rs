//! Debian's kernel package, unpacked once into the user's cache folder and never installed.
//!
//! ```text
//! ${XDG_CACHE_HOME:-$HOME/.cache}/cryptline/oracle-3/<package version>/
//!     vmlinuz            the kernel
//!     release            its release, the name of its module folder
//!     modules/kernel/…   the modules the guest can load
//!     SHA256SUMS         of all the above, checked at every use
//! ```
//!
//! apt checks the package's signature when it is downloaded. The sums catch a cache that was damaged
//! afterwards. A folder appears by rename, complete or not at all; a lock keeps two tests from
//! downloading at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base16ct::lower::encode_string as hex;
use sha2::{Digest, Sha256};

use super::apt::{Apt, Package};
use crate::peer;

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linux {
    /// The newest of this Debian.
    Stable,
    /// 6.12: the oldest that Debian builds with ublk.
    V6_12,
    /// The newest that Debian builds for the release after this one. One in the cache is taken as it is.
    Newest,
}

impl Linux {
    /// The package that always depends on the newest such kernel.
    pub(super) fn meta_package(self) -> &'static str {
        match self {
            Self::Stable | Self::Newest => "linux-image-amd64",
            Self::V6_12 => "linux-image-6.12-amd64",
        }
    }

    /// Tells if a cached version will do.
    fn takes(self, version: &str) -> bool {
        let is_of = match version {
            _ if version.starts_with("6.1.") => Self::Stable,
            _ if version.starts_with("6.12.") => Self::V6_12,
            _ => Self::Newest,
        };
        is_of == self
    }
}

/// Folders and files of modules worth keeping; what they depend on is kept too.
const MODULES_WANTED: &[&str] = &[
    "kernel/arch/x86/crypto/",
    "kernel/crypto/",
    "kernel/drivers/block/brd.ko",
    "kernel/drivers/block/loop.ko",
    "kernel/drivers/block/nbd.ko",
    "kernel/drivers/block/null_blk/",
    "kernel/drivers/block/ublk_drv.ko",
    "kernel/drivers/block/virtio_blk.ko",
    "kernel/drivers/md/",
    "kernel/drivers/nvdimm/",
    "kernel/drivers/virtio/",
    "kernel/fs/btrfs/",
    "kernel/fs/ext4/",
    "kernel/fs/xfs/",
];
/// Where kernels are kept, which changes with what is kept of them.
const PLACE: &str = "oracle-3";
/// Where the newest kernels are that run next to this Debian's programs.
const NEXT_RELEASE: &str = "trixie-backports";
/// Folder that `apt-get update` writes to.
const LISTS: &str = "/var/lib/apt/lists";
/// Later kernels' modules are compressed.
const COMPRESSED: &str = ".xz";
pub(super) const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);

/// A kernel on disk, checked.
#[derive(Debug)]
pub(super) struct Kernel {
    version: String,
    folder: PathBuf,
    release: String,
    modules: BTreeMap<String, Module>,
}

/// One loadable module, as its `.modinfo` section describes it.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) bytes: Vec<u8>,
    pub(super) depends: Vec<String>,
    pub(super) aliases: Vec<String>,
}

impl Kernel {
    /// The newest kernel apt knows: from the cache, else downloaded. When apt cannot help, the
    /// newest one in the cache.
    pub(super) fn cached_or_fetched(linux: Linux) -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the kernel oracle takes its programs from an x86-64 machine".to_owned());
        }
        let (cache, _lock) = locked_cache(PLACE)?;
        if linux == Linux::Newest
            && let Some(folder) = any_cached(&cache, linux)
        {
            return Self::open(folder);
        }
        if let Some(folder) = remembered(&cache, linux) {
            return Self::open(folder);
        }
        let apt = match linux {
            Linux::Newest => Apt::of_next_release(&cache, NEXT_RELEASE)?,
            Linux::Stable | Linux::V6_12 => Apt::default(),
        };
        let folder = match apt.newest_package(linux) {
            Ok(package) if cache.join(&package.version).is_dir() => cache.join(&package.version),
            Ok(package) => fetch(&apt, &package, &cache).or_else(|why| any_cached(&cache, linux).ok_or(why))?,
            Err(why) => any_cached(&cache, linux).ok_or(why)?,
        };
        remember(&cache, linux, &folder);
        Self::open(folder)
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn release(&self) -> &str {
        &self.release
    }

    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Modules by their path below the release's module folder.
    pub(super) fn modules(&self) -> &BTreeMap<String, Module> {
        &self.modules
    }

    /// Reads a cached kernel and checks every byte of it.
    fn open(folder: PathBuf) -> Result<Self, String> {
        let expected = fs::read_to_string(folder.join("SHA256SUMS")).map_err(at(&folder))?;
        if sums(&folder)? != expected {
            let folder = folder.display();
            return Err(format!("the cached kernel in {folder} is damaged; remove that folder"));
        }
        let release = fs::read_to_string(folder.join("release")).map_err(at(&folder))?;
        let version = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut modules = BTreeMap::new();
        let root = folder.join("modules");
        for path in files_below(&root).map_err(at(&root))? {
            let bytes = fs::read(root.join(&path)).map_err(at(&folder))?;
            modules.insert(path, Module::parse(bytes));
        }
        Ok(Self { version, folder, release, modules })
    }
}

impl Module {
    fn parse(bytes: Vec<u8>) -> Self {
        let depends = modinfo(&bytes, b"depends=").flat_map(|list| list.split(',').filter(|name| !name.is_empty()));
        let depends = depends.map(|name| name.replace('-', "_")).collect();
        let aliases = modinfo(&bytes, b"alias=").map(str::to_owned).collect();
        Self { bytes, depends, aliases }
    }
}

/// The values of `key` among a module's NUL-terminated `key=value` strings.
fn modinfo<'a>(bytes: &'a [u8], key: &'static [u8]) -> impl Iterator<Item = &'a str> {
    let strings = bytes.split(|&byte| byte == 0);
    strings.filter_map(move |text| std::str::from_utf8(text.strip_prefix(key)?).ok())
}

/// The name by which other modules depend on the one at `path`.
pub(super) fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let file = file.strip_suffix(COMPRESSED).unwrap_or(file);
    file.strip_suffix(".ko").unwrap_or(file).replace('-', "_")
}

/// Downloads and unpacks `package`; what the guest needs ends up in its folder of the cache.
fn fetch(apt: &Apt, package: &Package, cache: &Path) -> Result<PathBuf, String> {
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache).map_err(at(cache))?;
    apt.unpack(&package.wanted(), work.path())?;
    let kept = work.path().join("kept");
    keep(&work.path().join("unpacked"), &kept)?;
    fs::write(kept.join("SHA256SUMS"), sums(&kept)?).map_err(at(&kept))?;
    let folder = cache.join(&package.version);
    fs::rename(&kept, &folder).map_err(at(&folder))?;
    Ok(folder)
}

/// Copies the kernel, its release and the wanted modules with all they depend on.
fn keep(unpacked: &Path, kept: &Path) -> Result<(), String> {
    let (release, tree) = release_in(unpacked)?;
    // Later kernels lie with their modules.
    let image = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    let image = [image, tree.join("vmlinuz")];
    let image = image.into_iter().find(|image| image.is_file());
    let image = image.ok_or("the kernel package has no kernel")?;

    fs::create_dir_all(kept).map_err(at(kept))?;
    fs::copy(image, kept.join("vmlinuz")).map_err(at(kept))?;
    fs::write(kept.join("release"), &release).map_err(at(kept))?;
    for (path, bytes) in wanted_modules(&tree)? {
        let to = kept.join("modules");
        let to = to.join(path.strip_suffix(COMPRESSED).unwrap_or(&path));
        let parent = to.parent().unwrap_or(kept);
        fs::create_dir_all(parent).map_err(at(parent))?;
        fs::write(&to, bytes).map_err(at(&to))?;
    }
    Ok(())
}

/// The kernel's release, and the folder of its modules.
fn release_in(unpacked: &Path) -> Result<(String, PathBuf), String> {
    // Debian 12 has no /usr merge inside packages; later releases do.
    for place in ["lib/modules", "usr/lib/modules"] {
        let folders = fs::read_dir(unpacked.join(place)).into_iter().flatten();
        if let Some(folder) = folders.flatten().next() {
            let release = folder.file_name().to_string_lossy().into_owned();
            return Ok((release, folder.path()));
        }
    }
    Err("the kernel package has no module folder".to_owned())
}

/// The modules of [`MODULES_WANTED`] and, step by step, what they depend on; with their bytes.
fn wanted_modules(tree: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let is_module = |path: &String| path.strip_suffix(COMPRESSED).unwrap_or(path).ends_with(".ko");
    let all: BTreeMap<String, String> = files_below(tree)
        .map_err(at(tree))?
        .into_iter()
        .filter(is_module)
        .map(|path| (module_name(&path), path))
        .collect();
    let wanted = |path: &String| MODULES_WANTED.iter().any(|start| path.starts_with(start));
    let mut paths: Vec<String> = all.values().filter(|path| wanted(path)).cloned().collect();
    if paths.is_empty() {
        return Err("the kernel package has none of the modules the oracle needs".to_owned());
    }
    let mut kept = Vec::new();
    while let Some(path) = paths.get(kept.len()).cloned() {
        let bytes = read_module(&tree.join(&path))?;
        for name in Module::parse(bytes.clone()).depends {
            let path = all.get(&name).ok_or_else(|| format!("the kernel has no module {name}"))?;
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        kept.push((path, bytes));
    }
    Ok(kept)
}

/// A module's bytes, decompressed.
fn read_module(path: &Path) -> Result<Vec<u8>, String> {
    if !path.to_string_lossy().ends_with(COMPRESSED) {
        return fs::read(path).map_err(at(path));
    }
    let mut unpack = Command::new("xz");
    unpack.args(["--decompress", "--stdout"]).arg(path);
    let run = peer::run(&mut unpack, UNPACK_TIMEOUT);
    if run.status.success() { Ok(run.stdout) } else { Err(format!("no kernel for the oracle:\n{run}")) }
}

/// Returns what apt said last, while its lists are the same: to ask it takes seconds, and each boot would.
fn remembered(cache: &Path, linux: Linux) -> Option<PathBuf> {
    let note = note(cache, linux);
    let modified = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    if modified(&note)? <= modified(Path::new(LISTS))? {
        return None;
    }
    let folder = cache.join(fs::read_to_string(note).ok()?);
    folder.join("SHA256SUMS").is_file().then_some(folder)
}

/// The next boot asks again where this fails.
fn remember(cache: &Path, linux: Linux, folder: &Path) {
    let version = folder.file_name().unwrap_or_default();
    let _ = fs::write(note(cache, linux), version.as_encoded_bytes());
}

fn note(cache: &Path, linux: Linux) -> PathBuf {
    cache.join(format!("{linux:?}.version"))
}

/// The newest kernel that is already in the cache.
fn any_cached(cache: &Path, linux: Linux) -> Option<PathBuf> {
    let folders = fs::read_dir(cache).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    folders
        .filter(|folder| folder.join("SHA256SUMS").is_file())
        .filter(|folder| {
            let version = folder.file_name().unwrap_or_default();
            linux.takes(&version.to_string_lossy())
        })
        .max_by_key(|folder| folder.metadata().and_then(|metadata| metadata.modified()).ok())
}

/// A folder of the user's cache. Other test processes wait until the lock is dropped.
pub(super) fn locked_cache(place: &str) -> Result<(PathBuf, fs::File), String> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let root = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let root = root.ok_or("neither XDG_CACHE_HOME nor HOME says where packages may be kept")?;
    let cache = root.join("cryptline").join(place);
    fs::create_dir_all(&cache).map_err(at(&cache))?;
    let file = fs::File::create(cache.join("lock")).map_err(at(&cache))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|error| format!("cannot lock {}: {error}", cache.display()))?;
    Ok((cache, file))
}

pub(super) fn tool(command: &mut Command, timeout: Duration) -> Result<(), String> {
    let run = peer::run(command, timeout);
    if run.status.success() { Ok(()) } else { Err(format!("no packages of Debian:\n{run}")) }
}

/// `sha256sum`'s lines for everything in `folder` but the sums themselves.
pub(super) fn sums(folder: &Path) -> Result<String, String> {
    let mut lines = String::new();
    for path in files_below(folder).map_err(at(folder))? {
        if path != "SHA256SUMS" {
            let bytes = fs::read(folder.join(&path)).map_err(at(folder))?;
            let _infallible = writeln!(lines, "{}  {path}", hex(&Sha256::digest(&bytes)));
        }
    }
    Ok(lines)
}

/// All regular files below `root` as relative paths, sorted.
pub(super) fn files_below(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.file_type()?.is_file()
                && let Ok(path) = entry.path().strip_prefix(root)
            {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(super) fn at<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_tells_what_it_needs_and_what_it_is_called_by() {
        let bytes = b"\x7fELF\0alias=crypto-xts\0alias=xts\0depends=dm-mod,ecb\0depends=\0".to_vec();
        let module = Module::parse(bytes);
        assert_eq!(module.aliases, ["crypto-xts", "xts"]);
        assert_eq!(module.depends, ["dm_mod", "ecb"]);
        assert_eq!(module_name("kernel/drivers/md/dm-crypt.ko"), "dm_crypt");
    }

    #[test]
    fn a_damaged_cache_is_noticed_before_it_boots() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("modules")).expect("made");
        fs::write(folder.path().join("vmlinuz"), b"kernel").expect("written");
        fs::write(folder.path().join("release"), b"6.1.0-test").expect("written");
        let good = sums(folder.path()).expect("summed");
        fs::write(folder.path().join("SHA256SUMS"), good).expect("written");
        assert!(Kernel::open(folder.path().to_owned()).is_ok());

        fs::write(folder.path().join("vmlinuz"), b"kernal").expect("written");
        let why = Kernel::open(folder.path().to_owned()).expect_err("the damage went unseen");
        assert!(why.contains("is damaged; remove that folder"), "{why}");
    }
}
