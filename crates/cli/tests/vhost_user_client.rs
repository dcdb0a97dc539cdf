//! `cryptline vhost-user` with a driver that others wrote, libblkio's, and without a machine.
//!
//! ```text
//!   noise ─ virtio-driver ─► cryptline vhost-user ─► LUKS image ─► qemu-img, or cryptline serve: the same noise
//! ```
//!
//! The driver takes an address for a number, so the data lies in shared memory that nobody maps here: a plain vector
//! has the addresses, and a file the bytes.

mod server;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use cryptline_testkit::peer::{self, Background};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use server::{Disk, READY, SIZE, Server, cryptline, noise, text};
use virtio_driver::{
    VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags,
};

const QUEUES: usize = 2;
/// Requests under way in one queue.
const DEPTH: usize = 16;
/// Lengths of requests, in turns.
const LENGTHS: [usize; 5] = [4096, 65536, 12288, 135_168, 8192];
const LENGTH_MAX: usize = 135_168;
const PATIENCE: Duration = Duration::from_secs(60);

struct Client {
    // They lie in memory of the transport.
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    transport: Box<VirtioBlkTransport>,
    window: Vec<u8>,
    memory: File,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Discard,
    Zero,
    Unmap,
    Flush,
}

impl Client {
    fn connect(socket: &Path, ring: VirtioFeatureFlags) -> Self {
        let features = ring | VirtioFeatureFlags::VERSION_1;
        let features = features.bits() | VirtioBlkFeatureFlags::all().bits();
        let transport = VhostUser::new(&text(socket), features).expect("connected");
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let offered = VirtioBlkFeatureFlags::from_bits_truncate(transport.get_features());
        let needed = VirtioBlkFeatureFlags::FLUSH
            | VirtioBlkFeatureFlags::DISCARD
            | VirtioBlkFeatureFlags::WRITE_ZEROES;
        assert!(offered.contains(needed), "{offered:?}");
        let config = transport.get_config().expect("a configuration");
        assert_eq!(u64::from(config.capacity), SIZE as u64 / 512);
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, QUEUES, 64).expect("queues");
        queues
            .iter_mut()
            .for_each(|queue| queue.set_used_notif_enabled(true));
        let window = vec![0; DEPTH * LENGTH_MAX];
        let memory = File::from(memfd_create("window", MemfdFlags::CLOEXEC).expect("memory"));
        memory.set_len(window.len() as u64).expect("memory");
        let address = window.as_ptr() as usize;
        let shared = transport.map_mem_region(address, window.len(), memory.as_raw_fd(), 0);
        shared.expect("shared");
        Self {
            queues,
            transport,
            window,
            memory,
        }
    }

    /// Lets the device know, and waits for `count` answers.
    fn wait(&mut self, queue: usize, count: usize) -> Vec<usize> {
        let notifier = self.transport.get_submission_notifier(queue);
        notifier.notify().expect("kicked");
        let event = self.transport.get_completion_fd(queue);
        let mut ended = Vec::new();
        loop {
            for completion in self.queues[queue].completions() {
                assert_eq!(completion.ret, 0, "request {}", completion.context);
                ended.push(completion.context);
            }
            if ended.len() >= count {
                assert_eq!(ended.len(), count);
                return ended;
            }
            let mut polled = [PollFd::new(&*event, PollFlags::IN)];
            let timeout = Timespec::try_from(PATIENCE).expect("small");
            assert_eq!(poll(&mut polled, Some(&timeout)), Ok(1), "no answer");
            event.read().expect("a counter");
        }
    }

    /// The disk's bytes in pieces, `DEPTH` of them at a time and each batch in another queue.
    fn each_batch(
        &mut self,
        len: usize,
        mut serve: impl FnMut(&mut Self, usize, &[(usize, usize)]),
    ) {
        let (mut at, mut lengths) = (0, LENGTHS.iter().cycle());
        let mut queue = 0;
        while at < len {
            let mut pieces = Vec::new();
            while at < len && pieces.len() < DEPTH {
                let here = (*lengths.next().expect("for ever")).min(len - at);
                pieces.push((at, here));
                at += here;
            }
            serve(self, queue, &pieces);
            queue = (queue + 1) % QUEUES;
        }
    }

    fn write(&mut self, data: &[u8]) {
        self.each_batch(data.len(), |client, queue, pieces| {
            for (index, &(at, len)) in pieces.iter().enumerate() {
                let start = index * LENGTH_MAX;
                let copied = client
                    .memory
                    .write_all_at(&data[at..at + len], start as u64);
                copied.expect("copied");
                let place = &client.window[start..start + len];
                let put = client.queues[queue].write(at as u64, place, index);
                put.expect("room");
            }
            let mut ended = client.wait(queue, pieces.len());
            ended.sort_unstable();
            assert!(ended.into_iter().eq(0..pieces.len()), "each of them once");
        });
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.each_batch(len, |client, queue, pieces| {
            for (index, &(at, len)) in pieces.iter().enumerate() {
                let start = index * LENGTH_MAX;
                let place = &mut client.window[start..start + len];
                let put = client.queues[queue].read(at as u64, place, index);
                put.expect("room");
            }
            client.wait(queue, pieces.len());
            for (index, &(at, len)) in pieces.iter().enumerate() {
                let start = (index * LENGTH_MAX) as u64;
                let copied = client.memory.read_exact_at(&mut data[at..at + len], start);
                copied.expect("copied");
            }
        });
        data
    }

    fn change(&mut self, queue: usize, change: Change, at: usize, len: usize) {
        let (ring, at, len) = (&mut self.queues[queue], at as u64, len as u64);
        let put = match change {
            Change::Discard => ring.discard(at, len, 0),
            Change::Zero => ring.write_zeroes(at, len, false, 0),
            Change::Unmap => ring.write_zeroes(at, len, true, 0),
            Change::Flush => ring.flush(0),
        };
        put.expect("room");
        self.wait(queue, 1);
    }
}

