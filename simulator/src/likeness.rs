//! Compares the simulation's sockets and eventfds with the system's: the same calls are answered in the same way.

use std::fmt::Debug;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};

use crate::sim;

/// Tells what the two answer differently.
pub fn compare() -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let system = Transcript::of(&path);
    let (simulated, _) = sim::simulate(1, Duration::from_secs(1), || Transcript::of(&path));
    let mut different = 0;
    for (system, simulated) in system.lines.iter().zip(&simulated.lines).filter(|(one, other)| one != other) {
        println!("the system says    {system}\nthe simulation has {simulated}");
        different += 1;
    }
    println!("{} answers, {different} of them different", system.lines.len());
    if different == 0 && system.lines.len() == simulated.lines.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(crate::FAILED)
    }
}

/// Calls, and how they were answered.
struct Transcript {
    lines: Vec<String>,
}

type Answer<T> = Result<T, Option<i32>>;

fn number<T>(result: std::io::Result<T>) -> Answer<T> {
    result.map_err(|error| error.raw_os_error())
}

fn got(mut stream: &UnixStream, most: usize) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; most];
    number(stream.read(&mut bytes)).map(|len| bytes[..len].to_vec())
}

fn put(mut stream: &UnixStream, bytes: &[u8]) -> Answer<usize> {
    number(stream.write(bytes))
}

impl Transcript {
    fn of(path: &Path) -> Self {
        let mut it = Self { lines: Vec::new() };
        it.talk(path);
        it.ends(path);
        it.waits_to_be_accepted(path);
        it.messages();
        it.descriptors(path);
        it.counts();
        it
    }

    fn say(&mut self, what: &str, answer: impl Debug) {
        self.lines.push(format!("{what}: {answer:?}"));
    }

    fn poll(&mut self, what: &str, fd: impl AsFd) {
        let flags = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut polled = [PollFd::new(&fd, flags)];
        let found = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        self.say(what, (found, polled[0].revents()));
    }

    /// Two ends of a connection that never wait.
    fn connection(path: &Path) -> (UnixStream, UnixStream) {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a name");
        let client = UnixStream::connect(path).expect("it listens");
        let (server, _) = listener.accept().expect("one waits");
        [&client, &server].into_iter().for_each(|stream| stream.set_nonblocking(true).expect("a socket"));
        (client, server)
    }

