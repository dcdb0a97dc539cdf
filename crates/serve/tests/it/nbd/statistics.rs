//! Values of the counters while clients are served.

use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_serve::stats::Times;

use crate::common::raw::{Raw, Style, greeted, say};
use crate::common::{BACKENDS, Served, Setup, stack, wait_until};

/// More threads that want a processor than there are, for as long as `work` takes.
fn beside_busy_threads(work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        work();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn cipher_is_a_part_of_the_active_time_whoever_runs_it_and_however_busy_the_machine_is() {
    for backend in BACKENDS {
        for dispatch in stack::DISPATCHES {
            let over = stack::dispatched_over_ram(8 << 20, dispatch);
            let served = Setup::new(over).backend(backend).start();
            beside_busy_threads(|| {
                let mut client = Raw::connect(&served);
                let mut before = Times::default();
                for _ in 0..12 {
                    for command in [cmd::WRITE_ZEROES, cmd::READ] {
                        assert!((client.ask(command, 0, (0, 4 << 20))).outcome.is_ok());
                    }
                    let now = served.snapshot().times;
                    let crypto = now.crypto_ns - before.crypto_ns;
                    let active = now.active_ns - before.active_ns;
                    assert!(crypto <= active, "{backend:?} {dispatch:?}: {now:?}");
                    before = now;
                }
            });
            crate::common::wait_until("it has left", || served.connections() == 0);
            let all = served.snapshot().times;
            assert!(0 < all.crypto_ns && all.crypto_ns <= all.active_ns, "{all:?}");
            assert!(all.busy_ns > 0);
        }
    }
}

/// Failed reads, writes, flushes and other requests.
fn errors(served: &Served) -> [u64; 4] {
    served.snapshot().operations.map(|totals| totals.errors)
}

#[test]
fn request_that_is_refused_has_failed() {
    const SIZE: u64 = 4 << 20;
    for style in [Style::Structured, Style::Simple] {
        let served = Setup::new(stack::crypt_over_ram(SIZE)).start();
        let mut client = Raw::connect_as(&served, style);
        for (command, flags, range) in [
            // Longer than the longest payload, and beyond the end.
            (cmd::READ, 0, (0, 33 << 20)),
            (cmd::READ, 0, (SIZE, 4096)),
            (cmd::WRITE_ZEROES, 0, (SIZE, 4096)),
            (cmd::FLUSH, cmd_flag::NO_HOLE, (0, 0)),
            (99, 0, (0, 4096)),
        ] {
            assert!(client.ask(command, flags, range).outcome.is_err(), "{command}");
        }
        assert!(client.write(SIZE - 512, &[1; 1024]).is_err());
        assert_eq!(errors(&served), [2, 2, 1, 1], "{style:?}");
        client.flush().expect("still in step");
        assert_eq!(errors(&served), [2, 2, 1, 1]);
    }
    let served = Setup::new(stack::file_read_only(SIZE)).start();
    assert!(Raw::connect(&served).write(0, &[1; 4096]).is_err());
    assert_eq!(errors(&served), [0, 1, 0, 0]);
}

#[test]
fn log_says_who_breaks_the_protocol_and_nothing_of_who_looks_whether_there_is_a_server() {
    let served = Setup::new(stack::crypt_over_ram(1 << 20)).start();
    for _ in 0..3 {
        drop(served.dial());
    }
    // Has not read the greeting.
    drop(greeted(&served));
    Raw::connect(&served).flush().expect("flushed");
    let mut garbage = Raw::connect(&served);
    say(&mut garbage.stream, &[0x5a; 28]);
    assert!(garbage.is_closed());
    let mut endless = Raw::connect(&served);
    endless.send(cmd::WRITE, 0, (0, 1 << 30));
    assert!(endless.is_closed());
    wait_until("both are told of", || served.log().len() >= 2);
    let log = served.log();
    let tells = |what: &str| log.iter().any(|line| line.contains(what));
    assert!(log.len() == 2 && tells("0x5a5a5a5a in place of a request") && tells("1073741824 bytes"), "{log:?}");
}
