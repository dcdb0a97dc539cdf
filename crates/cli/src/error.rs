//! A failure as the user sees it: one line that says what to do next, and an exit code.

use std::fmt;
use std::process::ExitCode;

use cryptline_engine::OpenError;

/// What an exit code means. The numbers are cryptsetup's (cryptsetup(8), "RETURN CODES").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1: the command line asks for something impossible or not supported yet.
    Parameters,
    /// 2: no key: a wrong passphrase or volume key.
    NoKey,
    /// 3: memory ran out.
    Memory,
    /// 4: a wrong device, or one that failed.
    Device,
    /// 5: it exists already, or somebody else uses it.
    Busy,
}

/// A failure with its message, which is always one line.
#[derive(Debug)]
pub struct CliError {
    kind: Kind,
    message: String,
}

impl CliError {
    /// A failure of `kind`. Control characters in `message` (from a path, say) are escaped.
    pub fn new(kind: Kind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            message: on_one_line(message.as_ref()),
        }
    }

    /// Exit code 1.
    pub fn parameters(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Parameters, message)
    }

    /// Exit code 2.
    pub fn no_key(message: impl AsRef<str>) -> Self {
        Self::new(Kind::NoKey, message)
    }

    /// Exit code 3.
    pub fn memory(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Memory, message)
    }

    /// Exit code 4.
    pub fn device(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Device, message)
    }

    /// Exit code 5.
    pub fn busy(message: impl AsRef<str>) -> Self {
        Self::new(Kind::Busy, message)
    }

    /// What went wrong with the header of `source`.
    #[must_use]
    pub fn luks(source: &str, error: &cryptline_luks::Error) -> Self {
        use cryptline_luks::Error as Luks;
        let advice = match error {
            Luks::NotLuks => "; for a volume without a header give --type plain or --table",
            Luks::NoKey => " Try another one, or --key-file or --key-slot.",
            Luks::WrongVolumeKey => " Give the right --volume-key-file, or a passphrase.",
            Luks::Truncated { .. } | Luks::TooSmall { .. } => "; is the file cut short?",
            Luks::CostLimit { .. } => {
                "; if it is as it should be, give --kdf-time-limit SECONDS, or another slot with --key-slot"
            }
            Luks::BothCopiesDamaged { .. } => {
                "; restore a backup with `cryptsetup luksHeaderRestore`"
            }
            Luks::Invalid(_) => "; `cryptsetup repair` or a header backup may help",
            _ => "",
        };
        let kind = kind_of(error.exit_code());
        Self::new(kind, format!("{source}: {error}{advice}"))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The process exit code, as cryptsetup's.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Parameters => 1,
            Kind::NoKey => 2,
            Kind::Memory => 3,
            Kind::Device => 4,
            Kind::Busy => 5,
        }
    }

    /// Prints `cryptline: message` to standard error and gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        crate::output::complain(&self.to_string());
        ExitCode::from(self.exit_code())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        Self::new(kind_of(error.exit_code()), error.to_string())
    }
}

pub(crate) fn kind_of(exit_code: u8) -> Kind {
    match exit_code {
        1 => Kind::Parameters,
        2 => Kind::NoKey,
        3 => Kind::Memory,
        5 => Kind::Busy,
        _ => Kind::Device,
    }
}

/// `text` without anything that moves the cursor of a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_cryptsetup() {
        let codes = [
            CliError::parameters("").exit_code(),
            CliError::no_key("").exit_code(),
            CliError::memory("").exit_code(),
            CliError::device("").exit_code(),
            CliError::busy("").exit_code(),
        ];
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        assert_eq!(
            CliError::luks("x", &cryptline_luks::Error::NoKey).exit_code(),
            2
        );
    }

    #[test]
    fn a_path_with_control_characters_stays_on_one_line() {
        let error = CliError::device("a\nb\u{1b}[31m: not there");
        assert_eq!(error.to_string(), "a\\nb\\u{1b}[31m: not there");
    }
}
