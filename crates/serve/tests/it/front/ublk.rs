//! A ublk device as a front under test.

use std::path::Path;
use std::sync::Arc;

use cryptline_serve::device::EndError;
use cryptline_serve::ublk::{self, Ublk, UblkOptions};
use cryptline_testkit::suite::Fresh;

use crate::front::client::{How, Server};
use crate::front::device::{Kind, QUEUES, Served, Serving};

const KIND: Kind = Kind { number: |error| error, detach: |device| ublk::detach(number(device)).expect("taken away") };

fn number(device: &Path) -> u32 {
    let name = device.to_str().and_then(|it| it.strip_prefix("/dev/ublkb"));
    name.and_then(|it| it.parse().ok()).expect("a number")
}

/// The front.
pub fn front(over: Fresh, how: How) -> Box<dyn Server> {
    Box::new(start(over, how))
}

/// A server.
pub fn start(over: Fresh, how: How) -> Served {
    Served::start(over, how, KIND, run)
}

fn run(serving: &Serving) -> Result<(), EndError> {
    let options = UblkOptions {
        queues: QUEUES,
        block: 512,
        stats: Arc::clone(&serving.stats),
        grace: serving.how.grace,
        on_failure: Arc::new(|why| {
            eprintln!("{why}");
            std::process::exit(101);
        }),
    };
    let (gate, stop) = (serving.gate.clone(), serving.stop.clone());
    let mut device = Ublk::attach(gate, options, stop, |_, _| {}).expect("a device");
    serving.is_made(device.path());
    device.serve(|_| {}, || {}, |line| serving.log(line));
    device.end(|line| serving.log(line))
}
