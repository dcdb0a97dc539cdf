//! Messages where a flush cannot be made, and where nothing is lost.

use cryptline_testkit::peer::{self, BackgroundProgram, Peer};

use crate::control::{Client, Controlled};
use crate::server::{READY, run, text};

#[test]
fn a_flush_that_fails_says_so_and_the_others_are_flushed() {
    let Some(libnbd) = peer::require("python3-libnbd") else {
        return;
    };
    let controlled = Controlled::start(&["ram:1M", "--fault", "flush:after=0:error=EIO"]);
    let client = Client::connect(&libnbd, &controlled, "a", "h.pwrite(b'x' * 512, 0)");
    client.goes_on().success();
    let failed = controlled.ctl(&["flush"]).exited_with(4);
    assert!(failed.stderr_text().contains("export \"a\": the flush failed"), "{failed}");
    let listed = controlled.ctl(&["list"]).success().stdout_text();
    assert!(listed.contains("FAILED"), "{listed}");
    controlled.is_left_by_all();
    let removed = controlled.ctl(&["remove", "a"]).exited_with(4);
    assert!(removed.stderr_text().contains("the export is closed"), "{removed}");
    assert_eq!(controlled.ctl(&["list"]).success().stdout_text(), "");
    controlled.server.stop();
}

#[test]
fn a_last_flush_that_fails_while_the_server_stops_is_its_end() {
    let Some(libnbd) = peer::require("python3-libnbd") else {
        return;
    };
    let controlled = Controlled::start(&["ram:1M", "--fault", "flush:after=0:error=EIO"]);
    let client = Client::connect(&libnbd, &controlled, "a", "");
    let later = controlled.ctl(&["remove", "a"]).success().stdout_text();
    assert!(later.contains("after 1 connection"), "{later}");
    // It leaves because the server stops, and the export with it.
    let ended = controlled.server.process.stop().exited_with(4);
    let said = ended.stderr_text();
    assert!(said.contains("export \"a\": the last flush failed"), "{ended}");
    drop(client);
}

/// An encrypted disk in a server below that takes one connection.
struct Below {
    process: BackgroundProgram,
    uri: String,
    key: String,
    _folder: tempfile::TempDir,
}

impl Below {
    fn start(nbdkit: &Peer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (socket, key) = (path("below"), text(&path("key")));
        std::fs::write(&key, "correct horse").unwrap();
        let mut command = nbdkit.command();
        command.args(["--foreground", "--exit-with-parent", "--filter=multi-conn"]).arg("--unix").arg(&socket).args([
            "memory",
            "64M",
            "multi-conn-mode=disable",
        ]);
        let process = BackgroundProgram::spawn(&mut command).wait_for_socket(&socket, READY);
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
        let create = ["create", &uri, "--key-file", &key];
        run(create.into_iter().chain(cheap)).success();
        Self { process, uri, key, _folder: folder }
    }

    fn serve(&self) -> Controlled {
        Controlled::start(&[&self.uri, "--key-file", &self.key])
    }
}

#[test]
fn what_cannot_be_flushed_beside_its_only_connection_is_not_called_lost() {
    let (Some(libnbd), Some(nbdkit)) = (peer::require("python3-libnbd"), peer::require("nbdkit")) else {
        return;
    };
    let below = Below::start(&nbdkit);
    let controlled = below.serve();
    let client = Client::connect(&libnbd, &controlled, "a", "h.pwrite(b'x' * 512, 0)");
    let refused = controlled.ctl(&["flush"]).exited_with(5);
    let said = refused.stderr_text();
    assert!(said.contains("could not be flushed now"), "{refused}");
    assert!(!said.contains("may be lost"), "{refused}");
    client.goes_on().success();
    controlled.is_left_by_all();
    let flushed = controlled.ctl(&["flush"]).success().stdout_text();
    assert!(flushed.contains("is durable"), "{flushed}");
    controlled.server.stop();
}

#[test]
fn a_removed_export_whose_server_below_is_gone_is_told_by_that_servers_name() {
    let Some(nbdkit) = peer::require("nbdkit") else {
        return;
    };
    let mut below = Below::start(&nbdkit);
    let controlled = below.serve();
    below.process.kill();
    let removed = controlled.ctl(&["remove", "a"]).exited_with(4);
    let lost = format!("the connection to {} was lost", below.uri);
    assert!(removed.stderr_text().contains(&lost), "{removed}");
    controlled.server.stop();
}
