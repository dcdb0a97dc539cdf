//! Clients of the control socket, of which there are several at a time: they say JSON lines, whole or in pieces, and hear the
//! replies, or do not.
//!
//! ```text
//! history ─► actors ─► speaker ─► conversation ─► control socket of the shipped server
//! orders ─► operator ─►    └─► judge: each reply, and each that does not come
//! ```

mod actors;
mod conversation;
mod judge;
mod seats;
mod server;
mod speaker;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::history::{Draw, EXPORTS};

pub use seats::Attendance;
pub use server::Controlled;
pub use speaker::Speaker;

/// One history in so many, of those with such clients, lasts until even slow commands are given up; and of those in which a
/// medium falls silent.
const PATIENT_ONE_IN: [u64; 2] = [100, 10];
/// Bytes of a line that is too long.
const OVERLONG: usize = 70_000;

/// A client of the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Controller {
    /// Says lines and hears the replies.
    Talker(Vec<Deed>),
    /// Says half a line, and stays.
    Silent,
    /// Says long lines, and never reads.
    Deaf,
    /// So many silent ones at once, and one more, which has something to say.
    Crowd(usize),
    /// So many one after the other, which say nothing.
    Passers(usize),
}

/// One step of a [`Controller::Talker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// Says a line, in so many pieces.
    Say { line: Saying, pieces: usize },
    /// Waits for all replies.
    Settle,
    /// Waits for them, and then for a while.
    Pause(Duration),
    /// Goes away without a word, and comes again.
    Leave,
    /// Says that it asks no more, hears all replies and the end, and comes again.
    AskNoMore,
}

/// A line: about one export, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saying {
    List,
    Stats,
    Flush(Option<usize>),
    Resize(Option<usize>),
    /// With `now`, its clients are made to leave.
    Remove {
        export: usize,
        now: bool,
    },
    Stray(Stray),
}

/// A line that is to be refused, and that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stray {
    /// No JSON.
    Noise,
    /// A command that nobody has defined.
    Unknown,
    /// Arguments that a command does not have.
    Arguments,
    /// A flush of an export that never was.
    Nobody,
    /// A volume that is to be added, without its descriptors.
    Bare,
    /// More bytes than a line has, without an end: the session is over then.
    Overlong,
}

impl Stray {
    const ALL: [Self; 6] = [Self::Noise, Self::Unknown, Self::Arguments, Self::Nobody, Self::Bare, Self::Overlong];
}

impl Saying {
    /// Its text, with a line end, for a reply that has this number.
    fn text(self, id: u64) -> Vec<u8> {
        let whose = |export: Option<usize>| match export {
            Some(export) => json!({ "name": format!("e{export}") }),
            None => json!({}),
        };
        let (command, arguments) = match self {
            Self::List => ("list", json!({})),
            Self::Stats => ("stats", json!({})),
            Self::Flush(export) => ("flush", whose(export)),
            Self::Resize(export) => ("resize", whose(export)),
            Self::Remove { export, now } => ("remove", json!({ "name": format!("e{export}"), "now": now })),
            Self::Stray(Stray::Noise) => return b"{\"execute\": list}\n".to_vec(),
            Self::Stray(Stray::Overlong) => return vec![b' '; OVERLONG],
            Self::Stray(Stray::Unknown) => ("erase", json!({})),
            Self::Stray(Stray::Arguments) => ("remove", json!({ "name": "e0", "when": "now" })),
            Self::Stray(Stray::Nobody) => ("flush", json!({ "name": "nobody" })),
            Self::Stray(Stray::Bare) => ("add", json!({ "name": "new", "target": "new.img" })),
        };
        let mut text = json!({ "execute": command, "arguments": arguments, "id": id }).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// The number of its reply: none, where the server cannot know it.
    fn id(self, id: u64) -> Option<Value> {
        let is_read = !matches!(self, Self::Stray(Stray::Noise | Stray::Overlong));
        is_read.then(|| json!(id))
    }

    /// Tells if it is about an export.
    fn concerns(self, export: usize) -> bool {
        match self {
            Self::Flush(of) | Self::Resize(of) => of.is_none_or(|of| of == export),
            Self::Remove { export: of, .. } => of == export,
            Self::List | Self::Stats | Self::Stray(_) => false,
        }
    }
}

/// Clients of a history, and whether it waits for them. None in two histories of three, unless a medium falls silent.
pub fn draw(draw: &mut Draw, falls_silent: bool) -> (Vec<Controller>, bool) {
    if !draw.one_in(3) && !falls_silent {
        return (Vec::new(), false);
    }
    let mut controllers: Vec<_> = (0..1 + draw.below(3)).map(|_| Controller::Talker(deeds(draw))).collect();
    if draw.one_in(5) {
        controllers.push(Controller::Silent);
    }
    if draw.one_in(16) {
        controllers.push(Controller::Deaf);
    }
    if draw.one_in(16) {
        controllers.extend([Controller::Silent, Controller::Passers(17 + draw.below(4) as usize)]);
    }
    if draw.one_in(8) {
        controllers.push(Controller::Crowd(16 + draw.below(4) as usize));
    }
    (controllers, draw.one_in(PATIENT_ONE_IN[usize::from(falls_silent)]))
}

fn deeds(draw: &mut Draw) -> Vec<Deed> {
    let (count, mut ends) = (2 + draw.below(8), 0);
    let deed = |_| match draw.below(10) {
        0..=5 => Deed::Say { line: saying(draw), pieces: if draw.one_in(4) { 2 + draw.below(3) as usize } else { 1 } },
        6 => Deed::Settle,
        7 => Deed::Pause(Duration::from_micros(draw.below(15_000))),
        8 => Deed::Pause(Duration::from_micros(draw.below(60_000))),
        // Each that leaves may keep a place for as long as its command takes.
        _ if ends >= 2 => Deed::Settle,
        _ => {
            ends += 1;
            if draw.one_in(2) { Deed::Leave } else { Deed::AskNoMore }
        }
    };
    (0..count).map(deed).collect()
}

fn saying(draw: &mut Draw) -> Saying {
    let export = draw.below(EXPORTS as u64) as usize;
    let one = (!draw.one_in(3)).then_some(export);
    match draw.below(20) {
        0..=5 => Saying::List,
        6 | 7 => Saying::Stats,
        8..=14 => Saying::Flush(one),
        15 | 16 => Saying::Resize(one),
        17 => Saying::Remove { export, now: draw.one_in(2) },
        _ => Saying::Stray(Stray::ALL[draw.below(Stray::ALL.len() as u64) as usize]),
    }
}

/// A client for people.
pub fn tell(controller: &Controller) -> Vec<String> {
    match controller {
        Controller::Talker(deeds) => {
            let deeds = deeds.iter().map(|deed| format!("  {deed:?}"));
            std::iter::once("control client:".to_owned()).chain(deeds).collect()
        }
        other => vec![format!("control client: {other:?}")],
    }
}
