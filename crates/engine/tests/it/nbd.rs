//! The `nbd` base over servers that we did not write: the conformance suite, and a server that is killed.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use cryptline_engine::base::NbdDevice;
use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Channel, Fault, Gate, Op, Request, Submitted};
use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};
use cryptline_testkit::conformance;
use cryptline_testkit::peer::{self, BackgroundProgram, Peer};
use cryptline_testkit::pki::Pki;
use cryptline_testkit::suite::devices::{self, AES_512, AES_4096, SIZE};
use cryptline_testkit::suite::{self, Driver, Fresh, Setup, Watchdog, checks};
use rustix::io::Errno;
use tempfile::TempDir;

// Each kind of server once, and crypt over one that is slow, and with holes.
conformance! {
    nbdkit_file [Discard, Zeroes, Hint] => nbdkit_file;
    nbdkit_of_small_requests [Discard, Zeroes, Hint] => || nbdkit(&[
        "--filter=blocksize-policy",
        "memory",
        &SIZE.to_string(),
        "blocksize-minimum=512",
        "blocksize-preferred=4096",
        "blocksize-maximum=65536",
        "blocksize-error-policy=error",
    ]);
    nbdkit_without_structured_replies [Discard, Zeroes, Hint] => || nbdkit(&["--no-sr", "memory", &SIZE.to_string()]);
    nbdkit_without_fua [Discard, Zeroes, Hint] => || nbdkit(&["--filter=fua", "memory", &SIZE.to_string()]);
    nbdkit_through_tls [Discard, Zeroes, Hint] => nbdkit_through_tls;
    aes_4096_with_holes_over_nbdkit_memory [Discard, Zeroes, Hint] => || {
        Some(devices::sparse(nbdkit(&["memory", &SIZE.to_string()])?, &AES_4096))
    };
    aes_512_over_slow_nbdkit [Discard, Hint] => || {
        let slow = nbdkit(&["--filter=delay", "memory", &SIZE.to_string(), "rdelay=1ms"])?;
        Some(devices::crypt(slow, &AES_512))
    };
}

/// Other kinds of servers, by the promises that depend on one.
macro_rules! promises_of {
    ($($server:ident [$($ability:ident),*] => $make:expr;)+) => { $(
        mod $server {
            use super::*;
            conformance! { @abilities [$($ability),*] $make }
            conformance! { @checks $make,
                what_is_written_is_read_back_at_every_alignment_and_size
                durable_write_is_read_back
                flush_succeeds_with_and_without_writes
                extents_cover_the_device_and_hide_no_data
                deep_queue_completes_each_request_once
                dropping_a_queue_with_requests_in_flight_harms_nobody
            }
        }
    )+ };
}

promises_of! {
    nbdkit_of_one_request_at_a_time [Discard, Zeroes, Hint] => || nbdkit(&[
        "--filter=noparallel",
        "memory",
        &SIZE.to_string(),
        "serialize=requests",
    ]);
    nbdkit_that_tries_again [Discard, Zeroes, Hint] => || nbdkit(&["--filter=retry", "memory", &SIZE.to_string()]);
    qemu_nbd_of_qcow2_with_a_backing_file [Discard, Zeroes, Hint] => || qcow2(&vec![0; BACKED]);
}

#[test]
fn backing_file_of_qcow2_shows_through_where_nothing_was_written() {
    let mut backing = vec![0; BACKED];
    suite::fill(&mut backing, 0, 9);
    let Some(fresh) = qcow2(&backing) else { return };
    let mut disk = Blocking::new(&fresh.gate, BackendChoice::Auto).expect("a queue");
    let mut found = vec![0; 2 * BACKED];
    disk.read_at(0, &mut found).expect("a read");
    assert!(found[..BACKED] == backing && found[BACKED..].iter().all(|byte| *byte == 0));
    disk.write_at(4096, &[7; 8192], true).expect("a write");
    disk.read_at(0, &mut found).expect("a read");
    assert!(found[..4096] == backing[..4096] && found[4096..12288] == [7; 8192]);
    assert!(found[12288..BACKED] == backing[12288..]);
}

