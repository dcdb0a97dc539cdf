//! A medium that stalls or shrinks.

use std::io::Read as _;

use cryptline_engine::base::DirectMode;
use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::{BackendChoice, Fault};
use cryptline_nbd::NbdError;
use cryptline_nbd::wire::cmd;
use cryptline_testkit::suite::{Fresh, devices};

use crate::common::raw::{Raw, Style};
use crate::common::{BACKENDS, Served, Setup, pattern, stack};

/// Bytes of the clear disk in these tests' stacks that hold known data.
const KNOWN: usize = 2 << 20;

/// AES over a faulty disk in memory, and over a faulty file: 3 MiB.
fn faulty(rules: &[&str], dispatch: Dispatch) -> [Fresh; 2] {
    [stack::ram(3 << 20), stack::file(3 << 20, DirectMode::Auto)]
        .map(|base| devices::dispatched(devices::faulty(base, rules), &stack::AES_4096, dispatch))
}

/// Runs `check` on each stack with these faults, over each backend, whoever runs the cipher. It says
/// what the last flush must say.
fn with_faults(rules: &[&str], check: impl Fn(&Served) -> Result<(), Fault>) {
    let everyone = |backend| stack::DISPATCHES.map(|dispatch| (backend, dispatch));
    for (backend, dispatch) in BACKENDS.into_iter().flat_map(everyone) {
        for over in faulty(rules, dispatch) {
            println!("{rules:?} {backend:?} {dispatch:?}");
            let served = Setup::new(over).backend(backend).start();
            let expected = check(&served);
            assert_eq!(served.end().map_err(|(_, fault)| fault), expected);
        }
    }
}

/// A byte of the clear disk as a byte of the disk below.
fn below(offset: u64) -> u64 {
    stack::AES_4096.start + offset
}

fn fill(served: &Served) -> Vec<u8> {
    let data = pattern(0, KNOWN, 1);
    Raw::connect(served).write(0, &data).expect("written");
    data
}

#[test]
fn medium_that_stalls_for_one_connection_leaves_the_others_fast() {
    let rule = format!("read:offset={}:delay=500", below(0));
    with_faults(&[&rule], |served| {
        let data = fill(served);
        // On a busy machine others may take as long as the stall. They do each time where they wait for it.
        let is_overtaken = (0..8).any(|_| others_overtake_a_stalled_read(served, &data));
        assert!(is_overtaken, "others wait for the stalled read");
        Ok(())
    });
}

/// Whether another connection's requests are all answered before a read that stalls.
fn others_overtake_a_stalled_read(served: &Served, data: &[u8]) -> bool {
    let [mut stalled, mut other] = [Raw::connect(served), Raw::connect(served)];
    let slow = stalled.send(cmd::READ, 0, (0, 4096));
    for block in 1..200 {
        let read = other.read(block * 4096, 4096);
        assert!(read == data[usize::try_from(block).expect("small") * 4096..][..4096]);
    }
    other.flush().expect("not held up");
    stalled.stream.set_nonblocking(true).expect("a flag");
    let mut early = [0; 1];
    match stalled.stream.read(&mut early) {
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        Ok(_) => return false,
    }
    stalled.stream.set_nonblocking(false).expect("a flag");
    assert!(stalled.answer_to(slow).data() == data[..4096]);
    true
}

#[test]
fn image_that_shrinks_gives_errors_and_never_data() {
    for backend in BACKENDS {
        for direct in [DirectMode::Auto, DirectMode::Off] {
            for cut in [1 << 20, (1 << 20) + 512, (1 << 20) + 5000] {
                shrink(backend, direct, cut);
            }
        }
    }
}

fn shrink(backend: BackendChoice, direct: DirectMode, cut: u64) {
    let (base, path) = stack::file_at(3 << 20, direct, false);
    let served = Setup::new(devices::crypt(base, &stack::AES_4096)).backend(backend).start();
    let data = fill(&served);
    let [mut client, mut other] = [Raw::connect(&served), Raw::connect_as(&served, Style::Simple)];
    client.flush().expect("flushed");
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|file| file.set_len(cut)).expect("cut short");
    assert!(client.read(0, 4096) == data[..4096], "still there");
    let across = client.ask(cmd::READ, 0, (0, 2 << 20));
    assert_eq!(across.outcome, Err(NbdError::Io), "{direct:?} {cut}");
    let behind = other.ask(cmd::READ, 0, (3 << 19, 4096));
    assert_eq!(behind.outcome, Err(NbdError::Io));
    assert_eq!(other.flush(), Err(NbdError::Io));
    assert_eq!(client.flush(), Err(NbdError::Io));
    assert!(served.end().is_err());
}
