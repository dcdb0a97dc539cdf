//! Values of the counters while clients are served.

use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_nbd::wire::cmd;
use cryptline_serve::stats::Times;

use crate::common::raw::Raw;
use crate::common::{BACKENDS, Setup, stack};

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
