//! More requests to a disk that does not answer than a lane serves at a time.

use cryptline_testkit::scripted::{Manner, Scripted};

use super::*;

const SIZE: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// Of each kind: more than the jobs of a lane together.
const CROWD: u8 = 150;

/// Sends a message, which the server may not want to take yet.
fn send(kernel: &mut Kernel, message: Vec<u8>) {
    kernel.to_send.push_back(message);
    while !kernel.send_one() {
        kernel.wait();
    }
}

fn write(unique: u64, at: u64, byte: u8) -> Vec<u8> {
    fuse::call(WRITE, unique, &[0, at, BLOCK as u64, 0, 0], &[byte; BLOCK])
}

#[test]
fn crowd_of_requests_to_a_silent_disk_keeps_no_other_waiting_and_is_served_when_it_speaks() {
    for backend in [BackendChoice::Syscalls, BackendChoice::Auto] {
        let (silent, well) =
            (Scripted::new(Manner { block: 512, at_once: false, start: 0 }, SIZE), stack::VolatileDisk::new(1 << 20));
        let [one, two] = [Fresh::new(silent.gate()), well.stack()];
        let mut nodes = Nodes::new(MountedOver::Folder, &one.gate, "one", "", false);
        nodes.add(&two.gate, "two", "");
        let (ours, theirs, _) = fuse::sockets();
        let mut options = fuse::options(backend, Duration::from_secs(5), |line| panic!("{line}"), || ());
        options.stats = [(); 2].map(|()| ExportStats::new(false)).to_vec();
        let session = fuse::session_of(nodes, &ours, theirs, options);
        let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
        silent.hold_all();
        let place = |number: u8| u64::from(number) * BLOCK as u64;
        for number in 0..CROWD {
            let unique = 4 * u64::from(number);
            send(&mut kernel, write(unique, place(number), number));
            send(&mut kernel, fuse::call(READ, unique + 2, &[0, place(number), BLOCK as u64, 0, 0], &[]));
        }
        for byte in 0..3 {
            let at = place(byte);
            assert_eq!(answer_to(&mut kernel, about(4, write(1, at, byte))), 0);
            assert_eq!(answer_to(&mut kernel, about(4, fuse::call(READ, 1, &[0, at, BLOCK as u64, 0, 0], &[]))), 0);
            assert_eq!(kernel.message[16..][..BLOCK], [byte; BLOCK]);
            assert_eq!(answer_to(&mut kernel, about(4, fuse::call(FSYNC, 1, &[0, 0], &[]))), 0);
        }
        silent.release();
        let mut answered: Vec<u64> = Vec::new();
        while answered.len() < 2 * usize::from(CROWD) {
            assert!(kernel.receive_one().is_some());
            assert_eq!(kernel.message[4..8], [0; 4], "no error");
            answered.push(u64::from_ne_bytes(kernel.message[8..16].try_into().unwrap()));
        }
        answered.sort_unstable();
        assert!(answered.into_iter().eq((0..2 * u64::from(CROWD)).map(|number| 2 * number)), "each of them once");
        session.finish().expect("flushed");
        for number in 0..CROWD {
            let at = usize::try_from(place(number)).unwrap();
            assert!(silent.bytes()[at..at + BLOCK] == [number; BLOCK], "{number}");
        }
    }
}

#[test]
fn mount_that_is_cut_off_is_over_though_a_silent_medium_has_all_jobs_of_its_lane() {
    for backend in [BackendChoice::Syscalls, BackendChoice::Auto] {
        let hung = Silent::new(SIZE);
        let stack = Fresh::new(hung.gate());
        let (ours, theirs, _) = fuse::sockets();
        let options = fuse::options(backend, Duration::from_millis(50), |_| (), || ());
        let session = fuse::session(&stack.gate, &ours, theirs, options);
        let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
        hung.fall_silent(&Call::ALL);
        for number in 0..cryptline_serve::lane::JOBS_MAX {
            send(&mut kernel, fuse::call(READ, 2, &[0, 0, 4096, 0, 0], &[]));
            wait_until("it has been asked", || hung.taken() == number + 1);
        }
        assert!(!session.is_over());
        drop(kernel);
        wait_until("it is over", || session.is_over());
        assert_eq!(session.finish(), Err(("disk".to_owned(), cryptline_serve::UNANSWERED)));
    }
}

#[test]
fn mount_that_is_cut_off_ends_though_its_lane_is_in_a_call_that_never_returns() {
    let disk = crate::common::turnstile::Turnstile::new(SIZE);
    let stack = disk.stack();
    let (ours, theirs, _) = fuse::sockets();
    let options = fuse::options(BackendChoice::Syscalls, Duration::from_millis(50), |_| (), || ());
    let session = fuse::session(&stack.gate, &ours, theirs, options);
    let mut kernel = Kernel::new(ours, SIZE, PIECE_SMALL);
    send(&mut kernel, fuse::call(READ, 2, &[0, 0, 4096, 0, 0], &[]));
    disk.wait_for(0);
    drop(kernel);
    // Nobody asks it to stop.
    session.wait(&cryptline_serve::StopHandle::new().unwrap()).expect("the mount has ended");
    // Its medium is still silent, but to a flush.
    session.finish().expect("flushed");
    disk.let_pass(u64::MAX);
}
