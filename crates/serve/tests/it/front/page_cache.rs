//! The page-cache model below a front: what a flush promised that came by a wire and a lane is there afterwards,
//! whichever client wrote it, and whatever the kernel and other programs did to the file meanwhile.
//!
//! ```text
//! clients ─► wire ─► lane ─► gate ─► file ─► the model's page cache ◄─ writeback, eviction, another program's fsync
//! ```
//!
//! The histories, and how they are judged, are those of the engine's tests. What lanes do while a history goes on is
//! theirs to choose, so a seed does not always come to the same end. `CRYPTLINE_SEED` and `CRYPTLINE_CASES` set others.

use std::collections::HashMap;
use std::time::Duration;

use cryptline_engine::Gate;
use cryptline_engine::layer::Exclusion;
use cryptline_testkit::cache::FileOf;
use cryptline_testkit::suite::devices::{AES_512, AUTO, INLINE};
use cryptline_testkit::suite::{Fresh, noise};
use rustix::io::Errno;

use crate::front::careless::forgetful;
use crate::front::client::{Ask, Client, Front, How, Outcome, Server, Zeroing, at};
use crate::front::history::{CLIENTS, Habits, History, Move, Place, Step};
use crate::front::hunt::{self, Broken};
use crate::front::promises::{self, Content, Promises, SECTOR, WriteEnd};
use crate::front::stack::{Ended, Stack};
use crate::front::stacks;
use crate::front::surround::{Surroundings, span};

/// A request that was not answered.
struct Flying {
    token: u64,
    what: String,
    /// First sector.
    first: usize,
    kind: Kind,
    /// A write had been lost when it was sent.
    comes_after_loss: bool,
}

enum Kind {
    Read { since: u64 },
    Write { number: usize, durable: bool },
    Flush,
}

/// A client with its requests, by mark.
struct Open {
    client: Box<dyn Client>,
    flying: HashMap<u64, Flying>,
}

struct World<'a> {
    stack: &'a Stack,
    server: Box<dyn Server>,
    surroundings: Surroundings<'a>,
    clients: [Option<Open>; CLIENTS],
    promises: Promises,
    next_token: u64,
    has_failed: bool,
    log: &'a mut Vec<String>,
}

/// Lets a history happen to a stack behind a front.
fn run(stack: &Stack, front: Front, history: &History, log: &mut Vec<String>) -> Result<usize, String> {
    stack.run_as(history, |gate, files| {
        let mut world = World::new(stack, front, gate, files, log);
        for step in &history.moves {
            if let Err(wrong) = world.take(step) {
                return world.give_up(wrong);
            }
        }
        world.end()
    })
}

impl<'a> World<'a> {
    fn new(stack: &'a Stack, front: Front, gate: &Gate, files: Vec<FileOf>, log: &'a mut Vec<String>) -> Self {
        let how = How { backend: stack.bed.machine.backend(), grace: Duration::from_secs(20) };
        let block = usize::try_from(gate.geometry().logical_block).expect("small");
        Self {
            stack,
            server: front(Fresh::new(gate.clone()), how),
            surroundings: Surroundings::new(stack, files, block),
            clients: [const { None }; CLIENTS],
            promises: Promises::new(stack.size / SECTOR),
            next_token: 0,
            has_failed: false,
            log,
        }
    }

    fn take(&mut self, Move { step, seed }: &Move) -> Result<(), String> {
        self.stack.bed.machine.step(*seed);
        match *step {
            Step::Open(client) => {
                if self.clients[client].is_none() {
                    self.log.push(format!("client {client} comes"));
                    self.clients[client] = Some(Open { client: self.server.connect(), flying: HashMap::new() });
                }
            }
            Step::Close(client) => self.close(client),
            Step::Write(client, place, durable) => self.write(client, place, durable),
            Step::Read(client, place) => {
                let (first, count) = self.surroundings.sectors(place);
                let since = self.promises.tick();
                let what = format!("read of {}", span(first, count));
                let ask = Ask::Read(range(first, count));
                self.send(client, ask, what, first, Kind::Read { since });
            }
            Step::Flush(client) => {
                self.send(client, Ask::Flush, "flush".to_owned(), 0, Kind::Flush);
            }
            Step::Discard(client, place) | Step::Zero(client, place) => {
                self.unmap(client, place, matches!(step, Step::Zero(..)));
            }
            Step::Poll(client) => self.hear(client, 1)?,
            Step::Settle(client) => self.hear(client, usize::MAX)?,
            Step::Cut(..) => {}
            Step::WriteBack(..)
            | Step::Evict(_)
            | Step::ForeignOpen
            | Step::ForeignSync
            | Step::ForeignRead(_)
            | Step::ForeignClose => self.surroundings.take(step, self.log),
        }
        Ok(())
    }

