//! Volumes bound to a tang server: clevis opens what is bound here, and the other way round.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use crate::common::*;
use crate::lab::Lab;
use crate::lab::tang::Tang;
use cryptline_testkit::peer::{self, TIMEOUT_DEFAULT};
use cryptline_testkit::pki::Pki;
use rustix::net::{AddressFamily, SocketType};

/// An address that nobody listens at, nor will while the socket is there.
fn nobody() -> (OwnedFd, String) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    rustix::net::bind(&socket, &any).unwrap();
    let bound = rustix::net::getsockname(&socket).unwrap();
    let bound = SocketAddrV4::try_from(bound).unwrap();
    (socket, bound.to_string())
}

/// Opens the volume by its tokens alone.
fn opens_by_token(lab: &Lab) -> peer::Run {
    lab.ours(&["open", "--check"], &["--token-only"])
}

#[test]
fn volume_that_clevis_has_bound_opens_here_while_the_server_answers() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab.folder) else {
        return;
    };
    if peer::require("pwmake").is_none() {
        return;
    }
    let (disk, key) = (lab.disk.to_str().unwrap(), lab.folder.key());
    let how = format!(r#"{{"url":"{}"}}"#, tang.url);
    let key = key.to_str().unwrap();
    tang.clevis(&["luks", "bind", "-y", "-k", key, "-d", disk, "tang", &how]).success();
    let listed = lab.ours(&["token", "list"], &[]).success();
    assert!(listed.stdout_text().contains("clevis, key slot 1\n"), "{listed}");
    let opened = opens_by_token(&lab).success();
    assert!(opened.stdout_text().contains("Key slot 1"), "{opened}");
    tang.forget();
    let refused = opens_by_token(&lab).exited_with(2);
    assert!(refused.stderr_text().contains(&tang.url), "{refused}");
}

#[test]
fn volume_that_clevis_has_bound_to_several_pins_opens_with_enough_of_them() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab.folder) else {
        return;
    };
    if peer::require("pwmake").is_none() {
        return;
    }
    let (disk, key) = (lab.disk.to_str().unwrap(), lab.folder.key());
    let key = key.to_str().unwrap();
    let url = &tang.url;
    let pin = format!(r#"{{"url":"{url}"}}"#);
    let inner = format!(r#"{{"t":1,"pins":{{"tang":[{pin}]}}}}"#);
    let how = format!(r#"{{"t":2,"pins":{{"tang":[{pin},{pin}],"sss":[{inner}]}}}}"#);
    tang.clevis(&["luks", "bind", "-y", "-k", key, "-d", disk, "sss", &how]).success();
    let opened = opens_by_token(&lab).success();
    assert!(opened.stdout_text().contains("Key slot 1"), "{opened}");
}

#[test]
fn volume_that_is_bound_here_opens_with_clevis() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab.folder) else {
        return;
    };
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
    let passphrase = tang.clevis(&["luks", "pass", "-d", disk, "-s", "1"]).success();
    let file = lab.file("passphrase", passphrase.stdout_text().trim_end());
    let file = format!("--key-file={file}");
    lab.theirs(&["open", "--test-passphrase", "--key-slot=1"], &[&file]).success();
}

