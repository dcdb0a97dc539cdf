//! A client: it sends what its history says, and tells the audit what it has heard.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cryptline_nbd::NbdError;
use cryptline_nbd::wire::{cmd, cmd_flag};

use crate::audit::{Content, End, Export, SECTOR, Tick, fill};
use crate::history::{Client, Place, Step};
use crate::run::Left;
use crate::sim;
use crate::wire::{Answer, Connection};

/// A client that has heard nothing for so long goes away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Whatever happens to others, an answer takes no longer.
const PROMPT: u64 = 1_000_000_000;
/// Requests in flight, at most.
const DEPTH: usize = 16;

/// Knowledge that all actors share.
pub struct World {
    inner: Mutex<Inner>,
}

/// Knowledge of an export.
pub struct Known {
    pub audit: Export,
    /// Silent before, or over an unreliable server: what is late is no wonder.
    pub is_unwell: bool,
    /// Removed, or being removed: its last flush is told to whoever does that.
    pub is_gone: bool,
    /// A client was told that a write or a flush has failed, since it was opened.
    pub has_failed: bool,
    /// Removed with a last flush that has told of all that was lost by then.
    pub loss_is_told: bool,
    /// Nothing that can fail stands below.
    pub is_sound: bool,
    /// Writes were lost below, as far as is known now.
    pub has_lost: Box<dyn Fn() -> bool + Send>,
}

impl Known {
    /// Now, and whether no flush may say yes any more: a write has been lost, or has failed.
    pub fn moment(&mut self) -> (Tick, bool) {
        (self.audit.tick(), self.has_failed || (self.has_lost)() && !self.loss_is_told)
    }
}

pub struct Inner {
    pub exports: Vec<Known>,
    pub findings: Vec<String>,
    pub log: Vec<String>,
    pub is_stopping: bool,
    /// Leftovers of a power cut, had there been one.
    pub cut: Option<[Left; 2]>,
}

/// The world of the history under way.
static CURRENT: Mutex<Option<Arc<World>>> = Mutex::new(None);

/// Events so far of the history under way, as far as nobody is writing it down.
pub fn last_words() -> Vec<String> {
    let world = CURRENT.try_lock().ok().and_then(|world| world.clone());
    let inner = world.as_ref().and_then(|world| world.inner.try_lock().ok());
    inner.map_or_else(Vec::new, |inner| inner.log.clone())
}

impl World {
    pub fn new(exports: Vec<Known>) -> Arc<Self> {
        let inner = Inner { exports, findings: Vec::new(), log: Vec::new(), is_stopping: false, cut: None };
        let world = Arc::new(Self { inner: Mutex::new(inner) });
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&world));
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, what: String) {
        self.lock().find(what);
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        self.lock().say(what());
    }
}

impl Inner {
    pub fn say(&mut self, what: String) {
        self.log.push(format!("{:>12.3} ms  {what}", (sim::now() % 1_000_000_000_000) as f64 / 1e6));
    }

    pub fn find(&mut self, what: String) {
        self.say(format!("FOUND: {what}"));
        self.findings.push(what);
    }
}

/// A request on its way.
struct Flying {
    kind: Kind,
    sent: Tick,
    at: u64,
    /// A write had been lost, or had failed, when it was sent.
    after_loss: bool,
}

enum Kind {
    Read(Place),
    Write { number: usize, durable: bool },
    Flush,
}

type Outcome = Result<Vec<u8>, NbdError>;

fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome, Err(NbdError::Inval | NbdError::Perm | NbdError::NotSup))
}

impl Flying {
    /// Tells if no flush may say yes after this end. A zeroing that fails may not have begun.
    fn latches(&self, known: &Known, outcome: &Outcome) -> bool {
        let changes = match self.kind {
            Kind::Flush => true,
            Kind::Write { number, .. } => known.audit.brings_bytes(number),
            Kind::Read(_) => false,
        };
        changes && outcome.as_ref().is_err_and(|error| *error != NbdError::NoSpc) && !is_refusal(outcome)
    }

    /// Things that nobody may be told of a flush or a durable write. A durable write that succeeds promises itself, and
    /// nothing of what others have lost; a durable zeroing may fail in the plain one that it begins with.
    fn wrongs_of_a_sync(
        &self,
        known: &Known,
        outcome: &Outcome,
        lost: bool,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let is_flush = matches!(self.kind, Kind::Flush);
        let is_durable = matches!(self.kind, Kind::Write { number, durable: true } if known.audit.brings_bytes(number));
        let has_no_room = *outcome == Err(NbdError::NoSpc);
        let wrongs = [
            (is_flush && self.after_loss && outcome.is_ok(), "says yes after a write was lost"),
            // Whoever hears it waits for room and tries again.
            ((is_flush || is_durable) && self.after_loss && lost && has_no_room, "lacks room after a write was lost"),
            // Whoever hears it believes that none is needed.
            (is_flush && is_refusal(outcome), "is refused"),
        ];
        wrongs.into_iter().filter_map(|(is_wrong, wrong)| is_wrong.then_some(wrong))
    }
}

