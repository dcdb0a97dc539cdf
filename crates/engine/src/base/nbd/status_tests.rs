//! Use of a server's answers about its holes.

use std::time::Duration;

use cryptline_nbd::reply::{self, ChunkPosition};
use cryptline_nbd::wire::{STATE_HOLE, STATE_ZERO, cmd};
use cryptline_nbd::{NbdError, TransmissionFlags as Flags};
use cryptline_sys::BackendChoice;

use super::NbdDevice;
use super::scripted::{Client, Offer, SIZE, Server, USUAL, chunk};
use crate::{Extent, Gate};

const CONTEXT: u32 = 7;
const TELLS: Offer = Offer { flags: USUAL.flags.with(Flags::CAN_MULTI_CONN), allocation: Some(CONTEXT), ..USUAL };
const HOLE: u32 = STATE_HOLE | STATE_ZERO;

/// The first connection, and the one that asks, once the witness has told that the server is the first one.
fn connections(accept: &dyn Fn() -> Client) -> (Client, Client, Client) {
    let (first, mut witness) = (accept(), accept());
    let status = accept();
    witness.expect(cmd::FLUSH);
    (first, witness, status)
}

/// The one chunk of an answer.
fn told(cookie: u64, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let extents = extents.iter().flat_map(|&(len, flags)| [len, flags]);
    let words = std::iter::once(context).chain(extents);
    let payload: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    chunk(cookie, 1, 5, &payload)
}

fn extent(gate: &Gate, at: u64) -> (u64, bool, bool) {
    let Extent { len, hole, zero } = gate.extent(at, SIZE - at).unwrap();
    (len, hole, zero)
}

#[test]
fn holes_are_what_the_server_says_and_a_write_of_ours_is_asked_about_again() {
    let server = Server::several(TELLS, |accept| {
        let (mut first, _witness, mut status) = connections(accept);
        let whole = u32::try_from(SIZE).unwrap();
        let question = status.request();
        assert_eq!(question.command, cmd::BLOCK_STATUS);
        // From the start of its block on.
        assert_eq!((question.offset, question.length), (512, whole - 512));
        // The last one may lead out of what was asked for.
        let extents = [(3584, 0), (4096, HOLE), (whole, HOLE)];
        status.say(&told(question.cookie, CONTEXT, &extents));
        first.expect(cmd::WRITE);
        let question = status.request();
        assert_eq!(question.offset, 8192);
        let extents = [(512, 0), (512, STATE_ZERO), (1024, STATE_HOLE)];
        status.say(&told(question.cookie, CONTEXT, &extents));
        // Where the first answer has become old.
        while let Some(question) = status.next() {
            status.say(&told(question.cookie, CONTEXT, &[(512, 0)]));
        }
    });
    let (gate, mut disk) = server.disk(BackendChoice::Auto);
    let found = gate.extent(1000, SIZE - 1000).unwrap();
    assert_eq!((found.len, found.hole, found.zero), (3096, false, false));
    disk.write_at(8192, &[1; 512], false).unwrap();
    assert_eq!(extent(&gate, 8192), (512, false, false));
}

#[test]
fn answers_that_break_a_rule_are_data_and_nobody_is_asked_again() {
    let answers: [fn(u64) -> Vec<u8>; 11] = [
        |_| vec![0; 64],
        |cookie| reply::simple(cookie, Ok(())).to_vec(),
        |cookie| reply::simple(cookie + 1, Err(NbdError::Io)).to_vec(),
        |cookie| told(cookie + 1, CONTEXT, &[(4096, HOLE)]),
        |cookie| told(cookie, CONTEXT + 1, &[(4096, HOLE)]),
        |cookie| told(cookie, CONTEXT, &[]),
        |cookie| told(cookie, CONTEXT, &[(4096, HOLE), (0, HOLE)]),
        |cookie| chunk(cookie, 1, 5, &[0; 11]),
        |cookie| {
            let mut endless = reply::none(cookie).to_vec();
            endless[4..8].copy_from_slice(&[0, 1, 0, 5]);
            endless[16..].copy_from_slice(&u32::MAX.to_be_bytes());
            endless
        },
        |cookie| reply::offset_hole(cookie, 0, 4096, ChunkPosition::Yes).to_vec(),
        |cookie| chunk(cookie, 0, 0, &[]).repeat(100),
    ];
    for answer in answers {
        let server = Server::several(TELLS, move |accept| {
            let (mut first, _witness, mut status) = connections(accept);
            let question = status.request();
            status.say(&answer(question.cookie));
            status.see_end();
            first.expect(cmd::WRITE);
            first.expect(cmd::FLUSH);
        });
        let (gate, mut disk) = server.disk(BackendChoice::Auto);
        for _ in 0..2 {
            assert_eq!(extent(&gate, 0), (SIZE, false, false));
        }
        disk.write_at(0, &[1; 512], false).unwrap();
        disk.flush().unwrap();
    }
}

