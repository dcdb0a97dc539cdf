//! Makes a history that has failed shorter: clients, faults and steps are left out as long as it fails in the same way.

use crate::history::{Faults, History, Step};

/// Runs, at most.
const TRIES: usize = 1_500;

/// The shortest history found for which `fails` holds.
pub fn shortest(mut history: History, mut fails: impl FnMut(&History) -> bool) -> History {
    let mut left = TRIES;
    let mut attempt = |candidate: &History| {
        left = left.saturating_sub(1);
        left > 0 && fails(candidate)
    };
    loop {
        let before = size(&history);
        for candidate in calmer(&history) {
            if attempt(&candidate) {
                history = candidate;
            }
        }
        for nature in (0..history.nature.len()).rev() {
            let mut candidate = history.clone();
            candidate.nature.remove(nature);
            if attempt(&candidate) {
                history = candidate;
            }
        }
        for order in (0..history.orders.len()).rev() {
            let mut candidate = history.clone();
            candidate.orders.remove(order);
            if attempt(&candidate) {
                history = candidate;
            }
        }
        for client in (0..history.clients.len()).rev() {
            let mut candidate = history.clone();
            candidate.clients.remove(client);
            if attempt(&candidate) {
                history = candidate;
                continue;
            }
            let mut len = history.clients[client].steps.len().div_ceil(2);
            while len > 0 {
                let mut at = 0;
                while at < history.clients[client].steps.len() {
                    let mut candidate = history.clone();
                    let steps = &mut candidate.clients[client].steps;
                    let end = (at + len).min(steps.len());
                    steps.drain(at..end);
                    if attempt(&candidate) {
                        history = candidate;
                    } else {
                        at += len;
                    }
                }
                len /= 2;
            }
        }
        if size(&history) >= before {
            return history;
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
    ];
    history.weight() + history.orders.len() + history.nature.len() + faults.into_iter().filter(|is| *is).count()
}

/// The same with one kind of fault less.
fn calmer(history: &History) -> Vec<History> {
    let with = |change: fn(&mut Faults)| {
        let mut candidate = history.clone();
        change(&mut candidate.faults);
        candidate
    };
    vec![
        with(|it| it.loses = 0),
        with(|it| it.refuses = 0),
        with(|it| it.unsynced = 0),
        with(|it| it.short = 0),
        with(|it| it.interrupts = 0),
        with(|it| it.silence = None),
        with(|it| it.below.late = 0),
        with(|it| it.below.drops = 0),
    ]
}

/// A history for people.
pub fn tell(history: &History) -> String {
    let mut lines = vec![format!("faults: {:?}", history.faults)];
    lines.extend(history.orders.iter().map(|(at, order)| format!("order after {at:?}: {order:?}")));
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
        Step::Settle => "wait for all answers".to_owned(),
        Step::Pause(time) => format!("wait for all answers and {time:?}"),
        Step::Leave => "leave, and come again".to_owned(),
    }
}
