//! TLS, with certificates by the openssl program and clients that use GnuTLS.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cryptline_nbd::client::{option, request};
use cryptline_nbd::wire::{cmd, opt, rep};
use cryptline_nbd::{RequestHeader, TlsMode};
use cryptline_testkit::peer;
use cryptline_testkit::pki::Pki;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::common::raw::{Raw, greeted, option_reply, say};
use crate::common::{BACKENDS, Served, Setup, pattern, stack, wait_until};

/// Certificates; `None` without openssl.
fn certificates() -> Option<Pki> {
    peer::require("openssl").map(|openssl| Pki::new(&openssl))
}

fn uri(socket: &Path, pki: &Pki) -> String {
    format!("nbds+unix://localhost/?socket={}&tls-certificates={}", socket.display(), pki.path())
}

/// A connection whose next bytes are a TLS handshake.
fn starting_tls(served: &Served) -> UnixStream {
    let mut stream = greeted(served);
    say(&mut stream, &option(opt::STARTTLS, &[]));
    assert_eq!(option_reply(&mut stream).0, rep::ACK);
    stream
}

#[test]
fn nbdcopy_is_byte_exact_through_tls_at_every_request_size() {
    let (Some(nbdcopy), Some(pki)) = (peer::require("nbdcopy"), certificates()) else { return };
    for backend in BACKENDS {
        for over in [stack::crypt_over_ram(40 << 20), stack::crypt_over_file(40 << 20)] {
            let served = Setup::new(over).backend(backend).tls(TlsMode::Require, pki.folder()).start();
            let size = usize::try_from(served.gates[0].geometry().size).expect("small");
            let data = pattern(0, size, 1);
            let (source, back) = (served.folder().join("in"), served.folder().join("out"));
            fs::write(&source, &data).expect("written");
            let uri = uri(served.socket(), &pki);
            for request in ["4096", "65536", "262144", "33554432"] {
                let request = format!("--request-size={request}");
                let connections = "--connections=2";
                nbdcopy.run([&request, connections, &source.to_string_lossy(), &uri]).success();
                nbdcopy.run([&request, connections, &uri, &back.to_string_lossy()]).success();
                assert!(fs::read(&back).expect("read") == data, "{request}");
            }
        }
    }
}

#[test]
fn client_without_tls_is_refused_where_it_is_required_and_served_where_it_is_only_on() {
    let (Some(nbdinfo), Some(pki)) = (peer::require("nbdinfo"), certificates()) else { return };
    for (mode, without) in [(TlsMode::Require, 1), (TlsMode::On, 0)] {
        let served = Setup::new(stack::ram(1 << 20)).tls(mode, pki.folder()).start();
        nbdinfo.run([served.uri()]).exited_with(without);
        let text = nbdinfo.run([uri(served.socket(), &pki)]).success();
        assert!(text.stdout_text().contains("newstyle-fixed with TLS"), "{mode:?} {text}");
    }
}

#[test]
fn client_that_dies_inside_a_record_harms_nobody() {
    let (Some(nbdcopy), Some(pki)) = (peer::require("nbdcopy"), certificates()) else { return };
    for backend in BACKENDS {
        let served = Setup::new(stack::crypt_over_ram(8 << 20)).backend(backend).tls(TlsMode::On, pki.folder()).start();
        let source = served.folder().join("in");
        fs::write(&source, pattern(0, 4 << 20, 1)).expect("written");
        for (turn, cut) in [300, 1500, 3000, 40_000, 300_001, 1_000_003].into_iter().enumerate() {
            let name = format!("proxy-{turn}");
            let proxy = cutting_proxy(&served, &name, cut);
            let uri = uri(&proxy, &pki);
            let run = nbdcopy.run([source.as_os_str(), uri.as_ref()]);
            assert!(!run.status.success(), "{cut}: {run}");
        }
        let mut client = Raw::connect(&served);
        client.write(0, &pattern(0, 4096, 2)).expect("served");
        assert!(client.read(0, 4096) == pattern(0, 4096, 2));
    }
}

