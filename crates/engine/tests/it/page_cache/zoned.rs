//! Emulated zones over the model: the data in one file, the write pointers in another.
//!
//! A flush promises the pointers of all writes that were acknowledged before it; a reset promises that
//! nothing of the old life is there any more. Below a pointer that survives, all must be as written.

use std::io;
use std::sync::{LazyLock, Mutex};

use cryptline_engine::base::{DirectMode, Image, ZonedDevice};
use cryptline_engine::dispatch::{Dispatch, DispatchMode, HelperThreads};
use cryptline_engine::layer::{CryptOptions, zoned};
use cryptline_engine::zone::journal::{self, StateStore, ZoneJournal};
use cryptline_engine::zone::state::{Block, file_len};
use cryptline_engine::zone::{ZoneLayout, ZoneTable};
use cryptline_engine::{Buffer, Completion, Gate, Request, Submitted, Zone, ZoneAction};
use cryptline_testkit::cache::{Chance, FileContent, FileOf, Foreign, Machine, Survivors, Temper};
use cryptline_testkit::suite::devices::{self, Layout};
use cryptline_testkit::suite::noise;
use rustix::io::Errno;

use super::bed::{Bed, Client};

const SECTOR: usize = 512;
const ZONE: usize = 4 * 4096;
const CAPACITY: usize = 3 * 4096;
const ZONES: usize = 4;

/// AES-256-XTS from the first byte on.
const AES: Layout = Layout { cipher: "aes-xts-plain64", key_bytes: 64, sector_size: 512, start: 0, iv_offset: 0 };

static HELPERS: LazyLock<HelperThreads> = LazyLock::new(|| HelperThreads::always(2).unwrap());

/// Zones over two files, plain or encrypted.
pub struct Zoned {
    data: Bed,
    state: Bed,
    mode: Option<DispatchMode>,
    blank: [FileContent; 2],
}

/// The state file, as the journal has it open.
struct Store {
    machine: &'static Machine,
    file: FileOf,
    open: Mutex<Foreign>,
}

impl StateStore for Store {
    fn read(&self, offset: u64, block: &mut Block) -> io::Result<()> {
        self.machine.read_at(self.file, at(offset), block);
        Ok(())
    }

    fn write(&self, offset: u64, block: &Block) -> io::Result<()> {
        self.machine.write_at(self.file, at(offset), block);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.machine.foreign_sync(&mut self.open.lock().unwrap());
        Ok(synced?)
    }
}

/// Knowledge about a zone.
#[derive(Clone, Default)]
struct Known {
    /// The write of each sector of this life that was submitted.
    sectors: Vec<usize>,
    /// Sectors that were acknowledged, and those that a flush has promised.
    acknowledged: usize,
    promised: usize,
    /// A reset of it failed: it may be in either life.
    in_doubt: bool,
    /// A write of it failed: nothing is written to it any more.
    stopped: bool,
}

enum Flying {
    Write {
        zone: usize,
        end: usize,
        life: usize,
        durable: bool,
    },
    /// Sectors that were acknowledged of each zone, and its life.
    Flush(Vec<(usize, usize)>),
}

impl Zoned {
    pub fn new(mode: Option<DispatchMode>) -> Self {
        let layout = layout();
        let data = Bed::new(layout.size(), 512);
        let state = Bed::on(data.machine, file_len(&layout), 512);
        let blank = [data.size(), state.size()].map(FileContent::zeros);
        let mut zoned = Self { data, state, mode, blank };
        let (_, file) = zoned.switch_on(&zoned.blank, Temper::default());
        journal::create(&zoned.store(file), &layout).unwrap();
        zoned.blank[1] = zoned.data.machine.after_crash(file, Survivors::None);
        zoned
    }

    fn switch_on(&self, images: &[FileContent; 2], temper: Temper) -> (FileOf, FileOf) {
        let data = self.data.switch_on(&images[0], temper);
        (data, self.state.attach(&images[1]))
    }

