//! After the handshake.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use cryptline_engine::BackendChoice;
use cryptline_nbd::wire::cmd;
use cryptline_testkit::suite::Fresh;

use crate::common::raw::{Raw, Style, say};
use crate::common::{BACKENDS, Served, Setup, pattern, stack, wait_until};
use crate::hostile::{MemoryBound, alone, others_are_served};

const MIB: u64 = 1 << 20;
/// Memory that one connection may keep: its buffers, twice the replies' headers, and what is received.
const CONNECTION: u64 = 40 * MIB;

/// Over a disk that answers at once and one that does not, over each backend: harm is done, then
/// others are served and the server stops.
fn everywhere(harm: impl Fn(&Served)) {
    let _turn = alone();
    for backend in BACKENDS {
        for over in [stack::crypt_over_ram, stack::crypt_over_file] {
            harm_and_check(over(40 * MIB), backend, &harm);
        }
    }
}

fn harm_and_check(over: Fresh, backend: BackendChoice, harm: &impl Fn(&Served)) {
    println!("over {backend:?}");
    let served = Setup::new(over).backend(backend).start();
    harm(&served);
    others_are_served(&served);
}

#[test]
fn garbage_after_the_handshake_drops_that_connection_only() {
    everywhere(|served| {
        let mut good = Raw::connect(served);
        for seed in 0..10 {
            let mut bad = Raw::connect(served);
            let owed = bad.send(cmd::READ, 0, (0, 4096));
            let _ = bad.stream.write_all(&pattern(0, 3000, seed));
            assert_eq!(bad.answer_to(owed).data().len(), 4096, "asked before the garbage");
            assert!(bad.is_closed());
        }
        good.flush().expect("not its fault");
    });
}

#[test]
fn half_a_request_and_then_silence_holds_nobody_up() {
    everywhere(|served| {
        let mut silent = Vec::new();
        for cut in [1, 4, 27, 28, 29, 3000] {
            let mut client = Raw::connect(served);
            let (_, bytes) = client.encode_write(0, 0, &[7; 65536]);
            say(&mut client.stream, &bytes[..cut]);
            silent.push(client);
        }
        others_are_served(served);
        // They stay connected until the server stops.
        std::mem::forget(silent);
    });
}

#[test]
fn client_that_dies_inside_a_payload_changes_nothing_that_it_did_not_send() {
    everywhere(|served| {
        let data = pattern(0, 1 << 20, 1);
        Raw::connect(served).write(0, &data).expect("written");
        for cut in [28, 29, 5000, 262_144 + 28 + 100, 700_000] {
            let mut client = Raw::connect(served);
            let (_, bytes) = client.encode_write(0, 0, &pattern(0, 1 << 20, 2));
            say(&mut client.stream, &bytes[..cut]);
        }
        let mut client = Raw::connect(served);
        let read = client.read(0, 1 << 20);
        let (old, new) = (&data, pattern(0, 1 << 20, 2));
        for (index, byte) in read.iter().enumerate() {
            assert!([old[index], new[index]].contains(byte), "byte {index}");
        }
        assert!(read[700_000..] == data[700_000..], "was never sent");
    });
}

#[test]
fn client_that_dies_while_it_reads_a_reply_leaves_nothing_behind() {
    everywhere(|served| {
        let memory = MemoryBound::new(2 * CONNECTION + 40 * MIB);
        for round in 0..20 {
            let style = if round % 2 == 0 { Style::Structured } else { Style::Simple };
            let mut client = Raw::connect_as(served, style);
            for _ in 0..4 {
                client.send(cmd::READ, 0, (0, 16 << 20));
            }
            let mut some = vec![0; 100_000];
            client.stream.read_exact(&mut some).expect("it has begun");
        }
        wait_until("all are gone", || served.connections() == 0);
        memory.check_soon();
    });
}

#[test]
fn client_that_never_reads_is_not_read_from_and_costs_little() {
    everywhere(|served| {
        let mut good = Raw::connect(served);
        let data = pattern(0, 1 << 20, 1);
        good.write(0, &data).expect("written");
        // The data read below is there already, so that only connections grow.
        good.write(20 << 20, &pattern(0, 16 << 20, 2)).expect("written");
        let memory = MemoryBound::new(3 * CONNECTION);
        let mut greedy = Vec::new();
        for (style, length) in [(Style::Structured, 4096), (Style::Structured, 16 << 20), (Style::Simple, 16 << 20)] {
            let mut client = Raw::connect_as(served, style);
            let limit = Some(Duration::from_millis(300));
            client.stream.set_write_timeout(limit).expect("a timeout");
            let (_, request) = client.encode(cmd::READ, 0, (20 << 20, length));
            let many = request.repeat(1000);
            let mut sent = 0;
            let blocked = loop {
                match client.stream.write(&many) {
                    Ok(len) => sent += len,
                    Err(error) => break error.kind(),
                }
                assert!(sent < 64 << 20, "the server reads on and on");
            };
            assert_eq!(blocked, ErrorKind::WouldBlock);
            greedy.push(client);
        }
        for _ in 0..100 {
            assert!(good.read(0, 1 << 20) == data);
        }
        good.write(4096, &data).expect("written");
        good.flush().expect("flushed");
        memory.check();
        std::mem::forget(greedy);
    });
}

#[test]
fn client_that_floods_with_refused_requests_and_never_reads_costs_little() {
    everywhere(|served| {
        let memory = MemoryBound::new(CONNECTION);
        let mut client = Raw::connect(served);
        let limit = Some(Duration::from_millis(300));
        client.stream.set_write_timeout(limit).expect("a timeout");
        let bad = [(cmd::READ, (1, 1)), (77, (0, 0)), (cmd::BLOCK_STATUS, (0, 8192))];
        let requests = bad.map(|(command, range)| client.encode(command, 0, range).1);
        let many = requests.concat().repeat(300);
        let mut sent = 0;
        while let Ok(len) = client.stream.write(&many) {
            sent += len;
            assert!(sent < 64 << 20, "the server reads on and on");
        }
        memory.check();
        others_are_served(served);
    });
}

#[test]
fn write_too_large_to_throw_away_drops_the_connection() {
    everywhere(|served| {
        for length in [u32::MAX, (64 << 20) + 1] {
            let mut client = Raw::connect(served);
            client.send(cmd::WRITE, 0, (0, length));
            assert!(client.is_closed());
        }
    });
}

#[test]
fn server_stops_in_time_whatever_its_clients_do() {
    let _turn = alone();
    for backend in BACKENDS {
        let served = Setup::new(stack::crypt_over_file(40 * MIB)).backend(backend).start();
        let (mut unread, mut half) = (Raw::connect(&served), Raw::connect(&served));
        for _ in 0..30 {
            unread.send(cmd::READ, 0, (0, 8 << 20));
        }
        let (_, bytes) = half.encode_write(0, 0, &[7; 65536]);
        say(&mut half.stream, &bytes[..1000]);
        let idle = Raw::connect(&served);
        drop(served);
        drop((unread, half, idle));
    }
}
