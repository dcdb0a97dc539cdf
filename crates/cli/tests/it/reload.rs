//! SIGHUP: certificates are read again, by a server that may open no file any more.

use crate::server;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::server::{READY, Server, cryptline, text, wait_until};
use cryptline_testkit::peer::{self, BackgroundProgram, Peer};
use cryptline_testkit::pki::Pki;
use rustix::process::{Signal, geteuid};

/// A server with certificates of its own, whose service manager we are.
struct Managed {
    folder: tempfile::TempDir,
    manager: UnixDatagram,
    server: Server,
}

impl Managed {
    /// A server with the certificates of `pki`.
    fn start(pki: &Pki, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = folder.path().join("pki");
        fs::create_dir(&certificates).unwrap();
        install(pki, &certificates);
        let path = folder.path().join("notify");
        let manager = manager_at(&path);
        let mut command = cryptline(["serve", "ram:1M", "--port=0", "--tls=require"]);
        command
            .args(["--tls-certificates", &text(&certificates)])
            .args(["--log=json", "--log-level=info"])
            .args(more)
            .env("NOTIFY_SOCKET", &path);
        let server = Server::spawn(&mut command);
        let managed = Self { folder, manager, server };
        assert_eq!(managed.told(), "READY=1");
        managed
    }

    fn certificates(&self) -> PathBuf {
        self.folder.path().join("pki")
    }

    fn told(&self) -> String {
        told(&self.manager)
    }

    /// SIGHUP, and what the manager is told, until the server is ready again.
    fn reload(&self) {
        self.server.process.signal(Signal::HUP);
        let told = self.told();
        let time = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        assert!(time.is_some_and(|time| time.parse::<u64>().is_ok()), "{told}");
        assert_eq!(self.told(), "READY=1");
    }

    /// Tells if a client is served that believes the authority of `pki` only.
    fn convinces(&self, nbdinfo: &Peer, pki: &Pki) -> bool {
        let run = nbdinfo.run(["--size", &self.uri_for(pki.folder())]);
        run.status.success()
    }

    fn uri_for(&self, folder: &Path) -> String {
        let (place, _) = self.server.uri.split_once("tls-certificates=").unwrap();
        format!("{place}tls-certificates={}", folder.display())
    }

    #[track_caller]
    fn says(&self, what: &str) {
        let said = || self.server.process.stderr_text();
        wait_until(&format!("{what:?} is said"), || said().contains(what));
    }
}

fn told(manager: &UnixDatagram) -> String {
    let mut message = [0; 100];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}

/// A socket that a server's messages come to.
fn manager_at(path: &Path) -> UnixDatagram {
    let manager = UnixDatagram::bind(path).unwrap();
    manager.set_read_timeout(Some(READY)).unwrap();
    manager
}

/// Exchanges the files as whoever renews certificates does: under other names first.
fn install(pki: &Pki, folder: &Path) {
    for name in ["ca-cert.pem", "server-key.pem", "server-cert.pem"] {
        let new = folder.join("new");
        fs::copy(pki.file(name), &new).unwrap();
        fs::rename(new, folder.join(name)).unwrap();
    }
}

/// Stays connected, and reads when there is a file.
const READ_LATER: &str = "
import nbd, os, sys, time
h = nbd.NBD()
h.set_uri_allow_local_file(True)
h.connect_uri(sys.argv[1])
h.pwrite(b'x' * 512, 0)
print('connected', flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
assert h.pread(512, 0) == b'x' * 512
print('read', flush=True)
";

fn check_renewal(more: &[&str]) {
    let peers = ["openssl", "nbdinfo", "python3-libnbd"];
    let Some([openssl, nbdinfo, python]) = peer::require_all(peers) else {
        return;
    };
    let (old, new) = (Pki::new(&openssl), Pki::new(&openssl));
    let managed = Managed::start(&old, more);
    let sign = managed.folder.path().join("read");
    let mut client = python.command();
    client.args(["-c", READ_LATER, &managed.uri_for(old.folder())]);
    let mut client = BackgroundProgram::spawn(client.arg(&sign));
    wait_until("a client is there", || client.stdout_text().contains("connected"));
    assert!(managed.convinces(&nbdinfo, &old));
    assert!(!managed.convinces(&nbdinfo, &new));

    install(&new, &managed.certificates());
    managed.reload();
    managed.says("\"event\":\"reloaded\"");
    assert!(managed.convinces(&nbdinfo, &new));
    assert!(!managed.convinces(&nbdinfo, &old));
    fs::write(&sign, "").unwrap();
    assert!(client.wait(READY).is_some_and(|status| status.success()));
    client.collect().success();
    managed.server.stop();
}

#[test]
fn new_clients_see_the_new_certificate_and_the_others_are_served_on() {
    check_renewal(&[]);
}

#[test]
fn a_server_without_io_uring_reads_them_as_well() {
    check_renewal(&["--io=preadv"]);
}

#[test]
fn a_user_who_may_not_read_the_key_is_served_by_the_one_who_could() {
    if !geteuid().is_root() {
        return peer::skip_everywhere("only root can become another user");
    }
    check_renewal(&["--user=65534", "--group=65534"]);
}

/// In place of the server's certificate one that expired yesterday.
fn let_expire(pki: &Pki, openssl: &Peer, folder: &Path) {
    let extensions = pki.file("extensions");
    fs::write(&extensions, "basicConstraints=critical,CA:FALSE\n").unwrap();
    let options = ["-days", "-1", "-extfile", &extensions];
    let certificate = text(&folder.join("server-cert.pem"));
    pki.sign(openssl, "server", "/CN=localhost", &options, &certificate);
}

#[test]
fn what_cannot_be_used_leaves_the_old_certificate_and_says_why() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let (pki, other) = (Pki::new(&openssl), Pki::new(&openssl));
    let managed = Managed::start(&pki, &[]);
    let folder = managed.certificates();
    let file = |name: &str| folder.join(name);
    let refused = |why: &str| {
        managed.reload();
        managed.says(why);
        managed.says("the certificates stay as they were");
        assert!(managed.convinces(&nbdinfo, &pki), "{why}");
    };
    fs::write(file("server-cert.pem"), "nonsense").unwrap();
    refused("no usable certificate");
    let_expire(&pki, &openssl, &folder);
    refused("it expired at ");
    install(&pki, &folder);
    fs::copy(other.file("server-key.pem"), file("server-key.pem")).unwrap();
    refused("not the key of the certificate");
    fs::remove_file(file("server-key.pem")).unwrap();
    refused("No such file or directory");
    rustix::fs::mkfifoat(rustix::fs::CWD, file("server-key.pem"), rustix::fs::Mode::RUSR).unwrap();
    refused("Invalid argument");
    fs::remove_file(file("server-key.pem")).unwrap();
    fs::write(file("server-key.pem"), vec![b'x'; 2 << 20]).unwrap();
    refused("File too large");
    // And after all of that a good one is taken.
    install(&other, &folder);
    managed.reload();
    assert!(managed.convinces(&nbdinfo, &other));
    managed.server.stop();
}

