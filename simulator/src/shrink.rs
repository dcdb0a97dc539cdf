//! Makes a history that has failed shorter: clients, faults and steps are left out as long as it fails in the same way.

use crate::control::{self, Controller};
use crate::copy::Plan;
use crate::history::{Faults, History, Step};
use crate::rbd::Habits;

/// Runs, at most.
const TRIES: usize = 1_500;

/// The shortest history found for which `fails` holds.
pub fn shortest(history: History, fails: impl FnMut(&History) -> bool) -> History {
    let mut search = Search { history, fails, left: TRIES };
    if search.history.copy.is_some() {
        search.shorten_copy();
        return search.history;
    }
    loop {
        let before = size(&search.history);
        for calmer in CALMER {
            search.keep(|history| calmer(&mut history.faults));
        }
        if search.history.rbd.is_some() {
            for calmer in CALMER_CLUSTER {
                search.keep(|history| history.rbd.iter_mut().for_each(calmer));
            }
        }
        search.keep(|history| history.cut_off = None);
        search.keep(|history| history.growth = None);
        for place in (0..search.history.nature.len()).rev() {
            search.keep(|history| _ = history.nature.remove(place));
        }
        for place in (0..search.history.orders.len()).rev() {
            search.keep(|history| _ = history.orders.remove(place));
        }
        search.keep(|history| history.is_patient = false);
        for place in (0..search.history.controllers.len()).rev() {
            if !search.keep(|history| _ = history.controllers.remove(place)) {
                search.shorten_talk(place);
            }
        }
        for client in (0..search.history.clients.len()).rev() {
            if !search.keep(|history| _ = history.clients.remove(client)) {
                search.shorten(client);
            }
        }
        if size(&search.history) >= before {
            return search.history;
        }
    }
}

/// The shortest history so far, and runs that are left.
struct Search<F> {
    history: History,
    fails: F,
    left: usize,
}

impl<F: FnMut(&History) -> bool> Search<F> {
    /// Keeps a change with which the history still fails. Whether it does.
    fn keep(&mut self, change: impl FnOnce(&mut History)) -> bool {
        let mut candidate = self.history.clone();
        change(&mut candidate);
        self.left = self.left.saturating_sub(1);
        let is_kept = self.left > 0 && (self.fails)(&candidate);
        if is_kept {
            self.history = candidate;
        }
        is_kept
    }

    /// Leaves out parts of a copy as long as there is one that can be left out.
    fn shorten_copy(&mut self) {
        let smaller = |history: &History| history.copy.as_ref().map_or_else(Vec::new, Plan::smaller);
        let mut plans = smaller(&self.history).into_iter();
        while let Some(plan) = plans.next() {
            if self.keep(|history| history.copy = Some(plan)) {
                plans = smaller(&self.history).into_iter();
            }
        }
    }

    /// Leaves out deeds of a control client.
    fn shorten_talk(&mut self, place: usize) {
        let Controller::Talker(deeds) = &self.history.controllers[place] else { return };
        for deed in (0..deeds.len()).rev() {
            self.keep(|history| {
                if let Controller::Talker(deeds) = &mut history.controllers[place] {
                    deeds.remove(deed);
                }
            });
        }
    }

    /// Leaves out steps of a client, many at a time at first.
    fn shorten(&mut self, client: usize) {
        let mut len = self.history.clients[client].steps.len().div_ceil(2);
        while len > 0 {
            let mut at = 0;
            while at < self.history.clients[client].steps.len() {
                let is_kept = self.keep(|history| {
                    let steps = &mut history.clients[client].steps;
                    let end = (at + len).min(steps.len());
                    steps.drain(at..end);
                });
                if !is_kept {
                    at += len;
                }
            }
            len /= 2;
        }
    }
}

