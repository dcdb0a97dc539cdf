//! The polling of a server, by the processors that it has. The rest of `serve` is in ../cases.

use crate::server::{Server, value};
use cryptline_engine::dispatch::usable_cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[test]
fn default_polls_with_io_uring_and_two_processors_and_never_with_one() {
    const NO_RING: &str = "never (it needs io_uring)";
    let poll = |options: &[&str]| value(&said(options), "poll").to_owned();
    assert_eq!(poll(&["--poll-us=0"]), "never");
    assert_eq!(poll(&["--io=preadv"]), NO_RING);
    assert_eq!(poll(&["--poll-us=50", "--io=preadv"]), NO_RING);
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
    // Of this thread alone, and of the servers that it starts.
    sched_setaffinity(None, &one).unwrap();
    let (default, asked) = (poll(&[]), poll(&["--poll-us=50"]));
    sched_setaffinity(None, &all).unwrap();
    let has_ring = asked != NO_RING;
    assert_eq!(asked, if has_ring { "50 µs" } else { NO_RING });
    // Its clients may be on the others, if the machine has others.
    const SHARED: &str = "64 µs, one thread at a time";
    let one_of = if has_ring { &[SHARED, "never (one processor)"][..] } else { &[NO_RING] };
    assert!(one_of.contains(&&*default), "{default}");
    if has_ring && usable_cores() >= 2.0 {
        let all = poll(&[]);
        assert!(all.starts_with("64 µs, ") && all.ends_with(" at a time"), "{all}");
    }
}

/// Returns what a server of a RAM disk says when it starts.
fn said(options: &[&str]) -> String {
    let server = Server::start(["ram:1M", "-v"].into_iter().chain(options.iter().copied()));
    server.stop().stderr_text().replace("cryptline: ", "")
}
