//! A disk that grows while a driver uses it.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd;
use std::path::PathBuf;

use super::*;
use crate::common::vhost::PATIENCE;

const SET_BACKEND_REQ_FD: u32 = 21;
const BACKEND_REQ: u64 = 1 << 5;
/// Request 2, version 1, no payload.
const CONFIG_CHANGE: [u32; 3] = [2, 1, 0];

fn growing() -> (Served, PathBuf) {
    let (over, path) = stack::growing_file(SIZE);
    (Served::new(over), path)
}

fn enlarge(path: &PathBuf, size: u64) {
    let file = File::options().write(true).open(path).expect("the file");
    file.set_len(size).expect("more of it");
}

fn capacity(driver: &Driver) -> u64 {
    let space = driver.front.config(0, 8).split_off(12);
    u64::from_le_bytes(space.try_into().expect("eight")) * 512
}

/// The front-end's end of a channel on which it is told of changes.
fn listen(front: &FrontEnd) -> UnixStream {
    let protocol = front.ask_number(15);
    assert_ne!(protocol & BACKEND_REQ, 0);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(front.tell_with(SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()]), Some(true));
    ours
}

fn hears_of_change(mut channel: &UnixStream) {
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("a message in time");
    assert_eq!(message, *CONFIG_CHANGE.map(u32::to_ne_bytes).as_flattened());
}

#[test]
fn driver_is_told_that_the_disk_has_grown_and_uses_all_of_it() {
    for features in [FLUSH | EVENT_IDX, FLUSH | crate::common::vhost::RING_PACKED] {
        let (served, path) = growing();
        let mut driver = Driver::start_with(served.connect(), features);
        let channel = listen(&driver.front);
        works(&mut driver);
        let (end, data) = (SIZE / 512, pattern(0, 8192, 9));
        assert_eq!(driver.run(&write(end, &data)).0, IO_ERROR);
        for times in 2..4 {
            enlarge(&path, times * SIZE);
            // Nothing is asked meanwhile.
            hears_of_change(&channel);
            assert_eq!(capacity(&driver), times * SIZE);
            let across = (times - 1) * SIZE / 512 - 8;
            assert_eq!(driver.run(&write(across, &data)).0, OK);
            assert!(driver.run(&read(across, 8192)).2 == data);
            let last = times * SIZE / 512 - 8;
            assert_eq!(driver.run(&write(last, &data)).0, IO_ERROR, "half of it");
        }
        served.says("the disk has grown to 12582912 bytes");
        works(&mut driver);
        channel.set_nonblocking(true).expect("told");
        assert_eq!((&channel).read(&mut [0]).expect_err("once for each time").kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn front_end_that_does_not_listen_finds_the_size_when_it_asks() {
    let (served, path) = growing();
    let mut driver = served.driver();
    enlarge(&path, 2 * SIZE);
    assert_eq!(capacity(&driver), 2 * SIZE);
    assert_eq!(driver.run(&read(SIZE / 512, 4096)).0, OK);
    drop(driver);
    enlarge(&path, 3 * SIZE);
    let driver = served.driver();
    assert_eq!(capacity(&driver), 3 * SIZE, "so does the next one");
}

#[test]
fn front_end_that_comes_back_and_does_not_ask_is_told_to() {
    let (served, _) = growing();
    let front = FrontEnd::new(served.connect());
    let protocol = front.ask_number(15);
    front.send(16, 0, &protocol.to_ne_bytes(), &[]);
    hears_of_change(&listen(&front));
}

#[test]
fn channel_that_nobody_listens_on_any_more_ends_alone() {
    let (served, path) = growing();
    let mut driver = served.driver();
    drop(listen(&driver.front));
    enlarge(&path, 2 * SIZE);
    served.says("the disk has grown");
    works(&mut driver);
    // Another one in its place.
    let channel = listen(&driver.front);
    enlarge(&path, 3 * SIZE);
    hears_of_change(&channel);
    works(&mut driver);
}

#[test]
fn front_end_is_told_by_a_unix_socket_and_by_nothing_else() {
    let (served, _) = growing();
    let mut driver = served.driver();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    for other in [event().as_fd(), driver.machine.file.as_fd(), tcp.as_fd()] {
        assert_eq!(driver.front.tell_with(SET_BACKEND_REQ_FD, &[], &[other]), Some(false));
    }
    served.says("no Unix socket");
    works(&mut driver);
    drop(driver);
    // Without one the message makes no sense.
    let driver = served.driver();
    driver.front.send(SET_BACKEND_REQ_FD, 8, &[], &[]);
    assert!(driver.front.reply().is_none());
    served.says("does not come with the descriptors");
}
