//! A limit on file sizes (`ulimit -f`, SIGXFSZ) is an error of the write, never the end of a program
//! that others depend on.

use std::fs;
use std::process::Command;

use crate::server::{Disk, READY, SIZE, Server, cryptline, text};
use cryptline_testkit::peer;

/// `command` under a limit on file sizes.
fn limited(bytes: usize, command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={bytes}")).arg(command.get_program()).args(command.get_args()).env("LC_ALL", "C");
    limited
}

/// Writes below the limit, above it, and across it; prints what came of each.
const WRITE_AND_TELL: &str = "
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
def attempt(what, *arguments):
    try:
        what(*arguments)
        return 'ok'
    except nbd.Error as error:
        return error.errno
block = b'x' * 4096
print(attempt(h.pwrite, block, 0))
print(attempt(h.pwrite, block, 6 << 20))
print(attempt(h.pwrite, block * 1024, 2 << 20))
print(attempt(h.flush))
print(h.pread(4096, 0) == block)
";

#[test]
fn a_write_above_the_limit_fails_and_the_server_lives() {
    let peers = ["cryptsetup", "python3-libnbd"];
    let Some([cryptsetup, python]) = peer::require_all(peers) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    // The header, and the first four of the eight MiB.
    let limit = (16 << 20) + SIZE / 2;
    for io in ["auto", "preadv"] {
        for direct in ["auto", "off"] {
            let mut command = cryptline(["serve", "--io", io, "--direct", direct]);
            command.args(disk.arguments());
            let server = Server::spawn(&mut limited(limit, &command));
            let told = python.run(["-c", WRITE_AND_TELL, &server.uri]).success();
            assert_eq!(told.stdout_text(), "ok\nENOSPC\nENOSPC\nok\nTrue\n", "{io} {direct}");
            // Nothing that was promised is lost: the end is a good one.
            server.stop();
        }
    }
}

#[test]
fn every_verb_that_writes_says_so_and_ends_with_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    let (table, key, out) = (path("a.btt"), path("key"), path("out"));
    fs::write(&key, "pass phrase").unwrap();
    let mut btt = cryptline(["btt", "create", &table, "--size=64M"]);
    let ended = peer::run(&mut limited(1 << 20, &btt), READY).exited_with(4);
    assert!(ended.stderr_text().contains("File too large"), "{ended}");
    // What is there already is mapped, not written, and no limit concerns it.
    peer::run(&mut btt, READY).success();
    let target = format!("btt:{table}");
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let mut create = cryptline(["create", &target, "--key-file", &key]);
    let ended = peer::run(&mut limited(1, create.args(cheap)), READY);
    assert!(ended.status.code().is_some(), "{ended}");

    let pidfile = path("pid");
    let serve = cryptline(["serve", "ram:1M", "-P", &pidfile, "--run", "true"]);
    let ended = peer::run(&mut limited(1, &serve), READY).exited_with(1);
    assert!(ended.stderr_text().contains("pid file"), "{ended}");

    for verb in ["completions bash", "serve --help"] {
        let script = format!("ulimit -f 0; exec \"$0\" {verb} >\"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_cryptline"), &out]);
        let ended = peer::run(&mut command, READY);
        assert!(ended.status.code().is_some(), "{verb}: {ended}");
    }
}

/// The command that a server runs has the signal as everybody has it.
#[test]
fn a_command_meets_the_limit_as_it_would_without_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let out = text(&folder.path().join("out"));
    // Exit status 128 and the number of SIGXFSZ, as the shell says it of its child.
    let script = format!("sh -c 'ulimit -f 0; echo x >\"{out}\"'; exit $?");
    let serve = cryptline(["serve", "ram:1M", "--run", &script]);
    peer::run(&mut limited(1 << 20, &serve), READY).exited_with(128 + 25);
}