/// Bytes of a backing file, which is shorter than what lies over it.
const BACKED: usize = 1 << 20;

/// qcow2 over a raw file, served by its own program over several connections.
fn qcow2(backing: &[u8]) -> Option<Fresh> {
    let [qemu_img, qemu_nbd] = peer::require_all(["qemu-img", "qemu-nbd"])?;
    let folder = tempfile::tempdir().expect("a folder");
    let [socket, base, image] = ["s", "base", "image"].map(|name| folder.path().join(name));
    std::fs::write(&base, backing).expect("room");
    let path = |path: &Path| path.to_str().expect("a plain name").to_owned();
    let size = SIZE.to_string();
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
    let names = [path(&base), path(&image)];
    let [base, image] = names.each_ref().map(String::as_str);
    qemu_img.run(create.into_iter().chain([base, image, &size])).success();
    let mut command = qemu_nbd.command();
    command.args(["--format=qcow2", "--persistent", "--shared=0", "--discard=unmap"]);
    command.arg("--socket").arg(&socket).arg(image);
    let process = BackgroundProgram::spawn(&mut command);
    let server =
        Server { process: process.wait_for_socket(&socket, Duration::from_secs(60)), uri: unix(&socket), folder };
    Some(Fresh { gate: server.open(false), keep: vec![Box::new(server)] })
}

/// Its threads answer in any order.
#[test]
fn server_of_many_threads_keeps_what_deep_queues_are_promised() {
    let memory = || nbdkit_of_threads(&["memory", &SIZE.to_string()]);
    let slow = || {
        let delays = ["rdelay=1ms", "wdelay=1ms"];
        nbdkit_of_threads(&[&["--filter=delay", "memory", &SIZE.to_string()], &delays[..]].concat())
    };
    let makes: [&dyn Fn() -> Option<Fresh>; 2] = [&memory, &slow];
    for make in makes {
        suite::run(make, checks::deep_queue_completes_each_request_once);
        suite::run(make, checks::queues_of_two_threads_see_each_others_completed_writes);
        suite::run(make, checks::neighbouring_blocks_written_by_two_threads_at_once_all_arrive);
    }
}

#[test]
fn holes_of_servers_are_holes_until_they_are_written_to() {
    let memory = || nbdkit(&["memory", &SIZE.to_string()]);
    let makes: [&dyn Fn() -> Option<Fresh>; 2] = [&memory, &nbdkit_file];
    for make in makes {
        let Some(fresh) = make() else { return };
        let extent = |at: u64| fresh.gate.extent(at, SIZE - at).expect("an extent");
        let mut disk = Blocking::new(&fresh.gate, BackendChoice::Auto).expect("a queue");
        for at in [0, 1 << 20, SIZE - 4096] {
            let before = extent(at);
            assert!(before.hole && before.zero, "{before:?} at {at}");
            disk.write_at(at, &[7; 4096], false).expect("a write");
            let after = extent(at);
            assert!(!after.hole && !after.zero, "{after:?} at {at}");
        }
    }
}

/// A server that is killed when dropped, and the folder with its socket.
struct Server {
    uri: NbdUri,
    process: BackgroundProgram,
    folder: TempDir,
}

impl Server {
    /// One that demands TLS, and whose clients show a certificate.
    fn through_tls(pki: &Pki, arguments: &[&str]) -> Option<Self> {
        let certificates = pki.option();
        let tls = ["--tls=require", "--tls-verify-peer", &certificates];
        let mut server = Self::nbdkit(&[&tls[..], arguments].concat())?;
        server.uri.tls = true;
        server.uri.tls_options.certificates = Some(pki.folder().to_owned());
        Some(server)
    }

