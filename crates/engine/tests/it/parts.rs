//! Requests of which two parts end differently, over every layer that cuts requests: the worse end is told, and a refusal
//! only where nothing was changed.

use cryptline_engine::{Fault, Op};
use cryptline_testkit::suite::devices::{self, AES_4096, AUTO, CBC_4096, INLINE, QUEUE, QUEUE_FLAGS};
use cryptline_testkit::suite::{Driver, Fresh, Setup};

use crate::covering::Exclusion;

/// Where the write begins that is looked at, but for five blocks before it.
const BORDER: u64 = 1 << 20;

/// Delay of the medium, see `delay`.
const LATER: &str = "read=100us,write=2ms,flush=100us,parallel=8";

/// A layer that cuts a request which begins and ends within sectors, and crosses byte `BORDER`.
type Layer = (&'static str, fn(Fresh) -> Fresh);

/// Two ranges of a device that meet at byte `BORDER`.
fn swapped(lower: Fresh) -> Fresh {
    let at = lower.gate.size() - BORDER;
    devices::swapped(lower, at)
}

const LAYERS: [Layer; 8] = [
    ("linear", |lower| swapped(lower)),
    ("linear over linear", |lower| swapped(devices::sliced(lower, 4096, 8192))),
    ("small blocks", |lower| devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Shared, INLINE)),
    ("small blocks, exclusive", |lower| devices::in_blocks(lower, &CBC_4096, 512, Exclusion::Exclusive, AUTO)),
    ("small blocks over linear", |lower| devices::in_blocks(swapped(lower), &CBC_4096, 512, Exclusion::Shared, INLINE)),
    ("crypt with helpers", |lower| devices::dispatched(lower, &AES_4096, AUTO)),
    ("crypt under a queue", |lower| devices::dispatched(lower, &AES_4096, QUEUE)),
    ("crypt under a queue with flags over linear", |lower| devices::dispatched(swapped(lower), &AES_4096, QUEUE_FLAGS)),
];

/// How a long write ends, and whether the device below has lost something, where its first parts below fail by `rules`.
fn write_over(layer: Layer, rules: &[&str], setup: Setup, durable: bool) -> (Result<(), Fault>, bool) {
    // It answers later, when tables have grown for all parts and the thread has had its turn: a part that has failed keeps
    // the others from being sent.
    let slow = devices::delayed(devices::ram().expect("memory"), LATER);
    let faulty = devices::faulty(slow, rules);
    let below = faulty.gate.clone();
    let fresh = (layer.1)(faulty);
    let mut driver = Driver::new(&fresh.gate, setup);
    let block = driver.block();
    let mut request = driver.write_request(BORDER - 5 * block, 1 << 17, 3, 1);
    request.op = Op::write(durable);
    (driver.run(request).result, below.is_latched())
}

/// Plays these rules over every layer; `check` is given the end, whether something was lost below, and the layer's name.
fn over_every_layer(rules: &[&str], check: impl Fn(Result<(), Fault>, bool, &str)) {
    for layer in LAYERS {
        for setup in Setup::ALL {
            for durable in [false, true] {
                println!("{rules:?} {} {setup:?} durable: {durable}", layer.0);
                let (result, is_lost) = write_over(layer, rules, setup, durable);
                check(result, is_lost, layer.0);
            }
        }
    }
}

#[test]
fn worse_of_two_ends_is_told_whichever_came_first() {
    for less in ["ENOSPC", "EOPNOTSUPP"] {
        for (first, second) in [(less, "EIO"), ("EIO", less)] {
            let [first, second] =
                [(1, first), (2, second)].map(|(nth, error)| format!("write:nth={nth}:error={error}:late"));
            over_every_layer(&[&first, &second], |result, is_lost, layer| {
                // One that did not cut it has met the first fault only.
                assert_eq!(matches!(result, Err(Fault::Io(_))), is_lost, "{result:?}");
                assert!(result.is_err());
                let cuts = layer.starts_with("linear") || layer.starts_with("small");
                assert!(is_lost || !cuts, "{layer} did not cut it");
            });
        }
    }
}

#[test]
fn what_was_done_in_part_was_not_refused() {
    over_every_layer(&["write:nth=2:error=EOPNOTSUPP"], |result, is_lost, layer| {
        assert!(!is_lost);
        let cuts = layer.starts_with("linear") || layer.starts_with("small");
        let expected = if cuts { Err(Fault::Partly) } else { result };
        assert_eq!(result, expected, "{layer}");
        assert!(!result.is_err_and(Fault::is_refusal), "{layer}: something was changed");
    });
}
