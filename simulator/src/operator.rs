//! Whoever runs the server: exports are flushed, removed and added again while clients are served. All but the last goes
//! through the control socket.

use std::time::Duration;

use crate::control::{Controlled, Saying, Speaker};
use crate::history::{Door, Order};
use crate::points::{Point, sometimes};
use crate::run::Play;
use crate::sim;

impl Play<'_> {
    /// Carries out what the history wants, one after the other.
    pub fn operate(&self, served: &Controlled) {
        let mut speaker = Speaker::new(self, "the operator".to_owned());
        let began = sim::now();
        for (at, order) in &self.history.orders {
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(sim::now())));
            if self.world.lock().is_stopping {
                break;
            }
            let (Order::Flush(export) | Order::Remove { export, .. } | Order::Add(export)) = *order;
            if self.history.doors[export] != Door::Nbd {
                continue;
            }
            match *order {
                Order::Flush(export) => _ = speaker.say(Saying::Flush(Some(export)), 1),
                Order::Remove { export, now } => _ = speaker.say(Saying::Remove { export, now }, 1),
                Order::Add(export) => self.add(served, export),
            }
            speaker.settle();
        }
        speaker.ask_no_more();
    }

    /// Adds an export that was removed. It stays one of which nothing prompt is expected. A control client would send an image
    /// with a LUKS header, of which there is none here.
    fn add(&self, served: &Controlled, export: usize) {
        let name = format!("e{export}");
        if served.server.exports().status().iter().any(|status| status.export.name == name) {
            return;
        }
        self.world.lock().exports[export].is_coming = true;
        let added = self.export(export).and_then(|opened| {
            let volume = self.volume(&opened);
            let stats = opened.stats.clone();
            served.volumes.add(volume);
            served.server.exports().add(opened).map_err(|error| {
                served.volumes.forget(&stats);
                error.to_string()
            })
        });
        self.world.say(|| format!("export {export} is added: {added:?}"));
        let mut world = self.world.lock();
        // What has come once the server was to stop is not asked about.
        let is_stopping = world.is_stopping;
        let known = &mut world.exports[export];
        known.is_coming = false;
        if added.is_ok() {
            sometimes(Point::AddedAgain);
            known.is_gone = is_stopping;
            known.is_closed = false;
            known.has_failed = false;
            known.life += 1;
            // Whatever its last flush has said: that may have been told to the log only.
            known.audit.doubt();
        }
    }
}
