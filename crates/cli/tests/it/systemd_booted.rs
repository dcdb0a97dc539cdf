//! The units under a systemd that has booted: in a container, over this machine's own files, which stay as they are.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cryptline_testkit::peer;

const BOOT: &str = include_str!("booted/boot.sh");
const SCRIPT: &str = include_str!("booted/script.sh");
const POSTINST: &str = include_str!("../../debian/postinst");
/// Exit status of the boot where this machine does not allow it.
const CANNOT: i32 = 77;
/// The script's own limit comes first.
const TIMEOUT: Duration = Duration::from_secs(220);

#[test]
fn units_keep_their_promises_under_a_booted_systemd() {
    let peers = ["unshare", "systemd-analyze", "nbdinfo", "nbdcopy", "qemu-img", "setpriv", "nm"];
    let Some([unshare, ..]) = peer::require_all(peers) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return peer::skip("only root can boot systemd here");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("units")).unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd");
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        fs::copy(unit.path(), path("units").join(unit.file_name())).unwrap();
    }
    for (name, text) in [("boot", BOOT), ("script", SCRIPT), ("postinst", POSTINST)] {
        fs::write(path(name), text).unwrap();
    }
    let mut command = unshare.command();
    command.args(["--mount", "sh"]).arg(path("boot"));
    command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_cryptline"));
    let run = peer::run(&mut command, TIMEOUT);
    if run.status.code() == Some(CANNOT) {
        return peer::skip_everywhere(run.stdout_text().trim());
    }
    let log = fs::read_to_string(path("log")).unwrap_or_else(|_| panic!("no boot:\n{run}"));
    let promises = SCRIPT.lines().filter_map(|line| line.strip_suffix("() {"));
    let promises: Vec<_> = promises.filter(|name| name.matches('_').count() > 1).collect();
    assert!(promises.len() > 10);
    for promise in promises {
        assert!(log.contains(&format!("\nPASS {promise}\n")), "{promise}:\n{log}");
    }
}
