//! One history: clients, another program and the kernel, step by step.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cryptline_engine::{Buffer, Completion, Fault, Gate, Op, Request, Submitted};
use cryptline_testkit::cache::{FileContent, FileOf};

use super::history::{CLIENTS, History, Move, Place, Step};
use super::promises::{self, Content, Promises, SECTOR, WriteEnd};
use super::stack::{Client, Damage, Ended, Stack};
use super::surround::{Surroundings, span};

/// A request in flight.
struct Flying {
    client: usize,
    what: String,
    /// First sector.
    first: usize,
    kind: Kind,
    /// A write had been lost when it was submitted.
    comes_after_loss: bool,
}

enum Kind {
    Read { since: u64 },
    Write { number: usize, durable: bool },
    Flush,
}

pub struct World<'a> {
    stack: &'a Stack,
    gate: &'a Gate,
    surroundings: Surroundings<'a>,
    clients: [Option<Client>; CLIENTS],
    flying: HashMap<u64, Flying>,
    promises: Promises,
    next_token: u64,
    /// Bytes in a block.
    block: usize,
    damage: Option<Damage>,
    has_failed: bool,
    outage: Option<(FileContent, Promises)>,
    log: &'a mut Vec<String>,
}

impl Stack {
    /// Lets a history happen. How many writes flushes promised; or which promise was broken.
    pub fn run(&self, history: &History, log: &mut Vec<String>) -> Result<usize, String> {
        self.run_as(history, |gate, files| {
            let mut world = World::new(self, gate, files, log);
            for step in &history.moves {
                world.take(step)?;
            }
            Ok(world.end())
        })
    }
}

fn end_of(result: Result<(), Fault>) -> WriteEnd {
    match result {
        Ok(()) => WriteEnd::Done,
        Err(fault) if fault.is_refusal() => WriteEnd::Refused,
        Err(_) => WriteEnd::MayHaveHappened,
    }
}

impl<'a> World<'a> {
    pub fn new(stack: &'a Stack, gate: &'a Gate, files: Vec<FileOf>, log: &'a mut Vec<String>) -> Self {
        let block = usize::try_from(gate.geometry().logical_block).unwrap();
        Self {
            stack,
            gate,
            surroundings: Surroundings::new(stack, files, block),
            clients: [const { None }; CLIENTS],
            flying: HashMap::new(),
            promises: Promises::new(stack.size / SECTOR),
            next_token: 0,
            block,
            damage: None,
            has_failed: false,
            outage: None,
            log,
        }
    }

    pub fn take(&mut self, Move { step, seed }: &Move) -> Result<(), String> {
        let machine = self.stack.bed.machine;
        machine.step(*seed);
        match *step {
            Step::Open(client) => {
                if self.clients[client].is_none() {
                    self.note(|| format!("client {client} opens a queue"));
                    let opened = Client::open(self.gate, machine.backend());
                    self.clients[client] = Some(opened);
                }
            }
            Step::Close(client) => self.close(client),
            Step::Write(client, place, durable) => {
                let (first, count) = self.surroundings.sectors(place);
                if self.clients[client].is_none() {
                    return Ok(());
                }
                let number = self.promises.begin_write(first, count, Content::Pattern);
                let mut data = Buffer::alloc(count * SECTOR).unwrap();
                promises::fill(&mut data, number, first);
                let request = Request::write((first * SECTOR) as u64, data, durable, 0);
                let how = if durable { " durable" } else { "" };
                let what = format!("{how} write #{number} of {}", span(first, count));
                let kind = Kind::Write { number, durable };
                self.submit(client, request, what.trim_start().to_owned(), first, kind)?;
            }
            Step::Read(client, place) => {
                let (first, count) = self.surroundings.sectors(place);
                let buffer = Buffer::alloc(count * SECTOR).unwrap();
                let since = self.promises.tick();
                let what = format!("read of {}", span(first, count));
                let kind = Kind::Read { since };
                let request = Request::read((first * SECTOR) as u64, buffer, 0);
                self.submit(client, request, what, first, kind)?;
            }
            Step::Flush(client) => {
                let what = "flush".to_owned();
                self.submit(client, Request::flush(0), what, 0, Kind::Flush)?;
            }
            Step::Discard(client, place) | Step::Zero(client, place) => {
                self.unmap(client, place, matches!(step, Step::Zero(..)))?;
            }
            Step::Poll(client) => {
                if let Some(client) = &mut self.clients[client] {
                    client.poll();
                }
                self.reap(client)?;
            }
            Step::Settle(client) => {
                self.settle(client)?;
                self.reap(client)?;
            }
            Step::Cut(client, place) => self.cut(client, place)?,
            Step::WriteBack(..)
            | Step::Evict(_)
            | Step::ForeignOpen
            | Step::ForeignSync
            | Step::ForeignRead(_)
            | Step::ForeignClose => self.surroundings.take(step, self.log),
        }
        Ok(())
    }

