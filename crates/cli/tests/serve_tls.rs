//! TLS, with certificates made by openssl and clients built on GnuTLS.

mod server;

use std::fs;
use std::path::Path;

use cryptline_testkit::peer::{self, Peer};
use server::{SIZE, Server, noise, run, text};

/// A certificate authority, and a server and a client it vouches for, in a folder with the names
/// that libnbd, nbdkit and qemu use.
struct Pki {
    folder: tempfile::TempDir,
}

impl Pki {
    fn new(openssl: &Peer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pki = Self { folder };
        let path = |name: &str| text(&pki.folder.path().join(name));
        let (ca, ca_key) = (path("ca-cert.pem"), path("ca-key.pem"));
        let new = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ];
        let new = |arguments: &[&str]| {
            openssl
                .run(
                    new.iter()
                        .chain(["-nodes", "-days", "2"].iter())
                        .chain(arguments),
                )
                .success();
        };
        new(&["-subj", "/CN=test CA", "-keyout", &ca_key, "-out", &ca]);
        for name in ["server", "client"] {
            let (cert, key) = (
                path(&format!("{name}-cert.pem")),
                path(&format!("{name}-key.pem")),
            );
            let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
            let leaf = "basicConstraints=critical,CA:FALSE";
            new(&[
                "-subj",
                "/CN=localhost",
                "-keyout",
                &key,
                "-out",
                &cert,
                "-CA",
                &ca,
                "-CAkey",
                &ca_key,
                "-addext",
                names,
                "-addext",
                leaf,
            ]);
        }
        pki
    }

    fn path(&self) -> String {
        text(self.folder.path())
    }
}

#[test]
fn data_goes_both_ways_through_tls_on_a_unix_socket_and_over_tcp() {
    let peers = ["openssl", "nbdinfo", "nbdcopy"];
    let Some([openssl, nbdinfo, nbdcopy]) = peer::require_all(peers) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let (clear, copy) = (
        text(&pki.folder.path().join("clear")),
        text(&pki.folder.path().join("copy")),
    );
    fs::write(&clear, noise(SIZE)).unwrap();
    for place in ["--unix=-", "--port=0"] {
        let size = format!("ram:{SIZE}");
        let certificates = format!("--tls-certificates={}", pki.path());
        let server = Server::start([&*size, place, "--tls=require", &certificates]);
        assert!(server.uri.starts_with("nbds"), "{}", server.uri);
        let info = nbdinfo.run([&server.uri]).success().stdout_text();
        assert!(info.contains("with TLS"), "{info}");
        nbdcopy.run([&clear, &server.uri]).success();
        nbdcopy.run([&server.uri, &copy]).success();
        assert!(fs::read(&clear).unwrap() == fs::read(&copy).unwrap());
        server.stop();
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn plain_clients_are_refused_where_tls_is_required_and_served_where_it_is_on() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = format!("--tls-certificates={}", pki.path());
    let required = Server::start(["ram:1M", "--tls=require", &certificates]);
    let socket = required.uri.split('?').nth(1).unwrap();
    let socket = socket
        .split('&')
        .find(|part| part.starts_with("socket="))
        .unwrap();
    let refused = nbdinfo.run(["--size", &format!("nbd+unix:///?{socket}")]);
    assert!(!refused.status.success(), "{refused}");
    nbdinfo.run(["--size", &required.uri]).success();
    required.stop();

    let on = Server::start(["ram:1M", "--tls=on", &certificates]);
    assert!(on.uri.starts_with("nbd+unix:"), "{}", on.uri);
    nbdinfo.run(["--size", &on.uri]).success();
    let with_tls = on.uri.replacen("nbd+unix", "nbds+unix", 1);
    let with_tls = format!("{with_tls}&tls-certificates={}", pki.path());
    let info = nbdinfo.run([&with_tls]).success();
    assert!(info.stdout_text().contains("with TLS"), "{info}");
    on.stop();
}

#[test]
fn only_clients_with_a_certificate_pass_where_they_must_have_one() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = format!("--tls-certificates={}", pki.path());
    let arguments = [
        "ram:1M",
        "--tls=require",
        "--tls-verify-peer",
        &certificates,
    ];
    let server = Server::start(arguments);
    nbdinfo.run(["--size", &server.uri]).success();
    for name in ["client-cert.pem", "client-key.pem"] {
        fs::remove_file(Path::new(&pki.path()).join(name)).unwrap();
    }
    let refused = nbdinfo.run(["--size", &server.uri]);
    assert!(!refused.status.success(), "{refused}");
    server.stop();
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = format!("--tls-certificates={}", pki.path());
    fs::write(pki.folder.path().join("server-key.pem"), "not a key").unwrap();
    let refused = run(["serve", "ram:1M", "--tls=on", &certificates]).exited_with(1);
    assert!(
        refused.stderr_text().contains("no usable private key"),
        "{refused}"
    );
    let client_key = fs::read(pki.folder.path().join("client-key.pem")).unwrap();
    fs::write(pki.folder.path().join("server-key.pem"), client_key).unwrap();
    let refused = run(["serve", "ram:1M", "--tls=on", &certificates]).exited_with(1);
    assert!(
        refused.stderr_text().contains("cannot be used"),
        "{refused}"
    );
}
