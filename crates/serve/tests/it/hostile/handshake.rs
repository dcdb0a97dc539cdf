//! Before the first request.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cryptline_nbd::client::{info_data, option};
use cryptline_nbd::wire::{OPTION_MAGIC, opt, rep};

use crate::common::raw::{Raw, Style, greeted, option_reply, say};
use crate::common::{BACKENDS, Served, Setup, pattern, stack, wait_until};
use crate::hostile::{MemoryBound, alone, others_are_served};

const MIB: u64 = 1 << 20;

fn serve() -> Served {
    Setup::new(stack::crypt_over_ram(4 * MIB)).start()
}

/// Reads until the server closes; how many bytes came.
fn drain(mut stream: UnixStream) -> u64 {
    let (mut piece, mut total) = ([0; 65536], 0);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return total,
            Ok(len) => total += len as u64,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("the server keeps the connection: {error}"),
        }
    }
}

#[test]
fn garbage_in_place_of_a_handshake_is_dropped() {
    let _turn = alone();
    let served = serve();
    for seed in 0..20 {
        let mut stream = served.dial();
        let _ = stream.write_all(&pattern(0, 5000, seed));
        assert!(drain(stream) < 100, "a greeting and no more");
    }
    let mut http = served.dial();
    say(&mut http, b"GET / HTTP/1.1\r\nHost: example\r\n\r\n");
    assert_eq!(drain(http), 18);
    others_are_served(&served);
}

#[test]
fn option_data_over_64_kibibytes_is_skipped_and_refused() {
    let _turn = alone();
    let served = serve();
    let memory = MemoryBound::new(8 * MIB);
    let mut stream = greeted(&served);
    say(&mut stream, &option(opt::STRUCTURED_REPLY, &[]));
    assert_eq!(option_reply(&mut stream).0, rep::ACK);
    for kind in [opt::INFO, opt::GO, opt::SET_META_CONTEXT, opt::LIST_META_CONTEXT] {
        let header = option(kind, &[]);
        let length = 64_u32 << 20;
        say(&mut stream, &header[..12]);
        say(&mut stream, &length.to_be_bytes());
        let piece = vec![0; 1 << 20];
        for _ in 0..64 {
            say(&mut stream, &piece);
        }
        assert_eq!(option_reply(&mut stream).0, rep::ERR_TOO_BIG);
    }
    memory.check();
    Raw::negotiate(stream, "", Style::Structured).flush().expect("still in step");
    others_are_served(&served);
}

#[test]
fn false_counts_and_lengths_in_options_are_refused() {
    let _turn = alone();
    let served = serve();
    let mut stream = greeted(&served);
    let name_too_long = [&u32::MAX.to_be_bytes()[..], &[0; 8]].concat();
    let count_too_large = [&0_u32.to_be_bytes()[..], &u16::MAX.to_be_bytes()].concat();
    let queries = [&0_u32.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
    say(&mut stream, &option(opt::STRUCTURED_REPLY, &[]));
    assert_eq!(option_reply(&mut stream).0, rep::ACK);
    for (kind, data) in [
        (opt::GO, &name_too_long),
        (opt::INFO, &count_too_large),
        (opt::SET_META_CONTEXT, &queries),
        (opt::LIST_META_CONTEXT, &name_too_long),
    ] {
        say(&mut stream, &option(kind, data));
        assert_eq!(option_reply(&mut stream).0, rep::ERR_INVALID);
    }
    say(&mut stream, &option(opt::GO, &info_data(b"no such name", &[])));
    assert_eq!(option_reply(&mut stream).0, rep::ERR_UNKNOWN);
    say(&mut stream, &option(0xdead_beef, b"what"));
    assert_eq!(option_reply(&mut stream).0, rep::ERR_UNSUP);
    Raw::negotiate(stream, "", Style::Simple).flush().expect("still in step");
}

#[test]
fn client_that_never_stops_sending_options_is_dropped() {
    let _turn = alone();
    let served = serve();
    let memory = MemoryBound::new(8 * MIB);
    let stream = greeted(&served);
    let mut sender = stream.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || {
        let list = option(opt::LIST, &[]);
        (0..100_000).take_while(|_| sender.write_all(&list).is_ok()).count()
    });
    drain(stream);
    assert!(sending.join().expect("sent") < 100_000, "dropped early");
    memory.check();
    others_are_served(&served);
}

