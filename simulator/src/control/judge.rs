//! The judge of lines: each is told of when it is said, and its reply, or that there is none.

use std::time::Duration;

use serde_json::Value;

use super::Saying;
use crate::audit::Tick;
use crate::history::Door;
use crate::points::{Point, sometimes};
use crate::run::Play;
use crate::serving::STOPS_WITHIN;
use crate::sim;
use crate::world::{Inner, Known};

/// Whatever others do, a reply about exports that are well takes no longer.
const PROMPT: Duration = Duration::from_secs(1);
/// A flush takes no longer, whatever its medium does; nor does a look for growth.
const FLUSHES_WITHIN: Duration = Duration::from_secs(61);
const LOOKS_WITHIN: Duration = Duration::from_secs(6);
/// Time that somebody has waited for a disk that is not well when others are seen to be served beside.
const BESIDE: u64 = 10_000_000;

/// A server that has nothing else to answer to a client begins a line within that.
const BEGINS_WITHIN: u64 = 50_000_000;
/// Words of the server where a flush has lacked room.
const NO_SPACE: &str = "no space left";

/// A line that was said, and what was known then of each export.
pub struct Spoken {
    pub line: Saying,
    pub id: u64,
    at: u64,
    before: Vec<Before>,
}

/// Knowledge of an export when a line was said.
struct Before {
    sent: Tick,
    after_loss: bool,
    life: u32,
    is_there: bool,
    is_closed: bool,
    is_coming: bool,
    is_well: bool,
}

impl Spoken {
    /// Tells if the server has had so much time with it since `since` that it must have begun.
    pub fn is_under_way(&self, since: u64) -> bool {
        sim::now() - since.max(self.at) > BEGINS_WITHIN
    }
}

/// Refusal by its kind, and in words.
type Refused = (String, String);

impl Before {
    fn of(known: &mut Known) -> Self {
        let (sent, after_loss) = known.moment();
        Self {
            sent,
            after_loss,
            life: known.life,
            is_there: known.is_there(),
            is_closed: known.is_closed && !known.is_coming,
            is_coming: known.is_coming,
            is_well: !known.is_unwell,
        }
    }

    /// Tells if the export was there all the time from then on.
    fn has_stayed(&self, known: &Known) -> bool {
        self.is_there && known.is_there() && self.life == known.life
    }

    /// Tells if what has its name has been the same all the time, as long as there was any.
    fn is_same(&self, known: &Known) -> bool {
        self.life == known.life && !self.is_coming && !known.is_coming
    }

    /// Tells if it was gone all the time.
    fn stays_away(&self, known: &Known) -> bool {
        self.is_closed && known.is_closed && !known.is_coming && self.life == known.life
    }
}

/// Notes of which exports a refused flush says that it has failed: none after it may say yes. One that lacks room may.
fn note_failures(world: &mut Inner, spoken: &Spoken, why: &str) {
    if world.is_stopping {
        return;
    }
    let failed = |part: &&str| part.contains(": the flush failed (") && !part.contains(NO_SPACE);
    let parts: Vec<_> = why.split("; export ").filter(failed).collect();
    for (export, before) in spoken.before.iter().enumerate().filter(|(export, _)| spoken.line.concerns(*export)) {
        let known = &mut world.exports[export];
        if before.is_same(known)
            && parts.iter().any(|part| part.contains(&format!("\"e{export}\": the flush failed (")))
        {
            sometimes(Point::FailureByLine);
            known.has_failed = true;
        }
    }
}

