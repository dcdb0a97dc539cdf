//! Refusals of `Image::open`: with which error, exit code and next step; and how what it opens is read.

use std::io::Write as _;
use std::num::NonZeroU64;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cryptline_engine::OpenError;
use cryptline_engine::base::{DirectMode, Image};
use cryptline_testkit::peer;
use cryptline_testkit::suite::devices;
use rustix::fs::{Advice, CWD, FileType, Mode};
use tempfile::NamedTempFile;

/// One line with the path in it.
fn refused(path: &Path, read_only: bool) -> OpenError {
    let error = Image::open(path, read_only).expect_err("must be refused");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    error
}

#[test]
fn directory_is_refused_by_kind() {
    let folder = tempfile::tempdir().unwrap();
    for read_only in [true, false] {
        let error = refused(folder.path(), read_only);
        assert!(matches!(error, OpenError::WrongKind { .. }));
        assert!(error.to_string().contains("is a directory"), "{error}");
    }
}

#[test]
fn missing_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("nothing"), false);
    assert!(error.to_string().contains("No such file"), "{error}");
    refused(&folder.path().join("no/folder"), true);
}

#[test]
fn fifo_is_refused_without_waiting_for_its_other_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for read_only in [true, false] {
        assert!(matches!(refused(&path, read_only), OpenError::WrongKind { .. }));
    }
}

#[test]
fn character_device_is_refused_by_kind() {
    for path in ["/dev/null", "/dev/zero", "/dev/full"] {
        assert!(matches!(refused(Path::new(path), false), OpenError::WrongKind { .. }));
    }
}

#[test]
fn second_writer_is_refused_as_busy_until_the_first_is_gone() {
    let (path, _folder) = devices::image_file();
    let first = Image::open(&path, false).unwrap();
    assert!(matches!(refused(&path, false), OpenError::Busy { .. }));
    assert!(matches!(refused(&path, true), OpenError::Busy { .. }));
    // The lock goes with the device and not before.
    let device = first.into_device(512, DirectMode::Auto).unwrap();
    assert!(matches!(refused(&path, false), OpenError::Busy { .. }));
    drop(device);
    Image::open(&path, false).unwrap();
}

#[test]
fn readers_share_and_keep_a_writer_out() {
    let (path, _folder) = devices::image_file();
    let readers = [(); 3].map(|()| Image::open(&path, true).unwrap());
    assert!(matches!(refused(&path, false), OpenError::Busy { .. }));
    drop(readers);
    Image::open(&path, false).unwrap();
}

#[test]
fn symbolic_link_is_followed() {
    let (path, folder) = devices::image_file();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let _first = Image::open(&link, false).unwrap();
    assert!(matches!(refused(&path, false), OpenError::Busy { .. }));
}

#[test]
fn odd_sizes_are_rounded_down_to_whole_blocks() {
    for (bytes, size) in [(0, 0), (511, 0), (512, 512), (4097, 4096), (10_000, 9728)] {
        let (path, _folder) = devices::image_file();
        std::fs::write(&path, vec![1; bytes]).unwrap();
        let image = Image::open(&path, true).unwrap();
        let device = image.into_device(512, DirectMode::Off).unwrap();
        assert_eq!(cryptline_engine::Gate::new(device).geometry().size, size);
    }
}

/// Where the test below asks for its second half, as a user without rights.
const UNPRIVILEGED_IMAGE: &str = "CRYPTLINE_TEST_UNPRIVILEGED_IMAGE";

#[test]
fn file_without_write_permission_says_to_use_read_only() {
    if let Ok(path) = std::env::var(UNPRIVILEGED_IMAGE) {
        return opened_without_rights(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, [0; 4096]).unwrap();
    let everyone = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    everyone(folder.path(), 0o755);
    everyone(&path, 0o444);
    if !rustix::process::geteuid().is_root() {
        return opened_without_rights(&path);
    }
    // Root may write anything: become somebody else, with a program that anybody can run.
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    everyone(&program, 0o755);
    let child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "image_open::file_without_write_permission_says_to_use_read_only"])
        .env(UNPRIVILEGED_IMAGE, &path)
        .current_dir("/")
        .output();
    match child {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}");
            assert!(text.contains("1 passed"), "{text}");
        }
        Err(error) => peer::skip(&format!("setpriv (package util-linux): {error}")),
    }
}

fn opened_without_rights(path: &Path) {
    let error = refused(path, false);
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
    Image::open(path, true).unwrap();
}

#[test]
fn what_is_read_once_comes_from_the_page_cache_only_where_most_of_it_is_there() {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&vec![1; 4 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    let is_direct = |mode| {
        let image = Image::open(file.path(), true).unwrap();
        image.into_device(4096, mode).unwrap().is_direct()
    };
    let cached = || cryptline_sys::cached_bytes(file.as_file());
    if !is_direct(DirectMode::Auto) || cached().is_none() {
        return peer::skip_everywhere("no O_DIRECT here, or no cachestat");
    }
    assert_eq!(cached(), Some(4 << 20));
    assert!(!is_direct(DirectMode::Uncached));
    let evict = |from: u64, len| {
        let len = NonZeroU64::new(len);
        rustix::fs::fadvise(file.as_file(), from, len, Advice::DontNeed).unwrap();
    };
    evict(0, 3 << 20);
    if cached().is_none_or(|cached| cached > 2 << 20) {
        return peer::skip_everywhere("the file system keeps the file in memory");
    }
    assert!(is_direct(DirectMode::Uncached));
}
