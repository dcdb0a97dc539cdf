//! Answers of a kernel that are easily taken for something else, one by one.

use std::os::fd::OwnedFd;
use std::path::Path;

use cryptline_engine::base::{DirectMode, Image, PersistentMemory, PmemDevice};
use cryptline_engine::{BackendChoice, Buffer, Fault, Gate, Op, Request};
use cryptline_sys::{Io, SimulatedKernel, Simulation};
use cryptline_testkit::cache::{FileContent, FileOf, Temper};
use cryptline_testkit::peer;
use rustix::io::Errno;

use super::bed::{Bed, Client};

/// Bytes of a file.
const SIZE: u64 = 2 * 4096;

/// A file, and a device over it.
type Base = (Bed, fn(&Bed) -> Gate);

/// A device in use by one client.
struct Used {
    bed: Bed,
    file: FileOf,
    gate: Gate,
    client: Client,
}

impl Used {
    /// A device on a machine that is calm at first.
    fn new((bed, open): Base, temper: Temper) -> Self {
        let blank = FileContent::zeros(bed.size());
        let file = bed.switch_on(&blank, temper);
        let gate = open(&bed);
        let client = Client::open(&gate, bed.machine.backend());
        Self { bed, file, gate, client }
    }

    /// From here on the temper strikes.
    fn be_wild(&self) {
        self.bed.machine.step(Some(7));
    }

    fn be_calm(&self) {
        self.bed.machine.step(None);
    }

    fn write(&mut self, byte: u8, durable: bool) -> Result<(), Fault> {
        let mut data = Buffer::alloc(4096).unwrap();
        data.fill(byte);
        self.client.finish(Request::write(0, data, durable, 0)).map(drop)
    }

    fn read(&mut self) -> u8 {
        match self.client.finish(Request::read(0, Buffer::alloc(4096).unwrap(), 0)) {
            Ok(Some(bytes)) => bytes[0],
            other => panic!("{other:?}"),
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.client.finish(Request::flush(0)).map(drop)
    }

    /// One of the two that promise something.
    fn sync(&mut self, durable_write: bool) -> Result<(), Fault> {
        if durable_write { self.write(9, true) } else { self.flush() }
    }
}

fn file_device(bed: &Bed, direct: DirectMode) -> Gate {
    let image = Image::open(&bed.path, false).unwrap();
    Gate::new(image.into_device(512, direct).unwrap())
}

fn buffered(bed: &Bed) -> Gate {
    file_device(bed, DirectMode::Off)
}

fn mapped(bed: &Bed) -> Gate {
    let memory = PersistentMemory::open(&bed.path, false).unwrap();
    Gate::new(PmemDevice::new(memory.simulate(Simulation::new(bed.machine)), false))
}

/// Through the page cache: over system calls, as a copy, and mapped.
fn cached() -> Vec<Base> {
    let mut bases: Vec<Base> = vec![(Bed::new(SIZE, 512), buffered), (Bed::mapped(SIZE), mapped)];
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        bases.push((Bed::new_in(memory, SIZE, 512), buffered));
    } else {
        peer::skip("there is no /dev/shm");
    }
    bases
}

/// Through the page cache and past it, where there is a way.
fn cached_and_direct() -> Vec<Base> {
    let mut bases: Vec<Base> = vec![(Bed::new(SIZE, 512), buffered)];
    let bed = Bed::new(SIZE, 512);
    match Image::open(&bed.path, false).unwrap().into_device(512, DirectMode::On) {
        Ok(_) => bases.push((bed, |bed| file_device(bed, DirectMode::On))),
        Err(why) => peer::skip_everywhere(&why.to_string()),
    }
    bases
}

#[test]
fn loss_that_is_told_as_an_interruption_is_a_loss() {
    for durable_write in [false, true] {
        for base in cached() {
            let mut used = Used::new(base, Temper::default());
            // From here on the queue's own file knows all.
            used.flush().unwrap();
            used.write(1, false).unwrap();
            let machine = used.bed.machine;
            assert!(machine.write_back(used.file, 0..usize::MAX, Some(Errno::INTR)) > 0);
            assert_eq!(used.sync(durable_write), Err(Fault::Io(Errno::INTR)), "durable write: {durable_write}");
            assert_eq!(used.flush(), Err(Fault::Latched));
            assert!(used.gate.is_latched());
        }
    }
}

#[test]
fn flush_or_durable_write_whose_sync_is_refused_is_a_failure_for_good() {
    for durable_write in [false, true] {
        for base in cached() {
            let mut used = Used::new(base, Temper { unsynced: 1, ..Temper::default() });
            used.flush().unwrap();
            used.write(1, false).unwrap();
            used.be_wild();
            // Whoever hears that it is not supported believes that it is not needed.
            assert_eq!(used.sync(durable_write), Err(Fault::Io(Errno::IO)));
            assert!(used.gate.is_latched());
            used.be_calm();
            for durable_write in [false, true] {
                let later = used.sync(durable_write).unwrap_err();
                assert!(!later.is_refusal(), "{later}");
            }
        }
    }
}

#[test]
fn punching_and_zeroing_that_worked_and_is_then_refused_changes_and_loses_nothing() {
    let mut count = 0;
    for base in cached_and_direct() {
        let mut used = Used::new(base, Temper { refused: 1, ..Temper::default() });
        assert!(used.gate.geometry().write_zeroes, "the machine's files can do it");
        for op in [Op::Discard, Op::ZeroUnmap, Op::Zero] {
            let ask = |used: &mut Used| used.client.finish(Request::new(op, 0, 4096, 0)).map(drop);
            used.be_calm();
            used.write(1, false).unwrap();
            assert_eq!((ask(&mut used), used.read()), (Ok(()), 0));
            used.write(2, false).unwrap();
            used.be_wild();
            assert_eq!(ask(&mut used), Err(Fault::NotSupported));
            used.be_calm();
            assert_eq!((used.read(), used.flush()), (2, Ok(())));
            count += 1;
        }
    }
    assert!(count > 0, "nothing was looked at");
}

/// A kernel that writes the first block of what it is given, and then says by this number that it does not.
struct Halfway(Errno);

impl SimulatedKernel for Halfway {
    fn run(&self, _: &OwnedFd, io: &mut Io) -> Result<usize, Errno> {
        match io {
            Io::Write { start: 0, .. } => Ok(4096),
            Io::Write { .. } => Err(self.0),
            Io::Read { len, .. } => Ok(*len),
            _ => Ok(0),
        }
    }
}

#[test]
fn write_of_which_a_part_was_made_was_not_refused() {
    for number in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM, Errno::NOMEM] {
        let bed = Bed::new(SIZE, 512);
        let gate = buffered(&bed);
        let kernel = Box::leak(Box::new(Halfway(number)));
        let mut client = Client::open(&gate, BackendChoice::Simulated(Simulation::new(kernel)));
        let write = Request::write(0, Buffer::alloc(8192).unwrap(), false, 0);
        let told = if number == Errno::NOMEM { number } else { Errno::IO };
        assert_eq!(client.finish(write).map(drop), Err(Fault::Io(told)), "{number}");
        assert!(gate.is_latched(), "nobody knows what is there");
    }
}
