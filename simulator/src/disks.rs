//! Two disks: one over files in the page-cache model, one over a server or a cluster below; their media, power cuts, and what these
//! have left.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cryptline::{Info, Open};
use cryptline_engine::layer::{Exclusion, SubBlockDevice, SubBlockOptions};
use cryptline_engine::{BackendChoice, Buffer, Channel, Gate, Request, Submitted};
use cryptline_testkit::cache::{FileContent, FileOf, Machine, Survivors, Temper};
use tempfile::TempDir;

use crate::audit::{Export, fill};
use crate::cells::{Cells, SECTOR};
use crate::copy;
use crate::history::{Door, Faults, History, SECTORS};
use crate::media::Media;
use crate::sim;
use crate::stack::{Bed, Stack, after_crash};
use crate::under::{Last, Under};
use crate::world::{Known, World};

/// Bytes of a disk.
pub const SIZE: usize = SECTORS * SECTOR;

/// The files of all stacks, for one history after the other.
pub struct Disks {
    pub media: &'static Media,
    pub copies: copy::Place,
    /// Folder of the sockets: in memory where possible, since each history makes new ones.
    sockets: PathBuf,
    beds: Vec<(Stack, Bed)>,
    /// Description that all disks have for those who control the server.
    pub info: Info,
    _folders: (TempDir, Option<TempDir>),
}

/// The disks of a history.
pub struct Laid<'a> {
    pub disks: &'a Disks,
    pub bed: &'a Bed,
    pub of: Vec<FileOf>,
    stack: Stack,
    history: &'a History,
}

/// Leftovers of a power cut, with the promises made by then.
pub struct Left {
    pub what: String,
    images: Vec<FileContent>,
    promises: Arc<Export>,
}

impl Left {
    /// Leftovers of a power cut in the middle of a sync of the only file.
    pub fn of_a_sync(image: FileContent, promises: &Export) -> Self {
        Self { what: "in the middle of a sync".to_owned(), images: vec![image], promises: Arc::new(promises.clone()) }
    }
}

impl Disks {
    pub fn new() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let folder = TempDir::new_in(program.parent().expect("a program lies in a folder"))?;
        let memory = Path::new("/dev/shm").is_dir().then(|| TempDir::new_in("/dev/shm")).transpose()?;
        let folders = [folder.path(), memory.as_ref().map_or(folder.path(), TempDir::path)];
        let media = Media::new();
        let fill = |gate: &Gate, size: usize| {
            // Write 0.
            let mut data = Buffer::alloc(size).expect("memory");
            fill(&mut data, 0, 0, 0);
            for request in [Request::write(0, data, true, 0), Request::flush(0)] {
                finish(gate, media.machine().backend(), request).expect("it is written");
            }
        };
        let mut beds = Vec::new();
        for stack in Stack::all() {
            match Bed::new(stack, folders, media, |gate| fill(gate, stack.size())) {
                Ok(bed) => beds.push((stack, bed)),
                // Not every file system can be gone around.
                Err(why) if stack.is_direct() => eprintln!("SKIP {stack:?}: {why}"),
                Err(why) => return Err(why),
            }
        }
        let copies = copy::Place::new(media, folders[1])?;
        sim::ask_of_files(media);
        let sockets = folders[1].to_owned();
        let info = Open::new("ram:1M").open().map_err(io::Error::other)?.info().clone();
        Ok(Self { media, copies, sockets, beds, info, _folders: (folder, memory) })
    }

    /// Lays out the disks of a history. The stack is the first of all, where its own cannot be had here.
    pub fn lay<'a>(&'a self, history: &'a History) -> Laid<'a> {
        let (stack, bed) = self.beds.iter().find(|(stack, _)| *stack == history.stack).unwrap_or(&self.beds[0]);
        let Faults { loses, refuses, unsynced, short, interrupts, .. } = history.faults;
        let temper = Temper {
            short,
            interrupted: interrupts,
            writeback: loses,
            flush: loses,
            direct: if stack.is_direct() { loses } else { 0 },
            refused: refuses,
            unsynced,
        };
        self.media.machine().reset(temper);
        self.media.reset(history.seed, history.careless);
        bed.shrink();
        let of = bed.attach(&bed.content);
        Laid { disks: self, bed, of, stack: *stack, history }
    }

    /// A path for a socket.
    pub fn path(&self, name: &str) -> PathBuf {
        self.sockets.join(name)
    }

    /// The same, at which nothing is yet.
    pub fn socket(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let _ = std::fs::remove_file(&path);
        path
    }
}

