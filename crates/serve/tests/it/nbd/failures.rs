//! A medium that stalls or shrinks.

use std::io::Read as _;

use cryptline_engine::BackendChoice;
use cryptline_engine::base::DirectMode;
use cryptline_nbd::NbdError;
use cryptline_nbd::wire::cmd;
use cryptline_testkit::suite::devices;

use crate::common::raw::{Raw, Style};
use crate::common::{BACKENDS, Served, Setup, pattern, stack};

/// Bytes of the clear disk in these tests' stacks that hold known data.
const KNOWN: usize = 2 << 20;

fn fill(served: &Served) -> Vec<u8> {
    let data = pattern(0, KNOWN, 1);
    Raw::connect(served).write(0, &data).expect("written");
    data
}

#[test]
fn medium_that_stalls_for_one_connection_leaves_the_others_fast() {
    let rule = format!("read:offset={}:delay=500", stack::below(0));
    let everyone = |backend| stack::DISPATCHES.map(|dispatch| (backend, dispatch));
    for (backend, dispatch) in BACKENDS.into_iter().flat_map(everyone) {
        for over in stack::faulty(&[&rule], dispatch) {
            println!("{backend:?} {dispatch:?}");
            let served = Setup::new(over).backend(backend).start();
            let data = fill(&served);
            // On a busy machine others may take as long as the stall. They do each time where they wait for it.
            let is_overtaken = (0..8).any(|_| others_overtake_a_stalled_read(&served, &data));
            assert!(is_overtaken, "others wait for the stalled read");
        }
    }
}

/// Tells if another connection's requests are all answered before a read that stalls.
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
    assert_eq!((client.ask(cmd::READ, 0, (0, 2 << 20))).outcome, Err(NbdError::Io), "{direct:?} {cut}");
    assert_eq!((other.ask(cmd::READ, 0, (3 << 19, 4096))).outcome, Err(NbdError::Io));
    assert_eq!(other.flush(), Err(NbdError::Io));
    assert_eq!(client.flush(), Err(NbdError::Io));
    assert!(served.end().is_err());
}