    fn store(&self, file: FileOf) -> Store {
        let machine = self.data.machine;
        let open = Mutex::new(machine.foreign_open(file));
        Store { machine, file, open }
    }

    fn open(&self, state: FileOf, mode: Option<DispatchMode>) -> Result<Gate, String> {
        let length = self.state.size() as u64;
        let loaded = journal::load(&self.store(state), length).map_err(|error| error.to_string())?;
        if !loaded.lost.is_empty() {
            return Err(format!("the state of zones {:?} is lost", loaded.lost));
        }
        let journal = ZoneJournal::open(Box::new(self.store(state)), &loaded);
        let journal = journal.map_err(|error| error.to_string())?;
        let table = ZoneTable::load(loaded.layout, |index| loaded.saved[index as usize]);
        let image = Image::open(&self.data.path, false).unwrap();
        let file = Gate::new(image.into_device(512, DirectMode::Off).unwrap());
        let zones = Gate::new(ZonedDevice::new(file, table, Some(journal)).unwrap());
        let Some(mode) = mode else {
            return Ok(zoned::ordered(zones).unwrap());
        };
        let options = CryptOptions {
            dispatch: Dispatch::both(mode),
            helpers: (mode == DispatchMode::Auto).then(|| HELPERS.clone()),
            ..CryptOptions::default()
        };
        Ok(zoned::encrypted(zones, devices::cipher(&AES), options).unwrap())
    }

    /// Lets the history of a seed happen, but for what `skip` leaves out. How many sectors were promised;
    /// or which promise was broken.
    pub fn run(&self, seed: u64, skip: &[usize], log: &mut Vec<String>) -> Result<usize, String> {
        let mut chance = Chance::default();
        chance.restart(Some(seed));
        let temper = Temper {
            short: [0, 8][chance.below(2)],
            interrupted: [0, 10][chance.below(2)],
            writeback: [0, 0, 20][chance.below(3)],
            ..Temper::default()
        };
        let (data, state) = self.switch_on(&self.blank, temper);
        let machine = self.data.machine;
        let gate = self.open(state, self.mode)?;
        let mut world = World {
            machine,
            files: [data, state],
            client: Client::open(&gate, machine.backend()),
            foreign: machine.foreign_open(data),
            zones: vec![(0, Known::default()); ZONES],
            flying: Vec::new(),
            writes: 0,
            tokens: 0,
            log,
        };
        for index in 0..8 + chance.below(40) {
            let (step, mut own) = (chance.draw(), Chance::default());
            own.restart(Some(step));
            machine.step(Some(own.draw()));
            if skip.contains(&index) {
                continue;
            }
            if own.one_in(12) {
                // Another queue instead: nothing is in flight in the old one.
                world.settle();
                world.client = Client::open(&gate, machine.backend());
                world.log.push("the client goes; another comes".to_owned());
            } else {
                world.take(&mut own);
            }
        }
        machine.step(None);
        world.settle();
        let zones = std::mem::take(&mut world.zones);
        drop(world);
        let crashes = [Survivors::None, Survivors::Some(seed)];
        let left = crashes.map(|left| [data, state].map(|file| machine.after_crash(file, left)));
        drop(gate);
        for (survivors, images) in crashes.iter().zip(left) {
            let (_, state) = self.switch_on(&images, Temper::default());
            let mode = self.mode.map(|_| DispatchMode::Inline);
            let checked = self.open(state, mode).and_then(|gate| self.check(&gate, &zones));
            checked.map_err(|wrong| format!("after a crash that left {survivors:?}: {wrong}"))?;
        }
        Ok(zones.iter().map(|(_, known)| known.promised).sum())
    }

