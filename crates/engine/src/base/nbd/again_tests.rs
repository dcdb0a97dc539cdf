//! A server that is killed at any request, over a model of what it has made durable.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use cryptline_nbd::reply::{self, ChunkPosition};
use cryptline_nbd::wire::{cmd, cmd_flag};
use cryptline_nbd::{NbdError, RequestHeader, TransmissionFlags as Flags};
use cryptline_sys::{BackendChoice, Buffer};

use super::apart::{self, Clients, Kind};
use super::scripted::{Client, Offer, SIZE, Server, USUAL, secure};
use super::*;
use crate::blocking::Blocking;
use crate::{Channel, Gate, Op, Request, Submitted};

pub(super) const BLOCK: usize = 4096;
const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Syscalls];
pub(super) const LONG: Duration = Duration::from_secs(60);
pub(super) const SHARED: Offer = Offer { flags: USUAL.flags.with(Flags::CAN_MULTI_CONN), ..USUAL };

fn again(server: &Server, patience: Duration) -> Gate {
    Gate::new(NbdDevice::open_again(&server.uri, false, Some(patience)).unwrap())
}

/// When in the life of a request its server dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    Unmade,
    Made,
    HalfAnswered,
    /// The server says that it ends, and does.
    Refused,
}

/// State of a machine whose server can be killed.
#[derive(Default)]
pub(super) struct Store {
    cached: Vec<u8>,
    durable: Vec<u8>,
    requests: usize,
}

impl Store {
    pub(super) fn new() -> Arc<Mutex<Self>> {
        let zeros = vec![0; usize::try_from(SIZE).unwrap()];
        Arc::new(Mutex::new(Self { cached: zeros.clone(), durable: zeros, requests: 0 }))
    }