/// A client at work.
pub struct Actor<'a> {
    number: usize,
    client: &'a Client,
    world: &'a World,
    path: &'a Path,
    connection: Option<Connection>,
    flying: HashMap<u64, Flying>,
}

impl<'a> Actor<'a> {
    pub fn new(number: usize, client: &'a Client, world: &'a World, path: &'a Path) -> Self {
        Self { number, client, world, path, connection: None, flying: HashMap::new() }
    }

    /// Everything that it does.
    pub fn live(mut self) {
        for step in &self.client.steps {
            if self.world.lock().is_stopping || (self.connection.is_none() && !self.come()) {
                break;
            }
            self.take(*step);
            while self.flying.len() >= DEPTH {
                self.hear();
            }
        }
        self.settle();
        self.leave("is done");
    }

    fn come(&mut self) -> bool {
        let (name, began) = (format!("e{}", self.client.export), sim::now());
        self.world.say(|| format!("client {} comes", self.number));
        let opened = Connection::open(self.path, &name, PATIENCE);
        let mut world = self.world.lock();
        let known = &world.exports[self.client.export];
        let is_late = sim::now() - began > PROMPT;
        if !world.is_stopping && !known.is_unwell && (is_late || opened.is_err()) {
            let how = opened.as_ref().err().map_or("late".to_owned(), ToString::to_string);
            let (number, export) = (self.number, self.client.export);
            world.find(format!("A7: client {number} of the healthy export {export} was not greeted: {how}"));
        }
        self.connection = opened.ok();
        self.connection.is_some()
    }

