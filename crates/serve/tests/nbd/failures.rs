//! A medium that fails: each error reaches the request it belongs to, and nobody else.

use std::collections::HashMap;
use std::io::Read as _;

use cryptline_engine::base::DirectMode;
use cryptline_engine::dispatch::Dispatch;
use cryptline_engine::{BackendChoice, Fault};
use cryptline_nbd::NbdError;
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_testkit::suite::{Fresh, devices};

use crate::common::raw::{Raw, Style, say};
use crate::common::{BACKENDS, Served, Setup, pattern, stack};

/// Requests that a connection serves at a time.
const JOBS_MAX: usize = 64;
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
fn failed_read_is_the_only_one_that_fails() {
    let rule = format!("read:offset={}", below(17 * 4096 + 5));
    with_faults(&[&rule], |served| {
        let data = fill(served);
        for style in [Style::Structured, Style::Simple] {
            let mut client = Raw::connect_as(served, style);
            let mut block_of = HashMap::new();
            for block in 0..60 {
                let cookie = client.send(cmd::READ, 0, (block * 4096, 4096));
                block_of.insert(cookie, usize::try_from(block).expect("small"));
            }
            for (cookie, answer) in client.answers(60) {
                match block_of[&cookie] {
                    17 => assert_eq!(answer.outcome, Err(NbdError::Io)),
                    block => assert!(answer.data() == data[block * 4096..][..4096]),
                }
            }
            client.flush().expect("a failed read loses nothing");
        }
        Ok(())
    });
}

#[test]
fn large_read_fails_whole_and_gives_no_wrong_data() {
    let rule = format!("read:offset={}", below(700_000));
    with_faults(&[&rule], |served| {
        let data = fill(served);
        for style in [Style::Structured, Style::Simple] {
            let mut client = Raw::connect_as(served, style);
            let first = client.send(cmd::READ, 0, (0, 2 << 20));
            let second = client.send(cmd::READ, 0, (1 << 20, 1 << 20));
            let mut answers = client.answers(2);
            let failed = answers.remove(&first).expect("answered");
            assert_eq!(failed.outcome, Err(NbdError::Io));
            let good = answers.remove(&second).expect("answered").data();
            assert!(good == data[1 << 20..]);
        }
        Ok(())
    });
}

/// A large read that fails while it has chunks to begin frees its place among the jobs; the write
/// that gets the place must be served as a write.
#[test]
fn write_behind_a_failed_large_read_is_not_taken_for_it() {
    const LARGE: u32 = 6 << 20;
    const PIECE: usize = 512 << 10;
    for backend in BACKENDS {
        let base = stack::file(LARGE.into(), DirectMode::Auto);
        let faulty = devices::faulty(base, &["read:nth=2:late"]);
        let served = Setup::new(faulty).backend(backend).start();
        let mut client = Raw::connect(&served);
        // The read and slow flushes take all places, so the write waits for the read's.
        let (read, mut bytes) = client.encode(cmd::READ, 0, (0, LARGE));
        for _ in 1..JOBS_MAX {
            bytes.extend(client.encode(cmd::FLUSH, 0, (0, 0)).1);
        }
        let data = pattern(0, PIECE, 7);
        let (write, request) = client.encode_write(0, 0, &data);
        bytes.extend(request);
        say(&mut client.stream, &bytes);
        let answers = client.answers(JOBS_MAX + 1);
        assert_eq!(answers[&read].outcome, Err(NbdError::Io));
        assert!(answers[&write].outcome.is_ok());
        assert!(
            client.read(0, u32::try_from(PIECE).expect("small")) == data,
            "{backend:?}"
        );
        served.end_well();
    }
}

#[test]
fn failed_write_fails_every_flush_until_the_volume_is_reopened() {
    let rule = format!("write:offset={}", below(1 << 20));
    with_faults(&[&rule], |served| {
        let [mut writer, mut other] = [Raw::connect(served), Raw::connect(served)];
        writer.write(0, &pattern(0, 4096, 1)).expect("elsewhere");
        other.flush().expect("nothing has failed yet");
        assert_eq!(writer.write(1 << 20, &[1; 4096]), Err(NbdError::Io));
        let mut late = Raw::connect(served);
        for client in [&mut writer, &mut other, &mut late] {
            assert_eq!(client.flush(), Err(NbdError::Io));
            assert_eq!(client.flush(), Err(NbdError::Io));
            assert!(client.read(0, 4096) == pattern(0, 4096, 1));
        }
        Err(Fault::Latched)
    });
}

#[test]
fn failed_chunk_of_a_large_write_fails_the_write_and_keeps_the_connection_in_step() {
    let rule = format!("write:offset={}", below(300_000));
    with_faults(&[&rule], |served| {
        let mut client = Raw::connect(served);
        let data = pattern(0, KNOWN, 5);
        let large = client.send_write(0, 0, &data);
        let small = client.send_write(0, KNOWN as u64, &data[..4096]);
        let answers = client.answers(2);
        assert_eq!(answers[&large].outcome, Err(NbdError::Io));
        assert!(answers[&small].outcome.is_ok());
        assert!(client.read(KNOWN as u64, 4096) == data[..4096]);
        Err(Fault::Latched)
    });
}

