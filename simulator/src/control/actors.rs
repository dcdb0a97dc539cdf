//! Clients of the control socket at work.

use std::time::Duration;

use super::conversation::Conversation;
use super::seats::LEAVES_WITHIN;
use super::{Controller, Deed, Saying, Speaker};
use crate::points::{Point, sometimes};
use crate::run::Play;
use crate::sim;

/// Replies that are kept waiting for so long end the session.
const REPLIES_WITHIN: Duration = Duration::from_secs(12);
/// Bytes of a long line, and how many of them: the replies are as long, and there is room for three on their way.
const LONG: usize = 60_000;
const LONG_LINES: usize = 5;
/// A crowd stays for so long.
const STAYS: Duration = Duration::from_millis(5);

impl Play<'_> {
    /// Everything that a client does.
    pub fn control(&self, number: usize, controller: &Controller) {
        let name = format!("control client {number}");
        match controller {
            Controller::Talker(deeds) => self.talk(name, deeds),
            Controller::Silent => self.be_silent(&name),
            Controller::Deaf => self.be_deaf(&name),
            Controller::Crowd(count) => self.be_many(name, *count),
            Controller::Passers(count) => self.pass_by(&name, *count),
        }
    }

    fn talk(&self, name: String, deeds: &[Deed]) {
        let mut speaker = Speaker::new(self, name);
        for deed in deeds {
            if self.world.lock().is_stopping {
                break;
            }
            match *deed {
                Deed::Say { line, pieces } => _ = speaker.say(line, pieces),
                Deed::Settle => speaker.settle(),
                Deed::Pause(time) => {
                    speaker.settle();
                    std::thread::sleep(time);
                }
                Deed::Leave => speaker.leave(),
                Deed::AskNoMore => speaker.ask_no_more(),
            }
        }
        speaker.ask_no_more();
    }

    /// Begins a session that is about nothing.
    fn sit(&self, name: &str) -> Option<Conversation> {
        self.world.lock().attendance.come();
        let talk = Conversation::open(&self.control_socket()).ok();
        let mut world = self.world.lock();
        if talk.is_none() {
            world.attendance.go(false);
            if !world.is_stopping {
                world.find(format!("A7: {name} is not let in"));
            }
        }
        talk
    }

    fn get_up(&self, talk: Conversation, is_served: bool) {
        drop(talk);
        self.world.lock().attendance.go(is_served);
    }

    fn be_silent(&self, name: &str) {
        let Some(mut talk) = self.sit(name) else { return };
        // Whether that was heard shows below.
        let _ = talk.say(b"{\"execute\": \"fl", 1);
        let heard = talk.stay();
        let mut world = self.world.lock();
        if let Some(reply) = heard {
            world.find(format!("A3: {name}, which has said half a line, hears {reply}"));
        } else if !world.is_stopping && !world.attendance.is_crowded {
            world.find(format!("A7: {name}, which is silent, is sent away"));
        }
        drop(world);
        self.get_up(talk, false);
    }

    fn be_deaf(&self, name: &str) {
        let Some(mut talk) = self.sit(name) else { return };
        let text = format!("{{\"execute\": \"{}\"}}\n", "x".repeat(LONG));
        // It may be sent away, as one of a crowd.
        let is_said = (0..LONG_LINES).all(|_| talk.say(text.as_bytes(), 1).is_ok());
        let began = sim::now();
        let limit = u64::try_from(REPLIES_WITHIN.as_nanos()).expect("seconds");
        while !self.world.lock().is_stopping && sim::now() - began < limit {
            sim::wait_for(None, Some(Duration::from_millis(20)));
        }
        let mut replies = 0;
        let last = loop {
            match talk.hear() {
                Ok(_) => replies += 1,
                Err(error) => break error,
            }
        };
        let mut world = self.world.lock();
        world.say(format!("{name}, which was deaf, hears {replies} replies, and then: {last}"));
        if !world.is_stopping && is_said {
            match last.kind() {
                std::io::ErrorKind::WouldBlock => {
                    world.find(format!("A8: {name} never reads, and keeps its place"));
                }
                _ => sometimes(Point::DeafSentAway),
            }
        }
        drop(world);
        self.get_up(talk, true);
    }

    /// More silent clients than there are places, and then one that asks.
    fn be_many(&self, name: String, count: usize) {
        let silent: Vec<_> = (0..count).map_while(|_| self.sit(&name)).collect();
        let mut speaker = Speaker::new(self, name).needed();
        speaker.say(Saying::List, 1);
        speaker.settle();
        if speaker.is_here() {
            sometimes(Point::SeatTaken);
        }
        speaker.ask_no_more();
        std::thread::sleep(STAYS);
        silent.into_iter().for_each(|talk| self.get_up(talk, false));
    }

    /// More sessions than there are places, each of which has left its place before the next.
    fn pass_by(&self, name: &str, count: usize) {
        for _ in 0..count {
            if self.world.lock().is_stopping {
                return;
            }
            let Some(talk) = self.sit(name) else { return };
            self.get_up(talk, false);
            std::thread::sleep(2 * LEAVES_WITHIN);
        }
        sometimes(Point::PassedBy);
    }
}
