//! URIs printed, parsed and refused.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<NbdUri, UriError> {
    text.parse()
}

fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
    let address = Address::Tcp { host: host.to_owned(), port };
    NbdUri { tls: false, address, export: export.to_owned(), tls_options: TlsOptions::default() }
}

fn unix(path: &str, export: &str) -> NbdUri {
    NbdUri { address: Address::Unix(path.into()), ..tcp("", 0, export) }
}

#[test]
fn export_names_are_what_follows_the_first_slash() {
    assert_eq!(parse("nbd://example.com/disk"), Ok(tcp("example.com", 10809, "disk")));
    assert_eq!(parse("nbd+unix:///disk?socket=sock"), Ok(unix("sock", "disk")));
    assert_eq!(parse("nbd://example.com/"), Ok(tcp("example.com", 10809, "")));
    assert_eq!(parse("nbd://example.com"), Ok(tcp("example.com", 10809, "")));
    assert_eq!(parse("nbd://example.com//disk"), Ok(tcp("example.com", 10809, "/disk")));
    assert_eq!(parse("nbd://example.com/hello%20world"), Ok(tcp("example.com", 10809, "hello world")));
}

#[test]
fn hosts_may_be_names_and_addresses_with_ports() {
    assert_eq!(parse("nbd://localhost:10810"), Ok(tcp("localhost", 10810, "")));
    assert_eq!(parse("NBD://127.0.0.1:/x"), Ok(tcp("127.0.0.1", 10809, "x")));
    assert_eq!(parse("nbd://[::1]:1/x"), Ok(tcp("::1", 1, "x")));
    assert_eq!(parse("nbd://[fe80::1%25eth0]"), Ok(tcp("fe80::1%eth0", 10809, "")));
}

#[test]
fn tls_schemes_and_parameters() {
    let uri = parse("nbds+unix://al%40ice@/e?socket=/run/s&tls-hostname=h&tls-verify-peer=0&tls-certificates=/c%26");
    let tls_options = TlsOptions {
        user: Some("al@ice".to_owned()),
        certificates: Some("/c&".into()),
        hostname: Some("h".to_owned()),
        verify_peer: Some(false),
    };
    assert_eq!(uri, Ok(NbdUri { tls: true, tls_options, ..unix("/run/s", "e") }));
    assert!(parse("nbds://h").unwrap().tls);
}

#[test]
fn abstract_sockets_start_with_nul() {
    let uri = parse("nbd+unix:///?socket=%00/abstract").unwrap();
    assert_eq!(uri, unix("\0/abstract", ""));
    assert_eq!(uri.to_string(), "nbd+unix:///?socket=%00/abstract");
}

#[test]
fn printed_uris_encode_what_must_be_encoded() {
    assert_eq!(unix("/tmp/a b/s&c?d#e%", "").to_string(), "nbd+unix:///?socket=/tmp/a%20b/s%26c%3Fd%23e%25");
    assert_eq!(tcp("::1", 10810, "a/é?").to_string(), "nbd://[::1]:10810/a/%C3%A9%3F");
    assert_eq!(tcp("h", 10809, "").to_string(), "nbd://h/");
    assert_eq!(NbdUri { tls: true, ..tcp("h", 1, "x") }.to_string(), "nbds://h:1/x");
}

#[test]
fn what_looks_like_a_uri_of_a_server_is_meant_as_one() {
    for scheme in ["nbd", "NBDS", "nbd+unix", "nbds+unix", "nbd+vsock", "nbds+x"] {
        assert!(NbdUri::is_meant(&format!("{scheme}://h/x")), "{scheme}");
    }
    for text in ["nbd", "nbd:h", "nbdx://h", "nbdss://h", "http://h", "./nbd://h", ""] {
        assert!(!NbdUri::is_meant(text), "{text}");
    }
}

