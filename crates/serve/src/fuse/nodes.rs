//! The files of one mount: a disk in place of a file, or a folder of disks, each with a file that
//! describes it.
//!
//! ```text
//! over a file      1 the disk
//! over a folder    1 the folder    2 disk 0    3 its description    4 disk 1 ...
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

use cryptline_engine::Gate;
use rustix::process::{getegid, geteuid};

use super::abi::{Body, FileAttributes, KEPT, KEPT_OF_DISK};
use super::last_word::SocketName;
use crate::facts::Facts;

/// The node that is mounted.
const ROOT: u64 = 1;
/// The first disk in a folder.
const FIRST: u64 = 2;
/// Bits of `st_mode`.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// Behind the name of a disk.
const INFO: &str = ".info";

/// Kind of place that the mount is made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountedOver {
    /// A file, which the disk takes the place of.
    File,
    /// A folder.
    Folder,
}

/// The files that a mount shows.
pub struct Nodes {
    over: MountedOver,
    /// At least one, and no more over a file.
    disks: Vec<FuseDisk>,
    /// Set if users other than the server's may use them.
    is_for_all: bool,
    uid: u32,
    gid: u32,
    time: u64,
    last_word: Option<SocketName>,
}

/// A disk, and what describes it.
pub(super) struct FuseDisk {
    pub gate: Gate,
    pub name: String,
    info_name: String,
    info: String,
    pub read_only: bool,
    /// Where lanes serve others, too: its medium is asked by a thread of its own.
    facts: Option<Facts>,
}

/// Nature of a node.
#[derive(Clone, Copy)]
pub(super) enum NodeKind<'a> {
    Folder,
    Disk(&'a FuseDisk),
    /// File that describes it.
    Info(&'a FuseDisk),
}

impl FuseDisk {
    fn new(gate: &Gate, name: &str, info: &str) -> Self {
        let geometry = gate.geometry();
        let fits = (0..=info.len().min(Body::CAPACITY)).rev();
        let end = fits.into_iter().find(|&end| info.is_char_boundary(end));
        Self {
            gate: gate.clone(),
            name: name.to_owned(),
            info_name: info_name(name),
            info: info[..end.unwrap_or(0)].to_owned(),
            read_only: geometry.read_only,
            facts: None,
        }
    }

    /// Asks its medium, which may never answer: then there is no answer, unless nobody but its own users would wait.
    pub fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Gate) -> T + Send + 'static) -> Option<T> {
        let Some(facts) = &self.facts else { return Some(question(&self.gate)) };
        let gate = self.gate.clone();
        facts.ask(move || question(&gate))
    }

    /// Bytes of the description.
    pub fn info(&self, offset: u64, size: usize) -> &[u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.info.as_bytes().get(start..).unwrap_or_default();
        &rest[..size.min(rest.len())]
    }
}

impl Nodes {
    /// The disk behind `gate` as the file `name`, described by `info`, a text. Over a file there is only the disk.
    #[must_use]
    pub fn new(over: MountedOver, gate: &Gate, name: &str, info: &str, is_for_all: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            over,
            disks: vec![FuseDisk::new(gate, name, info)],
            is_for_all,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            time: now.map_or(0, |now| now.as_secs()),
            last_word: None,
        }
    }

    /// One more disk in the folder, with a name that is no other file's there.
    pub fn add(&mut self, gate: &Gate, name: &str, info: &str) {
        self.disks.push(FuseDisk::new(gate, name, info));
        self.disks.iter_mut().for_each(|disk| disk.facts = Some(Facts::new()));
    }

    /// Tells those who ask where to wait for the server's last word.
    #[must_use]
    pub fn with_last_word(mut self, name: SocketName) -> Self {
        self.last_word = Some(name);
        self
    }

    pub(super) fn last_word(&self) -> Option<SocketName> {
        self.last_word
    }

    pub(super) fn disks(&self) -> &[FuseDisk] {
        &self.disks
    }

    /// The number of the disk that a node is, or describes.
    pub(super) fn device(&self, node: u64) -> usize {
        usize::try_from(node.saturating_sub(FIRST) / 2).unwrap_or(usize::MAX)
    }

    pub(super) fn kind(&self, node: u64) -> Option<NodeKind<'_>> {
        let disk = self.disks.get(self.device(node));
        match (self.over, node) {
            (MountedOver::File, ROOT) => disk.map(NodeKind::Disk),
            (MountedOver::Folder, ROOT) => Some(NodeKind::Folder),
            (MountedOver::Folder, FIRST..) if node.is_multiple_of(2) => disk.map(NodeKind::Disk),
            (MountedOver::Folder, FIRST..) => disk.map(NodeKind::Info),
            _ => None,
        }
    }

    /// The file of this name in a folder.
    pub(super) fn find(&self, folder: u64, name: &[u8]) -> Option<u64> {
        if !matches!(self.kind(folder), Some(NodeKind::Folder)) {
            return None;
        }
        let mut files = self.files();
        files.find_map(|(node, its)| (its.as_bytes() == name).then_some(node))
    }

    /// The files in the folder.
    fn files(&self) -> impl Iterator<Item = (u64, &str)> {
        let names = self.disks.iter();
        let names = names.flat_map(|disk| [&disk.name, &disk.info_name]);
        (FIRST..).zip(names.map(String::as_str))
    }

    pub(super) fn attributes(&self, node: u64) -> Option<FileAttributes> {
        let kind = self.kind(node)?;
        let (size, mode, links, block, kept) = match kind {
            NodeKind::Folder => (0, FOLDER | 0o500, 2, 0, KEPT),
            NodeKind::Disk(disk) => {
                let own = if disk.read_only { 0o400 } else { 0o600 };
                // Asked for now and then, and the moment to see that it has grown.
                let size = disk.ask(Gate::grow).unwrap_or_else(|| disk.gate.size());
                (size, FILE | own, 1, disk.gate.geometry().preferred_block, KEPT_OF_DISK)
            }
            NodeKind::Info(disk) => (disk.info.len() as u64, FILE | 0o400, 1, 0, KEPT),
        };
        let own = mode & 0o700;
        let others = if self.is_for_all { own >> 3 | own >> 6 } else { 0 };
        let Self { uid, gid, time, .. } = *self;
        let (mode, block) = (mode | others, block.max(4096));
        Some(FileAttributes { node, size, mode, links, uid, gid, time, block, kept })
    }

    /// Lists a folder from entry `from` on, in at most `room` bytes.
    pub(super) fn list(&self, from: u64, room: usize, into: &mut Body) {
        let entries = [(ROOT, "."), (ROOT, "..")].into_iter().chain(self.files());
        for ((node, name), next) in entries.zip(1..) {
            if next <= from {
                continue;
            }
            let Some(attributes) = self.attributes(node) else {
                continue;
            };
            if !into.folder_entry(room, next, &attributes, name.as_bytes()) {
                return;
            }
        }
    }

    /// Bytes of all disks, and how many files there are.
    pub(super) fn sum(&self) -> (u64, u64) {
        let sizes = self.disks.iter().map(|disk| disk.gate.size());
        let files = 2 * self.disks.len() as u64;
        (sizes.fold(0, u64::saturating_add), files)
    }
}

