//! Liberties of a good server, and treatment of a bad one.

use cryptline_nbd::reply::{self, ChunkPosition};
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_nbd::{NbdError, TransmissionFlags as Flags};
use cryptline_sys::BackendChoice;
use rustix::io::Errno;

use super::scripted::{Client, Offer, SIZE, Server, USUAL, chunk};
use super::*;
use crate::Gate;
use crate::blocking::Blocking;

const BLOCK: usize = 4096;
const AT: u64 = 8192;

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Syscalls];

/// Checks the end of a read that a server answers with what `answer` makes of its cookie, after which it hangs up if
/// told to. The connection must be over then, and a flush must not say yes.
fn ends(offer: Offer, hangs_up: bool, answer: impl Fn(u64) -> Vec<u8> + Send + Copy + 'static) {
    for backend in BACKENDS {
        let server = Server::start(offer, move |client| {
            let header = client.request();
            client.say(&answer(header.cookie));
            if !hangs_up {
                client.see_end();
            }
        });
        let (gate, mut disk) = server.disk(backend);
        assert_eq!(disk.read_at(AT, &mut [0; BLOCK]), Err(Fault::Lost));
        assert_eq!(disk.flush(), Err(Fault::Latched));
        assert_eq!(disk.write_at(0, &[0; 512], true), Err(Fault::Latched));
        assert!(disk.write_at(0, &[0; 512], false).is_err());
        drop(disk);
        let refused = Blocking::new(&gate, backend).err().unwrap();
        assert!(refused.to_string().contains("was lost"), "{refused}");
    }
}

fn data(cookie: u64, offset: u64, len: usize, last: ChunkPosition) -> Vec<u8> {
    let length = u32::try_from(len).unwrap();
    let head = reply::offset_data(cookie, offset, length, last);
    [&head[..], &vec![7; len]].concat()
}

#[test]
fn answers_that_break_a_rule_end_the_connection_and_latch() {
    let answers: [fn(u64) -> Vec<u8>; 15] = [
        |_| vec![0; 64],
        |cookie| [&reply::simple(cookie, Ok(()))[..], &[0; BLOCK]].concat(),
        |cookie| data(cookie + 1, AT, BLOCK, ChunkPosition::Yes),
        |cookie| data(cookie ^ (1 << 32), AT, BLOCK, ChunkPosition::Yes),
        |cookie| data(cookie, AT - 1, BLOCK, ChunkPosition::Yes),
        |cookie| data(cookie, AT + 1, BLOCK, ChunkPosition::Yes),
        |cookie| data(cookie, AT, BLOCK + 1, ChunkPosition::Yes),
        |cookie| data(cookie, u64::MAX, 1, ChunkPosition::Yes),
        |cookie| data(cookie, AT, BLOCK - 1, ChunkPosition::Yes),
        |cookie| [data(cookie, AT, 2, ChunkPosition::No), data(cookie, AT + 1, BLOCK - 1, ChunkPosition::Yes)].concat(),
        |cookie| [data(cookie, AT, BLOCK, ChunkPosition::No), data(cookie, AT, BLOCK, ChunkPosition::Yes)].concat(),
        |cookie| chunk(cookie, 0, 0, &[]),
        |cookie| reply::none(cookie).to_vec(),
        |cookie| chunk(cookie, 1, 5, &[0; 12]),
        |cookie| reply::offset_hole(cookie, AT, u32::MAX, ChunkPosition::Yes).to_vec(),
    ];
    for answer in answers {
        ends(USUAL, false, answer);
    }
}

#[test]
fn replies_in_endless_pieces_end_the_connection() {
    ends(USUAL, false, |cookie| {
        reply::error_chunk(cookie, NbdError::Io, "again", ChunkPosition::No).as_bytes().repeat(1000)
    });
    ends(USUAL, false, |cookie| {
        let piece = |index: u64| data(cookie, AT + 2 * index, 1, ChunkPosition::No);
        (0..64).flat_map(piece).collect()
    });
}

