//! Files of the model, and the clients of devices over them.

use std::fs::File;
use std::path::{Path, PathBuf};

use cryptline_engine::{BackendChoice, Buffer, Channel, Completion, Fault, Gate, Request, Submitted};
use cryptline_testkit::cache::{FileContent, FileOf, Machine, Temper};
use tempfile::TempDir;

/// Requests in flight at most.
const DEPTH: u32 = 64;

/// A file of the system and the machine that has its content.
pub struct Bed {
    pub machine: &'static Machine,
    pub path: PathBuf,
    pub file: File,
    /// Unit, in bytes, of what a crash leaves.
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

/// A thread that uses the device, without the thread.
pub struct Client {
    pub channel: Channel,
    pub done: Vec<Completion>,
}

impl Client {
    pub fn open(gate: &Gate, backend: BackendChoice) -> Self {
        Self { channel: Channel::open(gate, backend, DEPTH).unwrap(), done: Vec::new() }
    }

    /// Carries out a request with nothing else in flight.
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
