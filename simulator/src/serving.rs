//! A server at work, whatever its front, and how it ends.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use cryptline_serve::lane::{Poll, Why};
use cryptline_serve::{Flushed, StopHandle};

use crate::audit::Tick;
use crate::run::Play;
use crate::sim;
use crate::under::Under;
use crate::world::{Inner, Known};

/// A server stops within twice the grace and three seconds, and what it takes besides.
pub const STOPS_WITHIN: Duration = Duration::from_millis(7_500);
/// Time for which lanes look out.
const LOOK: Duration = Duration::from_micros(20);
/// A mount that is cut off notices by itself, as late as this.
const NOTICES_WITHIN: Duration = Duration::from_millis(1_500);

/// A server at work.
pub struct Running {
    pub thread: JoinHandle<io::Result<Flushed>>,
    pub stop: StopHandle,
    /// Numbers of what it serves. Each is called `e` and its number.
    pub exports: Vec<usize>,
}

impl Play<'_> {
    /// Lanes look out before they wait, in one history of four.
    pub fn poll(&self) -> Poll {
        match sim::mix(&[self.history.seed, 115]) % 4 {
            0 => Poll::Always(LOOK),
            _ => Poll::Never(Why::Asked),
        }
    }

    /// Stops all servers.
    pub fn stop(&self, servers: Vec<Running>, below: &Under) {
        let (sent, is_cut_off): (Vec<_>, _) = {
            let mut world = self.world.lock();
            world.is_stopping = true;
            world.say("the servers are to stop".to_owned());
            (world.exports.iter_mut().map(Known::moment).collect(), world.is_cut_off)
        };
        let mut within = STOPS_WITHIN;
        match is_cut_off {
            true => within += NOTICES_WITHIN,
            false => servers.iter().for_each(|server| server.stop.stop()),
        }
        let limit = sim::now() + u64::try_from(within.as_nanos()).expect("seconds");
        for server in servers {
            self.see_the_end(server, limit, &sent, below);
        }
    }

    fn see_the_end(&self, server: Running, limit: u64, sent: &[(Tick, bool)], below: &Under) {
        let Running { thread, exports, stop } = server;
        while !thread.is_finished() && sim::now() < limit {
            sim::wait_for(None, Some(Duration::from_millis(20)));
        }
        if !thread.is_finished() {
            self.world.find(format!("A8: the server has not stopped in time\n{}", sim::describe()));
            // Whatever it waits for comes now.
            stop.stop();
            self.laid.speak(below);
        }
        let result = match thread.join() {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return self.world.find(format!("A8: the server fails as it stops: {error}")),
            Err(_) => return self.world.find("A10: the server has panicked".to_owned()),
        };
        let mut world = self.world.lock();
        world.take_cut();
        world.say(format!("the server has stopped: {result:?}"));
        for number in exports {
            judge_last_flush(&mut world, number, sent[number], &result);
        }
    }
}

fn judge_last_flush(world: &mut Inner, number: usize, (sent, after_loss): (Tick, bool), result: &Flushed) {
    let known = &mut world.exports[number];
    if !known.is_there() {
        // It has had its last flush, or has it when its clients have gone.
        return;
    }
    let failed = result.as_ref().err().filter(|(name, _)| *name == format!("e{number}"));
    match failed {
        Some((_, fault)) if known.is_sound && !known.is_unwell => {
            world.find(format!("A9: the last flush of export {number} fails without a cause: {fault}"));
        }
        Some(_) => {}
        // With another that failed before it, nothing is known of an export that is not well.
        None if result.is_err() && (known.is_unwell || !known.is_sound) => {}
        None if after_loss => {
            world.find(format!("A5: the last flush of export {number} says yes after a write was lost"));
        }
        None => known.audit.promise(sent, None),
    }
}
