//! Whoever says lines and hears replies, one session after the other.

use std::collections::VecDeque;
use std::io;

use super::Saying;
use super::Stray;
use super::conversation::Conversation;
use super::judge::Spoken;
use crate::points::{Point, sometimes};
use crate::run::Play;
use crate::sim;

/// Lines without a reply, at most.
const DEPTH: usize = 8;

/// A client with at most one session.
pub struct Speaker<'a> {
    play: &'a Play<'a>,
    name: String,
    talk: Option<Conversation>,
    said: VecDeque<Spoken>,
    next: u64,
    /// Others have to give way to it.
    is_needed: bool,
    /// Moment at which it has heard the last reply.
    heard: u64,
}

impl<'a> Speaker<'a> {
    pub fn new(play: &'a Play<'a>, name: String) -> Self {
        Self { play, name, talk: None, said: VecDeque::new(), next: 0, is_needed: false, heard: 0 }
    }

    /// The same, for whom there is a place whoever is there.
    pub fn needed(self) -> Self {
        Self { is_needed: true, ..self }
    }

    /// Tells if it has a session.
    pub fn is_here(&self) -> bool {
        self.talk.is_some()
    }

    /// Tells if it has a session, which it begins where it has none.
    pub fn come(&mut self) -> bool {
        if self.talk.is_some() {
            return true;
        }
        let world = self.play.world;
        world.lock().attendance.come();
        world.say(|| format!("{} comes", self.name));
        match Conversation::open(&self.play.control_socket()) {
            Ok(talk) => self.talk = Some(talk),
            Err(error) => {
                let mut world = world.lock();
                world.attendance.go(false);
                if !world.is_stopping {
                    world.find(format!("A7: {} is not let in: {error}", self.name));
                }
            }
        }
        self.talk.is_some()
    }

    /// Says a line, in so many pieces; `false` where there is no session.
    pub fn say(&mut self, line: Saying, pieces: usize) -> bool {
        if !self.come() {
            return false;
        }
        self.next += 1;
        self.play.world.say(|| format!("{} says {line:?} as {}", self.name, self.next));
        self.said.push_back(self.play.spoken(line, self.next));
        let said = self.talk.as_mut().map_or(Ok(()), |talk| talk.say(&line.text(self.next), pieces));
        if let Err(error) = said {
            self.lost(&error);
            return false;
        }
        if line == Saying::Stray(Stray::Overlong) {
            self.settle();
            self.ends();
        }
        while self.said.len() >= DEPTH && self.hear() {}
        true
    }

    /// Hears all replies.
    pub fn settle(&mut self) {
        while !self.said.is_empty() && self.hear() {}
    }

    /// Hears the next reply; `false` where the session is over.
    fn hear(&mut self) -> bool {
        let (Some(talk), Some(spoken)) = (&mut self.talk, self.said.front()) else { return false };
        match talk.hear() {
            Ok(reply) => {
                self.play.replied(spoken, self.heard, &reply);
                self.heard = sim::now();
                self.said.pop_front();
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let waits = self.play.waits(spoken, self.heard);
                if !waits {
                    self.leave();
                }
                waits
            }
            Err(error) => {
                self.lost(&error);
                false
            }
        }
    }

    /// Its session has ended.
    fn lost(&mut self, error: &io::Error) {
        let mut world = self.play.world.lock();
        world.say(format!("{} has lost its session: {error}", self.name));
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let is_end = matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset);
        // Whoever waits for an answer keeps its place.
        let is_busy = self.said.front().is_some_and(|spoken| spoken.is_under_way(self.heard));
        let may_be = world.attendance.is_crowded && !self.is_needed && is_end && !is_busy;
        if !world.is_stopping && !may_be {
            world.find(format!("A7: {} is sent away: {error}", self.name));
        }
        if !world.is_stopping {
            sometimes(Point::SentAway);
        }
        drop(world);
        self.leave();
    }

    /// Goes away without a word.
    pub fn leave(&mut self) {
        let Some(talk) = self.talk.take() else { return };
        drop(talk);
        self.play.world.lock().attendance.go(!self.said.is_empty());
        self.said.drain(..).for_each(|spoken| self.play.not_replied(&spoken));
    }

    /// Asks no more, hears all replies, and that there are no more.
    pub fn ask_no_more(&mut self) {
        let Some(talk) = &self.talk else { return };
        // Failing means that the session has ended.
        let _ = talk.ask_no_more();
        self.settle();
        self.ends();
    }

    /// The server has heard all, and ends the session.
    fn ends(&mut self) {
        let Some(talk) = &mut self.talk else { return };
        let heard = talk.hear();
        let mut world = self.play.world.lock();
        match heard {
            Ok(reply) => world.find(format!("A3: {} hears {reply}, which it has not asked for", self.name)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !world.is_stopping => {
                world.find(format!("A7: {} has asked for nothing more, and is not let go", self.name));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                world.find(format!("A3: {} hears what is no reply: {error}", self.name));
            }
            Err(_) => {}
        }
        drop(world);
        self.leave();
    }
}