    /// Carries a request out; its reply.
    pub(super) fn make(&mut self, header: &RequestHeader, payload: &[u8]) -> Vec<u8> {
        let start = usize::try_from(header.offset).unwrap();
        let range = start..start + header.length as usize;
        match header.command {
            cmd::READ => {
                let head = reply::offset_data(header.cookie, header.offset, header.length, ChunkPosition::Yes);
                return [&head[..], &self.cached[range]].concat();
            }
            cmd::WRITE => self.cached[range.clone()].copy_from_slice(payload),
            cmd::WRITE_ZEROES => self.cached[range.clone()].fill(0),
            cmd::FLUSH => self.durable.clone_from(&self.cached),
            cmd::CACHE => {}
            _ => return reply::simple(header.cookie, Err(NbdError::Inval)).to_vec(),
        }
        if header.flags & cmd_flag::FUA != 0 {
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
        reply::simple(header.cookie, Ok(())).to_vec()
    }
}

/// Serves until the client goes. `dies` says of each request, by its number, whether and how its server does.
fn serve(clients: &mut Clients<'_>, store: &Mutex<Store>, dies: &dyn Fn(usize) -> Option<Death>) {
    let mut client = clients.accept();
    // Whose process it is, is asked by a flush; and whether it is the same, before there is a first queue.
    let mut witness = clients.accept();
    witness.expect(cmd::FLUSH);
    loop {
        let is_request = |header: &RequestHeader| header.command != cmd::DISC;
        let Some(header) = client.next().filter(is_request) else { return };
        let payload = client.bytes(header.payload_length() as usize);
        let mut store = cryptline_sys::lock(store);
        let death = dies(store.requests);
        store.requests += 1;
        let answer = match death {
            Some(Death::Unmade) => Vec::new(),
            Some(Death::Refused) => reply::simple(header.cookie, Err(NbdError::Shutdown)).to_vec(),
            _ => store.make(&header, &payload),
        };
        let len = match death {
            Some(Death::Made | Death::Unmade) => 0,
            Some(Death::HalfAnswered) => answer.len() / 2,
            None | Some(Death::Refused) => answer.len(),
        };
        if death.is_none() {
            client.say(&answer);
            continue;
        }
        // What was in its memory only goes with it.
        store.cached = store.durable.clone();
        clients.die(|| client.say_last(&answer[..len]));
        witness = clients.accept();
        witness.expect(cmd::FLUSH);
        client = clients.accept();
        witness.expect(cmd::FLUSH);
    }
}

/// Uses the disk in batches of requests that do not overlap, each of which must succeed, and end as they should.
fn use_disk(gate: &Gate, backend: BackendChoice, store: &Mutex<Store>) {
    let mut channel = Channel::open(gate, backend, 8).unwrap();
    let mut expected = vec![0; usize::try_from(SIZE).unwrap()];
    for round in 0..3u8 {
        let at = |index: u8| usize::from(index) * 3 * BLOCK;
        let batch = (0..7).map(|index: u8| {
            let offset = at(index) as u64;
            let mut buffer = Buffer::alloc(BLOCK).unwrap();
            match (round + index) % 3 {
                _ if index == 6 => Request::new(Op::Cache, 0, SIZE / 2, u64::from(index)),
                0 => {
                    expected[at(index)..at(index) + BLOCK].fill(16 * (round + 1) + index);
                    buffer.fill(16 * (round + 1) + index);
                    Request::write(offset, buffer, index == 3, u64::from(index))
                }
                1 => Request::read(offset, buffer, u64::from(index)),
                _ => {
                    expected[at(index)..at(index) + BLOCK].fill(0);
                    Request::new(Op::ZeroUnmap, offset, BLOCK as u64, u64::from(index))
                }
            }
        });
        let batch: Vec<Request> = batch.collect();
        finish(&mut channel, batch, &expected);
        // All that was acknowledged is there, before any flush.
        assert!(cryptline_sys::lock(store).durable == expected);
        finish(&mut channel, vec![Request::flush(9)], &expected);
    }
}

fn finish(channel: &mut Channel, batch: Vec<Request>, expected: &[u8]) {
    for request in batch {
        assert!(matches!(channel.submit(request), Submitted::Pending));
    }
    let mut done = Vec::new();
    while channel.in_flight() > 0 {
        channel.wait(&mut done).unwrap();
    }
    for end in done {
        assert_eq!(end.result, Ok(()), "{:?}", end.request);
        if let (Op::Read, Some(buffer)) = (end.request.op, &end.request.data) {
            let at = usize::try_from(end.request.offset).unwrap();
            assert!(buffer[..] == expected[at..at + BLOCK]);
        }
    }
}

/// Uses a disk of a server that dies so; how many requests it took.
fn outlives(backend: BackendChoice, dies: impl Fn(usize) -> Option<Death> + Send + 'static) -> usize {
    let store = Store::new();
    let served = Arc::clone(&store);
    let server = apart::server(Kind::Foreground, SHARED, move |clients| serve(clients, &served, &dies));
    let gate = again(&server, LONG);
    use_disk(&gate, backend, &store);
    drop(gate);
    drop(server);
    cryptline_sys::lock(&store).requests
}

#[test]
fn server_killed_at_any_request_forgets_nothing_and_all_requests_succeed() {
    for backend in BACKENDS {
        let requests = outlives(backend, |_| None);
        for nth in 0..requests {
            for death in [Death::Unmade, Death::Made, Death::HalfAnswered, Death::Refused] {
                outlives(backend, move |request| (request == nth).then_some(death));
            }
        }
    }
}

#[test]
fn server_that_dies_again_and_again_is_outlived() {
    for backend in BACKENDS {
        outlives(backend, |request| (request % 3 == 2).then_some(Death::Made));
    }
}

#[test]
fn change_that_a_server_refuses_since_it_ends_is_made_by_the_next_whoever_that_is() {
    for backend in BACKENDS {
        let server = Server::several(USUAL, |accept| {
            let mut client = accept();
            let (refused, made) = (client.request(), client.bytes(BLOCK));
            assert_eq!((refused.command, made), (cmd::WRITE, vec![1; BLOCK]));
            let other = client.request();
            client.bytes(BLOCK);
            client.say(&reply::simple(refused.cookie, Err(NbdError::Shutdown)));
            // What it has begun it answers before it ends.
            client.say(&reply::simple(other.cookie, Ok(())));
            client.see_end();
            let mut client = accept();
            let (again, payload) = client.expect(cmd::WRITE);
            assert_eq!((again.offset, payload), (refused.offset, vec![1; BLOCK]));
        });
        let gate = again(&server, LONG);
        let mut channel = Channel::open(&gate, backend, 8).unwrap();
        let write = |index: u8| {
            let mut data = Buffer::alloc(BLOCK).unwrap();
            data.fill(index + 1);
            Request::write(u64::from(index) * 4096, data, false, index.into())
        };
        finish(&mut channel, (0..2).map(write).collect(), &[]);
    }
}

#[test]
fn server_that_refuses_everything_since_it_ends_and_does_not_is_given_up() {
    let server = Server::several(USUAL, |accept| {
        for _ in 0..=super::again::REWINDS_MAX {
            let mut client = accept();
            let request = client.request();
            client.say(&reply::simple(request.cookie, Err(NbdError::Shutdown)));
            client.see_end();
        }
    });
    let (_gate, mut disk) = server.disk_again(LONG, BackendChoice::Auto);
    let refused = Err(Fault::Io(rustix::io::Errno::SHUTDOWN));
    assert_eq!(disk.read_at(0, &mut [0; BLOCK]), refused);
}

#[test]
fn change_under_way_to_a_server_that_still_runs_is_lost_and_latches() {
    let server = Server::several(SHARED, |accept| {
        let (mut client, mut witness) = (accept(), accept());
        // A read goes out once more: whether the server still runs makes no difference.
        assert_eq!(client.request().command, cmd::READ);
        drop(client);
        witness.expect(cmd::FLUSH);
        let mut client = accept();
        witness.expect(cmd::FLUSH);
        let read = client.request();
        client.say(&reply::offset_data(read.cookie, 0, 4096, ChunkPosition::Yes));
        client.say(&[7; BLOCK]);
        assert_eq!(client.request().command, cmd::WRITE);
        drop(client);
        witness.see_end();
    });
    // As long as is waited for the witness to end.
    let (_gate, mut disk) = server.disk_again(Duration::from_secs(2), BackendChoice::Auto);
    let mut found = [0; BLOCK];
    assert_eq!(disk.read_at(0, &mut found), Ok(()));
    assert_eq!(found, [7; BLOCK]);
    assert_eq!(disk.write_at(0, &[1; BLOCK], false), Err(Fault::Lost));
    assert_eq!(disk.flush(), Err(Fault::Latched));
    assert!(disk.read_at(0, &mut found).is_err());
}

#[test]
fn server_that_does_not_answer_again_is_given_up_in_time() {
    for backend in BACKENDS {
        let (end, ended) = mpsc::channel::<()>();
        let server = Server::several(SHARED, move |accept| {
            let (mut client, witness) = (accept(), accept());
            client.request();
            drop((client, witness));
            // Whoever connects waits for a greeting.
            let _ = ended.recv();
        });
        let (gate, mut disk) = server.disk_again(Duration::from_millis(300), backend);
        assert_eq!(disk.read_at(0, &mut [0; BLOCK]), Err(Fault::Lost));
        assert_eq!(disk.flush(), Err(Fault::Latched));
        drop((disk, gate, end));
    }
}

#[test]
fn server_that_hangs_up_whatever_it_is_asked_is_given_up_in_time() {
    let server = Server::several(USUAL, |accept| {
        loop {
            accept().next();
        }
    });
    let (_gate, mut disk) = server.disk_again(Duration::from_millis(500), BackendChoice::Auto);
    assert_eq!(disk.read_at(0, &mut [0; BLOCK]), Err(Fault::Lost));
    assert_eq!(disk.flush(), Err(Fault::Latched));
    // Its thread waits for more clients, and ends with the process.
    std::mem::forget(server);
}

#[test]
fn server_that_breaks_a_rule_is_not_asked_again() {
    let server = Server::several(SHARED, |accept| {
        let (mut client, mut witness) = (accept(), accept());
        client.request();
        client.say(&[0; 64]);
        client.see_end();
        witness.see_end();
    });
    let (_gate, mut disk) = server.disk_again(LONG, BackendChoice::Auto);
    assert_eq!(disk.read_at(0, &mut [0; BLOCK]), Err(Fault::Lost));
    assert_eq!(disk.flush(), Err(Fault::Latched));
}

#[test]
fn server_that_cannot_make_single_writes_durable_is_not_connected_to_again() {
    let no_fua = Offer { flags: Flags::HAS_FLAGS.with(Flags::SEND_FLUSH), ..USUAL };
    let server = Server::start(no_fua, Client::see_end);
    let refused = NbdDevice::open_again(&server.uri, false, Some(LONG)).err();
    let text = refused.unwrap().to_string();
    assert!(text.contains("NBD_FLAG_SEND_FUA"), "{text}");
}

#[test]
fn server_that_ended_while_nothing_was_under_way_is_not_missed_even_by_a_write() {
    for backend in BACKENDS {
        let (gone, has_gone) = mpsc::channel();
        let server = Server::several(USUAL, move |accept| {
            let mut client = accept();
            client.expect(cmd::FLUSH);
            client.hang_up();
            gone.send(()).unwrap();
            accept().expect(cmd::WRITE);
        });
        let (_gate, mut disk) = server.disk_again(LONG, backend);
        assert_eq!(disk.flush(), Ok(()));
        has_gone.recv().unwrap();
        assert_eq!(disk.write_at(0, &[1; BLOCK], false), Ok(()));
    }
}

/// A server whose connections go through TLS. It says of each of the first `ends` that nothing more comes, and of that it
/// tells the test, but leaves the socket open; once a flush was answered where it `answers_first`.
fn ends_tls(ends: usize, command: u16, answers_first: bool) -> (Server, Gate, mpsc::Receiver<()>) {
    let (ended, has_ended) = mpsc::channel();
    let server = Server::listen(move |listener| {
        let config = secure();
        let accept = || Client::greet_secure(listener.accept().unwrap().0, USUAL, &config);
        let mut open = Vec::new();
        for _ in 0..ends {
            let mut client = accept();
            if answers_first {
                client.expect(cmd::FLUSH);
            } else {
                assert_eq!(client.request().command, command);
            }
            client.end_tls();
            ended.send(()).unwrap();
            open.push(client);
        }
        let mut client = accept();
        let header = client.request();
        assert_eq!(header.command, command);
        client.bytes(header.payload_length() as usize);
        if command == cmd::READ {
            let head = reply::offset_data(header.cookie, header.offset, header.length, ChunkPosition::Yes);
            client.say(&[&head[..], &[7; BLOCK]].concat());
        } else {
            client.say(&reply::simple(header.cookie, Ok(())));
        }
        client.expect(cmd::FLUSH);
    });
    let mut uri = server.uri.clone();
    uri.tls = true;
    uri.tls_options.verify_peer = Some(false);
    let gate = Gate::new(NbdDevice::open_again(&uri, false, Some(LONG)).unwrap());
    (server, gate, has_ended)
}

#[test]
fn server_that_says_by_tls_that_nothing_more_comes_is_asked_again() {
    for backend in BACKENDS {
        let (_server, gate, _has_ended) = ends_tls(2, cmd::READ, false);
        let mut disk = Blocking::new(&gate, backend).unwrap();
        let mut found = [0; BLOCK];
        assert_eq!(disk.read_at(0, &mut found), Ok(()));
        assert_eq!(found, [7; BLOCK]);
        assert_eq!(disk.flush(), Ok(()));
        drop((disk, gate));
    }
}

/// There are bytes to read then, which are no answer.
#[test]
fn server_that_said_so_while_nothing_was_under_way_is_not_missed_even_by_a_write() {
    for backend in BACKENDS {
        let (_server, gate, has_ended) = ends_tls(1, cmd::WRITE, true);
        let mut disk = Blocking::new(&gate, backend).unwrap();
        assert_eq!(disk.flush(), Ok(()));
        has_ended.recv().unwrap();
        assert_eq!(disk.write_at(0, &[1; BLOCK], false), Ok(()));
        assert_eq!(disk.flush(), Ok(()));
        drop((disk, gate));
    }
}

#[test]
fn request_that_ends_the_server_each_time_is_given_up_though_others_are_answered() {
    const BAD: u64 = 8192;
    let server = Server::several(USUAL, |accept| {
        let answer = |client: &mut Client, header: &RequestHeader| {
            let head = reply::offset_data(header.cookie, header.offset, header.length, ChunkPosition::Yes);
            client.say(&[&head[..], &[0; BLOCK]].concat());
        };
        let mut client = accept();
        while let Some(header) = client.next() {
            if header.offset != BAD {
                answer(&mut client, &header);
                continue;
            }
            if let Some(other) = client.next() {
                answer(&mut client, &other);
            }
            drop(client);
            client = accept();
        }
    });
    let gate = again(&server, LONG);
    let mut channel = Channel::open(&gate, BackendChoice::Auto, 4).unwrap();
    let read = |channel: &mut Channel, offset| {
        let buffer = Buffer::alloc(BLOCK).unwrap();
        channel.submit(Request::read(offset, buffer, offset))
    };
    assert!(matches!(read(&mut channel, BAD), Submitted::Pending));
    let (mut done, mut ended) = (Vec::new(), None);
    while ended.is_none() {
        // One more is always under way beside it.
        if channel.in_flight() < 2 {
            let _ = read(&mut channel, 0);
        }
        channel.wait(&mut done).unwrap();
        ended = done.drain(..).find(|end| end.request.token == BAD);
    }
    assert_eq!(ended.unwrap().result, Err(Fault::Lost));
    // Its thread may wait for one more client, and ends with the process.
    std::mem::forget(server);
}

#[test]
fn queue_that_waits_for_a_silent_server_ends_at_once() {
    for backend in BACKENDS {
        let (connected, is_connected) = mpsc::channel();
        let server = Server::listen(move |listener| {
            let accept = || listener.accept().unwrap().0;
            let mut client = Client::greet(accept(), SHARED);
            let witness = Client::greet(accept(), SHARED);
            client.request();
            drop((client, witness));
            connected.send(accept()).unwrap();
        });
        let gate = again(&server, LONG);
        let mut channel = Channel::open(&gate, backend, 4).unwrap();
        let read = Request::read(0, Buffer::alloc(BLOCK).unwrap(), 0);
        assert!(matches!(channel.submit(read), Submitted::Pending));
        let mut done = Vec::new();
        let mut silent = loop {
            channel.poll(&mut done).unwrap();
            match is_connected.try_recv() {
                Ok(silent) => break silent,
                Err(_) => std::thread::yield_now(),
            }
        };
        drop((channel, gate));
        // Who connects is still waiting for a greeting, and we have not waited for it.
        silent.set_nonblocking(true).unwrap();
        let heard = std::io::Read::read(&mut silent, &mut [0]);
        let error = heard.map_err(|error| error.kind()).unwrap_err();
        assert_eq!(error, std::io::ErrorKind::WouldBlock);
    }
}