#[test]
fn whoever_controls_the_server_has_them_read_and_is_told_what_came_of_it() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let (pki, other) = (Pki::new(&openssl), Pki::new(&openssl));
    let control = pki.file("control");
    let managed = Managed::start(&pki, &["--control", &control]);
    let reload = || server::run(["ctl", &control, "reload"]);
    install(&other, &managed.certificates());
    let said = reload().success().stdout_text();
    assert!(said.contains("valid until 20"), "{said}");
    assert!(managed.convinces(&nbdinfo, &other));
    fs::write(managed.certificates().join("server-cert.pem"), "nonsense").unwrap();
    let refused = reload().exited_with(1).stderr_text();
    assert!(refused.contains("stay as they were"), "{refused}");
    assert!(refused.contains("no usable certificate"), "{refused}");
    assert!(managed.convinces(&nbdinfo, &other));
    managed.server.stop();

    let plain = Server::start(["ram:1M", "--control", &control]);
    let refused = reload().exited_with(1).stderr_text();
    assert!(refused.contains("nothing to reload"), "{refused}");
    plain.stop();
}

#[test]
fn whoever_reads_the_certificates_ends_with_the_server() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let managed = Managed::start(&pki, &[]);
    let readers = || {
        let name = text(&managed.certificates());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.map(|it| fs::read(it.path().join("cmdline")).unwrap_or_default());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        lines.filter(|line| line.contains("--to-server") && line.contains(&name)).count()
    };
    assert_eq!(readers(), 1);
    managed.server.process.signal(Signal::KILL);
    wait_until("it has ended", || readers() == 0);
}

#[test]
fn expired_certificate_is_refused_at_the_start_with_the_next_step() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let option = pki.option();
    let_expire(&pki, &openssl, pki.folder());
    let run = server::run(["serve", "ram:1M", "--tls=on", &option, "--run", "true"]);
    let said = run.exited_with(1).stderr_text();
    assert!(said.contains("it expired at 20"), "{said}");
    assert!(said.contains("`cryptline certs`"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_service_manager_s_reload_ends_no_server_that_has_nothing_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = manager_at(&path);
    let mut command = cryptline(["serve", "ram:1M", "-v"]);
    let server = Server::spawn(command.env("NOTIFY_SOCKET", &path));
    assert_eq!(told(&manager), "READY=1");
    server.process.signal(Signal::HUP);
    assert!(told(&manager).starts_with("RELOADING=1"));
    assert_eq!(told(&manager), "READY=1");
    let said = server.stop().stderr_text();
    assert!(said.contains("nothing to reload"), "{said}");
}

/// Runs a server on a terminal that is then closed; prints how it ended.
const CLOSE_THE_TERMINAL: &str = "
import os, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b''
while b'qemu-img' not in said:
    said += os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

#[test]
fn the_end_of_its_terminal_still_ends_the_server() {
    let Some([openssl, python]) = peer::require_all(["openssl", "python3-libnbd"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let mut command = python.command();
    command.args(["-c", CLOSE_THE_TERMINAL, env!("CARGO_BIN_EXE_cryptline")]);
    command.args(["serve", "ram:1M", "--tls=require", &pki.option()]);
    let run = peer::run(&mut command, READY).success();
    assert_eq!(run.stdout_text().trim(), "0", "{run}");
}
