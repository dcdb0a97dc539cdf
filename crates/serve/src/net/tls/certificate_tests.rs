//! Certificates are read as openssl shows them, and what is none is refused.

use std::fs;
use std::path::Path;

use cryptline_net::is_old_version;
use cryptline_testkit::peer::{self, Peer};
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;

use super::*;
use crate::net::tls::CertificateParts;

/// A certificate of the openssl program for this subject.
fn made(openssl: &Peer, folder: &Path, subject: &str, more: &[&str]) -> CertificateDer<'static> {
    let file = folder.join("cert.pem").display().to_string();
    let key = folder.join("key.pem").display().to_string();
    let new = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-utf8", "-keyout", &key, "-out", &file];
    openssl.run(new.iter().chain(["-subj", subject].iter()).chain(more)).success();
    CertificateDer::from_pem_slice(&fs::read(file).expect("written")).expect("a certificate")
}

/// Returns what openssl says of the certificate that was made last.
fn told(openssl: &Peer, folder: &Path, what: &str) -> String {
    let file = folder.join("cert.pem").display().to_string();
    let options = "RFC2253,-esc_msb,utf8";
    let run =
        openssl.run(["x509", "-noout", "-in", &file, "-nameopt", options, "-dateopt", "iso_8601", what]).success();
    run.stdout_text().trim_end().split_once('=').expect("a field").1.to_owned()
}

#[test]
fn fields_are_those_that_openssl_shows() {
    let Some(openssl) = peer::require("openssl") else { return };
    let folder = TempDir::new().expect("a folder");
    let long = format!("/CN={}/O=x", "a".repeat(60));
    let all = "/DC=org/DC=example/C=DE/ST=Nieder\\, Sachsen/L=x/O=Example/OU=a/OU=b/CN=Zoë/emailAddress=a@b.c/UID=7\
               /serialNumber=5/GN=Al/SN=Ice/title=Dr/postalCode=0/street=y/initials=A/pseudonym=P/dnQualifier=q";
    let special = "/CN= #a\"+,;<>\\\\b /O=#x";
    for subject in ["/CN=alice", all, special, "/CN=alice+UID=7/O=x", &long, "/"] {
        let certificate = made(&openssl, folder.path(), subject, &["-days", "2"]);
        let fields = CertificateFields::of(&certificate).expect("read");
        assert_eq!(fields.subject.to_string(), told(&openssl, folder.path(), "-subject"), "{subject}");
        let (from, until) = (told(&openssl, folder.path(), "-startdate"), told(&openssl, folder.path(), "-enddate"));
        assert_eq!(fields.not_before.to_string().replace('T', " "), from);
        assert_eq!(fields.not_after.to_string().replace('T', " "), until);
        let days = fields.not_after.moment().duration_since(fields.not_before.moment()).expect("later");
        assert_eq!(days, Duration::from_secs(2 * 24 * 60 * 60));
        let ago = SystemTime::now().duration_since(fields.not_before.moment()).expect("earlier");
        assert!(ago < Duration::from_secs(600), "{ago:?}");
        let again = DistinguishedName::of_text(&fields.subject.to_string());
        assert!(subject == "/" || again.as_ref() == Some(&fields.subject), "{again:?}");
    }
}