    fn unmap(&mut self, client: usize, place: Place, zero: bool) -> Result<(), String> {
        if self.clients[client].is_none() {
            return Ok(());
        }
        let (first, count) = self.surroundings.sectors(place);
        let len = (count * SECTOR) as u64;
        let (content, op, name) = if zero {
            let may_unmap = place.at.is_multiple_of(2);
            (Content::Zeros, Op::zero(may_unmap), "zeroing")
        } else {
            (Content::Unknown, Op::Discard, "discard")
        };
        let number = self.promises.begin_write(first, count, content);
        let what = format!("{name} #{number} of {}", span(first, count));
        let kind = Kind::Write { number, durable: false };
        self.submit(client, Request::new(op, (first * SECTOR) as u64, len, 0), what, first, kind)
    }

    fn submit(
        &mut self,
        client: usize,
        request: Request,
        what: String,
        first: usize,
        kind: Kind,
    ) -> Result<(), String> {
        let Some(Client { channel, done }) = &mut self.clients[client] else {
            return Ok(());
        };
        let token = self.next_token;
        self.next_token += 1;
        if let Kind::Flush = kind {
            self.promises.begin_flush(token);
        }
        self.log.push(format!("client {client} submits {what}"));
        let comes_after_loss = self.surroundings.has_lost();
        self.flying.insert(token, Flying { client, what, first, kind, comes_after_loss });
        let request = Request { token, ..request };
        if let Submitted::Done(completion) = channel.submit(request) {
            done.push(completion);
        }
        if let Some(image) = self.stack.bed.machine.take_left() {
            self.log.push("the power may have failed here".to_owned());
            self.outage = Some((image, self.promises.clone()));
        }
        self.reap(client)
    }

    /// Somebody cuts the file short, a client reads there or flushes, and the file grows again.
    fn cut(&mut self, client: usize, place: Place) -> Result<(), String> {
        let Some(open) = &mut self.clients[client] else {
            return Ok(());
        };
        let (first, count) = (place.at * self.block / SECTOR, place.blocks * self.block);
        let file = &self.stack.bed.file;
        let size = file.metadata().unwrap().len();
        // Where sectors lie elsewhere than their numbers say, all but the first page is cut off.
        let at = if self.stack.bed.size() == self.stack.size { (first * SECTOR / 4096 * 4096) as u64 } else { 4096 };
        file.set_len(at).unwrap();
        let (what, result) = if place.at.is_multiple_of(2) {
            let read = Request::read((first * SECTOR) as u64, Buffer::alloc(count).unwrap(), 0);
            ("read there", open.finish(read).err())
        } else {
            ("flush", open.finish(Request::flush(0)).err())
        };
        file.set_len(size).unwrap();
        let told = result.map_or("OK".to_owned(), |fault| fault.to_string());
        self.note(|| format!("the file is cut to {at} bytes; {what} → {told}; it grows again"));
        match result {
            Some(_) => self.damage = Some(Damage::Met),
            None if what == "flush" => return Err("a file that is short was flushed".to_owned()),
            None => _ = self.damage.get_or_insert(Damage::Unseen),
        }
        Ok(())
    }

