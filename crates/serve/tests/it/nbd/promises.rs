//! Promises of the flags: durability across connections, and every limit of a request.

use cryptline_engine::base::DirectMode;
use cryptline_nbd::wire::{STATE_HOLE, STATE_ZERO, cmd, cmd_flag};
use cryptline_nbd::{NbdError, TransmissionFlags};
use cryptline_testkit::suite::devices;

use crate::common::raw::{Raw, Style};
use crate::common::{BACKENDS, Setup, pattern, stack};

#[test]
fn flush_on_one_connection_covers_writes_completed_on_all() {
    for backend in BACKENDS {
        let disk = stack::VolatileDisk::new(1 << 20);
        let served = Setup::new(disk.stack()).backend(backend).start();
        let mut writers: Vec<Raw> = (0..4).map(|_| Raw::connect(&served)).collect();
        let mut flusher = Raw::connect(&served);
        assert!(flusher.flags.contains(TransmissionFlags::CAN_MULTI_CONN));
        let mut expected = vec![0; 1 << 20];
        for (index, writer) in writers.iter_mut().enumerate() {
            let data = pattern(0, 70_144, index as u64);
            writer.write(index as u64 * 131_072, &data).expect("written");
            expected[index * 131_072..][..data.len()].copy_from_slice(&data);
        }
        assert!(disk.stable().iter().all(|byte| *byte == 0), "not flushed yet");
        flusher.flush().expect("flushed");
        assert!(disk.stable() == expected);
        assert_eq!(disk.flushes(), 1);
        drop(served);
        assert_eq!(disk.flushes(), 2, "the server flushes when it stops");
    }
}

#[test]
fn unflushed_data_is_flushed_when_the_server_stops() {
    let disk = stack::VolatileDisk::new(1 << 20);
    let served = Setup::new(devices::crypt(disk.stack(), &stack::AES_512)).start();
    let mut client = Raw::connect(&served);
    client.write(0, &pattern(0, 4096, 1)).expect("written");
    let before = disk.stable();
    drop(served);
    assert!(disk.stable() != before);
}

#[test]
fn limits_of_a_request_have_their_errors() {
    use cmd::{CACHE, READ, TRIM, WRITE_ZEROES};
    let served = Setup::new(stack::crypt_over_ram(4 << 20)).start();
    for style in [Style::Structured, Style::Simple] {
        let mut client = Raw::connect_as(&served, style);
        let size = client.size;
        let end = size - 512;
        for (command, range, error) in [
            (READ, (0, 0), NbdError::Inval),
            (READ, (1, 512), NbdError::Inval),
            (READ, (0, 511), NbdError::Inval),
            (READ, (size, 512), NbdError::Inval),
            (READ, (end, 1024), NbdError::Inval),
            (READ, (u64::MAX - 511, 1024), NbdError::Inval),
            (WRITE_ZEROES, (end, 1024), NbdError::NoSpc),
            (WRITE_ZEROES, (0, 0), NbdError::Inval),
            (TRIM, (end, 1024), NbdError::Inval),
            (TRIM, (100, 512), NbdError::Inval),
            (CACHE, (0, u32::MAX - 511), NbdError::Inval),
            (cmd::FLUSH, (512, 512), NbdError::Inval),
            (99, (0, 512), NbdError::Inval),
        ] {
            assert_eq!(client.ask(command, 0, range).outcome, Err(error), "{command} {range:?}");
        }
        let too_long = client.ask(READ, 0, (0, (32 << 20) + 512)).outcome;
        let structured = style == Style::Structured;
        let expected = if structured { NbdError::Overflow } else { NbdError::Inval };
        assert_eq!(too_long, Err(expected));
        // Flags that do not belong to the command, or were not advertised.
        for (command, flags) in [(READ, cmd_flag::FAST_ZERO), (READ, 1 << 9), (cmd::FLUSH, cmd_flag::DF)] {
            let range = if command == READ { (0, 512) } else { (0, 0) };
            assert_eq!(client.ask(command, flags, range).outcome, Err(NbdError::Inval));
        }
        assert_eq!(client.ask(READ, cmd_flag::DF, (0, 262_144)).outcome.is_ok(), structured);
        assert_eq!(client.ask(cmd::BLOCK_STATUS, 0, (0, 4096)).outcome.is_ok(), structured);
        assert_eq!(client.read(end, 512).len(), 512, "the last block is there");
    }
}

