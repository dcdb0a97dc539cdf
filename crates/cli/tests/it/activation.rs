//! Socket activation: sockets that whoever starts the server has opened already.

use std::process::Command;

use crate::server::{Disk, READY};
use cryptline_testkit::peer::{self, Run};

const CRYPTLINE: &str = env!("CARGO_BIN_EXE_cryptline");

/// Runs a script in which `$0` is the program; `exec` keeps the process id that `$$` is.
fn shell(script: &str) -> Run {
    let mut command = Command::new("sh");
    command.args(["-c", script, CRYPTLINE]);
    peer::run(&mut command, READY)
}

#[test]
fn libnbd_starts_the_server_itself_and_has_standard_output_for_itself() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    let info = nbdinfo.run(["--json", "[", CRYPTLINE, "serve", "ram:64M", "]"]);
    let info = info.success();
    let parsed: serde_json::Value = serde_json::from_slice(&info.stdout).expect("only nbdinfo's");
    assert_eq!(parsed["exports"][0]["export-size"], 64 << 20);
    assert_eq!(info.stderr_text(), "");
    let said = nbdinfo.run(["--size", "--", "[", CRYPTLINE, "serve", "ram:1M", "-v", "]"]);
    let said = said.success();
    assert_eq!(said.stdout_text(), format!("{}\n", 1 << 20));
    assert!(said.stderr_text().contains("aes-xts-plain64"), "{said}");
}

#[test]
fn a_disk_is_copied_between_two_servers_that_nbdcopy_starts() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let start = |image| ["[", CRYPTLINE, "serve", image, "--key-file", &disk.key, "]"];
    let copy_in = ["--flush", "--", &*disk.clear].into_iter();
    nbdcopy.run(copy_in.chain(start(&disk.image))).success();
    let out = disk.path("out");
    let copy_out = ["--"].into_iter().chain(start(&disk.image)).chain([&*out]);
    nbdcopy.run(copy_out).success();
    assert!(std::fs::read(&disk.clear).unwrap() == std::fs::read(out).unwrap());
}

/// Listens on TCP, becomes the server, and asks it as a client.
const TCP_ACTIVATION: &str = "
import nbd, os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
port = listener.getsockname()[1]
child = os.fork()
if child == 0:
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.environ['LISTEN_PID'] = str(os.getpid())
    os.environ['LISTEN_FDS'] = '1'
    os.execv(sys.argv[1], [sys.argv[1], 'serve', 'ram:5M'])
listener.close()
h = nbd.NBD()
h.connect_tcp('127.0.0.1', str(port))
print(h.get_size())
h.shutdown()
os.kill(child, 15)
print(os.waitpid(child, 0)[1])
";

#[test]
fn a_tcp_socket_may_be_passed_too() {
    let Some(python) = peer::require("python3-libnbd") else {
        return;
    };
    let run = python.run(["-c", TCP_ACTIVATION, CRYPTLINE]).success();
    assert_eq!(run.stdout_text(), format!("{}\n0\n", 5 << 20), "{run}");
}

#[test]
fn variables_for_another_process_are_not_ours() {
    let script = "LISTEN_PID=1 LISTEN_FDS=1 exec \"$0\" serve ram:1M --run 'exit 3'";
    shell(script).exited_with(3);
}

#[test]
fn what_cannot_be_served_on_is_one_line_and_exit_code_1() {
    for (script, says) in [
        ("LISTEN_FDS=1 exec \"$0\" serve ram:1M 3</dev/null", "no listening Unix or TCP stream socket"),
        ("LISTEN_FDS=2 exec \"$0\" serve ram:1M 3</dev/null", "was not passed"),
        ("LISTEN_FDS=zero exec \"$0\" serve ram:1M", "from 1 to 64"),
        ("LISTEN_FDS=99999999 exec \"$0\" serve ram:1M", "from 1 to 64"),
    ] {
        let script = format!("export LISTEN_PID=$$; {script}");
        let refused = shell(&script).exited_with(1);
        assert!(refused.stderr_text().contains(says), "{says}:\n{refused}");
        assert_eq!(refused.stderr_text().lines().count(), 1, "{refused}");
    }
}

#[test]
fn sockets_of_its_own_and_commands_do_not_go_with_passed_ones() {
    let Some(nbdinfo) = peer::require("nbdinfo") else {
        return;
    };
    for conflict in ["--unix=-", "--port=0", "--ip-addr=::1", "--run=true"] {
        let run = nbdinfo.run(["--", "[", CRYPTLINE, "serve", "ram:1M", conflict, "]"]);
        assert!(!run.status.success());
        assert!(run.stderr_text().contains("started with sockets (LISTEN_FDS)"), "{run}");
    }
}