#[test]
fn damaged_certificate_is_read_as_another_or_not_at_all() {
    let Some(openssl) = peer::require("openssl") else { return };
    let folder = TempDir::new().expect("a folder");
    let certificate = made(
        &openssl,
        folder.path(),
        "/CN=alice+UID=7/O=Example",
        &["-days", "2", "-addext", "subjectAltName=IP:::1,DNS:a"],
    );
    let parts = CertificateParts::of(&certificate).expect("a certificate");
    assert!(parts.is_signed_by(&certificate) && parts.is_authority() && !parts.is_for(true));
    assert_eq!(parts.hosts().unwrap(), ["::1", "a"]);
    let behind = CertificateDer::from([&certificate[..], &[5, 0]].concat());
    assert!(CertificateParts::are_all_of(&certificate) && !CertificateParts::are_all_of(&behind));
    // All of it is inside two sequences that say how long they are.
    for length in 0..certificate.len() {
        assert!(CertificateFields::of(&certificate[..length].into()).is_none(), "{length}");
    }
    for place in 0..certificate.len() {
        for bit in 0..8 {
            let mut bytes = certificate.to_vec();
            bytes[place] ^= 1 << bit;
            let bytes = CertificateDer::from(bytes);
            if let Some(fields) = CertificateFields::of(&bytes) {
                let _ = (fields.subject.to_string(), fields.not_before.moment(), fields.not_after.to_string());
            }
            let _ = (is_old_version(&bytes), host_of(&bytes));
            if let Some(parts) = CertificateParts::of(&bytes) {
                let _ = (parts.hosts(), parts.is_for(true), parts.is_authority(), parts.key(), parts.key_identifier());
                assert!(bytes == certificate || !parts.is_signed_by(&certificate), "byte {place}, bit {bit}");
            }
        }
    }
}

#[test]
fn host_is_the_first_name_that_is_no_pattern() {
    let Some(openssl) = peer::require("openssl") else { return };
    let folder = TempDir::new().expect("a folder");
    for (names, host) in [
        ("IP:127.0.0.1,DNS:*.example.org,DNS:a.example.org,DNS:b.example.org", Some("a.example.org")),
        ("email:a@example.org", None),
    ] {
        let names = format!("subjectAltName={names}");
        let certificate = made(&openssl, folder.path(), "/CN=x", &["-addext", &names]);
        assert_eq!(host_of(&certificate).as_deref(), host);
        assert!(!is_old_version(&certificate));
    }
}

#[test]
fn times_are_read_in_both_forms_and_only_those_that_there_are() {
    let read = |tag: u8, text: &str| {
        let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        Time::take(&mut &bytes[..])
    };
    let seconds = |time: Time| time.moment().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (tag, text, shown, at) in [
        (der::UTC_TIME, "700101000000Z", "1970-01-01T00:00:00Z", 0),
        (der::UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z", 2_524_607_999),
        (der::UTC_TIME, "240229120000Z", "2024-02-29T12:00:00Z", 1_709_208_000),
        (der::GENERALIZED_TIME, "20000301000000Z", "2000-03-01T00:00:00Z", 951_868_800),
        (der::GENERALIZED_TIME, "21000301000000Z", "2100-03-01T00:00:00Z", 4_107_542_400),
        (der::GENERALIZED_TIME, "99991231235959Z", "9999-12-31T23:59:59Z", 253_402_300_799),
    ] {
        let time = read(tag, text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!((time.to_string().as_str(), seconds(time)), (shown, at), "{text}");
    }
    for (tag, text) in [
        (der::UTC_TIME, ""),
        (der::UTC_TIME, "Z"),
        (der::UTC_TIME, "700101000000"),
        (der::UTC_TIME, "7001010000Z"),
        (der::UTC_TIME, "500101000000Z"),
        (der::UTC_TIME, "230229000000Z"),
        (der::UTC_TIME, "231301000000Z"),
        (der::UTC_TIME, "230100000000Z"),
        (der::UTC_TIME, "230101240000Z"),
        (der::UTC_TIME, "230101006000Z"),
        (der::UTC_TIME, "230101000060Z"),
        (der::UTC_TIME, "2301010000+0Z"),
        (der::UTC_TIME, "20230101000000Z"),
        (der::GENERALIZED_TIME, "230101000000Z"),
        (der::GENERALIZED_TIME, "20230101000000.5Z"),
        (der::GENERALIZED_TIME, "19691231235959Z"),
        (der::GENERALIZED_TIME, "21000229000000Z"),
        (der::INTEGER, "230101000000Z"),
    ] {
        assert_eq!(read(tag, text), None, "{text}");
    }
}