impl Laid<'_> {
    /// Knowledge of the disks at first.
    pub fn known(&self) -> Vec<Known> {
        let History { faults, rbd, doors, .. } = self.history;
        let (of, machine) = (self.of.clone(), self.disks.media.machine());
        let has_lost = move || of.iter().any(|of| machine.has_lost(*of));
        let is_sound = faults.loses == 0 && faults.interrupts == 0 && faults.unsynced == 0;
        let is_unwell = rbd.is_none() && (faults.below.late > 0 || faults.below.drops > 0);
        let is_sound_below = rbd.is_none_or(|habits| !habits.can_fail());
        let export = |number: usize| {
            let cells = match doors[number] {
                _ if number == 0 && self.stack == Stack::Wide => Cells::wide(),
                Door::Nbd | Door::VhostUser => Cells::sectors(),
                Door::Mount => Cells::odd(sim::mix(&[self.history.seed, number as u64])),
            };
            Export::new(number as u64, cells)
        };
        vec![
            Known { is_sound, flushes_ask: self.stack != Stack::Table, ..Known::new(export(0), has_lost) },
            Known { is_unwell, is_sound: is_sound_below, ..Known::new(export(1), || false) },
        ]
    }

    /// Starts what is below.
    pub fn start_below(&self, world: &Arc<World>) -> Under {
        let mut data = vec![0; SIZE];
        fill(&mut data, 1, 0, 0);
        let world = Arc::clone(world);
        let while_quiet = move |action: &mut dyn FnMut()| {
            let world = world.lock();
            if !world.exports[1].audit.has_writes_under_way() {
                action();
            }
        };
        Under::start(self.history, &self.disks.socket("below"), data, Box::new(while_quiet)).expect("a server below")
    }

    /// Ends it. What it has come to.
    pub fn end_below(&self, below: Under) -> Last {
        below.end(&self.disks.path("below"))
    }

    /// A disk, opened anew.
    pub fn open(&self, number: usize) -> Result<Gate, String> {
        if number == 0 {
            return self.bed.open();
        }
        Under::open(self.history, &self.disks.path("below"))
    }

    /// The same, for those who know no blocks.
    pub fn open_in_bytes(&self, number: usize) -> Result<Gate, String> {
        let gate = self.open(number)?;
        let sector = gate.geometry().logical_block;
        let options = SubBlockOptions { logical_block: 1, sector, exclusion: Exclusion::Shared };
        SubBlockDevice::new(gate, options).map(Gate::new).map_err(|error| error.to_string())
    }

    /// The file below the first disk grows, where the disk can. Whether it can.
    pub fn grow(&self) -> bool {
        self.stack.grows() && self.bed.grow()
    }

    /// Makes the medium of a disk silent.
    pub fn silence(&self, number: usize, below: &Under) {
        if number == 0 {
            self.bed.files.iter().for_each(|file| self.disks.media.silence(file));
        } else {
            below.silence();
        }
    }

    /// All media speak again.
    pub fn speak(&self, below: &Under) {
        self.disks.media.speak();
        below.speak();
    }

    /// Leftovers of a power cut now: nothing that was not synced, or some of it, where that makes a difference.
    pub fn cut(&self, when: &str, promises: &Export) -> Vec<Left> {
        let machine: &Machine = self.disks.media.machine();
        let after = |survivors| after_crash(machine, &self.of, survivors);
        let (nothing, some) = (after(Survivors::None), after(Survivors::Some(sim::mix(&[self.history.seed, 9]))));
        let promises = Arc::new(promises.clone());
        let left = |what, images| Left {
            what: format!("{when} that left {what} of what was not synced"),
            images,
            promises: Arc::clone(&promises),
        };
        let differs = some != nothing;
        std::iter::once(left("nothing", nothing)).chain(differs.then(|| left("some", some))).collect()
    }

    /// Has the power fail in the middle of one of the first syncs of a mapping. What takes that, once it was so.
    pub fn cut_in_a_sync(&self) -> impl Fn() -> Option<FileContent> + Send + use<> {
        let machine = self.disks.media.machine();
        if self.bed.is_mapped() {
            let chance = sim::mix(&[self.history.seed, 11]);
            let count = u32::try_from(chance % 20).expect("few");
            machine.fail_power_at(count, Survivors::Some(chance));
        }
        move || machine.take_left()
    }

    /// Judges what a power cut has left of the files.
    pub fn look(&self, left: Left) -> Result<(), String> {
        let Left { images, promises, .. } = left;
        if self.stack.is_encrypted()
            && images.iter().any(|image| image.written().any(|(_, page)| promises.has_pattern(page)))
        {
            return Err("A6: what a client has written is on the medium, unencrypted".to_owned());
        }
        let machine = self.disks.media.machine();
        machine.reset(Temper::default());
        self.bed.attach(&images);
        let gate = self.bed.look()?;
        let len = usize::try_from(gate.size()).expect("small").min(promises.cells.sizes()[1]);
        let read = Request::read(0, Buffer::alloc(len).expect("memory"), 0);
        match finish(&gate, machine.backend(), read) {
            Ok(Some(bytes)) => promises.left(&bytes),
            Ok(None) => unreachable!("a read comes back as a read"),
            Err(why) => Err(why),
        }
    }
}

/// Carries out one request; its data.
fn finish(gate: &Gate, backend: BackendChoice, request: Request) -> Result<Option<Buffer>, String> {
    let mut channel = Channel::open(gate, backend, 4).map_err(|error| error.to_string())?;
    let mut done = Vec::new();
    if let Submitted::Done(completion) = channel.submit(request) {
        done.push(completion);
    }
    while done.is_empty() {
        channel.wait(&mut done).map_err(|error| error.to_string())?;
    }
    let completion = done.pop().expect("one request, one answer");
    completion.result.map(|()| completion.request.data).map_err(|fault| fault.to_string())
}