    fn write(&mut self, client: usize, place: Place, durable: bool) {
        if self.clients[client].is_none() {
            return;
        }
        let (first, count) = self.surroundings.sectors(place);
        let number = (self.promises).begin_write(first, count, Content::Pattern);
        let mut data = vec![0; count * SECTOR];
        promises::fill(&mut data, number, first);
        let ask = Ask::Write { offset: (first * SECTOR) as u64, data, durable };
        let how = if durable { "durable " } else { "" };
        let what = format!("{how}write #{number} of {}", span(first, count));
        self.send(client, ask, what, first, Kind::Write { number, durable });
    }

    fn unmap(&mut self, client: usize, place: Place, zero: bool) {
        let Some(open) = &self.clients[client] else { return };
        let (first, count) = self.surroundings.sectors(place);
        let (range, durable) = (range(first, count), false);
        let (content, ask, name) = if zero {
            let fast = place.blocks.is_multiple_of(2) && open.client.knows_fast_zeroing();
            let how = Zeroing { fast, may_unmap: fast || place.at.is_multiple_of(2), ..Zeroing::default() };
            (Content::Zeros, Ask::Zero(range, how), "zeroing")
        } else {
            let discard = Ask::Discard { range, durable };
            (Content::Unknown, discard, "discard")
        };
        let number = self.promises.begin_write(first, count, content);
        let what = format!("{name} #{number} of {}", span(first, count));
        self.send(client, ask, what, first, Kind::Write { number, durable });
    }

    fn send(&mut self, client: usize, ask: Ask, what: String, first: usize, kind: Kind) {
        let Some(open) = &mut self.clients[client] else { return };
        let token = self.next_token;
        self.next_token += 1;
        if let Kind::Flush = kind {
            self.promises.begin_flush(token);
        }
        self.log.push(format!("client {client} sends {what}"));
        let comes_after_loss = self.surroundings.has_lost();
        let mark = open.client.send(&[ask])[0];
        let flying = Flying { token, what, first, kind, comes_after_loss };
        open.flying.insert(mark, flying);
    }

    /// Waits for so many answers to a client, or all of them.
    fn hear(&mut self, client: usize, most: usize) -> Result<(), String> {
        for _ in 0..most {
            let Some(open) = &mut self.clients[client] else { break };
            if open.flying.is_empty() {
                break;
            }
            let (mark, outcome) = open.client.answer();
            let flying = open.flying.remove(&mark).expect("answered once");
            let told = match &outcome {
                Ok(_) => "OK".to_owned(),
                Err(error) => error.to_string(),
            };
            let what = &flying.what;
            self.log.push(format!("client {client}: {what} → {told}"));
            self.judge(&flying, outcome)?;
        }
        Ok(())
    }

    fn judge(&mut self, flying: &Flying, outcome: Outcome) -> Result<(), String> {
        self.has_failed |= outcome.is_err();
        let what = &flying.what;
        match flying.kind {
            Kind::Flush | Kind::Write { durable: true, .. } if flying.comes_after_loss && outcome.is_ok() => {
                return Err(format!("{what} said yes after a write was lost"));
            }
            // Whoever hears that flushes are not supported believes that none are needed.
            Kind::Flush if matches!(outcome, Err(Errno::OPNOTSUPP | Errno::NOSYS)) => {
                return Err(format!("{what} was refused"));
            }
            Kind::Flush => self.promises.end_flush(flying.token, outcome.is_ok()),
            Kind::Write { number, durable } => {
                let end = match outcome {
                    Ok(_) => WriteEnd::Done,
                    Err(Errno::OPNOTSUPP) => WriteEnd::Refused,
                    Err(_) => WriteEnd::MayHaveHappened,
                };
                self.promises.end_write(number, end, durable);
            }
            Kind::Read { since } => {
                let Ok(bytes) = outcome else {
                    return Ok(());
                };
                let lost = self.surroundings.has_lost();
                let checked = (self.promises).check_read(flying.first, &bytes, since, lost);
                checked.map_err(|wrong| format!("{what}: {wrong}"))?;
            }
        }
        Ok(())
    }