    /// Takes what a client has been answered.
    fn reap(&mut self, client: usize) -> Result<(), String> {
        let Some(open) = &mut self.clients[client] else {
            return Ok(());
        };
        for Completion { request, result } in std::mem::take(&mut open.done) {
            let flying = self.flying.remove(&request.token).expect("answered once");
            self.has_failed |= result.is_err();
            let told = match result {
                Ok(()) => "OK".to_owned(),
                Err(fault) => format!("{fault}"),
            };
            self.log.push(format!("client {client}: {} → {told}", flying.what));
            let is_sync = matches!(flying.kind, Kind::Flush | Kind::Write { durable: true, .. });
            if self.damage == Some(Damage::Met) && is_sync && result.is_ok() {
                return Err(format!("{} said yes after a page was lost", flying.what));
            }
            if flying.comes_after_loss && is_sync && result == Err(Fault::NoSpace) {
                return Err(format!("{} was told that there is no room after a write was lost", flying.what));
            }
            match flying.kind {
                // Whoever hears that flushes are not supported believes that none are needed.
                Kind::Flush if result.is_err_and(Fault::is_refusal) => {
                    return Err(format!("{} was refused: {told}", flying.what));
                }
                Kind::Flush => self.promises.end_flush(request.token, result.is_ok()),
                Kind::Write { number, durable } => {
                    self.promises.end_write(number, end_of(result), durable);
                }
                Kind::Read { since } => {
                    let bytes = request.data.as_ref().expect("a read comes back as a read");
                    let lost = self.surroundings.has_lost();
                    let checked = match result {
                        Ok(()) => self.promises.check_read(flying.first, bytes, since, lost),
                        Err(_) => Ok(()),
                    };
                    checked.map_err(|wrong| format!("{}: {wrong}", flying.what))?;
                }
            }
        }
        Ok(())
    }

    /// Waits for all that a client has in flight; which may wait for what others have.
    fn settle(&mut self, client: usize) -> Result<(), String> {
        let started = Instant::now();
        let is_busy = |client: &Option<Client>| {
            let queue = client.as_ref().map(|client| &client.channel);
            queue.is_some_and(|queue| queue.in_flight() > 0)
        };
        while is_busy(&self.clients[client]) {
            if self.clients.iter().filter(|client| is_busy(client)).count() == 1 {
                self.clients[client].as_mut().unwrap().settle();
                return Ok(());
            }
            self.clients.iter_mut().flatten().for_each(Client::poll);
            if started.elapsed() > Duration::from_secs(20) {
                return Err(format!("client {client} waits for ever"));
            }
        }
        Ok(())
    }

    fn close(&mut self, client: usize) {
        if self.clients[client].take().is_none() {
            return;
        }
        self.note(|| format!("client {client} goes away"));
        let gone = self.flying.extract_if(|_, flying| flying.client == client);
        for (token, flying) in gone {
            match flying.kind {
                Kind::Flush => self.promises.end_flush(token, false),
                // Nothing of it is in flight any more where no other thread has it.
                Kind::Write { number, .. } if !self.stack.threaded => {
                    self.promises.end_write(number, WriteEnd::MayHaveHappened, false);
                }
                _ => {}
            }
        }
    }

    /// Everybody goes, and the cache shows what the medium has.
    pub fn end(mut self) -> Ended {
        self.stack.bed.machine.step(None);
        (0..CLIENTS).for_each(|client| self.close(client));
        self.surroundings.evict_all();
        Ended { promises: self.promises, damage: self.damage, has_failed: self.has_failed, outage: self.outage }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.log.push(what());
    }
}
