//! The clients that TLS lets in, with certificates made by openssl and clients built on GnuTLS. The rest of it is in ../cases.

use std::fs;
use std::path::Path;

use crate::server::{Server, run};
use cryptline_testkit::peer;
use cryptline_testkit::pki::Pki;

/// The URI for a client whose certificates are in `folder`.
fn as_client(uri: &str, folder: &Path) -> String {
    let (place, _) = uri.split_once("tls-certificates=").expect("a TLS URI");
    format!("{place}tls-certificates={}", folder.display())
}

#[test]
fn of_the_verified_clients_only_the_named_ones_are_served() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let stranger = Pki::new(&openssl);
    let server = Server::start([
        "ram:1M",
        "--tls=require",
        "--tls-verify-peer",
        "--tls-authz=CN=alice",
        "--tls-authz",
        "OU=backup,O=Example",
        &pki.option(),
    ]);
    let served = |folder: &Path| {
        let run = nbdinfo.run(["--size", &as_client(&server.uri, folder)]);
        run.status.success()
    };
    for subject in ["/CN=alice", "/O=Example/CN=alice", "/O=Example/OU=backup/CN=host 7"] {
        let client = pki.client(&openssl, subject);
        assert!(served(client.path()), "{subject}");
    }
    for subject in
        ["/CN=mallory", "/CN=Alice", "/O=alice", "/CN=alice/CN=mallory", "/O=Example/CN=x", "/O=Other/OU=backup"]
    {
        let client = pki.client(&openssl, subject);
        assert!(!served(client.path()), "{subject}");
    }
    // The right name, from somebody who may not give it.
    let forged = stranger.client(&openssl, "/CN=alice");
    fs::copy(pki.file("ca-cert.pem"), forged.path().join("ca-cert.pem")).unwrap();
    assert!(!served(forged.path()));
    // Nobody who was turned away is in the way of others.
    assert!(served(pki.client(&openssl, "/CN=alice").path()));
    let said = server.stop().stderr_text();
    assert!(said.contains("TLS handshake failed: the client CN=mallory is not authorized"), "{said}");
    assert_eq!(said.lines().count(), 7, "one for each: {said}");
}

#[test]
fn client_whose_certificate_has_expired_is_turned_away() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let extensions = pki.file("extensions");
    fs::write(&extensions, "basicConstraints=critical,CA:FALSE\n").unwrap();
    let sign = |days: &str| {
        let options = ["-days", days, "-extfile", &extensions];
        let certificate = pki.file("client-cert.pem");
        pki.sign(&openssl, "client", "/CN=alice", &options, &certificate);
    };
    let arguments = ["ram:1M", "--tls=require", "--tls-verify-peer"];
    let server = Server::start(arguments.into_iter().chain([&*pki.option()]));
    sign("-1");
    let refused = nbdinfo.run(["--size", &server.uri]);
    assert!(!refused.status.success(), "{refused}");
    // Nothing else was wrong with it.
    sign("2");
    nbdinfo.run(["--size", &server.uri]).success();
    let said = server.stop().stderr_text();
    assert!(said.to_lowercase().contains("expired"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn certificates_of_version_1_are_refused_with_what_to_do() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let words = "make it version 3 (openssl x509 -req -extfile";
    let pki = Pki::new(&openssl);
    pki.make_old(&openssl, "client");
    let arguments = ["ram:1M", "--tls=require", "--tls-verify-peer", &pki.option()];
    let server = Server::start(arguments);
    let refused = nbdinfo.run(["--size", &server.uri]);
    assert!(!refused.status.success(), "{refused}");
    let said = server.stop().stderr_text();
    assert!(said.contains(words), "{said}");

    pki.make_old(&openssl, "server");
    let said = served_once(&pki).exited_with(1).stderr_text();
    assert!(said.contains("server-cert.pem") && said.contains(words), "{said}");
}

/// A server with this key and certificate, for a command that does nothing.
fn served_once(pki: &Pki) -> peer::Run {
    let option = pki.option();
    run(["serve", "ram:1M", "--tls=on", &option, "--run", "true"])
}