#[test]
fn refused_write_takes_its_payload_with_it() {
    for backend in BACKENDS {
        let served = Setup::new(stack::crypt_over_ram(4 << 20)).backend(backend).start();
        let mut client = Raw::connect(&served);
        let size = client.size;
        for (offset, len, error) in [
            (7, 512, NbdError::Inval),
            (0, 77, NbdError::Inval),
            (size - 512, 1024, NbdError::NoSpc),
            (u64::MAX - 511, 512, NbdError::NoSpc),
            (0, (32 << 20) + 512, NbdError::Inval),
            (0, 64 << 20, NbdError::Inval),
        ] {
            assert_eq!(client.write(offset, &vec![0x25; len]), Err(error), "{offset} {len}");
            client.flush().expect("still in step");
        }
    }
}

#[test]
fn read_only_export_refuses_every_change_with_eperm() {
    let served = Setup::new(devices::crypt(stack::file_read_only(1 << 20), &stack::AES_4096)).start();
    let mut client = Raw::connect(&served);
    assert!(client.flags.contains(TransmissionFlags::READ_ONLY));
    assert!(!client.flags.contains(TransmissionFlags::SEND_TRIM));
    assert_eq!(client.write(0, &[1; 4096]), Err(NbdError::Perm));
    for command in [cmd::TRIM, cmd::WRITE_ZEROES] {
        assert_eq!(client.ask(command, 0, (0, 4096)).outcome, Err(NbdError::Perm));
    }
    assert_eq!(client.read(0, 4096).len(), 4096);
    client.flush().expect("nothing to flush");
}

#[test]
fn four_gibibytes_are_zeroed_beside_another_write() {
    let size = 5 << 30;
    let over = devices::crypt(stack::file(size, DirectMode::Off), &stack::NULL);
    let served = Setup::new(over).start();
    let mut client = Raw::connect(&served);
    let (mut sent, data) = (Vec::new(), pattern(4 << 30, 1 << 20, 1));
    sent.push(client.send(cmd::WRITE_ZEROES, 0, (0, u32::MAX - 4095)));
    sent.push(client.send_write(0, (4 << 30) + 4096, &data));
    let answers = client.answers(2);
    assert!(sent.iter().all(|cookie| answers[cookie].outcome.is_ok()));
    assert!(client.read((4 << 30) + 4096, 1 << 20) == data);
}

#[test]
fn block_status_calls_holes_what_they_read_as() {
    let file = || stack::file(4 << 20, DirectMode::Off);
    let hole = STATE_HOLE | STATE_ZERO;
    for (over, expected) in [
        (devices::crypt(file(), &stack::NULL), &[hole, 0, hole][..]),
        (devices::sparse(file(), &stack::AES_4096), &[hole, 0, hole]),
        // Noise, and so data; all of it is one run.
        (devices::crypt(file(), &stack::AES_4096), &[0]),
    ] {
        let served = Setup::new(over).start();
        let mut client = Raw::connect(&served);
        client.write(1 << 20, &pattern(0, 1 << 20, 1)).expect("written");
        client.flush().expect("flushed");
        let size = u32::try_from(client.size).expect("small");
        let all = client.ask(cmd::BLOCK_STATUS, 0, (0, size)).extents;
        let total: u32 = all.iter().map(|extent| extent.length).sum();
        assert_eq!(total, size);
        let flags: Vec<_> = all.iter().map(|extent| extent.flags).collect();
        assert_eq!(flags, expected);
        let one = client.ask(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, (0, 8192)).extents;
        assert_eq!(one.len(), 1);
        assert!((1..=8192).contains(&one[0].length));
    }
}
