//! Counters of the seals that were seen, in a file: so that an old header that is put back is noticed.
//!
//! The file is replaced by a new one that is whole and durable first: whatever cuts that off, the old counters are there or
//! the new ones. Its lock keeps a second process from losing what a first one has noted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::{RulesError, read_open};
use crate::Result;
use crate::durable;

/// How often a file may appear just when it is to be made.
const TRIES: usize = 16;
/// How long another process may keep the lock, which it does for the time of a write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses a seal of this key that is older than another that was seen.
pub(super) fn check(path: &Path, key_id: &str, counter: u64) -> Result<()> {
    seen(path, &place_of(path), key_id, counter).map(drop)
}

/// The file itself. A link is followed, so that it is not replaced by the file it leads to.
fn place_of(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Counters in the file `place`, of which none of this key is higher, and the lock of it; `None` where there is no file.
fn seen(path: &Path, place: &Path, key_id: &str, counter: u64) -> Result<(Option<File>, BTreeMap<String, u64>)> {
    let held = locked(place).map_err(|error| failed(path, "read", &error))?;
    let counters = held.as_ref().map_or_else(|| Ok(BTreeMap::new()), |file| counters_in(file, place))?;
    match counters.get(key_id) {
        Some(&seen) if seen > counter => Err(RulesError::Older { path: path.into(), found: counter, seen }.into()),
        _ => Ok((held, counters)),
    }
}

/// Notes that a seal of this key with this counter was seen, as far as [`check`] allows it.
pub(super) fn note(path: &Path, key_id: &str, counter: u64) -> Result<()> {
    let written = |error: &io::Error| failed(path, "written", error);
    let place = place_of(path);
    for _ in 0..TRIES {
        let (held, mut counters) = seen(path, &place, key_id, counter)?;
        if counters.insert(key_id.to_owned(), counter) == Some(counter) {
            return Ok(());
        }
        match replace(&place, &counters, held.as_ref()) {
            // Somebody made it meanwhile.
            Err(error) if held.is_none() && error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map_err(|error| written(&error).into()),
        }
    }
    // Such as a link that leads nowhere.
    Err(written(&io::ErrorKind::AlreadyExists.into()).into())
}

fn failed(path: &Path, action: &'static str, why: &dyn ToString) -> RulesError {
    RulesError::State { path: path.into(), action, why: why.to_string() }
}

/// The file that has this name, locked; `None` where there is none.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let begin = Instant::now();
    loop {
        // One that is none could keep whoever opens it waiting.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is no regular file"));
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if durable::is_at(&file, path) => return Ok(Some(file)),
            // It may have been replaced before that.
            Ok(()) | Err(Errno::WOULDBLOCK) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(()) => return Err(io::Error::other("it is replaced all the time")),
            Err(Errno::WOULDBLOCK) => return Err(io::Error::other("another process keeps it locked")),
            Err(error) => return Err(error.into()),
        }
    }
}

fn counters_in(file: &File, path: &Path) -> Result<BTreeMap<String, u64>> {
    let text = read_open(file, path, "state file")?;
    let wrong = |why: &str| failed(path, "read", &format!("{why}; if it is one of another program, name another file"));
    let json: Value = serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    let members = json.as_object().filter(|members| members.len() == 2 && members.get("version") == Some(&json!(1)));
    let counters = members.and_then(|members| members.get("counters")).and_then(Value::as_object);
    let counters = counters.ok_or_else(|| wrong("there are no counters of seals in it"))?;
    let parsed = counters.iter().map(|(id, counter)| Some((id.clone(), counter.as_str()?.parse().ok()?)));
    Ok(parsed.collect::<Option<_>>().ok_or_else(|| wrong("a counter is no number"))?)
}

fn replace(path: &Path, counters: &BTreeMap<String, u64>, old: Option<&File>) -> io::Result<()> {
    let counters: Map<_, _> = counters.iter().map(|(id, counter)| (id.clone(), json!(counter.to_string()))).collect();
    let text = format!("{}\n", json!({"version": 1, "counters": counters}));
    durable::replace(path, text.as_bytes(), old)
}
