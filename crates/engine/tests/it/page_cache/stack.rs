//! A stack of devices over a file of the model, its clients, and what is looked at when a history is over.

use std::fs::File;
use std::path::{Path, PathBuf};

use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Request, Submitted};
use cryptline_testkit::cache::{FileContent, FileOf, Machine, Survivors, Temper};
use tempfile::TempDir;

use super::history::{Habits, History, Scope};
use super::promises::{self, Promises};

/// Requests in flight at most.
const DEPTH: u32 = 64;

/// A file of the system and the machine that has its content.
pub struct Bed {
    pub machine: &'static Machine,
    pub path: PathBuf,
    pub file: File,
    /// Bytes in a unit of what a crash leaves.
    unit: usize,
    /// The file will be mapped.
    mapped: bool,
    _folder: TempDir,
}

impl Bed {
    /// A file beside the test program, where files are not in memory.
    pub fn new(size: u64, unit: usize) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::new_in(program.parent().unwrap(), size, unit)
    }

    pub fn new_in(folder: &Path, size: u64, unit: usize) -> Self {
        let folder = TempDir::new_in(folder).unwrap();
        let path = folder.path().join("image");
        let mut options = File::options();
        let file = (options.read(true).write(true).create(true)).open(&path);
        let file = file.unwrap();
        file.set_len(size).unwrap();
        Self { machine: Machine::new(), path, file, unit, mapped: false, _folder: folder }
    }

    /// A file to be mapped: in memory where possible, so that holes are what was never written.
    pub fn mapped(size: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let bed = if memory.is_dir() { Self::new_in(memory, size, 512) } else { Self::new(size, 512) };
        Self { mapped: true, ..bed }
    }

    pub fn size(&self) -> usize {
        usize::try_from(self.file.metadata().unwrap().len()).unwrap()
    }

    pub fn switch_on(&self, image: &FileContent, temper: Temper) -> FileOf {
        self.machine.reset(temper);
        self.attach(image)
    }

    /// A second file, on a machine that has one.
    pub fn on(machine: &'static Machine, size: u64, unit: usize) -> Self {
        let bed = Self::new(size, unit);
        Self { machine, ..bed }
    }

    /// Puts the file on the machine.
    pub fn attach(&self, image: &FileContent) -> FileOf {
        let image = image.clone();
        if self.mapped {
            self.machine.attach_mapped(&self.file, image, self.unit)
        } else {
            self.machine.attach(&self.file, image, self.unit)
        }
    }
}

/// Purpose of opening a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    History,
    /// To read it through once. Threads are not worth starting for that.
    Check,
}

/// Somebody cut the file short.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The device met it: from then on nothing may be promised.
    Met,
    /// The device could not know.
    Unseen,
}

/// How a history ended.
pub struct Ended {
    pub promises: Promises,
    pub damage: Option<Damage>,
    /// A request failed.
    pub has_failed: bool,
    /// Content that a power cut in the middle of a request left, and what was promised then.
    pub outage: Option<(FileContent, Promises)>,
}

/// Content of each file of a stack.
type Images = Vec<FileContent>;

/// How a stack is opened.
type Open = Box<dyn Fn(&Bed, Purpose) -> Gate>;

/// A stack of devices over a file.
pub struct Stack {
    pub bed: Bed,
    pub open: Open,
    /// Other threads do I/O: what a client that went away had in flight may still take effect.
    pub threaded: bool,
    pub habits: Habits,
    /// Bytes of the device that histories use.
    pub size: usize,
    pub image: FileContent,
    /// The second file and its content, where the device lies on two.
    pub second: Option<(Bed, FileContent)>,
}

impl Stack {
    /// A stack that the write [`promises::FILL`] has filled.
    pub fn new(bed: Bed, open: impl Fn(&Bed, Purpose) -> Gate + 'static) -> Self {
        let blank = vec![0; bed.size()];
        Self::over(bed, blank, usize::MAX, open)
    }

    /// The same over a file that holds something; only `most` bytes of the device are used.
    pub fn over(bed: Bed, content: Vec<u8>, most: usize, open: impl Fn(&Bed, Purpose) -> Gate + 'static) -> Self {
        Self::over_both(bed, content, None, most, open)
    }

    /// A stack over two files of the same machine, which the write [`promises::FILL`] has filled.
    pub fn over_two(bed: Bed, second: Bed, open: impl Fn(&Bed, Purpose) -> Gate + 'static) -> Self {
        let blank = vec![0; bed.size()];
        Self::over_both(bed, blank, Some(second), usize::MAX, open)
    }

    fn over_both(
        bed: Bed,
        content: Vec<u8>,
        second: Option<Bed>,
        most: usize,
        open: impl Fn(&Bed, Purpose) -> Gate + 'static,
    ) -> Self {
        let file = bed.switch_on(&content.into(), Temper::default());
        let second = second.map(|second| {
            let file = second.attach(&FileContent::zeros(second.size()));
            (second, file)
        });
        let gate = open(&bed, Purpose::Check);
        let mut client = Client::open(&gate, bed.machine.backend());
        let size = usize::try_from(gate.geometry().size).unwrap().min(most);
        let mut data = Buffer::alloc(size).unwrap();
        promises::fill(&mut data, promises::FILL, 0);
        client.finish(Request::write(0, data, true, 0)).unwrap();
        client.finish(Request::flush(0)).unwrap();
        let image = bed.machine.after_crash(file, Survivors::None);
        let second = second.map(|(second, file)| {
            let image = bed.machine.after_crash(file, Survivors::None);
            (second, image)
        });
        drop((client, gate));
        Self { bed, second, open: Box::new(open), threaded: false, habits: Habits::ALL, size, image }
    }