#[test]
fn server_that_cannot_tell_is_asked_again_and_one_that_hangs_up_is_not() {
    let server = Server::several(TELLS, |accept| {
        let (_first, _witness, mut status) = connections(accept);
        let cookie = status.request().cookie;
        let failed = reply::error_chunk(cookie, NbdError::Io, "no", ChunkPosition::Yes);
        status.say(failed.as_bytes());
        let cookie = status.request().cookie;
        status.say(&reply::simple(cookie, Err(NbdError::Inval)));
        let cookie = status.request().cookie;
        status.say(&told(cookie, CONTEXT, &[(4096, HOLE)])[..30]);
    });
    let gate = server.gate();
    for _ in 0..4 {
        assert_eq!(extent(&gate, 0), (SIZE, false, false));
    }
}

#[test]
fn holes_come_back_with_a_server_whose_lost_connections_are_made_again() {
    let server = Server::several(TELLS, |accept| {
        let (_first, mut witness, mut status) = connections(accept);
        status.request();
        drop(status);
        let mut status = accept();
        witness.expect(cmd::FLUSH);
        let whole = u32::try_from(SIZE).unwrap();
        while let Some(question) = status.next() {
            status.say(&told(question.cookie, CONTEXT, &[(whole, HOLE)]));
        }
    });
    let patience = Some(Duration::from_secs(60));
    let gate = Gate::new(NbdDevice::open_again(&server.uri, false, patience).unwrap());
    assert_eq!(extent(&gate, 0), (SIZE, false, false));
    assert_eq!(extent(&gate, 0), (SIZE, true, true));
}

/// The connection that asks may live on, and an answer would be good for a while.
#[test]
fn holes_of_a_server_that_has_gone_are_not_those_of_the_next() {
    let server = Server::several(TELLS, |accept| {
        let whole = u32::try_from(SIZE).unwrap();
        let (mut first, witness, mut old) = connections(accept);
        let cookie = old.request().cookie;
        old.say(&told(cookie, CONTEXT, &[(whole, HOLE)]));
        first.request();
        drop((first, witness));
        let (mut witness, mut first) = (accept(), accept());
        witness.expect(cmd::FLUSH);
        let cookie = first.request().cookie;
        first.say(&chunk(cookie, 1, 1, &[0; 8 + 512]));
        let mut status = accept();
        witness.expect(cmd::FLUSH);
        let cookie = status.request().cookie;
        status.say(&told(cookie, CONTEXT, &[(whole, 0)]));
        first.see_end();
        drop(old);
    });
    let (gate, mut disk) = server.disk_again(Duration::from_secs(60), BackendChoice::Auto);
    assert_eq!(extent(&gate, 0), (SIZE, true, true));
    disk.read_at(0, &mut [1; 512]).unwrap();
    assert_eq!(extent(&gate, 0), (SIZE, false, false));
}

#[test]
fn server_of_one_connection_and_one_that_knows_no_holes_have_none() {
    let server = Server::start(USUAL, |_| {});
    let gate = server.gate();
    assert_eq!(extent(&gate, 4096), (SIZE - 4096, false, false));
    drop(server);
    let silent = Offer { allocation: None, ..TELLS };
    let server = Server::several(silent, |accept| {
        let (_first, _witness) = (accept(), accept());
        accept().see_end();
    });
    let gate = server.gate();
    for _ in 0..2 {
        assert_eq!(extent(&gate, 4096), (SIZE - 4096, false, false));
    }
}

#[test]
fn another_server_at_the_same_address_is_not_believed() {
    let server = Server::several(TELLS, |accept| {
        let (_first, witness) = (accept(), accept());
        drop(witness);
        accept().see_end();
    });
    let gate = server.gate();
    assert_eq!(extent(&gate, 0), (SIZE, false, false));
}
