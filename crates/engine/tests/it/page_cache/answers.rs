//! Answers of a kernel that are easily taken for something else, one by one.

use cryptline_engine::{Buffer, Fault, Gate, Op, Request};
use cryptline_testkit::cache::{FileOf, Temper};
use rustix::io::Errno;

use super::history::Habits;
use super::stack::{Client, Purpose, Stack};
use super::stacks;

/// A stack in use by one client.
struct Used {
    stack: Stack,
    file: FileOf,
    gate: Gate,
    client: Client,
}

impl Used {
    /// A stack on a machine that is calm at first.
    fn new(stack: Stack, temper: Temper) -> Self {
        let file = stack.bed.switch_on(&stack.image, temper);
        let gate = (stack.open)(&stack.bed, Purpose::History);
        let client = Client::open(&gate, stack.bed.machine.backend());
        Self { stack, file, gate, client }
    }

    /// From here on the temper strikes.
    fn be_wild(&self) {
        self.stack.bed.machine.step(Some(7));
    }

    fn be_calm(&self) {
        self.stack.bed.machine.step(None);
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

/// Through the page cache: over system calls, as a copy, and mapped.
fn cached() -> impl Iterator<Item = Stack> {
    let file = stacks::file(Habits::QUIET);
    std::iter::once(file).chain(stacks::file_in_memory(Habits::QUIET)).chain(std::iter::once(stacks::pmem()))
}

#[test]
fn loss_that_is_told_as_an_interruption_is_a_loss() {
    for durable_write in [false, true] {
        for stack in cached() {
            let mut used = Used::new(stack, Temper::default());
            // From here on the queue's own file knows all.
            used.flush().unwrap();
            used.write(1, false).unwrap();
            let machine = used.stack.bed.machine;
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
        for stack in cached() {
            let mut used = Used::new(stack, Temper { unsynced: 1, ..Temper::default() });
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
    for stack in [Some(stacks::file(Habits::QUIET)), stacks::direct_file(Habits::QUIET)].into_iter().flatten() {
        let mut used = Used::new(stack, Temper { refused: 1, ..Temper::default() });
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
