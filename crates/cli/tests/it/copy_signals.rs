//! Signals that end a copy which would not end by itself: nothing unfinished is left either.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::below::TIMEOUT;
use crate::common::*;
use crate::server::text;
use cryptline_testkit::peer::BackgroundProgram;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

/// Beginning of a request, once a client and its server have agreed.
const REQUEST: [u8; 4] = 0x2560_9513_u32.to_be_bytes();

#[test]
fn signal_while_the_key_is_awaited_leaves_nothing() {
    let folder = Folder::new();
    let (disk, key) = (folder.path("disk.raw"), folder.path("pipe"));
    fs::write(&disk, [7; 8192]).expect("room");
    mknodat(CWD, &key, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    for signal in [Signal::INT, Signal::TERM] {
        let mut create = command();
        create.arg("create").arg(folder.path("new.luks")).args(CHEAP);
        create.arg("--from").arg(&disk).arg("--key-file").arg(&key);
        let mut process = BackgroundProgram::spawn(&mut create);
        // Opens once the other end is, for which the program then waits.
        let writer = fs::File::options().write(true).open(&key).expect("a pipe");
        assert_eq!(folder.drafts().len(), 1);
        process.signal(signal);
        let ended = process.wait(TIMEOUT).expect("it still runs");
        drop(writer);
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended}");
        assert_eq!(folder.drafts(), [""; 0]);
        assert!(!folder.path("new.luks").exists());
    }
}

/// Lets clients negotiate with the server, and never answers what they ask for then; says when they do.
fn silent(socket: &Path, server: PathBuf) -> Arc<AtomicBool> {
    let is_asked = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_asked);
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            let server = UnixStream::connect(&server).expect("a server");
            let (asks, asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let says = Arc::clone(&says);
            std::thread::spawn(move || {
                pass(asks, asked, |bytes| {
                    let is_request = bytes.starts_with(&REQUEST);
                    says.fetch_or(is_request, Ordering::Relaxed);
                    !is_request
                });
            });
            std::thread::spawn(move || pass(server, client, |_| true));
        }
    });
    is_asked
}

/// Until something is not to be passed on.
fn pass(mut from: UnixStream, mut to: UnixStream, goes_on: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        while !goes_on(&bytes[..len]) {
            std::thread::park();
        }
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}

#[test]
fn second_signal_ends_a_copy_that_hangs_and_leaves_nothing() {
    let volume = [&["create", "out.raw", "--header", "header", "--key-file", "key", "--from-raw"], &CHEAP[..]].concat();
    end_by_two_signals(1, |uri| vec!["copy", "--from-raw", uri, "out.raw"]);
    end_by_two_signals(2, |uri| [&volume[..], &["--from", uri]].concat());
}

/// Of a copy that has made so many files by the time at which it reads.
fn end_by_two_signals<'a>(made: usize, copy: impl FnOnce(&'static str) -> Vec<&'a str>) {
    let folder = Folder::new();
    fs::write(folder.path("key"), "pass phrase").expect("room");
    let (real, hanging) = (folder.path("real"), folder.path("hanging"));
    let mut serve = command();
    serve.args(["serve", "ram:64M", "--unix"]).arg(&real);
    let server = BackgroundProgram::spawn(&mut serve).wait_for_socket(&real, TIMEOUT);
    let is_asked = silent(&hanging, real);
    let uri: &str = format!("nbd+unix:///?socket={}", text(&hanging)).leak();
    let mut program = command();
    program.current_dir(folder.root()).args(copy(uri));
    // It asks what of the disk is a hole, and waits for nothing else meanwhile.
    let mut process = BackgroundProgram::spawn(&mut program).wait_until(TIMEOUT, || is_asked.load(Ordering::Relaxed));
    assert_eq!(folder.drafts().len(), made);
    process.signal(Signal::INT);
    let begin = Instant::now();
    // One that comes before the other was taken is the same one.
    let ended = loop {
        if let Some(ended) = process.wait(Duration::from_millis(50)) {
            break ended;
        }
        assert!(begin.elapsed() < TIMEOUT, "it still runs");
        process.signal(Signal::INT);
    };
    assert_eq!(ended.signal(), Some(Signal::INT.as_raw()), "{ended}");
    assert_eq!(folder.drafts(), [""; 0]);
    assert!(!folder.path("out.raw").exists());
    drop(server);
}
