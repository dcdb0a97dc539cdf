//! A device of the kernel's NBD client as a front under test.

use std::path::Path;
use std::sync::Arc;

use cryptline_serve::device::EndError;
use cryptline_serve::kernel_nbd::{self, KernelNbd, NbdAttachOptions};
use cryptline_testkit::suite::Fresh;
use rustix::io::Errno;

use crate::front::client::{How, Server};
use crate::front::device::{Kind, QUEUES, Served, Serving};

const KIND: Kind = Kind {
    number: |error| match error {
        // By the kernel itself.
        Errno::PERM => error,
        _ => Errno::IO,
    },
    detach: |device| kernel_nbd::detach(number(device)).expect("taken away"),
};

fn number(device: &Path) -> u32 {
    let name = device.to_str().and_then(|it| it.strip_prefix("/dev/nbd"));
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
    let options = NbdAttachOptions {
        backend: serving.how.backend,
        connections: QUEUES.into(),
        index: None,
        block: 512,
        timeout: None,
        stats: Arc::clone(&serving.stats),
        grace: serving.how.grace,
    };
    let (gate, stop) = (serving.gate.clone(), serving.stop.clone());
    let device = KernelNbd::attach(gate, options, stop).expect("a device");
    serving.is_made(device.path());
    device.serve();
    device.end(|line| serving.log(line))
}
