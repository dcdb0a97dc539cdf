//! Why nothing was measured.

use std::fmt::{self, Display, Formatter};

use cryptline::ErrorKind;
use cryptline_engine::OpenError;

/// A failure. What it says may name an option of the program.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// A failure of a kind.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// What was asked for makes no sense here.
    pub(crate) fn parameters(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Parameters, message)
    }

    /// Memory ran out.
    pub(crate) fn memory(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Memory, message)
    }

    /// What was measured failed.
    pub(crate) fn device(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, message)
    }

    /// What the header crate says of `what`.
    pub(crate) fn luks(what: &str, error: &cryptline_luks::Error) -> Self {
        Self::new(error.kind(), format!("{what}: {error}"))
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<cryptline::Error> for Error {
    fn from(error: cryptline::Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        cryptline::Error::from(error).into()
    }
}

/// `text` without anything that moves the cursor of a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}
