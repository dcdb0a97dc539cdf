//! The systemd units: systemd's own opinion of them, and their command lines run as systemd would run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Disk, READY, SIZE, text};
use cryptline_testkit::peer::{self, BackgroundProgram};

const UNITS: [&str; 3] = ["cryptline@.socket", "cryptline@.service", "cryptline-mount@.service"];

fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The units, with the program where it is now.
fn installed() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let install = |name: &str| -> PathBuf {
        let path = folder.path().join(name);
        let program = env!("CARGO_BIN_EXE_cryptline");
        fs::write(&path, unit(name).replace("/usr/bin/cryptline", program)).unwrap();
        path
    };
    let paths = UNITS.map(|name| text(&install(name)));
    (folder, paths.into())
}

#[test]
fn systemd_finds_nothing_wrong() {
    let Some(analyze) = peer::require("systemd-analyze") else {
        return;
    };
    let (_folder, paths) = installed();
    let verified = analyze.run(["verify", "--man=no"].map(str::to_owned).iter().chain(&paths));
    let verified = verified.success();
    assert_eq!(verified.stderr_text(), "", "{verified}");
}

#[test]
fn what_the_server_can_do_without_is_taken_away() {
    let Some(analyze) = peer::require("systemd-analyze") else {
        return;
    };
    let (_folder, paths) = installed();
    // In tenths of systemd's scale from 0 to 10, of which less than 5 is "OK". Without sandboxing it is 9.6.
    for (service, most) in [(&paths[1], 25), (&paths[2], 45)] {
        let threshold = format!("--threshold={most}");
        // An instance, since a template has no name to be looked at by.
        let instance = service.replace("@.", "@x.");
        fs::copy(service, &instance).unwrap();
        analyze.run(["security", "--offline=true", "--no-pager", &threshold, &instance]).success();
    }
}

#[test]
fn the_units_leave_the_server_the_calls_of_its_own_sandbox() {
    for name in &UNITS[1..] {
        let unit = unit(name);
        let allowed = unit.lines().find_map(|line| line.strip_prefix("SystemCallFilter="));
        let allowed: Vec<_> = allowed.unwrap().split(' ').collect();
        // In no group of systemd's before version 256.
        for call in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
            assert!(allowed.contains(&call), "{name}: {call}");
        }
    }
}

/// The words of the unit's command line, with specifiers and variables replaced.
fn command_line(name: &str, replaced: &[(&str, &str)]) -> Vec<String> {
    let unit = unit(name);
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let words = line.unwrap().split(' ').filter(|word| *word != "$CRYPTLINE_OPTIONS");
    words
        .map(|word| {
            let word = replaced.iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, to));
            assert!(!word.contains(['%', '$']), "{word} is not replaced");
            word
        })
        .collect()
}

#[test]
fn the_socket_s_first_client_starts_the_service_s_command() {
    let peers = ["systemd-socket-activate", "cryptsetup", "nbdinfo"].map(peer::require);
    let [Some(activate), Some(cryptsetup), Some(nbdinfo)] = peers else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let socket = disk.path("unit.sock");
    let credentials = text(disk.folder.path());
    let command = command_line(
        "cryptline@.service",
        &[
            ("/usr/bin/cryptline", env!("CARGO_BIN_EXE_cryptline")),
            ("%d", &credentials),
            ("${CRYPTLINE_TARGET}", &disk.image),
        ],
    );
    let mut activated = activate.command();
    activated.args(["--listen", &socket]).args(command);
    let activated = BackgroundProgram::spawn(&mut activated);
    let activated = activated.wait_for_socket(Path::new(&socket), READY);
    let uri = format!("nbd+unix:///?socket={socket}");
    let size = nbdinfo.run(["--size", &uri]).success().stdout_text();
    assert_eq!(size.trim(), SIZE.to_string());
    activated.stop().success();
}

#[test]
fn the_mount_unit_s_command_makes_the_disk_a_file_until_it_is_stopped() {
    let Some([cryptsetup, _]) = peer::require_all(["cryptsetup", "fusermount3"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let (credentials, point) = (text(disk.folder.path()), disk.path("mnt"));
    fs::create_dir(&point).unwrap();
    let command = command_line(
        "cryptline-mount@.service",
        &[
            ("/usr/bin/cryptline", env!("CARGO_BIN_EXE_cryptline")),
            ("%d", &credentials),
            ("${CRYPTLINE_TARGET}", &disk.image),
            ("%t/cryptline/%i", &point),
        ],
    );
    let mut mount = Command::new(&command[0]);
    let mount = BackgroundProgram::spawn(mount.args(&command[1..]));
    let file = Path::new(&point).join("disk.img");
    let mount = mount.wait_for_path(&file, READY);
    assert_eq!(fs::metadata(&file).unwrap().len(), SIZE as u64);
    mount.stop().success();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}
