//! Copies whose power fails, or whose writes are lost, at every point: what says that it is there is there, and the next
//! run ends in all of it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cryptline_luks::format::{FormatOptions, LuksVersion};
use cryptline_testkit::cache::{Cut, Left, Machine, Names, Survivors, Temper};
use cryptline_testkit::suite::noise;
use tempfile::TempDir;

use super::feed::CHUNK;
use super::{Copy, CopySource};
use crate::create::Progress;
use crate::error::Problem;
use crate::testing::{LosingFolder, cheap};
use crate::{Create, Open, Result};

/// A flush before the last one, a hole, and an end in the middle of a sector.
const SIZE: usize = 7 * CHUNK + 4096 + 77;
const START: usize = 1 << 20;
const CAPACITY: usize = 9 << 20;
const PART: &str = ".dest.cryptline-part";
const DEST: &str = "dest";
const PHRASE: &str = "pass phrase";

/// Kind of destination that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// A file with the clear bytes, in one run.
    Once,
    /// The same in as many as it takes.
    Clear,
    /// A volume.
    Sealed,
}

impl Made {
    /// Where the data begins.
    fn start(self) -> usize {
        if self == Self::Sealed { START } else { 0 }
    }
}

struct World {
    machine: &'static Machine,
    made: Made,
    source: PathBuf,
    bytes: Vec<u8>,
    dest: LosingFolder,
    folder: TempDir,
    verify: bool,
}

impl World {
    fn new(made: Made) -> Self {
        let (folder, dest) = (TempDir::new().unwrap(), LosingFolder::new());
        let source = folder.path().join("source");
        let mut bytes: Vec<u8> = (0..SIZE.div_ceil(8) as u64).flat_map(|word| noise(word).to_le_bytes()).collect();
        bytes.truncate(SIZE);
        bytes[3 * CHUNK..4 * CHUNK].fill(0);
        fs::write(&source, &bytes).unwrap();
        Self { machine: dest.machine, made, source, bytes, dest, folder, verify: false }
    }

    /// The machine is switched on and finds this.
    fn begin(&self, found: &Left, temper: Temper) {
        for entry in fs::read_dir(&self.dest.folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, bytes) in found {
            put(&self.dest.folder.path().join(name), bytes);
        }
        self.machine.reset(temper);
        let mut source = self.bytes.clone();
        source.resize(SIZE.next_multiple_of(4096), 0);
        self.machine.attach(&File::open(&self.source).unwrap(), source.into(), 4096);
        self.machine.watch(self.dest.folder.path(), CAPACITY);
    }

    fn copy(&self) -> Copy {
        let copy = Copy::new(CopySource::raw(&self.source).unwrap()).verify(self.verify);
        let copy = if self.made == Made::Once { copy } else { copy.resume("") };
        copy.backend(self.machine.backend())
    }

    fn run(&self) -> Result<()> {
        self.run_told(|_| Ok(()))
    }

