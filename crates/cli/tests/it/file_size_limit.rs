//! A limit on file sizes (`ulimit -f`, SIGXFSZ) is an error of the write, never the end of a server.

use std::process::Command;

use crate::server::{Disk, SIZE, Server, cryptline};
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