    fn nbdkit(arguments: &[&str]) -> Option<Self> {
        let nbdkit = peer::require("nbdkit")?;
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let pid = folder.path().join("pid");
        let mut command = nbdkit.command();
        command.args(["--foreground", "--unix"]).arg(&socket);
        command.arg("--pidfile").arg(&pid).args(arguments);
        // The file appears once clients can connect.
        let process = BackgroundProgram::spawn(&mut command).wait_for_path(&pid, Duration::from_secs(60));
        Some(Self { uri: unix(&socket), process, folder })
    }

    fn open(&self, read_only: bool) -> Gate {
        Gate::new(NbdDevice::open(&self.uri, read_only).expect("an export"))
    }
}

fn unix(socket: &Path) -> NbdUri {
    NbdUri {
        tls: false,
        address: Address::Unix(socket.to_owned()),
        export: String::new(),
        tls_options: TlsOptions::default(),
    }
}

/// nbdkit 1.32.4 and later aborts where a client goes while several of its threads have answers for that
/// one, and takes all others along (its commit 9d82aa4f, in 1.33.10).
fn may_abort(nbdkit: &Peer) -> bool {
    let run = nbdkit.run(["--version"]);
    let version = run.success().stdout_text();
    let affected = ["nbdkit 1.32.", "nbdkit 1.33."];
    affected.iter().any(|one| version.starts_with(one))
}

/// For every promise, one of which is about clients that go.
fn nbdkit(arguments: &[&str]) -> Option<Fresh> {
    nbdkit_of_threads(&[threads(&peer::require("nbdkit")?), arguments].concat())
}

fn threads(nbdkit: &Peer) -> &'static [&'static str] {
    if may_abort(nbdkit) { &["--threads=1"] } else { &[] }
}

fn nbdkit_of_threads(arguments: &[&str]) -> Option<Fresh> {
    let server = Server::nbdkit(arguments)?;
    let gate = server.open(false);
    Some(Fresh { gate, keep: vec![Box::new(server)] })
}

fn pki() -> Option<Pki> {
    Some(Pki::new(&peer::require("openssl")?))
}

fn nbdkit_through_tls() -> Option<Fresh> {
    // Made once, since all devices of a test can have them.
    static MADE: OnceLock<Option<Pki>> = OnceLock::new();
    let pki = MADE.get_or_init(pki).as_ref()?;
    let threads = threads(&peer::require("nbdkit")?);
    let server = Server::through_tls(pki, &[threads, &["memory", &SIZE.to_string()]].concat())?;
    Some(Fresh { gate: server.open(false), keep: vec![Box::new(server)] })
}

fn nbdkit_file() -> Option<Fresh> {
    let image = tempfile::NamedTempFile::new().expect("a file");
    image.as_file().set_len(SIZE).expect("a sparse file");
    let mut fresh = nbdkit(&["file", image.path().to_str().expect("a plain name")])?;
    fresh.keep.push(Box::new(image));
    Some(fresh)
}

#[test]
fn read_only_export_refuses_every_change() {
    let make = || {
        let server = Server::nbdkit(&["--readonly", "memory", &SIZE.to_string()])?;
        Some(Fresh { gate: server.open(false), keep: vec![Box::new(server)] })
    };
    suite::run(make, checks::read_only_device_refuses_every_change);
}