/// What a driver does to a disk, and the bytes that it has then.
fn use_disk(socket: &Path, ring: VirtioFeatureFlags, clear: &[u8]) -> Vec<u8> {
    let mut client = Client::connect(socket, ring);
    let mut expected = clear.to_vec();
    client.write(&expected);
    assert!(client.read(SIZE) == expected);
    for (queue, change, at, len) in [
        (0, Change::Zero, 4096, 8192),
        (1, Change::Unmap, 1 << 20, 1 << 20),
        (0, Change::Flush, 0, 0),
        (1, Change::Zero, SIZE - 4096, 4096),
    ] {
        client.change(queue, change, at, len);
        expected[at..at + len].fill(0);
        assert!(client.read(SIZE) == expected, "{change:?} {at} {len}");
    }
    client.change(0, Change::Discard, 3 << 20, 1 << 20);
    let found = client.read(SIZE);
    // Whatever is there now, the rest has stayed.
    let discarded = 3 << 20..4 << 20;
    expected[discarded.clone()].copy_from_slice(&found[discarded]);
    assert!(found == expected, "a discard of more than was asked for");
    client.change(1, Change::Flush, 0, 0);
    expected
}

fn serve(disk: &Disk, check: impl FnOnce(&Path)) {
    let socket = disk.path("socket");
    let mut command = cryptline(["vhost-user", "--num-queues", "2", "--socket-path", &socket]);
    command.arg("--allow-discards").args(disk.arguments());
    let process = Background::spawn(&mut command);
    let process = process.wait_for_socket(Path::new(&socket), READY);
    check(Path::new(&socket));
    process.stop().success();
}

#[test]
fn qemu_reads_from_a_luks1_disk_what_libblkios_driver_wrote() {
    let Some([cryptsetup, qemu_img]) = peer::require_all(["cryptsetup", "qemu-img"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks1");
    let clear = fs::read(&disk.clear).unwrap();
    serve(&disk, |socket| {
        let news = use_disk(socket, VirtioFeatureFlags::empty(), &clear);
        fs::write(&disk.clear, news).unwrap();
    });
    let secret = format!("secret,id=key,file={}", disk.key);
    let encrypted = format!("driver=luks,key-secret=key,file.filename={}", disk.image);
    let raw = format!("driver=raw,file.filename={}", disk.clear);
    let compare = [
        "compare",
        "--object",
        &secret,
        "--image-opts",
        &encrypted,
        &raw,
    ];
    qemu_img.run(compare).success();
}

#[test]
fn libblkios_driver_and_nbd_clients_see_the_same_luks2_disk() {
    let Some([cryptsetup, nbdcopy]) = peer::require_all(["cryptsetup", "nbdcopy"]) else {
        return;
    };
    let disk = Disk::new(&cryptsetup, "luks2");
    let clear = fs::read(&disk.clear).unwrap();
    let mut news = Vec::new();
    serve(&disk, |socket| {
        use_disk(socket, VirtioFeatureFlags::RING_EVENT_IDX, &clear);
        // Another driver after the first one, in the same server.
        let clear = noise(SIZE + 4096).split_off(4096);
        news = use_disk(socket, VirtioFeatureFlags::empty(), &clear);
    });
    let server = Server::start(disk.arguments());
    nbdcopy.run([&*server.uri, &disk.clear]).success();
    server.stop();
    assert!(fs::read(&disk.clear).unwrap() == news);
    let clear = noise(SIZE + 8192).split_off(8192);
    fs::write(&disk.clear, &clear).unwrap();
    let server = Server::start(disk.arguments());
    nbdcopy.run(["--flush", &disk.clear, &server.uri]).success();
    server.stop();
    serve(&disk, |socket| {
        let mut client = Client::connect(socket, VirtioFeatureFlags::RING_EVENT_IDX);
        assert!(client.read(SIZE) == clear);
    });
}
