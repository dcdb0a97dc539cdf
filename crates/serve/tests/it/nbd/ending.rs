//! How connections end: a client that has stopped to ask, a server with several exports.

use std::net::Shutdown;

use cryptline_nbd::wire::cmd;
use cryptline_testkit::suite::devices;

use crate::common::raw::Raw;
use crate::common::turnstile::Turnstile;
use crate::common::{BACKENDS, Setup, stack};

#[test]
fn client_that_only_stops_asking_gets_every_answer() {
    const COUNT: usize = 24;
    const LENGTH: u32 = 40 << 20;
    for backend in BACKENDS {
        for command in [cmd::CACHE, cmd::WRITE_ZEROES, cmd::READ] {
            let disk = Turnstile::new(1 << 30);
            let served = Setup::new(disk.stack()).backend(backend).start();
            let mut client = Raw::connect(&served);
            let length = if command == cmd::READ { 4 << 20 } else { LENGTH };
            for at in 0..COUNT as u64 {
                client.send(command, 0, (at * u64::from(length), length));
            }
            disk.let_pass(3);
            disk.wait_for(3);
            client.stream.shutdown(Shutdown::Write).expect("half closed");
            disk.let_pass(u64::MAX);
            for (_, answer) in client.answers(COUNT) {
                assert!(answer.outcome.is_ok(), "{backend:?} {command}");
            }
            assert!(client.is_closed());
        }
    }
}

#[test]
fn every_export_is_flushed_though_another_cannot_be() {
    let (first, last) = (Turnstile::new(1 << 20), Turnstile::new(1 << 20));
    let broken = devices::faulty(stack::ram(1 << 20), &["flush:nth=1"]);
    let served = Setup::new(first.stack()).export("broken", "", broken).export("last", "", last.stack()).start();
    assert_eq!(served.end().map_err(|(name, _)| name), Err("broken".to_owned()));
    assert_eq!((first.flushes(), last.flushes()), (1, 1));
}
