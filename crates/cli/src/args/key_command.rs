//! Commands that print a passphrase.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use cryptline::luks::PASSPHRASE_LEN_MAX;
use cryptline::{KeyRequest, SecretBuf, Target};

use super::choice;
use super::keys::{FinalNewline, NEWLINE, no_memory};
use crate::CliError;
use crate::harden::{FolderGuard, others_change};
use crate::key_program::{KeyProgram, Unusable, status_text};

/// Seconds that a command may take, unless something else is said.
const TIME: u64 = 60;

/// The verb that was typed.
static VERB: OnceLock<String> = OnceLock::new();

/// The command that prints a passphrase, and what to do with it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Key options")]
pub struct CommandSource {
    /// Take the passphrase from the output of CMD, which a shell runs, less one newline at the end
    #[arg(long, value_name = "CMD", conflicts_with_all = ["key_file", "passphrase_fd"], value_parser = command)]
    pub passphrase_command: Option<String>,

    /// End the passphrase command after this time [default: 60]
    #[arg(long, value_name = "SECONDS", requires = "passphrase_command", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub passphrase_command_timeout: Option<u64>,

    /// Meaning of a newline at the end of what the passphrase command prints [default: strip]
    #[arg(long, value_name = "WHAT", requires = "passphrase_command", value_parser = choice::of(NEWLINE))]
    pub passphrase_command_newline: Option<FinalNewline>,

    /// Target that names the command.
    #[arg(skip)]
    named_by: Option<PathBuf>,
}

/// Remembers the verb, for commands that want to know it.
pub fn set_verb(verb: &str) {
    let _ = VERB.set(verb.to_owned());
}

/// Refuses a command of nothing, as of a variable that is not set.
pub fn command(line: &str) -> Result<String, String> {
    if line.trim().is_empty() {
        return Err("it is empty; is a variable not set?".to_owned());
    }
    Ok(line.to_owned())
}

impl CommandSource {
    /// A command, and nothing else said.
    pub fn of(command: Option<String>) -> Self {
        Self { passphrase_command: command, ..Self::default() }
    }

    /// The command that is named together with `target`.
    pub(super) fn of_target(command: Option<String>, target: &Target) -> Self {
        // No pattern of a shell finds two slashes.
        let is_uri = target.to_string().contains("://");
        let named_by = (!is_uri).then(|| target.path().unwrap_or(Path::new(".")).to_owned());
        Self { named_by, ..Self::of(command) }
    }

    /// Refuses a command that somebody else may have written: as the name of a file, which a shell's pattern has found.
    fn refuse_found(&self) -> Result<(), CliError> {
        let Some(path) = &self.named_by else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        for folder in [folder, Path::new(".")] {
            let found = others_change(folder, FolderGuard::Nothing)
                .unwrap_or_else(|_| Some((folder.to_owned(), "cannot be looked at")));
            if let Some((place, why)) = found {
                return Err(CliError::parameters(format!(
                    "{}: a target names no command where others can make files: {} {why}; use --passphrase-command",
                    path.display(),
                    place.display()
                )));
            }
        }
        Ok(())
    }

    /// Returns what the command `line` prints.
    pub(super) fn read(&self, line: &str, request: &KeyRequest<'_>) -> Result<SecretBuf, CliError> {
        self.refuse_found()?;
        let name = request.name;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).env("CRYPTLINE_TARGET", name);
        shell.env("CRYPTLINE_VERB", VERB.get().map_or("", String::as_str));
        if let Some(uuid) = request.uuid {
            shell.env("CRYPTLINE_UUID", uuid);
        }
        if let Some(measure) = request.measure {
            shell.env("CRYPTLINE_MEASURE", measure);
        }
        let time = Duration::from_secs(self.passphrase_command_timeout.unwrap_or(TIME));
        let useless = |why: &str, next: &str| CliError::no_key(format!("{name}: the passphrase command {why}; {next}"));
        let run_it = "run it in a shell to see why";
        let ended = KeyProgram::new(shell, &[], PASSPHRASE_LEN_MAX, time).run().map_err(|why| match why {
            Unusable::Memory(error) => no_memory(&error),
            Unusable::TooMuch(_) => useless(&why.to_string(), "let it print the passphrase only"),
            Unusable::TooLong(_) => useless(
                &why.to_string(),
                "allow more with --passphrase-command-timeout if it must wait; it has no terminal to ask on",
            ),
            Unusable::LeftOpen(_) => {
                useless(&why.to_string(), "redirect the output of what it starts in the background")
            }
            Unusable::NotRun(_) => useless(&why.to_string(), run_it),
        })?;
        if !ended.status.success() {
            return Err(useless(&format!("failed with {}", status_text(ended.status)), run_it));
        }
        let strips = self.passphrase_command_newline.unwrap_or(FinalNewline::Strip) == FinalNewline::Strip;
        let passphrase = match ended.output.split_last() {
            Some((b'\n', rest)) if strips => SecretBuf::copy_of(rest).map_err(|error| no_memory(&error))?,
            _ => ended.output,
        };
        if passphrase.is_empty() {
            return Err(useless("printed nothing", "let it print the passphrase"));
        }
        Ok(passphrase)
    }
}
