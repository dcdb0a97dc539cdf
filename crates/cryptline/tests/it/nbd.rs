//! Volumes behind NBD servers: our own, and qemu-nbd over qcow2.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cryptline::Open;
use cryptline_testkit::peer;

use crate::common::{PHRASE, make};

const SIZE: u64 = 24 << 20;

/// A server that is killed when dropped; `None` where it is not installed.
pub struct Server(Child);

impl Server {
    pub fn start(command: &mut Command, socket: &Path) -> Option<Self> {
        command.stdin(Stdio::null());
        let server = match command.spawn() {
            Ok(child) => Self(child),
            Err(error) => {
                peer::skip(&format!("{command:?}: {error}"));
                return None;
            }
        };
        let late = Instant::now() + Duration::from_secs(60);
        // Its name comes a moment before it listens.
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < late, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens the volume by its URI, writes, and finds the same again in another opening.
fn use_volume(uri: &str) {
    let open = || Open::new(uri).passphrase(PHRASE);
    let data: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let data = &data[..data.len() / 4096 * 4096];
    {
        let volume = open().open().expect("a volume");
        assert!(volume.info().base.to_string().starts_with("NBD"));
        assert_eq!(volume.info().source, uri);
        let mut disk = volume.blocking().expect("a queue");
        disk.write_at(8192, data, false).expect("a write");
        disk.flush().expect("a flush");
    }
    let volume = open().read_only(true).open().expect("the volume again");
    let mut found = vec![0; data.len()];
    let mut disk = volume.blocking().expect("a queue");
    disk.read_at(8192, &mut found).expect("a read");
    assert!(found == data);
}

#[test]
fn luks_volume_in_a_file_behind_nbdkit_is_the_same_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, socket) = (folder.path().join("image"), folder.path().join("s"));
    make(&image, SIZE);
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["--foreground", "--unix"]).arg(&socket);
    let Some(server) = Server::start(nbdkit.arg("file").arg(&image), &socket) else { return };
    use_volume(&format!("nbd+unix:///?socket={}", socket.display()));
    let wrong = Open::new(format!("nbd+unix:///?socket={}", socket.display()));
    assert_eq!(wrong.passphrase("wrong").open().err().expect("no key").kind(), cryptline::ErrorKind::NoKey);
    drop(server);
    // The server's file is a volume as any other.
    let volume = Open::new(&image).passphrase(PHRASE).open().expect("a file");
    let mut first = vec![0; 4096];
    let mut disk = volume.blocking().expect("a queue");
    disk.read_at(8192, &mut first).expect("a read");
    assert_eq!(first[1..4], [1, 2, 3]);
}

#[test]
fn luks_volume_in_qcow2_behind_qemu_nbd_is_read_and_written_over_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let [raw, qcow2, socket] = ["raw", "qcow2", "s"].map(|name| folder.path().join(name));
    make(&raw, SIZE);
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "qcow2"]).args([&raw, &qcow2]);
    if !convert.status().is_ok_and(|status| status.success()) {
        return peer::skip("qemu-img is not installed");
    }
    let mut qemu = Command::new("qemu-nbd");
    qemu.args(["--persistent", "--format=qcow2", "--export-name=disk", "--socket"]);
    let Some(_server) = Server::start(qemu.arg(&socket).arg(&qcow2), &socket) else { return };
    let uri = format!("nbd+unix:///disk?socket={}", socket.display());
    use_volume(&uri);
    let wrong = uri.replace("disk?", "disc?");
    let error = Open::new(&wrong).passphrase(PHRASE).open().err();
    let text = error.expect("no such export").to_string();
    assert!(text.contains("it has \"disk\""), "{text}");
}