#[test]
fn volume_that_is_bound_here_to_several_pins_opens_with_clevis_by_enough_of_them() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab.folder) else {
        return;
    };
    let key = format!("--key-file={}", lab.folder.key().display());
    let bind = |config: &str, options: &[&str]| {
        let options = [&["sss", config, &*key], options].concat();
        lab.ours(&["token", "bind"], &options)
    };
    let url = &tang.url;
    // Trusted by its name, by what it has said, and by whoever is asked.
    let named = tang.thumbprint();
    let said = lab.file("adv", &tang.advertisement());
    let (_bound, nobody) = nobody();
    let by_name = format!(r#"{{"url":"{url}","thp":"{named}"}}"#);
    let kept = format!(r#"{{"url":"http://{nobody}","adv":"{said}"}}"#);
    let asked = format!(r#"{{"url":"{url}"}}"#);
    let config =
        |inner: &str| format!(r#"{{"t":2,"pins":{{"tang":[{by_name},{kept}],"sss":{{"pins":{{"tang":{inner}}}}}}}}}"#);
    refused(bind(&config(&asked), &[]), 1, "Nothing was done");
    let before = metadata(&lab.disk);
    assert!(before["tokens"].as_object().unwrap().is_empty());
    // Nobody is asked of these.
    bind(&config(&by_name), &[]).success();
    // One of its pins is enough where nothing else is said.
    bind(&format!(r#"{{"pins":{{"tang":{asked}}}}}"#), &["-q"]).success();
    let tokens = lab.tokens();
    let disk = lab.disk.to_str().unwrap();
    for (token, slot) in [("0", "1"), ("1", "2")] {
        assert_eq!(tokens[token]["keyslots"], serde_json::json!([slot]));
        let by_this = ["--token-only", "--token-id", token];
        lab.ours(&["open", "--check"], &by_this).success();
        let passphrase = tang.clevis(&["luks", "pass", "-d", disk, "-s", slot]).success();
        let file = lab.file("passphrase", passphrase.stdout_text().trim_end());
        let (file, slot) = (format!("--key-file={file}"), format!("--key-slot={slot}"));
        lab.theirs(&["open", "--test-passphrase", &slot], &[&file]).success();
    }
    let listed = tang.clevis(&["luks", "list", "-d", disk]).success();
    assert!(listed.stdout_text().contains("sss"), "{listed}");
    // Two of them are at the server that knows nothing any more.
    tang.forget();
    opens_by_token(&lab).exited_with(2);
}

#[test]
fn server_behind_tls_is_asked_if_the_system_believes_its_certificate() {
    let Some(lab) = Lab::new() else { return };
    let Some(tang) = Tang::new(&lab.folder) else {
        return;
    };
    let Some(openssl) = peer::require("openssl") else {
        return;
    };
    let (pki, other) = (Pki::new(&openssl), Pki::new(&openssl));
    let port = tang.behind_tls(&pki);
    let disk = lab.disk.to_str().unwrap();
    let key = format!("--key-file={}", lab.folder.key().display());
    let believing = |pki: &Pki, arguments: &[&str]| {
        let mut command = command();
        command.env("SSL_CERT_FILE", pki.file("ca-cert.pem"));
        peer::run(command.args(arguments), TIMEOUT_DEFAULT)
    };
    let bind = |pki: &Pki, host: &str| {
        let url = format!("https://{host}:{port}");
        believing(pki, &["token", "bind", disk, "tang", &url, &key, "-q"])
    };
    let before = std::fs::read(&lab.disk).unwrap();
    refused(bind(&other, "localhost"), 4, "its certificate is not trusted");
    refused(bind(&pki, "127.0.0.2"), 4, "its certificate is not trusted");
    assert!(std::fs::read(&lab.disk).unwrap() == before);
    bind(&pki, "localhost").success();
    let check = ["open", "--check", disk, "--token-only"];
    believing(&pki, &check).success();
    let said = believing(&other, &check).exited_with(2).stderr_text();
    assert!(said.contains("its certificate is not trusted"), "{said}");
    let roots = pki.file("ca-cert.pem");
    tang.clevis_believing(&roots, &["luks", "pass", "-d", disk, "-s", "1"]).success();
}

#[test]
fn configuration_of_pins_that_makes_no_sense_leaves_the_header_alone() {
    let Some(lab) = Lab::new() else { return };
    let key = format!("--key-file={}", lab.folder.key().display());
    let before = std::fs::read(&lab.disk).unwrap();
    let (_bound, nobody) = nobody();
    let server = format!(r#"{{"url":"{nobody}"}}"#);
    let deep = (0..5).fold(server.clone(), |inner, depth| {
        let kind = if depth == 0 { "tang" } else { "sss" };
        format!(r#"{{"pins":{{"{kind}":{inner}}}}}"#)
    });
    for (config, code, expected) in [
        ("{", 1, "no JSON"),
        ("[]", 1, "no object"),
        (r#"{"t":1}"#, 1, "no \"pins\""),
        (r#"{"t":1,"pins":{}}"#, 1, "no number from 1 to 0"),
        (r#"{"t":1,"pins":{"tpm2":{}}}"#, 1, "no 'tpm2'"),
        (r#"{"t":1,"pins":{"tang":{}}}"#, 1, "no \"url\""),
        (r#"{"pins":{"tang":{"url":"h","thumb":"x"}}}"#, 1, "no 'thumb'"),
        (r#"{"pins":{"tang":{"url":"h","adv":"/no/such"}}}"#, 4, "/no/such"),
        (&*deep, 1, "too deep"),
        (&*format!(r#"{{"pins":{{"tang":{server}}}}}"#), 4, &*nobody),
    ] {
        let bound = lab.ours(&["token", "bind"], &["sss", config, &key, "-q"]);
        refused(bound, code, expected);
    }
    assert!(std::fs::read(&lab.disk).unwrap() == before);
}

#[test]
fn server_that_cannot_be_used_leaves_the_header_alone() {
    let Some(lab) = Lab::new() else { return };
    let key = format!("--key-file={}", lab.folder.key().display());
    let before = std::fs::read(&lab.disk).unwrap();
    let (_bound, nobody) = nobody();
    for (url, code, expected) in
        [(&*nobody, 4, "cannot be reached"), ("ftp://tang.example", 4, "no URL"), ("http://a b", 4, "no URL")]
    {
        let bound = lab.ours(&["token", "bind"], &["tang", url, &key, "-q"]);
        refused(bound, code, expected);
    }
    assert!(std::fs::read(&lab.disk).unwrap() == before);
}
