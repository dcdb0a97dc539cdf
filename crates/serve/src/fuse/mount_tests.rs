//! Mounts that nobody serves. None of this asks the file system anything.

use std::os::fd::AsFd as _;

use cryptline_testkit::peer;
use rustix::fs::{Mode, OFlags};

use super::*;

/// A folder, and what it was before something was mounted over it.
struct Place {
    _folder: tempfile::TempDir,
    point: PathBuf,
    found: OwnedFd,
}

impl Place {
    /// `None` where this machine does not let us mount.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
            peer::skip("mount(2) of /dev/fuse is needed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().canonicalize().unwrap().join("mnt");
        std::fs::create_dir(&point).unwrap();
        let found = rustix::fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Some(Self { _folder: folder, point, found: found.unwrap() })
    }

    fn wanted(&self) -> MountWanted<'_> {
        MountWanted {
            point: self.point.clone(),
            place: self.found.as_fd(),
            over: MountedOver::Folder,
            source: "disk".to_owned(),
            read_only: false,
            allow_other: false,
        }
    }
}

#[test]
fn mount_that_covers_ours_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let (mut ours, _descriptors) = Mount::new(&place.wanted(), 2).unwrap();
    let (mut theirs, _others) = Mount::new(&place.wanted(), 1).unwrap();
    assert_ne!(ours.identity(), theirs.identity());
    let top = || identity_at(&place.point);
    ours.breaker()();
    assert_eq!(top().as_deref(), theirs.identity());
    assert!(matches!(unmount(&place.point, true, ours.identity()), Err(MountError::NotMounted)));
    ours.end().unwrap();
    assert_eq!(top().as_deref(), theirs.identity());
    theirs.breaker()();
    assert_eq!(top().as_deref(), ours.identity(), "its own it ends");
    theirs.end().unwrap();
    assert_eq!(top().as_deref(), ours.identity());
    unmount(&place.point, false, ours.identity()).unwrap();
    assert_eq!(top(), None);
}

#[test]
fn mount_that_somebody_else_has_undone_is_not_undone_again() {
    let Some(place) = Place::new() else { return };
    let (mut ours, _descriptors) = Mount::new(&place.wanted(), 1).unwrap();
    unmount(&place.point, false, ours.identity()).unwrap();
    ours.let_go();
    let (theirs, _others) = Mount::new(&place.wanted(), 1).unwrap();
    drop(ours);
    assert_eq!(identity_at(&place.point).as_deref(), theirs.identity());
}

#[test]
fn nothing_is_mounted_where_the_path_leads_elsewhere_by_now() {
    let Some(place) = Place::new() else { return };
    let moved = place.point.with_file_name("moved");
    std::fs::rename(&place.point, &moved).unwrap();
    for other in [None, Some(())] {
        if other.is_some() {
            std::os::unix::fs::symlink(&moved, &place.point).unwrap();
        }
        assert!(matches!(Mount::new(&place.wanted(), 1), Err(MountError::Moved)));
        assert_eq!((identity_at(&place.point), identity_at(&moved)), (None, None));
    }
}
