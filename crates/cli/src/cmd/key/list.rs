//! `key list`: the key slots, as text and as JSON.

use std::fmt::Write as _;

use clap::Args;
use cryptline::luks::info::KdfInfo;
use serde_json::json;

use super::HeaderArgs;
use crate::CliError;
use crate::error::on_one_line;
use crate::output::{print_report, warn};
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "key list",
    examples: "\
cryptline key list disk.img
cryptline key list disk.img --json | jq '.keyslots[].id'",
    notes: "\
The members of the JSON are those of `cryptline info --json`; `volume_key` says whether the key slot keeps the key of
the data.",
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct KeyListArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl KeyListArgs {
    /// Lists the key slots.
    ///
    /// # Errors
    /// Exit code 4 for a damaged or missing header.
    pub fn run(&self) -> Result<(), CliError> {
        let found = self.place.inspect()?;
        let header = found.header.info();
        let keeps = |id: u32| {
            let digests = header.digests.iter();
            let of_data = digests.filter(|digest| !digest.segments.is_empty());
            of_data.flat_map(|digest| &digest.keyslots).any(|&slot| slot == id)
        };
        warn(&header.warnings);
        let mut text = format!("{}: {}\n", on_one_line(&found.name), found.kind);
        let mut keyslots = json!(header.keyslots);
        for (slot, json) in header.keyslots.iter().zip(keyslots.as_array_mut().into_iter().flatten()) {
            let is_of_data = keeps(slot.id);
            json["volume_key"] = is_of_data.into();
            let mut line = format!("{}, priority {}", slot.kind, slot.priority);
            if let Some(kdf) = &slot.kdf {
                line += &cost(kdf);
            }
            if !is_of_data {
                line += ", of another key";
            }
            for token in header.tokens.iter().filter(|token| token.keyslots.contains(&slot.id)) {
                line += &format!(", token {} ({})", token.id, token.kind);
            }
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {:>2}  {}", slot.id, on_one_line(&line));
        }
        if header.keyslots.is_empty() {
            text += "  no key slot is in use\n";
        }
        let report = json!({
            "target": found.name,
            "kind": found.kind.to_string(),
            "keyslots": keyslots,
            "tokens": header.tokens,
        });
        print_report(self.json, &report, &text)
    }
}

fn cost(kdf: &KdfInfo) -> String {
    let mut text = format!(", {}", kdf.kind);
    if let Some(hash) = &kdf.hash {
        text += &format!("-{hash}");
    }
    if let Some(iterations) = kdf.iterations {
        text += &format!(", {iterations} iterations");
    }
    if let (Some(time), Some(memory), Some(cpus)) = (kdf.time, kdf.memory_kib, kdf.cpus) {
        text += &format!(", {time} passes over {memory} KiB, {cpus} lanes");
    }
    text
}
