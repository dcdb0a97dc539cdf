//! Volumes behind NBD servers that are killed and started anew under load. The rest of it is in ../cases.

use std::fs;

use crate::below::{Below, create, serve};
use crate::common::{Folder, cryptline};
use crate::load;
use crate::server::{text, wait_until};
use cryptline_testkit::peer::{self, Peer};
use cryptline_testkit::pki::Pki;

#[test]
fn server_that_is_killed_and_started_anew_under_load_is_not_missed() {
    let Some([nbdkit, fio]) = peer::require_all(["nbdkit", "fio"]) else {
        return;
    };
    let folder = Folder::new();
    outlives(&folder, (&nbdkit, &fio), ([].into(), ""));
}

#[test]
fn server_behind_tls_that_is_killed_and_started_anew_under_load_is_not_missed() {
    let Some([nbdkit, fio, openssl]) = peer::require_all(["nbdkit", "fio", "openssl"]) else {
        return;
    };
    let (folder, pki) = (Folder::new(), Pki::new(&openssl));
    let words = ["--tls=require", "--tls-verify-peer", &pki.option()].map(str::to_owned);
    let of_uri = format!("&tls-certificates={}&tls-hostname=localhost", pki.path());
    outlives(&folder, (&nbdkit, &fio), (words.into(), &of_uri));
}

/// Verifies that a load does not notice that the server below is killed and started anew. What nbdkit was told to write
/// is in the kernel's memory and outlives it in any case: that FUA is asked for is proved by the engine's tests.
fn outlives(folder: &Folder, (nbdkit, fio): (&Peer, &Peer), (mut words, of_uri): (Vec<String>, &str)) {
    let path = folder.path("export");
    let file = fs::File::create(&path).expect("a file");
    file.set_len(64 << 20).expect("room");
    words.extend(["file".to_owned(), format!("file={}", path.display())]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut below = Below::nbdkit(nbdkit, folder, &words);
    let mut uri = below.uri() + of_uri;
    if !of_uri.is_empty() {
        uri = uri.replace("nbd+unix", "nbds+unix");
    }
    let key = text(&folder.key());
    create(folder, &uri, &[]).success();
    let server = serve(&uri, &key, &["--reconnect=120", "--sandbox=on"]);
    load::outlasts(fio, folder.root(), &server.uri, || {
        let changed = || fs::metadata(&path).and_then(|file| file.modified()).ok();
        for _ in 0..3 {
            let before = changed();
            wait_until("the load writes", || changed() != before);
            below.process.kill();
            // Where the server has not removed it.
            let _ = fs::remove_file(&below.socket);
            below = Below::nbdkit_at(nbdkit, below.socket.clone(), &words);
        }
        let before = changed();
        wait_until("the load goes on", || changed() != before);
    });
    server.stop();
    let key = ["open", "--check", &uri, "--key-file", &key];
    cryptline(key).success();
}
