//! A driver of vhost-user disks that others wrote, libblkio's, without a machine.
//!
//! The driver takes an address for a number, so the data lies in shared memory that nobody maps here: a plain vector
//! has the addresses, and a file the bytes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
pub use virtio_driver::VirtioFeatureFlags;
use virtio_driver::{VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport};

const QUEUES: usize = 2;
/// Requests under way in one queue.
const DEPTH: usize = 16;
/// Lengths of requests, in turns.
const LENGTHS: [usize; 5] = [4096, 65536, 12288, 135_168, 8192];
const LENGTH_MAX: usize = 135_168;
const PATIENCE: Duration = Duration::from_secs(60);

/// The driver of one disk, with all its queues.
pub struct Client {
    // They lie in memory of the transport.
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    transport: Box<VirtioBlkTransport>,
    window: Vec<u8>,
    memory: File,
}

/// Operation that moves no data.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A discard.
    Discard,
    /// Zeroes, where there is room afterwards.
    Zero,
    /// Zeroes, where there need be none.
    Unmap,
    /// A flush, of everything.
    Flush,
}

impl Client {
    /// Of the server at `socket`, with these features of its rings.
    ///
    /// # Panics
    /// Where the server does not serve a disk that can be flushed, discarded and zeroed.
    #[must_use]
    pub fn connect(socket: &Path, ring: VirtioFeatureFlags) -> Self {
        let features = ring | VirtioFeatureFlags::VERSION_1;
        let features = features.bits() | VirtioBlkFeatureFlags::all().bits();
        let transport = VhostUser::new(socket.to_str().expect("text"), features).expect("connected");
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let offered = VirtioBlkFeatureFlags::from_bits_truncate(transport.get_features());
        let needed =
            VirtioBlkFeatureFlags::FLUSH | VirtioBlkFeatureFlags::DISCARD | VirtioBlkFeatureFlags::WRITE_ZEROES;
        assert!(offered.contains(needed), "{offered:?}");
        let mut queues = VirtioBlkQueue::setup_queues(&mut *transport, QUEUES, 64).expect("queues");
        queues.iter_mut().for_each(|queue| queue.set_used_notif_enabled(true));
        let window = vec![0; DEPTH * LENGTH_MAX];
        let memory = File::from(memfd_create("window", MemfdFlags::CLOEXEC).expect("memory"));
        memory.set_len(window.len() as u64).expect("memory");
        let address = window.as_ptr() as usize;
        let shared = transport.map_mem_region(address, window.len(), memory.as_raw_fd(), 0);
        shared.expect("shared");
        Self { queues, transport, window, memory }
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
    fn each_batch(&mut self, len: usize, mut serve: impl FnMut(&mut Self, usize, &[(usize, usize)])) {
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

    /// Writes from the disk's start.
    ///
    /// # Panics
    /// When a request fails, or is answered twice or not at all.
    pub fn write(&mut self, data: &[u8]) {
        self.each_batch(data.len(), |client, queue, pieces| {
            for (index, &(at, len)) in pieces.iter().enumerate() {
                let start = index * LENGTH_MAX;
                let copied = client.memory.write_all_at(&data[at..at + len], start as u64);
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

    /// The disk's first `len` bytes.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[must_use]
    pub fn read(&mut self, len: usize) -> Vec<u8> {
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

    /// Makes a change through one of the queues.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn change(&mut self, queue: usize, change: Change, at: usize, len: usize) {
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

/// Uses a disk of that many bytes, 4 MiB or more, as a driver does, and returns the bytes that it has then.
///
/// # Panics
/// Where they are not what a disk would have.
#[must_use]
pub fn use_disk(socket: &Path, ring: VirtioFeatureFlags, clear: &[u8]) -> Vec<u8> {
    let size = clear.len();
    let mut client = Client::connect(socket, ring);
    let config = client.transport.get_config().expect("a configuration");
    assert_eq!(u64::from(config.capacity), size as u64 / 512);
    let mut expected = clear.to_vec();
    client.write(&expected);
    assert!(client.read(size) == expected);
    for (queue, change, at, len) in [
        (0, Change::Zero, 4096, 8192),
        (1, Change::Unmap, 1 << 20, 1 << 20),
        (0, Change::Flush, 0, 0),
        (1, Change::Zero, size - 4096, 4096),
    ] {
        client.change(queue, change, at, len);
        expected[at..at + len].fill(0);
        assert!(client.read(size) == expected, "{change:?} {at} {len}");
    }
    client.change(0, Change::Discard, 2 << 20, 1 << 20);
    let found = client.read(size);
    // Whatever is there now, the rest has stayed.
    let discarded = 2 << 20..3 << 20;
    expected[discarded.clone()].copy_from_slice(&found[discarded]);
    assert!(found == expected, "a discard of more than was asked for");
    client.change(1, Change::Flush, 0, 0);
    expected
}
