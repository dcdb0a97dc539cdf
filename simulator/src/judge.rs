//! The judge of requests, whatever front they go through: each is told of when it is sent and when it is answered, and
//! every rule that an answer can break is looked at.
//!
//! ```text
//! ask ─► Flying ─┬─► answered   its outcome is judged
//!                └─► given_up   it was not sent in whole: it may take effect
//! ```

use rustix::io::Errno;

use crate::audit::{Content, End, Export, Tick, fill};
use crate::history::{Door, Odd, Place, Step};
use crate::points::{Point, sometimes};
use crate::sim;
use crate::workers;
use crate::world::{Known, World};

/// Whatever happens to others, an answer takes no longer.
const PROMPT: u64 = 1_000_000_000;

/// An answer: with the data of a read.
pub type Outcome = Result<Vec<u8>, Errno>;

/// A request as all fronts have it.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Read(Place),
    Write {
        place: Place,
        durable: bool,
    },
    Zero {
        place: Place,
        fast: bool,
        may_unmap: bool,
        durable: bool,
    },
    Discard(Place),
    Flush,
    /// Which bytes are zeros for sure: 1 for each that is, and 0 for others.
    Status(Place),
    /// A thing that is to be refused.
    Odd(Odd),
    /// How many bytes the disk has.
    Size,
}

impl Asked {
    /// The request of a step, where it is one.
    pub fn of(step: Step) -> Option<Self> {
        Some(match step {
            Step::Write { place, durable } => Self::Write { place, durable },
            Step::Read(place) => Self::Read(place),
            Step::Zero { place, fast, may_unmap, durable } => Self::Zero { place, fast, may_unmap, durable },
            Step::Discard(place) => Self::Discard(place),
            Step::Flush => Self::Flush,
            Step::Status(place) => Self::Status(place),
            Step::Odd(odd) => Self::Odd(odd),
            Step::Size => Self::Size,
            _ => return None,
        })
    }

    pub fn place(&self) -> Place {
        match *self {
            Self::Read(place) | Self::Discard(place) | Self::Status(place) => place,
            Self::Write { place, .. } | Self::Zero { place, .. } => place,
            Self::Flush | Self::Odd(_) | Self::Size => Place { first: 0, count: 0 },
        }
    }

    /// The same for another place, where it is for any.
    pub fn moved(self, to: Place) -> Self {
        match self {
            Self::Read(_) => Self::Read(to),
            Self::Write { durable, .. } => Self::Write { place: to, durable },
            Self::Zero { fast, may_unmap, durable, .. } => Self::Zero { place: to, fast, may_unmap, durable },
            asked => asked,
        }
    }

    fn content(&self) -> Option<Content> {
        match self {
            Self::Write { .. } => Some(Content::Pattern),
            Self::Zero { .. } => Some(Content::Zeros),
            Self::Discard(_) => Some(Content::Unknown),
            Self::Read(_) | Self::Flush | Self::Status(_) | Self::Odd(_) | Self::Size => None,
        }
    }

    fn is_durable(&self) -> bool {
        matches!(self, Self::Write { durable: true, .. } | Self::Zero { durable: true, .. })
    }
}

/// A request on its way.
pub struct Flying {
    pub asked: Asked,
    /// Number of the write, for what changes the disk.
    write: Option<usize>,
    sent: Tick,
    at: u64,
    /// Life of the export in which it was sent.
    life: u32,
    /// A write had been lost, or had failed, when it was sent.
    after_loss: bool,
}

fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP))
}

impl Flying {
    /// Tells if no flush may say yes after this end. A zeroing that fails may not have begun; and where a front has one word
    /// for all failures, a write may have lacked room.
    fn latches(&self, known: &Known, door: Door, outcome: &Outcome) -> bool {
        let changes = match self.asked {
            Asked::Flush => true,
            _ if door == Door::VhostUser => false,
            _ => self.write.is_some_and(|number| known.audit.brings_bytes(number)),
        };
        changes && outcome.as_ref().is_err_and(|error| *error != Errno::NOSPC) && !is_refusal(outcome)
    }

