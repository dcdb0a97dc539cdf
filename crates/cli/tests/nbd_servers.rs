//! Volumes behind servers of other programs, by kind.

mod below;
mod common;
mod server;

use std::fs;

use below::{Below, create, serve, uri};
use common::Folder;
use cryptline_testkit::peer;
use server::{noise, text};

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
    command.args([
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
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