    /// Its lane may still do what it has asked for.
    fn close(&mut self, client: usize) {
        let Some(open) = self.clients[client].take() else { return };
        self.log.push(format!("client {client} goes away"));
        for flying in open.flying.into_values() {
            if let Kind::Flush = flying.kind {
                self.promises.end_flush(flying.token, false);
            }
        }
    }

    /// A promise was broken; how the server ends is of no interest.
    fn give_up(mut self, wrong: String) -> Result<Ended, String> {
        self.stack.bed.machine.step(None);
        (0..CLIENTS).for_each(|client| self.close(client));
        let _ = self.server.end();
        Err(wrong)
    }

    /// Everybody goes, the server flushes for the last time, and the cache shows what the medium has.
    fn end(mut self) -> Result<Ended, String> {
        self.stack.bed.machine.step(None);
        (0..CLIENTS).for_each(|client| self.close(client));
        let comes_after_loss = self.surroundings.has_lost();
        self.promises.begin_flush(self.next_token);
        let last = self.server.end();
        self.log.push(format!("the server ends: {last:?}"));
        if comes_after_loss && last.is_ok() {
            return Err("the last flush said yes after a write was lost".to_owned());
        }
        self.promises.end_flush(self.next_token, last.is_ok());
        self.surroundings.evict_all();
        Ok(Ended { promises: self.promises, damage: None, has_failed: self.has_failed || last.is_err(), outage: None })
    }
}

fn range(first: usize, count: usize) -> crate::front::client::Range {
    let len = u32::try_from(count * SECTOR).expect("small");
    at((first * SECTOR) as u64, len)
}

/// Histories from a seed on, over a stack behind a front.
fn hunt_behind(stack: &Stack, front: Front, seed: u64, cases: usize) -> Result<usize, Broken> {
    hunt::hunt(&stack.scope(), seed, cases, |history, log| run(stack, front, history, log))
}

/// Runs histories over a stack that must keep its promises behind a front.
fn keeps_its_promises(stack: &Stack, front: Front, cases: usize) {
    hunt::keeps_its_promises(cases, noise(7), |seed, cases| hunt_behind(stack, front, seed, cases));
}

/// A test for each front and stack, and how many histories it gets.
macro_rules! promises_are_kept {
    ($($name:ident: $front:path, $cases:expr, $stack:expr;)+) => { $(
        #[test]
        fn $name() {
            keeps_its_promises(&$stack, $front, $cases);
        }
    )+ };
}

promises_are_kept! {
    nbd_over_a_file: crate::front::nbd::structured, 1_500, stacks::file(Habits::ALL);
    nbd_of_patient_clients: crate::front::nbd::simple, 1_000, stacks::file(Habits { hasty: false, ..Habits::ALL });
    nbd_over_a_file_whose_failures_only_the_gate_remembers: crate::front::nbd::structured, 1_000, forgetful();
    nbd_over_xts: crate::front::nbd::structured, 1_000, stacks::encrypted(&AES_512, 512, Exclusion::Shared, INLINE);
    nbd_over_xts_with_helpers: crate::front::nbd::structured, 200, stacks::encrypted(&AES_512, 512, Exclusion::Shared, AUTO);
    fuse_over_a_file: crate::front::fuse::sockets, 1_000, stacks::file(Habits::ALL);
    vhost_user_over_a_file: crate::front::vhost::driver, 500, stacks::file(Habits::ALL);
    tiny_over_a_file: crate::front::tiny::copied, 1_500, stacks::file(Habits::ALL);
    tiny_over_xts: crate::front::tiny::later, 1_000, stacks::encrypted(&AES_512, 512, Exclusion::Shared, INLINE);
}

#[test]
fn known_mistakes_are_found_behind_a_front() {
    let front = crate::front::nbd::structured;
    hunt::finds_known_mistakes(200, 5_000, |stack, cases| hunt_behind(stack, front, noise(7), cases));
}