#[test]
fn full_disk_is_told_and_does_not_fail_later_flushes() {
    with_faults(&["write:nth=2:error=ENOSPC"], |served| {
        let mut client = Raw::connect(served);
        client.write(0, &[1; 4096]).expect("there is room");
        assert_eq!(client.write(4096, &[2; 4096]), Err(NbdError::NoSpc));
        client.write(4096, &[3; 4096]).expect("there is room again");
        client.flush().expect("nothing that was promised is lost");
        assert!(client.read(4096, 4096) == [3; 4096]);
        Ok(())
    });
}

#[test]
fn failed_flush_is_told_and_no_later_one_lies() {
    with_faults(&["flush:nth=1"], |served| {
        let [mut first, mut second] = [Raw::connect(served), Raw::connect(served)];
        first.write(0, &[1; 4096]).expect("written");
        assert_eq!(first.flush(), Err(NbdError::Io));
        assert_eq!(second.flush(), Err(NbdError::Io));
        Err(Fault::Latched)
    });
}

#[test]
fn failed_discard_and_failed_durable_write_are_told() {
    with_faults(&["discard:nth=1", "write:nth=3"], |served| {
        let mut client = Raw::connect(served);
        let trim = client.ask(cmd::TRIM, 0, (0, 8192));
        assert_eq!(trim.outcome, Err(NbdError::Io));
        client.write(0, &[1; 4096]).expect("written");
        client.write(4096, &[1; 4096]).expect("written");
        assert_eq!(
            client.write_with(cmd_flag::FUA, 0, &[2; 4096]),
            Err(NbdError::Io)
        );
        Err(Fault::Latched)
    });
}

#[test]
fn failed_write_of_zeros_is_told() {
    with_faults(&["write:nth=3"], |served| {
        let mut client = Raw::connect(served);
        let zeros = client.ask(cmd::WRITE_ZEROES, 0, (0, 1 << 20));
        assert_eq!(zeros.outcome, Err(NbdError::Io));
        Err(Fault::Latched)
    });
}

#[test]
fn zeroing_that_the_medium_cannot_do_is_written_unless_it_must_be_fast() {
    for backend in BACKENDS {
        let plan = [
            "write:nth=1:error=EOPNOTSUPP",
            "write:nth=2:error=EOPNOTSUPP",
        ];
        let over = devices::crypt(devices::faulty(stack::ram(3 << 20), &plan), &stack::NULL);
        let served = Setup::new(over).backend(backend).start();
        let mut client = Raw::connect(&served);
        let fast = client.ask(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, (0, 1 << 20));
        assert_eq!(fast.outcome, Err(NbdError::NotSup));
        let slow = client.ask(cmd::WRITE_ZEROES, cmd_flag::FUA, (0, 1 << 20));
        assert_eq!(slow.outcome, Ok(vec![]));
        assert!(client.read(0, 1 << 20).iter().all(|byte| *byte == 0));
        served.end_well();
    }
}

#[test]
fn refused_flush_behind_zeroing_is_answered_and_not_taken_for_refused_zeroing() {
    for backend in BACKENDS {
        let over = devices::faulty(stack::ram(3 << 20), &["flush:nth=1:error=EOPNOTSUPP"]);
        let served = Setup::new(over).backend(backend).start();
        let mut client = Raw::connect(&served);
        client.write(0, &[1; 8192]).expect("written");
        let zeroing = client.ask(cmd::WRITE_ZEROES, cmd_flag::FUA, (0, 8192));
        assert!(zeroing.outcome.is_err(), "nobody knows that it is durable");
        assert_eq!(client.read(0, 8192), [0; 8192], "the connection goes on");
    }
}

#[test]
fn trim_that_the_medium_cannot_do_is_no_error() {
    with_faults(&["discard:error=EOPNOTSUPP"], |served| {
        let mut client = Raw::connect(served);
        client.write(0, &[1; 4096]).expect("written");
        let trim = client.ask(cmd::TRIM, cmd_flag::FUA, (0, 8192));
        assert_eq!(trim.outcome, Ok(vec![]));
        client.flush().expect("nothing is lost");
        Ok(())
    });
}

#[test]
fn medium_that_stalls_for_one_connection_leaves_the_others_fast() {
    let rule = format!("read:offset={}:delay=1500", below(0));
    with_faults(&[&rule], |served| {
        let data = fill(served);
        let [mut stalled, mut other] = [Raw::connect(served), Raw::connect(served)];
        let slow = stalled.send(cmd::READ, 0, (0, 4096));
        for block in 1..200 {
            let read = other.read(block * 4096, 4096);
            assert!(read == data[usize::try_from(block).expect("small") * 4096..][..4096]);
        }
        other.flush().expect("not held up");
        // All of that has happened before the stalled read was answered.
        stalled.stream.set_nonblocking(true).expect("a flag");
        let mut early = [0; 1];
        let nothing = stalled
            .stream
            .read(&mut early)
            .map_err(|error| error.kind());
        assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock));
        stalled.stream.set_nonblocking(false).expect("a flag");
        assert!(stalled.answer_to(slow).data() == data[..4096]);
        Ok(())
    });
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
    let served = Setup::new(devices::crypt(base, &stack::AES_4096))
        .backend(backend)
        .start();
    let data = fill(&served);
    let [mut client, mut other] = [
        Raw::connect(&served),
        Raw::connect_as(&served, Style::Simple),
    ];
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
