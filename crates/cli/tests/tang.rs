//! Volumes bound to a tang server: clevis opens what is bound here, and the other way round.

mod lab;

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use cryptline_testkit::peer::{self, Peer, TIMEOUT_DEFAULT, run};
use lab::Lab;
use lab::common::*;
use rustix::net::{AddressFamily, Shutdown, SocketType};

const TANGD: &str = "/usr/libexec/tangd";

/// Debian's server, a process for each connection, with keys of its own.
struct Tang {
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
    url: String,
    keys: PathBuf,
    clevis: Peer,
}

impl Tang {
    fn new(lab: &Lab) -> Option<Self> {
        let [jose, clevis] = peer::require_all(["jose", "clevis"])?;
        peer::require("tang")?;
        let keys = lab.folder.path("tang");
        std::fs::create_dir(&keys).unwrap();
        for (name, algorithm) in [("sign", "ES512"), ("exchange", "ECMR")] {
            let key = keys.join(format!("{name}.jwk"));
            let made = format!(r#"{{"alg":"{algorithm}"}}"#);
            jose.run(["jwk", "gen", "-i", &made, "-o", key.to_str().unwrap()])
                .success();
        }
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (accepts, folder) = (Arc::clone(&listener), keys.clone());
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, _)) = accepts.accept() {
                let out = OwnedFd::from(stream.try_clone().unwrap());
                let mut server = Command::new(TANGD);
                server.arg(&folder).stderr(Stdio::null());
                server.stdin(OwnedFd::from(stream)).stdout(out);
                std::thread::spawn(move || server.status());
            }
        });
        Some(Self {
            listener,
            accepting: Some(accepting),
            url,
            keys,
            clevis,
        })
    }

    fn clevis(&self, arguments: &[&str]) -> peer::Run {
        run(self.clevis.command().args(arguments), TIMEOUT_DEFAULT)
    }
}

impl Drop for Tang {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

/// An address that nobody listens at, nor will while the socket is there.
fn nobody() -> (OwnedFd, String) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    rustix::net::bind(&socket, &any).unwrap();
    let bound = rustix::net::getsockname(&socket).unwrap();
    let bound = SocketAddrV4::try_from(bound).unwrap();
    (socket, bound.to_string())
}

/// Whether the volume opens by its tokens alone.
fn opens_by_token(lab: &Lab) -> peer::Run {
    lab.ours(&["open", "--check"], &["--token-only"])
}

#[test]
fn volume_that_clevis_has_bound_opens_here_while_the_server_answers() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab) else { return };
    if peer::require("pwmake").is_none() {
        return;
    }
    let (disk, key) = (lab.disk.to_str().unwrap(), lab.folder.key());
    let how = format!(r#"{{"url":"{}"}}"#, tang.url);
    let key = key.to_str().unwrap();
    tang.clevis(&["luks", "bind", "-y", "-k", key, "-d", disk, "tang", &how])
        .success();
    let listed = lab.ours(&["token", "list"], &[]).success();
    assert!(
        listed.stdout_text().contains("clevis, key slot 1\n"),
        "{listed}"
    );
    let opened = opens_by_token(&lab).success();
    assert!(opened.stdout_text().contains("Key slot 1"), "{opened}");
    // Without its keys the server knows nothing.
    for entry in std::fs::read_dir(&tang.keys).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let refused = opens_by_token(&lab).exited_with(2);
    assert!(refused.stderr_text().contains(&tang.url), "{refused}");
}

#[test]
fn volume_that_clevis_has_bound_to_several_pins_opens_with_enough_of_them() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab) else { return };
    if peer::require("pwmake").is_none() {
        return;
    }
    let (disk, key) = (lab.disk.to_str().unwrap(), lab.folder.key());
    let key = key.to_str().unwrap();
    let url = &tang.url;
    let pin = format!(r#"{{"url":"{url}"}}"#);
    let inner = format!(r#"{{"t":1,"pins":{{"tang":[{pin}]}}}}"#);
    let how = format!(r#"{{"t":2,"pins":{{"tang":[{pin},{pin}],"sss":[{inner}]}}}}"#);
    tang.clevis(&["luks", "bind", "-y", "-k", key, "-d", disk, "sss", &how])
        .success();
    let opened = opens_by_token(&lab).success();
    assert!(opened.stdout_text().contains("Key slot 1"), "{opened}");
}

#[test]
fn volume_that_is_bound_here_opens_with_clevis() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab) else { return };
    let key = format!("--key-file={}", lab.folder.key().display());
    let bind = |options: &[&str]| {
        let options = [&["tang", &*tang.url, &*key], options].concat();
        lab.ours(&["token", "bind"], &options)
    };
    let wrong = bind(&["--thumbprint=AAAA"]);
    refused(wrong, 4, "another server");
    refused(bind(&[]), 1, "Nothing was done");
    let before = metadata(&lab.disk);
    assert!(before["tokens"].as_object().unwrap().is_empty());
    bind(&["-q"]).success();
    let token = &lab.tokens()["0"];
    assert_eq!(token["type"], "clevis");
    assert_eq!(token["keyslots"], serde_json::json!(["1"]));
    opens_by_token(&lab).success();
    let disk = lab.disk.to_str().unwrap();
    let listed = tang.clevis(&["luks", "list", "-d", disk]).success();
    assert!(listed.stdout_text().contains(&tang.url), "{listed}");
    let passphrase = tang
        .clevis(&["luks", "pass", "-d", disk, "-s", "1"])
        .success();
    let file = lab.file("passphrase", passphrase.stdout_text().trim_end());
    let file = format!("--key-file={file}");
    lab.theirs(&["open", "--test-passphrase", "--key-slot=1"], &[&file])
        .success();
}

#[test]
fn server_that_cannot_be_used_leaves_the_header_alone() {
    let Some(lab) = Lab::new() else { return };
    let key = format!("--key-file={}", lab.folder.key().display());
    let before = std::fs::read(&lab.disk).unwrap();
    let (_bound, nobody) = nobody();
    for (url, code, expected) in [
        (&*nobody, 4, "cannot be reached"),
        ("https://tang.example", 4, "only http"),
        ("http://a b", 4, "no URL"),
    ] {
        let bound = lab.ours(&["token", "bind"], &["tang", url, &key, "-q"]);
        refused(bound, code, expected);
    }
    assert!(std::fs::read(&lab.disk).unwrap() == before);
}
