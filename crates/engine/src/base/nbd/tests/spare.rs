//! Connections that nobody uses just now, and those that a server does not take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use cryptline_nbd::reply;
use cryptline_nbd::wire::cmd;
use cryptline_sys::{BackendChoice, Buffer};

use super::NbdDevice;
use super::again_tests::SHARED;
use super::scripted::{Client, Server, secure};
use crate::{Channel, Gate, Request, Submitted};

fn open(gate: &Gate) -> Channel {
    Channel::open(gate, BackendChoice::Auto, 4).unwrap()
}

/// A request that must succeed.
fn succeeds(channel: &mut Channel, request: Request) {
    assert!(matches!(channel.submit(request), Submitted::Pending));
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(&mut done).unwrap();
    }
    assert!(done.iter().all(|end| end.result.is_ok()), "{:?}", done[0].result);
}

fn write() -> Request {
    Request::write(0, Buffer::alloc(512).unwrap(), false, 1)
}

#[test]
fn idle_connection_that_the_server_closed_is_replaced_and_nothing_is_lost() {
    let (close, closed) = mpsc::channel();
    let server = Server::several(SHARED, move |accept| {
        let (mut first, mut witness) = (accept(), accept());
        first.expect(cmd::WRITE);
        accept().hang_up();
        close.send(()).unwrap();
        let mut third = accept();
        // What was written by one is covered by a flush of the other, if the server is the same.
        witness.expect(cmd::FLUSH);
        third.expect(cmd::FLUSH);
        first.expect(cmd::FLUSH);
    });
    let gate = server.gate();
    let mut first = open(&gate);
    succeeds(&mut first, write());
    drop(open(&gate));
    closed.recv().unwrap();
    succeeds(&mut open(&gate), Request::flush(2));
    succeeds(&mut first, Request::flush(3));
}

#[test]
fn connection_of_one_at_a_time_that_is_closed_with_what_no_flush_covers_is_a_loss_and_otherwise_none() {
    for is_flushed in [false, true] {
        let (close, closed) = mpsc::channel();
        let server = Server::several(super::scripted::USUAL, move |accept| {
            let mut client = accept();
            client.expect(cmd::WRITE);
            if is_flushed {
                client.expect(cmd::FLUSH);
            }
            client.hang_up();
            close.send(()).unwrap();
            if is_flushed {
                accept().expect(cmd::WRITE);
            }
        });
        let gate = server.gate();
        let mut channel = open(&gate);
        succeeds(&mut channel, write());
        if is_flushed {
            succeeds(&mut channel, Request::flush(2));
        }
        drop(channel);
        closed.recv().unwrap();
        let next = Channel::open(&gate, BackendChoice::Auto, 4);
        assert_eq!(next.is_ok(), is_flushed);
        if let Ok(mut next) = next {
            succeeds(&mut next, write());
        }
    }
}

/// All connections of a server that ends those that are not in use. Through TLS it says so, and leaves the sockets open.
fn all_idle_connections_are_closed(is_secure: bool, is_flushed: bool) {
    let ((close, closed), (leave, has_left)) = (mpsc::channel(), mpsc::channel::<()>());
    let server = Server::listen(move |listener| {
        let config = secure();
        let accept = || {
            let stream = listener.accept().unwrap().0;
            if is_secure { Client::greet_secure(stream, SHARED, &config) } else { Client::greet(stream, SHARED) }
        };
        let (mut first, mut witness) = (accept(), accept());
        first.expect(cmd::WRITE);
        if is_flushed {
            first.expect(cmd::FLUSH);
        }
        has_left.recv().unwrap();
        first.end_tls();
        witness.end_tls();
        let open = if is_secure {
            Some((first, witness))
        } else {
            first.hang_up();
            witness.hang_up();
            None
        };
        close.send(()).unwrap();
        if is_flushed {
            let (mut witness, mut next) = (accept(), accept());
            witness.expect(cmd::FLUSH);
            next.expect(cmd::WRITE);
        }
        drop(open);
    });
    let mut uri = server.uri.clone();
    if is_secure {
        uri.tls = true;
        uri.tls_options.verify_peer = Some(false);
    }
    let gate = Gate::new(NbdDevice::open(&uri, false).unwrap());
    let mut channel = open(&gate);
    succeeds(&mut channel, write());
    if is_flushed {
        succeeds(&mut channel, Request::flush(2));
    }
    drop(channel);
    leave.send(()).unwrap();
    closed.recv().unwrap();
    let next = Channel::open(&gate, BackendChoice::Auto, 4);
    assert_eq!(next.is_ok(), is_flushed, "{:?}", next.as_ref().err());
    if let Ok(mut next) = next {
        succeeds(&mut next, write());
    }
}

