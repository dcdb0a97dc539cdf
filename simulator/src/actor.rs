//! A client: it sends what its history says, through whatever front, and tells the judge what it has heard.

use std::collections::HashMap;
use std::io;

use crate::history::{Client, Door, Step};
use crate::judge::{Asked, Flying, Judge, Outcome};
use crate::sim;
use crate::world::World;

/// Requests in flight, at most; and those of a crowd.
const DEPTH: usize = 16;
const CROWD: usize = 140;

/// A client's conversation with a server, as its front has it. It ends by being dropped.
pub trait Dialogue {
    /// Sends a request, with the bytes that it writes. The number that its answer will have.
    fn send(&mut self, asked: &Asked, data: &[u8]) -> io::Result<u64>;

    /// A request as this front can say it.
    fn phrase(&self, asked: Asked) -> Asked {
        asked
    }

    /// Takes a step that only this front has; others have nothing to do.
    fn turn(&mut self, _step: Step) -> io::Result<()> {
        Ok(())
    }

    /// Sends a part of a write, and never the rest.
    fn break_off(&mut self, _asked: &Asked, _data: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// The next answer, and to which request; it is waited for as long as the client has patience.
    fn hear(&mut self) -> io::Result<(u64, Outcome)>;
}

/// A client at work.
pub struct Actor<'a, F> {
    client: &'a Client,
    judge: Judge<'a>,
    /// Begins a conversation.
    come: F,
    dialogue: Option<Box<dyn Dialogue>>,
    flying: HashMap<u64, Flying>,
    requests: usize,
}

impl<'a, F: FnMut() -> io::Result<Box<dyn Dialogue>>> Actor<'a, F> {
    pub fn new(number: usize, client: &'a Client, door: Door, world: &'a World, come: F) -> Self {
        let judge = Judge { world, client: number, export: client.export, door };
        Self { client, judge, come, dialogue: None, flying: HashMap::new(), requests: 0 }
    }

    /// Everything that it does.
    pub fn live(mut self) {
        let depth = if self.client.is_crowd { CROWD } else { DEPTH };
        for step in &self.client.steps {
            if self.judge.world.lock().is_stopping || (self.dialogue.is_none() && !self.come()) {
                break;
            }
            self.take(*step);
            while self.flying.len() >= depth {
                self.hear();
            }
        }
        self.settle();
        self.leave("is done");
    }

    fn come(&mut self) -> bool {
        let began = sim::now();
        self.judge.world.say(|| format!("client {} comes", self.judge.client));
        let opened = (self.come)();
        self.judge.greeted(began, opened.as_ref().err());
        self.dialogue = opened.ok();
        self.dialogue.is_some()
    }

    fn leave(&mut self, why: &str) {
        if self.dialogue.take().is_none() {
            return;
        }
        self.judge.world.say(|| format!("client {} goes: {why}", self.judge.client));
        // What was sent may still be carried out, however long that takes: its writes do not end.
        self.flying.clear();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Settle => self.settle(),
            Step::Pause(time) => {
                self.settle();
                std::thread::sleep(time);
            }
            Step::Leave => self.leave("as it likes"),
            Step::BreakOff(place) => self.break_off(Asked::Write { place, durable: false }),
            Step::Garble => {
                self.turn(step);
                self.leave("it has talked nonsense");
            }
            Step::AskNoMore => {
                self.turn(step);
                self.settle();
                self.leave("it has heard all");
            }
            Step::Halt | Step::Return | Step::Cache(_) | Step::Busy => self.turn(step),
            request => self.send(Asked::of(request).expect("all others are requests")),
        }
    }

    fn turn(&mut self, step: Step) {
        if matches!(step, Step::Cache(true) | Step::Busy) {
            // Whether what is under way is cached then would be anybody's guess; and who is busy hears nothing else.
            self.settle();
        }
        let Some(dialogue) = &mut self.dialogue else { return };
        self.judge.world.say(|| format!("client {}: {step:?}", self.judge.client));
        if let Err(error) = dialogue.turn(step) {
            self.lost(&error);
        }
    }

    fn send(&mut self, asked: Asked) {
        self.requests += 1;
        let asked = if self.requests.is_multiple_of(3) { self.judge.in_room(asked) } else { asked };
        let Some(dialogue) = &mut self.dialogue else { return };
        let asked = dialogue.phrase(asked);
        let (flying, data) = self.judge.ask(asked);
        match dialogue.send(&asked, &data) {
            Ok(number) => _ = self.flying.insert(number, flying),
            Err(error) => {
                self.judge.given_up(&flying);
                self.lost(&error);
            }
        }
    }

    fn break_off(&mut self, asked: Asked) {
        let Some(dialogue) = &mut self.dialogue else { return };
        let (flying, data) = self.judge.ask(asked);
        // Its connection may have ended, which is no news.
        let _ = dialogue.break_off(&asked, &data);
        self.judge.given_up(&flying);
        self.leave("in the midst of a write");
    }

    fn settle(&mut self) {
        while !self.flying.is_empty() {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let Some(dialogue) = &mut self.dialogue else {
            self.flying.clear();
            return;
        };
        match dialogue.hear() {
            Ok((number, outcome)) => match self.flying.remove(&number) {
                Some(flying) => self.judge.answered(&flying, outcome),
                None => self.judge.unasked(number),
            },
            Err(error) => self.lost(&error),
        }
    }

    /// Its conversation has ended, or nothing comes.
    fn lost(&mut self, error: &io::Error) {
        self.judge.unanswered(error);
        self.leave(&error.to_string());
    }
}