#[test]
fn client_that_leaves_with_replies_on_their_way_holds_nothing() {
    let (Some(python), Some(pki)) = (peer::require("python3-libnbd"), certificates()) else { return };
    for backend in BACKENDS {
        for structured in ["True", "False"] {
            let served = Setup::new(stack::crypt_over_ram(20 << 20))
                .backend(backend)
                .tls(TlsMode::Require, pki.folder())
                .start();
            let script = format!(
                "import nbd, os, sys, time\n\
                 h = nbd.NBD()\n\
                 h.set_request_structured_replies({structured})\n\
                 h.set_uri_allow_local_file(True)\n\
                 h.connect_uri(sys.argv[1])\n\
                 kept = [nbd.Buffer(16 << 20) for _ in range(12)]\n\
                 for buffer in kept: h.aio_pread(buffer, 0)\n\
                 time.sleep(0.3)\n\
                 os._exit(7)"
            );
            let uri = uri(served.socket(), &pki);
            python.run(["-c", &script, &uri]).exited_with(7);
            wait_until("the connection is gone", || served.connections() == 0);
        }
    }
}

#[test]
fn client_that_sends_what_is_no_tls_while_replies_wait_is_given_up() {
    let Some(pki) = certificates() else { return };
    for backend in BACKENDS {
        let served = Setup::new(stack::ram(1 << 20)).backend(backend).tls(TlsMode::Require, pki.folder()).start();
        let mut stream = starting_tls(&served);
        let mut tls = client_of(&pki);
        let mut talk = rustls::Stream::new(&mut tls, &mut stream);
        let go = option(opt::EXPORT_NAME, b"");
        talk.write_all(&go).expect("the server listens");
        // Its size and flags; zeroes were declined.
        talk.read_exact(&mut [0; 10]).expect("an export");
        // All in one piece, so that the last word comes before any answer is out.
        let mut bytes = Vec::new();
        for cookie in 0..400 {
            let read = request(&RequestHeader { flags: 0, command: cmd::READ, cookie, offset: 0, length: 512 });
            tls.writer().write_all(&read).expect("room");
            tls.write_tls(&mut bytes).expect("room");
        }
        bytes.extend([23, 3, 3, 0, 32]);
        bytes.extend([7; 32]);
        say(&mut stream, &bytes);
        wait_until("it is given up", || served.connections() == 0);
    }
}

fn client_of(pki: &Pki) -> rustls::ClientConnection {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(pki.file("ca-cert.pem"));
    roots.add(authority.expect("a certificate")).expect("valid");
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(cryptline_net::provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    rustls::ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// A socket that leads to the server until `cut` bytes have gone there.
fn cutting_proxy(served: &Served, name: &str, cut: usize) -> PathBuf {
    let path = served.folder().join(name);
    let listener = UnixListener::bind(&path).expect("bound");
    let target = served.socket().to_owned();
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = UnixStream::connect(&target) else { return };
            let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { return };
            std::thread::spawn(move || pass_on(from, to, usize::MAX));
            std::thread::spawn(move || pass_on(client, server, cut));
        }
    });
    path
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, cut: usize) {
    let (mut piece, mut left) = ([0; 4096], cut);
    while left > 0 {
        let wanted = piece.len().min(left);
        match from.read(&mut piece[..wanted]) {
            Ok(len) if len > 0 && to.write_all(&piece[..len]).is_ok() => left -= len,
            _ => break,
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn stalling_tls_handshake_is_dropped_at_the_deadline() {
    let Some(pki) = certificates() else { return };
    let served = Setup::new(stack::ram(1 << 20))
        .tls(TlsMode::On, pki.folder())
        .with(|options| options.handshake_timeout = Duration::from_millis(600))
        .start();
    let mut stream = starting_tls(&served);
    let started = Instant::now();
    // A handshake record of 512 bytes, of which one byte comes now and then.
    let hello = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 500]].concat();
    for byte in hello {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    wait_until("a line about it", || !served.log().is_empty());
    Raw::connect(&served).flush().expect("others are served");
}

#[test]
fn garbage_in_place_of_tls_is_dropped() {
    let Some(pki) = certificates() else { return };
    let served = Setup::new(stack::ram(1 << 20)).tls(TlsMode::Require, pki.folder()).start();
    let mut stream = starting_tls(&served);
    say(&mut stream, &pattern(0, 600, 1));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 100, "an alert at most");
}

#[test]
fn keys_last_as_long_as_a_disk_with_either_version() {
    let suites = cryptline_net::provider().cipher_suites;
    let of = |version: &rustls::SupportedProtocolVersion| {
        let suites = suites.iter().filter(|suite| suite.version() == version);
        suites.count()
    };
    assert!(of(&rustls::version::TLS12) > 0 && of(&rustls::version::TLS13) == 3);
    for suite in suites {
        if let rustls::SupportedCipherSuite::Tls12(suite) = suite {
            assert_eq!(suite.common.confidentiality_limit, u64::MAX);
        }
    }
}