#[test]
fn killed_server_fails_what_is_under_way_and_latches() {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    for backend in [BackendChoice::Auto, BackendChoice::Syscalls] {
        // All of it is under way when the server dies.
        let slow = ["--filter=delay", "memory", "64M", "rdelay=60", "wdelay=60"];
        let Some(mut server) = Server::nbdkit(&slow) else { return };
        let gate = server.open(false);
        let mut channel = Channel::open(&gate, backend, 64).expect("a channel");
        let arena = channel.buffers(300 * 1024, 40).expect("memory");
        for index in 0..32 {
            let buffer = arena.take().expect("a buffer");
            let request = if index % 2 == 0 {
                Request::read(index << 19, buffer, index)
            } else {
                Request::write(index << 19, buffer, index % 4 == 1, index)
            };
            assert!(matches!(channel.submit(request), Submitted::Pending));
        }
        let mut done = Vec::new();
        channel.poll(&mut done).expect("a ring");
        channel.poll(&mut done).expect("a ring");
        assert!(done.is_empty());
        server.process.kill();
        while channel.in_flight() > 0 {
            channel.wait(&mut done).expect("a ring");
        }
        assert_eq!(done.len(), 32);
        for completion in &done {
            assert_eq!(completion.result, Err(Fault::Lost));
        }
        drop(done);
        assert_eq!(arena.available(), 40, "each buffer came back");
        let flush = channel.submit(Request::flush(1));
        assert!(matches!(flush, Submitted::Done(end) if end.result == Err(Fault::Latched)));
        assert!(gate.open_queue(channel.ring_mut()).is_err());
    }
}

#[test]
fn flush_of_one_connection_fails_once_another_was_lost() {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let Some(mut server) = Server::nbdkit(&["memory", "1M"]) else { return };
    let gate = server.open(false);
    let mut one = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    let mut other = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    one.write_at(0, &[1; 4096], false).expect("a write");
    assert_eq!(other.flush(), Ok(()));
    server.process.kill();
    assert!(one.read_at(0, &mut [0; 512]).is_err());
    assert_eq!(other.flush(), Err(Fault::Latched));
}

#[test]
fn server_that_was_started_anew_is_not_taken_for_the_one_that_has_the_writes() {
    let _watchdog = Watchdog::start(Duration::from_secs(120));
    let Some(mut server) = Server::nbdkit(&["memory", "1M"]) else { return };
    let gate = server.open(false);
    let mut one = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    one.write_at(0, &[1; 4096], false).expect("a write");
    server.process.kill();
    let Address::Unix(socket) = &server.uri.address else { unreachable!("made so") };
    std::fs::remove_file(socket).expect("a socket without a server");
    let nbdkit = peer::require("nbdkit").expect("it was there");
    let pid = server.folder.path().join("again");
    let mut command = nbdkit.command();
    command.args(["--foreground", "--unix"]).arg(socket);
    command.arg("--pidfile").arg(&pid).args(["memory", "1M"]);
    let _again = BackgroundProgram::spawn(&mut command).wait_for_path(&pid, Duration::from_secs(60));
    let refused = Blocking::new(&gate, BackendChoice::Auto).err();
    let text = refused.expect("no such queue").to_string();
    assert!(text.contains("was restarted"), "{text}");
    assert_eq!(one.flush(), Err(Fault::Lost));
    assert_eq!(one.flush(), Err(Fault::Latched));
}

#[test]
fn errors_of_a_failing_server_reach_the_request_and_latch_where_something_is_lost() {
    let failing = [
        "--filter=error",
        "memory",
        "1M",
        "error-pwrite=ENOSPC",
        "error-pwrite-rate=1",
        "error-trim=EIO",
        "error-trim-rate=1",
    ];
    let make = || nbdkit(&failing);
    suite::run(make, |fresh: &Fresh, setup: Setup| {
        let mut driver = Driver::new(&fresh.gate, setup);
        let data = driver.buffer(4096);
        assert_eq!(driver.result(Request::write(0, data, false, 0)), Err(Fault::NoSpace));
        assert!(driver.read(0, 4096).is_ok());
        assert_eq!(driver.flush(), Ok(()));
        assert_eq!(driver.result(Request::new(Op::Discard, 0, 4096, 0)), Err(Fault::Io(Errno::IO)));
        assert_eq!(driver.flush(), Err(Fault::Latched));
    });
}

