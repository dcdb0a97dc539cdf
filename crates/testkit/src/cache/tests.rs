//! The model compared with what Linux does, call by call.

use cryptline_sys::{Buffer, FileId, RequestSource, Ring};

use super::*;

struct Bench {
    machine: &'static Machine,
    path: std::path::PathBuf,
    file: FileOf,
    _folder: tempfile::TempDir,
}

/// An open file on a ring of its own.
struct Handle {
    ring: Ring,
    source: RequestSource,
    id: FileId,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        let machine = Machine::new();
        machine.reset(Temper::default());
        Self { file: machine.attach(&file, vec![0; 2048].into(), 512), machine, path, _folder: folder }
    }

    fn open(&self) -> Handle {
        let file = File::options().read(true).write(true).open(&self.path);
        let mut ring = Ring::new(self.machine.backend(), 4).unwrap();
        let id = ring.add_file(Arc::new(file.unwrap().into()));
        let source = ring.add_source();
        Handle { ring, source, id }
    }

    fn survives(&self) -> u8 {
        self.machine.after_crash(self.file, Survivors::None).to_vec()[0]
    }
}

impl Handle {
    fn run(&mut self, io: Io) -> (Result<usize, Errno>, Io) {
        self.ring.submit(self.source, 0, io).unwrap();
        self.ring.wait().unwrap();
        let done = self.ring.next_done(self.source).unwrap();
        (done.result, done.io)
    }

    fn write(&mut self, byte: u8, durable: bool) -> Result<usize, Errno> {
        let mut buffer = Buffer::alloc(512).unwrap();
        buffer.fill(byte);
        let (file, start, len, offset) = (self.id, 0, 512, 0);
        self.run(Io::Write { file, buffer, start, len, offset, durable }).0
    }

    fn read(&mut self) -> u8 {
        let buffer = Buffer::alloc(512).unwrap();
        let (file, start, len, offset) = (self.id, 0, 512, 0);
        match self.run(Io::Read { file, buffer, start, len, offset }) {
            (Ok(512), Io::Read { buffer, .. }) => buffer[0],
            (result, _) => panic!("{result:?}"),
        }
    }

    fn sync(&mut self) -> Result<usize, Errno> {
        self.run(Io::Sync { file: self.id }).0
    }
}

#[test]
fn write_survives_a_crash_once_it_is_synced() {
    let bench = Bench::new();
    let mut file = bench.open();
    file.write(1, false).unwrap();
    assert_eq!(bench.survives(), 0);
    bench.machine.write_back(bench.file, 0..2048, None);
    assert_eq!(bench.survives(), 0, "the medium has a cache too");
    file.sync().unwrap();
    assert_eq!(bench.survives(), 1);
    file.write(2, true).unwrap();
    assert_eq!(bench.survives(), 2);
    file.write(3, false).unwrap();
    let some = |seed| bench.machine.after_crash(bench.file, Survivors::Some(seed)).to_vec()[0];
    let seen: Vec<u8> = (0..20).map(some).collect();
    assert!(seen.contains(&2) && seen.contains(&3) && !seen.contains(&1), "{seen:?}");
}

#[test]
fn lost_write_is_shown_until_it_is_evicted() {
    let bench = Bench::new();
    let mut file = bench.open();
    file.write(1, false).unwrap();
    let lost = bench.machine.write_back(bench.file, 0..2048, Some(Errno::NOSPC));
    assert_eq!((lost, file.read()), (1, 1));
    bench.machine.evict(bench.file, 0..2048);
    assert_eq!(file.read(), 0);
}

#[test]
fn durable_write_is_told_what_a_sync_is_then_not_told() {
    let bench = Bench::new();
    let (mut one, mut two) = (bench.open(), bench.open());
    one.write(1, false).unwrap();
    bench.machine.write_back(bench.file, 0..2048, Some(Errno::NOSPC));
    assert_eq!(one.write(2, true), Err(Errno::NOSPC));
    assert_eq!(one.sync(), Ok(0));
    assert_eq!(two.sync(), Err(Errno::NOSPC));
    assert_eq!(bench.open().sync(), Ok(0), "opened when others had been told");
}

#[test]
fn other_program_that_is_told_leaves_nothing_for_who_opens_later() {
    let bench = Bench::new();
    let mut one = bench.open();
    let mut other = bench.machine.foreign_open(bench.file);
    one.write(1, false).unwrap();
    bench.machine.write_back(bench.file, 0..2048, Some(Errno::IO));
    let mut unseen = bench.open();
    assert_eq!(bench.machine.foreign_sync(&mut other), Err(Errno::IO));
    assert_eq!(bench.open().sync(), Ok(0));
    assert_eq!(unseen.sync(), Err(Errno::IO), "opened when nobody had been told");
    assert_eq!(one.sync(), Err(Errno::IO));
}

#[test]
fn same_open_file_on_two_rings_is_told_once() {
    let bench = Bench::new();
    let file: Arc<OwnedFd> = Arc::new(File::options().write(true).open(&bench.path).unwrap().into());
    let mut handles = [(); 2].map(|()| {
        let mut ring = Ring::new(bench.machine.backend(), 4).unwrap();
        let id = ring.add_file(Arc::clone(&file));
        let source = ring.add_source();
        Handle { ring, source, id }
    });
    handles[0].write(1, false).unwrap();
    bench.machine.write_back(bench.file, 0..2048, Some(Errno::IO));
    assert_eq!(handles[1].sync(), Err(Errno::IO));
    assert_eq!(handles[0].sync(), Ok(0));
}

#[test]
fn operations_in_flight_are_reported_in_any_order() {
    let bench = Bench::new();
    let mut file = bench.open();
    let reversed = (0..50).any(|seed| {
        bench.machine.step(Some(seed));
        for token in 0..2 {
            let io = Io::Sync { file: file.id };
            file.ring.submit(file.source, token, io).unwrap();
        }
        let mut order = Vec::new();
        while order.len() < 2 {
            file.ring.wait().unwrap();
            order.extend(file.ring.next_done(file.source).map(|done| done.token));
        }
        order == [1, 0]
    });
    assert!(reversed);
}
