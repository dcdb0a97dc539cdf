//! TLS, with certificates made by openssl and clients built on GnuTLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::server::{SIZE, Server, noise, run, text};
use cryptline_testkit::peer;
use cryptline_testkit::pki::Pki;

/// The URI for a client whose certificates are in `folder`.
fn as_client(uri: &str, folder: &Path) -> String {
    let (place, _) = uri.split_once("tls-certificates=").expect("a TLS URI");
    format!("{place}tls-certificates={}", folder.display())
}

#[test]
fn data_goes_both_ways_through_tls_on_a_unix_socket_and_over_tcp() {
    let peers = ["openssl", "nbdinfo", "nbdcopy"];
    let Some([openssl, nbdinfo, nbdcopy]) = peer::require_all(peers) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let (clear, copy) = (text(&pki.folder().join("clear")), text(&pki.folder().join("copy")));
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
    let socket = socket.split('&').find(|part| part.starts_with("socket=")).unwrap();
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
    let arguments = ["ram:1M", "--tls=require", "--tls-verify-peer", &certificates];
    let server = Server::start(arguments);
    nbdinfo.run(["--size", &server.uri]).success();
    // Neither a client without TLS...
    let socket = server.uri.split("socket=").nth(1).unwrap();
    let socket = socket.split('&').next().unwrap();
    let plain = nbdinfo.run(["--size", &format!("nbd+unix:///?socket={socket}")]);
    assert!(!plain.status.success(), "{plain}");
    // ... nor one with TLS and without a certificate.
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
    fs::write(pki.folder().join("server-key.pem"), "not a key").unwrap();
    let refused = run(["serve", "ram:1M", "--tls=on", &certificates]).exited_with(1);
    assert!(refused.stderr_text().contains("no usable private key"), "{refused}");
    let client_key = fs::read(pki.folder().join("client-key.pem")).unwrap();
    fs::write(pki.folder().join("server-key.pem"), client_key).unwrap();
    let refused = run(["serve", "ram:1M", "--tls=on", &certificates]).exited_with(1);
    assert!(refused.stderr_text().contains("not the key of the certificate"), "{refused}");
}

#[test]
fn peers_are_not_said_to_be_verified_where_plain_clients_are_served() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = format!("--tls-certificates={}", pki.path());
    // A client without a certificate, which does not even ask for TLS.
    let plain = format!("'{}' --size \"$uri\"", nbdinfo.path().display());
    let refused =
        run(["serve", "ram:1M", "--tls=on", "--tls-verify-peer", &certificates, "--run", &plain]).exited_with(1);
    let said = refused.stderr_text();
    assert!(said.contains("--tls=require"), "{refused}");
    assert_eq!(said.lines().count(), 1, "{refused}");
    assert!(refused.stdout.is_empty(), "{refused}");
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
fn who_is_authorized_must_be_known_to_be_who_they_are() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let certificates = pki.option();
    for (options, says) in [
        (&["--tls=require", "--tls-authz=CN=alice"][..], "--tls-verify-peer"),
        (&["--tls=on", "--tls-verify-peer", "--tls-authz=CN=alice"], "--tls=require"),
        (&["--tls=require", "--tls-verify-peer", "--tls-authz=alice"], "RFC 4514"),
        (&["--tls=require", "--tls-verify-peer", "--tls-authz="], "RFC 4514"),
    ] {
        let arguments = ["serve", "ram:1M", "--run", "true", &certificates];
        let refused = run(arguments.iter().chain(options).copied()).exited_with(1);
        assert!(refused.stderr_text().contains(says), "{refused}");
    }
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

