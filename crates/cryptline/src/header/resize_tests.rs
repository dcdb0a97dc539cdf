//! Plans for what is no longer as it was, which are not carried out.

use std::fs;

use cryptline_luks::format::LuksVersion;
use sha2::{Digest, Sha256};

use super::*;
use crate::testing::cheap;

const SIZE: u64 = 20 << 20;

/// A volume whose header says that it has 1 MiB.
fn volume(folder: &Path) -> PathBuf {
    let path = folder.join("disk");
    let create = crate::Create::new(&path).size(SIZE).format(cheap(LuksVersion::Luks2));
    create.passphrase("secret").create().unwrap();
    fix_size(&path);
    path
}

/// Has a header say that the data has 1 MiB.
pub(in crate::header) fn fix_size(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    for copy in bytes[..0x8000].chunks_mut(0x4000) {
        let word = b"\"dynamic\"";
        let at = copy.windows(word.len()).position(|it| it == word).unwrap();
        copy[at..at + word.len()].copy_from_slice(b"\"1048576\"");
        copy[448..512].fill(0);
        let sum = Sha256::digest(&copy[..]);
        copy[448..480].copy_from_slice(&sum);
    }
    fs::write(path, bytes).unwrap();
}

fn places(path: &Path) -> VolumeParts {
    VolumeParts { target: BaseSource::Target(Target::Path(path.to_owned())), header: None }
}

/// To all that there is.
fn planned(path: &Path) -> (ResizePlan, Vec<DataSegment>) {
    let places = places(path);
    let segments = places.segments().unwrap();
    let (file, has) = places.file().unwrap();
    let plan = ResizePlan::new(&segments[0], file, [has, has]).unwrap();
    (plan, segments)
}

fn grow(path: &Path, size: u64) {
    let options = ResizeOptions { size: Some(size), ..ResizeOptions::default() };
    Header::new(path).resize(&options).unwrap();
}

fn is_refused(path: &Path, (plan, segments): &(ResizePlan, Vec<DataSegment>)) -> bool {
    let before = fs::read(path).unwrap();
    let done = Header::new(path).change(plan, &places(path), segments, false);
    let error = done.unwrap_err();
    matches!(error.problem(), Problem::Resize(ResizeError::Changed)) && fs::read(path).unwrap() == before
}

#[test]
fn volume_that_has_grown_meanwhile_is_not_made_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let path = volume(folder.path());
    let stale = planned(&path);
    // The same length of the file again, and another header.
    grow(&path, SIZE);
    assert!(is_refused(&path, &stale));
    // Another length, and the same header.
    let stale = planned(&path);
    assert!(stale.0.length.is_none(), "nothing to do");
    let stale = (ResizePlan { length: Some(2 << 20), ..stale.0 }, stale.1);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(SIZE + (1 << 20)).unwrap();
    assert!(is_refused(&path, &stale));
}

#[test]
fn file_that_was_changed_meanwhile_keeps_its_length() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(3 << 20).unwrap();
    for sizes in [[2 << 20, 1 << 20], [2 << 20, 4 << 20]] {
        let error = set_size(&file, sizes).unwrap_err();
        let changed = Problem::Resize(ResizeError::Changed).to_string();
        assert_eq!(error.problem().to_string(), changed);
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
    }
    set_size(&file, [3 << 20, 1 << 20]).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
}
