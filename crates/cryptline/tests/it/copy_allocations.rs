//! A copy allocates when it begins and when it ends, and not for each of its chunks.

use std::fs;
use std::path::Path;
use std::process::Command;

use cryptline::{Copy, CopySource, Create};
use cryptline_testkit::alloc::{self, CountingAllocator};

use crate::common::cheap;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NAME: &str = "copy_allocations::chunks_are_copied_without_an_allocation";
/// Set in a process of its own, where no other test allocates.
const ALONE: &str = "CRYPTLINE_TEST_ALONE";
const MIB: usize = 1 << 20;
/// A few for what the system does differently from run to run; a thread's start among them.
const TOLERANCE: u64 = 60;

/// Calls of the allocator for the encryption of a file.
fn calls(folder: &Path, source: &Path) -> u64 {
    let copy = Copy::new(CopySource::raw(source).unwrap());
    let out = folder.join("out");
    let create = Create::new(&out).format(cheap()).passphrase("secret").fill(copy);
    let before = alloc::calls();
    let copied = create.create().unwrap().copied.unwrap();
    let after = alloc::calls();
    assert_eq!(copied.bytes, fs::metadata(source).unwrap().len());
    fs::remove_file(&out).unwrap();
    after - before
}

#[test]
fn chunks_are_copied_without_an_allocation() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([NAME, "--exact", "--nocapture"]).env(ALONE, "1");
        let output = alone.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}{output:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, mib: usize| {
        let path = folder.path().join(name);
        fs::write(&path, vec![7; mib * MIB]).unwrap();
        path
    };
    let (short, long) = (file("short", 16), file("long", 16 + 192));
    let counted = |source: &Path| {
        let runs = (0..3).map(|_| calls(folder.path(), source));
        runs.min().unwrap()
    };
    let (short, long) = (counted(&short), counted(&long));
    assert!(short > 0, "they are counted");
    assert!(long < short + TOLERANCE, "{short} calls for 16 chunks, {long} for 208");
}
