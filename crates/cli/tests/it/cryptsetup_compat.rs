//! cryptsetup's own compatibility tests, run with this program in its place: those of their sections that need no
//! device-mapper. The scripts in `cryptsetup_compat` get them from Debian's source package and run them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use cryptline_testkit::peer;

const TIMEOUT: Duration = Duration::from_secs(900);
/// Sections that pass, of those that are run. One that is mended raises its number here.
const PASSED: [(&str, usize); 2] = [("compat-test", 34), ("compat-test2", 35)];

#[test]
fn heavy_sections_of_cryptsetups_own_tests_pass() {
    if peer::require_all(["cryptsetup", "cc", "dd", "losetup", "xz"]).is_none() {
        return;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cryptsetup_compat");
    let fetched = peer::run(&mut Command::new(scripts.join("fetch")), TIMEOUT);
    if !fetched.status.success() {
        peer::skip(&format!("no source of cryptsetup: {fetched}"));
        return;
    }
    let tests = fetched.stdout_text().trim().to_owned();
    for (script, least) in PASSED {
        let folder = Folder::new();
        let mut run = Command::new(scripts.join("run"));
        run.arg(env!("CARGO_BIN_EXE_cryptline")).arg(&tests);
        run.arg(script).arg(folder.path("work"));
        let said = peer::run(&mut run, TIMEOUT).success().stdout_text();
        println!("{said}");
        let passed = said.lines().filter(|line| line.starts_with("passed ")).count();
        assert!(passed >= least, "{passed} of {script} pass, {least} should:\n{said}");
    }
}
