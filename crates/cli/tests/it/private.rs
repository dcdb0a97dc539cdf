//! What a server keeps from others: secrets from the command it runs, its files and sockets from
//! other users.

use crate::server;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::server::{Disk, READY, text};
use cryptline_testkit::peer::{self, Background, Run};

const CRYPTLINE: &str = env!("CARGO_BIN_EXE_cryptline");
/// Prints the numbers of the open descriptors of the shell that runs it.
const DESCRIPTORS: &str = "for f in /proc/$$/fd/*; do if [ -L \"$f\" ]; then printf '%s ' \"${f##*/}\"; fi; done";

/// Runs a script; `$0` is the program.
#[track_caller]
fn shell(script: &str, arguments: &[&str]) -> Run {
    let mut command = Command::new("sh");
    command.args(["-c", script, CRYPTLINE]).args(arguments).env_remove("XDG_RUNTIME_DIR");
    peer::run(&mut command, READY)
}

fn mode(path: &str) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_command_has_no_descriptor_that_a_key_came_from_and_has_those_it_was_meant_to_have() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let opened = "exec 5<\"$2\" 6<\"$1\" 7>\"$1.log\"";
    let arguments = [&*disk.image, &disk.key, DESCRIPTORS];
    // As it is without a server in between.
    let direct = shell(&format!("{opened}; exec sh -c \"$3\""), &arguments).success();
    let direct = direct.stdout_text();
    assert!(direct.contains(" 5 "), "{direct}");
    let expected = direct.replace(" 5 ", " ");
    for source in [
        "\"$1\" --passphrase-fd 5",
        "\"$1\" --key-file /dev/fd/5",
        "\"$1\" --key-file /proc/self/fd/5",
        "\"$1?key-file=/dev/fd/5\"",
    ] {
        let script = format!("{opened}; exec \"$0\" serve {source} --run \"$3\"");
        let ran = shell(&script, &arguments).success();
        assert_eq!(ran.stdout_text(), expected, "{source}: {ran}");
    }
    let volume_key = disk.path("volume-key");
    fs::write(&volume_key, [7; 64]).unwrap();
    let line = disk.path("table");
    let hex = "07".repeat(64);
    let text = format!("0 2048 crypt aes-xts-plain64 {hex} 0 {} 0", disk.image);
    fs::write(&line, text).unwrap();
    for (key, options) in [
        (&line, "--table @/dev/fd/5"),
        (
            &volume_key,
            "\"$1\" --type plain --cipher aes-xts-plain64 --key-size 512 --volume-key-file /dev/fd/5 --force",
        ),
    ] {
        let script = format!("{opened}; exec \"$0\" serve {options} --run \"$3\"");
        let ran = shell(&script, &[&disk.image, key, DESCRIPTORS]).success();
        assert_eq!(ran.stdout_text(), expected, "{options}: {ran}");
    }
}

#[test]
fn a_command_can_not_read_the_standard_input_that_a_key_came_from() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    // It was read to its end, but what is a file can be read again.
    let again = "exec 4</proc/self/fd/0; cat <&4; cat; printf done";
    for source in [
        "\"$1\" --key-file -",
        "\"$1\" --passphrase-fd 0",
        "\"$1\" --key-file /dev/stdin",
        "\"$1?key-file=/dev/stdin\"",
        "\"$1?key-file=-\"",
    ] {
        let script = format!("exec \"$0\" serve {source} --run \"$3\" <\"$2\"");
        let ran = shell(&script, &[&disk.image, &disk.key, again]).success();
        assert_eq!(ran.stdout_text(), "done", "{source}: {ran}");
    }
    // A line of it is the passphrase, since it is no terminal.
    let line = disk.path("line");
    fs::write(&line, "a line").unwrap();
    let add = "exec \"$0\" key add \"$1\" --key-file \"$2\" --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \"$3\"";
    shell(add, &[&disk.image, &disk.key, &line]).success();
    fs::write(&line, "a line\nand another").unwrap();
    let script = "exec \"$0\" serve \"$1\" --run \"$3\" <\"$2\"";
    let ran = shell(script, &[&disk.image, &line, again]).success();
    assert_eq!(ran.stdout_text(), "done", "{ran}");
    let script = "exec 5<\"$2\"; exec \"$0\" serve \"$1\" --pin-file /dev/fd/5 --run \"$3\" <\"$2\"";
    let again = "if [ -e /proc/$$/fd/5 ]; then cat <&5; fi; printf done";
    let ran = shell(script, &[&disk.image, &line, again]).success();
    assert_eq!(ran.stdout_text(), "done", "{ran}");
    // Standard input that is not the key's is the command's.
    let script = "exec \"$0\" serve \"$1\" --key-file \"$2\" --run cat";
    let mut command = Command::new("sh");
    command.args(["-c", script, CRYPTLINE, &disk.image, &disk.key]);
    let ran = peer::run_with_input(&mut command, READY, b"for the command").success();
    assert_eq!(ran.stdout_text(), "for the command");
}