impl Play<'_> {
    fn is_served(&self, export: usize) -> bool {
        self.history.doors[export] == Door::Nbd
    }

    /// A line is about to be said.
    pub fn spoken(&self, line: Saying, id: u64) -> Spoken {
        let mut world = self.world.lock();
        let before: Vec<_> = world.exports.iter_mut().map(Before::of).collect();
        if let Saying::Remove { export, .. } = line
            && self.is_served(export)
        {
            let known = &mut world.exports[export];
            // Its clients have to go.
            known.is_unwell = true;
            known.removals += 1;
        }
        let waits = world.exports.iter().enumerate().any(|(export, known)| line.concerns(export) && known.is_unwell);
        if waits {
            world.attendance.waits.push(sim::now());
        }
        Spoken { line, id, at: sim::now(), before }
    }

    /// No reply to a line comes any more. A removal may have been carried out.
    pub fn not_replied(&self, spoken: &Spoken) {
        let mut world = self.world.lock();
        if let Saying::Remove { export, .. } = spoken.line
            && self.is_served(export)
        {
            world.exports[export].removals -= 1;
            world.exports[export].is_gone = true;
        }
        if let Saying::Flush(_) = spoken.line {
            sometimes(Point::LeftInFlush);
        }
        world.attendance.waits.retain(|at| *at != spoken.at);
    }

    /// A line that nothing else was to be done before since `since` waits for its reply. `false` where that is too long.
    pub fn waits(&self, spoken: &Spoken, since: u64) -> bool {
        let mut world = self.world.lock();
        let found = self.lateness(&world, spoken, since);
        let waits = found.is_none();
        found.into_iter().for_each(|what| world.find(what));
        waits
    }

    /// Describes what is wrong with having waited since `since`.
    fn lateness(&self, world: &Inner, spoken: &Spoken, since: u64) -> Option<String> {
        let (line, took) = (spoken.line, Duration::from_nanos(sim::now() - since.max(spoken.at)));
        let is_ill = |export: usize| line.concerns(export) && self.is_served(export) && world.exports[export].is_unwell;
        let is_healthy = !(0..world.exports.len()).any(is_ill) && !world.is_stopping;
        let limit = match line {
            Saying::Flush(_) => FLUSHES_WITHIN,
            Saying::Resize(_) => LOOKS_WITHIN,
            Saying::Remove { .. } => STOPS_WITHIN,
            Saying::List | Saying::Stats | Saying::Stray(_) => Duration::MAX,
        };
        if is_healthy && took > PROMPT {
            return Some(format!("A7: {line:?} is about what is well, and took {took:?}\n{}", sim::describe()));
        }
        (took > limit).then(|| format!("A8: {line:?} took {took:?}"))
    }

    /// A reply has come; before `since` the server had others to answer.
    pub fn replied(&self, spoken: &Spoken, since: u64, reply: &Value) {
        let mut world = self.world.lock();
        let world = &mut *world;
        world.take_cut();
        let line = spoken.line;
        world.say(format!("{line:?} → {reply}"));
        let outcome = match (reply.get("return"), reply.get("error")) {
            (Some(returned), None) => Ok(returned),
            (None, Some(error)) => {
                let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                Err((word("class"), word("desc")))
            }
            _ => return world.find(format!("A3: the reply to {line:?} is neither of both: {reply}")),
        };
        sim::note(u64::from(outcome.is_ok()));
        let mut found = Vec::from_iter(self.lateness(world, spoken, since));
        if reply.get("id") != line.id(spoken.id).as_ref() {
            found.push(format!("A3: {line:?} was said as {}, and is answered by {reply}", spoken.id));
        }
        self.note_company(world, spoken);
        match line {
            Saying::List | Saying::Stats => found.extend(self.judge_list(world, spoken, outcome)),
            Saying::Flush(_) => found.extend(self.judge_flush(world, spoken, outcome)),
            Saying::Resize(_) => found.extend(self.judge_resize(world, spoken, outcome)),
            Saying::Remove { export, .. } => found.extend(self.judge_removal(world, spoken, export, outcome)),
            Saying::Stray(_) => match outcome {
                Ok(_) => found.push(format!("A2: {line:?} is done: {reply}")),
                Err((class, _)) if class == "parameters" => {}
                Err(why) => found.push(format!("A9: {line:?} is refused, but as {why:?}")),
            },
        }
        found.into_iter().for_each(|what| world.find(what));
    }

    /// Notes that a line was answered beside others that wait for a disk that is not well.
    fn note_company(&self, world: &mut Inner, spoken: &Spoken) {
        let is_beside = |at: &u64| *at != spoken.at && sim::now() - at > BESIDE;
        let is_about_it = (0..world.exports.len()).any(|at| spoken.line.concerns(at) && world.exports[at].is_unwell);
        if !is_about_it && world.attendance.waits.iter().any(is_beside) {
            sometimes(Point::AnsweredBeside);
        }
        world.attendance.waits.retain(|at| *at != spoken.at);
    }

    /// Exports that a line may name, with what was and is known of each.
    fn meant<'a>(
        &'a self,
        world: &'a Inner,
        spoken: &'a Spoken,
    ) -> impl Iterator<Item = (usize, &'a Before, &'a Known)> {
        let each = spoken.before.iter().zip(&world.exports).enumerate();
        let each = each.filter(|(export, _)| spoken.line.concerns(*export));
        each.map(|(export, (before, known))| (export, before, known))
    }

    /// Tells if a line may be refused since an export that it names is none of the server's, or has gone meanwhile.
    fn may_be_unknown(&self, world: &Inner, spoken: &Spoken) -> bool {
        self.meant(world, spoken).any(|(export, before, known)| !self.is_served(export) || !before.has_stayed(known))
    }

    fn judge_list(&self, world: &mut Inner, spoken: &Spoken, outcome: Result<&Value, Refused>) -> Vec<String> {
        let line = spoken.line;
        let Ok(told) = outcome else { return vec![format!("A9: {line:?} fails: {outcome:?}")] };
        let Some(told) = told["exports"].as_array() else {
            return vec![format!("A3: {line:?} has no exports: {told}")];
        };
        let mut found = Vec::new();
        for (export, (before, known)) in spoken.before.iter().zip(&world.exports).enumerate() {
            let name = format!("e{export}");
            let entries: Vec<_> = told.iter().filter(|entry| entry["name"] == *name).collect();
            let Some(entry) = entries.first().filter(|_| entries.len() == 1) else {
                if !entries.is_empty() || self.is_served(export) && before.has_stayed(known) {
                    found.push(format!("A1: {line:?} has export {export} {} times", entries.len()));
                }
                if before.stays_away(known) {
                    sometimes(Point::SeenGone);
                }
                continue;
            };
            if !self.is_served(export) || before.stays_away(known) {
                found.push(format!("A1: {line:?} still has export {export}: {entry}"));
            }
            if line != Saying::List || !before.has_stayed(known) {
                continue;
            }
            if entry["size"].as_u64().is_none_or(|size| size < known.size.1) && known.is_sound {
                found.push(format!("A1: export {export} has {} bytes: {entry}", known.size.1));
            }
            if entry["leaving"] != false {
                found.push(format!("A1: export {export}, which nobody removes, is leaving: {entry}"));
            }
            if entry["failed"] != false && known.is_sound && !known.is_unwell {
                found.push(format!("A9: export {export} has failed without a cause: {entry}"));
            }
        }
        found
    }

    fn judge_flush(&self, world: &mut Inner, spoken: &Spoken, outcome: Result<&Value, Refused>) -> Vec<String> {
        let flushed = match outcome {
            Ok(told) => told["flushed"].as_array().cloned().unwrap_or_default(),
            Err((class, _)) if class == "parameters" && self.may_be_unknown(world, spoken) => return Vec::new(),
            Err(why) => {
                note_failures(world, spoken, &why.1);
                // It goes, perhaps, or is silent: a flush is not known to be made.
                let is_no_wonder = |(_, before, known): (usize, &Before, &Known)| {
                    !known.is_sound || known.is_unwell || !before.is_well
                };
                if sim::now() - spoken.at > 2 * PROMPT.as_nanos() as u64 {
                    sometimes(Point::FlushGivenUp);
                }
                if self.meant(world, spoken).any(is_no_wonder) || world.is_stopping {
                    return Vec::new();
                }
                return vec![format!("A9: {:?} fails without a cause: {why:?}", spoken.line)];
            }
        };
        let mut found = Vec::new();
        for (export, before) in spoken.before.iter().enumerate().filter(|(export, _)| spoken.line.concerns(*export)) {
            let known = &mut world.exports[export];
            match flushed.iter().filter(|name| **name == *format!("e{export}")).count() {
                0 if before.has_stayed(known) && self.is_served(export) => {
                    found.push(format!("A9: {:?} leaves out export {export}", spoken.line));
                }
                0 => {}
                // It may be another by now, which knows nothing of what was before it.
                _ if !before.is_same(known) => {}
                2.. => found.push(format!("A3: {:?} has flushed export {export} twice: {flushed:?}", spoken.line)),
                _ if before.after_loss => {
                    found.push(format!(
                        "A5: a control client's flush of export {export} says yes after a write was lost"
                    ));
                }
                _ => {
                    sometimes(Point::FlushedByLine);
                    known.audit.promise(before.sent, None);
                }
            }
        }
        let is_meant =
            |name: &Value| (0..world.exports.len()).any(|at| spoken.line.concerns(at) && *name == *format!("e{at}"));
        if !flushed.iter().all(is_meant) {
            found.push(format!("A3: {:?} has flushed {flushed:?}", spoken.line));
        }
        found
    }

    fn judge_resize(&self, world: &mut Inner, spoken: &Spoken, outcome: Result<&Value, Refused>) -> Vec<String> {
        let line = spoken.line;
        let told = match outcome {
            Ok(told) => told["exports"].as_array().cloned().unwrap_or_default(),
            Err((class, _)) if class == "parameters" && self.may_be_unknown(world, spoken) => return Vec::new(),
            Err(_) if self.meant(world, spoken).any(|(_, _, known)| known.is_unwell) || world.is_stopping => {
                return Vec::new();
            }
            Err(why) => return vec![format!("A9: {line:?} fails without a cause: {why:?}")],
        };
        let mut found = Vec::new();
        for (export, before, known) in self.meant(world, spoken) {
            let entry = told.iter().find(|entry| entry["name"] == *format!("e{export}"));
            let Some(entry) = entry else {
                if self.is_served(export) && before.has_stayed(known) {
                    found.push(format!("A9: {line:?} leaves out export {export}"));
                }
                continue;
            };
            let [was, is] = ["before", "size"].map(|name| entry[name].as_u64().unwrap_or(0));
            if is < was || known.is_sound && is < known.size.1 {
                found.push(format!("A1: export {export} of {} bytes is made smaller: {entry}", known.size.1));
            }
        }
        found
    }

    fn judge_removal(
        &self,
        world: &mut Inner,
        spoken: &Spoken,
        export: usize,
        outcome: Result<&Value, Refused>,
    ) -> Vec<String> {
        let (line, before) = (spoken.line, &spoken.before[export]);
        if !self.is_served(export) {
            let is_refused = matches!(&outcome, Err((class, _)) if class == "parameters");
            return Vec::from_iter((!is_refused).then(|| format!("A2: {line:?} is done: {outcome:?}")));
        }
        let may_fall_silent = self.history.faults.silence.is_some_and(|(of, ..)| of == export);
        let is_stopping = world.is_stopping;
        let known = &mut world.exports[export];
        known.removals -= 1;
        let was_there = before.has_stayed(known);
        match outcome {
            Ok(told) => {
                let is_closed = told["closed"] == true;
                known.is_gone = true;
                known.is_closed |= is_closed && before.life == known.life;
                if !is_closed && line == (Saying::Remove { export, now: true }) {
                    return vec![format!("A9: {line:?} leaves it for later: {told}")];
                }
                if is_closed && before.is_same(known) {
                    if before.after_loss {
                        return vec![format!("A5: the last flush of export {export} says yes after a write was lost")];
                    }
                    known.audit.promise(before.sent, None);
                }
            }
            // Its last flush has failed.
            Err((class, why)) if class == "device" => {
                known.is_gone = true;
                known.is_closed |= before.life == known.life;
                if known.is_sound && before.is_well && was_there && !may_fall_silent && !is_stopping {
                    return vec![format!("A9: the last flush of export {export} fails without a cause: {why}")];
                }
            }
            // Another has removed it, or is about to.
            Err((class, _)) if ["parameters", "busy"].contains(&&*class) && !was_there => {}
            Err(why) => return vec![format!("A9: {line:?} fails without a cause: {why:?}")],
        }
        Vec::new()
    }
}
