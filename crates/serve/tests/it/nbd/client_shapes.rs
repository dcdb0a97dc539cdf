//! Bytes as they come: in any pieces, many at once, half-closed, from clients old and new.

use std::io::Read as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cryptline_nbd::TransmissionFlags;
use cryptline_nbd::client::option;
use cryptline_nbd::wire::{client_flag, cmd, cmd_flag, opt};
use cryptline_testkit::scripted::{Manner, Scripted};
use cryptline_testkit::suite::Fresh;

use crate::common::raw::{Raw, Style, say};
use crate::common::{BACKENDS, Served, Setup, pattern, stack, wait_until};

const STYLES: [Style; 2] = [Style::Structured, Style::Simple];

/// Every backend and reply style, over a disk that answers at once and one that does not.
fn everywhere(check: impl Fn(&Served, Style)) {
    for backend in BACKENDS {
        for style in STYLES {
            let stacks = [stack::crypt_over_ram(4 << 20), stack::crypt_over_file(4 << 20)];
            for over in stacks {
                println!("{backend:?}, {style:?}");
                let served = Setup::new(over).backend(backend).start();
                check(&served, style);
            }
        }
    }
}

#[test]
fn requests_are_served_when_they_come_one_byte_at_a_time() {
    everywhere(|served, style| {
        let mut client = Raw::connect_as(served, style);
        let data = pattern(8192, 4096, 1);
        let (write, write_bytes) = client.encode_write(0, 8192, &data);
        let (flush, flush_bytes) = client.encode(cmd::FLUSH, 0, (0, 0));
        for byte in [write_bytes, flush_bytes].concat() {
            say(&mut client.stream, &[byte]);
        }
        let answers = client.answers(2);
        assert!(answers[&write].outcome.is_ok() && answers[&flush].outcome.is_ok());
        let (read, bytes) = client.encode(cmd::READ, 0, (8192, 4096));
        for byte in bytes {
            say(&mut client.stream, &[byte]);
        }
        assert!(client.answer_to(read).data() == data);
    });
}

#[test]
fn requests_are_served_when_many_come_at_once_and_are_cut_anywhere() {
    everywhere(|served, style| {
        let mut client = Raw::connect_as(served, style);
        // More than the 64 that one connection serves at a time, of all sizes.
        let sizes = [4096, 12288, 16384, 20480, 65536, 4096];
        let mut bytes = Vec::new();
        let mut written = Vec::new();
        let mut offset = 0;
        for index in 0..150 {
            let len = sizes[index % sizes.len()];
            let data = pattern(offset, len, 2);
            bytes.extend(client.encode_write(0, offset, &data).1);
            written.push((offset, data));
            offset += len as u64;
        }
        let count = written.len();
        // The reader must not wait for the writer: replies can fill the socket.
        let sender = send_in_pieces(&client.stream, bytes, 70_001);
        let answers = client.answers(count);
        sender.join().expect("sent");
        assert!(answers.values().all(|answer| answer.outcome.is_ok()));
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (offset, data) in written {
            let len = u32::try_from(data.len()).expect("small");
            let (cookie, request) = client.encode(cmd::READ, 0, (offset, len));
            bytes.extend(request);
            expected.push((cookie, data));
        }
        let sender = send_in_pieces(&client.stream, bytes, 29);
        let mut answers = client.answers(count);
        sender.join().expect("sent");
        for (cookie, data) in expected {
            assert!(answers.remove(&cookie).expect("one each").data() == data);
        }
    });
}

fn send_in_pieces(stream: &UnixStream, bytes: Vec<u8>, piece: usize) -> std::thread::JoinHandle<()> {
    let mut stream = stream.try_clone().expect("a second handle");
    std::thread::spawn(move || bytes.chunks(piece).for_each(|piece| say(&mut stream, piece)))
}

#[test]
fn client_that_closes_its_half_still_gets_all_replies() {
    everywhere(|served, style| {
        let mut client = Raw::connect_as(served, style);
        let data = pattern(0, 1 << 20, 3);
        let mut cookies = vec![client.send_write(0, 0, &data)];
        assert!(client.answers(1)[&cookies.remove(0)].outcome.is_ok());
        for index in 0..100 {
            cookies.push(client.send(cmd::READ, 0, (index * 4096, 65536)));
        }
        cookies.push(client.send(cmd::FLUSH, 0, (0, 0)));
        client.stream.shutdown(Shutdown::Write).expect("shut down");
        let mut answers = client.answers(cookies.len());
        for (index, cookie) in cookies.iter().enumerate().take(100) {
            assert!(answers.remove(cookie).expect("one each").data() == data[index * 4096..][..65536]);
        }
        assert!(client.is_closed());
    });
}

/// Places and lengths of the writes that the device has had.
fn writes_of(disk: &Scripted) -> Vec<(u64, u64)> {
    disk.begun().iter().filter(|it| it.0.is_write()).map(|(_, at, len)| (*at, *len)).collect()
}

