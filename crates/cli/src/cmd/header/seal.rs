//! The verbs of `header` that are about seals, measurements and policies.

use std::path::PathBuf;

use clap::Args;
use cryptline::luks::seal::{Covers, MeasureHash};
use cryptline::{HeaderRules, Open, SealOptions, Sealed};

use crate::CliError;
use crate::args::{KeyArgs, RulesArgs, choice};
use crate::cmd::key::{HeaderArgs, unlocking};
use crate::output::{print, say, warn_of};
use crate::verb::Verb;

const HASHES: &choice::ChoiceWords<MeasureHash> = &[
    ("sha256", "As PCRs of TPMs have it", MeasureHash::Sha256),
    ("sha384", "As RTMRs of Intel TDX have it", MeasureHash::Sha384),
    ("sha512", "The longest", MeasureHash::Sha512),
];

pub const SIGN: Verb = Verb {
    name: "header sign",
    examples: "\
cryptline header sign disk.img
cryptline header sign disk.img --cover keyslots,tokens
cryptline header sign disk.img --seal-key seal.key
# seal a LUKS1 header
cryptline header sign old.img --seal-file old.seal",
    notes: "\
The volume is unlocked first. The seal is of what decides how the data is encrypted and where it lies, and of the UUID; not of key slots and tokens unless --cover says so, so that passphrases can come and go. docs/header-seal.md has its format.",
    exit: "0 sealed, 1 invalid parameters, 2 wrong key, 4 wrong device, a header that cannot be sealed, or I/O \
        error, 5 in use",
    ..Verb::EMPTY
};

/// Whose, and by which key.
#[derive(Args, Debug)]
pub struct SignArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Seal these parts of the header, too: keyslots, tokens, or both with a comma between
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = part)]
    pub cover: Vec<SealedPart>,

    /// Counter of the seal [default: one more than that of the seal in its place under the same key]
    #[arg(long, value_name = "N")]
    pub counter: Option<u64>,

    #[command(flatten)]
    pub keys: KeyArgs,
}

/// A part that may be covered.
#[derive(Clone, Debug)]
pub struct SealedPart(String);

fn part(name: &str) -> Result<SealedPart, String> {
    let known = Covers::default().with(name).is_some();
    if known { Ok(SealedPart(name.to_owned())) } else { Err("use keyslots or tokens".to_owned()) }
}

impl SignArgs {
    /// Seals the header.
    pub fn run(&self) -> Result<(), CliError> {
        let parts = self.cover.iter();
        let covers = parts.fold(Covers::default(), |covers, part| covers.with(&part.0).unwrap_or(covers));
        let given = &self.keys.rules;
        let options =
            SealOptions { covers, counter: self.counter, key: given.seal_key.clone(), file: given.seal_file.clone() };
        // Key and file are those of the new seal; of the old one, only where more is demanded of it.
        let others = RulesArgs { seal_key: None, seal_file: None, ..given.clone() };
        let rules = if others.rules().is_empty() { others } else { given.clone() };
        let sealed = unlocking(&self.place, &KeyArgs { rules, ..self.keys.clone() })
            .sign(&options)
            .map_err(CliError::of_header)?;
        warn_of(&sealed.warnings);
        tell(&self.place, "is sealed", &sealed)
    }
}

pub const VERIFY: Verb = Verb {
    name: "header verify",
    examples: "\
cryptline header verify disk.img
cryptline header verify disk.img --require-signed-header=file --seal-key seal.key",
    notes: "\
A seal by the volume key needs a passphrase, one by a key file does not. Demand a seal where the volume is used as well: an attacker can take one away.",
    exit: "0 the seal holds, 1 invalid parameters, 2 wrong key, 4 no seal, or one that does not hold, wrong device \
        or I/O error",
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    #[command(flatten)]
    pub keys: KeyArgs,
}

impl VerifyArgs {
    /// Checks the seal.
    pub fn run(&self) -> Result<(), CliError> {
        let sealed = unlocking(&self.place, &self.keys).verify().map_err(CliError::of_header)?;
        warn_of(&sealed.warnings);
        tell(&self.place, "is as it was sealed", &sealed)
    }
}

pub const MEASURE: Verb = Verb {
    name: "header measure",
    examples: "\
cryptline header measure disk.img
cryptline header measure disk.img --hash sha384
# another number: of the text alone
cryptline header measure disk.img --canonical | sha256sum",
    notes: "\
No key is needed. The measurement is of what a seal is of, without key slots and tokens. What has been measured into a TPM or a log is then demanded of the header where the volume is opened (`cryptline help serve`).",
    exit: "0 success, 1 invalid parameters, 4 wrong device, a header that cannot be measured, or I/O error",
    ..Verb::EMPTY
};

/// Whose, and how.
#[derive(Args, Debug)]
pub struct MeasureArgs {
    #[command(flatten)]
    pub place: HeaderArgs,

    /// Hash of the measurement
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = choice::of(HASHES))]
    pub hash: MeasureHash,

    /// Print the text that is measured instead
    #[arg(long)]
    pub canonical: bool,
}

impl MeasureArgs {
    /// Prints the measurement.
    pub fn run(&self) -> Result<(), CliError> {
        let found = self.place.inspect()?;
        let subject = found.header.subject(Covers::default());
        let subject = subject.map_err(|error| CliError::luks(&found.name, &error.into()))?;
        if self.canonical {
            return print(subject.canonical());
        }
        print(&format!("{}\n", cryptline::hex(&subject.measure(self.hash))))
    }
}

pub const POLICY: Verb = Verb {
    name: "header policy",
    examples: "\
cryptline header policy --from disk.img >disk.policy
cryptline serve disk.img --header-policy disk.policy",
    notes: "\
Whatever the header says is taken for right, so make it where nobody else could have written to the disk. Remove the members that may change. docs/header-seal.md lists them.",
    exit: "0 success, 1 invalid parameters, 4 wrong device, damaged header or I/O error",
    ..Verb::EMPTY
};

/// Whose.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// Make a policy that the header of TARGET follows
    #[arg(long, value_name = "TARGET")]
    pub from: PathBuf,

    /// Read the LUKS header from FILE instead of the target
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,

    /// Take the header's seal from FILE instead of the header
    #[arg(long, value_name = "FILE")]
    pub seal_file: Option<PathBuf>,
}

impl PolicyArgs {
    /// Prints a policy.
    pub fn run(&self) -> Result<(), CliError> {
        let found = Open::new(&self.from).with(self.header.as_ref(), Open::header).inspect()?;
        let rules = HeaderRules { seal_file: self.seal_file.clone(), ..HeaderRules::default() };
        print(&rules.policy_for(&found.header)?)
    }
}

fn tell(place: &HeaderArgs, what: &str, sealed: &Sealed) -> Result<(), CliError> {
    let seal = &sealed.seal;
    let covers = match seal.covers.names().as_slice() {
        [] => "no key slots or tokens".to_owned(),
        names => names.join(" and "),
    };
    say(&format!(
        "{}: the header {what} by the {} {}, counter {}, covering {covers}",
        place.name().display(),
        seal.kind,
        seal.key_id,
        seal.counter
    ))
}