#[test]
fn malformed_uris_say_what_is_wrong() {
    let cases = [
        ("", UriError::Scheme),
        ("http://h/x", UriError::Scheme),
        ("nbd:h", UriError::Scheme),
        ("nbd://", UriError::NoHost),
        ("nbd:///x", UriError::NoHost),
        ("nbd://:10809/x", UriError::NoHost),
        ("nbd://h:0/", UriError::Port),
        ("nbd://h:65536/", UriError::Port),
        ("nbd://h:+1/", UriError::Port),
        ("nbd://::1/", UriError::NoHost),
        ("nbd://fe80::1/", UriError::Port),
        ("nbd://h/%", UriError::PercentEncoding),
        ("nbd://h/%4", UriError::PercentEncoding),
        ("nbd://h/%+1", UriError::PercentEncoding),
        ("nbd://h/%zz", UriError::PercentEncoding),
        ("nbd://h/%ff", UriError::Malformed("export name")),
        ("nbd://h/%00", UriError::Malformed("export name")),
        ("nbd://h/a b", UriError::Malformed("text")),
        ("nbd://h/é", UriError::Malformed("text")),
        ("nbd://h/#f", UriError::Malformed("text")),
        ("nbd://[::1/", UriError::Malformed("host")),
        ("nbd://[::1]x/", UriError::Malformed("host")),
        ("nbd://[h]/", UriError::Malformed("host")),
        ("nbd://a%3Ab/", UriError::Malformed("host")),
        ("nbd+unix:///x", UriError::NoSocket),
        ("nbd+unix:///x?socket=", UriError::NoSocket),
        ("nbd+unix://h/x?socket=s", UriError::HostWithSocket),
        ("nbd://h/?socket=s", UriError::Parameter("socket".to_owned())),
        ("nbd+unix:///?socket=a&socket=b", UriError::Parameter("socket".to_owned())),
        ("nbd://h/?tls-verify-peer=2", UriError::Parameter("tls-verify-peer".to_owned())),
        ("nbd://h/?what=1", UriError::Parameter("what".to_owned())),
        ("nbd+vsock://2:10809/x", UriError::Vsock),
        ("nbds+vsock:///", UriError::Vsock),
        ("NBD+SSH://h/x", UriError::Ssh),
        ("nbds+ssh://h/x?socket=/s", UriError::Ssh),
        ("nbds://me@h/?tls-psk-file=keys", UriError::Psk),
        ("nbds+psk://h/", UriError::Scheme),
    ];
    for (text, error) in cases {
        assert_eq!(parse(text), Err(error), "{text}");
    }
}

fn any_uri() -> impl Strategy<Value = NbdUri> {
    let text = || "[^\0]{0,12}";
    let address = prop_oneof![
        ("[^\0:]{1,12}", 1u16..).prop_map(|(host, port)| Address::Tcp { host, port }),
        any::<u128>().prop_map(|bits| Address::Tcp { host: Ipv6Addr::from(bits).to_string(), port: 7 }),
        prop::collection::vec(any::<u8>(), 1..20).prop_map(|path| Address::Unix(OsString::from_vec(path).into())),
    ];
    let tls_options = (
        prop::option::of(text()),
        prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        prop::option::of(text()),
        any::<Option<bool>>(),
    );
    (any::<bool>(), address, text(), tls_options).prop_map(|(tls, address, export, options)| {
        let (user, certificates, hostname, verify_peer) = options;
        let certificates = certificates.map(|path| OsString::from_vec(path).into());
        let tls_options = TlsOptions { user, certificates, hostname, verify_peer };
        NbdUri { tls, address, export, tls_options }
    })
}

proptest! {
    #[test]
    fn printed_uris_are_parsed_back(uri in any_uri()) {
        let text = uri.to_string();
        prop_assert!(text.is_ascii());
        prop_assert_eq!(parse(&text), Ok(uri));
    }

    #[test]
    fn what_parses_prints_to_the_same_again(text in "nbds?(\\+unix)?://[a-c@:\\[\\]/?%0-2=&socket]{0,24}") {
        if let Ok(uri) = parse(&text) {
            prop_assert_eq!(parse(&uri.to_string()), Ok(uri));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
        let _ = parse(&text);
        let _ = parse(&format!("nbd://{text}"));
        let _ = parse(&format!("nbd+unix:///?{text}"));
    }
}
