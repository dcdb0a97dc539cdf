//! Source of a copy: a volume that is opened, bytes as they are, or standard input.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::Path;

use cryptline::luks::Error as LuksError;
use cryptline::{CopySource, DirectMode, Open, PartitionName, Problem, Target, Zeroes};

use super::{FileSystem, How, folder, inline};
use crate::CliError;
use crate::args::{FromInput, KeyArgs, Taker, TokenArgs, is_input};
use crate::output::warn_of;

/// Source as the command line describes it.
pub struct From<'a> {
    pub name: &'a Path,
    pub how: &'a How,
    pub header: Option<&'a Path>,
    /// Partition of the decrypted disk.
    pub partition: Option<&'a PartitionName>,
    /// One thread copies, so that other cores may help to decrypt.
    pub is_alone: bool,
    pub keys: KeyArgs,
    pub tokens: TokenArgs,
    /// The option that names its key file.
    pub key_option: &'static str,
    /// File system that is made of a folder.
    pub file_system: FileSystem,
}

/// Before anybody is asked for a key.
pub fn refuse_same(source: &Path, destination: &Target) -> Result<(), CliError> {
    if source != Path::new("-") && Target::parse(source)?.is_same_place(destination) {
        let same = cryptline::Error::from(Problem::SameFile);
        return Err(CliError::of_copy(same).of(&destination.to_string()));
    }
    Ok(())
}

/// Advice where the options of a new volume have the usual names.
const OF_SOURCE: &str = "; if the volume was made so, use --from-accept-cipher with that cipher";

impl From<'_> {
    /// Tells if it has to be opened with a key. Nothing is asked for yet, nor is standard input read.
    ///
    /// # Errors
    /// As the library, with what to do about it.
    pub fn is_luks(&self) -> Result<bool, CliError> {
        if self.name == Path::new("-") || folder::of(self.name).is_some() {
            return Ok(false);
        }
        if self.how.from_raw && !(self.keys.is_empty() && self.header.is_none()) {
            return Err(CliError::parameters(
                "--from-raw takes the source as it is; leave it out, or the key of the source",
            ));
        }
        let target = Target::parse(self.name)?;
        let failed = |error: cryptline::Error| {
            let advice = match error.problem() {
                Problem::NotLuks(_) => "; or copy it as it is with --from-raw",
                _ => "",
            };
            let error = CliError::from(error);
            CliError::new(error.kind(), format!("{error}{advice}"))
        };
        Ok(!self.how.from_raw && (self.header.is_some() || Open::target(target).is_luks().map_err(failed)?))
    }

    /// Returns what it takes of standard input.
    pub fn takers(&self, is_luks: bool) -> [Taker; 2] {
        [
            Taker { what: "the disk", instead: "the disk as a", takes: is_input(self.name).then_some(FromInput::All) },
            Taker {
                what: "the key of the source",
                instead: self.key_option,
                takes: (self.keys.from_input()).filter(|_| is_luks && !self.tokens.token_only),
            },
        ]
    }

    /// The files without which it cannot be opened again.
    pub fn refuse_needed(&self, destination: &Target) -> Result<(), CliError> {
        self.keys.refuse_needed(destination, ("the header of the source", self.header))
    }

    /// Describes what else than the source decides about the bytes: the same text in each version of this program.
    pub fn choices(&self) -> String {
        let zeroes = if self.how.zeroes == Zeroes::Detect { "detect" } else { "decrypt" };
        let header = self.header.map_or_else(String::new, |it| it.display().to_string());
        let partition = self.partition.map_or_else(String::new, |it| format!(" partition={it}"));
        format!("zeroes={zeroes} raw={} header={header}{partition}", self.how.from_raw)
    }

    /// Opens it.
    ///
    /// # Errors
    /// As the library, with what to do about it.
    pub fn open(&self, is_luks: bool) -> Result<CopySource, CliError> {
        if self.name == Path::new("-") {
            return self.standard_input();
        }
        if !is_luks {
            if self.partition.is_some() {
                return Err(CliError::parameters(format!(
                    "{}: it has no LUKS header, so --partition names no part of it; use 'SRC?partition=N'",
                    self.name.display()
                )));
            }
            if !self.keys.is_empty() {
                let name = self.name.display();
                return Err(CliError::parameters(format!(
                    "{name}: it has no LUKS header, so it needs no key; leave the key of the source out"
                )));
            }
            self.tokens.refuse("the source has no LUKS header")?;
            if let Some(folder) = folder::of(self.name) {
                return folder::disk(folder, &self.file_system);
            }
            return Ok(CopySource::raw(self.name)?);
        }
        let open = Open::target(Target::parse(self.name)?);
        let open = if self.is_alone { open } else { inline(open) };
        let open = self
            .keys
            .trusting(open, Open::accept_cipher, Open::header_rules)
            .read_only(true)
            // What was just made is in the page cache, and O_DIRECT would fetch it from the disk.
            .direct(DirectMode::Uncached)
            .zeroes(self.how.zeroes)
            .keys(self.keys.clone())
            .kdf_limits(self.keys.kdf_limits())
            .with(self.header, Open::header)
            .with(self.partition.cloned(), Open::partition)
            .with(self.tokens.choice(&self.keys)?, Open::tokens)
            .with(self.keys.key_slot, Open::key_slot);
        let volume = open.open().map_err(|error| {
            let is_beside = self.key_option.starts_with("--from");
            let is_doubted = matches!(error.problem(), Problem::Luks(LuksError::DoubtedCipher(_)));
            let error = CliError::from(error);
            if is_doubted && is_beside { error.advised(OF_SOURCE) } else { error }
        })?;
        warn_of(volume.warnings());
        Ok(CopySource::volume(&volume))
    }

    fn standard_input(&self) -> Result<CopySource, CliError> {
        self.tokens.refuse("what comes from standard input is taken as it is")?;
        if !self.keys.is_empty() || self.header.is_some() {
            return Err(CliError::parameters(
                "what comes from standard input is taken as it is; leave the key of the source out",
            ));
        }
        if io::stdin().is_terminal() {
            return Err(CliError::parameters(
                "standard input is a terminal and no disk; redirect it from a file or a pipe",
            ));
        }
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
        let input: OwnedFd = input
            .map_err(|error| CliError::parameters(format!("cannot read standard input: {error}; is it closed?")))?;
        Ok(CopySource::stream(input.into(), "standard input"))
    }
}
