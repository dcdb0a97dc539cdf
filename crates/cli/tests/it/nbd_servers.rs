//! Volumes behind servers of other programs, by kind: what was flushed is there when the server was killed, and is what others
//! read.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use crate::below::{Below, create, serve, uri};
use crate::common::{Folder, PASSPHRASE, cryptline};
use crate::server::{READY, noise, text};
use cryptline_testkit::peer::{self, BackgroundProgram, Peer};

const MIB: usize = 1 << 20;
/// Each client has a connection below, and some servers take long to make one.
const FEW: &str = "--max-connections=4";

/// Fills a volume in the export of `start`, whose server is killed then, and reads it through another. The server of
/// the volume that is left without the one below says so.
fn outlives_its_server(folder: &Folder, options: &[&str], start: impl Fn() -> Below) {
    let Some(nbdcopy) = peer::require("nbdcopy") else {
        return;
    };
    let key = text(&folder.key());
    let mut below = start();
    create(folder, &below.uri(), options).success();
    let [clear, found] = ["clear", "found"].map(|name| text(&folder.path(name)));
    fs::write(&clear, noise(6 * MIB)).expect("room");
    let server = serve(&below.uri(), &key, &[FEW]);
    nbdcopy.run(["--flush", &clear, &server.uri]).success();
    below.process.kill();
    let said = server.process.stop().exited_with(4).stderr_text();
    assert!(said.contains("nbd+unix://"), "{said}");

    let below = start();
    let server = serve(&below.uri(), &key, &[FEW, "--read-only"]);
    nbdcopy.run([&server.uri, &found]).success();
    server.stop();
    let found = fs::read(found).expect("a copy");
    assert!(found[..6 * MIB] == noise(6 * MIB));
}

#[test]
fn volume_in_images_of_virtual_machines_is_kept_and_read_by_qemu() {
    let Some([qemu_img, qemu_nbd]) = peer::require_all(["qemu-img", "qemu-nbd"]) else {
        return;
    };
    for format in ["vmdk", "vpc", "vdi", "qcow2"] {
        let folder = Folder::new();
        let image = text(&folder.path(format));
        qemu_img.run(["create", "-q", "-f", format, &image, "64M"]).success();
        let start = || {
            let socket = folder.path("socket");
            // Where one that was killed has left it.
            let _ = fs::remove_file(&socket);
            let mut command = qemu_nbd.command();
            command.args(["-f", format, "--persistent", "--shared=0", "--discard=unmap"]);
            Below::start(command.arg("--socket").arg(&socket).arg(&image), socket)
        };
        // QEMU reads this version.
        outlives_its_server(&folder, &["--luks1"], start);
        let raw = text(&folder.path("raw"));
        let options = format!("driver=luks,key-secret=key,file.driver={format},file.file.filename={image}");
        let secret = format!("secret,id=key,data={PASSPHRASE}");
        let decrypt = ["convert", "--object", &secret, "--image-opts", &options];
        qemu_img.run(decrypt.into_iter().chain(["-O", "raw", &raw])).success();
        let raw = fs::read(raw).expect("a copy");
        assert!(raw[..6 * MIB] == noise(6 * MIB), "{format}");
    }
}

/// An SSH server for whoever runs this, with keys of its own.
struct Sshd {
    _process: BackgroundProgram,
    port: u16,
}

impl Sshd {
    fn start(folder: &Folder, [sshd, keygen, unshare]: &[Peer; 3]) -> Self {
        for name in ["host", "user"] {
            let file = text(&folder.path(name));
            keygen.run(["-q", "-t", "ed25519", "-N", "", "-f", &file]).success();
        }
        let port = free_port();
        let path = |name: &str| text(&folder.path(name));
        let public = fs::read_to_string(path("host.pub")).expect("it was just made");
        fs::write(path("known"), format!("[127.0.0.1]:{port} {public}")).expect("room");
        let settings = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nPidFile none\nSubsystem sftp internal-sftp\n",
            path("host"),
            path("user.pub"),
        );
        fs::write(path("sshd"), settings).expect("room");
        let mut command = if rustix::process::geteuid().is_root() {
            // For root it wants a folder there, which the system's own one makes.
            let script = r#"mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "$0" "$@""#;
            let mut command = unshare.command();
            command.args(["--mount", "sh", "-c", script]).arg(sshd.path());
            command
        } else {
            // It starts itself anew for each client, by its whole path.
            Command::new(sshd.path())
        };
        command.args(["-D", "-e", "-f", &path("sshd")]);
        let process = BackgroundProgram::spawn(&mut command);
        let listens = || is_connected_to(port);
        Self { _process: process.wait_until(READY, listens), port }
    }
}

