//! The files of export 0, and the layers over them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cryptline_engine::Gate;
use cryptline_engine::base::{DirectMode, Image, PersistentMemory, PmemDevice};
use cryptline_engine::btt::{Btt, BttDevice, NewTable};
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptDevice, CryptOptions, Exclusion, SubBlockDevice, SubBlockOptions, Zeroes};
use cryptline_sys::{SharedMemory, Simulation};
use cryptline_testkit::cache::{FileContent, FileOf, Machine, Survivors};
use cryptline_testkit::suite::Fresh;
use cryptline_testkit::suite::devices::{
    self, AES_512, AES_512_SECOND, AES_4096, AUTO, CBC_4096, INLINE, Layout, QUEUE,
};
use serde::{Deserialize, Serialize};

use crate::cells::{Cells, SECTOR};
use crate::history::{MORE, SECTORS};
use crate::media::Media;
use crate::sim;

/// Bytes of the disk that are used.
const SIZE: usize = SECTORS * SECTOR;
/// Sectors of each range where ranges of two files take turns, and such ranges of a file.
const TURN: usize = 3;
const TURNS: usize = SECTORS.div_ceil(2 * TURN);
/// Bytes of the smallest file that can hold a block translation table.
const TABLE: usize = (16 << 20) + 4096;

/// Layers, and the files below them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stack {
    /// A file.
    Plain,
    /// XTS in sectors as small as the clients'.
    Xts,
    /// The same, with the cipher on worker threads.
    QueuedXts,
    /// The same, with the cipher on the worker of the submitter's processor, which submits as well.
    BoundXts,
    /// The same, with helpers at everything.
    HelpedXts,
    /// CBC in sectors of 4096 bytes in which holes read as zeros, offered in blocks of 512.
    SparseCbc,
    /// XTS in sectors as small as the clients', in which holes read as zeros.
    SparseXts,
    /// CBC in sectors of 4096 bytes in blocks of 512, those of other sectors beside each other.
    Cbc,
    /// The same, none beside a rewrite.
    ExclusiveCbc,
    /// The same as the first, on worker threads.
    SharedCbc,
    /// The same, with helpers at everything.
    HelpedCbc,
    /// XTS in sectors of 4096 bytes, over a medium that takes blocks of 512.
    FineXts,
    /// The same over one that takes 4096: parts of sectors are rewritten.
    CoarseXts,
    /// A file by O_DIRECT.
    Direct,
    /// XTS over the same.
    DirectXts,
    /// A file in a file system that is memory: its transfers are made by the thread that asks for them.
    InMemory,
    /// A file behind one that takes its time.
    Delayed,
    /// Ranges of two files, which take turns.
    TwoFiles,
    /// The same, by O_DIRECT: what a part has come to is known at once.
    DirectTwoFiles,
    /// Ranges of two files, each file under a key of its own.
    TwoVolumes,
    /// Two ranges of a file, each under a key of its own.
    TwoKeys,
    /// The same, with the ciphers on worker threads.
    QueuedTwoKeys,
    /// A mapped file.
    Mapped,
    /// XTS with helpers over a file that is larger than a chunk of a lane.
    Wide,
    /// A block translation table in a mapped file.
    Table,
}

/// All but those whose files are many times as large as the others.
const SMALL: [Stack; 23] = [
    Stack::Plain,
    Stack::Xts,
    Stack::QueuedXts,
    Stack::BoundXts,
    Stack::HelpedXts,
    Stack::SparseCbc,
    Stack::SparseXts,
    Stack::Cbc,
    Stack::ExclusiveCbc,
    Stack::SharedCbc,
    Stack::HelpedCbc,
    Stack::FineXts,
    Stack::CoarseXts,
    Stack::Direct,
    Stack::DirectXts,
    Stack::InMemory,
    Stack::Delayed,
    Stack::TwoFiles,
    Stack::DirectTwoFiles,
    Stack::TwoVolumes,
    Stack::TwoKeys,
    Stack::QueuedTwoKeys,
    Stack::Mapped,
];
/// One history in so many has a table.
const TABLE_ONE_IN: u64 = 400;
/// One history in so many is wide.
const WIDE_ONE_IN: u64 = 61;

impl Stack {
    /// The stack that belongs to a word of chance.
    pub fn of(word: u64) -> Self {
        if word.is_multiple_of(TABLE_ONE_IN) {
            return Self::Table;
        }
        if word.is_multiple_of(WIDE_ONE_IN) {
            return Self::Wide;
        }
        SMALL[(word / TABLE_ONE_IN % SMALL.len() as u64) as usize]
    }

    pub fn all() -> impl Iterator<Item = Self> {
        SMALL.into_iter().chain([Self::Wide, Self::Table])
    }

