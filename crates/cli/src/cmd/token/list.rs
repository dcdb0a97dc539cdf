//! `token list`: the tokens, as text and as JSON.

use std::fmt::Write as _;

use clap::Args;
use cryptline::luks::info::TokenInfo;
use cryptline::luks::token::{CLEVIS_TOKEN, EXEC_TOKEN, KEYRING_TOKEN, RECOVERY_TOKEN, TPM_TOKEN};
use serde_json::json;

use crate::CliError;
use crate::cmd::key::HeaderArgs;
use crate::error::on_one_line;
use crate::output::print_report;
use crate::verb::Verb;

pub const VERB: Verb = Verb {
    name: "token list",
    examples: "\
cryptline token list disk.img
cryptline token list disk.img --json | jq '.tokens[].type'",
    notes: "\
The members of the JSON are those of `cryptline info --json`.",
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct TokenListArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl TokenListArgs {
    /// Lists the tokens.
    ///
    /// # Errors
    /// Exit code 4 for a damaged or missing header.
    pub fn run(&self) -> Result<(), CliError> {
        let found = self.place.inspect()?;
        let header = found.header.info();
        crate::output::warn(&header.warnings);
        let report = json!({ "target": found.name, "kind": found.kind.to_string(), "tokens": header.tokens });
        let title = format!("{}: {}\n", on_one_line(&found.name), found.kind);
        print_report(self.json, &report, &(title + &text(&header.tokens)))
    }
}

fn text(tokens: &[TokenInfo]) -> String {
    let mut text = String::new();
    for token in tokens {
        let mut line = token.kind.clone();
        let slots: Vec<_> = token.keyslots.iter().map(u32::to_string).collect();
        line += &match slots.as_slice() {
            [] => ", no key slot".to_owned(),
            [slot] => format!(", key slot {slot}"),
            slots => format!(", key slots {}", slots.join(" ")),
        };
        match (token.kind.as_str(), &token.key_description) {
            (KEYRING_TOKEN, Some(description)) => line += &format!(", user key {description}"),
            (KEYRING_TOKEN | RECOVERY_TOKEN | CLEVIS_TOKEN | TPM_TOKEN | EXEC_TOKEN, _) => {}
            _ => line += ", for other programs",
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {:>2}  {}", token.id, on_one_line(&line));
    }
    if tokens.is_empty() {
        text += "  no tokens\n";
    }
    text
}