    fn check(&self, gate: &Gate, zones: &[(usize, Known)]) -> Result<(), String> {
        let mut report = [Zone::default(); ZONES];
        gate.report_zones(0, &mut report).map_err(|fault| fault.to_string())?;
        let mut client = Client::open(gate, self.data.machine.backend());
        for (zone, ((_, known), report)) in zones.iter().zip(report).enumerate() {
            if known.in_doubt {
                continue;
            }
            let pointer = at(report.write_pointer.min(report.start + CAPACITY as u64) - report.start);
            let written = pointer / SECTOR;
            if written < known.promised || written > known.sectors.len() {
                return Err(format!(
                    "zone {zone} ends at sector {written}; promised are {}, written {}",
                    known.promised,
                    known.sectors.len()
                ));
            }
            if written == 0 {
                continue;
            }
            let read = Request::read(report.start, Buffer::alloc(pointer).unwrap(), 0);
            let bytes = client.finish(read).map_err(|fault| fault.to_string())?;
            let bytes = bytes.expect("a read comes back with its data");
            for (sector, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
                let number = known.sectors[sector];
                if !holds(bytes, number, zone * ZONE / SECTOR + sector) {
                    return Err(format!("sector {sector} of zone {zone} is not write #{number}"));
                }
            }
        }
        Ok(())
    }
}

struct World<'a> {
    machine: &'static Machine,
    files: [FileOf; 2],
    client: Client,
    foreign: Foreign,
    /// How often each was reset, and what is in it.
    zones: Vec<(usize, Known)>,
    flying: Vec<(u64, String, Flying)>,
    writes: usize,
    tokens: u64,
    log: &'a mut Vec<String>,
}

impl World<'_> {
    fn take(&mut self, own: &mut Chance) {
        let zone = own.below(ZONES);
        match own.below(20) {
            0..9 => self.write(zone, own),
            9..13 => {
                let zones = self.zones.iter();
                let known = zones.map(|(life, known)| (*life, known.acknowledged)).collect();
                let request = Request::flush(0);
                self.submit(request, "flush".to_owned(), Flying::Flush(known));
            }
            13 => self.reset(zone),
            14 => self.settle(),
            15..17 => {
                let (which, fault) = (own.below(5) / 4, [None, None, Some(Errno::NOSPC)][own.below(3)]);
                let count = self.machine.write_back(self.files[which], 0..usize::MAX, fault);
                self.log.push(format!("writeback of file {which}, {count} units: {fault:?}"));
            }
            17 => self.machine.evict(self.files[0], 0..usize::MAX),
            18 => {
                let told = self.machine.foreign_sync(&mut self.foreign);
                self.log.push(format!("another program's fsync: {told:?}"));
                self.foreign = self.machine.foreign_open(self.files[0]);
            }
            _ => {
                self.client.poll();
                self.reap();
            }
        }
    }

    fn write(&mut self, zone: usize, own: &mut Chance) {
        let (life, known) = &mut self.zones[zone];
        let start = known.sectors.len();
        let count = (1 + own.below(6)).min(CAPACITY / SECTOR - start);
        if known.stopped || known.in_doubt || count == 0 {
            return;
        }
        self.writes += 1;
        let (number, first) = (self.writes, zone * ZONE / SECTOR + start);
        let mut data = Buffer::alloc(count * SECTOR).unwrap();
        fill(&mut data, number, first);
        known.sectors.extend(std::iter::repeat_n(number, count));
        let (durable, life) = (own.one_in(5), *life);
        let (place, request) = if own.one_in(2) {
            ("append", Request::zone_append((zone * ZONE) as u64, data, durable, 0))
        } else {
            ("write", Request::write((first * SECTOR) as u64, data, durable, 0))
        };
        let what = format!("{place} #{number}, {count} sectors to zone {zone}, durable {durable}");
        let end = start + count;
        self.submit(request, what, Flying::Write { zone, end, life, durable });
    }

    /// With nothing else in flight, so that it is known what came before it.
    fn reset(&mut self, zone: usize) {
        self.settle();
        let before = self.zones[zone].clone();
        self.zones[zone].1.in_doubt = true;
        let request = Request::zone((zone * ZONE) as u64, ZoneAction::Reset, 0);
        let failed = self.client.finish(request).err();
        self.log.push(format!("reset of zone {zone} → {failed:?}"));
        if failed.is_none() {
            self.zones[zone] = (before.0 + 1, Known::default());
        }
    }

    fn submit(&mut self, mut request: Request, what: String, flying: Flying) {
        self.tokens += 1;
        let token = self.tokens;
        request.token = token;
        self.log.push(format!("submits {what}"));
        self.flying.push((token, what, flying));
        let Client { channel, done } = &mut self.client;
        if let Submitted::Done(completion) = channel.submit(request) {
            done.push(completion);
        }
        self.reap();
    }

    fn settle(&mut self) {
        self.client.settle();
        self.reap();
    }

    fn reap(&mut self) {
        for Completion { request, result } in std::mem::take(&mut self.client.done) {
            let place = self.flying.iter().position(|flying| flying.0 == request.token);
            let (_, what, flying) = self.flying.remove(place.expect("answered once"));
            self.log.push(format!("{what} → {result:?}"));
            match flying {
                Flying::Write { zone, end, life, durable } => {
                    let (now, known) = &mut self.zones[zone];
                    match result {
                        _ if *now != life => {}
                        Err(_) => known.stopped = true,
                        Ok(()) => {
                            known.acknowledged = known.acknowledged.max(end);
                            if durable {
                                known.promised = known.promised.max(end);
                            }
                        }
                    }
                }
                Flying::Flush(zones) if result.is_ok() => {
                    for ((now, known), (life, acknowledged)) in self.zones.iter_mut().zip(zones) {
                        if *now == life {
                            known.promised = known.promised.max(acknowledged);
                        }
                    }
                }
                Flying::Flush(_) => {}
            }
        }
    }
}