/// The server's key is refused in one line that says this.
#[track_caller]
fn key_is_refused(pki: &Pki, says: &str) {
    let said = served_once(pki).exited_with(1).stderr_text();
    assert!(said.contains("server-key.pem"), "{says}: {said}");
    assert!(said.contains(says), "{says}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_key_in_another_form_says_how_to_convert_it() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let (key, good) = (pki.file("server-key.pem"), pki.file("good.pem"));
    fs::copy(&key, &good).unwrap();
    for (options, says) in [
        (&["-aes256", "-passout", "pass:x"][..], "openssl pkey -in OLD"),
        (&["-outform", "DER"], "openssl pkey -inform DER"),
        (&["-pubout"], "public key"),
    ] {
        let convert = ["pkey", "-in", &good, "-out", &key];
        openssl.run(convert.iter().chain(options)).success();
        key_is_refused(&pki, says);
    }
    fs::copy(&good, &key).unwrap();
    served_once(&pki).success();
}

#[test]
fn a_key_that_can_not_be_used_says_why() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let key = pki.file("server-key.pem");
    for (wrong, says) in
        [("server-cert.pem", "swapped"), ("client-key.pem", "not the key of the certificate in server-cert.pem")]
    {
        fs::copy(pki.file(wrong), &key).unwrap();
        key_is_refused(&pki, says);
    }
    let p521 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"];
    let small = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"];
    for (options, says) in [(p521, "ECDSA key on P-256 or P-384"), (small, "RSA key of 2048")] {
        let make = ["genpkey", "-out", &key];
        openssl.run(make.iter().chain(&options)).success();
        key_is_refused(&pki, says);
    }
    fs::write(&key, "").unwrap();
    key_is_refused(&pki, "no usable private key");
}

#[test]
fn keys_that_everybody_can_read_are_warned_of() {
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let pki = Pki::new(&openssl);
    let path = |name: &str| pki.file(name);
    let serve = || served_once(&pki).success().stderr_text();
    let mode = |path: &str, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&pki.path(), 0o700);
    mode(&path("server-key.pem"), 0o644);
    assert_eq!(serve(), "", "nobody else enters the folder");
    mode(&pki.path(), 0o755);
    assert!(serve().contains("warning: every user of this machine can read the key"));
    mode(&path("server-key.pem"), 0o640);
    assert_eq!(serve(), "");

    fs::write(path("key"), "secret").unwrap();
    mode(&path("key"), 0o644);
    let (image, key) = (path("a.img"), path("key"));
    let cheap = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"];
    let create = ["create", &image, "--size=20M", "--key-file", &key];
    let made = run(create.into_iter().chain(cheap)).success();
    assert!(made.stderr_text().contains("chmod 600"), "{made}");
}

#[test]
fn certificates_that_certs_makes_are_good_for_openssl_and_for_a_named_client() {
    let Some([openssl, nbdinfo]) = peer::require_all(["openssl", "nbdinfo"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pki = text(&folder.path().join("pki"));
    let made = run(["certs", &pki, "--client", "backup"]).success();
    assert!(made.stdout_text().contains("expire in 825 days"), "{made}");
    let path = |name: &str| format!("{pki}/{name}");
    for (purpose, name) in [("sslserver", "server"), ("sslclient", "client")] {
        let certificate = path(&format!("{name}-cert.pem"));
        let authority = path("ca-cert.pem");
        openssl.run(["verify", "-x509_strict", "-purpose", purpose, "-CAfile", &authority, &certificate]).success();
    }
    for key in ["ca-key.pem", "server-key.pem", "client-key.pem"] {
        let mode = fs::metadata(path(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    let serve = |client: &str| {
        let name = format!("--tls-authz=CN={client}");
        let tls = ["--tls=require", "--tls-verify-peer", &name, "--tls-certificates", &pki];
        Server::start(["ram:1M", "--port=0"].into_iter().chain(tls))
    };
    let server = serve("backup");
    let info = nbdinfo.run([&server.uri]).success().stdout_text();
    assert!(info.contains("with TLS"), "{info}");
    assert!(!server.stop().stderr_text().contains("warning"));
    let server = serve("somebody-else");
    assert!(!nbdinfo.run([&server.uri]).status.success());
    server.stop();

    // Nothing is overwritten.
    let before = fs::read(path("server-key.pem")).unwrap();
    run(["certs", &pki]).exited_with(5);
    assert_eq!(fs::read(path("server-key.pem")).unwrap(), before);
    run(["certs", &path("other"), "--host", "a b"]).exited_with(1);
}