    /// Returns the things that can happen to it.
    pub fn scope(&self) -> Scope {
        self.switch_on(&self.images(), Temper::default());
        let geometry = *(self.open)(&self.bed, Purpose::Check).geometry();
        Scope {
            blocks: self.size / usize::try_from(geometry.logical_block).unwrap(),
            discard: geometry.discard,
            zeroes: geometry.write_zeroes,
            mapped: self.bed.mapped,
            habits: self.habits,
        }
    }

    /// Lets a history happen, as `happen` has it. How many writes flushes promised; or which promise was broken.
    pub fn run_as(
        &self,
        history: &History,
        happen: impl FnOnce(&Gate, Vec<FileOf>) -> Result<Ended, String>,
    ) -> Result<usize, String> {
        let files = self.switch_on(&self.images(), history.temper);
        let gate = (self.open)(&self.bed, Purpose::History);
        let machine = self.bed.machine;
        if let Some(count) = history.outage {
            machine.fail_power_at(count, Survivors::Some(history.seed));
        }
        let ended = happen(&gate, files.clone())?;
        if ended.damage.is_some() {
            return Ok(0);
        }
        let promises = ended.promises;
        match self.read(&gate) {
            Ok(bytes) => promises.check(0, &bytes),
            // Some devices give up after the failure that they have reported.
            Err(_) if ended.has_failed => Ok(()),
            Err(fault) => Err(fault.to_string()),
        }
        .map_err(|wrong| format!("read back: {wrong}"))?;
        let states = [Survivors::None, Survivors::Some(history.seed)];
        let left = |survivors| files.iter().map(|file| machine.after_crash(*file, survivors)).collect();
        let mut images: Vec<Images> = states.map(left).to_vec();
        drop(gate);
        let kept = promises.kept;
        let mut known = vec![promises.clone(), promises];
        if let Some((image, promises)) = ended.outage {
            // Of the only file: mappings are in one.
            images.push(vec![image]);
            known.push(promises);
        }
        let names =
            ["that left nothing unsynced", "that left some of what was not synced", "in the middle of a request"];
        for ((name, image), promises) in names.iter().zip(images).zip(known) {
            self.switch_on(&image, Temper::default());
            let checked = self.check(&(self.open)(&self.bed, Purpose::Check), &promises);
            checked.map_err(|wrong| format!("after a crash {name}: {wrong}"))?;
        }
        Ok(kept)
    }

    /// Returns the content of the files.
    fn images(&self) -> Images {
        let second = self.second.iter().map(|(_, image)| image.clone());
        std::iter::once(self.image.clone()).chain(second).collect()
    }

    fn switch_on(&self, images: &Images, temper: Temper) -> Vec<FileOf> {
        let first = self.bed.switch_on(&images[0], temper);
        let second = self.second.iter().zip(&images[1..]);
        let second = second.map(|((bed, _), image)| bed.attach(image));
        std::iter::once(first).chain(second).collect()
    }

    /// Checks that all of the device is as promised.
    fn check(&self, gate: &Gate, promises: &Promises) -> Result<(), String> {
        let bytes = self.read(gate).map_err(|fault| fault.to_string())?;
        promises.check(0, &bytes)
    }

    /// Reads all of the device through a new queue.
    fn read(&self, gate: &Gate) -> Result<Buffer, Fault> {
        let mut client = Client::open(gate, self.bed.machine.backend());
        // A direct read may be told of what others lost; the next is not.
        let mut tries = 0;
        loop {
            match client.finish(Request::read(0, Buffer::alloc(self.size).unwrap(), 0)) {
                Ok(bytes) => return Ok(bytes.expect("a read comes back with its data")),
                Err(fault) if tries == 3 => return Err(fault),
                _ => tries += 1,
            }
        }
    }
}

/// A thread that uses the device, without the thread.
pub struct Client {
    pub channel: Channel,
    pub done: Vec<Completion>,
}

impl Client {
    pub fn open(gate: &Gate, backend: BackendChoice) -> Self {
        Self { channel: Channel::open(gate, backend, DEPTH).unwrap(), done: Vec::new() }
    }

    /// Carries out a request with nothing else in flight; its data.
    pub fn finish(&mut self, request: Request) -> Result<Option<Buffer>, Fault> {
        if let Submitted::Done(done) = self.channel.submit(request) {
            self.done.push(done);
        }
        self.settle();
        let Completion { request, result } = self.done.pop().unwrap();
        result.map(|()| request.data)
    }

    pub fn poll(&mut self) {
        self.channel.poll(&mut self.done).unwrap();
    }

    pub fn settle(&mut self) {
        while self.channel.in_flight() > 0 {
            self.channel.wait(&mut self.done).unwrap();
        }
    }
}