fn layout() -> ZoneLayout {
    let mut layout = ZoneLayout::new((ZONES * ZONE) as u64, ZONE as u64).unwrap();
    layout.capacity = CAPACITY as u64;
    layout.write_granularity = 512;
    layout.check().unwrap()
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Fills `bytes`, which begin with sector `first`, with the pattern of write `number`.
fn fill(bytes: &mut [u8], number: usize, first: usize) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let words = words(number, first + index);
        for (bytes, word) in sector.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Tells if a sector holds the pattern of write `number`.
fn holds(bytes: &[u8], number: usize, sector: usize) -> bool {
    let mut pairs = bytes.chunks_exact(8).zip(words(number, sector));
    pairs.all(|(bytes, word)| bytes == word.to_le_bytes())
}

/// The words of write `number` in a sector, all different.
fn words(number: usize, sector: usize) -> impl Iterator<Item = u64> {
    let first = noise((number as u64) << 32 | sector as u64);
    (0..64).map(move |word| first.wrapping_add(word << 56 | word))
}

/// Runs histories over zones that must keep their promises, the first of them that of `seed`.
pub fn hunt(zoned: &Zoned, seed: u64, cases: usize) -> Result<usize, String> {
    let mut kept = 0;
    for count in 0..cases {
        // The first history is that of the seed itself.
        let seed = if count == 0 { seed } else { noise(seed.wrapping_add(count as u64)) };
        match zoned.run(seed, &[], &mut Vec::new()) {
            Ok(promised) => kept += promised,
            Err(_) => {
                let mut skip = Vec::new();
                for step in 0..64 {
                    skip.push(step);
                    if zoned.run(seed, &skip, &mut Vec::new()).is_ok() {
                        skip.pop();
                    }
                }
                let mut log = Vec::new();
                let wrong = zoned.run(seed, &skip, &mut log).err();
                return Err(format!(
                    "in history {}, CRYPTLINE_SEED={seed}:\n{}\n{}",
                    count + 1,
                    log.join("\n"),
                    wrong.unwrap_or("not every time".to_owned())
                ));
            }
        }
    }
    Ok(kept)
}