fn is_connected_to(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

#[test]
fn volume_in_a_file_behind_ssh_is_kept_and_read_by_cryptsetup() {
    let peers = ["sshd", "ssh-keygen", "unshare"];
    let Some(([nbdkit, cryptsetup], sshd)) = peer::require_all(["nbdkit", "cryptsetup"]).zip(peer::require_all(peers))
    else {
        return;
    };
    let folder = Folder::new();
    let sshd = Sshd::start(&folder, &sshd);
    let disk = folder.path("disk");
    let file = fs::File::create(&disk).expect("a file");
    file.set_len(64 << 20).expect("room");
    let setting = |name: &str, value: &str| format!("{name}={value}");
    let words = [
        "ssh".to_owned(),
        setting("host", "127.0.0.1"),
        setting("port", &sshd.port.to_string()),
        setting("path", &text(&disk)),
        setting("identity", &text(&folder.path("user"))),
        setting("known-hosts", &text(&folder.path("known"))),
    ];
    let words = words.each_ref().map(String::as_str);
    outlives_its_server(&folder, &[], || Below::nbdkit(&nbdkit, &folder, &words));
    let key = text(&folder.key());
    let opens = ["open", "--test-passphrase", "--key-file", &key];
    cryptsetup.run(opens.into_iter().chain([&*text(&disk)])).success();
    let clear = text(&folder.path("decrypted"));
    cryptline(["copy", &text(&disk), &clear, "--key-file", &key]).success();
    let clear = fs::read(clear).expect("a copy");
    assert!(clear[..6 * MIB] == noise(6 * MIB));
}

#[test]
fn volume_in_an_export_of_nbd_server_is_made_written_and_read() {
    let peers = ["nbd-server", "unshare", "nbdcopy"];
    let Some([nbd_server, unshare, nbdcopy]) = peer::require_all(peers) else {
        return;
    };
    let folder = Folder::new();
    let [disk, socket, conf] = ["disk", "socket", "conf"].map(|name| folder.path(name));
    let file = fs::File::create(&disk).expect("a file");
    file.set_len(64 << 20).expect("room");
    let settings = format!(
        "[generic]\nunixsock = {}\nduallisten = false\n\
         [disk]\nexportname = {}\nflush = true\nfua = true\ntrim = true\n",
        socket.display(),
        disk.display()
    );
    fs::write(&conf, settings).expect("room");
    // It leaves for the background, and ends there with the namespace. Version 3.24 answers nobody where 20000 files may
    // be open.
    let script = r#"ulimit -n 1024; "$0" -C "$1" -p "$2"; exec sleep infinity"#;
    let mut command = unshare.command();
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-c", script]).arg(nbd_server.path());
    command.arg(&conf).arg(folder.path("pid"));
    let below = Below::start(&mut command, socket);
    let (target, key) = (uri(&below.socket, "disk"), text(&folder.key()));
    create(&folder, &target, &[]).success();
    let [clear, found] = ["clear", "found"].map(|name| text(&folder.path(name)));
    fs::write(&clear, noise(6 << 20)).expect("room");
    let server = serve(&target, &key, &["--allow-discards"]);
    nbdcopy.run(["--flush", &clear, &server.uri]).success();
    server.stop();
    let server = serve(&target, &key, &["--read-only"]);
    nbdcopy.run([&server.uri, &found]).success();
    server.stop();
    let found = fs::read(found).expect("a copy");
    assert!(found[..6 << 20] == noise(6 << 20));
    drop(below);
    folder.check(&disk).success();
}