#[test]
fn connections_that_were_closed_while_nobody_used_any_are_a_loss_only_where_no_flush_covers_a_change() {
    for is_secure in [false, true] {
        for is_flushed in [false, true] {
            all_idle_connections_are_closed(is_secure, is_flushed);
        }
    }
}

#[test]
fn without_the_witness_nobody_new_is_served_and_those_who_are_lose_nothing() {
    let (close, closed) = mpsc::channel();
    let server = Server::several(SHARED, move |accept| {
        let (mut first, witness) = (accept(), accept());
        first.expect(cmd::WRITE);
        witness.hang_up();
        close.send(()).unwrap();
        first.expect(cmd::FLUSH);
    });
    let gate = server.gate();
    let mut first = open(&gate);
    succeeds(&mut first, write());
    closed.recv().unwrap();
    let refused = Channel::open(&gate, BackendChoice::Auto, 4).err().unwrap().to_string();
    assert!(refused.contains("was restarted"), "{refused}");
    succeeds(&mut first, Request::flush(2));
}

#[test]
fn one_answer_of_the_witness_is_enough_for_all_connections_that_were_made_before() {
    const COUNT: usize = 8;
    let server = Server::several(SHARED, |accept| {
        let (mut first, mut witness) = (accept(), accept());
        let mut others: Vec<Client> = (1..COUNT).map(|_| accept()).collect();
        first.expect(cmd::WRITE);
        witness.expect(cmd::FLUSH);
        others.iter_mut().for_each(|other| drop(other.expect(cmd::WRITE)));
        let last = witness.next();
        assert!(last.is_none_or(|header| header.command == cmd::DISC), "it is asked once more: {last:?}");
    });
    let gate = server.gate();
    let mut channels: Vec<_> = (0..COUNT).map(|_| open(&gate)).collect();
    channels.iter_mut().for_each(|channel| succeeds(channel, write()));
}

#[test]
fn connection_that_was_made_ahead_is_confirmed_when_its_queue_is_opened_and_not_by_its_first_request() {
    let asked = Arc::new(AtomicUsize::new(0));
    let answers = Arc::clone(&asked);
    let server = Server::several(SHARED, move |accept| {
        let (mut first, mut witness) = (accept(), accept());
        let mut second = accept();
        let answering = std::thread::spawn(move || {
            while let Some(header) = witness.next().filter(|header| header.command == cmd::FLUSH) {
                answers.fetch_add(1, Ordering::SeqCst);
                witness.say(&reply::simple(header.cookie, Ok(())));
            }
        });
        second.expect(cmd::WRITE);
        first.expect(cmd::WRITE);
        answering.join().unwrap();
    });
    let gate = server.gate();
    let mut first = open(&gate);
    drop(open(&gate));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let mut second = open(&gate);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    succeeds(&mut second, write());
    succeeds(&mut first, write());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    drop((first, second, gate));
}

#[test]
fn server_that_takes_no_more_connections_is_said_to_and_serves_those_that_it_took() {
    let server = Server::listen(|listener| {
        let accept = || listener.accept().unwrap().0;
        let mut first = Client::greet(accept(), SHARED);
        let _witness = Client::greet(accept(), SHARED);
        drop(accept());
        first.expect(cmd::WRITE);
        first.expect(cmd::FLUSH);
    });
    let gate = server.gate();
    let mut first = open(&gate);
    let refused = Channel::open(&gate, BackendChoice::Auto, 4).err().unwrap().to_string();
    assert!(refused.contains("besides the 1 that are in use") && !refused.contains("is it an NBD"), "{refused}");
    succeeds(&mut first, write());
    succeeds(&mut first, Request::flush(2));
}