    /// Things that nobody may be told of a flush or a durable write. A durable write that succeeds promises itself, and
    /// nothing of what others have lost; a durable zeroing may fail in the plain one that it begins with.
    fn wrongs_of_a_sync(&self, outcome: &Outcome, lost: bool) -> impl Iterator<Item = &'static str> + use<> {
        let is_flush = matches!(self.asked, Asked::Flush);
        let is_durable = matches!(self.asked, Asked::Write { durable: true, .. });
        let has_no_room = *outcome == Err(Errno::NOSPC);
        let wrongs = [
            (is_flush && self.after_loss && outcome.is_ok(), "says yes after a write was lost"),
            // Whoever hears it waits for room and tries again.
            ((is_flush || is_durable) && self.after_loss && lost && has_no_room, "lacks room after a write was lost"),
            // Whoever hears it believes that none is needed.
            (is_flush && is_refusal(outcome), "is refused"),
        ];
        wrongs.into_iter().filter_map(|(is_wrong, wrong)| is_wrong.then_some(wrong))
    }

    fn name(&self) -> String {
        match (self.asked, self.write) {
            (_, Some(number)) => format!("write #{number}"),
            (Asked::Read(place), _) => format!("read {}+{}", place.first, place.count),
            (Asked::Status(place), _) => format!("status of {}+{}", place.first, place.count),
            (Asked::Odd(odd), _) => format!("request that is none ({odd:?})"),
            (Asked::Size, _) => "size".to_owned(),
            _ => "flush".to_owned(),
        }
    }
}

/// The judge of one client.
pub struct Judge<'a> {
    pub world: &'a World,
    /// Number of the client, and of its export.
    pub client: usize,
    pub export: usize,
    /// The front of the export.
    pub door: Door,
}

