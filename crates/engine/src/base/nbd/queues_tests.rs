//! Remains of a queue that goes with requests under way, and the number of queues there can be.

use cryptline_nbd::wire::cmd;
use cryptline_nbd::{TransmissionFlags as Flags, reply};
use cryptline_sys::{BackendChoice, Buffer, Ring};

use super::scripted::{Client, Offer, SIZE, Server, USUAL};
use crate::blocking::Blocking;
use crate::layer::{Exclusion, SubBlockDevice, SubBlockOptions};
use crate::{Channel, Completion, Device, Extent, Fault, Gate, OpenError, Queue, Request, Submitted, Traits};

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Syscalls];

fn buffer() -> Buffer {
    Buffer::alloc(4096).unwrap()
}

fn submit(channel: &mut Channel, request: Request) {
    assert!(matches!(channel.submit(request), Submitted::Pending));
}

fn finish(channel: &mut Channel, in_flight: usize) {
    let mut done: Vec<Completion> = Vec::new();
    while channel.in_flight() > in_flight {
        channel.wait(&mut done).unwrap();
    }
    assert!(done.iter().all(|end| end.result.is_ok()));
}

/// Error that the next queue into the device gets.
fn next(gate: &Gate) -> String {
    let error = Channel::open(gate, BackendChoice::Auto, 8).err();
    error.expect("no queue").to_string()
}

#[test]
fn write_that_is_answered_after_the_flush_sent_behind_it_is_not_forgotten() {
    for backend in BACKENDS {
        let server = Server::start(USUAL, |client| {
            let write = client.request();
            assert_eq!(write.command, cmd::WRITE);
            client.bytes(write.length as usize);
            client.expect(cmd::FLUSH);
            client.say(&reply::simple(write.cookie, Ok(())));
            client.see_end();
        });
        let gate = server.gate();
        let mut channel = Channel::open(&gate, backend, 8).unwrap();
        submit(&mut channel, Request::write(0, buffer(), false, 1));
        submit(&mut channel, Request::flush(2));
        finish(&mut channel, 0);
        submit(&mut channel, Request::read(0, buffer(), 3));
        drop(channel);
        let text = next(&gate);
        assert!(text.contains("was lost"), "{text}");
    }
}

#[test]
fn write_under_way_at_the_end_of_a_queue_latches_though_the_server_hangs_up() {
    for backend in BACKENDS {
        let server = Server::shared(|client| {
            let write = client.request();
            assert_eq!(write.command, cmd::WRITE);
            client.bytes(write.length as usize);
            // As one that ends its side while the write is not yet made.
            client.see_end();
        });
        let gate = server.gate();
        let mut channel = Channel::open(&gate, backend, 8).unwrap();
        submit(&mut channel, Request::write(0, buffer(), false, 1));
        channel.poll(&mut Vec::new()).unwrap();
        drop(channel);
        let text = next(&gate);
        assert!(text.contains("was lost"), "{text}");
    }
}

#[test]
fn read_under_way_at_the_end_of_a_queue_takes_nothing_but_its_connection() {
    let server = Server::start(USUAL, |client: &mut Client| {
        client.expect(cmd::WRITE);
        client.expect(cmd::FLUSH);
        client.see_end();
    });
    let gate = server.gate();
    let mut channel = Channel::open(&gate, BackendChoice::Auto, 8).unwrap();
    submit(&mut channel, Request::write(0, buffer(), false, 1));
    finish(&mut channel, 0);
    submit(&mut channel, Request::flush(2));
    finish(&mut channel, 0);
    submit(&mut channel, Request::read(0, buffer(), 3));
    drop(channel);
    drop(server);
    let text = next(&gate);
    assert!(!text.contains("was lost"), "{text}");
}

/// `gate` in single bytes.
fn in_bytes(gate: Gate) -> Gate {
    let options = SubBlockOptions { logical_block: 1, sector: 512, exclusion: Exclusion::Shared };
    Gate::new(SubBlockDevice::new(gate, options).unwrap())
}