#[test]
fn chunks_to_a_client_that_wants_none_end_the_connection() {
    let simple = Offer { structured: false, ..USUAL };
    ends(simple, false, |cookie| data(cookie, AT, BLOCK, ChunkPosition::Yes));
}

#[test]
fn server_that_hangs_up_at_any_byte_fails_what_is_under_way() {
    for len in [0, 1, 15, 20, 27, 28, 29, 28 + BLOCK - 1] {
        ends(USUAL, true, move |cookie| data(cookie, AT, BLOCK, ChunkPosition::Yes)[..len].to_vec());
    }
}

#[test]
fn reply_that_nobody_waits_for_ends_the_connection() {
    let server = Server::start(USUAL, |client| {
        let (header, _) = client.expect(cmd::FLUSH);
        // The same once more, which the next request finds.
        client.say(&reply::simple(header.cookie, Ok(())));
        client.see_end();
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    // Both may come together, and then the first is no good either.
    let _ = disk.flush();
    assert!(disk.flush().is_err());
    assert_eq!(disk.flush(), Err(Fault::Latched));
}

#[test]
fn read_in_pieces_and_holes_in_any_order_is_put_together() {
    for backend in BACKENDS {
        let server = Server::start(USUAL, |client| {
            let cookie = client.request().cookie;
            client.say(&data(cookie, AT + 3000, BLOCK - 3000, ChunkPosition::No));
            client.say(&reply::offset_hole(cookie, AT + 1000, 2000, ChunkPosition::No));
            client.say(&data(cookie, AT, 1000, ChunkPosition::No));
            client.say(&reply::none(cookie));
            client.expect(cmd::FLUSH);
        });
        let (_gate, mut disk) = server.disk(backend);
        let (mut found, mut wanted) = ([1; BLOCK], [7; BLOCK]);
        wanted[1000..3000].fill(0);
        disk.read_at(AT, &mut found).unwrap();
        assert!(found == wanted);
        assert_eq!(disk.flush(), Ok(()));
    }
}

/// A byte that tells its place.
fn byte_at(at: usize) -> u8 {
    u8::try_from(at / 7 % 251).unwrap()
}

#[test]
fn large_read_goes_around_the_receive_buffer_whatever_the_pieces() {
    const LEN: usize = 300 * 1024;
    for structured in [false, true] {
        let offer = Offer { structured, ..USUAL };
        let server = Server::start(offer, move |client| {
            let header = client.request();
            let bytes: Vec<u8> = (0..LEN).map(byte_at).collect();
            if structured {
                let head = reply::offset_data(header.cookie, AT, header.length, ChunkPosition::Yes);
                client.say(&head);
            } else {
                client.say(&reply::simple(header.cookie, Ok(())));
            }
            for piece in bytes.chunks(33_333) {
                client.say(piece);
            }
            client.expect(cmd::FLUSH);
        });
        let (_gate, mut disk) = server.disk(BackendChoice::Auto);
        let mut found = vec![0; LEN];
        disk.read_at(AT, &mut found).unwrap();
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == byte_at(at)));
        assert_eq!(disk.flush(), Ok(()));
    }
}

#[test]
fn errors_of_the_server_are_faults_and_the_connection_goes_on() {
    for (error, fault) in [
        (NbdError::Io, Fault::Io(Errno::IO)),
        (NbdError::NoSpc, Fault::NoSpace),
        (NbdError::Inval, Fault::Io(Errno::INVAL)),
        (NbdError::Perm, Fault::Io(Errno::PERM)),
        (NbdError::Shutdown, Fault::Io(Errno::SHUTDOWN)),
        (NbdError::NotSup, Fault::Io(Errno::OPNOTSUPP)),
    ] {
        let server = Server::start(USUAL, move |client| {
            let cookie = client.request().cookie;
            let bytes = reply::error_offset_chunk(cookie, error, "some text", AT, ChunkPosition::Yes);
            client.say(bytes.as_bytes());
            let header = client.request();
            client.bytes(header.length as usize);
            client.say(&reply::simple(header.cookie, Err(error)));
            let cookie = client.request().cookie;
            client.say(&data(cookie, AT, BLOCK, ChunkPosition::Yes));
        });
        let (gate, mut disk) = server.disk(BackendChoice::Auto);
        assert_eq!(disk.read_at(AT, &mut [0; BLOCK]), Err(fault));
        assert_eq!(disk.write_at(AT, &[1; BLOCK], false), Err(fault));
        let is_lost = error != NbdError::NoSpc;
        assert_eq!(gate.is_latched(), is_lost, "{error:?}");
        assert_eq!(disk.read_at(AT, &mut [0; BLOCK]), Ok(()));
    }
}

