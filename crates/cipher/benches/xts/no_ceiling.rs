//! CPUs whose ceiling is not known here.

/// No width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Never made.
    Xmm,
}

impl Width {
    /// None.
    pub fn widest() -> Option<Width> {
        None
    }

    /// Not known.
    pub fn round_rate(self) -> f64 {
        f64::NAN
    }
}

/// Not known.
pub fn round_latency() -> f64 {
    f64::NAN
}
