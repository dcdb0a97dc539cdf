//! Events of a server, as lines for people and fields for programs (docs/logs.md).

use cryptline::Volume;
use cryptline_engine::{Fault, Gate};
use cryptline_serve::nbd::{NbdClient, NbdEvent};
use cryptline_serve::vhost_user::VhostEvent as FrontEnd;
use tracing::Level;

use super::log::LineCounter;
use crate::CliError;

/// Characters of what a client has said that are told.
const NAME_MAX: usize = 64;

/// A volume is open. Which key slot opened it is no secret: the header shows them all.
pub fn opened(volume: &Volume) {
    let info = volume.info();
    let (source, kind, key_slot) = (&*info.source, info.kind.to_string(), info.key_slot);
    let by = key_slot.map_or_else(String::new, |slot| format!(" with key slot {slot}"));
    tracing::info!(event = "opened", source, kind, key_slot, "{source}: opened{by}");
}

/// Tells once of the write or flush that was lost and after which no flush succeeds; also while the server ends, since
/// its last word names one volume only.
pub fn watch_latch(name: &str, gate: &Gate) {
    let name = name.to_owned();
    gate.when_latched(move |fault| {
        let why = why_latched(fault);
        tracing::error!(
            event = "latched",
            source = name,
            why,
            "{name}: {why}; no flush succeeds until the volume is opened again"
        );
    });
}

fn why_latched(fault: Option<Fault>) -> String {
    match fault {
        Some(fault) => format!("a write or flush has failed ({fault})"),
        None => "what was written before may be lost".to_owned(),
    }
}

/// The level is known only when the program runs, and tracing has a place for each.
macro_rules! tell {
    ($level:expr, $($what:tt)*) => {
        match $level {
            Level::WARN => tracing::warn!($($what)*),
            Level::INFO => tracing::info!($($what)*),
            _ => tracing::debug!($($what)*),
        }
    };
}

/// Tells of a client.
pub fn of_client(log: &LineCounter, event: &NbdEvent) {
    let level = match event {
        _ if event.is_trouble() => Level::WARN,
        NbdEvent::Accepted(_) => Level::DEBUG,
        _ => Level::INFO,
    };
    let Some(message) = log.admit(level, &crate::error::event(event)) else {
        return;
    };
    match event {
        NbdEvent::Accepted(client) => of_one(level, "accepted", client, &message),
        NbdEvent::Began(client) => of_one(level, "connected", client, &message),
        NbdEvent::Ended { client, tally, lasted, why } => tell!(
            level,
            event = "disconnected",
            client = client.number,
            place = client.place.to_string(),
            tls = client.tls,
            export = client.export,
            bytes_read = tally.read,
            bytes_written = tally.written,
            errors = tally.errors,
            seconds = lasted.as_secs_f64(),
            why = why.as_ref().map(ToString::to_string),
            "{message}"
        ),
        NbdEvent::Refused { place, .. } => {
            let place = place.to_string();
            tell!(level, event = "refused", place, "{message}");
        }
        _ => tell!(level, "{message}"),
    }
}

fn of_one(level: Level, event: &str, client: &NbdClient, message: &str) {
    tell!(
        level,
        event,
        client = client.number,
        place = client.place.to_string(),
        tls = client.tls,
        export = client.export,
        "{message}"
    );
}

/// Commands that change nothing; a screen asks for these several times a second.
const QUESTIONS: [&str; 2] = ["list", "stats"];

/// Tells of a command on the control socket, once it is carried out, or why it was not.
pub fn of_command(user: u32, command: &str, name: Option<&str>, why: Option<&CliError>) {
    let level = if QUESTIONS.contains(&command) { Level::DEBUG } else { Level::INFO };
    let cut = |text: &str| text.chars().take(NAME_MAX).collect::<String>();
    let (command, name, why) = (cut(command), name.map(cut), why.map(ToString::to_string));
    let of = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    let outcome = why.as_deref().unwrap_or("done");
    tell!(level, event = "control", user, command, export = name, why, "user {user}: {command}{of}: {outcome}");
}

/// Tells of somebody who may not control the server.
pub fn of_stranger(user: Option<u32>) {
    let whose = user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
    tracing::warn!(event = "refused", place = whose, "the control socket has refused {whose}");
}

/// Tells of a virtual machine.
pub fn of_front_end(log: &LineCounter, event: &FrontEnd) {
    let level = if event.is_trouble() { Level::WARN } else { Level::INFO };
    let Some(message) = log.admit(level, &event.to_string()) else {
        return;
    };
    match event {
        FrontEnd::Connected { disk, number } => {
            tell!(level, event = "connected", client = number, export = disk, "{message}");
        }
        FrontEnd::Disconnected { disk, number, tally, lasted, why } => tell!(
            level,
            event = "disconnected",
            client = number,
            export = disk,
            bytes_read = tally.read,
            bytes_written = tally.written,
            errors = tally.errors,
            seconds = lasted.as_secs_f64(),
            why = why,
            "{message}"
        ),
        _ => tell!(level, "{message}"),
    }
}