    fn leave(&mut self, why: &str) {
        if self.connection.take().is_none() {
            return;
        }
        self.world.say(|| format!("client {} goes: {why}", self.number));
        let mut world = self.world.lock();
        let known = &mut world.exports[self.client.export];
        for flying in std::mem::take(&mut self.flying).into_values() {
            if let Kind::Write { number, .. } = flying.kind {
                known.audit.end_write(number, End::Maybe);
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write { place, durable } => self.write(place, durable),
            Step::Read(place) => self.send(cmd::READ, 0, place, &[], |_| Kind::Read(place)),
            Step::Zero { place, fast, may_unmap, durable } => {
                let mut flags = if durable { cmd_flag::FUA } else { 0 };
                flags |= if fast { cmd_flag::FAST_ZERO } else { 0 };
                flags |= if may_unmap { 0 } else { cmd_flag::NO_HOLE };
                self.change(cmd::WRITE_ZEROES, flags, place, Content::Zeros);
            }
            Step::Discard(place) => self.change(cmd::TRIM, 0, place, Content::Unknown),
            Step::Flush => self.send(cmd::FLUSH, 0, Place { first: 0, count: 0 }, &[], |_| Kind::Flush),
            Step::Settle => self.settle(),
            Step::Pause(time) => {
                self.settle();
                std::thread::sleep(time);
            }
            Step::Leave => self.leave("as it likes"),
        }
    }

    fn write(&mut self, place: Place, durable: bool) {
        let export = self.client.export;
        let mut data = vec![0; place.count * SECTOR];
        let number = {
            let mut world = self.world.lock();
            let number = world.exports[export].audit.begin_write(place.first, place.count, Content::Pattern);
            fill(&mut data, export as u64, number, place.first);
            number
        };
        let flags = if durable { cmd_flag::FUA } else { 0 };
        self.send(cmd::WRITE, flags, place, &data, |_| Kind::Write { number, durable });
    }

    fn change(&mut self, command: u16, flags: u16, place: Place, content: Content) {
        let export = self.client.export;
        let number = self.world.lock().exports[export].audit.begin_write(place.first, place.count, content);
        let durable = flags & cmd_flag::FUA != 0;
        self.send(command, flags, place, &[], |_| Kind::Write { number, durable });
    }

    fn send(&mut self, command: u16, flags: u16, place: Place, data: &[u8], kind: impl FnOnce(()) -> Kind) {
        let export = self.client.export;
        let kind = kind(());
        let (sent, after_loss) = {
            let mut world = self.world.lock();
            let (number, what) = (self.number, tell(command, flags, place, &kind));
            world.say(format!("client {number} sends {what}"));
            let known = &mut world.exports[export];
            known.moment()
        };
        let range = ((place.first * SECTOR) as u64, u32::try_from(place.count * SECTOR).expect("small"));
        let at = sim::now();
        let Some(connection) = &mut self.connection else { return };
        match connection.send(command, flags, range, data) {
            Ok(cookie) => _ = self.flying.insert(cookie, Flying { kind, sent, at, after_loss }),
            Err(error) => {
                if let Kind::Write { number, .. } = kind {
                    self.world.lock().exports[export].audit.end_write(number, End::Maybe);
                }
                self.lost(&error);
            }
        }
    }

    fn settle(&mut self) {
        while !self.flying.is_empty() {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let Some(connection) = &mut self.connection else {
            self.flying.clear();
            return;
        };
        match connection.answer() {
            Ok(answer) => self.judge(answer),
            Err(error) => self.lost(&error),
        }
    }

    /// Its connection has ended, or nothing comes.
    fn lost(&mut self, error: &std::io::Error) {
        {
            let mut world = self.world.lock();
            let export = self.client.export;
            let known = &world.exports[export];
            if !world.is_stopping && !known.is_unwell {
                let number = self.number;
                world.find(format!("A7: client {number} of the healthy export {export} gets no answer: {error}"));
            }
        }
        self.leave(&error.to_string());
    }

    fn judge(&mut self, answer: Answer) {
        let Some(flying) = self.flying.remove(&answer.cookie) else {
            return self.world.find(format!("A3: an answer to request {}, which nobody has sent", answer.cookie));
        };
        let (export, number) = (self.client.export, self.number);
        let mut world = self.world.lock();
        let world = &mut *world;
        let told = answer.outcome.as_ref().map_or_else(|error| format!("{error:?}"), |_| "OK".to_owned());
        let what = match flying.kind {
            Kind::Read(place) => format!("read {}+{}", place.first, place.count),
            Kind::Write { number, .. } => format!("write #{number}"),
            Kind::Flush => "flush".to_owned(),
        };
        world.say(format!("client {number}: {what} → {told}"));
        sim::note(answer.outcome.as_ref().map_or_else(|error| error.code().into(), |_| 0));
        let known = &mut world.exports[export];
        let mut found = Vec::new();
        if !world.is_stopping && !known.is_unwell && sim::now() - flying.at > PROMPT {
            found.push(format!(
                "A7: {what} of the healthy export {export} took {} ms",
                (sim::now() - flying.at) / 1_000_000
            ));
        }
        let is_refusal = is_refusal(&answer.outcome);
        if known.is_sound && !known.is_unwell && answer.outcome.is_err() && !is_refusal && !world.is_stopping {
            found.push(format!("A9: {what} of export {export} fails without a cause: {told}"));
        }
        let lost = (known.has_lost)();
        if !world.is_stopping {
            known.has_failed |= flying.latches(known, &answer.outcome);
        }
        let wrongs = flying.wrongs_of_a_sync(known, &answer.outcome, lost);
        found.extend(wrongs.map(|wrong| format!("A5: {what} of export {export} {wrong}: {told}")));
        match (flying.kind, answer.outcome) {
            (Kind::Flush, Ok(_)) => known.audit.promise(flying.sent, None),
            (Kind::Write { number, durable }, outcome) => {
                let end = match outcome {
                    Ok(_) => End::Done,
                    Err(_) if is_refusal => End::Refused,
                    Err(_) => End::Maybe,
                };
                known.audit.end_write(number, end);
                if durable && end == End::Done {
                    known.audit.promise(flying.sent, Some(number));
                }
            }
            (Kind::Read(place), Ok(bytes)) => {
                if let Err(wrong) = known.audit.read(place.first, &bytes, flying.sent, lost) {
                    found.push(format!("A1: client {number}, {what}: {wrong}"));
                }
            }
            _ => {}
        }
        found.into_iter().for_each(|what| world.find(what));
    }
}

fn tell(command: u16, flags: u16, place: Place, kind: &Kind) -> String {
    let name = match command {
        cmd::READ => "read",
        cmd::WRITE => "write",
        cmd::FLUSH => "flush",
        cmd::TRIM => "discard",
        _ => "zero",
    };
    let number = if let Kind::Write { number, .. } = kind { format!(" #{number}") } else { String::new() };
    format!("{name}{number} of {}+{} with flags {flags:#x}", place.first, place.count)
}