#[test]
fn small_blocks_over_one_connection_are_read_written_and_flushed() {
    for backend in BACKENDS {
        let server = Server::start(USUAL, |client| {
            let read = client.request();
            assert_eq!((read.command, read.offset, read.length), (cmd::READ, 512, 512));
            let data = reply::offset_data(read.cookie, 512, 512, reply::ChunkPosition::Yes);
            client.say(&data);
            client.say(&[7; 512]);
            let (write, data) = client.expect(cmd::WRITE);
            assert_eq!((write.offset, write.length), (512, 512));
            assert!(data[0] == 7 && data[1..4] == [1; 3] && data[4..] == [7; 508]);
            client.expect(cmd::FLUSH);
            let (write, data) = client.expect(cmd::WRITE);
            assert_eq!((write.offset, data), (1024, vec![2; 1024]));
            client.expect(cmd::FLUSH);
        });
        let gate = in_bytes(server.gate());
        assert_eq!(gate.traits().queues, 1);
        let mut disk = Blocking::new(&gate, backend).unwrap();
        disk.write_at(513, &[1; 3], false).unwrap();
        disk.flush().unwrap();
        disk.write_at(1024, &[2; 1024], false).unwrap();
        disk.flush().unwrap();
        let text = next(&gate);
        assert!(text.contains("one at a time"), "{text}");
    }
}

/// A device that has only so many queues.
struct Few(Gate, usize);

impl Device for Few {
    fn traits(&self) -> Traits {
        Traits { queues: self.1, ..Traits::base(*self.0.geometry()) }
    }

    fn open_queue(&self, _ring: &mut Ring) -> Result<Box<dyn Queue>, OpenError> {
        Err(OpenError::Geometry("there is none".to_owned()))
    }

    fn extent(&self, offset: u64, len: u64) -> Result<Extent, Fault> {
        self.0.extent(offset, len)
    }
}

#[test]
fn layer_with_a_queue_of_its_own_below_has_one_fewer() {
    let server = Server::start(USUAL, Client::see_end);
    let gate = server.gate();
    for (below, above) in [(1, 0), (2, 1), (usize::MAX, usize::MAX)] {
        let few = Gate::new(Few(gate.clone(), below));
        assert_eq!(few.traits().with_beside(1).queues, above, "over {below}");
        assert_eq!(in_bytes(few).traits().queues, below, "one for each");
    }
}

#[test]
fn connection_to_an_export_that_is_smaller_now_is_no_connection_to_this_one() {
    let several = Offer { flags: USUAL.flags.with(Flags::CAN_MULTI_CONN), ..USUAL };
    let server = Server::listen(move |listener| {
        let accept = || listener.accept().unwrap().0;
        let mut first = Client::greet(accept(), several);
        let _witness = Client::greet(accept(), several);
        let _other = Client::greet(accept(), Offer { size: SIZE / 2, ..several });
        first.expect(cmd::WRITE);
        first.see_end();
    });
    let (gate, mut disk) = server.disk(BackendChoice::Auto);
    let text = next(&gate);
    assert!(text.contains("has changed since it was opened"), "{text}");
    // Who is connected goes on.
    disk.write_at(0, &[1; 512], false).unwrap();
    assert_eq!(gate.geometry().size, SIZE);
}

#[test]
fn export_that_has_grown_serves_a_disk_of_the_size_that_it_had() {
    let several = Offer { flags: USUAL.flags.with(Flags::CAN_MULTI_CONN), ..USUAL };
    let server = Server::listen(move |listener| {
        let accept = || listener.accept().unwrap().0;
        let mut first = Client::greet(accept(), several);
        let mut witness = Client::greet(accept(), several);
        let mut other = Client::greet(accept(), Offer { size: SIZE * 2, ..several });
        witness.expect(cmd::FLUSH);
        other.expect(cmd::WRITE);
        first.expect(cmd::FLUSH);
        first.see_end();
    });
    let (gate, mut first) = server.disk(BackendChoice::Auto);
    let mut other = Blocking::new(&gate, BackendChoice::Auto).unwrap();
    other.write_at(SIZE - 512, &[1; 512], false).unwrap();
    // The first connection knows no more of it.
    assert_eq!(gate.grow(), SIZE);
    assert_eq!(other.write_at(SIZE, &[1; 512], false), Err(Fault::OutOfRange));
    first.flush().unwrap();
}