#[test]
fn discard_and_zeroing_that_the_server_does_not_want_lose_nothing() {
    let server = Server::start(USUAL, |client| {
        for (command, flags) in [(cmd::TRIM, 0), (cmd::WRITE_ZEROES, 0), (cmd::WRITE_ZEROES, cmd_flag::NO_HOLE)] {
            let header = client.request();
            assert_eq!((header.command, header.flags), (command, flags));
            client.say(&reply::simple(header.cookie, Err(NbdError::Inval)));
        }
        client.expect(cmd::FLUSH);
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.discard(0, 4096), Err(Fault::NotSupported));
    assert_eq!(disk.write_zeroes(0, 4096, true), Err(Fault::NotSupported));
    assert_eq!(disk.write_zeroes(0, 4096, false), Err(Fault::NotSupported));
    assert_eq!(disk.flush(), Ok(()));
}

#[test]
fn hint_that_fails_or_is_not_wanted_has_lost_nothing() {
    let ends = [
        (Err(NbdError::Io), Err(Fault::Io(Errno::IO))),
        (Err(NbdError::NoMem), Err(Fault::Io(Errno::NOMEM))),
        (Err(NbdError::Inval), Err(Fault::NotSupported)),
        (Err(NbdError::NotSup), Err(Fault::NotSupported)),
        (Ok(()), Ok(())),
    ];
    for backend in BACKENDS {
        let server = Server::start(USUAL, move |client| {
            client.expect(cmd::WRITE);
            for (outcome, _) in ends {
                let header = client.request();
                assert_eq!((header.command, header.flags), (cmd::CACHE, 0));
                assert_eq!((header.offset, header.length), (AT, 8192));
                client.say(&reply::simple(header.cookie, outcome));
            }
            client.expect(cmd::FLUSH);
        });
        let (gate, mut disk) = server.disk(backend);
        disk.write_at(AT, &[1; BLOCK], false).unwrap();
        for (_, result) in ends {
            assert_eq!(disk.cache(AT, 8192), result);
        }
        assert!(!gate.is_latched());
        assert_eq!(disk.flush(), Ok(()));
    }
}

#[test]
fn hint_that_is_answered_with_data_or_not_at_all_ends_the_connection() {
    for answers in [true, false] {
        let server = Server::start(USUAL, move |client| {
            let header = client.request();
            assert_eq!(header.command, cmd::CACHE);
            if answers {
                client.say(&data(header.cookie, AT, BLOCK, ChunkPosition::Yes));
                client.see_end();
            }
        });
        let (_gate, mut disk) = server.disk(BackendChoice::Auto);
        assert_eq!(disk.cache(AT, BLOCK as u64), Err(Fault::Lost));
        assert_eq!(disk.flush(), Err(Fault::Latched));
    }
}

#[test]
fn hint_is_not_sent_to_a_server_that_knows_none() {
    let none = Offer { flags: USUAL.flags.without(Flags::SEND_CACHE), ..USUAL };
    let server = Server::start(none, |client| {
        client.expect(cmd::FLUSH);
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.cache(AT, 4096), Err(Fault::NotSupported));
    assert_eq!(disk.flush(), Ok(()));
}

#[test]
fn request_longer_than_the_server_takes_goes_in_parts_each_durable() {
    let small = Offer { sizes: Some([512, 4096, 4096]), ..USUAL };
    let server = Server::start(small, |client| {
        let mut all = Vec::new();
        for part in 0..4u64 {
            let (header, payload) = client.expect(cmd::WRITE);
            assert_eq!((header.offset, header.length), (AT + part * 4096, 4096));
            assert_eq!(header.flags, cmd_flag::FUA);
            all.extend(payload);
        }
        for part in 0..4 {
            let (header, _) = client.expect(cmd::CACHE);
            assert_eq!((header.offset, header.length), (AT + part * 4096, 4096));
        }
        for part in 0..4 {
            let header = client.request();
            let at = part * 4096;
            client.say(&reply::offset_data(header.cookie, header.offset, 4096, ChunkPosition::Yes));
            client.say(&all[at..at + 4096]);
        }
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    let written: Vec<u8> = (0..4 * BLOCK).map(|at| byte_at(7 * at)).collect();
    disk.write_at(AT, &written, true).unwrap();
    disk.cache(AT, 4 * 4096).unwrap();
    let mut found = vec![0; 4 * BLOCK];
    disk.read_at(AT, &mut found).unwrap();
    assert!(found == written);
}

/// A client takes what was not permitted for what was not tried.
#[test]
fn server_that_refuses_a_part_behind_one_that_was_written_has_not_refused_the_write() {
    for error in [NbdError::Perm, NbdError::Inval, NbdError::NotSup, NbdError::Shutdown] {
        let small = Offer { sizes: Some([512, 4096, 4096]), ..USUAL };
        let server = Server::start(small, move |client| {
            client.expect(cmd::WRITE);
            let header = client.request();
            client.bytes(header.length as usize);
            client.say(&reply::simple(header.cookie, Err(error)));
        });
        let (gate, mut disk) = server.disk(BackendChoice::Auto);
        assert_eq!(disk.write_at(AT, &[1; 2 * BLOCK], false), Err(Fault::Io(Errno::IO)), "{error:?}");
        assert!(gate.is_latched());
    }
}

#[test]
fn durable_write_without_fua_is_a_write_and_a_flush() {
    let no_fua = Offer { flags: Flags::HAS_FLAGS.with(Flags::SEND_FLUSH), ..USUAL };
    let server = Server::start(no_fua, |client| {
        assert_eq!(client.expect(cmd::WRITE).0.flags, 0);
        client.expect(cmd::FLUSH);
        client.expect(cmd::WRITE);
        let header = client.request();
        assert_eq!(header.command, cmd::FLUSH);
        client.say(&reply::simple(header.cookie, Err(NbdError::Io)));
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.write_at(0, &[1; 512], true), Ok(()));
    assert_eq!(disk.write_at(0, &[1; 512], true), Err(Fault::Io(Errno::IO)));
    assert_eq!(disk.flush(), Err(Fault::Latched));
}

#[test]
fn server_without_flush_gets_every_change_durable_and_no_flush() {
    let no_flush = Offer { flags: USUAL.flags.without(Flags::SEND_FLUSH), ..USUAL };
    let server = Server::start(no_flush, |client| {
        assert_eq!(client.expect(cmd::WRITE).0.flags, cmd_flag::FUA);
        assert_eq!(client.expect(cmd::WRITE_ZEROES).0.flags, cmd_flag::FUA);
    });
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.write_at(0, &[1; 512], false), Ok(()));
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(disk.write_zeroes(0, 512, true), Ok(()));
    assert_eq!(disk.flush(), Ok(()));
}

/// A write that found no room tells of itself where all is durable that was acknowledged. One that is made durable over
/// what is not may tell of that.
#[test]
fn write_without_room_is_no_loss_where_every_write_is_made_durable() {
    let no_flush = Offer { flags: USUAL.flags.without(Flags::SEND_FLUSH), ..USUAL };
    let full = |client: &mut Client| {
        let header = client.request();
        client.bytes(header.payload_length() as usize);
        client.say(&reply::simple(header.cookie, Err(NbdError::NoSpc)));
        assert_eq!(header.flags, cmd_flag::FUA);
    };
    let server = Server::start(no_flush, move |client| {
        full(client);
        full(client);
        client.expect(cmd::WRITE);
    });
    let (gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.write_at(0, &[1; BLOCK], false), Err(Fault::NoSpace));
    assert_eq!(disk.write_zeroes(0, BLOCK as u64, true), Err(Fault::NoSpace));
    assert_eq!(disk.write_at(0, &[1; BLOCK], false), Ok(()));
    assert_eq!(disk.flush(), Ok(()));
    assert!(!gate.is_latched());
    let server = Server::start(USUAL, full);
    let (_gate, mut disk) = server.disk(BackendChoice::Auto);
    assert_eq!(disk.write_at(0, &[1; BLOCK], true), Err(Fault::Io(Errno::NOSPC)));
    assert_eq!(disk.flush(), Err(Fault::Latched));
}

#[test]
fn server_that_can_make_nothing_durable_is_opened_read_only_or_not_at_all() {
    let nothing = Offer { flags: Flags::HAS_FLAGS, ..USUAL };
    let server = Server::start(nothing, Client::see_end);
    let refused = NbdDevice::open(&server.uri, false).err().unwrap();
    assert!(refused.to_string().contains("neither flush nor FUA"), "{refused}");
    drop(server);
    let server = Server::start(nothing, Client::see_end);
    let gate = Gate::new(NbdDevice::open(&server.uri, true).unwrap());
    let mut disk = Blocking::new(&gate, BackendChoice::Auto).unwrap();
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(disk.write_at(0, &[1; 512], false), Err(Fault::ReadOnly));
}

#[test]
fn one_connection_serves_one_queue_at_a_time() {
    let server = Server::start(USUAL, |client| {
        client.expect(cmd::WRITE);
        client.expect(cmd::FLUSH);
        // The courtesy of a client that leaves.
        assert_eq!(client.request().command, cmd::DISC);
    });
    let gate = server.gate();
    let mut first = Blocking::new(&gate, BackendChoice::Auto).unwrap();
    first.write_at(0, &[1; 512], false).unwrap();
    let second = Blocking::new(&gate, BackendChoice::Auto).err().unwrap();
    assert!(second.to_string().contains("one at a time"), "{second}");
    drop(first);
    let mut second = Blocking::new(&gate, BackendChoice::Syscalls).unwrap();
    assert_eq!(second.flush(), Ok(()));
}

#[test]
fn geometry_is_what_the_server_says() {
    let offer = Offer {
        flags: USUAL.flags.with(Flags::READ_ONLY).with(Flags::ROTATIONAL),
        sizes: Some([4096, 65536, 1 << 20]),
        ..USUAL
    };
    let server = Server::start(offer, Client::see_end);
    let gate = server.gate();
    let geometry = *gate.geometry();
    assert_eq!((geometry.size, geometry.logical_block), (SIZE, 4096));
    assert_eq!(geometry.preferred_block, 65536);
    assert!(geometry.read_only && geometry.rotational);
    assert!(!geometry.discard && !geometry.write_zeroes);
}

#[test]
fn what_cannot_be_reached_is_said_in_one_line() {
    let failed = |uri: &str| {
        let error = NbdDevice::open(&uri.parse().unwrap(), false).err().unwrap();
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let text = failed("nbd+unix:///x?socket=/no/such/socket");
    assert!(text.contains("there is no socket /no/such/socket"), "{text}");
    let text = failed("nbds://localhost/");
    assert!(text.contains("tls-certificates=DIR"), "{text}");
    let text = failed("nbd://no-such-host.invalid/");
    assert!(text.contains("no-such-host.invalid is not known"), "{text}");
    // Bound and closed: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let text = failed(&format!("nbd://127.0.0.1:{port}/"));
    assert!(text.contains("nobody listens"), "{text}");
}