impl Judge<'_> {
    /// A request is about to be sent, with the bytes that it writes.
    pub fn ask(&self, asked: Asked) -> (Flying, Vec<u8>) {
        let place = asked.place();
        let mut world = self.world.lock();
        let audit = &mut world.exports[self.export].audit;
        let write = asked.content().map(|content| audit.begin_write(place, content));
        let mut data = Vec::new();
        if let (Asked::Write { .. }, Some(number)) = (asked, write) {
            let range = audit.cells.range(place);
            data.resize(range.len(), 0);
            fill(&mut data, self.export as u64, number, range.start);
        }
        if workers::tells_all() {
            let number = write.map_or(String::new(), |number| format!(" #{number}"));
            world.say(format!("client {} sends{number} {asked:?}", self.client));
        }
        let known = &mut world.exports[self.export];
        let (life, (sent, after_loss)) = (known.life, known.moment());
        (Flying { asked, write, sent, at: sim::now(), life, after_loss }, data)
    }

    /// The same request in what its disk has grown by, where a client knows of that.
    pub fn in_room(&self, asked: Asked) -> Asked {
        let world = self.world.lock();
        let Known { audit, told, .. } = &world.exports[self.export];
        let (first, all, place) = (audit.cells.used(), audit.cells.count(), asked.place());
        if place.count == 0 || first == all || told.1 < audit.cells.sizes()[1] as u64 || self.export != 0 {
            return asked;
        }
        let at = first + place.first % (all - first);
        asked.moved(Place { first: at, count: place.count.min(all - at) })
    }

    /// A request was not sent in whole.
    pub fn given_up(&self, flying: &Flying) {
        if let Some(number) = flying.write {
            self.world.lock().exports[self.export].audit.end_write(number, End::Maybe);
        }
    }

    /// An answer has come that belongs to no request.
    pub fn unasked(&self, number: u64) {
        self.world.find(format!("A3: an answer to request {number}, which nobody has sent"));
    }

    /// The client was greeted, or was not; it began to knock at `began`.
    pub fn greeted(&self, began: u64, refused: Option<&std::io::Error>) {
        let mut world = self.world.lock();
        let is_late = sim::now() - began > PROMPT;
        if !world.is_stopping && !world.exports[self.export].is_unwell && (is_late || refused.is_some()) {
            let how = refused.map_or("late".to_owned(), ToString::to_string);
            let (number, export) = (self.client, self.export);
            world.find(format!("A7: client {number} of the healthy export {export} was not greeted: {how}"));
        }
    }

    /// The client's connection has ended, or nothing comes.
    pub fn unanswered(&self, error: &std::io::Error) {
        let mut world = self.world.lock();
        if !world.is_stopping && !world.exports[self.export].is_unwell {
            let (number, export) = (self.client, self.export);
            world.find(format!("A7: client {number} of the healthy export {export} gets no answer: {error}"));
        }
    }

    /// A request is answered.
    pub fn answered(&self, flying: &Flying, outcome: Outcome) {
        let export = self.export;
        let mut world = self.world.lock();
        let world = &mut *world;
        world.take_cut();
        let error = outcome.as_ref().err().copied();
        let (told, what) = (|| error.map_or("OK".to_owned(), |error| format!("{error:?}")), || flying.name());
        if workers::tells_all() {
            world.say(format!("client {}: {} → {}", self.client, what(), told()));
        }
        sim::note(outcome.as_ref().map_or_else(|error| error.raw_os_error().unsigned_abs().into(), |_| 0));
        let known = &mut world.exports[export];
        let mut found = Vec::new();
        if !world.is_stopping && !known.is_unwell && sim::now() - flying.at > PROMPT {
            let took = (sim::now() - flying.at) / 1_000_000;
            found.push(format!("A7: {} of the healthy export {export} took {took} ms", what()));
        }
        let is_odd = matches!(flying.asked, Asked::Odd(_));
        if is_odd && outcome.is_ok() {
            found.push(format!("A2: {} of export {export} is done", what()));
        }
        let is_refusal = is_odd || is_refusal(&outcome);
        if known.is_sound && !known.is_unwell && outcome.is_err() && !is_refusal && !world.is_stopping {
            found.push(format!("A9: {} of export {export} fails without a cause: {}", what(), told()));
        }
        let lost = (known.has_lost)();
        if flying.after_loss && matches!(flying.asked, Asked::Flush) && outcome.is_err() {
            sometimes(Point::LatchSaidNo);
        }
        if !world.is_stopping && flying.life == known.life {
            known.has_failed |= flying.latches(known, self.door, &outcome);
        }
        let wrongs = flying.wrongs_of_a_sync(&outcome, lost);
        found.extend(wrongs.map(|wrong| format!("A5: {} of export {export} {wrong}: {}", what(), told())));
        found.extend(self.note(known, flying, outcome, is_refusal, lost));
        found.into_iter().for_each(|what| world.find(what));
    }

    /// Lets the audit know of an end. What is wrong with it.
    fn note(
        &self,
        known: &mut Known,
        flying: &Flying,
        outcome: Outcome,
        is_refusal: bool,
        lost: bool,
    ) -> Option<String> {
        match (flying.asked, flying.write, outcome) {
            (Asked::Flush, _, Ok(_)) => known.audit.promise(flying.sent, None),
            (_, Some(number), outcome) => {
                let end = match outcome {
                    // The export that has said so is gone: what its last flush has not told may have been lost.
                    Ok(_) if flying.life != known.life => End::Maybe,
                    Ok(_) => End::Done,
                    Err(_) if is_refusal => End::Refused,
                    Err(_) => End::Maybe,
                };
                known.audit.end_write(number, end);
                if flying.asked.is_durable() && end == End::Done {
                    known.audit.promise(flying.sent, Some(number));
                }
            }
            (Asked::Read(place), _, Ok(bytes)) => {
                let wrong = known.audit.read(place.first, &bytes, flying.sent, lost).err()?;
                return Some(format!("A1: client {}, {}: {wrong}", self.client, flying.name()));
            }
            (Asked::Status(place), _, Ok(zeros)) => {
                let wrong = judge_zeros(&mut known.audit, place, &zeros, flying.sent, lost).err()?;
                return Some(format!("A1: client {}, {}: {wrong}", self.client, flying.name()));
            }
            (Asked::Size, _, Ok(bytes)) => {
                let told = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                let (since, has) = known.size;
                // Of a medium that is silent, what was known last counts.
                let is_old = told < has && since < flying.sent && !known.is_unwell;
                let (at, before) = known.told;
                if is_old || told < before && at < flying.sent {
                    let export = self.export;
                    return Some(format!("A1: export {export} of {has} bytes has {told}, and had {before}"));
                }
                if told > before {
                    known.told = (known.audit.tick(), told);
                }
            }
            _ => {}
        }
        None
    }
}

/// Judges which bytes of a place are said to be zeros: a cell all of which is so was read.
fn judge_zeros(audit: &mut Export, place: Place, zeros: &[u8], sent: Tick, lost: bool) -> Result<(), String> {
    let start = audit.cells.range(place).start;
    for number in place.first..place.first + place.count {
        let cell = audit.cells.cell(number);
        let said = zeros.get(cell.start - start..cell.end - start).unwrap_or_default();
        if !said.is_empty() && said.iter().all(|byte| *byte == 1) {
            sometimes(Point::ToldZeros);
            audit.read(number, &vec![0; cell.len()], sent, lost)?;
        }
    }
    Ok(())
}
