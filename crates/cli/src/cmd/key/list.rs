//! `key list`: the key slots, as text and as JSON.

use std::fmt::Write as _;

use clap::Args;
use cryptline::luks::info::{KdfInfo, KeyslotInfo, TokenInfo};
use serde::Serialize;

use super::Place;
use crate::CliError;
use crate::error::on_one_line;
use crate::output::print_report;

/// Whose.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cryptline key list disk.img
  cryptline key list disk.img --json | jq '.keyslots[].id'

The members of the JSON are those of `cryptline info --json`; `volume_key` says whether the key slot keeps the key of
the data.")]
pub struct ListArgs {
    /// Whose.
    #[command(flatten)]
    pub place: Place,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    target: String,
    kind: String,
    keyslots: Vec<Slot>,
    tokens: Vec<TokenInfo>,
}

#[derive(Serialize)]
struct Slot {
    #[serde(flatten)]
    info: KeyslotInfo,
    volume_key: bool,
}

impl ListArgs {
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
        let slots = header.keyslots.iter().map(|info| Slot { volume_key: keeps(info.id), info: info.clone() });
        let report = Report {
            target: found.name,
            kind: found.kind.to_string(),
            keyslots: slots.collect(),
            tokens: header.tokens.clone(),
        };
        crate::output::warn(&header.warnings);
        print_report(&report, self.json, text)
    }
}

fn text(report: &Report) -> String {
    let mut text = format!("{}: {}\n", on_one_line(&report.target), report.kind);
    for slot in &report.keyslots {
        let info = &slot.info;
        let mut line = format!("{}, priority {}", info.kind, info.priority);
        if let Some(kdf) = &info.kdf {
            line += &cost(kdf);
        }
        if !slot.volume_key {
            line += ", of another key";
        }
        let tokens = report.tokens.iter();
        for token in tokens.filter(|token| token.keyslots.contains(&info.id)) {
            line += &format!(", token {} ({})", token.id, token.kind);
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:>2}  {}", info.id, on_one_line(&line));
    }
    if report.keyslots.is_empty() {
        text += "  no key slot is in use\n";
    }
    text
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
