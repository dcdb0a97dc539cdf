//! Lines on standard error: for people, for a file, for the journal of systemd, for programs.
//!
//! ```text
//! output::complain, output::warn ──┐
//! serve::events ── serve::log ─────┼─► tracing ─► subscriber ─► lines ─► standard error
//!   (a quota for clients)          ┘   (control path only)    outlet (dropped where
//!                                                                     nobody reads)
//! ```
//!
//! All that the program says there goes this way, so `--log json` has one object in every line. Nothing here is
//! on the path of a request. It opens no file, so it works in the sandbox as before it.

mod lines;
mod outlet;
mod subscriber;
mod time;

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use rustix::fs::fstat;
use tracing::Level;

use crate::args::choice::{self, ChoiceWords};
use lines::LineForm;
pub use time::utc;

/// Name of warnings that the program has for whoever started it.
pub const WARNING: &str = "cryptline::warning";

/// How long a line of a server waits for whoever reads standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// `--log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines with time and level.
    Text,
    /// An object in each line.
    Json,
}

const FORMATS: &ChoiceWords<LogFormat> = &[
    ("text", "lines with time (UTC) and level; in the journal of systemd, with its priorities", LogFormat::Text),
    ("json", "one JSON object in each line", LogFormat::Json),
];

const LEVELS: &ChoiceWords<Level> = &[
    ("error", "failures of the server", Level::ERROR),
    ("warn", "and clients that failed or were refused", Level::WARN),
    ("info", "and all clients that come and go, key slots, certificates", Level::INFO),
    ("debug", "and connections before any export", Level::DEBUG),
    ("warning", "", Level::WARN),
];

/// How a server logs.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Form of the lines on standard error [default: lines without a time]
    #[arg(long, value_name = "FORMAT", value_parser = choice::of(FORMATS))]
    pub log: Option<LogFormat>,

    /// How much to log: this and what is worse [default: warn; info for a verbose server]
    #[arg(long, value_name = "LEVEL", value_parser = choice::of(LEVELS))]
    pub log_level: Option<Level>,
}

/// How lines look, and which are wanted.
#[derive(Clone, Copy, Debug)]
struct Settings {
    form: LineForm,
    most: Level,
    /// Whoever starts a program that serves nobody may take any time to read.
    patience: Option<Duration>,
}

/// Until somebody says otherwise.
const USUAL: Settings = Settings { form: LineForm::Plain, most: Level::WARN, patience: None };

static SETTINGS: OnceLock<Settings> = OnceLock::new();

impl LogArgs {
    /// From now on, for the whole process. Of several calls the first counts.
    pub fn begin(&self, verbose: bool) {
        let usual = if verbose { Level::INFO } else { Level::WARN };
        let form = match self.log {
            Some(LogFormat::Json) => LineForm::Json,
            _ if is_journal() => LineForm::Journal,
            Some(LogFormat::Text) => LineForm::Dated,
            None => LineForm::Plain,
        };
        let _ = SETTINGS.set(Settings { form, most: self.log_level.unwrap_or(usual), patience: Some(PATIENCE) });
    }
}

/// Has this process's lines printed. Call once, before the first.
pub fn install() {
    // Fails only where it was called before.
    let _ = tracing::subscriber::set_global_default(subscriber::LineSubscriber);
}

/// Tells if lines of this level are printed.
pub fn is_on(level: Level) -> bool {
    level <= settings().most
}

fn settings() -> Settings {
    SETTINGS.get().copied().unwrap_or(USUAL)
}

/// A failure.
pub fn error(message: &str) {
    tracing::error!("{message}");
}

/// Logs what was asked to be told.
pub fn info(message: &str) {
    tracing::info!("{message}");
}

/// Something for whoever started the program.
pub fn warning(message: &str) {
    tracing::warn!(target: WARNING, "{message}");
}

/// Tells if standard error is a stream of systemd's journal (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(rustix::stdio::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}