    fn layout(self) -> Option<&'static Layout> {
        match self {
            Self::Xts
            | Self::QueuedXts
            | Self::BoundXts
            | Self::HelpedXts
            | Self::DirectXts
            | Self::SparseXts
            | Self::Wide => Some(&AES_512),
            Self::FineXts | Self::CoarseXts => Some(&AES_4096),
            Self::SparseCbc | Self::Cbc | Self::ExclusiveCbc | Self::SharedCbc | Self::HelpedCbc => Some(&CBC_4096),
            _ => None,
        }
    }

    pub fn is_encrypted(self) -> bool {
        self.layout().is_some() || matches!(self, Self::TwoVolumes | Self::TwoKeys | Self::QueuedTwoKeys)
    }

    /// Tells if its transfers and `fallocate` can fail, not only its syncs.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::DirectXts | Self::DirectTwoFiles)
    }

    fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped | Self::Table)
    }

    /// Tells if no request is served beside a rewrite.
    fn is_exclusive(self) -> bool {
        matches!(self, Self::SparseCbc | Self::ExclusiveCbc)
    }

    /// Tells if it is as large as its file.
    pub fn grows(self) -> bool {
        self != Self::Wide && self.layout().is_some() || matches!(self, Self::Plain | Self::Direct | Self::InMemory)
    }

    /// Bytes that the medium writes at once. XTS does not mind a torn sector.
    fn unit(self) -> usize {
        if self.layout().is_some_and(|layout| !layout.cipher.contains("xts")) { 4096 } else { 512 }
    }

    /// Bytes of the disk that are used.
    pub fn size(self) -> usize {
        if self == Self::Wide { Cells::wide().sizes()[0] } else { SIZE }
    }

    /// Bytes of each of its files.
    fn lens(self) -> Vec<usize> {
        let start = |layout: &Layout| usize::try_from(layout.start).expect("small");
        match self {
            Self::TwoFiles | Self::DirectTwoFiles => vec![TURNS * TURN * SECTOR; 2],
            Self::TwoVolumes => [&AES_512, &AES_512_SECOND].map(|layout| start(layout) + TURNS * TURN * SECTOR).into(),
            Self::TwoKeys | Self::QueuedTwoKeys => vec![start(&AES_512) + SIZE],
            Self::Table => vec![TABLE],
            _ => vec![self.layout().map_or(0, start) + self.size()],
        }
    }

    /// The content of its files before anything was written to the disk.
    fn blank(self) -> Vec<FileContent> {
        let mut blank: Vec<_> = self.lens().into_iter().map(|len| vec![0; len]).collect();
        if let Self::Table = self {
            let medium = SharedMemory::new(TABLE).expect("memory");
            let new = NewTable { sector_size: 512, uuid: [1; 16], is_zero: true };
            assert!(new.write(&medium, |_| ()).expect("memory takes all") > 0, "no table fits");
            medium.read(0, &mut blank[0]);
        }
        blank.into_iter().map(FileContent::from).collect()
    }

    fn dispatch(self) -> Dispatch {
        match self {
            Self::QueuedXts | Self::SharedCbc | Self::QueuedTwoKeys => QUEUE,
            Self::BoundXts => Dispatch { same_cpu_crypt: true, submit_from_crypt_cpus: true, ..QUEUE },
            Self::HelpedXts | Self::HelpedCbc | Self::Wide => AUTO,
            _ => INLINE,
        }
    }

    /// A stack that has the same on its medium, and no threads.
    fn simplest(self) -> Self {
        match self {
            Self::QueuedXts | Self::HelpedXts | Self::BoundXts | Self::Wide => Self::Xts,
            Self::SharedCbc | Self::HelpedCbc => Self::Cbc,
            Self::QueuedTwoKeys => Self::TwoKeys,
            stack => stack,
        }
    }

    fn open(self, paths: &[PathBuf], media: &'static Media) -> Result<Gate, String> {
        if self.is_mapped() {
            let memory = PersistentMemory::open(&paths[0], false).map_err(|error| error.to_string())?;
            let memory = memory.simulate(Simulation::new(media));
            let Self::Table = self else { return Ok(Gate::new(PmemDevice::new(memory, false))) };
            let table = Btt::open(memory, false).map_err(|error| error.to_string())?;
            return Ok(Gate::new(BttDevice::new(table, false)));
        }
        let files = paths.iter().map(|path| self.file(path)).collect::<Result<Vec<_>, _>>()?;
        let file = Fresh::new(files[0].clone());
        match self {
            Self::Delayed => Ok(devices::delayed(file, devices::QUICK).gate),
            Self::TwoFiles | Self::DirectTwoFiles => Ok(in_turns(files.into_iter().map(Fresh::new).collect())),
            Self::TwoVolumes => {
                let volumes = files.into_iter().zip([&AES_512, &AES_512_SECOND]);
                Ok(in_turns(volumes.map(|(file, layout)| devices::crypt(Fresh::new(file), layout)).collect()))
            }
            Self::TwoKeys | Self::QueuedTwoKeys => {
                Ok(devices::two_keys(file, 15 * SECTOR as u64, self.dispatch()).gate)
            }
            _ => Ok(match self.layout() {
                Some(layout) => self.clear(file.gate, layout),
                None => file.gate,
            }),
        }
    }

    fn file(self, path: &Path) -> Result<Gate, String> {
        let image = Image::open(path, false).map_err(|error| error.to_string())?;
        let direct = if self.is_direct() { DirectMode::On } else { DirectMode::Off };
        let granularity = if let Self::CoarseXts = self { 4096 } else { 512 };
        Ok(Gate::new(image.into_device(granularity, direct).map_err(|error| error.to_string())?.growing()))
    }

    fn clear(self, file: Gate, layout: &Layout) -> Gate {
        let dispatch = self.dispatch();
        let options = CryptOptions {
            start: layout.start,
            allow_discards: true,
            logical_block: (layout.sector_size as usize != SECTOR && !self.is_exclusive()).then_some(512),
            dispatch,
            helpers: (dispatch.write == DispatchMode::Auto).then(|| HelperThreads::always(2).expect("two threads")),
            zeroes: match self {
                Self::SparseCbc | Self::SparseXts => Zeroes::Detect,
                _ => CryptOptions::default().zeroes,
            },
            ..CryptOptions::default()
        };
        let clear = Gate::new(CryptDevice::new(file, devices::cipher(layout), options).expect("it fits"));
        if clear.geometry().logical_block as usize == SECTOR {
            return clear;
        }
        let exclusion = if self.is_exclusive() { Exclusion::Exclusive } else { Exclusion::Shared };
        let options = SubBlockOptions { logical_block: 512, sector: layout.sector_size, exclusion };
        Gate::new(SubBlockDevice::new(clear, options).expect("smaller blocks"))
    }
}

