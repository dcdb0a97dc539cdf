//! Questions to many exports at once: each is asked on a thread of its own medium, and one that does not answer keeps no
//! other from being asked, nor whoever asks for longer than a limit.

use std::time::{Duration, Instant};

use cryptline_engine::{BackendChoice, Fault, Gate, OpenError};

use super::exports::{ExportEntry, Exports};
use crate::facts::AskedFact;
use crate::flush::flush;

/// Waited for the sizes that somebody has asked for.
const SIZES_WITHIN: Duration = Duration::from_secs(5);
/// Waited for the flushes that somebody has asked for: the page cache may hold gigabytes.
const FLUSHES_WITHIN: Duration = Duration::from_secs(60);

/// An export whose medium was asked for its size.
#[derive(Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its name.
    pub name: String,
    /// Bytes that it had.
    pub before: u64,
    /// Bytes that it has; `None` where its medium does not say.
    pub size: Option<u64>,
}

/// Why it is not known of an export that all of it is durable.
#[derive(Debug)]
pub enum NotFlushed {
    /// Something was lost.
    Failed(Fault),
    /// Export that cannot be asked to. Nothing is lost by that.
    NotAsked {
        /// Why.
        error: OpenError,
        /// Its clients have all the connections that there can be.
        is_busy: bool,
    },
    /// Its medium has not answered, this time or the last.
    Unanswered,
}

/// An export by name, and what became of its flush.
pub type ExportFlushed = (String, Result<(), NotFlushed>);

impl Exports {
    /// Has the export called `name`, or each, grow with its medium.
    #[must_use]
    pub fn look_for_growth(&self, name: Option<&str>) -> Vec<Looked> {
        self.sizes(name, SIZES_WITHIN)
    }

    pub(super) fn sizes(&self, name: Option<&str>, within: Duration) -> Vec<Looked> {
        let ask = |entry: &ExportEntry| {
            let gate = &entry.export.gate;
            (entry.export.name.clone(), gate.size(), entry.facts.begin_growth(gate))
        };
        let asked = self.ask(name, ask);
        let deadline = Instant::now() + within;
        let looked =
            |(name, before, asked): (_, _, AskedFact<u64>)| Looked { name, before, size: asked.answer_by(deadline) };
        asked.into_iter().map(looked).collect()
    }

    pub(super) fn flush(&self, name: Option<&str>, backend: BackendChoice) -> Vec<ExportFlushed> {
        self.flush_within(name, backend, FLUSHES_WITHIN)
    }

    fn flush_within(&self, name: Option<&str>, backend: BackendChoice, within: Duration) -> Vec<ExportFlushed> {
        let ask = |entry: &ExportEntry| {
            let gate = entry.export.gate.clone();
            let is_busy = entry.clients >= gate.traits().queues;
            (entry.export.name.clone(), entry.flushes.begin(move || flush_one(&gate, backend, is_busy)))
        };
        let asked = self.ask(name, ask);
        let deadline = Instant::now() + within;
        let ended =
            |(name, asked): (_, AskedFact<_>)| (name, asked.answer_by(deadline).unwrap_or(Err(NotFlushed::Unanswered)));
        asked.into_iter().map(ended).collect()
    }

    /// Calls `ask`, which must not wait, for the export called `name`, or for each.
    fn ask<T>(&self, name: Option<&str>, ask: impl Fn(&ExportEntry) -> T) -> Vec<T> {
        let inner = self.inner();
        let is_meant = |entry: &&ExportEntry| name.is_none_or(|name| entry.export.name == name);
        inner.entries.iter().filter(is_meant).map(ask).collect()
    }
}

fn flush_one(gate: &Gate, backend: BackendChoice, is_busy: bool) -> Result<(), NotFlushed> {
    match flush(gate, backend) {
        Ok(flushed) => flushed.map_err(NotFlushed::Failed),
        // That flush is known to fail.
        Err(_) if gate.is_latched() => Err(NotFlushed::Failed(Fault::Lost)),
        Err(error) => Err(NotFlushed::NotAsked { error, is_busy }),
    }
}

#[cfg(test)]
mod tests {
    use cryptline_nbd::TlsMode;
    use cryptline_testkit::scripted::{Call, Silent};

    use super::*;
    use crate::nbd::Export;
    use crate::stats::ExportStats;

    const SIZE: u64 = 1 << 20;

    fn export(name: &str, gate: Gate) -> Export {
        let stats = ExportStats::new(false);
        Export { name: name.to_owned(), description: String::new(), gate, minimum_block: 512, stats }
    }

    /// One whose medium answers nothing, in front of another.
    fn silent_and_well() -> (std::sync::Arc<Exports>, Silent) {
        let (silent, well) = (Silent::new(SIZE), Silent::new(SIZE));
        let list = vec![export("silent", silent.gate()), export("well", well.gate())];
        silent.fall_silent(&Call::ALL);
        (Exports::new(list, TlsMode::Off).unwrap(), silent)
    }

    /// Answers of both, once the one that is well has said something.
    fn both<T>(ask: impl Fn() -> Vec<T>, is_said: impl Fn(&T) -> bool) -> (T, T) {
        loop {
            let mut answers = ask();
            let well = answers.pop().unwrap();
            if is_said(&well) {
                return (answers.pop().unwrap(), well);
            }
        }
    }

    #[test]
    fn sizes_and_flushes_come_from_exports_behind_one_whose_medium_is_silent() {
        let (exports, _silent) = silent_and_well();
        let moment = Duration::from_millis(20);
        let (silent, well) = both(|| exports.sizes(None, moment), |looked| looked.size.is_some());
        assert_eq!(silent, Looked { name: "silent".to_owned(), before: SIZE, size: None });
        assert_eq!(well, Looked { name: "well".to_owned(), before: SIZE, size: Some(SIZE) });
        let flush = |name| exports.flush_within(name, BackendChoice::Auto, moment);
        let (silent, well) = both(|| flush(None), |(_, ended)| ended.is_ok());
        assert!(matches!(silent, (name, Err(NotFlushed::Unanswered)) if name == "silent"));
        assert_eq!(well.0, "well");
        assert!(flush(Some("none")).is_empty());
    }

    #[test]
    fn silent_medium_is_asked_once_however_often_somebody_wants_a_flush() {
        let (exports, silent) = silent_and_well();
        let flush = |within| exports.flush_within(Some("silent"), BackendChoice::Auto, within);
        while silent.taken() == 0 {
            assert!(matches!(flush(Duration::from_millis(20))[..], [(_, Err(NotFlushed::Unanswered))]));
        }
        for _ in 0..10 {
            assert!(matches!(flush(Duration::from_secs(3600))[..], [(_, Err(NotFlushed::Unanswered))]));
        }
        assert_eq!(silent.taken(), 1);
    }

    #[test]
    fn flush_of_what_was_lost_fails() {
        let (exports, _silent) = silent_and_well();
        exports.status()[1].export.gate.latch();
        let flushed = exports.flush(Some("well"), BackendChoice::Auto);
        assert!(matches!(flushed[..], [(_, Err(NotFlushed::Failed(_)))]));
    }
}