#[test]
fn long_write_is_begun_with_what_has_arrived_and_is_cut_between_pages() {
    for backend in BACKENDS {
        let disk = Scripted::new(Manner { block: 512, at_once: false, start: 0 }, 2 << 20);
        let served = Setup::new(Fresh::new(disk.gate())).backend(backend).start();
        let mut client = Raw::connect(&served);
        let data = pattern(1536, 1 << 20, 7);
        let (write, bytes) = client.encode_write(0, 1536, &data);
        let (first, rest) = bytes.split_at(28 + 100_001);
        say(&mut client.stream, first);
        wait_until("what has arrived is written", || !writes_of(&disk).is_empty());
        assert_eq!(writes_of(&disk), [(1536, (96 << 10) - 1536)]);
        rest.chunks(70_003).for_each(|part| say(&mut client.stream, part));
        assert!(client.answer_to(write).outcome.is_ok());
        let (mut end, writes) = (1536, writes_of(&disk));
        for (at, len) in &writes {
            assert_eq!(*at, end, "{writes:?}");
            end += len;
            assert!(end.is_multiple_of(4096) || end == 1536 + (1 << 20), "{writes:?}");
        }
        assert!(disk.bytes()[1536..][..1 << 20] == data);
    }
}

#[test]
fn short_write_and_a_durable_one_wait_until_their_bytes_are_there() {
    for (flags, len, expected) in [(0, 128 << 10, 128 << 10), (cmd_flag::FUA, 512 << 10, 256 << 10)] {
        let disk = Scripted::new(Manner { block: 512, at_once: false, start: 0 }, 2 << 20);
        let served = Setup::new(Fresh::new(disk.gate())).start();
        let mut client = Raw::connect(&served);
        let data = pattern(0, len, 8);
        let (write, bytes) = client.encode_write(flags, 0, &data);
        bytes.chunks(100_001).for_each(|part| {
            say(&mut client.stream, part);
            // The server has had the time to begin, if it ever would.
            std::thread::sleep(Duration::from_millis(20));
        });
        assert!(client.answer_to(write).outcome.is_ok());
        assert!(writes_of(&disk).iter().all(|it| it.1 == expected), "{:?}", writes_of(&disk));
        assert!(disk.bytes()[..len] == data);
    }
}

#[test]
fn disconnect_ends_the_connection_after_the_replies_that_are_owed() {
    everywhere(|served, style| {
        let mut client = Raw::connect_as(served, style);
        let first = client.send_write(0, 0, &pattern(0, 1 << 20, 4));
        let second = client.send(cmd::FLUSH, 0, (0, 0));
        client.send(cmd::DISC, 0, (0, 0));
        let answers = client.answers(2);
        assert!(answers[&first].outcome.is_ok() && answers[&second].outcome.is_ok());
        assert!(client.is_closed());
    });
}

#[test]
fn client_of_the_export_name_option_is_served() {
    for zeroes in [0, client_flag::NO_ZEROES] {
        let served = Setup::new(stack::crypt_over_ram(1 << 20)).export("second", "", stack::ram(2 << 20)).start();
        let mut stream = served.dial();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        let flags = client_flag::FIXED_NEWSTYLE | zeroes;
        say(&mut stream, &flags.to_be_bytes());
        say(&mut stream, &option(opt::EXPORT_NAME, b"second"));
        let mut reply = vec![0; if zeroes == 0 { 10 + 124 } else { 10 }];
        stream.read_exact(&mut reply).expect("a reply");
        let size = u64::from_be_bytes(reply[..8].try_into().expect("8 bytes"));
        assert_eq!(size, 2 << 20);
        assert!(reply[10..].iter().all(|byte| *byte == 0));
        let flags = u16::from_be_bytes([reply[8], reply[9]]);
        let flags = TransmissionFlags::from_bits(flags);
        assert!(flags.contains(TransmissionFlags::SEND_FLUSH));
        assert!(!flags.contains(TransmissionFlags::SEND_DF));
        let mut client = Raw::in_transmission(stream, size, flags, Style::Simple);
        let data = pattern(512, 4096, 5);
        client.write(512, &data).expect("written");
        assert!(client.read(512, 4096) == data);
    }
}

#[test]
fn requests_sent_together_with_the_last_option_are_served() {
    let served = Setup::new(stack::ram(1 << 20)).start();
    let mut stream = served.dial();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    let mut client = Raw::in_transmission(stream, 1 << 20, TransmissionFlags::HAS_FLAGS, Style::Simple);
    let data = pattern(0, 8192, 6);
    let (write, write_bytes) = client.encode_write(0, 0, &data);
    let (read, read_bytes) = client.encode(cmd::READ, 0, (65536, 512));
    let flags = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;
    let hello = [&flags.to_be_bytes()[..], &option(opt::EXPORT_NAME, b""), &write_bytes, &read_bytes];
    say(&mut client.stream, &hello.concat());
    let mut reply = [0; 10];
    client.stream.read_exact(&mut reply).expect("a reply");
    let answers = client.answers(2);
    assert!(answers[&write].outcome.is_ok());
    assert_eq!(answers[&read].outcome, Ok(vec![0; 512]));
    assert!(client.read(0, 8192) == data);
}
