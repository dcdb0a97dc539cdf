//! A server that lets its clients go and carries out later what it had received.

use std::sync::Mutex;
use std::time::Duration;

use cryptline_nbd::wire::cmd;
use cryptline_sys::BackendChoice;

use super::NbdDevice;
use super::again_tests::{BLOCK, LONG, SHARED, Store};
use super::apart::{self, Clients, Kind};
use super::scripted::{Client, Server};
use crate::Fault;

/// Takes a write and lets its client go, and carries it out when others have come and gone: what is made later.
fn makes_later(accept: &dyn Fn() -> Client, store: &Mutex<Store>) {
    let (mut client, witness) = (accept(), accept());
    let late = client.request();
    assert_eq!(late.command, cmd::WRITE);
    let payload = client.bytes(BLOCK);
    drop((client, witness));
    let mut witness = accept();
    let mut client = accept();
    witness.expect(cmd::FLUSH);
    while let Some(header) = client.next().filter(|header| header.command != cmd::DISC) {
        let payload = client.bytes(header.payload_length() as usize);
        let answer = cryptline_sys::lock(store).make(&header, &payload);
        client.say(&answer);
    }
    cryptline_sys::lock(store).make(&late, &payload);
}

/// Checks that a flush that says yes has said so of what is there in the end.
fn write_is_never_made_over_a_later_one(server: Server) {
    let (_gate, mut disk) = server.disk_again(Duration::from_secs(3), BackendChoice::Auto);
    assert_eq!(disk.write_at(0, &[1; BLOCK], false), Err(Fault::Lost));
    assert!(disk.write_at(0, &[2; BLOCK], false).is_err());
    assert_eq!(disk.flush(), Err(Fault::Latched));
    // Its thread waits for more clients, and ends with the process.
    std::mem::forget(server);
}

#[test]
fn write_that_a_server_over_tcp_may_make_later_is_lost_and_latches() {
    let store = Store::new();
    write_is_never_made_over_a_later_one(Server::tcp(SHARED, move |accept| makes_later(accept, &store)));
}

#[test]
fn write_that_a_server_in_the_background_may_make_later_is_lost_and_latches() {
    let store = Store::new();
    let script = move |clients: &mut Clients<'_>| makes_later(&|| clients.accept(), &store);
    write_is_never_made_over_a_later_one(apart::server(Kind::Daemon, SHARED, script));
}

#[test]
fn write_that_a_server_which_lives_on_may_make_later_is_lost_and_latches() {
    let server = apart::server(Kind::Foreground, SHARED, |clients| {
        let (mut client, mut witness) = (clients.accept(), clients.accept());
        witness.expect(cmd::FLUSH);
        assert_eq!(client.request().command, cmd::WRITE);
        drop((client, witness));
        // Until the test ends.
        clients.accept();
    });
    write_is_never_made_over_a_later_one(server);
}

#[test]
fn end_of_a_server_is_known_where_its_process_is() {
    for (kind, is_known) in [(Kind::Foreground, true), (Kind::Daemon, false)] {
        let server = apart::server(kind, SHARED, move |clients| {
            let (mut first, mut witness) = (clients.accept(), clients.accept());
            if is_known {
                witness.expect(cmd::FLUSH);
            }
            first.see_end();
        });
        let device = NbdDevice::open_again(&server.uri, false, Some(LONG)).unwrap();
        assert_eq!(device.repeats_changes(), is_known, "{kind:?}");
    }
}
