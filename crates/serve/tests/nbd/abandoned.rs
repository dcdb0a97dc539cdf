//! Work that nobody waits for any more: the client is gone, or the server has to stop. It ends within
//! so many chunks, however much was asked.

use std::net::Shutdown;
use std::time::Duration;

use cryptline_nbd::wire::cmd;
use cryptline_testkit::suite::devices;

use crate::common::raw::{Raw, say};
use crate::common::turnstile::Turnstile;
use crate::common::{BACKENDS, Setup, stack, wait_until};

/// Requests that a connection serves at a time.
const JOBS_MAX: usize = 64;
const GIB: u32 = 1 << 30;
/// Chunks that a connection begins between two looks for its client.
const UNWATCHED: u64 = 8;
/// What a client can ask for with a few bytes.
const ENDLESS: [u16; 3] = [cmd::CACHE, cmd::WRITE_ZEROES, cmd::TRIM];

/// As many requests as are served at a time, of 1 GiB each: 28 bytes for hours of work.
fn ask_for_everything(client: &mut Raw, command: u16) {
    let requests = (0..JOBS_MAX as u64).map(|at| (at * u64::from(GIB), GIB));
    let requests: Vec<_> = requests
        .map(|range| client.encode(command, 0, range).1)
        .collect();
    say(&mut client.stream, &requests.concat());
}

fn disk() -> Turnstile {
    Turnstile::new(JOBS_MAX as u64 * u64::from(GIB))
}

#[test]
fn server_stops_at_the_next_chunk_of_whatever_was_asked() {
    for backend in BACKENDS {
        for command in ENDLESS {
            let disk = disk();
            let served = Setup::new(disk.stack())
                .backend(backend)
                .with(|options| options.grace = Duration::ZERO)
                .start();
            let mut client = Raw::connect(&served);
            ask_for_everything(&mut client, command);
            disk.let_pass(5);
            disk.wait_for(5);
            served.stop();
            // The connection is cut: from now on nothing is worth its while.
            assert!(client.is_closed());
            // The chunk that is in the medium's hands ends; nothing can take it back.
            disk.let_pass(1);
            wait_until("it stops with no more than that", || served.is_over());
            assert_eq!(disk.passed(), 6, "{backend:?} {command}");
            assert_eq!(disk.flushes(), 1, "what others wrote is safe");
            let log = served.log();
            assert!(
                log[0].contains("64 of its requests were not done"),
                "{log:?}"
            );
            served.end_well();
        }
    }
}

#[test]
fn work_for_a_client_that_is_gone_ends_soon() {
    for backend in BACKENDS {
        for command in ENDLESS {
            let disk = disk();
            let served = Setup::new(disk.stack()).backend(backend).start();
            let mut client = Raw::connect(&served);
            ask_for_everything(&mut client, command);
            disk.let_pass(5);
            disk.wait_for(5);
            drop(client);
            disk.let_pass(UNWATCHED + 1);
            wait_until("its thread is free", || served.connections() == 0);
            let passed = disk.passed();
            assert!(passed <= 5 + UNWATCHED + 1, "{passed}");
            disk.let_pass(u64::MAX);
            let mut other = Raw::connect(&served);
            other.write(0, &[1; 4096]).expect("others are served");
            other.flush().expect("and nothing of theirs is lost");
            served.end_well();
        }
    }
}

#[test]
fn client_that_only_stops_asking_gets_every_answer() {
    const COUNT: usize = 24;
    const LENGTH: u32 = 40 << 20;
    for backend in BACKENDS {
        for command in [ENDLESS[0], ENDLESS[1], cmd::READ] {
            let disk = disk();
            let served = Setup::new(disk.stack()).backend(backend).start();
            let mut client = Raw::connect(&served);
            let length = if command == cmd::READ {
                4 << 20
            } else {
                LENGTH
            };
            for at in 0..COUNT as u64 {
                client.send(command, 0, (at * u64::from(length), length));
            }
            disk.let_pass(3);
            disk.wait_for(3);
            client
                .stream
                .shutdown(Shutdown::Write)
                .expect("half closed");
            disk.let_pass(u64::MAX);
            for (_, answer) in client.answers(COUNT) {
                assert!(answer.outcome.is_ok(), "{backend:?} {command}");
            }
            assert!(client.is_closed());
            served.end_well();
        }
    }
}

#[test]
fn stop_does_not_wait_for_a_slow_medium_whoever_runs_the_cipher() {
    for backend in BACKENDS {
        for dispatch in stack::DISPATCHES {
            for command in [cmd::CACHE, cmd::WRITE_ZEROES] {
                let disk = disk();
                disk.let_pass(u64::MAX);
                let slow = "read=20ms,write=20ms,discard=20ms,parallel=1";
                let slow = devices::delayed(disk.stack(), slow);
                let over = devices::dispatched(slow, &stack::AES_4096, dispatch);
                let served = Setup::new(over)
                    .backend(backend)
                    .with(|options| options.grace = Duration::from_millis(50))
                    .start();
                let mut client = Raw::connect(&served);
                let requests = (0..JOBS_MAX as u64 - 1).map(|at| (at * u64::from(GIB), GIB));
                for range in requests {
                    client.send(command, 0, range);
                }
                wait_until("it has begun", || disk.passed() > 0);
                // All of it would take more than an hour.
                served.end_well();
            }
        }
    }
}

#[test]
fn every_export_is_flushed_though_another_cannot_be() {
    let (first, last) = (Turnstile::new(1 << 20), Turnstile::new(1 << 20));
    let broken = devices::faulty(stack::ram(1 << 20), &["flush:nth=1"]);
    let served = Setup::new(first.stack())
        .export("broken", "", broken)
        .export("last", "", last.stack())
        .start();
    let ended = served.end();
    assert_eq!(ended.map_err(|(name, _)| name), Err("broken".to_owned()));
    assert_eq!((first.flushes(), last.flushes()), (1, 1));
}
