//! Whoever runs the server: exports are flushed, removed and added again while clients are served.

use std::sync::Arc;
use std::time::Duration;

use cryptline_serve::nbd::{NbdServer, Removed};

use crate::history::{Door, Order};
use crate::points::{Point, sometimes};
use crate::run::Play;
use crate::serving::STOPS_WITHIN;
use crate::sim;
use crate::world::World;

impl Play<'_> {
    /// Carries out what the history wants, one after the other.
    pub fn operate(&self, server: &Arc<NbdServer>) {
        let began = sim::now();
        for (at, order) in &self.history.orders {
            let until = began + u64::try_from(at.as_nanos()).expect("seconds");
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(sim::now())));
            if self.world.lock().is_stopping {
                return;
            }
            let (Order::Flush(export) | Order::Remove { export, .. } | Order::Add(export)) = *order;
            if self.history.doors[export] != Door::Nbd {
                continue;
            }
            self.world.say(|| format!("order: {order:?}"));
            match *order {
                Order::Flush(export) => flush(self.world, server, export),
                Order::Remove { export, now } => remove(self.world, server, export, now),
                Order::Add(export) => self.add(server, export),
            }
        }
    }

    /// Adds an export that was removed. It stays one of which nothing prompt is expected.
    fn add(&self, server: &Arc<NbdServer>, export: usize) {
        let opened = self.export(export);
        let added = opened.and_then(|opened| server.exports().add(opened).map_err(|error| error.to_string()));
        self.world.say(|| format!("export {export} is added: {added:?}"));
        if added.is_ok() {
            sometimes(Point::AddedAgain);
            let mut world = self.world.lock();
            // What has come once the server was to stop is not asked about.
            let is_stopping = world.is_stopping;
            let known = &mut world.exports[export];
            known.is_gone = is_stopping;
            known.has_failed = false;
            known.life += 1;
            // Whatever its last flush has said: that may have been told to the log only.
            known.audit.doubt();
        }
    }
}

fn flush(world: &World, server: &NbdServer, export: usize) {
    let (sent, after_loss) = world.lock().exports[export].moment();
    let Some((_, flushed)) = server.flush(Some(&format!("e{export}"))).pop() else { return };
    let mut world = world.lock();
    world.take_cut();
    world.say(format!("export {export} is flushed: {flushed:?}"));
    let known = &mut world.exports[export];
    match flushed {
        Ok(()) if after_loss => {
            world.find(format!("A5: an ordered flush of export {export} says yes after a write was lost"));
        }
        Ok(()) => known.audit.promise(sent, None),
        // It goes, perhaps, or is silent: a flush is not known to be made.
        Err(_) if !known.is_sound || known.is_unwell => {}
        Err(why) => world.find(format!("A9: an ordered flush of export {export} is not made without a cause: {why:?}")),
    }
}

fn remove(world: &World, server: &NbdServer, export: usize, now: bool) {
    let (was_gone, (sent, after_loss)) = {
        let mut world = world.lock();
        let known = &mut world.exports[export];
        // Its clients have to go.
        known.is_unwell = true;
        (std::mem::replace(&mut known.is_gone, true), known.moment())
    };
    let began = sim::now();
    let removed = server.remove(&format!("e{export}"), now);
    let took = Duration::from_nanos(sim::now() - began);
    let mut world = world.lock();
    world.take_cut();
    world.say(format!("export {export} is removed: {removed:?}"));
    if took > STOPS_WITHIN {
        world.find(format!("A8: export {export} was removed after {took:?}"));
    }
    let known = &mut world.exports[export];
    known.is_gone = was_gone || removed.is_ok();
    match removed {
        Ok(Removed::Closed(Ok(()))) if after_loss => {
            world.find(format!("A5: the last flush of export {export} says yes after a write was lost"));
        }
        Ok(Removed::Closed(Ok(()))) => known.audit.promise(sent, None),
        _ => {}
    }
}
