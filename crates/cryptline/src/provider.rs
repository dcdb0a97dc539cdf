//! Types of tokens that others provide: each yields the passphrases of its tokens, and makes new ones.
//!
//! ```text
//! header ─► loop (tokens.rs) ─► TokenProvider ─► passphrase, or a refusal ─► loop: key slots, notes, budget
//! Header::bind ─► TokenMaker: prepare ─► unlock ─► make ─► key slot and token, in one write
//! ```
//!
//! All of this runs on a thread whose stack is wiped, since providers run code of others.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use cryptline_luks::LuksHeader;
use cryptline_sys::SecretBuf;
use serde_json::Value;

use crate::error::Error;
use crate::keys::is_uuid;
use crate::tokens::AskPin;
use crate::{Result, Warning};

/// How long the tokens of a provider may take that does not say.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time that a provider has, whatever it says.
const PATIENCE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Yields the passphrases of tokens of one type.
pub trait TokenProvider: fmt::Debug + Send + Sync {
    /// Type of its tokens, such as `systemd-tpm2`.
    fn kind(&self) -> &str;

    /// How long all its tokens of a header together may take, the time in which somebody types not counted.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// The passphrase that a token yields, in key memory from the first moment.
    ///
    /// # Errors
    /// Why it yields none, which leaves it to other tokens and keys unless it [ends](TokenRefusal::Ends) the opening.
    fn passphrase(&self, request: &TokenRequest<'_>) -> std::result::Result<SecretBuf, TokenRefusal>;
}

/// Makes tokens of one type, and the passphrases that they yield.
pub trait TokenMaker: Send {
    /// Result of what comes before the volume is unlocked, such as the keys of a server.
    type Prepared;

    /// Does what comes before the volume is unlocked.
    ///
    /// # Errors
    /// An error leaves everything as it is.
    fn prepare(&mut self, volume: &TokenVolume<'_>) -> Result<Self::Prepared>;

    /// Makes the token and its passphrase, once the volume is unlocked.
    ///
    /// # Errors
    /// An error leaves everything as it is.
    fn make(&self, volume: &TokenVolume<'_>, prepared: Self::Prepared) -> Result<NewToken>;
}

/// Volume that a token is of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TokenVolume<'a> {
    /// Name of the volume, for a question.
    pub name: &'a str,
    /// Its header.
    pub header: &'a LuksHeader,
}

impl<'a> TokenVolume<'a> {
    pub(crate) fn new(name: &'a str, header: &'a LuksHeader) -> Self {
        Self { name, header }
    }

    /// The UUID in its header, where that is well-formed.
    #[must_use]
    pub fn uuid(&self) -> Option<&'a str> {
        Some(self.header.uuid()).filter(|uuid| is_uuid(uuid))
    }
}

/// A token that is to yield its passphrase.
#[derive(Debug)]
#[non_exhaustive]
pub struct TokenRequest<'a> {
    /// Volume that it is of.
    pub volume: TokenVolume<'a>,
    /// Number of the token.
    pub id: u32,
    /// Set unless another token of its type was [counted](TokenRefusal::Counted): then those that may count are passed over.
    pub may_count: bool,
    pin: Option<&'a AskPin>,
    begun: Instant,
    patience: Duration,
    typed: Cell<Duration>,
}

impl TokenRequest<'_> {
    /// The JSON of the token, as the header has it.
    #[must_use]
    pub fn json(&self) -> String {
        self.volume.header.token_json(self.id).unwrap_or_default()
    }

    /// Until when the provider may take. That is later after each question, by as long as somebody typed.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.begun + self.patience + self.typed.get()
    }

    /// Asks for the PIN of the token; `None` where there is nobody to ask.
    ///
    /// # Errors
    /// As [`AskPin::ask`]; [`Problem::NoPin`](crate::Problem::NoPin) is for the provider to pass the token over.
    pub fn ask_pin(&self) -> Result<Option<SecretBuf>> {
        let begun = Instant::now();
        let pin = self.pin.map(|pin| pin.ask(self.volume.name, Some(self.id))).transpose();
        self.typed.set(self.typed.get() + begun.elapsed());
        pin
    }
}

/// Remains of what the tokens of a provider may take.
pub(crate) struct TokenBudget {
    left: Duration,
    /// A failure was counted, of which few are allowed.
    is_counted: bool,
}

impl TokenBudget {
    pub fn of(provider: &dyn TokenProvider) -> Self {
        Self { left: provider.patience().min(PATIENCE_MAX), is_counted: false }
    }

    /// Asks `provider` for the passphrase of the token `id`, with what is left.
    pub fn spend(
        &mut self,
        provider: &dyn TokenProvider,
        volume: TokenVolume<'_>,
        id: u32,
        pin: Option<&AskPin>,
    ) -> std::result::Result<SecretBuf, TokenRefusal> {
        let (begun, typed) = (Instant::now(), Cell::default());
        let may_count = !self.is_counted;
        let request = TokenRequest { volume, id, may_count, pin, begun, patience: self.left, typed };
        let passphrase = provider.passphrase(&request);
        let taken = begun.elapsed().saturating_sub(request.typed.get());
        self.left = self.left.saturating_sub(taken);
        self.is_counted |= matches!(passphrase, Err(TokenRefusal::Counted(_)));
        passphrase
    }
}

/// A token that is to be put into a header.
pub struct NewToken {
    /// The passphrase that it yields, for the new key slot.
    pub secret: SecretBuf,
    /// The token, for no key slot yet.
    pub json: Value,
    /// Fact about it that the user should know.
    pub warning: Option<Warning>,
}

/// Why a token yields no passphrase.
#[derive(Debug)]
pub enum TokenRefusal {
    /// Nothing is wrong: it is for another user, machine or program.
    NotUsed(String),
    /// Should have worked.
    Failed(String),
    /// The same, and somebody counts how often that happens, such as a TPM.
    Counted(String),
    /// Neither another token nor a key is tried.
    Ends(Error),
}

impl TokenRefusal {
    /// Reason, in words that go on after `token N: `.
    #[must_use]
    pub fn why(self) -> String {
        match self {
            Self::NotUsed(why) | Self::Failed(why) | Self::Counted(why) => why,
            Self::Ends(error) => error.to_string(),
        }
    }
}

impl From<String> for TokenRefusal {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for TokenRefusal {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl From<std::io::Error> for TokenRefusal {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Error> for TokenRefusal {
    fn from(error: Error) -> Self {
        Self::Ends(error)
    }
}