#[test]
fn wrong_export_is_answered_with_the_names_of_those_there_are() {
    let Some(qemu_nbd) = peer::require("qemu-nbd") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, image) = (folder.path().join("s"), folder.path().join("image"));
    std::fs::write(&image, vec![0; 1 << 20]).expect("a file");
    let mut command = qemu_nbd.command();
    command.args(["--format=raw", "--persistent", "--export-name=disk"]);
    command.arg("--socket").arg(&socket).arg(&image);
    let _server = BackgroundProgram::spawn(&mut command).wait_for_socket(&socket, Duration::from_secs(60));
    let wrong = NbdUri { export: "disc".to_owned(), ..unix(&socket) };
    let text = NbdDevice::open(&wrong, false).err().expect("no such export").to_string();
    assert!(text.contains("no export \"disc\"; it has \"disk\""), "{text}");
    let right = NbdUri { export: "disk".to_owned(), ..unix(&socket) };
    let gate = Gate::new(NbdDevice::open(&right, false).expect("an export"));
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).expect("a queue");
    disk.write_at(4096, &[9; 8192], true).expect("a write");
    drop(disk);
    drop(gate);
    let stored = std::fs::read(&image).expect("the file");
    assert!(stored[4096..12288].iter().all(|byte| *byte == 9) && stored[4095] == 0);
}

#[test]
fn server_whose_certificate_is_not_the_expected_one_is_not_used() {
    let (Some(ours), Some(theirs)) = (pki(), pki()) else { return };
    let Some(server) = Server::through_tls(&theirs, &["memory", "1M"]) else { return };
    let refused = |uri: &NbdUri| {
        let refused = NbdDevice::open(uri, false).err();
        refused.expect("no connection").to_string()
    };
    let with = |change: &dyn Fn(&mut NbdUri)| {
        let mut uri = server.uri.clone();
        change(&mut uri);
        uri
    };
    let open = |uri: NbdUri| NbdDevice::open(&uri, false).map(drop).expect("an export");
    open(server.uri.clone());
    open(with(&|uri| uri.tls_options.hostname = Some("localhost".to_owned())));

    let other_name = with(&|uri| uri.tls_options.hostname = Some("example.org".to_owned()));
    let text = refused(&other_name);
    assert!(text.contains("tls-hostname=NAME"), "{text}");
    let other_authority = with(&|uri| uri.tls_options.certificates = Some(ours.folder().to_owned()));
    let text = refused(&other_authority);
    assert!(text.contains("not signed by the authority in ca-cert.pem"), "{text}");
    let nobody = with(&|uri| uri.tls_options.certificates = None);
    let text = refused(&nobody);
    assert!(text.contains("tls-certificates=DIR"), "{text}");
    let in_the_clear = with(&|uri| uri.tls = false);
    let text = refused(&in_the_clear);
    assert!(text.contains("write nbds://"), "{text}");

    // Nobody is asked who the server is, but the server still asks who we are.
    let ours = with(&|uri| {
        uri.tls_options.verify_peer = Some(false);
        uri.tls_options.certificates = Some(ours.folder().to_owned());
    });
    let text = refused(&ours);
    assert!(text.contains("client-cert.pem"), "{text}");
    open(with(&|uri| uri.tls_options.verify_peer = Some(false)));

    std::fs::copy(theirs.file("ca-key.pem"), theirs.file("client-key.pem")).unwrap();
    let text = refused(&server.uri);
    assert!(text.contains("client-key.pem cannot be used: it is not the key of the certificate in client-cert.pem"));
}

#[test]
fn server_without_tls_is_not_used_where_tls_is_a_must() {
    let (Some(pki), Some(mut server)) = (pki(), Server::nbdkit(&["memory", "1M"])) else { return };
    server.uri.tls = true;
    server.uri.tls_options.certificates = Some(pki.folder().to_owned());
    let refused = NbdDevice::open(&server.uri, false).err();
    let text = refused.expect("no connection").to_string();
    assert!(text.contains("does not offer TLS"), "{text}");
}