#[test]
fn a_passphrase_descriptor_is_closed_once_every_target_is_open() {
    let Some(cryptsetup) = peer::require("cryptsetup") else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let copy = disk.path("copy.img");
    fs::copy(&disk.image, &copy).unwrap();
    // The open file holds a lock for as long as anybody has it.
    let script = "exec 5<\"$3\"; flock 5; exec \"$0\" serve \"$1\" \"$2\" --passphrase-fd 5 --run \"$4\"";
    let look = format!("flock --nonblock '{}' printf closed", disk.key);
    let ran = shell(script, &[&disk.image, &copy, &disk.key, &look]).success();
    assert_eq!(ran.stdout_text(), "closed", "{ran}");
}

#[test]
fn a_pid_file_never_leads_through_a_link_and_can_be_changed_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    let (victim, pidfile) = (path("victim"), path("pid"));
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &pidfile).unwrap();
    // Somebody else guesses the name of the unfinished file.
    let script = "umask 000; ln -s \"$2\" \"$1.$$.new\"
        exec \"$0\" serve ram:1M -P \"$1\" --run \"stat -c '%F %a' '$1'; cat '$1'\"";
    let ran = shell(script, &[&pidfile, &victim]).success();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(ran.stdout_text().starts_with("regular file 644\n"), "the link itself is replaced: {ran}");
    assert!(!Path::new(&pidfile).exists());
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "the victim and its link, no unfinished file");
}

#[test]
fn sockets_are_their_owners_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    let (socket, stats) = (path("socket"), path("stats"));
    let start = |umask: &str, options: &[&str]| {
        let mut command = Command::new("sh");
        let script = format!(
            "umask {umask}; s=\"$1\" t=\"$2\"; shift 2; exec \"$0\" serve ram:1M -U \"$s\" --stats \"$t\" \"$@\""
        );
        command.args(["-c", &script, CRYPTLINE, &socket, &stats]).args(options);
        let process = Background::spawn(&mut command);
        process.wait_until(READY, || {
            [&socket, &stats].iter().all(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
        })
    };
    for (umask, options, expected) in [
        ("000", &[][..], 0o600),
        ("777", &[], 0o600),
        ("077", &["--socket-mode=660"], 0o660),
        ("000", &["--socket-mode=0666"], 0o666),
    ] {
        let server = start(umask, options);
        for path in [&socket, &stats] {
            assert_eq!(mode(path), expected, "{umask} {options:?} {path}");
        }
        server.stop().success();
        assert!(!Path::new(&socket).exists() && !Path::new(&stats).exists());
    }
}

/// There is no moment in which another user could connect: the socket is made with its mode.
#[test]
fn a_socket_is_never_open_to_others_while_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = text(&path);
    let watched = path.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let watcher = std::thread::spawn(move || {
        let mut widest = 0;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if let Ok(metadata) = fs::symlink_metadata(&watched) {
                widest |= metadata.mode() & 0o077;
            }
        }
        widest
    });
    for _ in 0..10 {
        let script = "umask 000; exec \"$0\" serve ram:1M -U \"$1\" --run true";
        let _ = shell(script, &[&socket]).success();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(watcher.join().unwrap(), 0);
}

#[test]
fn a_socket_mode_that_is_none_is_refused() {
    for mode in ["", "8", "1777", "rw", "-1"] {
        let mode = format!("--socket-mode={mode}");
        let refused = server::run(["serve", "ram:1M", &mode, "--run", "true"]).exited_with(1);
        assert!(refused.stderr_text().contains("octal"), "{refused}");
    }
}

#[test]
fn a_pid_file_takes_the_place_of_nothing_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    fs::write(&disk, vec![7; 1 << 20]).unwrap();
    for path in [&*text(&disk), &*text(folder.path())] {
        let ran = shell("exec \"$0\" serve ram:1M -P \"$1\" --run true", &[path]);
        let ran = ran.exited_with(5);
        assert!(ran.stderr_text().contains("--pidfile"), "{ran}");
    }
    assert_eq!(fs::read(&disk).unwrap(), vec![7; 1 << 20]);
}