    fn talk(&mut self, path: &Path) {
        let (client, server) = Self::connection(path);
        self.say("nothing is there", got(&server, 8));
        self.poll("an idle end", &server);
        self.say("five bytes go", put(&client, b"hello"));
        self.poll("an end that has received", &server);
        let mut peeked = [0; 3];
        let peek = recv(&server, &mut peeked, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.say("a peek", (peek.map(|(len, _)| len), peeked));
        self.say("two bytes", got(&server, 2));
        self.say("two more go", put(&client, b"!!"));
        self.say("the rest, of both", got(&server, 64));
        while put(&client, &[7; 4096]).is_ok() {}
        self.say("there is no room", put(&client, &[7; 4096]));
        self.poll("an end without room", &client);
        while got(&server, 4096).is_ok() {}
        self.poll("an end with room again", &client);
    }

    fn ends(&mut self, path: &Path) {
        let (client, server) = Self::connection(path);
        self.say("the last words", put(&client, b"bye"));
        self.say("half is closed", number(client.shutdown(Shutdown::Write)));
        self.poll("the other half", &server);
        self.say("they are there", got(&server, 8));
        self.say("the end", got(&server, 8));
        self.say("no word after the last", put(&client, b"x"));
        self.say("the other way", put(&server, b"still"));
        self.say("is open", got(&client, 8));
        self.say("nobody listens", number(server.shutdown(Shutdown::Read)));
        drop(server);
        self.poll("an end that is alone", &client);
        self.say("an end that is alone", got(&client, 8));
        let (client, server) = Self::connection(path);
        self.say("answered", put(&server, b"answer"));
        self.say("asked, and not heard", put(&client, b"question"));
        drop(server);
        self.poll("an end that was reset", &client);
        self.say("no more goes", put(&client, b"x"));
        self.say("the answer", got(&client, 64));
        self.say("then it was reset", got(&client, 64));
        self.say("then it is over", got(&client, 64));
    }

    fn waits_to_be_accepted(&mut self, path: &Path) {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a name");
        listener.set_nonblocking(true).expect("a socket");
        self.say("nobody comes", number(listener.accept()).map(drop));
        self.poll("a listener", &listener);
        let (first, second) = (UnixStream::connect(path), UnixStream::connect(path));
        let (first, second) = (first.expect("it listens"), second.expect("it listens"));
        self.poll("a listener that somebody waits for", &listener);
        self.say("said before", put(&first, b"early"));
        drop(first);
        let (early, _) = listener.accept().expect("one waits");
        self.say("heard after", got(&early, 64));
        self.say("and no more", got(&early, 64));
        drop(listener);
        self.poll("nobody accepts", &second);
        self.say("nobody accepts", put(&second, b"x"));
        self.say("nobody answers", got(&second, 64));
        self.say("nobody comes any more", got(&second, 64));
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a name");
        let last = UnixStream::connect(path).expect("it listens");
        self.say("it lets nobody in", rustix::net::shutdown(&listener, rustix::net::Shutdown::Both));
        self.say("nobody is let in", number(UnixStream::connect(path)).map(drop));
        self.say("but the last that came", number(listener.accept()).map(drop));
        self.say("who is sent away", got(&last, 64));
        self.say("nobody comes", number(listener.accept()).map(drop));
    }

    fn messages(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (one, other) = pair.expect("a pair");
        for message in [&b"first"[..], b"second"] {
            self.say("a message", rustix::net::send(&one, message, SendFlags::NOSIGNAL));
        }
        self.take("of the first, four bytes", &other, 4);
        self.take("the second", &other, 64);
        self.take("no third", &other, 64);
        drop(one);
        self.poll("a message's end", &other);
        self.take("the end", &other, 64);
    }

    fn descriptors(&mut self, path: &Path) {
        let (client, server) = Self::connection(path);
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
        self.say("before", put(&client, b"ab"));
        self.say("with two", give(&client, b"cd", &[event.as_fd(), client.as_fd()]));
        self.say("after", put(&client, b"ef"));
        let files = self.take("what goes with them", server.as_fd(), 64);
        if let Some(file) = files.first() {
            self.say("counted there", rustix::io::write(file, &5_u64.to_ne_bytes()));
        }
        let mut count = [0; 8];
        self.say("counted here", rustix::io::read(&event, &mut count).map(|_| u64::from_ne_bytes(count)));
        drop(client);
        self.take("the rest", server.as_fd(), 64);
        self.poll("one end is still held", &server);
        drop(files);
        self.poll("the last is closed", &server);
        let (client, server) = Self::connection(path);
        self.say("a descriptor", give(&client, b"x", &[client.as_fd()]));
        drop(client);
        self.poll("holds its own connection", &server);
        self.say("nobody takes it", got(&server, 8));
        self.poll("and it is closed", &server);
    }

    fn counts(&mut self) {
        let event = eventfd(2, EventfdFlags::NONBLOCK).expect("an eventfd");
        self.poll("a count", &event);
        self.say("three more", rustix::io::write(&event, &3_u64.to_ne_bytes()));
        let mut count = [0; 8];
        for what in ["all of them", "no more"] {
            self.say(what, rustix::io::read(&event, &mut count).map(|_| u64::from_ne_bytes(count)));
        }
        self.poll("no count", &event);
    }

    /// Receives a message with its descriptors.
    fn take(&mut self, what: &str, fd: impl AsFd, most: usize) -> Vec<OwnedFd> {
        let mut bytes = vec![0; most];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let found = recvmsg(fd, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        let found = found.map(|found| (found.bytes, found.flags.bits() & !(libc::MSG_CMSG_CLOEXEC as u32)));
        self.say(what, (found, bytes, files.len()));
        files
    }
}

fn give(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(files)), "there is room");
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}
