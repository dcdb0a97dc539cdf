//! What was measured; `docs/benchmark-json.md` says what each member means.

use serde::Serialize;

use super::ciphers::CipherRow;
use super::compare::Comparison;
use super::kdfs::KdfRow;
use crate::report::{BUSY_MAX, Figure, debug_build};

/// Everything measured.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub cores: usize,
    pub busy: f64,
    pub ciphers: Vec<CipherRow>,
    pub kdfs: Vec<KdfRow>,
    pub comparison: Option<Comparison>,
    pub figures: Vec<Figure>,
    pub warnings: Vec<String>,
}

impl Report {
    /// An empty one.
    pub fn new(cores: usize) -> Self {
        Self { cores, ..Self::default() }
    }

    /// Says what spoils the numbers. Last, when all is measured.
    pub fn finish(&mut self) {
        let kdfs = self.kdfs.iter().filter_map(|row| row.busy);
        let ciphers = self.ciphers.iter().filter_map(|row| row.busy);
        let (count, sum) = kdfs.chain(ciphers).fold((0.0, 0.0), |(count, sum), busy| (count + 1.0, sum + busy));
        if count > 0.0 {
            self.busy = (1.0 - sum / count).max(0.0);
        }
        if self.busy > BUSY_MAX {
            self.warnings.push(format!(
                "this machine is busy: other programs took {:.0} % of the time; run it again when it is idle",
                self.busy * 100.0
            ));
        }
        self.warnings.extend(debug_build());
    }
}