/// Returns the name of the file that describes the disk `name`.
#[must_use]
pub fn info_name(name: &str) -> String {
    format!("{name}{INFO}")
}

#[cfg(test)]
mod tests {
    use cryptline_engine::base::RamDevice;

    use super::*;

    fn nodes(over: MountedOver, is_for_all: bool) -> Nodes {
        let gate = Gate::new(RamDevice::new(1 << 20).unwrap());
        Nodes::new(over, &gate, "disk", "cipher: none\n", is_for_all)
    }

    #[test]
    fn folder_has_the_disk_and_its_description() {
        let nodes = nodes(MountedOver::Folder, false);
        let size = |name: &[u8]| {
            let node = nodes.find(ROOT, name)?;
            Some(nodes.attributes(node)?.size)
        };
        assert_eq!(size(b"disk"), Some(1 << 20));
        assert_eq!(size(b"disk.info"), Some(13));
        for other in [&b""[..], b"dis", b"diskette", b"disk.inf", b"disk.info2"] {
            assert_eq!(size(other), None);
        }
        assert_eq!(nodes.find(2, b"disk"), None, "no folder");
        let disk = &nodes.disks()[0];
        assert_eq!(disk.info(8, 100), b"none\n");
        assert_eq!(disk.info(u64::MAX, 100), b"");
        for other in [0, 4, 5, u64::MAX] {
            assert!(nodes.kind(other).is_none());
        }
    }

    #[test]
    fn disk_alone_is_the_root() {
        let nodes = nodes(MountedOver::File, false);
        assert!(matches!(nodes.kind(ROOT), Some(NodeKind::Disk(_))));
        assert!(nodes.kind(2).is_none());
        assert_eq!(nodes.find(ROOT, b"disk"), None);
        assert_eq!(nodes.attributes(ROOT).unwrap().mode, 0o100_600);
    }

    #[test]
    fn others_get_what_the_owner_has_where_they_may() {
        let nodes = nodes(MountedOver::Folder, true);
        let modes = [1, 2, 3].map(|node| nodes.attributes(node).unwrap().mode);
        assert_eq!(modes, [0o040_555, 0o100_666, 0o100_444]);
    }

    #[test]
    fn disks_in_one_folder_have_files_and_numbers_of_their_own() {
        let mut nodes = nodes(MountedOver::Folder, false);
        let second = Gate::new(RamDevice::new(2 << 20).unwrap());
        nodes.add(&second, "other", "cipher: some\n");
        let device = |name: &[u8]| {
            let node = nodes.find(ROOT, name)?;
            Some((nodes.device(node), nodes.attributes(node)?.size))
        };
        assert_eq!(device(b"disk"), Some((0, 1 << 20)));
        assert_eq!(device(b"disk.info"), Some((0, 13)));
        assert_eq!(device(b"other"), Some((1, 2 << 20)));
        assert_eq!(device(b"other.info"), Some((1, 13)));
        assert_eq!(nodes.disks()[1].info(0, 100), b"cipher: some\n");
        assert!(nodes.kind(6).is_none() && nodes.kind(7).is_none());
        assert_eq!(nodes.sum(), (3 << 20, 4));
    }

    #[test]
    fn listing_goes_on_where_it_stopped() {
        let nodes = nodes(MountedOver::Folder, false);
        let names = |from, room| {
            let mut body = Body::new();
            nodes.list(from, room, &mut body);
            body.as_bytes().len()
        };
        assert_eq!(names(0, 4096), 32 + 32 + 32 + 40);
        assert_eq!(names(0, 70), 64);
        assert_eq!(names(2, 4096), 72);
        assert_eq!(names(4, 4096), 0);
        assert_eq!(names(u64::MAX, 4096), 0);
    }
}