fn size(history: &History) -> usize {
    let Faults { loses, refuses, unsynced, short, interrupts, silence, below } = history.faults;
    let faults = [
        loses > 0,
        refuses > 0,
        unsynced > 0,
        short > 0,
        interrupts > 0,
        silence.is_some(),
        below.late > 0,
        below.drops > 0,
        below.idle.is_some(),
        history.rbd.is_some_and(|habits| habits != Habits::default()),
    ];
    usize::from(history.cut_off.is_some())
        + usize::from(history.is_patient)
        + usize::from(history.growth.is_some())
        + history.weight()
        + history.orders.len()
        + history.nature.len()
        + faults.into_iter().filter(|is| *is).count()
}

/// One kind of fault less each.
const CALMER: [fn(&mut Faults); 9] = [
    |faults| faults.loses = 0,
    |faults| faults.refuses = 0,
    |faults| faults.unsynced = 0,
    |faults| faults.short = 0,
    |faults| faults.interrupts = 0,
    |faults| faults.silence = None,
    |faults| faults.below.late = 0,
    |faults| faults.below.drops = 0,
    |faults| faults.below.idle = None,
];

/// The same for a cluster.
const CALMER_CLUSTER: [fn(&mut Habits); 4] = [
    |habits| habits.fails = 0,
    |habits| habits.shuts_out = None,
    |habits| habits.grows = None,
    |habits| habits.shrinks = None,
];

/// A history for people.
pub fn tell(history: &History) -> String {
    if let Some(plan) = &history.copy {
        return plan.tell().join("\n");
    }
    let (stack, doors, faults) = (history.stack, history.doors, history.faults);
    let mut lines = vec![format!("over {stack:?}, behind {doors:?}, faults: {faults:?}")];
    lines.extend(history.rbd.map(|habits| format!("over a cluster with {habits:?}")));
    lines.extend(history.cut_off.map(|at| format!("the mount is cut off after {at:?}")));
    lines.extend(history.growth.map(|at| format!("the file below grows after {at:?}")));
    lines.extend(history.orders.iter().map(|(at, order)| format!("order after {at:?}: {order:?}")));
    lines.extend(history.controllers.iter().flat_map(control::tell));
    lines.extend(history.nature.iter().map(|(at, nature)| format!("nature after {at:?}: {nature:?}")));
    for (number, client) in history.clients.iter().enumerate() {
        lines.push(format!("client {number} of export {}:", client.export));
        lines.extend(client.steps.iter().map(|step| format!("  {}", tell_step(step))));
    }
    lines.join("\n")
}

fn tell_step(step: &Step) -> String {
    let span = |place: &crate::history::Place| format!("{}+{}", place.first, place.count);
    match step {
        Step::Write { place, durable } => format!("write {}{}", span(place), if *durable { " durable" } else { "" }),
        Step::Read(place) => format!("read {}", span(place)),
        Step::Zero { place, fast, may_unmap, durable } => {
            format!("zero {} fast={fast} may_unmap={may_unmap} durable={durable}", span(place))
        }
        Step::Discard(place) => format!("discard {}", span(place)),
        Step::Flush => "flush".to_owned(),
        Step::Size => "ask for the size".to_owned(),
        Step::Settle => "wait for all answers".to_owned(),
        Step::Pause(time) => format!("wait for all answers and {time:?}"),
        Step::Leave => "leave, and come again".to_owned(),
        Step::BreakOff(place) => format!("leave in the midst of a write of {}, and come again", span(place)),
        Step::Garble => "talk nonsense, leave, and come again".to_owned(),
        Step::AskNoMore => "ask no more, hear all answers, and come again".to_owned(),
        Step::Status(place) => format!("ask what of {} is zeros", span(place)),
        Step::Odd(odd) => format!("ask for what is no request: {odd:?}"),
        Step::Halt => "stop the queues and start them".to_owned(),
        Step::Return => "lose the connection and come again".to_owned(),
        Step::Busy => "be busy for more than a second".to_owned(),
        Step::Cache(on) => format!("turn the write cache {}", if *on { "on" } else { "off" }),
    }
}