#[test]
fn slow_handshake_is_dropped_at_the_deadline() {
    let _turn = alone();
    for backend in BACKENDS {
        let served = Setup::new(stack::crypt_over_ram(4 * MIB))
            .backend(backend)
            .with(|options| options.handshake_timeout = Duration::from_millis(500))
            .start();
        let started = Instant::now();
        let mut stream = served.dial();
        let hello = [&3_u32.to_be_bytes()[..], &option(opt::GO, &vec![0; 60_000])].concat();
        for byte in hello {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
        // One that says nothing at all.
        let silent = served.dial();
        assert_eq!(drain(silent), 18);
        others_are_served(&served);
    }
}

#[test]
fn client_that_does_not_read_its_option_replies_is_dropped_at_the_deadline() {
    let _turn = alone();
    let wordy = "x".repeat(4000);
    let mut setup = Setup::new(stack::ram(4 * MIB));
    for index in 0..30 {
        setup = setup.export(&format!("export {index}"), &wordy, stack::ram(MIB));
    }
    let served = setup.with(|options| options.handshake_timeout = Duration::from_millis(700)).start();
    let memory = MemoryBound::new(8 * MIB);
    let started = Instant::now();
    let mut stream = greeted(&served);
    let list = option(opt::LIST, &[]);
    for _ in 0..1000 {
        if stream.write_all(&list).is_err() {
            break;
        }
    }
    // A sip now and then keeps every single write of the server going.
    let mut sip = [0; 4096];
    while started.elapsed() < Duration::from_secs(60) && served.log().is_empty() {
        let _ = stream.read(&mut sip);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(served.log().len(), 1, "dropped, with a line about it");
    memory.check();
    others_are_served(&served);
}

/// Tells if the server still has this connection; it has sent no more than its greeting.
fn is_open(stream: &mut UnixStream) -> bool {
    stream.set_nonblocking(true).expect("a flag");
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn flood_of_silent_clients_keeps_nobody_out_and_leaves_those_that_are_there_alone() {
    const HANDSHAKES: usize = 6;
    let _turn = alone();
    let served = Setup::new(stack::crypt_over_ram(4 * MIB)).with(|options| options.max_handshakes = HANDSHAKES).start();
    let mut client = Raw::connect(&served);
    let memory = MemoryBound::new(40 * MIB);
    let mut flood = Vec::new();
    for _ in 0..300 {
        flood.push(served.dial());
        flood.retain_mut(is_open);
    }
    let data = pattern(0, 65536, 1);
    client.write(0, &data).expect("written");
    assert!(client.read(0, 65536) == data);
    // They are all still silent, and far from their deadline.
    for _ in 0..20 {
        Raw::connect(&served).flush().expect("there is a place");
    }
    wait_until("no more than their places are left", || {
        flood.retain_mut(is_open);
        flood.len() <= HANDSHAKES
    });
    assert!(!flood.is_empty(), "places that nobody wants are kept");
    memory.check();
    assert!(client.read(0, 65536) == data);
    let line = "gave way to a newer client";
    assert!(served.log().iter().any(|said| said.contains(line)));
}

#[test]
fn one_client_too_many_is_closed_and_the_place_of_one_that_leaves_is_free() {
    let _turn = alone();
    let served = Setup::new(stack::crypt_over_ram(4 * MIB)).with(|options| options.max_connections = 3).start();
    // It has a place for its handshake only, so it takes nobody's.
    let early = greeted(&served);
    let mut clients: Vec<_> = (0..3).map(|_| Raw::connect(&served)).collect();
    let heard = |mut late: UnixStream| {
        let go = option(opt::GO, &info_data(b"", &[]));
        let _ = late.write_all(&go);
        let mut heard = Vec::new();
        let _ = late.read_to_end(&mut heard);
        String::from_utf8_lossy(&heard).into_owned()
    };
    assert!(heard(served.dial()).len() <= 18, "not a word after the greeting");
    assert!(heard(early).ends_with("as many clients as it may have; try again later"));
    clients[0].flush().expect("not its fault");
    drop(clients.pop());
    wait_until("its place is free", || {
        let mut stream = served.dial();
        stream.read_exact(&mut [0; 18]).is_ok()
    });
    others_are_served(&served);
    assert!(served.log()[0].contains("connected already"));
}

#[test]
fn connections_in_every_state_of_the_handshake_do_not_keep_the_server_from_stopping() {
    let _turn = alone();
    let served = serve();
    let magic = OPTION_MAGIC.to_be_bytes();
    let (silent, mut half) = (served.dial(), greeted(&served));
    say(&mut half, &magic[..5]);
    let mut inside = greeted(&served);
    say(&mut inside, &option(opt::GO, &[0; 100])[..50]);
    let ready = Raw::connect(&served);
    drop(served);
    drop((silent, half, inside, ready));
}
