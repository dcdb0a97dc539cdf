//! Rules that a LUKS header must keep before its volume is used.

use std::path::PathBuf;

use clap::Args;
use cryptline::{HeaderRules, Signed, parse_measure};

/// Rules that a LUKS header must keep.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Header rules")]
pub struct RulesArgs {
    /// Refuse a LUKS header without a seal that holds, as `cryptline header sign` makes it, by either kind of key or by KIND: volume-key or file
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = signed)]
    pub require_signed_header: Option<Signed>,

    /// Take the key of the header's seal from FILE, at least 32 bytes; without --require-signed-header=volume-key no other seal will do
    #[arg(long, value_name = "FILE")]
    pub seal_key: Option<PathBuf>,

    /// Take the header's seal from FILE instead of the header (LUKS1 has no other place)
    #[arg(long, value_name = "FILE")]
    pub seal_file: Option<PathBuf>,

    /// Refuse a LUKS header that does not follow the policy in FILE, before any key is tried
    #[arg(long, value_name = "FILE")]
    pub header_policy: Option<PathBuf>,

    /// Refuse a LUKS header whose measurement is not HEX, as `cryptline header measure` prints it, before any key is tried
    #[arg(long, value_name = "HEX", value_parser = measure)]
    pub expect_measure: Option<Measure>,

    /// Refuse a seal whose counter is less than N
    #[arg(long, value_name = "N")]
    pub header_not_older_than: Option<u64>,

    /// Refuse a seal whose counter is less than one that was seen before under the same key, and keep the highest of each key in FILE
    #[arg(long, value_name = "FILE")]
    pub header_state: Option<PathBuf>,
}

/// The bytes of a measurement.
#[derive(Clone, Debug)]
pub struct Measure(Vec<u8>);

impl RulesArgs {
    /// The same as the library takes them.
    pub fn rules(&self) -> HeaderRules {
        HeaderRules {
            signed: self.require_signed_header,
            seal_key: self.seal_key.clone(),
            seal_file: self.seal_file.clone(),
            policy: self.header_policy.clone(),
            measure: self.expect_measure.as_ref().map(|measure| measure.0.clone()),
            not_older_than: self.header_not_older_than,
            state: self.header_state.clone(),
        }
    }
}

fn signed(word: &str) -> Result<Signed, String> {
    Signed::by_word(word).ok_or_else(|| "use volume-key or file".to_owned())
}

fn measure(text: &str) -> Result<Measure, String> {
    parse_measure(text).map(Measure)
}