/// Ranges that take turns.
fn in_turns(lowers: Vec<Fresh>) -> Gate {
    devices::in_turns(lowers, (TURN * SECTOR) as u64).gate
}

/// The files of a stack, and their content when a history begins.
pub struct Bed {
    stack: Stack,
    media: &'static Media,
    paths: Vec<PathBuf>,
    pub files: Vec<File>,
    pub content: Vec<FileContent>,
    /// A file is longer than at first.
    has_grown: AtomicBool,
}

impl Bed {
    /// Files in a folder, or in memory where they must be; what they hold is what a power cut leaves once `fill` has
    /// written to the disk.
    pub fn new(
        stack: Stack,
        [folder, memory]: [&Path; 2],
        media: &'static Media,
        fill: impl FnOnce(&Gate),
    ) -> io::Result<Self> {
        let folder = if stack.is_mapped() || stack == Stack::InMemory { memory } else { folder };
        let (mut paths, mut files) = (Vec::new(), Vec::new());
        for (number, len) in stack.lens().into_iter().enumerate() {
            let path = folder.join(format!("{stack:?}-{number}"));
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.set_len(len as u64)?;
            paths.push(path);
            files.push(file);
        }
        let content = stack.blank();
        let mut bed = Self { stack, media, paths, files, content, has_grown: AtomicBool::new(false) };
        media.machine().reset(cryptline_testkit::cache::Temper::default());
        let of = bed.attach(&bed.content);
        let gate = bed.open().map_err(io::Error::other)?;
        fill(&gate);
        drop(gate);
        bed.content = after_crash(media.machine(), &of, Survivors::None);
        if stack.grows() {
            let longer = |image: &FileContent| image.longer(MORE * SECTOR);
            bed.content = bed.content.iter().map(longer).collect();
        }
        Ok(bed)
    }

    pub fn open(&self) -> Result<Gate, String> {
        self.stack.open(&self.paths, self.media)
    }

    /// The disk, to see what it holds.
    pub fn look(&self) -> Result<Gate, String> {
        self.stack.simplest().open(&self.paths, self.media)
    }

    pub fn is_mapped(&self) -> bool {
        self.stack.is_mapped()
    }

    /// The file is longer from here on. What it has there is what the machine has all the time, zeros at first.
    pub fn grow(&self) -> bool {
        let len = self.stack.lens()[0] + MORE * SECTOR;
        self.has_grown.store(true, Ordering::Relaxed);
        sim::bypass(|| self.files[0].set_len(len as u64)).is_ok()
    }

    /// The files are as long as at first.
    pub fn shrink(&self) {
        if !self.has_grown.swap(false, Ordering::Relaxed) {
            return;
        }
        for (file, len) in self.files.iter().zip(self.stack.lens()) {
            file.set_len(len as u64).expect("a file can be cut");
        }
    }

    /// Puts the files on the machine, with a content.
    pub fn attach(&self, content: &[FileContent]) -> Vec<FileOf> {
        let machine = self.media.machine();
        let each = self.files.iter().zip(content);
        let attach = |(file, image): (&File, &FileContent)| match self.stack.is_mapped() {
            true => machine.attach_mapped(file, image.clone(), self.stack.unit()),
            false => machine.attach(file, image.clone(), self.stack.unit()),
        };
        each.map(attach).collect()
    }
}

/// Leftovers of a power cut now, file by file.
pub fn after_crash(machine: &Machine, of: &[FileOf], survivors: Survivors) -> Vec<FileContent> {
    of.iter().map(|of| machine.after_crash(*of, survivors)).collect()
}
