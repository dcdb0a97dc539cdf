//! Why nothing was measured: one line for people.

use std::fmt::{self, Display, Formatter};

/// A failure. It is no [`std::error::Error`], so that every one of these becomes it by `?`.
#[derive(Debug)]
pub struct Error(pub String);

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Ends a function with a failure in these words.
macro_rules! fail {
    ($($words:tt)*) => { return Err($crate::error::Error(format!($($words)*))) };
}
pub(crate) use fail;

/// Says of what a failure is.
pub trait Of<T> {
    /// The same failure, with `what` and a colon before it.
    fn of(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> Of<T> for Result<T, E> {
    fn of(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Error(format!("{what}: {error}")))
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// `text` without anything that moves the cursor of a terminal.
pub fn on_one_line(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}