    /// The same, and `told` how far it is.
    fn run_told(&self, told: impl Fn(Progress<'_>) -> Result<()> + Send + Sync + 'static) -> Result<()> {
        let (copy, dest) = (self.copy(), self.dest.path(DEST));
        match self.made {
            Made::Once | Made::Clear => copy.on_progress(told).into_file(dest).map(drop),
            Made::Sealed => {
                let create = Create::new(dest).format(format()).passphrase(PHRASE).fill(copy);
                create.on_progress(told).create().map(drop)
            }
        }
    }

    /// The first bytes of a copy, clear.
    fn clear(&self, file: &[u8], len: usize) -> Vec<u8> {
        if self.made != Made::Sealed {
            return file[..len].to_vec();
        }
        let path = self.folder.path().join("left");
        put(&path, file);
        let volume = Open::new(&path).passphrase(PHRASE).read_only(true).open().unwrap();
        let mut bytes = vec![0; len.next_multiple_of(512)];
        volume.blocking().unwrap().read_at(0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// A file of the last name is whole, and of the other one what its record tells. That much is told.
    #[track_caller]
    fn judge(&self, left: &Left, when: &str) -> u64 {
        if let Some(whole) = left.get(OsStr::new(DEST)) {
            let len = self.made.start() + SIZE.next_multiple_of(if self.made == Made::Sealed { 512 } else { 1 });
            assert_eq!(whole.len(), len, "{when}");
            assert!(self.clear(whole, SIZE) == self.bytes, "{when}: not what was copied");
        }
        let part = left.get(OsStr::new(PART));
        let Some((part, mark)) = part.and_then(|part| Some((part, mark(part)?))) else { return 0 };
        let told = usize::try_from(mark).unwrap();
        assert!(self.clear(part, told) == self.bytes[..told], "{when}: {mark} bytes are told and not there");
        mark
    }

    /// The next run ends in all of it, which is durable.
    #[track_caller]
    fn ends_well(&self, when: &str) {
        self.run().unwrap_or_else(|error| panic!("{when}: {error}"));
        self.is_durable(when);
    }

    /// Returns what programs see in the folder.
    fn shown(&self) -> Left {
        let entries = fs::read_dir(&self.dest.folder).unwrap().flatten();
        entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
    }

    #[track_caller]
    fn is_durable(&self, when: &str) {
        let left = self.machine.folder_after(Cut { names: Names::Durable, content: Survivors::None });
        self.judge(&left, when);
        assert!(left.keys().eq([DEST]), "{when}: {:?}", left.keys());
    }
}

fn format() -> FormatOptions {
    FormatOptions { data_offset: Some(START as u64), ..cheap(LuksVersion::Luks2) }
}

fn put(path: &Path, bytes: &[u8]) {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

/// Returns what the last record of an unfinished copy tells.
fn mark(part: &[u8]) -> Option<u64> {
    let number = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().unwrap());
    let places = [2, 1].into_iter().filter_map(|back| part.len().checked_sub(back * 4096));
    let records = places.filter(|&at| part[at..].starts_with(b"cryptline copy 1"));
    records.max_by_key(|&at| number(at + 16)).map(|at| number(at + 32))
}

/// Power cuts before every change and every sync, each in these ways.
fn cuts(made: Made, seed: u64) -> [Cut; 5] {
    let cut = |names, content| Cut { names, content };
    let records = (made.start() + SIZE.next_multiple_of(512)).next_multiple_of(4096);
    [
        cut(Names::Durable, Survivors::None),
        cut(Names::Latest, Survivors::None),
        cut(Names::Latest, Survivors::From(records)),
        cut(Names::Latest, Survivors::Some(seed)),
        cut(Names::Latest, Survivors::All),
    ]
}

/// Cuts the power everywhere. What was told by some record before the end.
fn cut_everywhere(made: Made) -> BTreeSet<u64> {
    let (world, mut told) = (World::new(made), BTreeSet::new());
    let mut tried = BTreeSet::new();
    for point in 0.. {
        world.begin(&Left::new(), Temper::default());
        world.machine.cut_at(point, &cuts(made, u64::from(point)));
        world.run().unwrap();
        let all = world.machine.take_cuts();
        if all.is_empty() {
            world.is_durable("at the end");
            assert!(point > 8, "{point}");
            return told;
        }
        for (left, cut) in all.iter().zip(cuts(made, u64::from(point))) {
            let when = format!("{made:?}, cut {point}, {cut:?}");
            told.insert(world.judge(left, &when));
            let is_new = tried.insert(known(left));
            // A volume takes its time.
            let goes_on = match made {
                Made::Once => false,
                Made::Clear => true,
                Made::Sealed => point % 2 == 0,
            };
            if goes_on && is_new && !left.contains_key(OsStr::new(DEST)) {
                world.begin(left, Temper::default());
                world.ends_well(&when);
            }
        }
    }
    unreachable!("it ends with the copy")
}

/// Tells what is left of one cut from what is of another.
fn known(left: &Left) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for (name, bytes) in left {
        hash.update(name.as_encoded_bytes());
        hash.update(bytes);
    }
    hash.finalize().to_vec()
}

#[test]
fn copy_in_one_run_has_its_name_only_when_it_is_whole() {
    cut_everywhere(Made::Once);
}

#[test]
fn copy_goes_on_from_every_power_cut() {
    let told = cut_everywhere(Made::Clear);
    assert!(told.len() > 1, "no record told anything: {told:?}");
}

#[test]
fn filled_volume_goes_on_from_every_power_cut() {
    let told = cut_everywhere(Made::Sealed);
    assert!(told.len() > 1, "no record told anything: {told:?}");
}

/// Writeback fails, each time elsewhere, and what the cache still shows is dropped.
fn loses(made: Made) {
    let (world, mut failed) = (World::new(made), 0);
    for seed in 0..16 {
        world.begin(&Left::new(), Temper { writeback: 4, flush: 9, short: 5, ..Temper::default() });
        world.machine.step(Some(seed));
        let ended = world.run();
        failed += u32::from(ended.is_err());
        world.machine.step(None);
        world.machine.evict_folder();
        let when = format!("{made:?}, writes lost by {seed}");
        world.judge(&world.shown(), &when);
        for cut in cuts(made, seed) {
            world.judge(&world.machine.folder_after(cut), &format!("{when}, {cut:?}"));
        }
        // Who opens a file is told of what was lost before, if nobody was.
        let ends = ended.is_ok() || (0..4).any(|_| world.run().is_ok());
        assert!(ends, "{when}: never ends");
        world.is_durable(&when);
    }
    assert!(failed > 3, "{failed} of 16 failed");
}

#[test]
fn copy_goes_on_where_writes_were_lost() {
    loses(Made::Clear);
}

#[test]
fn filled_volume_goes_on_where_writes_were_lost() {
    loses(Made::Sealed);
}

/// With or without lost writes. Nothing but the copy itself makes it durable.
#[test]
fn volume_that_was_said_to_be_filled_is() {
    let (world, mut filled) = (World::new(Made::Sealed), 0);
    let empty = world.folder.path().join("empty");
    Create::new(&empty).size(CAPACITY as u64).format(format()).passphrase(PHRASE).create().unwrap();
    let found = Left::from([(DEST.into(), fs::read(&empty).unwrap())]);
    for seed in 0..8 {
        let writeback = if seed == 0 { 0 } else { 8 };
        world.begin(&found, Temper { writeback, short: 5, ..Temper::default() });
        world.machine.step(Some(seed));
        let copy = Copy { resume: None, ..world.copy() };
        let dest = world.dest.path(DEST);
        let copied = copy.replace(true).into_volume(|| Ok(Open::new(&dest).passphrase(PHRASE)));
        if let Err(error) = copied {
            assert!(seed > 0, "{error}");
            continue;
        }
        filled += 1;
        for cut in cuts(Made::Sealed, seed) {
            let left = world.machine.folder_after(cut);
            assert!(world.clear(&left[OsStr::new(DEST)], SIZE) == world.bytes, "{seed}, {cut:?}");
        }
    }
    assert!(filled > 1, "{filled}");
}

/// A medium that has other bytes than were written, and says nothing.
#[test]
fn copy_that_is_verified_is_refused_where_a_bit_has_changed() {
    for made in [Made::Once, Made::Clear, Made::Sealed] {
        let mut world = World::new(made);
        world.verify = true;
        world.begin(&Left::new(), Temper::default());
        world.run().unwrap();
        world.is_durable("unchanged");
        world.begin(&Left::new(), Temper::default());
        let folder = world.dest.folder.path().to_owned();
        let change = move |progress: Progress<'_>| {
            if let Progress::Copied { bytes, of: Some(of) } = progress
                && bytes == of
            {
                let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
                let mut bytes = fs::read(&file).unwrap();
                bytes[made.start() + 5 * CHUNK + 7] ^= 1;
                let file = File::options().write(true).open(file).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
            }
            Ok(())
        };
        let refused = world.run_told(change).unwrap_err();
        assert!(matches!(refused.problem(), Problem::CopyDiffers { .. }), "{refused}");
        assert_eq!(fs::read_dir(&world.dest.folder).unwrap().count(), 0, "nothing is kept of it");
    }
}
