//! What `benchmark` measures and how it says it.
//!
//! ```text
//! ciphers  every cipher of this build ─┐
//! ceiling  AES-XTS, of the possible   ─┤
//! kdfs     PBKDF2, Argon2             ─┼─ measure ─► Report ─► text, or JSON
//! compare  cryptsetup, side by side   ─┘
//! ```

mod ceiling;
pub mod ciphers;
pub mod compare;
pub mod kdfs;
pub(crate) mod measure;
mod plan;
mod text;

use serde::Serialize;

use ciphers::CipherRow;
use compare::Comparison;
use kdfs::KdfRow;
pub use plan::{BenchmarkArgs, run};

use crate::report::{Figure, Sample};

/// Above this share of lost processor time the numbers are not to be trusted.
const BUSY_MAX: f64 = 0.03;

/// Everything measured; `docs/benchmark-json.md` says what each member means.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Threads of the rows for all cores.
    pub cores: usize,
    /// Share of the time in which others had the processor, 0 to 1.
    pub busy: f64,
    /// Speed of the ciphers.
    pub ciphers: Vec<CipherRow>,
    /// Speed of the key derivation functions.
    pub kdfs: Vec<KdfRow>,
    /// Unlocking, beside cryptsetup.
    pub comparison: Option<Comparison>,
    /// Numbers that have a goal.
    pub figures: Vec<Figure>,
    /// What spoils the numbers, one line each.
    pub warnings: Vec<String>,
    /// Share of the time that the threads of each measurement had a processor.
    #[serde(skip)]
    got: Vec<f64>,
}

impl Report {
    /// An empty one.
    pub fn new(cores: usize) -> Self {
        Self {
            cores,
            ..Self::default()
        }
    }

    /// Says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let count = f64::from(u32::try_from(self.got.len()).unwrap_or(u32::MAX));
        if count > 0.0 {
            self.busy = (1.0 - self.got.iter().sum::<f64>() / count).max(0.0);
        }
        if self.busy > BUSY_MAX {
            self.warnings.push(format!(
                "this machine is busy: other programs took {:.0} % of the time; run it again when it is idle",
                self.busy * 100.0
            ));
        }
        if cfg!(debug_assertions) {
            self.warnings.push(
                "this is a debug build, which is many times slower than a release build".into(),
            );
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        text::render(self)
    }

    fn count(&mut self, measured: &Sample) {
        self.got.extend(measured.client_busy);
    }
}
