//! A whole NBD session: a server in this process, over memory that fails by plan, and a client that
//! sends whatever it likes.
//!
//! ```text
//!   setup      4 bytes: backend, replies, pace; which faults, and when
//!   records    8 bytes each: command 1, flags 1, offset 2, length 2, shifts 1, extra 1
//! ```
//!
//! A record becomes a request, most of them valid; some become bytes that are none. Checked is what
//! holds whatever happens: every request is answered once and in the form that was negotiated, a
//! client that waits for each answer reads what it wrote, the server ends, and nothing hangs.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use crate::session::{ClientPace, SIZE, SessionClient};
use cryptline_engine::Gate;
use cryptline_engine::base::RamDevice;
use cryptline_engine::layer::{FaultDevice, FaultPlan, FaultRule};
use cryptline_nbd::TlsMode;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{Export, Exports, Listener, NbdServer, NbdServerOptions, StopHandle};
use cryptline_serve::stats::ExportStats;

/// A session longer than this finds nothing that a shorter one does not.
const RECORDS_MAX: usize = 64;

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some(([setup, fault, nth, _], records)) = data.split_first_chunk::<4>() else {
        return;
    };
    let (address, listener) = crate::listener();
    let listener = [Listener::Unix(listener)];
    let memory = Gate::new(RamDevice::new(SIZE).expect("memory"));
    let export = Export {
        name: String::new(),
        description: String::new(),
        gate: Gate::new(FaultDevice::new(memory, faults(*fault, *nth))),
        // The volume's own.
        minimum_block: 0,
        stats: ExportStats::new(true),
    };
    let exports = Exports::new(vec![export], TlsMode::Off).expect("an offer");
    let options = NbdServerOptions {
        backend: super::backend(*setup),
        poll: Poll::default(),
        tls: None,
        max_connections: 1,
        max_lanes: 1,
        max_handshakes: 1,
        handshake_timeout: Duration::from_secs(60),
        grace: Duration::from_millis(100),
        log: Box::new(|_| ()),
    };
    let server = NbdServer::new(exports, options);
    let stop = StopHandle::new().expect("an eventfd");
    let pulled = stop.clone();
    let served = thread::spawn(move || {
        // The last flush fails where the plan says so.
        let _ = server.run(&listener, &pulled).expect("it could listen");
    });
    let pace = if setup & 2 == 0 { ClientPace::Lockstep } else { ClientPace::Pipelined };
    let stream = UnixStream::connect_addr(&address).expect("connected");
    let client = SessionClient::connect(stream, setup & 4 != 0, pace);
    let (records, _) = records.as_chunks::<8>();
    client.send(&records[..records.len().min(RECORDS_MAX)]);
    stop.stop();
    served.join().expect("the server ended well");
}

/// One rule, or two: each bit of `which` that may say something does.
fn faults(which: u8, nth: u8) -> FaultPlan {
    let on = ["read", "write", "flush", "discard"][usize::from(which & 3)];
    let error = ["EIO", "ENOSPC", "EOPNOTSUPP"][usize::from(which >> 2 & 3) % 3];
    let when = match which >> 4 & 3 {
        0 => return FaultPlan::default(),
        1 => format!("nth={}", u16::from(nth) + 1),
        2 => format!("every={}", u16::from(nth) + 1),
        _ => format!("after={nth}"),
    };
    let late = if which & 64 != 0 { ":late" } else { "" };
    let rule = format!("{on}:{when}:error={error}{late}");
    FaultPlan(vec![rule.parse::<FaultRule>().expect("a rule")])
}
